//! What waits, what is decided anew, what is left alone.

mod toy;

use std::time::Duration;

use mega_core::action::{ActionKind, CallError, Deferred, Expect, Outcome};
use mega_core::budget::Budget;
use mega_core::control::Settings;
use mega_core::journal::Event;
use mega_core::policy::{Base, Mega, Trim};
use mega_core::units::{BasePages, Share};
use toy::*;

/// Promotes what is at least half mapped, and expects that of it when its turn comes.
fn promote_half_mapped() -> Wish {
    const HALF: BasePages = BasePages(256);
    Wish(|o| (!o.huge && o.mapped >= HALF).then_some((ActionKind::Promote, o.mapped.0, Expect::Populated(HALF))))
}

#[test]
fn a_decision_that_waited_is_taken_anew_and_not_acted_on_late() {
    // At a stall budget of 0.005 % one call of 0.45 ms fits into nine seconds, of which one may be saved up.
    let settings = Settings {
        budget: Budget {
            stall: Share::millionths(50),
            ..Budget::default()
        },
        ..Settings::default()
    };
    let mut toy = Toy::new(14 * SECOND).with(
        A,
        [
            (1, Place::base(512, 0)),
            (2, Place::base(500, 0)),
            (3, Place::base(400, 0)),
        ],
    );
    toy.change(SECOND, |world| world.place(A, 2).unwrap().mapped = 10);
    let run = toy.run(&mut promote_half_mapped(), settings);
    assert!(run.has(|e| matches!(
        e,
        Event::Defer {
            why: Deferred::Budget,
            regions: 2,
            ..
        }
    )));
    assert_eq!(run.of(A, 1), [Outcome::Done]);
    assert_eq!(
        run.of(A, 2),
        [],
        "it was decided at the first scan, waited, and was no longer so at the second"
    );
    assert_eq!(run.seconds(A, 3), [8]);
    let decided_twice = run
        .lines
        .iter()
        .filter(|l| matches!(l.event, Event::Decide { region, .. } if region.0 == 3));
    assert!(decided_twice.count() <= 2);
}

#[test]
fn what_changes_between_the_scan_and_its_turn_is_not_acted_on() {
    let mut toy = Toy::new(4 * SECOND).with(A, (0..10).map(|i| (i, Place::base(512, 0))));
    toy.change(2 * MS, |world| world.place(A, 9).unwrap().mapped = 255);
    let run = toy.run(&mut promote_half_mapped(), Settings::default());
    assert_eq!(run.of(A, 9), [Outcome::Ineligible(mega_core::observe::Why::Changed)]);
    assert!(toy.acts.iter().all(|(_, action, _)| action.region.0 != 9));
}

#[test]
fn nothing_is_acted_on_after_the_next_scan_is_due() {
    let places = || (0..5000).map(|i| (i, Place::base(512, 0).takes(3 * MS)));
    let settings = Settings {
        budget: Budget {
            stall: Share::FULL,
            cpu: Share::FULL,
            ..Budget::default()
        },
        ..Settings::default()
    };
    let mut toy = Toy::new(30 * SECOND).with(A, places()).with(B, places());
    toy.run(&mut promote_all(), settings);
    for two in toy.scans.windows(2) {
        let gap = two[1].since(two[0]);
        assert!(gap <= 5 * SECOND + 4 * MS, "at most one call late: {gap:?}");
    }
}

#[test]
fn a_shared_region_waits_and_is_promoted_at_the_first_scan_after_sharing_ends() {
    let mut toy = Toy::new(100 * SECOND).with(A, [(1, Place::base(512, 512)), (2, Place::base(512, 512))]);
    // Region 1 is hot for half its history and then shared; region 2 is not.
    toy.change(24 * SECOND, |world| world.place(A, 1).unwrap().shared = true);
    toy.change(61 * SECOND, |world| world.place(A, 1).unwrap().shared = false);
    let run = toy.run(&mut Mega::default(), Settings::default());
    assert_eq!(run.seconds(A, 2), [25]);
    assert_eq!(run.of(A, 1), [Outcome::Done], "it is not even tried while shared");
    assert_eq!(run.seconds(A, 1), [65], "its history was kept");
}

#[test]
fn sharing_that_only_the_call_reveals_is_tried_again_at_every_scan() {
    let mut toy = Toy::new(22 * SECOND).with(A, [(1, Place::base(512, 512))]);
    let place = toy.world.place(A, 1).unwrap();
    place.next.push_back(Act {
        effect: Effect::Forks,
        ..WORKS
    });
    toy.change(16 * SECOND, |world| world.place(A, 1).unwrap().shared = false);
    let run = toy.run(&mut promote_all(), Settings::default());
    let shared = Outcome::Shared;
    assert_eq!(run.of(A, 1), [shared, shared, shared, shared, Outcome::Done]);
    assert_eq!(toy.acts.len(), 2, "while it is seen to be shared no call is made");
}

