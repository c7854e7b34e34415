//! The policy `auto` in the loop: how soon it looks, how soon all is huge, and what it leaves alone.

mod toy;

use std::time::Duration;

use mega_core::action::{ActionKind, Outcome};
use mega_core::budget::Budget;
use mega_core::control::Settings;
use mega_core::observe::groups::{MemoryGroup, MemoryGroups};
use mega_core::policy::{by_name, Policy};
use mega_core::replay::{policy_of, replay};
use mega_core::units::{Blocks, Bytes};
use toy::*;

fn auto() -> Box<dyn Policy> {
    by_name("auto").unwrap()
}

fn full_journal() -> Settings {
    Settings {
        full_journal: true,
        ..Settings::default()
    }
}

/// The seconds between one scan and the next.
fn gaps(toy: &Toy) -> Vec<f64> {
    toy.scans
        .windows(2)
        .map(|two| two[1].since(two[0]).as_secs_f64())
        .collect()
}

#[test]
fn it_looks_often_while_a_program_grows_and_every_interval_when_nothing_happens() {
    let mut toy = Toy::new(60 * SECOND).with(A, [(0, Place::base(10, 0))]);
    for step in 0..40u64 {
        // A hundred sparse regions in ten seconds from 20 s on.
        let from = 20 * SECOND + 250 * MS * step as u32;
        toy.change(from, move |world| {
            world.add(
                A,
                [
                    (2 * step + 10, Place::base(400, 0)),
                    (2 * step + 1000, Place::base(400, 0)),
                ],
            )
        });
    }
    toy.run(auto().as_mut(), Settings::default());
    let between = |from: u64, to: u64| {
        let scans = toy
            .scans
            .iter()
            .filter(|scan| **scan >= at(SECOND * from as u32) && **scan < at(SECOND * to as u32));
        scans.count()
    };
    assert!((6..=12).contains(&between(0, 6)), "it is new: {:?}", gaps(&toy));
    assert!(between(6, 20) <= 3, "{:?}", gaps(&toy));
    assert!((22..=40).contains(&between(20, 32)), "{:?}", gaps(&toy));
    assert!(between(40, 60) <= 5, "{:?}", gaps(&toy));
}

#[test]
fn eight_gigabytes_are_huge_within_ten_seconds_where_it_is_not_felt_and_within_forty_where_it_is() {
    for (is_felt, most) in [(false, 10), (true, 40)] {
        let mut place = Place::base(512, 512).takes(430 * US);
        place.after.stall = (!is_felt).then_some(430 * US / 16);
        let places = || (0..4096).map(|region| (region, place.clone()));
        let mut toy = Toy::new(60 * SECOND).with(A, places());
        toy.world.machine.free_blocks = Blocks(8000);
        let run = toy.run(auto().as_mut(), Settings::default());
        assert_eq!(run.status.promoted, 4096);
        let last = run.outcomes().last().unwrap().0;
        assert!(last < at(most * SECOND), "felt: {is_felt}: {last}");
        let budget = Duration::from_nanos(last.0).mul_f64(0.05) + 51 * MS;
        assert!(run.status.stall <= budget, "{:?} of {budget:?}", run.status.stall);
        assert!(toy.ages.is_empty(), "no accessed bit was cleared");
    }
}

#[test]
fn near_a_groups_limit_only_what_adds_no_memory_is_promoted() {
    for (room, expected) in [(64, 2), (63, 1)] {
        let places = [(1, Place::base(512, 0)), (3, Place::base(500, 0))];
        let mut toy = Toy::new(4 * SECOND).with(A, places);
        let mut groups = MemoryGroups::default();
        let place = groups.add(MemoryGroup {
            id: 1,
            parent: None,
            room: Some(Bytes::mib(room)),
            pressure: None,
        });
        groups.assign(A, place);
        toy.world.groups = groups;
        let run = toy.run(auto().as_mut(), Settings::default());
        assert_eq!(run.status.promoted, expected, "{room} MB");
        assert_eq!(run.of(A, 1), [Outcome::Done]);
    }
}

#[test]
fn what_it_decided_on_a_program_that_grows_and_shrinks_is_decided_again() {
    let mut toy = Toy::new(30 * SECOND).with(A, (0..20).map(|region| (region, Place::base(512, 100))));
    toy.world.machine.free_blocks = Blocks(60);
    for step in 1..20u64 {
        toy.change(300 * MS * step as u32, move |world| {
            world.add(
                A,
                (20 * step..20 * step + 20).map(|region| (region, Place::base(480 + step as u32, 7))),
            );
        });
    }
    toy.change(8 * SECOND, |world| world.machine.free_blocks = Blocks(5000));
    toy.change(15 * SECOND, |world| {
        world.add(B, (0..50).map(|region| (region, Place::huge(300))))
    });
    let run = toy.run(auto().as_mut(), full_journal());
    assert!(
        run.status.promoted > 300 && run.status.demoted == 50,
        "{:?}",
        run.status
    );
    assert!(!toy.ages.is_empty(), "blocks were short");
    let mut again = policy_of(&run.lines[0].event).unwrap().unwrap();
    let replayed = replay(&run.lines, again.as_mut()).unwrap();
    assert!(replayed.is_same(), "{replayed:?}");
    assert!(replayed.outcomes.is_same(), "{:?}", replayed.outcomes);
}

#[test]
fn without_a_stall_budget_nothing_waits() {
    let mut policy = auto();
    policy.set("for", "throughput").unwrap();
    let budget = Budget {
        stall: policy.stall_budget().unwrap(),
        ..Budget::default()
    };
    let mut toy = Toy::new(20 * SECOND).with(A, (0..2000).map(|region| (region, Place::base(512, 512))));
    let settings = Settings {
        budget,
        ..Settings::default()
    };
    let run = toy.run(policy.as_mut(), settings);
    let outcomes = run.outcomes();
    let last = outcomes.last().unwrap();
    assert!(last.0 < at(2 * SECOND) && last.3 == ActionKind::Promote, "{}", last.0);
}
