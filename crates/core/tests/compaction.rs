//! The free-block target in the loop: compaction is ordered before promotions, within the budgets, backs off where it is fruitless, and nobody waits
//! for it.

mod toy;

use std::time::Duration;

use mega_core::action::{Deferred, Outcome};
use mega_core::budget::Budget;
use mega_core::compaction::planner::by_name;
use mega_core::compaction::target::FreeBlockTarget;
use mega_core::control::Settings;
use mega_core::journal::Event;
use mega_core::policy::Base;
use mega_core::units::{Blocks, Share};
use toy::*;

fn target(planner: &str) -> FreeBlockTarget {
    FreeBlockTarget::new(by_name(planner).unwrap())
}

fn short_of_blocks(run: Duration, free: u64, regions: u64) -> Toy {
    let mut toy = Toy::new(run).with(A, (0..regions).map(|i| (i, Place::base(512, 512))));
    toy.world.machine.free_blocks = Blocks(free);
    toy
}

/// The times, in whole seconds, of what was ordered.
fn ordered(toy: &Toy) -> Vec<u64> {
    toy.orders.iter().map(|(at, _)| at.0 / 1_000_000_000).collect()
}

#[test]
fn what_promotions_ask_for_is_made_ahead_of_them_and_they_are_served_from_it() {
    let mut toy = short_of_blocks(30 * SECOND, 0, 80);
    let run = toy.run_with_target(&mut promote_all(), Settings::default(), target("demand"));
    // 80 regions and a reserve of 16 blocks.
    assert_eq!(toy.orders[0].1.blocks, Blocks(96));
    assert!(toy.acts.iter().all(|(when, ..)| *when > toy.orders[0].0));
    let done = run.outcomes().iter().filter(|o| o.4 == Outcome::Done).count();
    assert_eq!((run.status.promoted, done), (80, 80));
    assert!(run.status.made >= Blocks(96) && run.status.compactions >= 1);
    assert!(run.has(|e| matches!(
        e,
        Event::Stock {
            asked_blocks: 80,
            wanted_blocks: 96,
            why: None,
            ..
        }
    )));
}

#[test]
fn without_a_target_nothing_is_ordered_and_nothing_journalled() {
    let mut toy = short_of_blocks(30 * SECOND, 0, 80);
    let run = toy.run(&mut promote_all(), Settings::default());
    assert!(toy.orders.is_empty() && run.outcomes().is_empty());
    assert!(!run.has(|e| matches!(e, Event::Stock { .. } | Event::Compacted { .. })));
    assert_eq!(run.status.free_blocks, None);
}

#[test]
fn nothing_is_compacted_without_demand() {
    let mut toy = short_of_blocks(60 * SECOND, 0, 0);
    toy.run_with_target(&mut Base, Settings::default(), target("demand"));
    assert!(toy.orders.is_empty());
}

#[test]
fn promotions_take_free_blocks_and_wait_when_they_fall_to_the_floor_between_scans() {
    let mut toy = short_of_blocks(4 * SECOND, 100, 60);
    toy.change(20 * MS, |world| world.machine.free_blocks = Blocks(34));
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(
        toy.world.machine.free_blocks,
        Blocks(32),
        "the floor, and nothing below it"
    );
    let waits = |e: &Event| {
        matches!(
            e,
            Event::Defer {
                why: Deferred::FreeBlocks,
                ..
            }
        )
    };
    assert!(run.has(waits), "{}", run.text());
    assert!(run.outcomes().iter().all(|o| o.4 == Outcome::Done));
}

#[test]
fn what_yields_nothing_is_left_alone_twice_as_long_each_time() {
    let mut toy = short_of_blocks(400 * SECOND, 0, 80);
    toy.yields = 0;
    let run = toy.run_with_target(&mut promote_all(), Settings::default(), target("demand"));
    let gaps: Vec<u64> = ordered(&toy).windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(gaps, [25, 45, 85, 165], "four passes, eight, ... from its end on");
    assert!(run.has(|e| matches!(
        e,
        Event::Stock {
            why: Some(Deferred::BackOff),
            ..
        }
    )));
}

