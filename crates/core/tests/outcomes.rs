//! What the control loop calls done and what it calls otherwise, and that it says so.

mod toy;

use std::collections::BTreeSet;

use mega_core::action::{ActionKind, CallError, Outcome};
use mega_core::control::Settings;
use mega_core::host::HostEvent;
use mega_core::journal::Event;
use mega_core::observe::{Can, Why};
use mega_core::policy::{Base, Ingens};
use toy::*;

#[test]
fn success_is_what_the_next_look_says_and_never_what_the_call_returned() {
    let says_yes_does_nothing = Act {
        effect: Effect::Nothing,
        ..WORKS
    };
    let says_no_does_it = Act {
        says: Some(CallError::NoMemory),
        ..WORKS
    };
    let mut toy = Toy::new(4 * SECOND).with(
        A,
        [
            (1, Place::base(512, 512).acts(says_yes_does_nothing)),
            (2, Place::base(512, 512).acts(says_no_does_it)),
            (3, Place::base(512, 512)),
        ],
    );
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(run.of(A, 1), [Outcome::Busy]);
    assert_eq!(run.of(A, 2), [Outcome::Done]);
    assert_eq!(run.of(A, 3), [Outcome::Done]);
    assert_eq!((run.status.promoted, run.status.failed), (2, 1));
}

#[test]
fn every_named_outcome_occurs_and_is_journaled() {
    let refused = fails(CallError::Refused);
    let forks = Act {
        effect: Effect::Forks,
        ..WORKS
    };
    let unmapped = Act {
        effect: Effect::Unmapped,
        says: Some(CallError::Gone),
        ..WORKS
    };
    let mlocked = Can {
        promote: false,
        why: Some(Why::Mlocked),
        ..Can::ALL
    };
    let region = |act| Place::base(512, 512).acts(act);
    let mut toy = Toy::new(4 * SECOND)
        .with(
            A,
            [
                (1, region(WORKS).takes(MS)),
                (2, region(WORKS)), // someone else promotes it first
                (3, region(refused)),
                (
                    4,
                    Place {
                        can: mlocked,
                        ..region(WORKS)
                    },
                ),
                (5, region(fails(CallError::Busy))),
                (6, region(forks)),
                (7, region(unmapped)),
                (8, region(fails(CallError::Other(7)))),
                (9, region(WORKS)),  // goes away before its turn
                (10, region(WORKS)), // is raced at its turn
                (11, region(WORKS)), // loses its pages before its turn
            ],
        )
        .with(B, [(1, region(fails(CallError::NoMemory)))]);
    toy.change(2 * MS, |world| {
        world.place(A, 2).unwrap().huge = true;
        world.place(A, 10).unwrap().races = 1;
        world.place(A, 11).unwrap().mapped = 100;
        world.processes.get_mut(&A).unwrap().remove(&9);
    });
    let run = toy.run(
        &mut Wish(|o| {
            (!o.huge).then_some((
                ActionKind::Promote,
                512,
                mega_core::action::Expect::Populated(mega_core::units::BasePages(448)),
            ))
        }),
        Settings::default(),
    );
    for (region, outcome) in [
        (1, Outcome::Done),
        (2, Outcome::Already),
        (3, Outcome::Ineligible(Why::Refused)),
        (4, Outcome::Ineligible(Why::Mlocked)),
        (5, Outcome::Busy),
        (6, Outcome::Shared),
        (7, Outcome::Gone),
        (8, Outcome::Failed(7)),
        (9, Outcome::Gone),
        (10, Outcome::Busy),
        (11, Outcome::Ineligible(Why::Changed)),
    ] {
        assert_eq!(run.of(A, region), [outcome], "region {region}\n{}", run.text());
    }
    assert_eq!(run.of(B, 1), [Outcome::NoMemory]);
    let acted: BTreeSet<_> = toy.acts.iter().map(|(_, a, _)| (a.process, a.region.0)).collect();
    for region in [2, 4, 9, 10, 11] {
        assert!(!acted.contains(&(A, region)), "no call for region {region}");
    }
}

#[test]
fn a_demotion_reports_the_memory_it_gave_back_by_the_looks_around_it() {
    let mut toy = Toy::new(SECOND).with(A, [(1, Place::huge(500)), (2, Place::huge(0))]);
    let run = toy.run(&mut Base, Settings::default());
    let returned: Vec<_> = run
        .lines
        .iter()
        .filter_map(|line| match line.event {
            Event::Outcome { returned_pages, .. } => Some(returned_pages),
            _ => None,
        })
        .collect();
    assert_eq!(returned, [500, 0]);
    assert_eq!(run.status.returned.0, 500 * 4096);
    assert_eq!(run.status.demoted, 2);
}

