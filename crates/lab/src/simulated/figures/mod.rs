//! A simulated run as the lab's record: the figures of a live run under the same names, labels and units, so that reports and
//! comparisons know no difference.
//!
//! | figure | from |
//! | --- | --- |
//! | rates, times, latencies | what the program says, as its live twin computes it ([`programs`]) |
//! | memory, series, free blocks | samples; the last is the end of the run, with the programs' memory still there |
//! | page faults | those that take memory: the tracepoints of the live runs see no others |
//! | counters | the machine's, which has the kernel's names |
//! | the manager | its status at the end |
//! | TLB | the model's counts; a live run has none |
//!
//! A run's seconds are simulated ones. Nothing here reads a clock: the same outcome gives the same bytes.

mod programs;
mod record;

use std::collections::{BTreeMap, BTreeSet};

use mega_sim::scenario::{Outcome as SimOutcome, ProgramOutcome, Sample};
use mega_sim::workload::Latency;

use crate::measure::{counters, faults, manager, summary};
use crate::program::builtin::figures as merged;
use crate::result::{Better, Distribution, Metric, Noise, Outcome, Run, Series, Unit};
use crate::timing::latency::QUANTILES;

pub use programs::{is_metric_of, main_metrics};
pub use record::{condition, machine, program, record, variant, Parts};

/// Counters that the live runs do not keep: the machine's name, what people read.
const MORE_COUNTERS: &[(&str, &str)] = &[
    ("thp_collapse_alloc_failed", "collapses that found no block"),
    ("thp_split_pmd", "huge mappings split"),
    ("thp_deferred_split_page", "huge pages queued for splitting"),
    ("thp_underused_split_page", "underused huge pages split"),
    ("compact_daemon_wake", "runs of kcompactd"),
    ("reserved", "reservations made"),
    ("reserve_failed", "reservations that found no block"),
    ("reserve_promoted", "reservations mapped huge in place"),
    ("reserve_broken", "reservations broken"),
    ("zero_freed", "zero-filled pages freed"),
    ("cow", "pages copied on write"),
    ("allocstall", "allocations that waited for reclaim"),
    ("cache_dropped", "pages of page cache dropped"),
    ("pglazyfreed", "lazily freed pages dropped"),
    ("pgmajfault", "faults that read from swap"),
    ("pswpin", "pages read from swap"),
    ("pswpout", "pages written to swap"),
    ("oom_kill", "processes killed for want of memory"),
];

/// Everything that [`run_of`] may yield, once each; none of it a main one.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let count = |name: &str, label: &str| Metric::new(name, label, Unit::Count, Better::Neither);
    let time = |name: &str, label: &str| Metric::new(name, label, Unit::Ns, Better::Neither);
    let own = vec![
        Metric::new("swapped_bytes", "swapped out", Unit::Bytes, Better::Lower),
        Metric::new(
            "unusable_share",
            "free memory of no use for huge pages",
            Unit::Share,
            Better::Lower,
        ),
        Metric::new(
            "waited_ns",
            "time that programs waited for others' work",
            Unit::Ns,
            Better::Lower,
        ),
        count("bad_accesses", "accesses to what is not mapped"),
        Metric::new("giant_bytes", "in pages of 1 GB", Unit::Bytes, Better::Neither),
        time("reservations_cpu_ns", "processor time of work on reservations"),
        time("prezero_cpu_ns", "processor time of zeroing free memory"),
        time("shrinker_cpu_ns", "processor time of splitting underused huge pages"),
        time("background_cpu_ns", "processor time in the background, all"),
        count("tlb_accesses", "translations"),
        count("tlb_l1_misses", "translations not in the L1 TLB"),
        Metric::new("tlb_walks", "page walks", Unit::Count, Better::Lower),
        Metric::new("tlb_walk_share", "translations that walk", Unit::Share, Better::Lower),
        Metric::new("tlb_walk_cycles", "cycles of page walks", Unit::Count, Better::Lower),
        Metric::new(
            "tlb_walk_cycles_share",
            "time in page walks",
            Unit::Share,
            Better::Lower,
        ),
    ];
    let never = ["pss_bytes", "manager_rss_bytes"];
    let all = programs::metrics()
        .into_iter()
        .chain(summary::metrics())
        .chain(faults::metrics())
        .chain(manager::metrics())
        .chain(counters::metrics())
        .chain(MORE_COUNTERS.iter().map(|(name, label)| count(name, label)))
        .chain(own)
        .filter(|metric| !never.contains(&metric.name.as_str()));
    let mut seen = BTreeSet::new();
    all.filter(|metric| seen.insert(metric.name.clone())).collect()
}

/// Seconds of whole nanoseconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The latencies at the lab's quantiles; none where nothing was recorded.
fn distribution(latency: &Latency) -> Option<Distribution> {
    let at = |share: f64| (share, latency.quantile_ns((share * 1e6).round() as u32) as f64);
    (latency.count() > 0).then(|| Distribution {
        count: latency.count(),
        mean_ns: latency.mean_ns() as f64,
        quantiles: QUANTILES.map(at).to_vec(),
    })
}

