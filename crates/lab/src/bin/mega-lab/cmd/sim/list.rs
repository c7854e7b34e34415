//! `mega sim list`: what can be simulated.

use std::io::Write;

use anyhow::Result;
use mega_core::fault::{self, FAULT_POLICIES};
use mega_core::policy::{self, Param, POLICIES};
use mega_lab::workload::LIST;
use mega_sim::cost::{self, Costs};
use mega_sim::scenario::BACKDROPS;
use mega_sim::tlb::presets::ALIASES;
use mega_sim::tlb::{self, PRESETS};
use mega_sim::workload::{Spec, NAMES};
use serde_json::{json, Value};

use crate::args::SimListArgs;
use mega_cli::text::wrapped;

/// What the simulator alone has, in a line.
const REDIS: &str = "a Redis as its memory sees it: dictionary, jemalloc, purging";

/// How systems are written.
const GRAMMAR: &[(&str, &str)] = &[
    ("NAME", "what decides at faults, or what scans on base pages"),
    ("NAME:key=value:key=value", "with parameters"),
    ("FAULT+SCAN", "both; parameters follow the part that they belong to"),
    (
        "SCAN:compact=PLANNER/key=value",
        "planner that keeps free blocks, by the kernel's own compaction; off: none",
    ),
    (
        "SCAN:compact=chosen/PLANNER",
        "the same, but the planner selects the blocks (mega.ko)",
    ),
];

/// Lists it.
pub fn run(args: &SimListArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json())?;
        return Ok(());
    }
    write!(out, "{}", as_text())?;
    Ok(())
}

fn about(workload: &str) -> &'static str {
    LIST.iter()
        .find(|entry| entry.name == workload)
        .map_or(REDIS, |entry| entry.help)
}

/// The options of a workload with their defaults.
fn options(workload: &str) -> Value {
    let spec = serde_json::to_value(Spec::named(workload)).unwrap_or_default();
    let options = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != "program");
    options.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A system's parts by name: what decides at faults, the lab's backdrops, what scans.
fn parts() -> Vec<(&'static str, String, &'static str, Vec<Param>)> {
    let faults = FAULT_POLICIES.iter().map(|(name, about)| {
        let params = fault::by_name(name).map_or(Vec::new(), |policy| policy.params());
        (*name, (*about).to_string(), "fault", params)
    });
    let backdrops = BACKDROPS.iter().map(|(name, settings)| {
        let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (*name, format!("linux:{}", settings.join(":")), "fault", Vec::new())
    });
    let scans = POLICIES
        .iter()
        .filter(|(name, _)| *name != "base")
        .map(|(name, about)| {
            let params = policy::by_name(name).map_or(Vec::new(), |policy| policy.params());
            (*name, (*about).to_string(), "scan", params)
        });
    faults.chain(backdrops).chain(scans).collect()
}