#[test]
fn one_that_is_still_under_way_is_not_waited_for() {
    let mut toy = short_of_blocks(40 * SECOND, 0, 80);
    toy.compacting = 12 * SECOND;
    let settings = Settings {
        budget: Budget {
            cpu: Share::FULL,
            ..Budget::default()
        },
        ..Settings::default()
    };
    let run = toy.run_with_target(&mut promote_all(), settings, target("demand"));
    assert!(
        run.has(|e| matches!(
            e,
            Event::Stock {
                why: Some(Deferred::Busy),
                ..
            }
        )),
        "{}",
        run.text()
    );
    for two in toy.scans.windows(2) {
        assert!(two[1].since(two[0]) <= 5 * SECOND + 10 * MS, "the scans go on");
    }
}

#[test]
fn an_order_is_bounded_in_time_and_what_it_cost_counts_in_the_processor_budget() {
    let mut toy = short_of_blocks(100 * SECOND, 0, 2000);
    toy.compacting = 3 * SECOND;
    let run = toy.run_with_target(&mut promote_all(), Settings::default(), target("mega"));
    assert!(
        toy.orders.iter().all(|(_, order)| order.time == 250 * MS),
        "half of 10 % of 5 s"
    );
    // A toy that keeps to no limit: 3 s at 10 % are earned in 30 s.
    assert!(
        ordered(&toy).windows(2).all(|two| two[1] - two[0] >= 25),
        "{:?}",
        ordered(&toy)
    );
    assert!(run.has(|e| matches!(
        e,
        Event::Stock {
            why: Some(Deferred::Budget),
            ..
        }
    )));
    assert!(run.status.compaction_cpu >= 9 * SECOND);
}

#[test]
fn a_dry_run_orders_nothing_and_says_what_it_would() {
    let mut toy = short_of_blocks(30 * SECOND, 0, 80);
    let settings = Settings {
        dry_run: true,
        ..Settings::default()
    };
    let run = toy.run_with_target(&mut promote_all(), settings, target("demand"));
    assert!(toy.orders.is_empty());
    assert!(run.has(|e| matches!(
        e,
        Event::Stock {
            why: Some(Deferred::DryRun),
            ..
        }
    )));
}

#[test]
fn under_memory_pressure_nothing_is_moved() {
    let mut toy = short_of_blocks(30 * SECOND, 0, 80);
    toy.world.machine.pressure = Some(Share::percent(50));
    let run = toy.run_with_target(&mut promote_all(), Settings::default(), target("demand"));
    assert!(toy.orders.is_empty());
    assert!(run.has(|e| matches!(
        e,
        Event::Stock {
            why: Some(Deferred::Pressure),
            ..
        }
    )));
}

#[test]
fn a_journal_with_a_free_block_target_reads_back_and_decides_the_same() {
    use mega_core::journal::Line;
    use mega_core::replay::{policy_of, replay};
    let mut toy = short_of_blocks(100 * SECOND, 0, 200);
    let settings = Settings {
        full_journal: true,
        ..Settings::default()
    };
    let mut policy = mega_core::policy::by_name("ingens").unwrap();
    let mut planner = by_name("demand").unwrap();
    planner.set("reserve", "64M").unwrap();
    let run = toy.run_with_target(policy.as_mut(), settings, FreeBlockTarget::new(planner));
    assert!(run.status.promoted > 0 && run.status.compactions > 0);
    let start = &run.lines[0];
    assert!(
        start.to_text().ends_with("compact=demand:reserve=64M"),
        "{}",
        start.to_text()
    );
    for form in [Line::to_text as fn(&Line) -> String, Line::to_json] {
        let read: Vec<Line> = run.lines.iter().map(|line| Line::parse(&form(line)).unwrap()).collect();
        let mut policy = policy_of(&read[0].event).unwrap().unwrap();
        let found = replay(&read, policy.as_mut()).unwrap();
        assert!(found.is_same() && found.decisions.same > 0, "{found:?}");
        assert!(found.outcomes.is_same() && found.rest.is_same(), "{found:?}");
    }
    // A journal without one, as they were written before there was any, reads too.
    let old = start.to_text().replace(" compact=demand:reserve=64M", "");
    assert!(Line::parse(&old).is_ok());
}
