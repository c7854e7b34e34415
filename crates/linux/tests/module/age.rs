//! Accessed bits: every page that was touched and no other, with nothing changed for reclaim.

use std::os::fd::{AsFd, OwnedFd};

use mega_linux::module::uapi::{self, Region, RegionMap};
use mega_linux::module::{AgedRange, Ageing, Module};
use mega_linux::scan::{choose, Preference, ScanRange};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::memory::{page_flags, Memory, PAGE, REGION};
use super::module;

const CLEAR: Ageing = Ageing {
    clear: true,
    flush: true,
    young: false,
    take: false,
};
const LOOK: Ageing = Ageing {
    clear: false,
    flush: false,
    young: false,
    take: false,
};

fn us() -> OwnedFd {
    mega_linux::sys::pidfd_open(std::process::id()).unwrap()
}

fn age(module: &Module, memory: &Memory, how: Ageing) -> (Vec<Region>, Vec<RegionMap>, AgedRange) {
    let range = memory.base..memory.base + memory.pages * PAGE;
    let (mut regions, mut maps) = (Vec::new(), Vec::new());
    let aged = module
        .age(us().as_fd(), range.clone(), how, 4096, &mut regions, Some(&mut maps))
        .unwrap();
    assert_eq!((aged.next, aged.secondary), (range.end, false));
    (regions, maps, aged)
}

fn bits(map: &[u64; 8]) -> Vec<u64> {
    (0..512)
        .filter(|n| map[n / 64] >> (n % 64) & 1 == 1)
        .map(|n| n as u64)
        .collect()
}

/// LRU, ACTIVE, REFERENCED, RECLAIM, UNEVICTABLE, MLOCKED and what kind of page it is.
fn lru(memory: &Memory) -> Vec<(u64, u64)> {
    let kept = 1 << 2 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 12 | 1 << 14 | 1 << 18 | 1 << 33;
    memory
        .frames()
        .values()
        .map(|&frame| (frame, page_flags(frame) & kept))
        .collect()
}

#[test]
fn every_touched_page_is_found_and_no_other_and_the_lists_stay_as_they_are() {
    let Some(module) = module() else { return };
    let mut memory = Memory::map(8);
    (0..memory.pages).for_each(|page| memory.fill(page));
    let mut random = Pcg64Mcg::seed_from_u64(7);
    // What is on the way to the LRU lists gets there.
    std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let before = lru(&memory);
    assert!(before.iter().all(|(_, flags)| flags & 1 << 5 != 0));
    let (regions, _, _) = age(&module, &memory, CLEAR);
    assert_eq!(regions.len(), 8);
    assert!(
        regions
            .iter()
            .all(|r| r.mapped == 512 && r.accessed == 512 && r.flags == 0),
        "{regions:?}"
    );
    for round in 0..10 {
        let share = [0, 1, 3, 17, 128, 255, 400, 511, 512, 60][round];
        let mut touched = std::collections::BTreeSet::new();
        for region in 0..8 {
            while (touched.range(region * 512..(region + 1) * 512).count() as u64) < share {
                touched.insert(region * 512 + random.next_u64() % 512);
            }
        }
        touched.iter().for_each(|&page| memory.touch(page));
        let (looked, maps, _) = age(&module, &memory, LOOK);
        let (cleared, _, _) = age(&module, &memory, CLEAR);
        assert_eq!(looked, cleared, "looking changes nothing");
        let found: Vec<u64> = (0..8)
            .flat_map(|r| bits(&maps[r].accessed).into_iter().map(move |n| r as u64 * 512 + n))
            .collect();
        assert_eq!(found, touched.into_iter().collect::<Vec<_>>(), "round {round}");
        assert!(looked.iter().all(|r| u64::from(r.accessed) == share && r.dirty == 512));
    }
    let changed = before.iter().zip(lru(&memory)).filter(|(b, now)| **b != *now).count();
    assert_eq!(changed, 0, "pages moved on the lists, or were marked");
}

#[test]
fn it_sees_what_the_ebpf_walk_sees() {
    let Some(module) = module() else { return };
    let mut memory = Memory::map(3);
    for page in (0..512).step_by(3) {
        memory.fill(page);
    }
    for page in (512..1024).step_by(5) {
        memory.touch(page);
    }
    let (mut scanner, _) = choose(Preference::Only("ebpf")).unwrap();
    let range = ScanRange {
        start: memory.base,
        end: memory.base + 3 * REGION,
        young: false,
    };
    let pid = std::process::id() as i32;
    let mut scanned = Vec::new();
    scanner.scan(pid, &[range], &mut scanned).unwrap();
    let (regions, maps, _) = age(&module, &memory, LOOK);
    scanned.retain(|r| r.mapped > 0 || r.swapped > 0);
    assert_eq!(scanned.len(), regions.len(), "{scanned:?} {regions:?}");
    for (s, r) in scanned.iter().zip(&regions) {
        assert_eq!(
            (
                s.address,
                s.mapped,
                s.accessed,
                s.dirty,
                s.zero,
                s.write_protected,
                s.swapped
            ),
            (
                r.address,
                r.mapped,
                r.accessed,
                r.dirty,
                r.zero,
                r.write_protected,
                r.swapped
            )
        );
    }
    assert_eq!((regions[0].mapped, regions[0].dirty, regions[1].zero), (171, 171, 103));
    assert_eq!(bits(&maps[0].mapped), (0..512).step_by(3).collect::<Vec<_>>());
    assert_eq!(
        bits(&maps[1].zero),
        (512..1024).step_by(5).map(|n| n - 512).collect::<Vec<_>>()
    );
}

