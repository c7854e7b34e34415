//! Scenarios of compaction.

use mega_core::compaction::block::{BlockKind, Hpfn};
use mega_core::units::Share;

use super::{machine, Shadow, GIB, MIB};
use crate::physical::{Ask, Compact, Compaction, DownTo, Emptied, Fragmenter, Mover, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER};

const MOVABLE: Ask = Ask::MOVABLE.down_to(DownTo::Nothing);

/// Everything moves.
struct Willing;

impl Mover for Willing {
    fn moved(&mut self, _: Owner, _: Frame, _: Frame) -> bool {
        true
    }
}

/// Memory of which each block keeps one page of four, by a shadow.
fn checkered(bytes: u64) -> (Physical, Shadow) {
    let mut memory = machine(bytes);
    let mut shadow = Shadow::default();
    while shadow.allocate(&mut memory, 0, MOVABLE, None).is_some() {}
    let free: Vec<u32> = shadow.frames.keys().copied().filter(|f| f % 4 > 0).collect();
    free.into_iter().for_each(|frame| shadow.free(&mut memory, frame));
    memory.drain();
    assert_eq!(memory.free_blocks(), 0);
    assert_eq!(memory.unusable(BLOCK_ORDER), Share::FULL);
    (memory, shadow)
}

#[test]
fn compacting_everything_gathers_the_free_memory_and_keeps_the_contents() {
    let (mut memory, mut shadow) = checkered(256 * MIB);
    let before = shadow.frames.values().map(|held| held.1).sum::<u64>();
    let done = memory.compact(Compact::Whole, &mut shadow);
    memory.check().unwrap();
    shadow.agrees(&memory);
    assert_eq!(before, shadow.frames.values().map(|held| held.1).sum::<u64>());
    assert_eq!(done.migrated, shadow.moves);
    assert!(
        done.failed <= 1,
        "the page for which there was no place when the scanners met: {done:?}"
    );
    // 128 blocks, 96 blocks' worth of free memory; the scanners meet in the middle of one.
    assert!(memory.free_blocks() >= 94, "{}", memory.free_blocks());
    assert!(memory.unusable(BLOCK_ORDER) < Share::percent(3));
    // What was moved was all in the lower part, which has three fourths of the blocks.
    assert!(done.migrated.abs_diff(96 * 128) < 256, "{done:?}");
    assert!(done.isolated >= 2 * done.migrated, "{done:?}");
    assert_eq!(memory.counters().compact_isolated, done.isolated);
    assert_eq!(memory.counters().pgmigrate_success, done.migrated);
}

#[test]
fn direct_compaction_stops_at_the_first_free_block_and_goes_on_from_there() {
    let (mut memory, mut shadow) = checkered(256 * MIB);
    let mut scanned = Vec::new();
    for _ in 0..4 {
        let done = memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut shadow);
        assert!(done.success, "{done:?}");
        assert_eq!(memory.free_blocks(), 1);
        assert!(done.migrated <= 2 * 128, "{done:?}");
        scanned.push(done.scanned_migrate);
        memory.check().unwrap();
        assert!(shadow.allocate(&mut memory, BLOCK_ORDER, MOVABLE, None).is_some());
    }
    assert!(scanned.iter().all(|&pages| pages < 2048), "{scanned:?}");
    shadow.agrees(&memory);
    let again = memory.compact(Compact::Direct { order: 0 }, &mut shadow);
    assert_eq!(
        (again.success, again.scanned_migrate),
        (true, 0),
        "what is there need not be made"
    );
}

#[test]
fn asynchronous_compaction_leaves_a_block_at_its_first_page_that_stays() {
    let (mut memory, mut shadow) = checkered(64 * MIB);
    // The kernel's page in each block makes all of it vain.
    for block in 0..32 {
        let frame = block * 512 + 64;
        memory.set_owner(Frame(frame), Owner::Kernel);
        shadow.frames.get_mut(&frame).unwrap().0 = Owner::Kernel;
    }
    let quick = memory.compact(Compact::Async { order: BLOCK_ORDER }, &mut shadow);
    assert_eq!((quick.success, quick.migrated), (false, 0), "{quick:?}");
    assert_eq!(
        memory
            .compact(Compact::Async { order: BLOCK_ORDER }, &mut shadow)
            .deferred,
        0,
        "it puts nothing off"
    );
    let thorough = memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut shadow);
    assert!(!thorough.success, "{thorough:?}");
    memory.check().unwrap();
    shadow.agrees(&memory);
}

