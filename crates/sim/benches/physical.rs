//! What allocating, freeing and compacting cost.

#![allow(missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use mega_core::compaction::block::Hpfn;
use mega_core::units::Share;
use mega_sim::physical::{Ask, Compact, DownTo, Fragmenter, Layout, Mover, Physical};
use mega_sim::unit::{Frame, Owner, BLOCK_ORDER};

const GIB: u64 = 1 << 30;
const ASK: Ask = Ask::MOVABLE.down_to(DownTo::Min);

struct Willing;

impl Mover for Willing {
    fn moved(&mut self, _: Owner, _: Frame, _: Frame) -> bool {
        true
    }
}

fn machine(bytes: u64) -> Physical {
    Physical::new(&Layout::of_bytes(bytes), 1)
}

fn shuffled(mut frames: Vec<Frame>) -> Vec<Frame> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..frames.len()).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        frames.swap(i, (x % (i as u64 + 1)) as usize);
    }
    frames
}

fn take(memory: &mut Physical, order: u8, n: usize) -> Vec<Frame> {
    (0..n)
        .map_while(|_| memory.allocate(order, ASK, Owner::Ballast))
        .collect()
}

/// Times `measured` on something made anew each time.
fn timed<T>(iterations: u64, mut made: impl FnMut() -> T, mut measured: impl FnMut(&mut T)) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..iterations {
        let mut input = made();
        let start = Instant::now();
        measured(&mut input);
        total += start.elapsed();
    }
    total
}

fn pages(c: &mut Criterion) {
    let mut group = c.benchmark_group("pages");
    const N: usize = 1 << 20;
    group.throughput(Throughput::Elements(1)).sample_size(30);
    let mut memory = machine(16 * GIB);
    group.bench_function("allocate and free one page at once", |b| {
        b.iter(|| {
            let frame = memory.allocate(0, ASK, Owner::Ballast);
            memory.free(black_box(frame.unwrap()), 0);
        });
    });
    group.bench_function("allocate and free one block at once", |b| {
        b.iter(|| {
            let frame = memory.allocate(BLOCK_ORDER, ASK, Owner::Ballast);
            memory.free(black_box(frame.unwrap()), BLOCK_ORDER);
        });
    });
    group.throughput(Throughput::Elements(N as u64)).sample_size(10);
    // The first round touches the host's memory; what is timed is the second.
    let warm = || {
        let mut memory = machine(16 * GIB);
        let frames = take(&mut memory, 0, N);
        frames.into_iter().for_each(|frame| memory.free(frame, 0));
        memory.drain();
        memory
    };
    group.bench_function("allocate 4 GB page by page", |b| {
        b.iter_custom(|n| timed(n, warm, |memory| drop(black_box(take(memory, 0, N)))));
    });
    let full = || {
        let mut memory = machine(16 * GIB);
        let frames = take(&mut memory, 0, N);
        (memory, frames)
    };
    let free = |(memory, frames): &mut (Physical, Vec<Frame>)| {
        for &frame in frames.iter() {
            memory.free(frame, 0);
        }
    };
    group.bench_function("free 4 GB in order", |b| b.iter_custom(|n| timed(n, full, free)));
    let mixed = || {
        let (memory, frames) = full();
        (memory, shuffled(frames))
    };
    group.bench_function("free 4 GB in random order", |b| {
        b.iter_custom(|n| timed(n, mixed, free))
    });
    group.bench_function("owner of random pages", |b| {
        b.iter_custom(|n| {
            timed(n, mixed, |(memory, frames)| {
                for &frame in frames.iter() {
                    black_box(memory.owner(frame));
                }
            })
        });
    });
    group.finish();
}

fn compaction(c: &mut Criterion) {
    let mut group = c.benchmark_group("compaction");
    group.sample_size(10);
    let fragmented = |bytes| {
        move || {
            let mut memory = machine(bytes);
            memory.fragment(&Fragmenter::study(bytes));
            memory
        }
    };
    group.bench_function("the study's 32 GB as a whole", |b| {
        b.iter_custom(|n| {
            timed(n, fragmented(32 * GIB), |memory| {
                black_box(memory.compact(Compact::Whole, &mut Willing));
            })
        });
    });
    group.throughput(Throughput::Elements(1000));
    group.bench_function("1000 blocks one by one directly", |b| {
        b.iter_custom(|n| {
            timed(n, fragmented(32 * GIB), |memory| {
                for _ in 0..1000 {
                    black_box(memory.compact(Compact::Direct { order: BLOCK_ORDER }, &mut Willing));
                    black_box(memory.allocate(BLOCK_ORDER, ASK, Owner::Ballast));
                }
            })
        });
    });
    group.bench_function("1000 chosen blocks", |b| {
        b.iter_custom(|n| {
            timed(n, fragmented(32 * GIB), |memory| {
                for block in 0..1000 {
                    black_box(memory.empty_block(Hpfn(4000 + block), &mut Willing));
                }
            })
        });
    });
    group.finish();
}

fn large(c: &mut Criterion) {
    let mut group = c.benchmark_group("large");
    group.sample_size(10);
    group.bench_function("a machine of 1 TB", |b| b.iter(|| black_box(machine(1 << 40))));
    let mut memory = machine(256 * GIB);
    memory.fragment(&Fragmenter::ballast(Share::percent(90), Share::percent(5), 1));
    group.bench_function("the blocks of 256 GB", |b| b.iter(|| black_box(memory.blocks())));
    group.finish();
}

criterion_group!(benches, pages, compaction, large);
criterion_main!(benches);
