//! Scenarios of allocating and freeing.

use mega_core::compaction::block::Hpfn;
use proptest::prelude::*;

use super::{anonymous, machine, Shadow, GIB, MIB};
use crate::physical::{Ask, DownTo, Layout, MigrateType, Physical};
use crate::unit::{Frame, Owner, Page, BLOCK_ORDER, MAX_ORDER};

const UNMOVABLE: Ask = Ask::UNMOVABLE.down_to(DownTo::Nothing);
const MOVABLE: Ask = Ask::MOVABLE.down_to(DownTo::Nothing);

#[test]
fn fresh_memory_is_free_and_given_out_from_the_bottom() {
    let mut memory = machine(256 * MIB);
    memory.check().unwrap();
    assert_eq!((memory.free_bytes(), memory.free_blocks()), (256 * MIB, 128));
    assert!(memory.available_bytes() < 256 * MIB);
    for order in [0, 0, 3, BLOCK_ORDER, BLOCK_ORDER, MAX_ORDER] {
        memory.allocate(order, MOVABLE, Owner::Ballast).unwrap();
    }
    let first = memory.owner(Frame(0));
    assert_eq!(
        (first, memory.owner(Frame(1))),
        (Some(Owner::Ballast), Some(Owner::Ballast))
    );
    assert_eq!(memory.order(Frame(16)), Some(3), "after what the processor's list took");
    memory.check().unwrap();
}

#[test]
fn what_was_freed_last_is_given_out_first() {
    let mut memory = machine(256 * MIB);
    for order in [0, 1, 5, BLOCK_ORDER] {
        let got: Vec<Frame> = (0..3)
            .map(|_| memory.allocate(order, MOVABLE, Owner::Ballast).unwrap())
            .collect();
        // Neighbours stay used, so that nothing merges.
        memory.free(got[1], order);
        assert_eq!(
            memory.allocate(order, MOVABLE, Owner::Ballast),
            Some(got[1]),
            "order {order}"
        );
    }
}

#[test]
fn what_is_likely_to_merge_goes_to_the_back_of_its_list() {
    let mut memory = machine(64 * MIB);
    let runs: Vec<Frame> = (0..8)
        .map(|_| memory.allocate(1, MOVABLE, Owner::Ballast).unwrap())
        .collect();
    assert_eq!(
        runs.iter().map(|f| f.0).collect::<Vec<_>>(),
        [0, 2, 4, 6, 8, 10, 12, 14]
    );
    memory.free(Frame(8), 1);
    // The upper half of the run of order 3 that begins at 0 is free as a whole now: its lower half is likely to follow.
    memory.free(Frame(4), 1);
    memory.free(Frame(6), 1);
    memory.free(Frame(0), 1);
    assert_eq!(memory.allocate(1, MOVABLE, Owner::Ballast), Some(Frame(8)));
    assert_eq!(memory.allocate(1, MOVABLE, Owner::Ballast), Some(Frame(0)));
}

#[test]
fn freed_memory_merges_into_the_largest_runs_again() {
    let mut memory = machine(64 * MIB);
    let mut all = Vec::new();
    while let Some(frame) = memory.allocate(0, MOVABLE, Owner::Ballast) {
        all.push(frame);
    }
    assert!(all.len() as u64 * 4096 > 63 * MIB);
    let (odd, even): (Vec<Frame>, Vec<Frame>) = all.iter().partition(|f| f.0 % 2 == 1);
    for frame in odd.into_iter().chain(even) {
        memory.free(frame, 0);
    }
    memory.drain();
    memory.check().unwrap();
    assert_eq!(
        memory.free_by_order()[0].runs[usize::from(MAX_ORDER)][MigrateType::Movable as usize],
        16
    );
}