#[test]
fn a_process_that_vanishes_between_look_and_act_is_dropped_without_an_error() {
    let exits = Act {
        effect: Effect::Exits,
        says: Some(CallError::Gone),
        ..WORKS
    };
    let mut toy = Toy::new(12 * SECOND)
        .with(A, (0..1000).map(|i| (i, Place::base(512, 512).acts(exits))))
        .with(B, (0..10).map(|i| (i, Place::base(512, 512))));
    let run = toy.run(&mut promote_all(), Settings::default());
    let of_a: Vec<_> = run.outcomes().into_iter().filter(|o| o.1 == A.pid).collect();
    assert_eq!(of_a.len(), 1, "one outcome says it; the rest of its queue is dropped");
    assert_eq!(of_a[0].4, Outcome::Gone);
    assert!(run.has(|e| *e == Event::Gone { pid: A.pid }));
    assert_eq!(run.status.promoted, 10, "the others go on");
    assert_eq!(run.status.processes, 1);
    assert!(!run.has(|e| matches!(e, Event::Notice { .. } | Event::Refused { .. })));
}

#[test]
fn the_state_of_a_process_that_vanished_is_forgotten() {
    let busy = |id| {
        (
            id,
            (0..5).map(|i| (i, Place::base(512, 512).acts(fails(CallError::Other(5))))),
        )
    };
    let again = mega_core::observe::ProcessId { started: 99, ..A };
    let mut toy = Toy::new(14 * SECOND).with(busy(A).0, busy(A).1);
    toy.change(7 * SECOND, move |world| {
        world.exit(A);
        world.add(again, [(0, Place::base(512, 512))]);
    });
    let run = toy.run(&mut promote_all(), Settings::default());
    assert_eq!(
        run.of(A, 0),
        [Outcome::Failed(5), Outcome::Done],
        "the same PID started anew is another process, and is not held back"
    );
    assert_eq!(run.status.processes, 1);
}

#[test]
fn a_region_that_vanishes_is_not_acted_on_and_begins_anew_when_it_returns() {
    let mut toy = Toy::new(30 * SECOND).with(A, [(1, Place::base(512, 512))]);
    toy.change(6 * SECOND, |world| {
        world.processes.get_mut(&A).unwrap().remove(&1);
    });
    toy.change(16 * SECOND, |world| world.add(A, [(1, Place::base(512, 512))]));
    let run = toy.run(&mut Ingens::default(), Settings::default());
    assert_eq!(run.of(A, 1), [Outcome::Done, Outcome::Done]);
    assert_eq!(run.seconds(A, 1), [0, 20]);
}

#[test]
fn raced_looks_and_impossible_counts_change_nothing() {
    let impossible = Place::base(600, 600);
    let raced = Place {
        races: u32::MAX,
        ..Place::base(600, 512)
    };
    let mut toy = Toy::new(12 * SECOND).with(A, [(1, impossible), (2, raced)]);
    let settings = Settings {
        full_journal: true,
        ..Settings::default()
    };
    let run = toy.run(&mut Ingens::default(), settings);
    assert!(toy.acts.is_empty());
    for line in &run.lines {
        assert!(mega_core::journal::seen(&line.event).is_ok(), "{}", line.to_text());
    }
    assert!(
        !run.has(|e| matches!(e, Event::See { region, .. } if region.0 == 1)),
        "what cannot be is left out"
    );
}

#[test]
fn what_happens_on_the_host_is_journaled() {
    let mut toy = Toy::new(12 * SECOND).with(A, [(1, Place::base(10, 0))]);
    toy.change(SECOND, |world| {
        world.notify(HostEvent::Refused(9, "a kernel thread".into()));
        world.notify(HostEvent::Notice("something".into()));
    });
    let run = toy.run(&mut Base, Settings::default());
    assert!(run.has(|e| matches!(e, Event::Found { pid: 1, started: 11, name } if name == "toy 1")));
    assert!(run.has(|e| matches!(e, Event::Refused { pid: 9, why } if why == "a kernel thread")));
    assert!(run.has(|e| matches!(e, Event::Notice { text } if text == "something")));
    assert!(matches!(run.lines[0].event, Event::Start { .. }));
    assert!(matches!(run.lines.last().unwrap().event, Event::Stop { .. }));
}