/// A run with the figures of an outcome. Its time is the simulated one.
#[must_use]
pub fn run_of(outcome: &SimOutcome, case: usize, variant: usize, round: usize) -> Run {
    let results: Vec<_> = outcome.programs.iter().map(programs::result).collect();
    let figures = merged(results.iter());
    let mut values = figures.values;
    let mut distributions = figures.distributions;
    let series = series(outcome);
    let phases = phases(outcome);

    values.extend(memory(outcome));
    values.extend(summary::at_most(&series));
    let took = seconds(outcome.end_ns);
    let mean = summary::free_blocks_mean(&series, &phases, took);
    values.extend(mean.map(|blocks| ("free_blocks_mean".to_string(), blocks)));
    values.extend(summary::settled(&series).map(|rate| ("settled_per_s".to_string(), rate)));
    values.extend(fault_values(outcome));
    distributions.extend(distribution(&outcome.faults).map(|d| ("fault".to_string(), d)));
    values.extend(counted(outcome));
    values.extend(managed(outcome));
    values.extend(translated(outcome));
    Run {
        case,
        variant,
        round,
        began_s: 0.0,
        seconds: took,
        outcome: how_it_went(outcome),
        values,
        series,
        phases,
        distributions,
        pictures: Vec::new(),
        noise: Noise::default(),
    }
}

/// A run that was not made.
#[must_use]
pub fn failed_run(why: String, case: usize, variant: usize, round: usize) -> Run {
    Run {
        outcome: Outcome::Failed(why),
        ..run_of_nothing(case, variant, round)
    }
}

/// A run without figures.
#[must_use]
pub fn run_of_nothing(case: usize, variant: usize, round: usize) -> Run {
    Run {
        case,
        variant,
        round,
        began_s: 0.0,
        seconds: 0.0,
        outcome: Outcome::Done,
        values: BTreeMap::new(),
        series: Series::default(),
        phases: Vec::new(),
        distributions: BTreeMap::new(),
        pictures: Vec::new(),
        noise: Noise::default(),
    }
}

fn how_it_went(outcome: &SimOutcome) -> Outcome {
    let failed = outcome.programs.iter().filter_map(|program| {
        let why = program.failed.as_ref()?;
        Some(format!("{}: {why}", program.name))
    });
    let mut why: Vec<String> = failed.collect();
    if outcome.counters.content_errors > 0 {
        why.push(format!(
            "{} accesses did not find what was stored: a fault of the simulator",
            outcome.counters.content_errors
        ));
    }
    match why.as_slice() {
        [] => Outcome::Done,
        why => Outcome::Failed(why.join("; ")),
    }
}

/// Memory of all programs at the end.
fn memory(outcome: &SimOutcome) -> BTreeMap<String, f64> {
    let sum = |of: fn(&ProgramOutcome) -> u64| outcome.programs.iter().map(of).sum::<u64>() as f64;
    let mut values = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        values.insert(name.to_string(), value);
    };
    put("rss_bytes", sum(|p| p.resident_bytes));
    put("huge_bytes", sum(|p| p.huge_bytes));
    put("giant_bytes", sum(|p| p.giant_bytes));
    put("waste_bytes", sum(|p| p.waste_bytes));
    put("swapped_bytes", sum(|p| p.swapped_bytes));
    put("waited_ns", sum(|p| p.stall_ns));
    put("bad_accesses", sum(|p| p.bad_accesses));
    put("unusable_share", f64::from(outcome.unusable_ppm) / 1e6);
    values
}

/// Everything over time. A rate begins with the first operation; an interval that was cut short has none.
fn series(outcome: &SimOutcome) -> Series {
    let samples = &outcome.samples;
    let column = |of: &dyn Fn(&Sample) -> u64| -> Vec<Option<f64>> {
        samples.iter().map(|sample| Some(of(sample) as f64)).collect()
    };
    let step = |i: usize| samples[i].at_ns.saturating_sub(samples[i - 1].at_ns);
    // The last step is another: a program ends within it, and a manager at its next scan only.
    let mut steps: Vec<u64> = (1..samples.len()).map(step).collect();
    steps.sort_unstable();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(0);
    let rate = |i: usize| -> Option<f64> {
        let before = samples.get(i.checked_sub(1)?)?;
        let begun = samples[i].operations > 0;
        let whole = step(i) > 0 && (usual / 2..=usual + usual / 2).contains(&step(i));
        let done = samples[i].operations.saturating_sub(before.operations);
        (begun && whole).then(|| done as f64 / seconds(step(i)))
    };
    Series {
        seconds: samples.iter().map(|sample| seconds(sample.at_ns)).collect(),
        columns: BTreeMap::from([
            ("rss_bytes".to_string(), column(&|s| s.resident_bytes)),
            ("huge_bytes".to_string(), column(&|s| s.huge_bytes)),
            ("waste_bytes".to_string(), column(&|s| s.waste_bytes)),
            ("free_blocks".to_string(), column(&|s| s.free_blocks)),
            ("ops_per_s".to_string(), (0..samples.len()).map(rate).collect()),
        ]),
    }
}