#[test]
fn huge_pages_have_one_bit_and_what_is_cleared_is_kept_for_reclaim() {
    let Some(module) = module() else { return };
    let mut memory = Memory::map(2);
    memory.collapse();
    memory.touch(3);
    memory.touch(700);
    let (regions, _, _) = age(&module, &memory, CLEAR);
    assert!(
        regions
            .iter()
            .all(|r| (r.flags, r.accessed, r.mapped) == (uapi::REGION_HUGE, 512, 512)),
        "{regions:?}"
    );
    memory.touch(701);
    let (regions, maps, _) = age(&module, &memory, CLEAR);
    assert_eq!((regions[0].accessed, regions[1].accessed), (0, 512));
    assert_eq!(maps[1].accessed, [!0; 8]);
    assert_eq!(memory.spoiled(), 0);
    // Split, and looked at page by page.
    memory.advise(512..513, libc::MADV_DONTNEED);
    let (regions, _, _) = age(&module, &memory, CLEAR);
    assert_eq!((regions[1].flags, regions[1].mapped), (0, 511));

    let can_young = module.info().abilities & uapi::CAN_YOUNG != 0;
    let (young, taken) = (
        Ageing { young: true, ..LOOK },
        Ageing {
            young: true,
            take: true,
            ..CLEAR
        },
    );
    let (regions, _, _) = age(&module, &memory, young);
    let expected = if can_young { (512, 0) } else { (0, 0) };
    assert_eq!((regions[0].young, regions[0].accessed), expected, "{regions:?}");
    age(&module, &memory, taken);
    let (regions, _, _) = age(&module, &memory, young);
    assert!(regions.iter().all(|r| r.young == 0), "{regions:?}");
    memory.touch(3);
    age(&module, &memory, taken);
    let (regions, _, _) = age(&module, &memory, young);
    assert_eq!(
        (regions[0].young, regions[0].accessed),
        (0, 0),
        "what was taken is not kept"
    );
}

#[test]
fn a_whole_address_space_is_gone_through_in_bounded_steps() {
    let Some(module) = module() else { return };
    // Much address space, little memory.
    let empty = Memory::map(0);
    let len = 1usize << 44;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    for step in 0..64usize {
        // SAFETY: inside the mapping.
        unsafe { (at as *mut u8).add(step << 37).write_volatile(1) };
    }
    let (mut regions, mut next, mut calls) = (Vec::new(), 0, 0);
    let (mut took, mut lock_max) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    while next < 1 << 47 {
        let aged = module
            .age(us().as_fd(), next..1 << 47, LOOK, 16, &mut regions, None)
            .unwrap();
        assert!(aged.next > next);
        next = aged.next;
        calls += 1;
        took += aged.took;
        lock_max = lock_max.max(aged.lock_max);
    }
    let inside = regions
        .iter()
        .filter(|r| (at as u64..at as u64 + len as u64).contains(&r.address))
        .count();
    assert!(inside >= 64, "{inside}");
    assert!(regions.windows(2).all(|pair| pair[0].address < pair[1].address));
    eprintln!(
        "MODULE {} regions of 128 TB in {calls} calls and {took:?}, locked for {lock_max:?} at most",
        regions.len()
    );
    // SAFETY: the mapping is ours.
    unsafe { libc::munmap(at, len) };
    drop(empty);
}

/// In a machine whose time is the count of its instructions (MEGA_VM_EXACT).
#[test]
#[ignore = "times mean something in the exact mode only"]
fn it_takes_a_tenth_of_the_instructions_of_scanning_and_madv_cold() {
    let Some(module) = module() else { return };
    for accessed_every in [1, 4, 512] {
        let mut memory = Memory::map(32);
        (0..memory.pages).for_each(|page| memory.fill(page));
        let touch = |memory: &Memory| {
            (0..memory.pages)
                .step_by(accessed_every)
                .for_each(|page| memory.touch(page))
        };
        let pidfd = us();
        let (mut scanner, _) = choose(Preference::Only("ebpf")).unwrap();
        let range = ScanRange {
            start: memory.base,
            end: memory.base + memory.pages * PAGE,
            young: false,
        };
        let pid = std::process::id() as i32;
        let (mut scanned, mut regions) = (Vec::new(), Vec::new());
        let cold = || {
            let (start, len) = (range.start, range.end - range.start);
            mega_linux::sys::process_madvise(pidfd.as_fd(), start, len, mega_linux::sys::Madvise::Cold).unwrap();
        };
        let (mut stock, mut with_module) = ([0; 3], [0; 3]);
        for round in 0..3 {
            cold();
            touch(&memory);
            scanned.clear();
            let began = std::time::Instant::now();
            scanner.scan(pid, &[range], &mut scanned).unwrap();
            cold();
            stock[round] = began.elapsed().as_nanos() / 32;
            age(&module, &memory, CLEAR);
            touch(&memory);
            regions.clear();
            let began = std::time::Instant::now();
            module
                .age(pidfd.as_fd(), range.start..range.end, CLEAR, 64, &mut regions, None)
                .unwrap();
            with_module[round] = began.elapsed().as_nanos() / 32;
            let found: Vec<_> = regions.iter().map(|r| (r.address, r.accessed)).collect();
            assert_eq!(
                scanned.iter().map(|r| (r.address, r.accessed)).collect::<Vec<_>>(),
                found
            );
        }
        eprintln!("MODULE one page in {accessed_every}: {stock:?} instructions a region by scan and MADV_COLD, {with_module:?} by the module");
        let (stock, with_module) = (stock[2], with_module[2]);
        assert!(with_module * 10 <= stock, "{with_module} against {stock}");
    }
}