#[test]
fn unmovable_pages_claim_a_whole_block_and_stay_together() {
    let mut memory = machine(64 * MIB);
    memory.allocate(0, MOVABLE, Owner::Ballast).unwrap();
    let kernel: Vec<u32> = (0..400)
        .map(|_| memory.allocate(0, UNMOVABLE, Owner::Kernel).unwrap().block().0)
        .collect();
    assert!(kernel.windows(2).all(|w| w[0] == w[1]), "all in one block: {kernel:?}");
    assert_eq!(memory.migrate_type(Hpfn(kernel[0])), Some(MigrateType::Unmovable));
    assert_ne!(kernel[0], 0, "not in the block that movable pages began");
    assert_eq!(memory.counters().blocks_claimed, 2, "both blocks of a run of order 10");
    memory.check().unwrap();
}

#[test]
fn a_movable_page_takes_a_small_run_of_another_type_only_when_nothing_else_is_left() {
    let mut memory = machine(16 * MIB);
    // The kernel takes all of it, page by page, and gives every second page back.
    let mut all = Vec::new();
    while let Some(frame) = memory.allocate(0, UNMOVABLE, Owner::Kernel) {
        all.push(frame);
    }
    all.iter().filter(|f| f.0 % 2 == 0).for_each(|f| memory.free(*f, 0));
    memory.drain();
    let got = memory.allocate(0, MOVABLE, Owner::Ballast).unwrap();
    assert_eq!(
        memory.migrate_type(got.block()),
        Some(MigrateType::Unmovable),
        "the block stays the kernel's"
    );
    assert!(memory.counters().pages_stolen > 0);
    memory.check().unwrap();
}

#[test]
fn an_allocation_goes_down_to_its_watermark_and_no_further() {
    let mut left = Vec::new();
    for down_to in [DownTo::Low, DownTo::Min, DownTo::HalfMin, DownTo::Nothing] {
        let mut memory = machine(256 * MIB);
        while memory
            .allocate(1, Ask::MOVABLE.down_to(down_to), Owner::Ballast)
            .is_some()
        {}
        memory.check().unwrap();
        left.push(memory.free_by_order()[0].free_pages);
    }
    let marks = machine(256 * MIB).free_by_order()[0].watermarks;
    for (left, mark) in left.iter().zip([marks.low, marks.min, marks.min / 2, 0]) {
        assert!((mark..mark + 4).contains(left), "{left} pages left of {mark}");
    }
}

#[test]
fn dma32_comes_last_and_keeps_its_reserve() {
    let mut memory = machine(8 * GIB);
    let mut count = [0u64; 2];
    while let Some(frame) = memory.allocate(BLOCK_ORDER, Ask::MOVABLE, Owner::Ballast) {
        let low = frame.0 < 1 << 20;
        assert!(low || count[0] == 0, "NORMAL first");
        count[usize::from(!low)] += 1;
    }
    let zones = memory.free_by_order();
    let kept = zones[0].free_pages + zones[0].listed_pages;
    assert_eq!(zones[0].reserve_pages, (1 << 20) / 256);
    assert!(kept >= zones[0].reserve_pages + zones[0].watermarks.low, "{kept}");
    assert!(count[0] > 1900 && count[1] > 1900, "{count:?}");
}

#[test]
fn a_node_falls_back_on_the_next() {
    let mut memory = Physical::new(&Layout::of_bytes(256 * MIB).with_nodes(2), 0);
    let nodes: Vec<u32> = std::iter::from_fn(|| memory.allocate(4, Ask::MOVABLE.on(1), Owner::Ballast))
        .map(|frame| frame.0 * 2 / (256 << 8))
        .collect();
    let first = nodes.iter().position(|&node| node == 0).unwrap();
    assert!(nodes[..first].iter().all(|&n| n == 1) && nodes[first..].iter().all(|&n| n == 0));
    memory.drop_cache(u64::MAX);
    assert!(memory
        .allocate(0, Ask::MOVABLE.on(200).down_to(DownTo::Min), Owner::Ballast)
        .is_some());
}

