//! Chosen blocks emptied: contents stay, what is pinned is named, and it costs less than compacting everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mega_linux::module::uapi::{Block, CompactBlock, BLOCK_WHOLE};
use mega_linux::module::BlockOutcome;

use super::memory::{pin_for_dma, Memory, PAGE};
use super::{free_blocks, module, vmstat};

const LONG: Duration = Duration::from_secs(50);

fn outcomes(list: &[CompactBlock]) -> BTreeMap<&'static str, usize> {
    let mut by = BTreeMap::new();
    list.iter()
        .for_each(|block| *by.entry(block.outcome().word()).or_insert(0) += 1);
    by
}

/// Blocks of ours, those with the fewest pages to move first; none with anything that cannot be moved.
fn best(blocks: &[Block], memory: &Memory) -> Vec<CompactBlock> {
    let mut own: Vec<_> = memory
        .by_block()
        .into_keys()
        .map(|n| (blocks[n as usize].movable, n))
        .collect();
    own.retain(|&(movable, n)| {
        let b = blocks[n as usize];
        movable <= 256 && b.unmovable + b.pinned + b.huge == 0
    });
    own.sort_unstable();
    own.into_iter().map(|(_, n)| CompactBlock::asked(n)).collect()
}

/// Every processor's list of free pages goes back to the buddy allocator. Linux 6.7 and later keep up to an eighth of memory on them, and
/// the kernel's compaction has been seen to find no page to move to.
fn give_back_lists() {
    for _ in 0..64 {
        let _ = std::fs::read("/proc/sys/vm/stat_refresh").unwrap();
    }
}

/// Pages that the kernel's compaction moves for each block that it frees.
fn moves_of_compact_memory() -> f64 {
    let memory = Memory::fragmented(120, |page| page % 4 == 0);
    give_back_lists();
    let (free, before) = (free_blocks(), vmstat("pgmigrate_success"));
    let began = std::time::Instant::now();
    std::fs::write("/proc/sys/vm/compact_memory", "1").unwrap();
    let took = began.elapsed();
    let gained = free_blocks() as i64 - free as i64;
    let moved = vmstat("pgmigrate_success") - before;
    let per_block = moved as f64 / gained.max(1) as f64;
    eprintln!(
        "MODULE compact_memory: buddyinfo {gained:+}, {moved} pages moved ({per_block:.0} a block), {:.1} ms a block",
        took.as_secs_f64() * 1e3 / gained.max(1) as f64
    );
    assert_eq!(memory.spoiled(), 0);
    per_block
}

#[test]
fn chosen_blocks_are_freed_contents_intact_and_for_fewer_moves_than_compact_memory() {
    let Some(module) = module() else { return };
    let memory = Memory::fragmented(120, |page| page % 4 == 0);
    let mut list = best(&module.all_blocks().unwrap(), &memory);
    list.truncate(60);
    assert!(list.len() >= 40, "{} blocks to choose from", list.len());
    let (free, moved) = (free_blocks(), vmstat("pgmigrate_success"));
    let done = module.compact(&mut list, LONG, false).unwrap();
    let (gained, moved) = (free_blocks() as i64 - free as i64, vmstat("pgmigrate_success") - moved);
    assert_eq!(memory.spoiled(), 0);
    let freed: Vec<u64> = list
        .iter()
        .filter(|b| b.outcome() == BlockOutcome::Freed)
        .map(|b| b.block)
        .collect();
    assert!(freed.len() * 100 >= list.len() * 95, "{:?}", outcomes(&list));
    assert_eq!(done.freed as usize, freed.len());
    // They are the chosen ones, each is one free chunk at once, and nothing of ours is left in them.
    let now = module.all_blocks().unwrap();
    let whole = freed
        .iter()
        .filter(|&&n| now[n as usize].flags & BLOCK_WHOLE != 0)
        .count();
    let ours: BTreeSet<u64> = memory.by_block().into_keys().collect();
    assert!(whole * 100 >= freed.len() * 90, "{whole} of {} are whole", freed.len());
    let back = freed.iter().filter(|n| ours.contains(n)).count();
    assert!(back * 10 <= freed.len(), "{back} hold pages of ours again");
    let per_block = moved as f64 / gained as f64;
    let ns: Vec<u64> = list.iter().map(|b| u64::from(b.took_ns)).collect();
    eprintln!(
        "MODULE chosen: {} asked, {} freed, buddyinfo {gained:+}, {moved} pages moved ({per_block:.0} a block), {:.1} ms a block",
        list.len(),
        freed.len(),
        ns.iter().sum::<u64>() as f64 / 1e6 / list.len() as f64
    );
    drop(memory);

    // The kernel's own, on the same pattern; again where it did nothing at all.
    let kernel_per_block = (0..3).map(|_| moves_of_compact_memory()).find(|&moves| moves > 0.0);
    assert!(
        gained as usize * 100 >= list.len() * 90,
        "{gained} gained of {}",
        list.len()
    );
    assert!(
        kernel_per_block.is_some_and(|kernel| per_block <= 1.5 * kernel),
        "{per_block} against {kernel_per_block:?}"
    );
}

