//! Accesses per second through page tables, with and without the TLB. Goals: 20 M with it, 100 M without.

// What criterion's macros define.
#![allow(missing_docs)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use mega_core::fault::by_name;
use mega_sim::machine::{Config, Machine};
use mega_sim::tlb::Preset;
use mega_sim::unit::SpaceId;

const ACCESSES: u64 = 1 << 20;

/// A machine with one area that is all touched.
fn machine(policy: &str, bytes: u64, tlb: Option<Preset>) -> (Machine, SpaceId, u64) {
    let config = Config {
        tlb,
        ..Config::of_bytes(bytes * 3 / 2)
    };
    // Both exist: they are named in this file.
    let mut machine = Machine::new(&config, by_name(policy).expect("a policy"));
    let id = machine.spawn("bench").expect("a process");
    let area = machine.mmap(id, bytes, true).expect("room");
    for page in 0..bytes / 4096 {
        machine.access(id, area + page * 4096, true).expect("memory");
    }
    (machine, id, area)
}

fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn accesses(c: &mut Criterion) {
    let mut group = c.benchmark_group("accesses");
    group.throughput(Throughput::Elements(ACCESSES));
    group.sample_size(10);
    let preset = mega_sim::tlb::PRESETS.first().copied();
    for (tlb_name, tlb) in [("no tlb", None), ("tlb", preset)] {
        for (policy, bytes) in [
            ("base", 1u64 << 30),
            ("linux", 1 << 30),
            ("base", 8 << 30),
            ("linux", 8 << 30),
        ] {
            let (mut machine, id, area) = machine(policy, bytes, tlb);
            let gb = bytes >> 30;
            group.bench_function(format!("{tlb_name}, {policy}, {gb} GB at random"), |b| {
                let mut state = 88_172_645_463_325_252;
                b.iter(|| {
                    for _ in 0..ACCESSES {
                        let at = (draw(&mut state) & (bytes - 1)) & !7;
                        let _ = machine.access(id, area + at, at & 64 == 0);
                    }
                });
            });
            group.bench_function(format!("{tlb_name}, {policy}, {gb} GB page by page"), |b| {
                let mut at = 0;
                b.iter(|| {
                    for _ in 0..ACCESSES {
                        at = (at + 4096) & (bytes - 1);
                        let _ = machine.access(id, area + at, false);
                    }
                });
            });
        }
    }
    group.finish();
}

fn faults(c: &mut Criterion) {
    let mut group = c.benchmark_group("faults");
    group.throughput(Throughput::Elements(1 << 16));
    group.sample_size(10);
    for policy in ["base", "lrbhps"] {
        group.bench_function(policy, |b| {
            b.iter(|| machine(policy, 256 << 20, None));
        });
    }
    group.finish();
}

criterion_group!(benches, accesses, faults);
criterion_main!(benches);
