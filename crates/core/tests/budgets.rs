//! What managing may cost: time of the programs, time of a processor, memory.

mod toy;

use std::time::Duration;

use mega_core::action::{Action, ActionKind, CallError, Deferred, Expect, Outcome};
use mega_core::budget::Budget;
use mega_core::control::Settings;
use mega_core::journal::Event;
use mega_core::observe::ProcessId;
use mega_core::policy::{Ingens, Mega};
use mega_core::units::{Blocks, Bytes, Share, Time};
use toy::*;

fn stall(percent: u32) -> Settings {
    Settings {
        budget: Budget {
            stall: Share::percent(percent),
            cpu: Share::FULL,
            ..Budget::default()
        },
        ..Settings::default()
    }
}

fn many(n: u64) -> impl Iterator<Item = (u64, Place)> {
    (0..n).map(|i| (i, Place::base(512, 512)))
}

/// The time for which calls stalled a process.
fn held(acts: &[(Time, Action, Duration)], id: ProcessId) -> Duration {
    let own = acts.iter().filter(|(_, action, _)| action.process == id);
    own.map(|(_, _, took)| *took).sum()
}

/// What waited, and for what.
fn deferred(run: &Run, id: ProcessId, kind: ActionKind) -> Vec<(Deferred, u64)> {
    let lines = run.lines.iter();
    lines
        .filter_map(|line| match line.event {
            Event::Defer {
                pid,
                action,
                why,
                regions,
            } if pid == id.pid && action == kind => Some((why, regions)),
            _ => None,
        })
        .collect()
}

#[test]
fn each_process_is_held_up_for_no_more_than_its_share_of_the_whole_run() {
    for percent in [1, 5, 20, 100] {
        let took = |i: u64| Duration::from_micros(200 + i * 7919 % 5000);
        let places = || (0..20_000).map(|i| (i, Place::base(512, 512).takes(took(i))));
        let run = Duration::from_secs(20);
        let mut toy = Toy::new(run).with(A, places()).with(B, places());
        toy.run(&mut promote_all(), stall(percent));
        for id in [A, B] {
            let held = held(&toy.acts, id);
            let limit = run.mul_f64(f64::from(percent) / 100.0);
            // The pause after the last call may lie past the end.
            let saved = mega_core::budget::credit(Share::percent(percent));
            assert!(held <= limit + saved + 6 * MS, "{percent} %: {held:?} of {run:?}");
            let used = limit.min(run.mul_f64(0.5)); // at 100 % the two share one thread
            assert!(
                held >= used.mul_f64(0.9),
                "{percent} %: only {held:?} of {limit:?} used"
            );
        }
    }
}

#[test]
fn at_five_percent_a_region_takes_about_ten_milliseconds() {
    let mut toy = Toy::new(10 * SECOND).with(A, many(2000));
    let run = toy.run(&mut promote_all(), stall(5));
    // What it saved up comes first: 50 ms.
    let at_once = toy
        .acts
        .iter()
        .take_while(|(when, ..)| when.since(toy.acts[0].0) < 60 * MS)
        .count();
    assert!((100..125).contains(&at_once), "{at_once}");
    let each = 10_000.0 / (run.status.promoted as f64 - at_once as f64);
    assert!((8.9..10.0).contains(&each), "{each} ms per region");
    let gaps = toy.acts.windows(2).map(|two| two[1].0.since(two[0].0));
    assert!(
        gaps.skip(at_once + 1).min().unwrap() >= 8 * MS,
        "evenly spaced from then on, not in bursts"
    );
}

#[test]
fn processor_time_stays_within_its_budget() {
    for percent in [1, 5, 20] {
        let settings = Settings {
            budget: Budget {
                stall: Share::FULL,
                cpu: Share::percent(percent),
                ..Budget::default()
            },
            ..Settings::default()
        };
        let run = Duration::from_secs(60);
        let mut toy = Toy::new(run).with(A, many(60_000));
        toy.age_cpu = Duration::ZERO;
        toy.world.machine.free_blocks = mega_core::units::Blocks(100_000);
        let status = toy.run(&mut promote_all(), settings).status;
        let share = f64::from(percent) / 100.0;
        // The bucket holds fifteen seconds' worth, which may be spent in advance.
        let limit = (run + 15 * SECOND).mul_f64(share) + MS;
        assert!(status.cpu <= limit, "{percent} %: {:?}", status.cpu);
        assert!(status.cpu >= run.mul_f64(share * 0.9), "{percent} %: {:?}", status.cpu);
    }
}

#[test]
fn the_interval_is_stretched_when_scans_are_dear_and_it_is_said_once() {
    let mut toy = Toy::new(100 * SECOND).with(A, many(10));
    toy.scan_cpu = SECOND; // 10 % of one processor, half of it for scans: one second per twenty
    let run = toy.run(&mut promote_all(), Settings::default());
    let gaps: Vec<_> = toy.scans.windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(
        gaps.iter().all(|gap| *gap >= 20 * SECOND && *gap < 21 * SECOND),
        "{gaps:?}"
    );
    let notices = run.lines.iter().filter(|l| matches!(l.event, Event::Notice { .. }));
    assert_eq!(notices.count(), 1);
    assert_eq!(run.status.promoted, 10, "what is decided is still done");
}