/// What began when, each name once: programs go through some phases many times.
fn phases(outcome: &SimOutcome) -> Vec<(f64, String)> {
    let several = outcome.programs.len() > 1;
    let mut seen = BTreeSet::new();
    let mut phases = Vec::new();
    for program in &outcome.programs {
        for phase in &program.results.phases {
            let name = match several {
                true => format!("{}: {}", program.name, phase.name),
                false => phase.name.clone(),
            };
            if seen.insert(name.clone()) {
                phases.push((seconds(phase.start_ns), name));
            }
        }
    }
    phases.sort_by(|a, b| a.0.total_cmp(&b.0));
    phases
}

fn fault_values(outcome: &SimOutcome) -> BTreeMap<String, f64> {
    let latency = &outcome.faults;
    let faults: u64 = outcome
        .programs
        .iter()
        .map(|program| program.faults - program.zero_faults)
        .sum();
    let total_ns: u64 = outcome.programs.iter().map(|program| program.fault_ns).sum();
    let mut values = BTreeMap::from([
        ("faults".to_string(), faults as f64),
        ("huge_faults".to_string(), outcome.counters.thp_fault_alloc as f64),
    ]);
    if latency.count() > 0 {
        values.insert("fault_mean_ns".to_string(), latency.mean_ns() as f64);
        values.insert("fault_total_ns".to_string(), total_ns as f64);
        for (word, per_million) in [("p50", 500_000), ("p90", 900_000), ("p99", 990_000), ("p999", 999_000)] {
            let ns = latency.quantile_ns(per_million);
            values.insert(format!("fault_{word}_ns"), ns as f64);
        }
    }
    values
}

/// The machine's counters by their names, and processor time in the background.
fn counted(outcome: &SimOutcome) -> BTreeMap<String, f64> {
    let all = serde_json::to_value(outcome.counters).unwrap_or_default();
    let known = counters::metrics().into_iter().map(|metric| metric.name);
    let known = known.chain(MORE_COUNTERS.iter().map(|(name, _)| (*name).to_string()));
    let mut values: BTreeMap<String, f64> = known
        .filter_map(|name| {
            let value = all.get(&name)?.as_f64()?;
            Some((name, value))
        })
        .collect();
    let background = &outcome.background;
    for (name, ns) in [
        ("khugepaged_cpu_ns", background.khugepaged_ns),
        ("kcompactd_cpu_ns", background.kcompactd_ns),
        ("reservations_cpu_ns", background.reservations_ns),
        ("prezero_cpu_ns", background.prezero_ns),
        ("shrinker_cpu_ns", background.shrinker_ns),
        ("background_cpu_ns", background.total_ns()),
    ] {
        values.insert(name.to_string(), ns as f64);
    }
    values
}

/// The manager, where there is one.
fn managed(outcome: &SimOutcome) -> BTreeMap<String, f64> {
    let Some(status) = &outcome.manager else {
        return BTreeMap::new();
    };
    let values = [
        ("manager_cpu_ns", status.cpu.as_nanos() as f64),
        ("promoted", status.promoted as f64),
        ("demoted", status.demoted as f64),
        ("stall_ns", status.stall.as_nanos() as f64),
        ("compactions", status.compactions as f64),
        ("compaction_cpu_ns", status.compaction_cpu.as_nanos() as f64),
    ];
    values
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}

/// The TLB, where there is one. Its share of time is that of the programs' run times, waiting included.
fn translated(outcome: &SimOutcome) -> BTreeMap<String, f64> {
    let Some(counts) = &outcome.tlb else {
        return BTreeMap::new();
    };
    let mut values = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        values.insert(name.to_string(), value);
    };
    put("tlb_accesses", counts.accesses as f64);
    put("tlb_l1_misses", counts.l1_misses as f64);
    put("tlb_walks", counts.l2_misses() as f64);
    put("tlb_walk_cycles", counts.walk_cycles as f64);
    if counts.accesses > 0 {
        put("tlb_walk_share", counts.l2_misses() as f64 / counts.accesses as f64);
    }
    let ran_ns: u64 = outcome.programs.iter().map(|program| program.elapsed_ns()).sum();
    let cycles = ran_ns as f64 / 1000.0 * f64::from(outcome.tlb_mhz);
    if cycles > 0.0 {
        put("tlb_walk_cycles_share", counts.walk_cycles as f64 / cycles);
    }
    values
}

#[cfg(test)]
mod tests;
