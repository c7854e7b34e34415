//! How fast the generators are: they must not limit the simulator, which aims at 100 million accesses a second.

#![allow(missing_docs)] // what criterion_group! makes has none

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use mega_sim::trace::{Recorder, Replay, ReplayOptions};
use mega_sim::workload::{
    run_to_end, CountingMemory, GraphOptions, Gups, GupsOptions, Kv, KvOptions, PageRank, Program,
};
use mega_sim::workload::{Stride, StrideOptions};
use mega_trace::{Header, Reader};

/// Runs a program to its end; returns its touches.
fn touches(mut program: impl Program<CountingMemory>) -> u64 {
    let mut memory = CountingMemory::with_touch_ns(1);
    run_to_end(&mut program, &mut memory, |m, ns| m.wait_until(ns)).expect("its options make sense");
    memory.touches()
}

fn bench<P: Program<CountingMemory>>(c: &mut Criterion, name: &str, new: impl Fn() -> P) {
    let mut group = c.benchmark_group("workload");
    group.sample_size(10).throughput(Throughput::Elements(touches(new())));
    group.bench_function(name, |b| b.iter_batched(&new, touches, BatchSize::PerIteration));
    group.finish();
}

fn workloads(c: &mut Criterion) {
    let gups = GupsOptions {
        mib: 256,
        updates: Some(20_000_000),
        ..GupsOptions::default()
    };
    bench(c, "gups", || Gups::new(gups).expect("options"));
    let stride = StrideOptions {
        mib: 256,
        times: 1,
        shifts: Some(2048),
        ..StrideOptions::default()
    };
    bench(c, "stride", || Stride::new(stride).expect("options"));
    let kv = KvOptions {
        mib: 64,
        time_ns: 20_000_000,
        ..KvOptions::default()
    };
    bench(c, "kv", || Kv::new(kv).expect("options"));
    let graph = GraphOptions {
        scale: 16,
        iterations: 10,
        ..GraphOptions::default()
    };
    bench(c, "graph", || PageRank::new(graph).expect("options"));
}

fn traces(c: &mut Criterion) {
    let options = GupsOptions {
        mib: 64,
        updates: Some(2_000_000),
        ..GupsOptions::default()
    };
    let mut recorder =
        Recorder::new(CountingMemory::new(), Vec::new(), &Header::default()).expect("memory can be written");
    let mut gups = Gups::new(options).expect("options");
    run_to_end(&mut gups, &mut recorder, |_, _| {}).expect("it runs");
    let (memory, file) = recorder.finish().expect("memory can be written");
    let mut group = c.benchmark_group("trace");
    group.sample_size(10).throughput(Throughput::Elements(memory.touches()));
    group.bench_function("replay gups", |b| {
        b.iter(|| {
            let reader = Reader::new(&file[..]).expect("it was just written");
            touches(Replay::new(reader, ReplayOptions::default()))
        });
    });
    group.finish();
}

criterion_group!(benches, workloads, traces);
criterion_main!(benches);
