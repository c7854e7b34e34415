//! Core's planners on the simulator's blocks.

use mega_core::compaction::block::BlockKind;
use mega_core::compaction::planner::{by_name, PlannerInput, PLANNERS};
use mega_core::units::{Blocks, Bytes, Share};

use super::{machine, Shadow, GIB, MIB};
use crate::physical::{Ask, DownTo, Emptied, Fragmenter, Physical};
use crate::unit::{Owner, BLOCK_ORDER};

/// 5 GB, both zones fragmented: every second block keeps a few pages, the others half.
fn fragmented() -> (Physical, Shadow) {
    let mut memory = machine(5 * GIB);
    let mut shadow = Shadow::default();
    memory.fragment(&Fragmenter::ballast(Share::FULL, Share::percent(10), 5));
    for (index, block) in (0u32..).zip(memory.blocks()) {
        if block.kind() == BlockKind::Free {
            continue;
        }
        for frame in index * 512..(index + 1) * 512 {
            if let Some(owner) = memory.owner(crate::unit::Frame(frame)) {
                shadow.frames.insert(frame, (owner, u64::from(frame)));
            }
        }
    }
    (memory, shadow)
}

#[test]
fn every_planner_ranks_the_simulators_blocks_and_what_it_names_can_be_emptied() {
    for (name, _) in PLANNERS {
        let (mut memory, mut shadow) = fragmented();
        let (blocks, zones) = (memory.blocks(), memory.zones());
        let seen = PlannerInput {
            blocks: &blocks,
            zones: &zones,
            total: Bytes(memory.total_bytes()),
            asked: Blocks(64),
        };
        let mut planner = by_name(name).unwrap();
        let choices = planner.plan(&seen);
        assert!(choices.len() >= 50, "{name} names {} blocks", choices.len());
        let before = memory.free_blocks();
        let mut freed = 0;
        for choice in &choices {
            match memory.empty_block(choice.hpfn, &mut shadow) {
                // Others may have moved pages into it.
                Emptied::Freed { moved } => freed += u64::from(moved >= choice.moves.0),
                other => panic!("{name}: {} is {}", choice.hpfn, other.word()),
            }
        }
        assert_eq!(memory.free_blocks() - before, freed, "{name}");
        memory.check().unwrap();
        shadow.agrees(&memory);
    }
}

#[test]
fn zones_are_told_as_the_kernel_tells_them() {
    let (memory, _) = fragmented();
    let zones = memory.zones();
    let names: Vec<(&str, u64)> = zones.iter().map(|z| (z.name.as_str(), z.start_frame)).collect();
    assert_eq!(names, [("DMA32", 0), ("Normal", 1 << 20)]);
    let free: u64 = zones.iter().map(|zone| zone.free_pages * 4096).sum();
    assert_eq!(free, memory.free_bytes() - memory.listed_bytes());
    for block in memory.blocks() {
        let zone = &zones[usize::from(block.zone)];
        assert!(zone.spans(block.hpfn.first_frame()));
    }
}

#[test]
fn the_hole_of_a_pc_is_told_as_such() {
    let layout = crate::physical::Layout::of_bytes(5 * GIB).with_pc_hole();
    let memory = Physical::new(&layout, 0);
    let holes = memory.blocks().iter().filter(|b| b.kind() == BlockKind::Hole).count() as u64;
    assert_eq!(holes * 2 * MIB, GIB);
    assert_eq!(memory.owner(crate::unit::Frame(3 << 18)), None);
    memory.check().unwrap();
}

#[test]
fn what_is_on_the_processors_list_has_no_flag() {
    let mut memory = machine(64 * MIB);
    let ask = Ask::MOVABLE.down_to(DownTo::Min);
    let frame = memory.allocate(0, ask, Owner::Ballast).unwrap();
    let block = memory.block(frame.block()).unwrap();
    let listed = memory.listed_bytes() / 4096;
    assert_eq!(
        u64::from(block.pages(mega_core::compaction::block::PageKind::Unflagged).0),
        listed
    );
    assert!(listed > 0);
    memory.drain();
    assert_eq!(memory.listed_bytes(), 0);
}

#[test]
fn the_fragmentation_index_is_the_kernels() {
    let mut memory = machine(64 * MIB);
    assert_eq!(memory.fragmentation_index(0, BLOCK_ORDER), Some(-1000));
    memory.fragment(&Fragmenter::ballast(Share::FULL, Share::ZERO, 1));
    let index = memory.fragmentation_index(0, BLOCK_ORDER).unwrap();
    let zone = &memory.free_by_order()[0];
    let runs: u64 = zone.runs.iter().flatten().sum();
    // The same sum as crates/linux makes of /proc/buddyinfo.
    assert_eq!(index, 1000 - ((1000 + zone.free_pages * 1000 / 512) / runs) as i64);
    assert!(index > 900, "fragmentation, not lack of memory: {index}");
    assert_eq!(memory.fragmentation_index(1, BLOCK_ORDER), None);
    assert_eq!(memory.unusable(0), Share::ZERO);
}