#[test]
fn splitting_and_joining_keep_each_frames_owner() {
    let mut memory = machine(64 * MIB);
    let mut shadow = Shadow::default();
    let block = shadow.allocate(&mut memory, BLOCK_ORDER, MOVABLE, None).unwrap();
    assert_eq!(memory.block(block.block()).unwrap().kind().word(), "huge");
    assert!(memory.split(block));
    shadow.agrees(&memory);
    assert_eq!(memory.block(block.block()).unwrap().kind().word(), "movable");
    assert!(memory.join(block));
    shadow.agrees(&memory);
    memory.check().unwrap();
    // A page of its own owner makes it mixed; it joins and splits all the same.
    memory.set_owner(Frame(block.0 + 7), Owner::Shared(3));
    assert_eq!(memory.owner(Frame(block.0 + 7)), Some(Owner::Shared(3)));
    assert_eq!(
        memory.owner(Frame(block.0 + 8)),
        shadow.frames.get(&(block.0 + 8)).map(|f| f.0)
    );
    memory.check().unwrap();
    assert!(memory.split(block) && memory.join(block));
    assert_eq!(memory.owner(Frame(block.0 + 7)), Some(Owner::Shared(3)));
    memory.check().unwrap();
    memory.free(block, BLOCK_ORDER);
    memory.drain();
    assert_eq!(memory.free_bytes(), memory.total_bytes());
    memory.check().unwrap();
    assert!(!memory.join(block), "free frames join nothing");
}

#[test]
fn a_forked_huge_page_changes_hands_as_a_whole() {
    let mut memory = machine(64 * MIB);
    let block = memory.allocate(BLOCK_ORDER, MOVABLE, anonymous(512)).unwrap();
    memory.set_owner_of_all(block, Owner::Shared(9));
    assert_eq!(memory.owner(Frame(block.0 + 511)), Some(Owner::Shared(9)));
    memory.set_owner_of_all(block, anonymous(1024));
    let Some(Owner::Anonymous(_, page)) = memory.owner(Frame(block.0 + 511)) else {
        panic!("{:?}", memory.owner(block));
    };
    assert_eq!(page, Page(1024 + 511));
    memory.check().unwrap();
}

#[test]
fn the_oldest_page_cache_is_dropped_first() {
    let mut memory = machine(64 * MIB);
    let cache: Vec<Frame> = (0..100)
        .map(|_| memory.allocate(0, MOVABLE, Owner::Cache).unwrap())
        .collect();
    let large = memory.allocate(BLOCK_ORDER, MOVABLE, Owner::Cache).unwrap();
    assert_eq!(memory.cache_bytes(), 612 * 4096);
    assert_eq!(
        memory.block(cache[0].block()).unwrap().mapped_pages().0,
        0,
        "nobody maps it"
    );
    assert_eq!(memory.drop_cache(10 * 4096), 10 * 4096);
    assert!(cache[..10].iter().all(|f| memory.owner(*f).is_none()));
    assert!(cache[10..].iter().all(|f| memory.owner(*f) == Some(Owner::Cache)));
    memory.set_owner(cache[50], anonymous(1));
    memory.check().unwrap();
    assert_eq!(memory.drop_cache(u64::MAX), (89 + 512) * 4096);
    assert_eq!(
        (memory.owner(cache[50]), memory.owner(large)),
        (Some(anonymous(1)), None)
    );
    assert_eq!(memory.cache_bytes(), 0);
    memory.check().unwrap();
}

#[test]
fn a_terabyte_takes_nine_bytes_per_frame() {
    let memory = machine(1 << 40);
    assert!(memory.host_bytes() < (1 << 28) * 91 / 10, "{}", memory.host_bytes());
    assert_eq!(memory.free_blocks(), 1 << 19);
    assert_eq!(memory.end().0 - 1, Frame::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_layout_can_be_made(bytes in 0u64..(20 << 30), nodes in 0u8..5, hole in 0u64..(4 << 30), cpus in 0u16..300) {
        let layout = Layout { bytes, nodes, hole_bytes: hole, cpus, khugepaged: bytes % 2 == 0 };
        let mut memory = Physical::new(&layout, 0);
        prop_assert_eq!(memory.free_bytes(), memory.total_bytes());
        prop_assert!(layout.check().is_err() || memory.total_bytes().abs_diff(bytes) < 8 << 20);
        prop_assert!(memory.allocate(0, Ask::MOVABLE, Owner::Ballast).is_some());
        let blocks = memory.blocks();
        prop_assert_eq!(blocks.len() as u64 * 512, u64::from(memory.end().0));
    }
}
