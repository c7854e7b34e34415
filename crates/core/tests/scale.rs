//! What managing costs as it manages more, and that it can be stopped while it is busy.

mod toy;

use std::time::{Duration, Instant};

use mega_core::action::{ActionKind, Expect};
use mega_core::budget::Budget;
use mega_core::control::Settings;
use mega_core::journal::Event;
use mega_core::observe::ProcessId;
use mega_core::units::{Blocks, Bytes, Share};
use toy::*;

fn promote_all() -> Wish {
    Wish(|o| (!o.huge).then_some((ActionKind::Promote, o.mapped.0, Expect::Anything)))
}

#[test]
fn however_much_a_scan_costs_the_next_one_is_at_most_twelve_intervals_away() {
    let mut toy = Toy::new(400 * SECOND).with(A, [(1, Place::base(512, 0))]);
    toy.scan_cpu = 20 * SECOND;
    toy.run(&mut promote_all(), Settings::default());
    let gaps: Vec<Duration> = toy.scans.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(
        gaps.len() >= 5 && gaps.iter().all(|gap| *gap <= 60 * SECOND),
        "{gaps:?}"
    );
}

#[test]
fn a_stop_that_comes_during_a_look_ends_it_with_nothing_decided_or_done() {
    let mut toy = Toy::new(SECOND).with(A, [(1, Place::base(512, 0))]);
    toy.scan_cpu = 20 * SECOND;
    let run = toy.run(&mut promote_all(), Settings::default());
    assert!(toy.acts.is_empty() && toy.ages.is_empty());
    assert!(!run.has(|event| matches!(event, Event::Scan { .. } | Event::Scanned { .. } | Event::Decide { .. })));
    assert!(run.has(|event| matches!(event, Event::Stop { .. })));
}

/// Time of one scan and all actions on this many processes, where scans and actions themselves cost nothing.
fn time_of(processes: u32) -> Duration {
    let mut toy = Toy::new(9 * SECOND);
    toy.world.machine.free_blocks = Blocks(1 << 30);
    toy.world.machine.available_bytes = Bytes(1 << 50);
    toy.world.machine.total_bytes = Bytes(1 << 50);
    toy.scan_cpu = Duration::ZERO;
    for pid in 1..=processes {
        let id = ProcessId { pid, started: 1 };
        toy.world
            .add(id, (0..8).map(|i| (i, Place::base(512, 0).takes(Duration::ZERO))));
    }
    let settings = Settings {
        budget: Budget {
            stall: Share::FULL,
            cpu: Share::FULL,
            ..Budget::default()
        },
        ..Settings::default()
    };
    let began = Instant::now();
    let run = toy.run(&mut promote_all(), settings);
    let took = began.elapsed();
    assert_eq!(run.status.promoted, u64::from(processes) * 8);
    took
}

#[test]
fn bookkeeping_grows_no_faster_than_what_is_managed() {
    time_of(500);
    let (few, many) = (time_of(1_000), time_of(8_000));
    // Linear: eight times, and something for caches. Quadratic: sixty-four times.
    assert!(many < few * 24, "{few:?} for 1,000 processes, {many:?} for 8,000");
}
