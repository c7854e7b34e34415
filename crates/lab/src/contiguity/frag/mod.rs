//! Fragments memory in this process and keeps it fragmented.
//!
//! Without a target, `study` and `holes` first take all of their memory as base pages and then free parts of every chunk: base
//! pages allocated later would fill the holes. `reserve`, and every kind with a target, allocates one huge page, splits it
//! and frees parts of it before the next: a huge page never fits into a hole, so the target is reached with the least memory.
//!
//! Kept memory stays base pages (MADV_NOHUGEPAGE) with known content. kcompactd undoes the fragmentation within seconds unless
//! pipes hold the pages.

use self::pattern::Pattern;
use crate::contiguity::headroom::{Amount, Room};
use crate::contiguity::huge_check::HugeCheck;
use crate::memory::content;
use crate::memory::{base_page_bytes, Mapping, Pins, HUGE_BYTES, MADV_COLLAPSE};
use crate::timing::clock::now_ns;
use mega_core::units::{Bytes, Share};
use mega_linux::blocks::fragmentation;
use mega_linux::proc::ProcRoot;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

pub mod outcome;
pub mod pattern;
pub mod process;

pub use outcome::{Ended, FragError, FragOptions, Made, Verified};
pub use pattern::FragKind;
pub use process::Fragmenter;

/// Consecutive failures after which huge pages count as exhausted: after a failed compaction the kernel defers up to 64 further attempts.
const GIVE_UP_AFTER: u64 = 64;

/// Chunks between two checks of the machine's memory: 32 MB.
const LOOK_EVERY: usize = 16;

/// Fragmented memory. Dropping it frees all of it.
#[derive(Debug)]
pub struct Frag {
    // Dropped before the area: pages held by pipes are freed when both are gone.
    pins: Pins,
    area: Mapping,
    pattern: Pattern,
    seed: u64,
    /// Numbers of the chunks with kept pages.
    chunks: Vec<usize>,
    next_check: usize,
    verified: Verified,
    made: Made,
}

impl Frag {
    /// Fragments memory. `stop` is polled; once it is true everything is freed.
    ///
    /// # Errors
    /// When the memory may not be taken or the kernel refuses; then everything is freed.
    pub fn make(options: &FragOptions, root: &ProcRoot, stop: &dyn Fn() -> bool) -> Result<Self, FragError> {
        let begin = now_ns();
        let keep = options.keep.unwrap_or_else(|| options.kind.default_keep());
        let room = Room::read(root)?;
        let amount = match (options.amount, options.target) {
            // Most of each chunk is freed before the next is taken, so the safety margin may be fragmented too.
            (Amount::Most, Some(_)) => room.available_bytes,
            (amount, _) => room.admit(amount)?,
        };
        let before = fragmentation::read(root)?;
        let bytes = usize::try_from(amount).unwrap_or(usize::MAX).max(HUGE_BYTES) / HUGE_BYTES * HUGE_BYTES;
        let made = Made {
            kind: options.kind,
            seed: options.seed,
            amount_bytes: bytes as u64,
            taken_bytes: 0,
            kept_bytes: 0,
            pinned_bytes: 0,
            huge_pages: 0,
            fell_back: 0,
            target_share: options.target.map(Share::fraction),
            ended: Ended::Amount,
            elapsed_ns: 0,
            after: before.clone(),
            before,
        };
        let mut frag = Self {
            pins: Pins::new(),
            area: Mapping::new(bytes)?,
            pattern: Pattern::new(options.kind, keep, options.seed),
            seed: options.seed,
            chunks: Vec::new(),
            next_check: 0,
            verified: Verified::default(),
            made,
        };
        let mut progress = Progress { root, stop, count: 0 };
        if options.target.is_none() && options.kind != FragKind::Reserve {
            frag.take_base_pages(options.pin, &mut progress)?;
        } else {
            frag.take_huge_pages(options, &mut progress)?;
        }
        // Keep khugepaged from collapsing what is kept.
        let whole = 0..frag.area.len_bytes();
        let _ = frag.area.advise(whole, libc::MADV_NOHUGEPAGE);
        frag.made.pinned_bytes = frag.pins.pages() * base_page_bytes() as u64;
        frag.made.after = fragmentation::read(root)?;
        frag.made.elapsed_ns = now_ns() - begin;
        Ok(frag)
    }