#[test]
fn what_is_pinned_locked_hot_or_huge_fails_alone_and_by_name() {
    let Some(module) = module() else { return };
    let memory = Memory::fragmented(40, |page| page % 4 == 0);
    let frames = memory.frames();
    let own: Vec<u64> = memory.by_block().into_keys().collect();
    let block_of = |page: u64| frames[&page] / 512;
    // Pinned: a pipe holds them.
    let pinned_pages: Vec<u64> = (0..4).map(|n| n * 5 * 512).collect();
    let (_read, write) = rustix::pipe::pipe().unwrap();
    for &page in &pinned_pages {
        let iov = libc::iovec {
            iov_base: memory.address(page) as *mut libc::c_void,
            iov_len: PAGE as usize,
        };
        // SAFETY: the pipe takes a reference to a page of ours, which we only read from now on.
        let spliced = unsafe { libc::vmsplice(std::os::fd::AsRawFd::as_raw_fd(&write), &iov, 1, 0) };
        assert_eq!(spliced, PAGE as isize);
    }
    let pinned: BTreeSet<u64> = pinned_pages.iter().map(|&page| block_of(page)).collect();
    // Locked: can be moved all the same.
    memory.lock(512 * 7..512 * 8);
    // A huge page.
    let mut huge = Memory::map(1);
    huge.collapse();
    let huge_block = huge.frames()[&0] / 512;
    // Hot: written by an atomic addition all the time, the second word of a page.
    let blocks = module.all_blocks().unwrap();
    let cold = |page: &u64| !pinned.contains(&block_of(*page)) && blocks[block_of(*page) as usize].unmovable == 0;
    let hot_page = (512 * 11..memory.pages).step_by(4).find(cold).unwrap();
    let hot_block = block_of(hot_page);
    // SAFETY: the word is in the mapping, which outlives the thread, and nobody else writes it.
    let hot: &AtomicU64 = unsafe { AtomicU64::from_ptr((memory.address(hot_page) + 8) as *mut u64) };
    let stop = AtomicBool::new(false);
    let began = hot.load(Ordering::Relaxed);
    let mut list: Vec<_> = own.iter().copied().map(CompactBlock::asked).collect();
    list.push(CompactBlock::asked(huge_block));
    list.push(CompactBlock::asked(u64::MAX));
    list.push(CompactBlock::asked(module.info().blocks));
    list.push(CompactBlock::asked(0));
    let added = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    hot.fetch_add(1, Ordering::Relaxed);
                }
                added += 1000;
                // An emulated machine whose processors both spin gets nowhere.
                std::thread::sleep(Duration::from_micros(20));
            }
            added
        });
        let first = module.compact(&mut list, LONG, false).unwrap();
        eprintln!(
            "MODULE hostile: {:?}, {} ms",
            outcomes(&list),
            first.took_ns / 1_000_000
        );
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(hot.load(Ordering::Relaxed), began + added, "no addition is lost");
    assert_eq!(memory.spoiled() + huge.spoiled(), 0);
    let outcome: BTreeMap<u64, BlockOutcome> = list.iter().map(|b| (b.block, b.outcome())).collect();
    for block in &pinned {
        assert!(
            matches!(outcome[block], BlockOutcome::Pinned | BlockOutcome::Unmovable),
            "{:?}",
            outcome[block]
        );
    }
    let named: BTreeSet<u64> = outcome
        .iter()
        .filter(|(_, &o)| o == BlockOutcome::Pinned)
        .map(|(&block, _)| block)
        .collect();
    assert!(!named.is_empty() && named.is_subset(&pinned), "{named:?} of {pinned:?}");
    assert_eq!(outcome[&huge_block], BlockOutcome::Huge);
    assert_eq!(
        (outcome[&u64::MAX], outcome[&module.info().blocks]),
        (BlockOutcome::Absent, BlockOutcome::Absent)
    );
    assert_eq!(outcome[&0], BlockOutcome::Zone);
    let others = own
        .iter()
        .filter(|block| !pinned.contains(block) && **block != huge_block);
    let (mut freed, mut all) = (0, 0);
    for block in others {
        // The kernel's own pages may have come to be among ours.
        if outcome[block] != BlockOutcome::Unmovable {
            all += 1;
            freed += usize::from(outcome[block] == BlockOutcome::Freed);
        }
    }
    assert!(
        freed * 100 >= all * 95 && all * 2 > own.len(),
        "{freed} freed of {all}: {:?}",
        outcomes(&list)
    );
    assert!(
        matches!(outcome[&hot_block], BlockOutcome::Freed | BlockOutcome::Unmovable),
        "{:?}",
        outcome[&hot_block]
    );
    // A pinned block is not tried again and again.
    let mut again: Vec<_> = pinned.iter().copied().map(CompactBlock::asked).collect();
    let done = module.compact(&mut again, LONG, false).unwrap();
    assert!(u128::from(done.took_ns) < super::patience(1).as_nanos(), "{done:?}");
}

