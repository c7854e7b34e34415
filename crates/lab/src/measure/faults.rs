//! Page fault latency of the measured program, by the kernel's tracepoints. In every variant of an experiment or in none, since it costs
//! some tenths of a microsecond per fault.

use std::collections::BTreeMap;

use mega_linux::faults::{FaultLatency, Faults, Latencies};

use crate::result::{Better, Distribution, Metric, Unit};
use crate::timing::latency::QUANTILES;

/// The metrics that [`Watched::read`] gives.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let time = |name: &str, label: &str| Metric::new(name, label, Unit::Ns, Better::Lower);
    vec![
        Metric::new("faults", "page faults", Unit::Count, Better::Lower),
        Metric::new(
            "huge_faults",
            "faults served by a huge page",
            Unit::Count,
            Better::Neither,
        ),
        time("fault_mean_ns", "page fault mean"),
        time("fault_p50_ns", "page fault p50"),
        time("fault_p90_ns", "page fault p90"),
        time("fault_p99_ns", "page fault p99"),
        time("fault_p999_ns", "page fault p99.9"),
        time("fault_total_ns", "time in page faults"),
    ]
}

/// The tracer, where this kernel allows it.
#[derive(Debug, Default)]
pub struct Watched(Option<Faults>);

impl Watched {
    /// Starts it, watching no process.
    #[must_use]
    pub fn start() -> Self {
        Self(Faults::start(&[]).ok())
    }

    /// Watches a process and its future children.
    pub fn process(&mut self, pid: i32) {
        if let Some(faults) = &mut self.0 {
            let _ = faults.add(pid as u32);
        }
    }

    /// The figures so far, and the distribution of all faults. Empty if nothing could be measured.
    #[must_use]
    pub fn read(&self) -> (BTreeMap<String, f64>, Option<Distribution>) {
        let Some(seen) = self.0.as_ref().and_then(|faults| faults.read().ok()) else {
            return (BTreeMap::new(), None);
        };
        figures(&seen)
    }
}

fn figures(seen: &FaultLatency) -> (BTreeMap<String, f64>, Option<Distribution>) {
    let all = seen.all();
    let mut values = BTreeMap::from([
        ("faults".to_string(), all.count() as f64),
        ("huge_faults".to_string(), seen.huge.count() as f64),
    ]);
    let Some(mean_ns) = all.mean_ns() else {
        return (values, None);
    };
    values.insert("fault_mean_ns".to_string(), mean_ns);
    values.insert("fault_total_ns".to_string(), all.sum_ns() as f64);
    for (name, share) in [
        ("fault_p50_ns", 0.5),
        ("fault_p90_ns", 0.9),
        ("fault_p99_ns", 0.99),
        ("fault_p999_ns", 0.999),
    ] {
        if let Some(ns) = all.quantile_ns(share) {
            values.insert(name.to_string(), ns as f64);
        }
    }
    (values, Some(distribution(&all, mean_ns)))
}

fn distribution(all: &Latencies, mean_ns: f64) -> Distribution {
    let at = |share: f64| Some((share, all.quantile_ns(share)? as f64));
    Distribution {
        count: all.count(),
        mean_ns,
        quantiles: QUANTILES.iter().copied().filter_map(at).collect(),
    }
}