#[test]
fn a_flapping_region_is_left_alone_longer_each_time() {
    let mut toy = Toy::new(600 * SECOND).with(A, [(1, Place::huge(400))]);
    // khugepaged blows it up again two seconds after every scan.
    for i in 0..120 {
        toy.change(Duration::from_secs(5 * i + 2), |world| {
            let place = world.place(A, 1).unwrap();
            place.huge = true;
            place.mapped = 512;
        });
    }
    let run = toy.run(&mut Trim::default(), Settings::default());
    let when = run.seconds(A, 1);
    let gaps: Vec<_> = when.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(gaps, [35, 65, 125, 245], "six intervals, twelve, ...; {when:?}");
    assert!(run.has(|e| matches!(
        e,
        Event::Defer {
            why: Deferred::Flapping,
            ..
        }
    )));
}

#[test]
fn each_reason_has_its_own_back_off_and_it_doubles() {
    for (error, gaps) in [
        (CallError::Busy, [10, 15, 25, 45]),
        (CallError::NoMemory, [15, 25, 45, 85]),
        (CallError::Other(5), [35, 65, 125, 245]),
        (CallError::Refused, [65, 125, 245, 485]),
    ] {
        let mut toy = Toy::new(1000 * SECOND).with(A, [(1, Place::base(512, 0).acts(fails(error)))]);
        let run = toy.run(&mut promote_all(), Settings::default());
        let when = run.seconds(A, 1);
        let seen: Vec<_> = when.windows(2).map(|two| two[1] - two[0]).take(4).collect();
        assert_eq!(seen, gaps, "{error:?}");
        assert!(run.has(|e| matches!(
            e,
            Event::Defer {
                why: Deferred::BackOff,
                ..
            }
        )));
    }
}

#[test]
fn a_dry_run_never_acts_and_never_clears_accessed_bits() {
    let places = |i| match i % 2 {
        0 => Place::base(512, 512),
        _ => Place::huge(500),
    };
    for policy in ["auto", "mega", "ingens", "trim", "khugepaged", "base"] {
        let mut toy = Toy::new(60 * SECOND)
            .with(A, (0..20).map(|i| (i, places(i))))
            .with(B, (0..20).map(|i| (i, places(i))));
        let mut policy = mega_core::policy::by_name(policy).unwrap();
        let settings = Settings {
            dry_run: true,
            ..Settings::default()
        };
        let run = toy.run(policy.as_mut(), settings);
        assert!(toy.acts.is_empty() && toy.ages.is_empty());
        assert!(run.outcomes().is_empty());
        assert!(run.has(|e| matches!(e, Event::Decide { .. })), "{}", policy.name());
        assert!(run.has(|e| matches!(
            e,
            Event::Defer {
                why: Deferred::DryRun,
                ..
            }
        )));
    }
}

#[test]
fn a_decision_has_an_outcome_or_is_said_to_wait() {
    let mut toy = Toy::new(50 * SECOND).with(A, (0..5000).map(|i| (i, Place::huge(0))));
    let run = toy.run(&mut Base, Settings::default());
    let (mut decided, mut ended) = (0, 0);
    for line in &run.lines {
        match line.event {
            Event::Scanned { .. } => {
                assert_eq!(decided, ended);
                (decided, ended) = (0, 0);
            }
            Event::Decide { .. } => decided += 1,
            Event::Outcome { .. } => ended += 1,
            // Said before anything is acted on: what was not taken into the budget at all.
            Event::Defer { .. } if ended == 0 => {}
            Event::Defer { regions, .. } => ended += regions,
            _ => {}
        }
    }
}

#[test]
fn stop_is_prompt() {
    let mut toy = Toy::new(Duration::from_millis(1234)).with(A, (0..50_000).map(|i| (i, Place::base(512, 512))));
    let run = toy.run(&mut promote_all(), Settings::default());
    let stop = run.lines.last().unwrap();
    assert!(matches!(stop.event, Event::Stop { .. }));
    assert!(
        stop.at.since(at(Duration::from_millis(1234))) < MS,
        "{}",
        stop.to_text()
    );
    assert!(toy
        .acts
        .iter()
        .all(|(when, ..)| *when < at(Duration::from_millis(1234))));
    // And from the long wait for the next scan.
    let mut toy = Toy::new(3 * SECOND);
    let run = toy.run(&mut Base, Settings::default());
    assert_eq!(run.status.elapsed, 3 * SECOND);
}
