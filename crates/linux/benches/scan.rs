//! What a look at one gigabyte costs, for each scanner, over the same memory in one run.
//!
//! ```text
//! cargo bench -p mega-linux --bench scan            # 2 GB of base pages, 2 GB of huge pages; needs root
//! MEGA_BENCH_GB=4 cargo bench -p mega-linux --bench scan
//! ```
//!
//! Reported times are per look at all the memory; the throughput is in gigabytes, so `time / GB` is the figure to
//! compare. `young` looks at page flags too: `hot` where all accessed bits are set (then it is free), `cold` where none
//! is. `kept` is what the manager reads of regions that are populated in part, and the split. `touch` is what clearing accessed bits costs the program: stores to pages, with the bits set and after they were cleared.

#![allow(missing_docs)] // what criterion_group! makes has none

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use mega_linux::scan::partly::Partly;
use mega_linux::scan::{choose, Preference, RegionScan, ScanRange, REGION_BYTES};

/// Aligned memory with every base page written.
struct Memory {
    range: ScanRange,
}

impl Memory {
    fn new(gigabytes: u64, huge: bool) -> Memory {
        let len = gigabytes << 30;
        // SAFETY: new anonymous memory, kept until the process ends.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (len + REGION_BYTES) as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let start = (base as u64).next_multiple_of(REGION_BYTES);
        let memory = Memory {
            range: ScanRange {
                start,
                end: start + len,
                young: false,
            },
        };
        memory.advise(if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        });
        memory.touch();
        memory
    }

    fn advise(&self, advice: i32) {
        let len = (self.range.end - self.range.start) as usize;
        // SAFETY: our own mapping.
        let done = unsafe { libc::madvise(self.range.start as *mut libc::c_void, len, advice) };
        assert_eq!(done, 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    fn touch(&self) {
        for page in (self.range.start..self.range.end).step_by(4096) {
            // SAFETY: our own mapping.
            unsafe { (page as *mut u64).write_volatile(1) };
        }
    }

    fn with_young(&self) -> ScanRange {
        ScanRange {
            young: true,
            ..self.range
        }
    }
}

fn scan(c: &mut Criterion) {
    let gigabytes = std::env::var("MEGA_BENCH_GB")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(2);
    let pid = std::process::id() as i32;
    let mut group = c.benchmark_group("scan");
    group
        .throughput(Throughput::Elements(gigabytes))
        .sample_size(20)
        .measurement_time(Duration::from_secs(3));
    for kind in ["base", "huge"] {
        let memory = Memory::new(gigabytes, kind == "huge");
        for name in ["ebpf", "pagemap_scan", "pagemap"] {
            let mut scanner = match choose(Preference::Only(name)) {
                Ok((scanner, _)) => scanner,
                Err(e) => {
                    eprintln!("skipped: {e}");
                    continue;
                }
            };
            let mut found: Vec<RegionScan> = Vec::new();
            let mut run = |label: &str, range: ScanRange| {
                group.bench_function(BenchmarkId::new(format!("{name}{label}"), kind), |b| {
                    b.iter(|| {
                        found.clear();
                        scanner
                            .scan(pid, &[range], &mut found)
                            .expect("a scan of our own memory");
                    });
                });
                // A filter may have left it out.
                assert!(
                    found.is_empty() || found.len() as u64 == gigabytes * 512,
                    "every region is found"
                );
            };
            run("", memory.range);
            if name == "ebpf" {
                memory.touch();
                run(" young hot", memory.with_young());
                // Clears the accessed bits and PG_young of all pages.
                memory.advise(libc::MADV_COLD);
                run(" young cold", memory.with_young());
                memory.touch();
            }
        }
        memory.advise(libc::MADV_DONTNEED);
    }
    group.finish();
}

/// What the program pays: a store to each page, in an order that no prefetcher follows, with accessed bits set and after they were cleared.
fn touch(c: &mut Criterion) {
    let gigabytes = 2;
    let pages = gigabytes << 18;
    let memory = Memory::new(gigabytes, false);
    let all = || {
        let began = Instant::now();
        for i in 0..pages {
            // An odd factor reaches each page once.
            let page = memory.range.start + (i * 0x9E37_79B1 % pages) * 4096;
            // SAFETY: our own mapping.
            unsafe { (page as *mut u64).write_volatile(1) };
        }
        began.elapsed()
    };
    let mut group = c.benchmark_group("touch");
    group.throughput(Throughput::Elements(pages)).sample_size(10);
    group.bench_function("accessed bits set", |b| b.iter_custom(|n| (0..n).map(|_| all()).sum()));
    group.bench_function("accessed bits cleared", |b| {
        b.iter_custom(|n| {
            let one = || {
                memory.advise(libc::MADV_COLD);
                all()
            };
            (0..n).map(|_| one()).sum()
        });
    });
}

/// Reading what regions keep that are populated in part, a quarter each: of base pages, and of huge pages of which the rest is unmapped. Then the
/// split that frees it, once for each.
fn kept(c: &mut Criterion) {
    let pid = std::process::id() as i32;
    let partly = Partly::new();
    let mut group = c.benchmark_group("kept");
    for kind in ["base", "huge"] {
        let memory = Memory::new(1, kind == "huge");
        let regions: Vec<u64> = (memory.range.start..memory.range.end)
            .step_by(REGION_BYTES as usize)
            .collect();
        let quarter = REGION_BYTES / 4;
        for region in &regions {
            let rest = (region + quarter) as *mut libc::c_void;
            // SAFETY: our own mapping, whose content nobody relies on.
            let done = unsafe { libc::madvise(rest, (3 * quarter) as usize, libc::MADV_DONTNEED) };
            assert_eq!(done, 0);
        }
        group.throughput(Throughput::Elements(regions.len() as u64));
        group.bench_function(BenchmarkId::new("read", kind), |b| {
            b.iter(|| partly.read(pid, &regions).expect("our own memory"));
        });
        let began = Instant::now();
        for region in &regions {
            // SAFETY: our own mapping; the advice leaves its content alone.
            let done = unsafe { libc::madvise(*region as *mut libc::c_void, 4096, libc::MADV_COLD) };
            assert_eq!(done, 0);
        }
        let took = began.elapsed() / regions.len() as u32;
        eprintln!("kept/split/{kind}: {took:?} a region, once");
        memory.advise(libc::MADV_DONTNEED);
    }
    group.finish();
}

criterion_group!(benches, touch, scan, kept);
criterion_main!(benches);
