//! When is a huge page with zero-filled base pages worth splitting? Measures, by share of zero-filled pages, what the split gives
//! back, what it takes, how much slower random access to the rest becomes, and what filling the pages again costs. The default of `zdem`
//! and of `trim`'s threshold comes from here (docs/waste.md).
//!
//! `cargo bench -p mega --bench waste -- [--mib 2048] [--rounds 3]`

mod bench;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bench::{median, needs, option, show};
use mega_core::action::ActionKind;
use mega_core::observe::Region;
use mega_lab::memory::{rss_bytes, Mapping};
use mega_linux::host::actuate::act;
use mega_linux::proc::ProcRoot;
use mega_linux::process::Process;

const PAGES: usize = 512;

fn main() {
    let (mib, rounds) = (option("mib", 2 << 10) as usize, option("rounds", 3));
    if !needs(mib as u64 * 2 + 2048) {
        return;
    }
    mega_lab::memory::pin_to_cpu(bench::PROGRAM_CPU).unwrap();
    let regions = mib / 2;
    show("zero-filled | given back per region | split takes | access: huge, split | slower by | refill per page");
    for zero in [0, 64, 128, 192, 256, 320, 384, 448, 502] {
        let mut rows = Vec::new();
        for _ in 0..rounds {
            rows.push(measure(regions, zero));
        }
        let m = |f: fn(&Row) -> f64| median(&rows.iter().map(f).collect::<Vec<_>>());
        show(&format!(
            "{zero:3} of 512  | {:7.0} KB          | {:6.0} us   | {:5.1} ns, {:5.1} ns  | {:.2}      | {:.0} ns",
            m(|r| r.back_kb),
            m(|r| r.split_us),
            m(|r| r.huge_ns),
            m(|r| r.split_ns),
            m(|r| r.split_ns / r.huge_ns),
            m(|r| r.refill_ns),
        ));
    }
}

struct Row {
    back_kb: f64,
    split_us: f64,
    huge_ns: f64,
    split_ns: f64,
    refill_ns: f64,
}

fn measure(regions: usize, zero: usize) -> Row {
    let bytes = regions << 21;
    mega_lab::prepare::pool::prefault(bytes as u64).unwrap();
    let mut memory = Mapping::new(bytes).unwrap();
    memory.advise(0..bytes, libc::MADV_HUGEPAGE).unwrap();
    // Every `step`th page stays zero, so that what is used is spread over the whole region.
    let used: Vec<usize> = (0..PAGES)
        .filter(|page| (page * zero) / PAGES == ((page + 1) * zero) / PAGES)
        .collect();
    for region in 0..regions {
        memory.page_words(region * PAGES)[0].load(Relaxed);
        for &page in &used {
            memory.page_words(region * PAGES + page)[7].store(1, Relaxed);
        }
    }
    // No advice from here on, or khugepaged would promote again what is split.
    memory.advise(0..bytes, libc::MADV_NOHUGEPAGE).unwrap();
    let huge_ns = access(&memory, regions, &used);
    let before = rss_bytes();
    let ourselves = Process::open(&ProcRoot::default(), std::process::id()).unwrap();
    let began = Instant::now();
    for region in 0..regions {
        let call = act(
            &ourselves,
            ActionKind::Demote,
            Region::at((memory.start() + (region << 21)) as u64),
        );
        assert_eq!(call.error, None);
    }
    let split_us = began.elapsed().as_secs_f64() * 1e6 / regions as f64;
    let back_kb = before.saturating_sub(rss_bytes()) as f64 / 1024.0 / regions as f64;
    let split_ns = access(&memory, regions, &used);
    let began = Instant::now();
    let unused: Vec<usize> = (0..PAGES).filter(|page| !used.contains(page)).collect();
    for region in 0..regions {
        for &page in &unused {
            memory.page_words(region * PAGES + page)[7].store(1, Relaxed);
        }
    }
    let refill_ns = began.elapsed().as_secs_f64() * 1e9 / (regions * unused.len()).max(1) as f64;
    Row {
        back_kb,
        split_us,
        huge_ns,
        split_ns,
        refill_ns,
    }
}

/// Random reads of used pages: nanoseconds each.
fn access(memory: &Mapping, regions: usize, used: &[usize]) -> f64 {
    let (mut state, mut sum) = (1u64, 0u64);
    let count = 8_000_000;
    let began = Instant::now();
    for _ in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let region = ((state >> 40) as usize) % regions;
        let page = used[((state >> 20) as usize & 0xf_ffff) % used.len()];
        sum = sum.wrapping_add(memory.page_words(region * PAGES + page)[7].load(Relaxed));
    }
    std::hint::black_box(sum);
    began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}
