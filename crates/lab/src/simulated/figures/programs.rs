//! A simulated program's figures from its phases: the metrics and latencies that its live twin reports at its end
//! (`crates/lab/src/workload`).

use mega_sim::scenario::ProgramOutcome;
use mega_sim::workload::{Latency, Results, NAMES};
use serde_json::{json, Map, Value};

use super::distribution;
use crate::program::builtin::metrics_of;
use crate::program::latency_metrics;
use crate::result::{Better, Metric, Unit};

/// The program that replays a trace.
const REPLAY: &str = "replay";

/// What a program can measure.
fn own_metrics(program: &str) -> Vec<Metric> {
    let time = |name: &str, label: &str| Metric::new(name, label, Unit::Ns, Better::Lower);
    let count = |name: &str, label: &str| Metric::new(name, label, Unit::Count, Better::Neither);
    let redis = || {
        [
            time("delete_ns", "time to delete"),
            time("read_ns", "read time"),
            time("set_mean_ns", "set mean"),
            time("set_p50_ns", "set p50"),
            time("set_p99_ns", "set p99"),
            time("get_mean_ns", "get mean"),
            time("get_p50_ns", "get p50"),
            time("get_p99_ns", "get p99"),
            time("del_mean_ns", "del mean"),
            count("deleted", "keys deleted"),
        ]
    };
    let replay = || {
        [
            count("left_out", "accesses of the trace outside of its mappings"),
            count("unsupported", "calls of the trace that are not modelled"),
        ]
    };
    let common = || {
        [
            Metric::new("ops_per_s", "operations/s", Unit::PerSecond, Better::Higher),
            time("elapsed_ns", "run time"),
        ]
        .into_iter()
    };
    match program {
        "redis" => common().chain(latency_metrics()).chain(redis()).collect(),
        "shards" => common()
            .chain([Metric::new(
                "read_bytes",
                "read from disk",
                Unit::Bytes,
                Better::Neither,
            )])
            .collect(),
        REPLAY => common().chain(replay()).collect(),
        name => metrics_of(name).unwrap_or_default(),
    }
}

/// Metrics of all programs, including duplicates of equal names.
pub(super) fn metrics() -> Vec<Metric> {
    let all = NAMES.iter().copied().chain([REPLAY]).flat_map(own_metrics);
    all.map(|metric| Metric { main: false, ..metric }).collect()
}

/// The metrics to show first where these programs run: their own first ones, and memory.
#[must_use]
pub fn main_metrics(programs: &[&str]) -> Vec<String> {
    let mut main: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if main.iter().all(|known| known != name) {
            main.push(name.to_string());
        }
    };
    for program in programs {
        match *program {
            "redis" => ["ops_per_s", "request_p99_ns"].into_iter().for_each(&mut add),
            REPLAY => add("elapsed_ns"),
            name => metrics_of(name)
                .unwrap_or_default()
                .iter()
                .filter(|metric| metric.main)
                .for_each(|metric| add(&metric.name)),
        }
    }
    add("peak_rss_bytes");
    add("peak_huge_bytes");
    main
}

/// Whether runs of these programs can have this metric. What is no program's own all have.
#[must_use]
pub fn is_metric_of(metric: &str, of: &[&str]) -> bool {
    let own = |program: &str| own_metrics(program).iter().any(|own| own.name == metric);
    let all = NAMES.iter().copied().chain([REPLAY]);
    of.iter().any(|program| own(program)) || !all.into_iter().any(own)
}

/// Nanoseconds of the phases that are wanted.
fn time_ns(results: &Results, wanted: impl Fn(&str) -> bool) -> u64 {
    let phases = results.phases.iter().filter(|phase| wanted(&phase.name));
    phases.map(|phase| phase.end_ns.saturating_sub(phase.start_ns)).sum()
}