#[test]
fn failures_put_compaction_off_ever_longer_and_success_ends_that() {
    let mut memory = machine(64 * MIB);
    memory.fragment(&Fragmenter::ballast(Share::FULL, Share::FULL, 1));
    let mut try_it = || {
        let done = memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut Willing);
        assert!(!done.success);
        done.deferred
    };
    let attempts: Vec<u32> = (0..40).map(|_| try_it()).collect();
    let runs: Vec<usize> = attempts.split(|&deferred| deferred == 0).map(<[u32]>::len).collect();
    assert_eq!(runs[..5], [0, 1, 3, 7, 15]);
}

#[test]
fn kcompactd_makes_one_block_per_zone_and_leaves_it_when_there_is_one() {
    let (mut memory, mut shadow) = checkered(256 * MIB);
    let done = memory.compact(Compact::Kcompactd { order: BLOCK_ORDER }, &mut shadow);
    assert!(done.success && done.migrated > 0 && done.migrated < 1024, "{done:?}");
    assert!(memory.free_blocks() >= 1);
    let again = memory.compact(Compact::Kcompactd { order: BLOCK_ORDER }, &mut shadow);
    assert_eq!((again.success, again.migrated), (true, 0));
    memory.check().unwrap();
    shadow.agrees(&memory);
}

#[test]
fn proactive_compaction_ends_at_its_score() {
    let (mut memory, mut shadow) = checkered(256 * MIB);
    assert!(memory.fragmentation_score(0) >= 99);
    let done = memory.compact(Compact::Proactive { proactiveness: 20 }, &mut shadow);
    assert!(done.success && done.migrated > 0);
    assert!(
        (75..=80).contains(&memory.fragmentation_score(0)),
        "{}",
        memory.fragmentation_score(0)
    );
    let again = memory.compact(Compact::Proactive { proactiveness: 20 }, &mut shadow);
    assert_eq!(
        (again.scanned_migrate, again.skipped),
        (0, 1),
        "under the threshold of 90"
    );
}

#[test]
fn with_too_little_free_memory_compaction_is_skipped() {
    let mut memory = machine(64 * MIB);
    memory.fill_until(2 * MIB);
    let done = memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut Willing);
    assert_eq!((done.success, done.skipped, done.scanned_migrate), (false, 1, 0));
}

#[test]
fn emptying_a_block_says_what_came_of_it() {
    let (mut memory, mut shadow) = checkered(64 * MIB);
    let kernel = 5 * 512;
    memory.set_owner(Frame(kernel), Owner::Kernel);
    shadow.frames.get_mut(&kernel).unwrap().0 = Owner::Kernel;
    shadow.pinned.insert(9 * 512 + 12);
    let mut empty = |block: u32| memory.empty_block(Hpfn(block), &mut shadow);
    assert_eq!(empty(3), Emptied::Freed { moved: 128 });
    assert_eq!(empty(3), Emptied::AlreadyFree);
    assert_eq!(empty(5), Emptied::Unmovable);
    assert_eq!(empty(9), Emptied::Pinned { moved: 3 });
    assert_eq!(empty(32), Emptied::Unmovable, "no memory");
    assert_eq!(empty(u32::MAX), Emptied::Unmovable, "no memory");
    assert_eq!(memory.free_blocks(), 1);
    let huge = shadow.allocate(&mut memory, BLOCK_ORDER, MOVABLE, None).unwrap();
    assert_eq!(memory.empty_block(huge.block(), &mut shadow), Emptied::Huge);
    memory.check().unwrap();
    shadow.agrees(&memory);
    // With nearly all memory filled there is no room, and a free block is not broken up for another.
    memory.compact(Compact::Whole, &mut shadow);
    let blocks = memory.free_blocks();
    assert!(blocks > 15, "{blocks}");
    while memory.free_by_order()[0].runs[..9].iter().flatten().sum::<u64>() > 0 {
        let order = (0..9u8).find(|&o| memory.free_by_order()[0].runs[usize::from(o)].iter().sum::<u64>() > 0);
        shadow.allocate(&mut memory, order.unwrap(), MOVABLE, None).unwrap();
        memory.drain();
    }
    let full = memory
        .blocks()
        .into_iter()
        .find(|b| b.kind() == BlockKind::Movable)
        .unwrap();
    assert_eq!(memory.empty_block(full.hpfn, &mut shadow), Emptied::NoRoom { moved: 0 });
    memory.check().unwrap();
    shadow.agrees(&memory);
}