fn as_json() -> String {
    let workloads: Vec<_> = NAMES
        .iter()
        .map(|name| json!({"name": name, "about": about(name), "options": options(name)}))
        .collect();
    let systems: Vec<_> = parts()
        .into_iter()
        .map(|(name, about, kind, params)| {
            let params: Vec<_> = params
                .iter()
                .map(|p| json!({"name": p.name, "default": p.default, "meaning": p.meaning}))
                .collect();
            json!({"name": name, "about": about, "decides": kind, "params": params})
        })
        .collect();
    let machines: Vec<_> = cost::names()
        .iter()
        .filter_map(|name| Some((name, cost::preset(name)?)))
        .map(|(name, costs)| json!({"name": name, "tlb": tlb::find(name).map(|preset| preset.name), "costs": costs}))
        .collect();
    let tlbs: Vec<_> = PRESETS
        .iter()
        .map(|preset| {
            let sources: serde_json::Map<String, Value> =
                preset.sources.iter().map(|(figure, source)| ((*figure).to_string(), (*source).into())).collect();
            json!({"name": preset.name, "about": preset.about, "mhz": preset.mhz, "nested": preset.nested.is_some(), "sources": sources})
        })
        .collect();
    let aliases: serde_json::Map<String, Value> = ALIASES
        .iter()
        .map(|(alias, of)| ((*alias).to_string(), (*of).into()))
        .collect();
    let sources: serde_json::Map<String, Value> = Costs::sources()
        .into_iter()
        .map(|(cost, source)| (cost.to_string(), source.into()))
        .collect();
    let grammar: Vec<_> = GRAMMAR
        .iter()
        .map(|(form, meaning)| json!({"form": form, "meaning": meaning}))
        .collect();
    let experiments: Vec<_> = mega_lab::simulated::all()
        .map(|e| json!({"name": e.name, "title": e.title, "source": e.source, "question": e.question, "differs": e.differs}))
        .collect();
    json!({
        "schema": 1, "kind": "simulator", "experiments": experiments, "workloads": workloads, "systems": systems, "system_grammar": grammar,
        "machines": machines, "default_cost_sources": sources, "tlbs": tlbs, "tlb_aliases": aliases,
    })
    .to_string()
}

fn as_text() -> String {
    let mut text = String::new();
    let mut line = |head: &str, rest: &str| {
        text.push_str(&wrapped(head, rest));
        text.push('\n');
    };
    line("", "The papers' experiments (mega sim NAME):");
    for experiment in mega_lab::simulated::all() {
        let about = format!("{} ({})", experiment.title, experiment.source);
        line(&format!("  {:<18} ", experiment.name), &about);
    }
    line("", "Workloads (--workload NAME, options by --set KEY=VALUE):");
    for name in NAMES {
        line(&format!("  {name:<9} "), about(name));
        let options = options(name);
        let all = options.as_object().into_iter().flatten();
        let all: Vec<String> = all.map(|(key, value)| format!("{key}={value}")).collect();
        line("            ", &all.join(" "));
    }
    line("", "");
    line("", "Systems (--system; parameters: mega sim list --json):");
    for (form, meaning) in GRAMMAR {
        line(&format!("  {form}: "), meaning);
    }
    for (kind, title) in [("fault", "deciding at page faults:"), ("scan", "scanning:")] {
        line("  ", title);
        for (name, about, _, _) in parts().iter().filter(|(_, _, of, _)| *of == kind) {
            line(&format!("    {name:<18} "), about);
        }
    }
    line("", "");
    line(
        "",
        "Machines (--machine: costs and TLB; what a paper does not say is the development machine's):",
    );
    for name in cost::names() {
        let costs = cost::preset(name).map_or(String::new(), |costs| costs.machine);
        let preset = tlb::find(name).map_or("none", |preset| preset.name);
        line(&format!("  {name:<12} "), &format!("{costs}; TLB {preset}"));
    }
    line("", "");
    line("", "TLBs (--tlb; the source of each figure: mega sim list --json):");
    for preset in &PRESETS {
        line(&format!("  {:<16} ", preset.name), preset.about);
    }
    let aliases: Vec<String> = ALIASES.iter().map(|(alias, of)| format!("{alias} is {of}")).collect();
    line("  ", &aliases.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_workload_system_and_machine_in_eighty_columns() {
        let text = as_text();
        for name in NAMES.iter().chain(&cost::names()).copied() {
            assert!(text.contains(name), "{name}");
        }
        for (name, ..) in parts() {
            assert!(text.contains(name), "{name}");
        }
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:?}");
        let json: Value = serde_json::from_str(&as_json()).unwrap();
        assert_eq!(json["workloads"].as_array().unwrap().len(), NAMES.len());
        assert_eq!(json["workloads"][0]["options"]["mib"], 1024);
        assert!(json["tlbs"][0]["sources"]["mhz"].is_string());
        assert!(json["default_cost_sources"]["split_ns"]
            .as_str()
            .unwrap()
            .contains("docs/linux.md"));
    }
}
