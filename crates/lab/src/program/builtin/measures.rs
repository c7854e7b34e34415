//! What each workload measures, and the figures of a run.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::Figures;
use crate::result::{Better, Distribution, Metric, Unit};

/// The quantiles that are also metrics: `op_p99_ns`.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// Labels of workload metrics, by name.
const LABELS: &[(&str, &str)] = &[
    ("ops_per_s", "operations/s"),
    ("op_ns", "time per operation"),
    ("elapsed_ns", "run time"),
    ("first_touch_ns", "time to fill"),
    ("build_ns", "time to build"),
    ("load_ns", "time to load"),
    ("allocate_ns", "time to allocate"),
    ("iterate_ns", "time to iterate"),
    ("free_ns", "time to free"),
    ("delete_ns", "time to delete"),
    ("inserts_per_s", "inserts/s"),
    ("longest_gap_ns", "longest gap"),
    ("used_bytes", "used memory"),
    ("touched_bytes", "touched memory"),
    ("freed_bytes", "freed memory"),
    ("given_back_bytes", "memory returned"),
];

/// Metrics of each workload, the first N of them main ones, and its latencies.
type Measures = (&'static str, usize, &'static [&'static str], &'static [&'static str]);

const MEASURES: &[Measures] = &[
    ("gups", 1, &["ops_per_s", "first_touch_ns", "op_ns", "elapsed_ns"], &[]),
    (
        "store",
        1,
        &["ops_per_s", "first_touch_ns", "elapsed_ns"],
        &["op", "touch"],
    ),
    (
        "kv",
        1,
        &[
            "ops_per_s",
            "first_touch_ns",
            "delete_ns",
            "given_back_bytes",
            "elapsed_ns",
        ],
        &["read", "insert", "delete", "touch"],
    ),
    (
        "btree",
        1,
        &["ops_per_s", "load_ns", "elapsed_ns"],
        &["lookup", "insert"],
    ),
    (
        "graph",
        1,
        &["elapsed_ns", "ops_per_s", "op_ns", "build_ns"],
        &["iteration"],
    ),
    ("simplex", 1, &["elapsed_ns", "ops_per_s", "load_ns"], &[]),
    ("events", 1, &["elapsed_ns", "ops_per_s", "load_ns"], &[]),
    ("paths", 1, &["elapsed_ns", "ops_per_s", "load_ns"], &[]),
    ("compute", 1, &["ops_per_s", "elapsed_ns"], &[]),
    ("touch", 1, &["first_touch_ns", "ops_per_s", "op_ns"], &["touch"]),
    (
        "chunks",
        1,
        &["ops_per_s", "first_touch_ns", "used_bytes", "elapsed_ns"],
        &["touch"],
    ),
    (
        "churn",
        1,
        &["elapsed_ns", "first_touch_ns", "iterate_ns", "free_ns", "ops_per_s"],
        &["round"],
    ),
    ("grow", 1, &["elapsed_ns", "first_touch_ns", "ops_per_s"], &["page"]),
    (
        "rehash",
        1,
        &["ops_per_s", "load_ns", "inserts_per_s", "elapsed_ns"],
        &[],
    ),
    ("arenas", 1, &["elapsed_ns", "ops_per_s"], &[]),
    ("forks", 1, &["ops_per_s", "first_touch_ns", "elapsed_ns"], &["request"]),
    ("stride", 1, &["elapsed_ns", "ops_per_s", "op_ns"], &[]),
    ("sizes", 1, &["ops_per_s", "allocate_ns", "free_ns", "elapsed_ns"], &[]),
    (
        "holes",
        1,
        &["ops_per_s", "first_touch_ns", "free_ns", "freed_bytes", "elapsed_ns"],
        &["touch"],
    ),
    (
        "sparse",
        1,
        &["first_touch_ns", "touched_bytes", "elapsed_ns"],
        &["touch"],
    ),
    (
        "dense",
        1,
        &["ops_per_s", "first_touch_ns", "longest_gap_ns", "elapsed_ns"],
        &[],
    ),
];

/// The latencies whose 99th percentile is a main metric.
const MAIN_LATENCIES: &[(&str, &str)] = &[("touch", "touch"), ("store", "op"), ("kv", "read"), ("btree", "lookup")];

fn metric(name: String, label: String, main: bool) -> Metric {
    let (unit, better) = match name.as_str() {
        n if n.ends_with("_per_s") => (Unit::PerSecond, Better::Higher),
        n if n.ends_with("_ns") => (Unit::Ns, Better::Lower),
        n if n.ends_with("_bytes") => (Unit::Bytes, Better::Neither),
        _ => (Unit::Count, Better::Neither),
    };
    Metric {
        name,
        label,
        unit,
        better,
        main,
    }
}

fn metrics_of((workload, main, names, latencies): &Measures) -> Vec<Metric> {
    let label = |name: &str| {
        let found = LABELS.iter().find(|(n, _)| *n == name);
        found.map_or_else(|| name.replace('_', " "), |(_, label)| (*label).to_string())
    };
    let plain = names
        .iter()
        .enumerate()
        .map(|(i, name)| metric((*name).to_string(), label(name), i < *main));
    let of_latency = |what: &'static str| {
        let words = ["mean", "p50", "p90", "p99", "p999", "max"];
        words.map(|word| {
            let main = word == "p99" && MAIN_LATENCIES.contains(&(*workload, what));
            metric(format!("{what}_{word}_ns"), format!("{what} {word}"), main)
        })
    };
    plain.chain(latencies.iter().copied().flat_map(of_latency)).collect()
}

/// What workload `name` measures.
pub(crate) fn of(name: &str) -> Option<Vec<Metric>> {
    MEASURES.iter().find(|m| m.0 == name).map(metrics_of)
}

/// Figures of several results: rates, bytes and counts are summed, times are maxima. The latencies of the second process and
/// of further ones have its number: `touch-2`.
pub(crate) fn figures<'a>(results: impl Iterator<Item = &'a Value>) -> Figures {
    let mut figures = Figures::default();
    let merge = |values: &mut BTreeMap<String, f64>, name: String, value: f64| {
        let longest = name.ends_with("_ns");
        let all = values.entry(name).or_insert(0.0);
        *all = if longest { all.max(value) } else { *all + value };
    };
    for (i, result) in results.enumerate() {
        for (name, value) in result["metrics"].as_object().into_iter().flatten() {
            if let Some(value) = value.as_f64() {
                merge(&mut figures.values, name.clone(), value);
            }
        }
        for (name, value) in result["latency"].as_object().into_iter().flatten() {
            let Ok(distribution) = serde_json::from_value::<Distribution>(value.clone()) else {
                continue;
            };
            let at = |q: f64| distribution.quantiles.iter().find(|(p, _)| *p == q).map(|(_, ns)| *ns);
            let percentiles = PERCENTILES.iter().map(|(word, q)| (*word, at(*q)));
            let others = [("mean", Some(distribution.mean_ns)), ("max", at(1.0))];
            for (word, ns) in percentiles.chain(others) {
                if let Some(ns) = ns {
                    merge(&mut figures.values, format!("{name}_{word}_ns"), ns);
                }
            }
            let name = if i == 0 {
                name.clone()
            } else {
                format!("{name}-{}", i + 1)
            };
            figures.distributions.insert(name, distribution);
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;
    use serde_json::json;

    #[test]
    fn every_metric_has_a_unit_and_each_workload_one_main_metric_at_least() {
        for measures in MEASURES {
            let metrics = metrics_of(measures);
            assert!(metrics.iter().any(|m| m.main), "{}", measures.0);
            assert!(metrics.iter().all(|m| m.unit != Unit::Count), "{}", measures.0);
            assert!(workload::LIST.iter().any(|e| e.name == measures.0));
        }
        let touch = of("touch").unwrap();
        let p99 = touch.iter().find(|m| m.name == "touch_p99_ns").unwrap();
        assert_eq!((p99.unit, p99.better, p99.main), (Unit::Ns, Better::Lower, true));
    }

    #[test]
    fn rates_of_processes_add_up_and_the_longest_time_counts() {
        let result = |ops: f64, ns: f64| {
            json!({"metrics": {"ops_per_s": ops, "elapsed_ns": ns},
                "latency": {"op": {"count": 1, "mean_ns": ns, "quantiles": [[0.5, ns], [1.0, ns]]}}})
        };
        let results = [result(10.0, 7.0), result(5.0, 9.0)];
        let f = figures(results.iter());
        assert_eq!(f.values["ops_per_s"], 15.0);
        assert_eq!(f.values["elapsed_ns"], 9.0);
        assert_eq!((f.values["op_p50_ns"], f.values["op_max_ns"]), (9.0, 9.0));
        assert!(!f.values.contains_key("op_p99_ns"), "what was not said is not made up");
        assert_eq!(f.distributions["op"].mean_ns, 7.0);
        assert_eq!(f.distributions["op-2"].mean_ns, 9.0);
    }
}
