//! What deciding costs per region, by policy and number of regions, and what a journal line costs.
//! `cargo bench -p mega-core --bench decide`

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use mega_core::action::{ActionKind, Outcome};
use mega_core::journal::{see, seen, Event, Line};
use mega_core::observe::{Can, Machine, Observation, ProcessId, ProcessView, Region, Snapshot};
use mega_core::policy::{by_name, POLICIES};
use mega_core::units::{BasePages, Blocks, Bytes, Share, Time};

/// One process of which every third region is huge, some of those wasteful, and the others are mapped and used to various degrees.
fn snapshot(regions: u64) -> Snapshot {
    let observation = |i: u64| {
        let huge = i % 3 == 0;
        let mapped = if huge { 512 } else { (i * 37 % 513) as u32 };
        Observation {
            region: Region(0x3f80_0000 + i),
            mapped: BasePages(mapped),
            accessed: BasePages((i * 101 % 513) as u32).min(BasePages(mapped)),
            dirty: BasePages(0),
            zero: Some(BasePages(if huge { (i * 13 % 400) as u32 } else { 0 })),
            kept: BasePages(0),
            huge,
            shared: false,
            raced: false,
            aged: true,
            can: Can::ALL,
        }
    };
    Snapshot {
        at: Time(0),
        machine: Machine {
            available_bytes: Bytes(1 << 40),
            total_bytes: Bytes(2 << 40),
            free_blocks: Blocks(1 << 19),
            pressure: Some(Share::ZERO),
        },
        processes: vec![ProcessView {
            id: ProcessId { pid: 1, started: 1 },
            regions: (0..regions).map(observation).collect(),
        }],
    }
}

fn decide(c: &mut Criterion) {
    for regions in [4096, 524_288] {
        let mut group = c.benchmark_group(format!("decide/{regions}"));
        group.throughput(Throughput::Elements(regions)).sample_size(20);
        for (name, _) in POLICIES {
            let mut policy = by_name(name).expect("a listed policy");
            if *name == "khugepaged" {
                // Its own pace would be 4 regions per scan; here it looks at all of them.
                policy.set("pages_to_scan", "100000000").expect("within its range");
            }
            let mut seen = snapshot(regions);
            group.bench_function(*name, |b| {
                b.iter(|| {
                    seen.at = seen.at.after(Duration::from_secs(60));
                    black_box(policy.decide(black_box(&seen)))
                })
            });
        }
        group.finish();
    }
}

fn journal(c: &mut Criterion) {
    let outcome = Line {
        at: Time(12_345_678_901),
        event: Event::Outcome {
            pid: 4711,
            region: Region(0x3f80_0000),
            action: ActionKind::Promote,
            outcome: Outcome::Done,
            took_ns: 431_000,
            stall_ns: None,
            returned_pages: 0,
            cpu_ns: 93_000_000,
        },
    };
    let look = Line {
        at: Time(12_345_678_901),
        event: see(4711, 99, &snapshot(1).processes[0].regions[0], 1),
    };
    let mut group = c.benchmark_group("journal");
    for (name, line) in [("outcome", &outcome), ("see", &look)] {
        group.bench_function(format!("{name}/text"), |b| b.iter(|| black_box(line).to_text()));
        group.bench_function(format!("{name}/json"), |b| b.iter(|| black_box(line).to_json()));
        let (text, json) = (line.to_text(), line.to_json());
        group.bench_function(format!("{name}/read-text"), |b| {
            b.iter(|| Line::parse(black_box(&text)))
        });
        group.bench_function(format!("{name}/read-json"), |b| {
            b.iter(|| Line::parse(black_box(&json)))
        });
    }
    group.bench_function("see/observations", |b| b.iter(|| seen(black_box(&look.event))));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decide(&mut criterion);
    journal(&mut criterion);
    criterion.final_summary();
}
