//! A full journal of a run goes through a fresh policy, and every decision is the same.

mod toy;

use std::time::Duration;

use mega_core::control::Settings;
use mega_core::journal::{Event, Line};
use mega_core::observe::Can;
use mega_core::policy::{by_name, POLICIES};
use mega_core::replay::{contrast, policy_of, replay, Replayed};
use mega_core::units::{Blocks, Share};
use toy::*;

const FULL: Settings = Settings {
    interval: Duration::from_secs(5),
    budget: mega_core::budget::Budget {
        stall: Share::percent(5),
        cpu: Share::percent(10),
        free_memory: Share::percent(5),
        free_blocks: Blocks(32),
        pressure: Share::percent(10),
    },
    dry_run: false,
    full_journal: true,
};

/// Two programs that use some of what they map, and a third that maps nothing; pressure and sharing come and go.
fn lively(run: Duration) -> Toy {
    let place = |i: u64| match i % 6 {
        0 => Place::base(512, 512),
        1 => Place::base(470, 300),
        2 => Place::base(300, 300),
        3 => Place::huge(400),
        4 => Place {
            hot: 0,
            ..Place::huge(0)
        },
        _ => Place::base(20, 20).acts(fails(mega_core::action::CallError::Busy)),
    };
    let empty = mega_core::observe::ProcessId { pid: 3, started: 33 };
    let mut toy = Toy::new(run)
        .with(A, (0..60).map(|i| (i, place(i))))
        .with(B, (100..130).map(|i| (i * 7, place(i))))
        .with(empty, []);
    // Scans take a time that is no multiple of anything.
    toy.scan_cpu = Duration::from_nanos(1_234_567);
    // Ageing takes turns: all of it would take twice its part of the stall budget.
    toy.touch = 10 * US;
    toy.change(12 * SECOND, |world| world.machine.pressure = Some(Share::percent(30)));
    toy.change(22 * SECOND, |world| world.machine.pressure = None);
    toy.change(30 * SECOND, |world| world.place(A, 6).unwrap().shared = true);
    toy.change(33 * SECOND, |world| {
        let place = world.place(B, 700).unwrap();
        place.races = 1;
        place.can = Can { age: false, ..Can::ALL };
    });
    toy.change(40 * SECOND, |world| {
        world.exit(B);
        world.add(A, (60..90).map(|i| (i, Place::base(512, 512))));
    });
    toy
}

fn journal_of(policy: &str, settings: &[(&str, &str)]) -> Vec<Line> {
    let mut policy = by_name(policy).unwrap();
    for (name, value) in settings {
        policy.set(name, value).unwrap();
    }
    lively(97 * SECOND).run(policy.as_mut(), FULL).lines
}

fn again(lines: &[Line]) -> Replayed {
    let mut policy = policy_of(&lines[0].event).unwrap().unwrap();
    replay(lines, policy.as_mut()).unwrap()
}

fn decides(lines: &[Line]) -> usize {
    lines.iter().filter(|l| matches!(l.event, Event::Decide { .. })).count()
}

#[test]
fn a_full_journal_replays_through_a_fresh_policy_with_all_decisions_the_same() {
    for (policy, _) in POLICIES {
        let lines = journal_of(policy, &[]);
        let found = again(&lines);
        assert!(found.is_same(), "{policy}: {found:?}");
        // One every five seconds, and more where the policy asks for it.
        let scans = lines
            .iter()
            .filter(|l| matches!(l.event, Event::Scanned { .. }))
            .count();
        assert!(scans == 20 || (policy == &"auto" && scans > 20), "{policy}: {scans}");
        assert_eq!(
            (found.scans, found.decisions.same),
            (scans, decides(&lines)),
            "{policy}"
        );
        assert!(found.decisions.same > 5, "{policy}: {found:?}");
        // The budgets, what failed and for how long it was left alone, and all that was written besides.
        for tally in [&found.outcomes, &found.deferrals, &found.rest] {
            assert!(tally.is_same(), "{policy}: {found:?}");
        }
        assert!(found.outcomes.same > 5 && found.rest.same > 100, "{policy}: {found:?}");
    }
}

