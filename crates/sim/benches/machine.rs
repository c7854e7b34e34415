//! Accesses per second through page tables, with and without the TLB, one by one and as programs make them, in batches. Goals: 20 M with it,
//! 100 M without (docs/simulator.md, "Speed", has what came out).
//!
//! ```text
//! cargo bench -p mega-sim --bench machine -- 'accesses/sapphire-rapids'
//! ```

// What criterion's macros define.
#![allow(missing_docs)]

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use mega_core::fault::by_name;
use mega_sim::machine::{Config, Machine};
use mega_sim::tlb::{find, Preset};
use mega_sim::unit::SpaceId;
use mega_sim::workload::{Batch, Memory};

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
    machine.run_as(id);
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
    group.sample_size(20);
    for name in ["no tlb", "sapphire-rapids", "haswell", "zen2", "development"] {
        for (policy, bytes) in [
            ("base", 1u64 << 30),
            ("linux", 1 << 30),
            ("base", 8 << 30),
            ("linux", 8 << 30),
        ] {
            let (mut machine, id, area) = machine(policy, bytes, find(name).copied());
            let case = format!("{name}, {policy}, {} GB", bytes >> 30);
            let mut state = 88_172_645_463_325_252;
            let mut random = move || {
                let at = (draw(&mut state) & (bytes - 1)) & !7;
                (area + at, at & 64 == 0)
            };
            let mut next = 0;
            let mut in_order = move || {
                next = (next + 4096) & (bytes - 1);
                (area + next, false)
            };
            group.bench_function(format!("{case} at random, one by one"), |b| {
                b.iter(|| {
                    for _ in 0..ACCESSES {
                        let (at, write) = random();
                        let _ = machine.access(id, at, write);
                    }
                });
            });
            group.bench_function(format!("{case} at random, in batches"), |b| {
                b.iter(|| {
                    let mut batch = Batch::new(&mut machine);
                    for _ in 0..ACCESSES {
                        let (at, write) = random();
                        batch.touch(at, write);
                    }
                });
            });
            group.bench_function(format!("{case} page by page, one by one"), |b| {
                b.iter(|| {
                    for _ in 0..ACCESSES {
                        let (at, write) = in_order();
                        let _ = machine.access(id, at, write);
                    }
                });
            });
            group.bench_function(format!("{case} page by page, in batches"), |b| {
                b.iter(|| {
                    let mut batch = Batch::new(&mut machine);
                    for _ in 0..ACCESSES {
                        let (at, write) = in_order();
                        batch.touch(at, write);
                    }
                });
            });
            assert_eq!(machine.space(id).map(|space| space.counts.bad_accesses), Some(0));
            assert!(machine.now_ns() > 0);
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

/// What unmapping costs, pages mapped in order and scattered over memory: each page is a frame to be freed.
fn unmapping(c: &mut Criterion) {
    let mut group = c.benchmark_group("unmap");
    let bytes = 1u64 << 30;
    group.throughput(Throughput::Elements(bytes / 4096));
    group.sample_size(10);
    for (name, stride) in [("in order", 1u64), ("scattered", 0x9E37_79B1)] {
        group.bench_function(format!("1 GB of base pages, frames {name}"), |b| {
            b.iter_batched(
                || {
                    let mut machine = Machine::new(&Config::of_bytes(bytes * 8), by_name("base").expect("a policy"));
                    let id = machine.spawn("bench").expect("a process");
                    let area = machine.mmap(id, bytes, true).expect("room");
                    for page in 0..bytes / 4096 {
                        let page = page.wrapping_mul(stride) % (bytes / 4096);
                        machine.access(id, area + page * 4096, true).expect("memory");
                    }
                    machine.run_as(id);
                    (machine, area)
                },
                |(mut machine, area)| {
                    machine.unmap(area, bytes).expect("it is mapped");
                    machine
                },
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, accesses, faults, unmapping);
criterion_main!(benches);
