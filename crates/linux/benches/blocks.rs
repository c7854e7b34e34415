//! What reading physical memory costs per gigabyte.
//!
//! ```text
//! cargo bench -p mega-linux --bench blocks       # needs root
//! ```
//!
//! The throughput is in gigabytes of blocks that were read, so `time / GB` is the figure to compare.

#![allow(missing_docs)] // what criterion_group! makes has none

use std::time::Duration;

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use mega_linux::blocks::{read, Sampling};
use mega_linux::proc::ProcRoot;

fn blocks(c: &mut Criterion) {
    let root = ProcRoot::default();
    let mut group = c.benchmark_group("blocks");
    group.sample_size(10).measurement_time(Duration::from_secs(8));
    for (name, sampling) in [
        ("all", Sampling::Every(1.try_into().expect("not zero"))),
        ("every 32nd", Sampling::Every(32.try_into().expect("not zero"))),
    ] {
        let seen = match read(&root, sampling) {
            Ok(seen) => seen,
            Err(e) => {
                eprintln!("skipped: {e}");
                return;
            }
        };
        let gigabytes = (seen.blocks.len() as u64).div_ceil(512);
        group.throughput(Throughput::Elements(gigabytes));
        group.bench_function(BenchmarkId::new(name, format!("{gigabytes} GB")), |b| {
            b.iter(|| read(&root, sampling).expect("it was read before"));
        });
    }
    group.finish();
}

criterion_group!(benches, blocks);
criterion_main!(benches);