/// What a program did in its main part.
struct Main {
    /// Operations.
    operations: u64,
    /// Its time.
    ns: u64,
    /// Other times by metric, that of the whole run among them.
    times: Vec<(&'static str, u64)>,
}

fn main_of(program: &str, results: &Results) -> Main {
    let of = |name: &str| time_ns(results, |phase| phase == name);
    let all = time_ns(results, |_| true);
    let main = |ns: u64, mut times: Vec<(&'static str, u64)>| {
        times.push(("elapsed_ns", ns));
        Main {
            operations: results.operations,
            ns,
            times,
        }
    };
    match program {
        "gups" => main(of("update"), vec![("first_touch_ns", of("fill"))]),
        "store" => main(of("serve"), vec![("first_touch_ns", of("fill"))]),
        "kv" => main(
            of("serve"),
            vec![("first_touch_ns", of("load")), ("delete_ns", of("delete"))],
        ),
        "btree" => main(of("serve"), vec![("load_ns", of("load"))]),
        "graph" => main(of("iterate"), vec![("build_ns", of("build"))]),
        "compute" => main(of("compute"), Vec::new()),
        "chunks" => main(of("use"), vec![("first_touch_ns", of("fill"))]),
        "churn" => main(
            all,
            vec![
                ("first_touch_ns", of("touch")),
                ("iterate_ns", of("iterate")),
                ("free_ns", of("free")),
            ],
        ),
        "holes" => main(
            of("iterate"),
            vec![("first_touch_ns", of("fill")), ("free_ns", of("free"))],
        ),
        "sparse" => main(of("hold"), vec![("first_touch_ns", of("fill"))]),
        "dense" => main(of("sweep"), vec![("first_touch_ns", of("fill"))]),
        "touch" => Main {
            operations: results.operations,
            ns: all,
            times: vec![("first_touch_ns", all)],
        },
        "sizes" => {
            let is_free = |phase: &str| phase.ends_with(" freed");
            let free_ns = time_ns(results, is_free);
            let allocate_ns = time_ns(results, |phase| !is_free(phase) && phase != "check" && phase != "rest");
            Main {
                operations: results.operations,
                ns: allocate_ns + free_ns,
                times: vec![("allocate_ns", allocate_ns), ("free_ns", free_ns), ("elapsed_ns", all)],
            }
        }
        "redis" => redis(results),
        _ => main(all, Vec::new()),
    }
}

/// As the live one: what it serves counts, or else what it was filled with.
fn redis(results: &Results) -> Main {
    let operations = |name: &str| -> u64 {
        let phases = results.phases.iter().filter(|phase| phase.name == name);
        phases.map(|phase| phase.operations).sum()
    };
    let of = |name: &str| time_ns(results, |phase| phase == name);
    let part = if operations("serve") > 0 { "serve" } else { "load" };
    let mut times = vec![("elapsed_ns", of(part))];
    for (metric, phase) in [("delete_ns", "delete"), ("read_ns", "read-all")] {
        if operations(phase) > 0 {
            times.push((metric, of(phase)));
        }
    }
    Main {
        operations: operations(part),
        ns: of(part),
        times,
    }
}

/// Metrics of which one operation's time is one.
const TIMED_EACH: &[&str] = &["gups", "graph", "touch", "stride"];

/// What a program says at its end, as the live one's event `result` has it: `metrics` and `latency`.
pub(super) fn result(program: &ProgramOutcome) -> Value {
    let results = &program.results;
    let main = main_of(program.program, results);
    let mut metrics = Map::new();
    for (name, ns) in &main.times {
        metrics.insert((*name).to_string(), json!(*ns as f64));
    }
    if main.ns > 0 && main.operations > 0 {
        let seconds = main.ns as f64 / 1e9;
        metrics.insert("ops_per_s".to_string(), json!(main.operations as f64 / seconds));
        if TIMED_EACH.contains(&program.program) {
            metrics.insert("op_ns".to_string(), json!(main.ns as f64 / main.operations as f64));
        }
    }
    for (name, value) in &results.measures {
        metrics.insert((*name).to_string(), json!(*value as f64));
    }
    if program.program == "kv" {
        metrics.entry("given_back_bytes").or_insert(json!(0.0));
    }
    let latencies = latencies(program.program, results);
    let latency: Map<String, Value> = latencies
        .iter()
        .filter_map(|(name, latency)| Some(((*name).to_string(), json!(distribution(latency)?))))
        .collect();
    json!({ "metrics": metrics, "latency": latency })
}

/// The latencies by their live names.
fn latencies(program: &str, results: &Results) -> Vec<(&'static str, Latency)> {
    let mut all = results.latencies.clone();
    let took = |phase: &mega_sim::workload::Phase| phase.end_ns.saturating_sub(phase.start_ns);
    let of = |times: &mut dyn Iterator<Item = u64>| {
        let mut latency = Latency::new();
        times.for_each(|ns| latency.record(ns));
        latency
    };
    match program {
        "graph" => {
            let iterations = results.phases.iter().filter(|phase| phase.name == "iterate");
            all.push(("iteration", of(&mut iterations.map(took))));
        }
        "churn" => {
            // A round that was not ended has fewer phases.
            let rounds = results.phases.chunks_exact(3);
            all.push((
                "round",
                of(&mut rounds.map(|round| round.iter().map(took).sum::<u64>())),
            ));
        }
        "store" => {
            // The live one has the touches while it serves among them.
            let grow = all
                .iter()
                .position(|(name, _)| *name == "grow")
                .map(|at| all.remove(at));
            let touch = all.iter_mut().find(|(name, _)| *name == "touch");
            if let (Some((_, touch)), Some((_, grow))) = (touch, grow) {
                touch.add(&grow);
            }
        }
        "redis" => {
            let served = all
                .iter()
                .position(|(name, _)| *name == "serve")
                .map(|at| all.remove(at));
            let set = all.iter().find(|(name, _)| *name == "set");
            if let Some((_, requests)) = served.or_else(|| set.cloned()) {
                all.push(("request", requests));
            }
        }
        _ => {}
    }
    all
}