#[test]
fn the_studys_machine_finds_most_of_its_blocks_on_demand() {
    // An eighth of the study's 32 GB: it got 12,032 blocks, of which 11,489 after one compaction of everything.
    let mut memory = machine(4 * GIB);
    let done = memory.fragment(&Fragmenter::study(4 * GIB));
    assert!(done.taken_bytes.abs_diff(4 * GIB / 32 * 28) < 2 * MIB, "{done:?}");
    assert_eq!(done.held_bytes, done.taken_bytes / 4);
    let ask = Ask::UNMOVABLE.down_to(DownTo::Min);
    let mut got = 0u64;
    let mut total = Compaction::default();
    // The kernel tries again before it gives up.
    let mut failures = 0;
    while failures < 8 {
        if memory.allocate(BLOCK_ORDER, ask, Owner::Kernel).is_some() {
            got += 1;
            continue;
        }
        let done = memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut Willing);
        total.migrated += done.migrated;
        if memory.allocate(BLOCK_ORDER, ask, Owner::Kernel).is_some() {
            got += 1;
        } else {
            failures += 1;
        }
    }
    memory.check().unwrap();
    assert!((12_032 / 8 * 8 / 10..=1600).contains(&got), "{got} blocks, {total:?}");
    assert!(total.migrated > 100 * got / 2, "{total:?}");
    let mut memory = machine(4 * GIB);
    memory.fragment(&Fragmenter::study(4 * GIB));
    let whole = memory.compact(Compact::Whole, &mut Willing);
    assert!(
        (1500..=1600).contains(&memory.free_blocks()),
        "{} blocks, {whole:?}",
        memory.free_blocks()
    );
    assert!(whole.migrated > 100_000, "{whole:?}");
    memory.check().unwrap();
}

#[test]
fn fragmenters_reach_their_share_and_repeat() {
    for (until, unmovable) in [(50, 0), (90, 10), (100, 0), (99, 100)] {
        let how = Fragmenter::ballast(Share::percent(until), Share::percent(unmovable), 3);
        let mut memory = machine(512 * MIB);
        let done = memory.fragment(&how);
        memory.check().unwrap();
        let share = memory.unusable(BLOCK_ORDER);
        let near = share.as_millionths().abs_diff(until * 10_000) <= 30_000;
        assert!(near, "{share} of {until} %, {done:?}");
        assert_eq!(done.unmovable_bytes > 0, unmovable > 0);
        let mut again = machine(512 * MIB);
        assert_eq!(again.fragment(&how), done);
        assert_eq!(again.blocks(), memory.blocks());
        let freed = memory.release_ballast();
        assert_eq!(freed + done.unmovable_bytes, done.held_bytes);
        memory.check().unwrap();
    }
}

#[test]
fn megas_holes_are_a_megabyte() {
    let mut memory = machine(GIB);
    let done = memory.fragment(&Fragmenter::mega(GIB));
    assert_eq!((done.taken_bytes, done.held_bytes), (GIB / 16 * 12, GIB / 16 * 6));
    let runs = memory.free_by_order()[0].runs[8];
    assert_eq!(runs.iter().sum::<u64>(), done.pieces, "one free megabyte in each");
}
