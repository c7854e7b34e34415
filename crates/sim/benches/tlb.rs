//! What one simulated translation takes: hits in the first level, in the second, and walks, on an Intel and an AMD processor.
//!
//! ```text
//! cargo bench -p mega-sim --bench tlb
//! ```
//!
//! Each figure is for 1024 accesses; the throughput counts accesses.

#![allow(missing_docs)] // what criterion_group! makes has none

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use mega_sim::tlb::{find, Access, PageSize, Tlb};

const BATCH: u64 = 1024;

/// The next of a sequence of places that looks random: Knuth's MMIX generator.
fn next_place(place: u64) -> u64 {
    place
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

fn accesses(c: &mut Criterion) {
    let mut group = c.benchmark_group("tlb");
    group.throughput(Throughput::Elements(BATCH));
    // Bytes touched at random: within the first level, within the second, and beyond both by far.
    let cases = [
        ("l1-hit", 48 << 12, PageSize::Base),
        ("l2-hit", 4 << 20, PageSize::Base),
        ("walk-1G", 1 << 30, PageSize::Base),
        ("walk-16G", 16 << 30, PageSize::Base),
        ("huge-1G", 1 << 30, PageSize::Huge),
        ("huge-16G", 16 << 30, PageSize::Huge),
    ];
    for name in ["sapphire-rapids", "development", "skylake-sp", "zen2", "zen4"] {
        let preset = find(name).expect("a preset");
        for (case, bytes, size) in cases {
            let mut tlb = Tlb::new(preset);
            let mut place = 1;
            let address = |place: &mut u64| {
                *place = next_place(*place);
                // 48 pages are no power of two: multiply instead of masking.
                if bytes < 1 << 20 {
                    (*place >> 40) % 48 * 4096
                } else {
                    (*place >> 20) & (bytes - 1) & !63
                }
            };
            let mut batch = |n: u64| {
                (0..n)
                    .map(|_| u64::from(tlb.access(1, address(&mut place), size)))
                    .sum::<u64>()
            };
            batch(4_000_000);
            group.bench_function(BenchmarkId::new(name, case), |b| b.iter(|| black_box(batch(BATCH))));
            let mut accesses = [Access::default(); BATCH as usize];
            group.bench_function(BenchmarkId::new(format!("{name}, in batches"), case), |b| {
                b.iter(|| {
                    for access in &mut accesses {
                        *access = Access::new(address(&mut place), size);
                    }
                    black_box(tlb.access_all(1, &accesses))
                })
            });
        }
    }
    // One page after another, as a program that walks through its memory.
    let mut tlb = Tlb::new(find("sapphire-rapids").expect("a preset"));
    let mut address = 0u64;
    group.bench_function("sequential-4G", |b| {
        b.iter(|| {
            let mut cycles = 0u64;
            for _ in 0..BATCH {
                address = (address + 4096) & ((4 << 30) - 1);
                cycles += u64::from(tlb.access(1, address, PageSize::Base));
            }
            black_box(cycles)
        })
    });
    group.bench_function("flush-space", |b| {
        b.iter(|| {
            for _ in 0..BATCH {
                black_box(&mut tlb).flush_space(1);
            }
        })
    });
    group.finish();
}

criterion_group!(benches, accesses);
criterion_main!(benches);
