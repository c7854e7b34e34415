//! Allocating huge pages from user space: by faults, as hugetlb pages, and base pages for comparison.

use super::latencies::Latencies;
use super::outcome::{BaseCase, HogError, Limits, Stopped, Taken};
use crate::contiguity::huge_check::HugeCheck;
use crate::memory::{base_page_bytes, Mapping, HUGE_BYTES};
use crate::timing::clock::now_ns;
use mega_linux::blocks::fragmentation;
use mega_linux::knobs::{KnobError, Knobs};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Consecutive failures after which memory counts as exhausted: after a failed compaction the kernel defers up to 64 further attempts.
const GIVE_UP_AFTER: usize = 64;

/// Touches one word in each 2 MB.
pub(super) fn by_faults(limits: &Limits<'_>) -> Result<Taken, HogError> {
    // Failed requests need address space too.
    let pieces = limits.count.min(limits.most) as usize + (limits.most as usize).min(1 << 20) + GIVE_UP_AFTER;
    let mut area = Mapping::new(pieces.saturating_mul(HUGE_BYTES))?;
    // A kernel without THP refuses; then no huge page is obtained.
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
        held: Some(fragmentation::read(limits.root)?),
        memory: Some(area),
        knobs: None,
    })
}

/// Raises nr_hugepages by one at a time.
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
            // The kernel accepted the number and could not allocate the page.
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
        held: Some(fragmentation::read(limits.root)?),
        memory: None,
        knobs: Some(knobs),
    })
}

/// Touches the same amount of memory as base pages. `None` if it was stopped on the way.
pub(super) fn base_case(pieces: u64, limits: &Limits<'_>) -> Result<Option<BaseCase>, HogError> {
    let mut area = Mapping::new(pieces as usize * HUGE_BYTES)?;
    // A kernel without THP refuses, and maps base pages anyway.
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
