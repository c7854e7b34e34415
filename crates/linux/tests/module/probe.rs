//! Allocations timed.

use std::time::Duration;

use mega_linux::module::uapi::{self, Probe};

use super::module;

/// Free memory, with what is on the processors' own lists.
fn free_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free: u64 = text
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let zones = mega_linux::proc::zoneinfo::read(&mega_linux::proc::ProcRoot::default()).unwrap();
    free + zones.iter().filter_map(|zone| zone.percpu_pages).sum::<u64>() * 4
}

fn request(order: u32, count: u32) -> Probe {
    Probe {
        flags: uapi::PROBE_RECLAIM | uapi::PROBE_MOVABLE | uapi::PROBE_ZERO,
        order,
        count,
        budget_ns: Duration::from_secs(20).as_nanos() as u64,
        node: -1,
        ..Probe::default()
    }
}

#[test]
fn chunks_are_allocated_timed_and_all_freed_again() {
    let Some(module) = module() else { return };
    let before = free_kb();
    let mut asked = request(9, 20);
    let times = module.probe(&mut asked).unwrap();
    assert_eq!((times.len(), asked.done, asked.ended), (20, 20, 0), "{asked:?}");
    assert!(times.iter().all(|&ns| ns > 0));
    let sum: u64 = times.iter().map(|&ns| u64::from(ns)).sum();
    assert!(sum <= asked.took_ns && asked.took_ns < 20_000_000_000);
    assert!(
        free_kb() + 8 * 1024 > before,
        "{before} kB free before, {} now",
        free_kb()
    );
}

#[test]
fn it_ends_before_others_lack_memory_and_in_its_time() {
    let Some(module) = module() else { return };
    // A kernel that watches itself needs most of a minute for that.
    let mut asked = Probe {
        budget_ns: Duration::from_secs(60).as_nanos() as u64,
        ..request(9, 1 << 20)
    };
    let times = module.probe(&mut asked).unwrap();
    assert!(asked.ended == 1 || asked.ended == 2, "{asked:?}");
    let median = {
        let mut sorted = times.clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    eprintln!(
        "MODULE {} chunks of 2 MB, median {median} ns; ended {}",
        times.len(),
        asked.ended
    );
    let mut asked = Probe {
        budget_ns: 20_000_000,
        floor_bytes: 1 << 20,
        ..request(0, 1 << 22)
    };
    let times = module.probe(&mut asked).unwrap();
    assert!(asked.ended == 3 || asked.ended == 2, "{asked:?}");
    assert!(asked.took_ns < 2_000_000_000 && !times.is_empty());
    let mut asked = Probe {
        floor_bytes: u64::MAX,
        ..request(9, 8)
    };
    assert!(module.probe(&mut asked).unwrap().is_empty());
    assert_eq!(asked.ended, 2);
}
