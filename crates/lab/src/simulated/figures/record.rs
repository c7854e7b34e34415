//! Simulated runs as a record: the machine, the systems and the state of memory in the lab's words.

use std::collections::{BTreeMap, BTreeSet};

use mega_core::fault::FAULT_POLICIES;
use mega_core::policy::{Param, POLICIES};
use mega_sim::scenario::{CostsOf, Fragment, MachineSpec, System};
use mega_sim::workload::Spec;
use mega_sim::{cost, tlb};

use super::metrics;
use crate::result::{About, Case, Machine, Metric, Published, Record, Run, Settings, VariantInfo, SCHEMA, SIMULATED};

/// The simulated machine, for the record.
#[must_use]
pub fn machine(spec: &MachineSpec) -> Machine {
    let costs = match &spec.costs {
        CostsOf::Name(name) => cost::preset(name).map_or_else(|| name.clone(), |costs| costs.machine),
        CostsOf::Values(costs) => format!("{}, measured {}", costs.machine, costs.date),
    };
    let processor = match &spec.tlb {
        None => "no TLB".to_string(),
        Some(name) => tlb::find(name).map_or_else(|| name.clone(), |preset| preset.name.to_string()),
    };
    Machine {
        kernel: SIMULATED.to_string(),
        processor,
        processors: usize::from(spec.cpus),
        memory_bytes: spec.memory.0,
        virtual_machine: false,
        thp: BTreeMap::new(),
        system: format!("simulated; costs of {costs}"),
    }
}

/// A program and its options that are not the default's: `gups mib=4096`.
#[must_use]
pub fn program(spec: &Spec) -> String {
    let options = |spec: Option<Spec>| serde_json::to_value(spec).unwrap_or_default();
    let (all, defaults) = (options(Some(spec.clone())), options(Spec::named(spec.name())));
    let changed = all.as_object().into_iter().flatten();
    let changed = changed.filter(|(key, value)| defaults.get(key) != Some(value));
    let words = changed.map(|(key, value)| format!(" {key}={value}"));
    format!("{}{}", spec.name(), words.collect::<String>())
}

/// A system, for the record: what its parts do, and every parameter.
#[must_use]
pub fn variant(system: &System) -> VariantInfo {
    let about = |table: &[(&str, &'static str)], name: &str| {
        let found = table.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, about)| *about)
    };
    let fault = system.fault_policy();
    let mut text = about(FAULT_POLICIES, fault.name()).to_string();
    let mut knobs: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |of: &str, params: Vec<Param>| {
        for param in params {
            knobs.insert(format!("{of} {}", param.name), param.value);
        }
    };
    put(fault.name(), fault.params());
    if let Some(scan) = system.scan_policy() {
        text += &format!("; {}", about(POLICIES, scan.name()));
        put(scan.name(), scan.params());
        if let Some(target) = system.free_block_target() {
            text += &format!("; free-block target: {}", target.planner().name());
            put(&format!("stock {}", target.planner().name()), target.planner().params());
        }
    }
    VariantInfo {
        name: system.to_string(),
        about: text,
        knobs,
    }
}

/// The state of memory, as the lab's conditions say it.
#[must_use]
pub fn condition(fragment: Option<Fragment>) -> String {
    match fragment {
        None => "unfragmented".to_string(),
        Some(Fragment::Unusable { share, unmovable }) if unmovable.as_millionths() == 0 => {
            format!("fragmented {share}")
        }
        Some(Fragment::Unusable { share, unmovable }) => {
            format!("fragmented {share}, {unmovable} of it unmovable")
        }
        Some(Fragment::Study) => "fragmented as the allocation-latency study does".to_string(),
        Some(Fragment::Lrbhps { part }) => format!("fragmented as LRBHPS does, {part} of each huge page unmapped"),
    }
}

/// What a record is made of, besides the format's constants.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Which experiment.
    pub about: About,
    /// From [`machine`].
    pub machine: Machine,
    /// What was run.
    pub cases: Vec<Case>,
    /// How memory was managed: from [`variant`].
    pub variants: Vec<VariantInfo>,
    /// From [`run_of`], in any order.
    pub runs: Vec<Run>,
    /// What a paper found.
    pub published: Vec<Published>,
    /// Names of the metrics that are shown first, in their order: from [`main_metrics`].
    pub main: Vec<String>,
    /// Rounds; each has a seed of its own.
    pub rounds: usize,
    /// Seed of the first round.
    pub seed: u64,
    /// The command line that repeats it.
    pub command: String,
}

/// A record of simulated runs: runs in the order of case, round and variant, and the metrics that any run has. Version is this crate's; the
/// commit and the real time are the caller's to fill in.
#[must_use]
pub fn record(parts: Parts) -> Record {
    let Parts { mut runs, main, .. } = parts;
    runs.sort_by_key(|run| (run.case, run.round, run.variant));
    let found: BTreeSet<&String> = runs.iter().flat_map(|run| run.values.keys()).collect();
    let mut measured: Vec<Metric> = metrics()
        .into_iter()
        .filter(|metric| found.contains(&metric.name))
        .collect();
    let place = |metric: &Metric| main.iter().position(|name| *name == metric.name);
    measured
        .iter_mut()
        .for_each(|metric| metric.main = place(metric).is_some());
    measured.sort_by_key(|metric| place(metric).unwrap_or(usize::MAX));
    Record {
        schema: SCHEMA,
        kind: "bench".to_string(),
        experiment: parts.about,
        machine: parts.machine,
        settings: Settings {
            version: env!("CARGO_PKG_VERSION").to_string(),
            rounds: parts.rounds,
            seed: parts.seed,
            command: parts.command,
            ..Settings::default()
        },
        metrics: measured,
        cases: parts.cases,
        variants: parts.variants,
        runs,
        published: parts.published,
        ended_early: None,
    }
}