    /// Allocates everything, then frees the holes.
    fn take_base_pages(&mut self, pin: bool, progress: &mut Progress<'_>) -> Result<(), FragError> {
        let whole = 0..self.area.len_bytes();
        // A kernel without THP refuses, and has no huge pages to avoid.
        let _ = self.area.advise(whole, libc::MADV_NOHUGEPAGE);
        let mut taken = 0;
        for chunk in 0..self.area.len_bytes() / HUGE_BYTES {
            if progress.step()? && !progress.has_room()? {
                self.made.ended = Ended::Margin;
                break;
            }
            for page in self.pages(chunk, &self.pattern.freed(chunk)) {
                self.area.page_words(page)[0].store(1, Relaxed);
            }
            self.write_kept(chunk);
            taken += 1;
        }
        self.made.taken_bytes = (taken * HUGE_BYTES) as u64;
        for chunk in 0..taken {
            progress.step()?;
            self.free_rest(chunk, pin)?;
        }
        Ok(())
    }

    /// Chunk by chunk, until the target is reached or no huge page is left.
    fn take_huge_pages(&mut self, options: &FragOptions, progress: &mut Progress<'_>) -> Result<(), FragError> {
        let whole = 0..self.area.len_bytes();
        let _ = self.area.advise(whole, libc::MADV_HUGEPAGE);
        let mut check = HugeCheck::best();
        let mut refused = 0;
        for chunk in 0..self.area.len_bytes() / HUGE_BYTES {
            if progress.step()? {
                if !progress.has_room()? {
                    self.made.ended = Ended::Margin;
                    return Ok(());
                }
                if self.reached(options, progress.root)? {
                    return Ok(());
                }
            }
            self.made.taken_bytes += HUGE_BYTES as u64;
            if self.take_huge_page(chunk, &mut check)? {
                refused = 0;
                self.made.huge_pages += 1;
                self.free_rest(chunk, options.pin)?;
            } else {
                refused += 1;
                self.made.fell_back += 1;
                self.made.taken_bytes -= HUGE_BYTES as u64;
                let bytes = chunk * HUGE_BYTES..(chunk + 1) * HUGE_BYTES;
                self.area.advise(bytes, libc::MADV_DONTNEED)?;
                if refused == GIVE_UP_AFTER {
                    self.made.ended = Ended::NoHugePages;
                    break;
                }
            }
        }
        self.reached(options, progress.root)?;
        Ok(())
    }

    /// Allocates chunk `chunk` as a huge page, writes what is kept of it, and splits it. False: no huge page was available.
    fn take_huge_page(&mut self, chunk: usize, check: &mut HugeCheck) -> Result<bool, FragError> {
        let bytes = chunk * HUGE_BYTES..(chunk + 1) * HUGE_BYTES;
        let (start, address) = (self.area.start(), self.area.start() + bytes.start);
        self.area.words()[bytes.start / 8].store(1, Relaxed);
        if !check.is_huge(start, address) {
            // Where the machine's settings allow none at faults, a collapse may still work.
            let collapsed = self.area.advise(bytes.clone(), MADV_COLLAPSE).is_ok();
            if !collapsed || !check.is_huge(start, address) {
                return Ok(false);
            }
        }
        self.write_kept(chunk);
        // On a part only: that makes the kernel split it at once. Unmapping alone would free nothing before memory pressure.
        self.area
            .advise(bytes.start..bytes.start + base_page_bytes(), libc::MADV_COLD)?;
        // Keep khugepaged from collapsing the rest of this chunk.
        let _ = self.area.advise(bytes, libc::MADV_NOHUGEPAGE);
        Ok(true)
    }

