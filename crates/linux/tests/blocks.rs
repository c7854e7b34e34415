//! Physical memory as it is read, against what we know of it: frames of our own, and the buddy allocator's counts. Needs root.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard};

use mega_core::compaction::block::{Block, BlockKind, Hpfn, PageKind};
use mega_linux::blocks::{read, BlocksError, Physical, Sampling};
use mega_linux::proc::ProcRoot;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

/// What one test frees, another would count.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn look() -> Option<Physical> {
    match read(&ProcRoot::default(), Sampling::Auto) {
        Ok(seen) => Some(seen),
        Err(e @ (BlocksError::Refused(_) | BlocksError::Missing(_))) => {
            eprintln!("SKIPPED: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Written anonymous memory, aligned to 2 MB; given back when dropped.
struct Memory {
    at: u64,
    len: u64,
    mapped: (u64, u64),
}

impl Memory {
    fn new(blocks: u64, advice: i32) -> Memory {
        let mapped_len = (blocks + 1) * HUGE;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: new memory at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), mapped_len as usize, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let memory = Memory {
            at: (at as u64).next_multiple_of(HUGE),
            len: blocks * HUGE,
            mapped: (at as u64, mapped_len),
        };
        // SAFETY: our own mapping.
        unsafe { libc::madvise(memory.at as *mut libc::c_void, memory.len as usize, advice) };
        for page in (memory.at..memory.at + memory.len).step_by(PAGE as usize) {
            // SAFETY: our own mapping.
            unsafe { (page as *mut u64).write_volatile(page) };
        }
        memory
    }

    /// Our frames by block: how many pages of ours each has.
    fn frames(&self) -> BTreeMap<Hpfn, u32> {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut bytes = vec![0; (self.len / PAGE * 8) as usize];
        pagemap.read_exact_at(&mut bytes, self.at / PAGE * 8).unwrap();
        let mut blocks = BTreeMap::new();
        for entry in bytes.chunks_exact(8) {
            let frame = u64::from_ne_bytes(entry.try_into().unwrap()) & ((1 << 55) - 1);
            assert_ne!(frame, 0, "frame numbers are visible");
            *blocks.entry(Hpfn::of_frame(frame)).or_default() += 1;
        }
        blocks
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nothing is used any more.
        unsafe { libc::munmap(self.mapped.0 as *mut libc::c_void, self.mapped.1 as usize) };
    }
}

fn by_number(seen: &Physical) -> BTreeMap<Hpfn, Block> {
    seen.blocks.iter().map(|b| (b.hpfn, *b)).collect()
}

#[test]
fn memory_that_a_program_touched_is_found_in_the_blocks_where_pagemap_says_it_is() {
    let _alone = alone();
    let memory = Memory::new(64, libc::MADV_NOHUGEPAGE);
    let before = memory.frames();
    let Some(seen) = look() else { return };
    if seen.every > 1 {
        eprintln!("SKIPPED: this machine is too large to be read whole");
        return;
    }
    // The kernel may move pages at any time; what stayed must be seen.
    let after = memory.frames();
    let blocks = by_number(&seen);
    let (mut checked, mut found) = (0u32, 0u32);
    for (hpfn, &ours) in before.iter().filter(|(hpfn, ours)| after.get(hpfn) == Some(ours)) {
        let block = blocks[hpfn];
        checked += ours;
        let movable = block.pages(PageKind::Movable).0 + block.pages(PageKind::Huge).0;
        found += ours.min(movable).min(block.mapped_pages().0);
    }
    eprintln!("{found} of {checked} pages in {} blocks", before.len());
    assert!(checked > 16_000, "of 32768 pages most stayed");
    assert!(found >= checked - checked / 1000, "{found} of {checked}");
}

#[test]
fn huge_pages_are_found_as_huge_blocks_and_are_no_longer_when_freed() {
    let _alone = alone();
    // Blocks that are given back are the first that another process gets: it is tried again where one took them.
    let mut tries = Vec::new();
    for _ in 0..5 {
        let memory = Memory::new(32, libc::MADV_HUGEPAGE);
        let ours: Vec<Hpfn> = memory
            .frames()
            .into_iter()
            .filter(|(_, n)| *n == 512)
            .map(|(hpfn, _)| hpfn)
            .collect();
        let Some(seen) = look() else { return };
        if seen.every > 1 || ours.len() < 16 {
            eprintln!(
                "SKIPPED: huge pages were not to be had ({}), or the machine is too large",
                ours.len()
            );
            return;
        }
        let huge = |seen: &Physical| {
            let blocks = by_number(seen);
            ours.iter()
                .filter(|hpfn| blocks[hpfn].kind() == BlockKind::Huge)
                .count()
        };
        let found = huge(&seen);
        assert!(found + 1 >= ours.len(), "{found} of {}", ours.len());
        let mapped: u32 = ours.iter().map(|hpfn| by_number(&seen)[hpfn].mapped_pages().0).sum();
        assert!(mapped >= (ours.len() as u32 - 1) * 512);
        drop(memory);
        let left = huge(&look().unwrap());
        if left <= ours.len() / 2 {
            return;
        }
        tries.push(format!("{left} of {} are still huge", ours.len()));
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    panic!("{tries:?}");
}

#[test]
fn free_pages_agree_with_the_buddy_allocator_s_count() {
    let _alone = alone();
    let mut tries = Vec::new();
    for _ in 0..5 {
        let Some(seen) = look() else { return };
        if seen.every > 1 {
            eprintln!("SKIPPED: a sample");
            return;
        }
        let (free, buddy) = (seen.pages(PageKind::Free), seen.buddy);
        let changed = buddy.before_pages.abs_diff(buddy.after_pages);
        let (low, high) = (
            buddy.before_pages.min(buddy.after_pages),
            buddy.before_pages.max(buddy.after_pages),
        );
        // Between the two counts, give or take what changed and what comes and goes meanwhile: 16 MB.
        let slack = changed + 4096;
        eprintln!(
            "free {free}, buddyinfo {} and {}, per CPU {}, unflagged {}, took {:?}",
            buddy.before_pages,
            buddy.after_pages,
            buddy.per_cpu_pages,
            seen.pages(PageKind::Unflagged),
            seen.took
        );
        tries.push((free, buddy));
        if free + slack >= low && free <= high + slack {
            let in_blocks: u64 = seen.zones.iter().map(|zone| zone.free_blocks.0).sum();
            let whole = seen.blocks_of(BlockKind::Free).0;
            eprintln!("free blocks {whole}, buddyinfo {in_blocks}");
            // Two free chunks may make an aligned block that the allocator has not joined, never the other way round.
            assert!(whole + slack / 512 + 8 >= in_blocks, "{whole} {in_blocks}");
            assert!(seen.notes().is_empty(), "{:?}", seen.notes());
            return;
        }
    }
    panic!("never within what changed meanwhile: {tries:?}");
}

#[test]
fn mapped_by_flags_is_mapped_by_kpagecount() {
    let _alone = alone();
    let memory = Memory::new(4, libc::MADV_NOHUGEPAGE);
    let counts = File::open("/proc/kpagecount").unwrap();
    let mut tries = Vec::new();
    // Other programs have pages in the same blocks, and may free them between the two looks.
    for _ in 0..10 {
        let Some(seen) = look() else { return };
        if seen.every > 1 {
            eprintln!("SKIPPED: a sample");
            return;
        }
        let blocks = by_number(&seen);
        let (mut by_flags, mut by_count) = (0, 0);
        for hpfn in memory.frames().into_keys() {
            let mut bytes = [0; 4096];
            counts.read_exact_at(&mut bytes, hpfn.first_frame() * 8).unwrap();
            by_count += bytes.chunks_exact(8).filter(|count| *count != [0; 8]).count() as u32;
            by_flags += blocks.get(&hpfn).map_or(0, |b| b.mapped_pages().0);
        }
        assert!(by_count >= 4 * 512);
        if by_flags.abs_diff(by_count) <= by_count / 20 + 64 {
            return;
        }
        tries.push((by_flags, by_count));
    }
    panic!("never within what changed meanwhile: {tries:?}");
}

#[test]
fn a_sample_says_what_the_whole_says() {
    let _alone = alone();
    let Some(whole) = look() else { return };
    let sample = read(&ProcRoot::default(), Sampling::Every(8.try_into().unwrap())).unwrap();
    assert_eq!(sample.every, 8.max(whole.every));
    assert!(sample.blocks.iter().all(|b| b.hpfn.0 % 8 == 0));
    assert!(sample.notes()[0].contains("one block in 8"));
    if whole.every > 1 {
        return;
    }
    let same = by_number(&whole);
    let differing = sample
        .blocks
        .iter()
        .filter(|b| same[&b.hpfn].kind() != b.kind())
        .count();
    assert!(
        differing * 10 <= sample.blocks.len(),
        "{differing} of {}",
        sample.blocks.len()
    );
}