#[test]
fn clearing_accessed_bits_counts_in_the_processor_budget() {
    // 30 us a region is what it costs when base pages are mapped (docs/linux.md); a hundred gigabytes of them.
    let run = Duration::from_secs(300);
    let mut toy = Toy::new(run).with(A, (0..50_000).map(|i| (i, Place::base(512, 0))));
    toy.scan_cpu = 40 * MS;
    toy.age_cpu = 30 * US;
    let status = toy.run(&mut Mega::default(), Settings::default()).status;
    assert!(status.cpu <= (run + 15 * SECOND).mul_f64(0.1), "{:?}", status.cpu);
    assert!(status.scans >= 5, "and the history still fills: {} scans", status.scans);
}

#[test]
fn having_accessed_bits_cleared_counts_in_the_stall_budget_and_all_are_promoted_all_the_same() {
    // 12 GB in use, at half a microsecond a page: all at a time would take 1.5 s of 5.
    let run = Duration::from_secs(1000);
    let mut toy = Toy::new(run).with(A, many(6000));
    toy.age_cpu = Duration::ZERO;
    toy.touch = US / 2;
    let found = toy.run(&mut Mega::default(), stall(5));
    let mut ageing = Duration::ZERO;
    for line in &found.lines {
        let Event::Age { stall_ns, later, .. } = line.event else {
            continue;
        };
        let one = Duration::from_nanos(stall_ns);
        // A huge page costs a bit of its own, beside which at least one other region is aged.
        assert!(one <= 125 * MS + 6 * MS, "{one:?} at once, {later} later");
        ageing += one;
    }
    assert!(ageing > 4 * SECOND, "the budget is used: {ageing:?}");
    let held = held(&toy.acts, A) + ageing;
    assert_eq!(found.status.stall, held);
    assert!(held <= run.mul_f64(0.05) + 180 * MS, "{held:?} of {run:?}");
    assert_eq!(found.status.promoted, 6000, "{:?}", found.status);
}

#[test]
fn a_small_stall_budget_is_kept_by_ageing_too() {
    let run = Duration::from_secs(100);
    let mut toy = Toy::new(run).with(A, many(2000));
    toy.touch = US;
    let mut settings = stall(1);
    settings.interval = SECOND / 10;
    settings.budget.stall = Share::millionths(100); // less than one region's worth per interval
    let found = toy.run(&mut Mega::default(), settings);
    assert!(
        found.status.stall <= run.mul_f64(0.0001) + 2 * MS,
        "{:?}",
        found.status.stall
    );
    assert!(found.status.stall >= run.mul_f64(0.00005), "{:?}", found.status.stall);
}

#[test]
fn the_best_benefit_per_cost_comes_first() {
    let places = [(1, 300), (2, 512), (3, 100), (4, 400)].map(|(i, mapped)| (i, Place::base(mapped, 0)));
    let mut toy = Toy::new(4 * SECOND).with(A, places);
    let run = toy.run(&mut promote_all(), Settings::default());
    let order: Vec<_> = run.outcomes().iter().map(|o| o.2).collect();
    assert_eq!(order, [2, 4, 1, 3]);
}

#[test]
fn an_action_that_proves_dear_comes_after_one_that_is_worth_as_much() {
    let by_kind = Wish(|o| {
        let kind = if o.huge {
            ActionKind::Demote
        } else {
            ActionKind::Promote
        };
        (o.region.0 % 2 == u64::from(o.huge)).then_some((kind, 100, Expect::Anything))
    });
    // Even regions are promoted at 20 ms each, odd ones demoted at 0.1 ms. All are worth 100.
    let place = |i: u64| match i % 2 {
        0 => Place::base(512, 0).takes(20 * MS),
        _ => Place::huge(0).takes(MS / 10),
    };
    let mut toy = Toy::new(9 * SECOND).with(A, (0..10).map(|i| (i, place(i))));
    toy.change(4 * SECOND, move |world| world.add(A, (10..20).map(|i| (i, place(i)))));
    let run = toy.run(&mut { by_kind }, stall(20));
    let second: Vec<_> = run.outcomes().iter().filter(|o| o.2 >= 10).map(|o| o.3).collect();
    assert_eq!(second[..5], [ActionKind::Demote; 5], "{second:?}");
}