    fn reached(&mut self, options: &FragOptions, root: &ProcRoot) -> Result<bool, FragError> {
        let Some(target) = options.target else { return Ok(false) };
        let reached = fragmentation::read(root)?.unusable_share >= target.fraction();
        if reached {
            self.made.ended = Ended::Target;
        }
        Ok(reached)
    }

    fn write_kept(&self, chunk: usize) {
        for page in self.pages(chunk, &self.pattern.kept(chunk)) {
            content::fill(self.area.page_words(page), self.seed_of(page));
        }
    }

    /// Frees the part of chunk `chunk` that is not kept.
    fn free_rest(&mut self, chunk: usize, pin: bool) -> Result<(), FragError> {
        let kept = self.pages(chunk, &self.pattern.kept(chunk));
        if pin {
            self.pins.hold(&self.area, &kept)?;
        }
        let first = chunk * HUGE_BYTES;
        for run in self.pattern.freed(chunk) {
            let bytes = first + run.start * base_page_bytes()..first + run.end * base_page_bytes();
            self.area.advise(bytes, libc::MADV_DONTNEED)?;
        }
        if !kept.is_empty() {
            self.chunks.push(chunk);
            self.made.kept_bytes += (kept.len() * base_page_bytes()) as u64;
        }
        Ok(())
    }

    /// Page numbers in the area for runs within a chunk.
    fn pages(&self, chunk: usize, runs: &[Range<usize>]) -> Vec<usize> {
        let first = chunk * (HUGE_BYTES / base_page_bytes());
        runs.iter().cloned().flatten().map(|page| first + page).collect()
    }

    fn seed_of(&self, page: usize) -> u64 {
        content::mix(self.seed ^ page as u64)
    }

    /// What was done.
    #[must_use]
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// What has been verified so far.
    #[must_use]
    pub fn verified(&self) -> Verified {
        self.verified
    }

    /// Verifies the next part of the kept pages, round robin: at least this many bytes, or all.
    ///
    /// # Errors
    /// [`FragError::Wrong`] with the first page whose content changed.
    pub fn verify_some(&mut self, least: Bytes) -> Result<(), FragError> {
        let mut checked = 0;
        for _ in 0..self.chunks.len() {
            if checked >= least.0 {
                break;
            }
            let chunk = self.chunks[self.next_check];
            for page in self.pages(chunk, &self.pattern.kept(chunk)) {
                let words = self.area.page_words(page);
                content::verify(words, self.seed_of(page)).map_err(|wrong| FragError::Wrong {
                    page,
                    address: words.as_ptr() as usize + wrong.index * 8,
                    expected: wrong.expected,
                    found: wrong.found,
                })?;
                checked += base_page_bytes() as u64;
                self.verified.pages += 1;
            }
            self.next_check += 1;
            if self.next_check == self.chunks.len() {
                self.next_check = 0;
                self.verified.passes += 1;
            }
        }
        Ok(())
    }

    /// Verifies all kept pages.
    ///
    /// # Errors
    /// [`FragError::Wrong`] with the first page whose content changed.
    pub fn verify(&mut self) -> Result<Verified, FragError> {
        self.next_check = 0;
        self.verify_some(Bytes(u64::MAX))?;
        Ok(self.verified)
    }
}

/// What is checked between chunks.
struct Progress<'a> {
    root: &'a ProcRoot,
    stop: &'a dyn Fn() -> bool,
    count: usize,
}

