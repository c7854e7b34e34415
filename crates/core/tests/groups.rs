//! Where memory is short for some only: control groups at their limit or under pressure, NUMA nodes without free blocks. Who is outside goes on.

mod toy;

use mega_core::action::{ActionKind, CallError, Deferred, Expect, Outcome};
use mega_core::compaction::planner::by_name;
use mega_core::compaction::target::FreeBlockTarget;
use mega_core::control::Settings;
use mega_core::journal::Event;
use mega_core::observe::groups::{MemoryGroup, MemoryGroups};
use mega_core::observe::{NodeMemory, ProcessId};
use mega_core::policy::Mega;
use mega_core::units::{Blocks, Bytes, Share};
use toy::*;

const C: ProcessId = ProcessId { pid: 3, started: 33 };

fn promote_all() -> Wish {
    Wish(|o| (!o.huge).then_some((ActionKind::Promote, o.mapped.0, Expect::Anything)))
}

/// Promotions of this process wait for this.
fn waits_for(event: &Event, process: u32, reason: Deferred) -> bool {
    matches!(event, Event::Defer { pid, why, .. } if *pid == process && *why == reason)
}

/// A node with half of the machine's memory, most of it available.
fn node(free_blocks: u64) -> NodeMemory {
    NodeMemory {
        available_bytes: Bytes(8 << 30),
        total_bytes: Bytes(12 << 30),
        free_blocks: Blocks(free_blocks),
    }
}

/// Settings with this floor of free blocks.
fn keeping(free_blocks: Blocks) -> Settings {
    let mut settings = Settings::default();
    settings.budget.free_blocks = free_blocks;
    settings
}

/// A and B in one group, C in none.
fn toy(room: Option<Bytes>, pressure: Option<Share>) -> Toy {
    let place = || (0..4).map(|i| (i, Place::base(512, 512)));
    let mut toy = Toy::new(9 * SECOND).with(A, place()).with(B, place()).with(C, place());
    let mut groups = MemoryGroups::default();
    let group = groups.add(MemoryGroup {
        id: 1,
        parent: None,
        room,
        pressure,
    });
    groups.assign(A, group);
    groups.assign(B, group);
    toy.world.groups = groups;
    toy
}

#[test]
fn a_group_at_its_limit_is_not_promoted_in_and_others_are() {
    for (mut toy, why) in [
        (toy(Some(Bytes::mib(1)), None), Deferred::FreeMemory),
        (toy(Some(Bytes::mib(900)), Some(Share::percent(40))), Deferred::Pressure),
    ] {
        let run = toy.run(&mut promote_all(), Settings::default());
        assert_eq!(run.status.promoted, 4);
        assert_eq!(run.of(C, 0), [Outcome::Done]);
        assert!(run.has(|e| matches!(e, Event::Defer { pid: 1, why: seen, regions: 4, .. } if *seen == why)));
    }
}

#[test]
fn a_group_under_pressure_is_not_aged() {
    let mut toy = toy(None, Some(Share::percent(40)));
    toy.run(&mut Mega::default(), Settings::default());
    assert!(
        !toy.ages.is_empty() && toy.ages.iter().all(|(_, id, _)| *id == C),
        "{:?}",
        toy.ages
    );
}

#[test]
fn where_one_process_of_a_group_finds_no_memory_the_others_are_not_tried() {
    let mut toy = toy(Some(Bytes::mib(900)), None);
    for id in [A, B] {
        for region in 0..4 {
            toy.world.place(id, region).unwrap().after = fails(CallError::NoMemory);
        }
    }
    let run = toy.run(&mut promote_all(), Settings::default());
    let tried = toy.acts.iter().filter(|(_, action, _)| action.process != C).count();
    assert_eq!((tried, run.status.promoted), (1, 4));
    assert!(run.has(|e| matches!(
        e,
        Event::Defer {
            pid: 2,
            why: Deferred::NoMemory,
            regions: 4,
            ..
        }
    )));
    assert!(run.has(|e| matches!(
        e,
        Event::Defer {
            pid: 2,
            why: Deferred::BackOff,
            ..
        }
    )));
}

#[test]
fn free_blocks_of_another_node_do_not_help_and_hold_up_nobody() {
    let mut toy = toy(None, None);
    toy.world.nodes.insert(A, node(0));
    let run = toy.run(&mut promote_all(), Settings::default());
    assert!(toy.acts.iter().all(|(_, action, _)| action.process != A));
    assert_eq!(run.status.promoted, 8);
    assert!(run.has(|e| waits_for(e, 1, Deferred::FreeBlocks)));
}

#[test]
fn blocks_that_one_node_lacks_are_ordered_though_others_have_enough() {
    let mut toy = toy(None, None);
    toy.world.machine.free_blocks = Blocks(1000);
    let target = || FreeBlockTarget::new(by_name("demand").unwrap());
    toy.run_with_target(&mut promote_all(), Settings::default(), target());
    assert!(toy.orders.is_empty());
    let mut toy = self::toy(None, None);
    toy.world.machine.free_blocks = Blocks(1000);
    toy.world.nodes.insert(A, node(0));
    toy.run_with_target(&mut promote_all(), keeping(Blocks(0)), target());
    assert_eq!(toy.orders.first().map(|(_, order)| order.blocks), Some(Blocks(4)));
    // Where a node keeps some, too, those are ordered with them: half of the memory, so half of the floor.
    let mut toy = self::toy(None, None);
    toy.world.machine.free_blocks = Blocks(1000);
    toy.world.nodes.insert(A, node(3));
    toy.run_with_target(&mut promote_all(), keeping(Blocks(20)), target());
    assert_eq!(toy.orders.first().map(|(_, order)| order.blocks), Some(Blocks(4 + 7)));
}

#[test]
fn a_node_keeps_its_part_of_the_floor_of_free_blocks() {
    for (free, promoted) in [(10, 8), (11, 12)] {
        let mut toy = toy(None, None);
        toy.world.machine.free_blocks = Blocks(1000);
        toy.world.nodes.insert(A, node(free));
        let run = toy.run(&mut promote_all(), keeping(Blocks(20)));
        assert_eq!(run.status.promoted, promoted, "{free} free blocks");
    }
}

#[test]
fn a_node_that_is_short_of_memory_gives_no_block_though_it_has_some() {
    let mut toy = toy(None, None);
    let full = NodeMemory {
        available_bytes: Bytes::mib(100),
        ..node(40)
    };
    toy.world.nodes.insert(A, full);
    let run = toy.run(&mut promote_all(), Settings::default());
    assert!(toy.acts.iter().all(|(_, action, _)| action.process != A));
    assert_eq!(run.status.promoted, 8);
    assert!(run.has(|e| waits_for(e, 1, Deferred::FreeMemory)));
}
