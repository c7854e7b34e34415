//! Figures of papers that the lab's live runs do not have, computed from an outcome.

use std::collections::BTreeMap;

use mega_core::units::HUGE_PAGE_BYTES;
use mega_sim::machine::Counters;
use mega_sim::scenario::{Outcome as SimOutcome, Sample};
use mega_sim::unit::{BLOCK_ORDER, MAX_ORDER};
use mega_sim::workload::Phase;

use crate::measure::speedup;
use crate::result::{Better, Metric, Run, Unit};

/// The rounds of MEGA's Table 5.
const ROUNDS: f64 = 50.0;

/// MEGA's Figure 1: sizes after which contiguous memory is measured, as the program names them, and the metric.
const SIZES: &[(&str, &str)] = &[
    ("8K", "contiguous_8k_bytes"),
    ("128K", "contiguous_128k_bytes"),
    ("1M", "contiguous_1m_bytes"),
    ("8M", "contiguous_8m_bytes"),
    ("32M", "contiguous_32m_bytes"),
    ("128M", "contiguous_128m_bytes"),
];

/// Counters that MEGA's Table 7 gives per compaction.
const PER_PASS: &[(&str, &str)] = &[
    ("compact_migrate_scanned", "migrate_scanned_per_pass"),
    ("compact_free_scanned", "free_scanned_per_pass"),
    ("compact_isolated", "isolated_per_pass"),
    ("pgmigrate_success", "migrated_per_pass"),
    ("pgmigrate_fail", "failed_per_pass"),
];

/// All of them.
pub(super) fn metrics() -> Vec<Metric> {
    let time = |name: &str, label: &str| Metric::new(name, label, Unit::Ns, Better::Lower);
    let count = |name: &str, label: &str, better| Metric::new(name, label, Unit::Count, better);
    let bytes = |name: &str, label: &str, better| Metric::new(name, label, Unit::Bytes, better);
    let mut all = vec![
        speedup::metric(),
        bytes("taken_bytes", "memory taken from the machine", Better::Lower),
        count("free_blocks_before", "free 2 MB blocks before", Better::Neither),
        count("free_2m_runs", "free runs of 2 MB", Better::Neither),
        count("free_4m_runs", "free runs of 4 MB", Better::Neither),
        bytes("contiguous_before_bytes", "contiguous memory before", Better::Neither),
        time("fifty_rounds_ns", "time of fifty rounds"),
        Metric::new("tlb_references", "entries read in walks", Unit::Count, Better::Lower),
        time("read_p95_ns", "read p95"),
        time("read_min_ns", "read min"),
        time("request_p9999_ns", "request p99.99"),
        time("alloc_mean_ns", "allocation mean"),
        time("alloc_p50_ns", "allocation p50"),
        time("alloc_p90_ns", "allocation p90"),
        time("alloc_p95_ns", "allocation p95"),
        time("alloc_p99_ns", "allocation p99"),
        time("alloc_max_ns", "allocation max"),
        time("compact_ns", "time to compact by hand"),
        count("obtained", "huge pages obtained", Better::Higher),
        Metric::new(
            "obtained_share",
            "share of free memory obtained",
            Unit::Ratio,
            Better::Higher,
        ),
        count("huge_allocated", "huge pages or reservations allocated", Better::Higher),
        count("huge_mapped", "huge pages mapped", Better::Higher),
        count("huge_failed", "huge page allocations that failed", Better::Lower),
        count("compact_scanned", "pages scanned, both scanners", Better::Lower),
    ];
    all.extend(SIZES.iter().map(|(size, name)| {
        let label = format!("contiguous memory after objects of {size}");
        bytes(name, &label, Better::Higher)
    }));
    all.extend(PER_PASS.iter().map(|(_, name)| {
        let label = name.replace('_', " ");
        Metric::new(*name, label, Unit::Count, Better::Neither)
    }));
    all
}

/// The figures of this outcome. `run` has the lab's.
pub(super) fn values(outcome: &SimOutcome, run: &Run) -> Vec<(&'static str, f64)> {
    let mut values = Vec::new();
    memory(outcome, &mut values);
    latencies(outcome, run, &mut values);
    per_pass(outcome, &mut values);
    let counted = &outcome.counters;
    let scanned = counted.compact_migrate_scanned + counted.compact_free_scanned;
    values.push(("compact_scanned", scanned as f64));
    let mapped = counted.thp_fault_alloc + counted.thp_collapse_alloc + counted.reserve_promoted;
    values.push(("huge_allocated", (counted.thp_fault_alloc + counted.reserved) as f64));
    values.push(("huge_mapped", mapped as f64));
    values.push((
        "huge_failed",
        (counted.thp_fault_fallback + counted.reserve_failed) as f64,
    ));
    if let Some(tlb) = &outcome.tlb {
        values.push(("tlb_references", tlb.references as f64));
    }
    if let Some(churn) = outcome.programs.iter().find(|p| p.program == "churn" && p.done) {
        // A round is three phases: touch, iterate, free.
        let rounds = churn.results.phases.len() as f64 / 3.0;
        let took: u64 = churn.results.phases.iter().map(length).sum();
        if rounds > 0.0 {
            values.push(("fifty_rounds_ns", took as f64 / rounds * ROUNDS));
        }
    }
    values
}