#[test]
fn what_dma_holds_is_pinned_as_base_pages_and_as_a_huge_page() {
    let Some(module) = module() else { return };
    let memory = Memory::fragmented(8, |page| page % 4 == 0);
    let mut huge = Memory::map(1);
    huge.collapse();
    let pages: Vec<u64> = (0..4).map(|n| n * 2 * 512).collect();
    let mut held: Vec<_> = pages
        .iter()
        .map(|&page| pin_for_dma(memory.address(page), PAGE))
        .collect();
    held.push(pin_for_dma(huge.base, 64 * PAGE));
    assert!(held.iter().all(Option::is_some), "no io_uring");
    // After pinning: memory that is to stay is moved out of some zones before.
    let frames = memory.frames();
    let mut wanted: BTreeSet<u64> = pages.iter().map(|page| frames[page] / 512).collect();
    wanted.insert(huge.frames()[&0] / 512);
    let mut list: Vec<_> = wanted.iter().copied().map(CompactBlock::asked).collect();
    let moved = vmstat("pgmigrate_success");
    module.compact(&mut list, LONG, true).unwrap();
    eprintln!("MODULE held for DMA: {:?}", outcomes(&list));
    let named = |block: &CompactBlock| matches!(block.outcome(), BlockOutcome::Pinned | BlockOutcome::Unmovable);
    assert!(list.iter().all(named), "{list:?}");
    assert!(
        list.iter().any(|block| block.outcome() == BlockOutcome::Pinned),
        "{list:?}"
    );
    assert_eq!(vmstat("pgmigrate_success"), moved, "pinned blocks are not tried");
    // Let go of, they can be moved like others; the kernel takes its time to let go.
    drop(held);
    let end = std::time::Instant::now() + super::patience(5);
    while list.iter().any(|block| block.outcome() == BlockOutcome::Pinned) {
        assert!(std::time::Instant::now() < end, "{:?}", outcomes(&list));
        std::thread::sleep(Duration::from_millis(100));
        module.compact(&mut list, LONG, true).unwrap();
    }
    assert_eq!(memory.spoiled() + huge.spoiled(), 0);
}

/// Pages by which the zone that we allocate from is above where it wants to be.
fn room() -> i64 {
    let text = std::fs::read_to_string("/proc/zoneinfo").unwrap();
    let zone = text.split("Node ").find(|zone| zone.contains("DMA32")).unwrap();
    let field = |name: &str| -> i64 {
        let mut lines = zone.lines().map(str::split_whitespace);
        let value = lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next().unwrap()));
        value.unwrap().parse().unwrap()
    };
    field("nr_free_pages") - field("high")
}

#[test]
fn without_room_nothing_is_pushed_out() {
    let Some(module) = module() else { return };
    let memory = Memory::fragmented(20, |page| page % 4 == 0);
    let mut list = best(&module.all_blocks().unwrap(), &memory);
    let mut ballast = Memory::map(1024);
    let mut page = 0;
    // The kernel may free some of its own between the filling and the call: a few blocks a time, filled up again before each.
    for some in list.chunks_mut(4) {
        // All but a little of what is free, in base pages; reclaim begins below.
        while room() > 700 && page < ballast.pages {
            (page..page + 64).for_each(|page| ballast.fill(page));
            page += 64;
        }
        let (swapped, scanned) = (vmstat("pswpout"), vmstat("pgscan_direct"));
        let done = module.compact(some, LONG, false).unwrap();
        eprintln!("MODULE no room: {:?} of {}", outcomes(some), done.done);
        assert_eq!((vmstat("pswpout"), vmstat("pgscan_direct")), (swapped, scanned));
    }
    assert!(list.iter().any(|block| block.outcome() == BlockOutcome::NoRoom));
    assert_eq!(memory.spoiled(), 0);
}
