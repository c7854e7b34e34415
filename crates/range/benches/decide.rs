//! What a helper's decisions cost: following mappings, and deciding about ranges that were looked at, that fill and that
//! are settled. `cargo bench -p mega-range --bench decide`

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::Criterion;
use mega_range::orders::{Order, Outcome};
use mega_range::span::{Span, REGION};
use mega_range::table::Table;
use support::World;

fn mappings(count: u64) -> Vec<Span> {
    let spans = (0..count).map(|i| Span::new(i * 100 * REGION, (i * 100 + 50) * REGION));
    spans.collect()
}

fn follow(bench: &mut Criterion) {
    for count in [10, 500] {
        let mappings = mappings(count);
        let mut table = Table::new();
        bench.bench_function(&format!("follow {count} mappings"), |bench| {
            bench.iter(|| table.follow(black_box(&mappings)));
        });
    }
}

fn decide(bench: &mut Criterion) {
    let mut world = World::default();
    for mapping in mappings(100) {
        world.kernel.map(mapping);
    }
    bench.bench_function("decide: 100 ranges, nothing happens", |bench| {
        bench.iter(|| world.tick(1_000_000));
    });
    let mut world = World::default();
    world.kernel.map(Span::new(0, 100_000 * REGION));
    let mut at = 0;
    bench.bench_function("decide: a region more was filled", |bench| {
        bench.iter(|| {
            world.kernel.touch(at);
            at += REGION;
            world.tick(1_000_000)
        });
    });
}

fn done(bench: &mut Criterion) {
    let mut world = World::default();
    for mapping in mappings(500) {
        world.kernel.map(mapping);
    }
    world.tick(1);
    let order = Order::Populate(Span::new(40_010 * REGION, 40_025 * REGION));
    bench.bench_function("an order's outcome among 500 ranges", |bench| {
        bench.iter(|| world.auto.done(order, Outcome::Done, 1, 1));
    });
}

fn remap(bench: &mut Criterion) {
    let mut world = World::default();
    let span = Span::new(0, 64 * REGION);
    bench.bench_function("64 regions mapped, filled, paused and unmapped", |bench| {
        bench.iter(|| {
            world.kernel.map(span);
            world.fill(span, 512);
            world.ticks(300);
            let huge = world.kernel.huge();
            world.kernel.unmap(span);
            huge
        });
    });
}

fn main() {
    let mut bench = Criterion::default().configure_from_args();
    follow(&mut bench);
    decide(&mut bench);
    done(&mut bench);
    remap(&mut bench);
    bench.final_summary();
}