#[test]
fn floors_of_memory_stop_promotions_while_demotions_go_on() {
    let both = || {
        Wish(|o| match o.huge {
            false => Some((ActionKind::Promote, 512, Expect::Anything)),
            true => (o.zero.unwrap_or_default().0 > 0).then_some((ActionKind::Demote, 100, Expect::Anything)),
        })
    };
    for (why, available, blocks, pressure) in [
        (Deferred::FreeMemory, Bytes::mib(100), 8000, None),
        (Deferred::FreeBlocks, Bytes(16 << 30), 32, None),
        (Deferred::Pressure, Bytes(16 << 30), 8000, Some(Share::percent(11))),
    ] {
        let promotable = many(10);
        let wasteful = (100..110).map(|i| (i, Place::huge(400)));
        let mut toy = Toy::new(9 * SECOND).with(A, promotable.chain(wasteful));
        toy.world.machine.available_bytes = available;
        toy.world.machine.free_blocks = Blocks(blocks);
        toy.world.machine.pressure = pressure;
        let run = toy.run(&mut both(), Settings::default());
        assert_eq!((run.status.promoted, run.status.demoted), (0, 10), "{why:?}");
        // At the second scan the demoted ones wait to be promoted, too.
        assert_eq!(deferred(&run, A, ActionKind::Promote), [(why, 10), (why, 20)]);
        assert_eq!(toy.ages.is_empty(), why == Deferred::Pressure, "{why:?}");
    }
}

#[test]
fn promotions_stop_at_the_floor_of_free_blocks_within_one_scan() {
    let mut toy = Toy::new(4 * SECOND).with(A, many(20));
    toy.world.machine.free_blocks = Blocks(39);
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(run.status.promoted, 7);
    assert_eq!(deferred(&run, A, ActionKind::Promote), [(Deferred::FreeBlocks, 13)]);
}

#[test]
fn promotions_that_add_memory_stop_at_its_floor_within_one_scan() {
    let mut toy = Toy::new(4 * SECOND).with(A, (0..20).map(|i| (i, Place::base(1, 0))));
    let floor = (24u64 << 30) / 20;
    toy.world.machine.available_bytes = Bytes(floor + (13 << 20));
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(run.status.promoted, 6, "six times 2 MB fit in 13 MB");
    assert_eq!(deferred(&run, A, ActionKind::Promote), [(Deferred::FreeMemory, 14)]);
}

#[test]
fn no_memory_ends_the_promotions_of_its_process_for_this_scan_only() {
    let mut full = Place::base(512, 0);
    full.next.push_back(fails(CallError::NoMemory));
    let places = (1..5).map(|i| (i, Place::base(400, 0))).chain([(0, full)]);
    let mut toy = Toy::new(14 * SECOND)
        .with(A, places)
        .with(B, (0..5).map(|i| (i, Place::base(300, 0))));
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(run.of(A, 0)[0], Outcome::NoMemory);
    assert_eq!(deferred(&run, A, ActionKind::Promote)[0], (Deferred::NoMemory, 4));
    assert_eq!(run.seconds(A, 1), [5], "at the next scan the others are tried again");
    for region in 0..5 {
        assert_eq!(
            run.seconds(B, region),
            [0],
            "another process may have room in its memory group"
        );
    }
}

#[test]
fn two_processes_share_the_time_and_a_huge_queue_does_not_starve_a_small_one() {
    for percent in [5, 100] {
        let small = (0..20).map(|i| (i, Place::base(256, 0)));
        let mut toy = Toy::new(4 * SECOND).with(A, many(50_000)).with(B, small);
        toy.world.machine.free_blocks = Blocks(100_000);
        toy.world.machine.available_bytes = Bytes(1 << 40);
        let run = toy.run(&mut promote_all(), stall(percent));
        let first: Vec<_> = run.outcomes().iter().take(40).map(|o| o.1).collect();
        let of_b = first.iter().filter(|pid| **pid == B.pid).count();
        assert_eq!(of_b, 20, "{percent} %: they take turns: {first:?}");
    }
}

#[test]
fn scarce_blocks_go_round_where_regions_are_worth_the_same() {
    let mut toy = Toy::new(4 * SECOND)
        .with(A, many(100))
        .with(B, (5000..5100).map(|i| (i, Place::base(512, 512))));
    toy.world.machine.free_blocks = Blocks(32 + 20);
    let run = toy.run(&mut promote_all(), Settings::default());
    let of_b = run.outcomes().iter().filter(|o| o.1 == B.pid).count();
    assert_eq!((run.status.promoted, of_b), (20, 10));
}

#[test]
fn processes_that_compete_under_ingens_get_scarce_blocks_in_the_order_of_its_metric() {
    let held = (100..130).map(|i| (i, Place::huge(0)));
    let mut toy = Toy::new(4 * SECOND).with(A, many(20).chain(held)).with(B, many(20));
    toy.world.machine.free_blocks = Blocks(32 + 10);
    let run = toy.run(&mut Ingens::default(), Settings::default());
    assert!(run.outcomes().iter().all(|o| o.1 == B.pid), "the one that holds none");
    assert_eq!(run.status.promoted, 10);
}
