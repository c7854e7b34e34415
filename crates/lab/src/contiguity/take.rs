//! How huge pages are taken: by faults, as hugetlb pages, and base pages for comparison.

use super::hog::{BaseCase, HogError, Stopped};
use super::obtained::HugeCheck;
use super::room::Room;
use super::spectrum::Latencies;
use crate::clock::now_ns;
use crate::memory::{base_page_bytes, Mapping, HUGE_BYTES};
use mega_linux::contiguity::{self, Contiguity};
use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::proc::ProcRoot;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Requests in a row that give none before there are taken to be none: after a failed compaction the kernel does not try for up to
/// 64.
const GIVE_UP_AFTER: usize = 64;

/// Requests between two looks at available memory: 32 MB.
const LOOK_EVERY: u64 = 16;

/// What bounds a run.
pub(super) struct Limits<'a> {
    /// Where the machine's state is read.
    pub root: &'a ProcRoot,
    /// Asked before each request.
    pub stop: &'a dyn Fn() -> bool,
    /// As many are wanted.
    pub count: u64,
    /// As many may be had at most.
    pub most: u64,
}

impl Limits<'_> {
    /// Whether to end before the next request.
    fn end(&self, obtained: u64, requests: u64) -> Result<Option<Stopped>, HogError> {
        if obtained >= self.count {
            return Ok(Some(Stopped::Count));
        }
        if (self.stop)() {
            return Ok(Some(Stopped::Asked));
        }
        let look = requests % LOOK_EVERY == 0;
        if obtained >= self.most || look && Room::read(self.root)?.usable_bytes < LOOK_EVERY * HUGE_BYTES as u64 / 2 {
            return Ok(Some(Stopped::Margin));
        }
        Ok(None)
    }
}

/// What was taken.
pub(super) struct Taken {
    /// How it was found out which are huge.
    pub checked_by: String,
    /// Of those that were had, in order.
    pub latencies_ns: Vec<u64>,
    /// Of those that were not.
    pub fell_back_ns: Vec<u64>,
    /// Why no more were taken.
    pub stopped: Stopped,
    /// Free memory with all of them held, where they still are.
    pub held: Option<Contiguity>,
    /// What holds them: our memory.
    pub memory: Option<Mapping>,
    /// What holds them: a setting.
    pub knobs: Option<Knobs>,
}

impl Taken {
    /// Frees all.
    pub fn free(&mut self) -> Result<(), HogError> {
        self.memory = None;
        let Some(mut knobs) = self.knobs.take() else {
            return Ok(());
        };
        let done = knobs.restore()?;
        let left = done
            .left
            .into_iter()
            .map(|left| (left.path, format!("somebody else made it '{}'", left.current)));
        match left.chain(done.failed).next() {
            Some((path, why)) => Err(HogError::NotPutBack { path, why }),
            None => Ok(()),
        }
    }
}

/// Touches one word of 2 MB after the other.
pub(super) fn by_faults(limits: &Limits<'_>) -> Result<Taken, HogError> {
    // Requests that give none need address space too.
    let pieces = limits.count.min(limits.most) as usize + (limits.most as usize).min(1 << 20) + GIVE_UP_AFTER;
    let mut area = Mapping::new(pieces.saturating_mul(HUGE_BYTES))?;
    // A kernel without THP refuses, and then none are obtained.
    let _ = area.advise(0..area.len_bytes(), libc::MADV_HUGEPAGE);
    let mut check = HugeCheck::best();
    let (mut had, mut not) = (Vec::new(), Vec::new());
    let mut in_a_row = 0;
    let mut stopped = Stopped::NoneLeft;
    for piece in 0..pieces {
        if let Some(end) = limits.end(had.len() as u64, piece as u64)? {
            stopped = end;
            break;
        }
        let bytes = piece * HUGE_BYTES..(piece + 1) * HUGE_BYTES;
        let word = &area.words()[bytes.start / 8];
        let begin = now_ns();
        word.store(1, Relaxed);
        let took_ns = now_ns() - begin;
        if check.is_huge(area.start(), area.start() + bytes.start) {
            had.push(took_ns);
            in_a_row = 0;
            continue;
        }
        not.push(took_ns);
        area.advise(bytes, libc::MADV_DONTNEED)?;
        in_a_row += 1;
        if in_a_row == GIVE_UP_AFTER {
            break;
        }
    }
    Ok(Taken {
        checked_by: check.name().to_string(),
        latencies_ns: had,
        fell_back_ns: not,
        stopped,
        held: Some(contiguity::read(limits.root)?),
        memory: Some(area),
        knobs: None,
    })
}

/// Raises the setting by one at a time.
pub(super) fn by_hugetlb(limits: &Limits<'_>, state_folder: &Path) -> Result<Taken, HogError> {
    let path = limits
        .root
        .sys
        .join("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    match std::fs::OpenOptions::new().write(true).open(&path) {
        Ok(_) => {}
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Err(HogError::NoHugetlb { path }),
        Err(source) => return Err(HogError::NotAllowed { path, source }),
    }
    let mut knobs = Knobs::open(limits.root.clone(), state_folder)?;
    knobs.recover()?;
    let text = knobs.get(&path)?;
    let before: u64 = match text.parse() {
        Ok(before) => before,
        Err(_) => return Err(HogError::NotANumber { path, text }),
    };
    let (mut had, mut not) = (Vec::new(), Vec::new());
    let stopped = loop {
        let obtained = had.len() as u64;
        if let Some(end) = limits.end(obtained, obtained)? {
            break end;
        }
        let begin = now_ns();
        match knobs.set_timed(&path, &(before + obtained + 1).to_string()) {
            Ok(took) => had.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
            // The kernel took the number and could not find the page.
            Err(KnobError::NotKept { .. }) => {
                not.push(now_ns() - begin);
                break Stopped::NoneLeft;
            }
            Err(error) => return Err(error.into()),
        }
    };
    Ok(Taken {
        checked_by: "nr_hugepages".to_string(),
        latencies_ns: had,
        fell_back_ns: not,
        stopped,
        held: Some(contiguity::read(limits.root)?),
        memory: None,
        knobs: Some(knobs),
    })
}

/// Touches as much as so many huge pages, as base pages. `None` where it was stopped half way.
pub(super) fn base_case(pieces: u64, limits: &Limits<'_>) -> Result<Option<BaseCase>, HogError> {
    let mut area = Mapping::new(pieces as usize * HUGE_BYTES)?;
    // A kernel without THP refuses, and gives base pages anyway.
    let _ = area.advise(0..area.len_bytes(), libc::MADV_NOHUGEPAGE);
    let step = base_page_bytes() / 8;
    let mut latencies_ns = Vec::new();
    for piece in area.words().chunks(HUGE_BYTES / 8).take(pieces as usize) {
        if limits.end(0, latencies_ns.len() as u64)?.is_some() {
            break;
        }
        let begin = now_ns();
        piece.iter().step_by(step).for_each(|word| word.store(1, Relaxed));
        latencies_ns.push(now_ns() - begin);
    }
    if (limits.stop)() {
        return Ok(None);
    }
    Ok(Some(BaseCase {
        bytes: latencies_ns.len() as u64 * HUGE_BYTES as u64,
        per_2mb: Latencies::of(&latencies_ns),
        latencies_ns,
    }))
}