fn length(phase: &Phase) -> u64 {
    phase.end_ns.saturating_sub(phase.start_ns)
}

fn memory(outcome: &SimOutcome, values: &mut Vec<(&'static str, f64)>) {
    let (Some(first), Some(last)) = (outcome.samples.first(), outcome.samples.last()) else {
        return;
    };
    values.push(("taken_bytes", first.free_bytes as f64 - last.free_bytes as f64));
    values.push(("free_blocks_before", first.free_blocks as f64));
    let runs = |order: u8| -> u64 {
        let of_zone = outcome
            .zones
            .iter()
            .filter_map(|zone| zone.runs.get(usize::from(order)));
        of_zone.flatten().sum()
    };
    values.push(("free_2m_runs", runs(BLOCK_ORDER) as f64));
    values.push(("free_4m_runs", runs(MAX_ORDER) as f64));
    let Some(sizes) = outcome.programs.iter().find(|program| program.program == "sizes") else {
        return;
    };
    let contiguous = |sample: &Sample| (sample.free_blocks * HUGE_PAGE_BYTES) as f64;
    values.push(("contiguous_before_bytes", contiguous(first)));
    for (size, metric) in SIZES {
        // The pause after freeing: background compaction has finished by its end.
        let freed = format!("{size} freed");
        let phases = &sizes.results.phases;
        let at = phases.iter().position(|phase| phase.name == freed);
        let Some(rest) = at.and_then(|at| phases.get(at + 1)) else {
            continue;
        };
        let until = phases.get(at.unwrap_or(0) + 2).map_or(u64::MAX, |next| next.start_ns);
        let within = |sample: &&Sample| (rest.start_ns..=until).contains(&sample.at_ns);
        if let Some(sample) = outcome.samples.iter().rev().find(within) {
            values.push((metric, contiguous(sample)));
        }
    }
}

fn latencies(outcome: &SimOutcome, run: &Run, values: &mut Vec<(&'static str, f64)>) {
    let quantile = |name: &str, wanted: f64| {
        let distribution = run.distributions.get(name)?;
        let found = distribution.quantiles.iter().find(|(share, _)| *share == wanted);
        found.map(|(_, ns)| *ns)
    };
    for (metric, name, wanted) in [
        ("read_p95_ns", "read", 0.95),
        ("request_p9999_ns", "request", 0.9999),
        ("alloc_p95_ns", "alloc", 0.95),
    ] {
        values.extend(quantile(name, wanted).map(|ns| (metric, ns)));
    }
    let latency = |name: &str| outcome.programs.iter().find_map(|p| p.results.latency(name));
    if let Some(read) = latency("read") {
        values.push(("read_min_ns", read.quantile_ns(0) as f64));
    }
    if let Some(alloc) = latency("alloc") {
        values.push(("obtained", alloc.count() as f64));
        if let Some(first) = outcome.samples.first().filter(|sample| sample.free_bytes > 0) {
            let taken = (alloc.count() * HUGE_PAGE_BYTES) as f64;
            values.push(("obtained_share", taken / first.free_bytes as f64));
        }
    }
}

fn per_pass(outcome: &SimOutcome, values: &mut Vec<(&'static str, f64)>) {
    let passes = outcome.manager.as_ref().map_or(0, |status| status.compactions);
    if passes == 0 {
        return;
    }
    let counters = as_map(&outcome.counters);
    for (counter, metric) in PER_PASS {
        if let Some(value) = counters.get(*counter) {
            values.push((metric, *value as f64 / passes as f64));
        }
    }
}

fn as_map(counters: &Counters) -> BTreeMap<String, u64> {
    let value = serde_json::to_value(counters).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

/// Growth since an earlier reading.
pub(super) fn grown(now: &Counters, before: &Counters) -> Counters {
    let before = as_map(before);
    let grown: BTreeMap<String, u64> = as_map(now)
        .into_iter()
        .map(|(name, value)| {
            let earlier = before.get(&name).copied().unwrap_or(0);
            (name, value.saturating_sub(earlier))
        })
        .collect();
    // The same names, so it parses back.
    let value = serde_json::to_value(grown).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_not_the_labs() {
        let names: BTreeSet<String> = metrics().into_iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), metrics().len());
    }

    #[test]
    fn counters_grow_field_by_field() {
        let before = Counters {
            pgfault: 7,
            compact_fail: 1,
            ..Counters::default()
        };
        let now = Counters {
            pgfault: 10,
            compact_fail: 1,
            pgmigrate_success: 5,
            ..Counters::default()
        };
        let expected = Counters {
            pgfault: 3,
            pgmigrate_success: 5,
            ..Counters::default()
        };
        assert_eq!(grown(&now, &before), expected);
    }
}