impl Progress<'_> {
    /// Counts a chunk; true when the machine's memory is to be checked.
    fn step(&mut self) -> Result<bool, FragError> {
        if (self.stop)() {
            return Err(FragError::Stopped);
        }
        self.count += 1;
        Ok((self.count - 1) % LOOK_EVERY == 0)
    }

    /// Whether the chunks up to the next check may be taken.
    fn has_room(&self) -> Result<bool, FragError> {
        Ok(Room::read(self.root)?.usable_bytes >= (LOOK_EVERY * HUGE_BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contiguity::Amount;
    use crate::memory::PinError;

    fn small(kind: FragKind) -> FragOptions {
        FragOptions {
            kind,
            amount: Amount::Bytes(64 << 20),
            ..FragOptions::default()
        }
    }

    fn make(options: &FragOptions) -> Frag {
        Frag::make(options, &ProcRoot::default(), &|| false).unwrap()
    }

    fn resident_pages(frag: &Frag) -> usize {
        let smaps = mega_linux::proc::smaps::read(&ProcRoot::default(), std::process::id()).unwrap();
        let range = frag.area.range();
        let inside = |start: u64| range.contains(&(start as usize));
        let ours = smaps.iter().filter(|entry| inside(entry.mapping.start));
        let bytes: u64 = ours.map(|entry| entry.usage.rss_bytes.unwrap()).sum();
        bytes as usize / base_page_bytes()
    }

    #[test]
    fn each_kind_keeps_its_share_frees_the_rest_and_finds_its_data_right() {
        for (kind, share) in [(FragKind::Study, 4), (FragKind::Holes, 2), (FragKind::Reserve, 2)] {
            let mut frag = make(&small(kind));
            let made = frag.made().clone();
            if made.ended == Ended::NoHugePages || made.fell_back > 0 {
                eprintln!("SKIPPED: {kind}: no huge pages are to be had");
                continue;
            }
            assert_eq!(
                (made.taken_bytes, made.kept_bytes),
                (64 << 20, (64 << 20) / share),
                "{kind}"
            );
            assert_eq!(resident_pages(&frag), (64 << 20) / share as usize / 4096, "{kind}");
            let verified = frag.verify().unwrap();
            assert_eq!((verified.pages, verified.passes), ((64 << 20) / share / 4096, 1));
        }
    }

    #[test]
    fn a_changed_word_is_found() {
        let mut frag = make(&small(FragKind::Holes));
        let page = frag.pages(3, &frag.pattern.kept(3))[7];
        frag.area.page_words(page)[100].fetch_xor(1, Relaxed);
        let error = frag.verify().unwrap_err();
        assert!(
            matches!(error, FragError::Wrong { page: found, .. } if found == page),
            "{error}"
        );
    }

    #[test]
    fn checks_go_round() {
        let mut frag = make(&small(FragKind::Study));
        for _ in 0..40 {
            frag.verify_some(Bytes::mib(1)).unwrap();
        }
        assert!(frag.verified().passes >= 2);
    }

    #[test]
    fn pinned_pages_are_all_that_is_kept() {
        let options = FragOptions {
            pin: true,
            ..small(FragKind::Study)
        };
        match Frag::make(&options, &ProcRoot::default(), &|| false) {
            Ok(mut frag) => {
                assert_eq!(frag.made().pinned_bytes, frag.made().kept_bytes);
                frag.verify().unwrap();
            }
            Err(FragError::Pins(PinError::Limit { .. })) => eprintln!("SKIPPED: pipes are limited here"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn stopping_half_way_frees_all_and_says_so() {
        let left = std::cell::Cell::new(5);
        let stop = || left.replace(left.get() - 1) == 0;
        let error = Frag::make(&small(FragKind::Study), &ProcRoot::default(), &stop).unwrap_err();
        assert!(matches!(error, FragError::Stopped));
    }

    #[test]
    fn a_target_that_is_reached_already_takes_nothing() {
        let options = FragOptions {
            target: Some(Share::ZERO),
            amount: Amount::Most,
            ..small(FragKind::Study)
        };
        let room = Room::read(&ProcRoot::default()).unwrap();
        let made = make(&options).made().clone();
        assert_eq!((made.ended, made.taken_bytes, made.kept_bytes), (Ended::Target, 0, 0));
        // It would have gone through the margin, too.
        let most = (room.usable_bytes + room.available_bytes) / 2;
        assert!(made.amount_bytes > most, "{} of {room:?}", made.amount_bytes);
        assert!(!made.missed());
    }
}