#[test]
fn it_does_so_from_either_written_form_too() {
    for (policy, _) in POLICIES {
        let lines = journal_of(policy, &[]);
        for form in [Line::to_text, Line::to_json] {
            let read: Vec<_> = lines.iter().map(|line| Line::parse(&form(line)).unwrap()).collect();
            assert!(again(&read).is_same(), "{policy}");
        }
    }
}

#[test]
fn the_start_line_says_which_parameters_to_replay_with() {
    for (policy, settings) in [
        ("mega", &[("n", "4"), ("history", "lived"), ("uprom", "37.5%")] as &[_]),
        ("ingens", &[("fairness", "off"), ("util_threshold", "50%")]),
        ("trim", &[("zero", "70%")]),
        ("auto", &[("for", "latency"), ("behind", "2")]),
        ("khugepaged", &[("pages_to_scan", "9999"), ("scan_sleep_s", "3")]),
    ] {
        let mut lines = journal_of(policy, settings);
        assert!(again(&lines).is_same(), "{policy}");
        if policy == "mega" {
            let Event::Start { params, .. } = &mut lines[0].event else {
                panic!("a journal begins with its start");
            };
            params.clear();
            assert!(!again(&lines).is_same(), "and others decide otherwise");
        }
    }
}

#[test]
fn a_tampered_journal_is_noticed() {
    let lines = journal_of("mega", &[]);
    let nth = |wanted: fn(&Event) -> bool| {
        let found = lines.iter().enumerate().filter(|(_, l)| wanted(&l.event));
        found.map(|(i, _)| i).nth(3).unwrap()
    };
    let decide = nth(|e| matches!(e, Event::Decide { .. }));

    let mut removed = lines.clone();
    removed.remove(decide);
    assert_eq!(again(&removed).decisions.extra.len(), 1);

    let mut doubled = lines.clone();
    doubled.insert(decide, lines[decide].clone());
    assert_eq!(again(&doubled).decisions.missing, [lines[decide].to_text()]);

    let mut swapped = lines.clone();
    swapped.swap(decide, decide + 1);
    let found = again(&swapped).decisions;
    assert!(
        !found.is_same() && found.moved == 2 && found.missing.is_empty(),
        "{found:?}"
    );

    let edits: [fn(&mut Event); 5] = [
        |e| edit(e, |d| *d.0 += 1),
        |e| edit(e, |d| d.1 .0 += 1000),
        |e| edit(e, |d| *d.2 = mega_core::action::Reason::Unwanted),
        |e| edit(e, |d| *d.3 += 1),
        |e| edit(e, |d| *d.4 = Some(7)),
    ];
    for change in edits {
        let mut changed = lines.clone();
        change(&mut changed[decide].event);
        let found = again(&changed).decisions;
        assert_eq!((found.missing.len(), found.extra.len()), (1, 1), "{found:?}");
    }

    let Event::Decide { region: decided, .. } = lines[decide].event else {
        panic!("it was chosen as one");
    };
    let is_its_look = |l: &Line| matches!(l.event, Event::See { region, .. } if region == decided);
    let mut unseen = lines.clone();
    unseen.remove(lines[..decide].iter().rposition(is_its_look).unwrap());
    assert!(!again(&unseen).is_same(), "an observation is missing");
}

type Fields<'a> = (
    &'a mut u32,
    &'a mut mega_core::observe::Region,
    &'a mut mega_core::action::Reason,
    &'a mut u32,
    &'a mut Option<u32>,
);

fn edit(event: &mut Event, change: impl FnOnce(Fields<'_>)) {
    if let Event::Decide {
        pid,
        region,
        reason,
        benefit_pages,
        utilization_ppm,
        ..
    } = event
    {
        change((pid, region, reason, benefit_pages, utilization_ppm));
    }
}

#[test]
fn a_journal_that_ends_anywhere_still_replays() {
    let lines = journal_of("ingens", &[]);
    for end in 1..lines.len() {
        let found = again(&lines[..end]);
        assert!(found.is_same(), "cut after line {end}: {found:?}");
    }
}

#[test]
fn a_journal_that_is_not_full_is_refused() {
    let mut policy = by_name("ingens").unwrap();
    let settings = Settings {
        full_journal: false,
        ..FULL
    };
    let run = lively(20 * SECOND).run(policy.as_mut(), settings);
    let error = replay(&run.lines, by_name("ingens").unwrap().as_mut()).unwrap_err();
    assert!(error.to_string().contains("not a full journal"), "{error}");
}

#[test]
fn a_journal_cannot_ask_for_all_memory_or_name_what_is_not() {
    let machine = "0.000000 machine seen_ns=0 available_bytes=1 total_bytes=1 free_blocks=1";
    let see = |region: &str, count: &str| {
        format!("0.000000 see pid=1 started=1 region={region} count={count} mapped_pages=1 accessed_pages=0 dirty_pages=0 flags=-")
    };
    for lines in [
        vec![machine.to_string(), see("0x0", "16777217")],
        vec![machine.to_string(), see("0x0", "9000000"), see("0x0", "9000000")],
        vec![machine.to_string(), see("0xffffffffffe00000", "1")],
        vec![machine.to_string(), see("0x1fffffffe00000", "18446744073709551615")],
    ] {
        let lines: Vec<_> = lines.iter().map(|l| Line::parse(l).unwrap()).collect();
        assert!(replay(&lines, by_name("base").unwrap().as_mut()).is_err());
    }
    for (policy, params) in [
        ("no", ""),
        ("mega", "n=0"),
        ("mega", "n"),
        ("mega", "udem=90%"),
        ("base", "x=1"),
    ] {
        let start = Event::Start {
            schema: 1,
            clock_ns: 0,
            policy: policy.into(),
            params: params.into(),
            interval_ns: 1,
            stall_budget_ppm: 1,
            cpu_budget_ppm: 1,
            free_memory_ppm: 1,
            free_blocks: 1,
            pressure_ppm: 1,
            dry_run: false,
            compact: None,
            touch_ns: None,
        };
        assert!(policy_of(&start).unwrap().is_err(), "{policy} {params}");
    }
    assert!(policy_of(&Event::Gone { pid: 1 }).is_none());
}

#[test]
fn what_the_budgets_left_for_later_is_left_again() {
    // Slow actions under a small stall budget: most of each queue waits. One process is short of memory, and one of blocks.
    for (stall, took) in [(2, 20 * MS), (10, 7 * MS), (100, MS)] {
        let place = |i: u64| match i % 7 {
            0 => Place::base(512, 512).acts(fails(mega_core::action::CallError::NoMemory)),
            1 => Place::huge(400).takes(took * 2),
            _ => Place::base(512, 512).takes(took),
        };
        let mut toy = Toy::new(63 * SECOND)
            .with(A, (1..300).map(|i| (i, place(i))))
            .with(B, (1..300).map(|i| (i, place(i + 1))));
        toy.world.machine.free_blocks = Blocks(190);
        toy.change(21 * SECOND, |world| world.machine.free_blocks = Blocks(33));
        toy.change(40 * SECOND, |world| world.exit(A));
        let settings = Settings {
            budget: mega_core::budget::Budget {
                stall: Share::percent(stall),
                cpu: Share::percent(3),
                free_blocks: Blocks(10),
                ..FULL.budget
            },
            ..FULL
        };
        let mut policy = by_name("ingens").unwrap();
        let run = toy.run(policy.as_mut(), settings);
        for form in [Line::to_text as fn(&Line) -> String, Line::to_json] {
            let read: Vec<_> = run.lines.iter().map(|line| Line::parse(&form(line)).unwrap()).collect();
            let found = again(&read);
            assert!(
                found.is_same() && found.outcomes.same > 20 && found.deferrals.same > 10,
                "{found:?}"
            );
            assert!(
                found.outcomes.is_same() && found.deferrals.is_same() && found.rest.is_same(),
                "{found:?}"
            );
        }
    }
}

#[test]
fn outcomes_have_their_consequences_when_they_are_replayed() {
    let lines = journal_of("mega", &[]);
    let done = lines.iter().position(|line| {
        matches!(
            line.event,
            Event::Outcome {
                outcome: mega_core::action::Outcome::Done,
                action: mega_core::action::ActionKind::Promote,
                ..
            }
        )
    });
    let mut changed = lines.clone();
    if let Event::Outcome { outcome, .. } = &mut changed[done.unwrap()].event {
        *outcome = mega_core::action::Outcome::Failed(5);
    }
    let found = again(&changed);
    assert!(
        found.outcomes.is_same(),
        "it comes out as the journal says: {:?}",
        found.outcomes
    );
    assert!(!found.rest.is_same(), "and counts as failed: {:?}", found.rest);

    let mut left_out = lines.clone();
    left_out.remove(done.unwrap());
    let found = again(&left_out).outcomes;
    assert_eq!((found.missing.len(), found.extra.len()), (0, 1), "{found:?}");
    assert!(found.extra[0].contains("ineligible(changed)"), "{found:?}");
}

#[test]
fn another_policy_on_the_same_observations_is_set_against_the_live_one() {
    let lines = journal_of("ingens", &[]);
    let sum = |scans: &[mega_core::replay::Contrast]| {
        let (both, live) = scans
            .iter()
            .map(|s| (s.both, s.only_live.len()))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        (
            scans.len(),
            both,
            live,
            scans.iter().map(|s| s.only_other.len()).sum::<usize>(),
        )
    };
    let same = contrast(&lines, by_name("ingens").unwrap().as_mut()).unwrap();
    assert_eq!(sum(&same), (20, decides(&lines), 0, 0));
    let base = contrast(&lines, by_name("base").unwrap().as_mut()).unwrap();
    let (scans, both, live, other) = sum(&base);
    assert_eq!((scans, both + live), (20, decides(&lines)));
    assert!(live > 0 && other > 0, "one promotes, the other demotes: {base:?}");
    assert!(base
        .iter()
        .flat_map(|s| &s.only_other)
        .all(|line| line.contains("action=demote")));
    let mut strict = by_name("ingens").unwrap();
    strict.set("util_threshold", "100%").unwrap();
    let strict = contrast(&lines, strict.as_mut()).unwrap();
    assert!(sum(&strict).1 < decides(&lines), "{strict:?}");
}

#[test]
fn a_journal_of_which_outcomes_are_not_reached_again_has_no_more_scans_for_it() {
    // The first promotion of the last scan found no memory, says the changed journal: then the others had to wait.
    let lines = journal_of("ingens", &[]);
    let scans = lines
        .iter()
        .filter(|l| matches!(l.event, Event::Scanned { .. }))
        .count();
    let is_promotion = |l: &Line| {
        matches!(
            l.event,
            Event::Outcome {
                action: mega_core::action::ActionKind::Promote,
                ..
            }
        )
    };
    let last = lines.iter().rposition(is_promotion).unwrap();
    let first = lines[..last]
        .iter()
        .rposition(|l| matches!(l.event, Event::Scanned { .. }))
        .unwrap();
    let first = first + lines[first..].iter().position(is_promotion).unwrap();
    let mut changed = lines[..=last].to_vec();
    if let Event::Outcome { outcome, .. } = &mut changed[first].event {
        *outcome = mega_core::action::Outcome::NoMemory;
    }
    let found = again(&changed);
    assert!(found.is_same() && found.scans <= scans, "{found:?}");
    assert!(first == last || !found.outcomes.missing.is_empty(), "{found:?}");
}
