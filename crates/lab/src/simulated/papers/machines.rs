//! The papers' machines, programs and systems.

use std::time::Duration;

use mega_core::units::{Bytes, Share};
use mega_sim::scenario::{CostsOf, MachineSpec, Placed, Scenario};
use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::{SparseOptions, Spec, TurnoverOptions};

use crate::experiment;
use crate::result::Published;
use crate::simulated::experiment::SystemOf;

pub(super) const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// MEGA's laptop has 16 GB, of which the paper finds 6,710 to 6,800 blocks of 2 MB free before anything runs: 13.5 GiB are modelled, and all
/// of it is free.
pub(super) const LAPTOP: u64 = 27 * GIB / 2;
/// MEGA's server. Its processor is a two-socket part; the paper does not say how many: two are assumed.
pub(super) const SERVER: u64 = 256 * GIB;
/// LRBHPS's machine has 16 GB; memory that the kernel itself keeps is not modelled.
pub(super) const RYZEN: u64 = 31 * GIB / 2;
/// The allocation-latency study's.
pub(super) const STUDY: u64 = 32 * GIB;
/// Ingens' poster has 64 GB.
pub(super) const INGENS: u64 = 64 * GIB;

/// Time between scans in the papers of MEGA and Ingens.
const INTERVAL: Duration = Duration::from_secs(5);

/// Memory at a scale, in whole blocks.
fn scaled(bytes: u64, scale: f64) -> Bytes {
    let blocks = (bytes as f64 * scale) as u64 / (4 * MIB);
    Bytes(blocks.max(32) * 4 * MIB)
}

/// MiB at a scale.
pub(super) fn mib(full: u64, scale: f64) -> u64 {
    ((full as f64 * scale).round() as u64).max(16)
}

/// A count at a scale.
pub(super) fn count(full: u64, scale: f64) -> u64 {
    at_least(1000, full, scale)
}

fn at_least(least: u64, full: u64, scale: f64) -> u64 {
    ((full as f64 * scale).round() as u64).max(least)
}

/// The weight of a simulated operation, from the weight at scale 1: less memory needs fewer accesses to be traversed in the same time.
pub(super) fn weight(full: u64, scale: f64) -> u64 {
    ((full as f64 / scale.max(1e-3)).round() as u64).max(1)
}

/// The kernel, by what distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// 4.3, 4.16, and what the study ran on: no proactive compaction (5.9), no aligned mappings (6.7), no zero-filled pages given back by
    /// a split (6.12).
    Old,
    /// 6.1: the first of these.
    Linux61,
}

fn machine(bytes: u64, name: &str, kernel: Kernel, scale: f64) -> MachineSpec {
    MachineSpec {
        memory: scaled(bytes, scale),
        cpus: 8,
        pc_hole: true,
        costs: CostsOf::Name(name.to_string()),
        tlb: Some(name.to_string()),
        split_frees: false,
        align_mappings: false,
        proactiveness: if kernel == Kernel::Old { 0 } else { 20 },
        ..MachineSpec::default()
    }
}

/// Programs on one of the papers' machines. The papers' systems have no budgets, and get none here.
fn scenario(machine: MachineSpec, programs: Vec<Placed>) -> Scenario {
    Scenario {
        machine,
        programs,
        interval: INTERVAL,
        stall_budget: Share::FULL,
        cpu_budget: Share::FULL,
        ..Scenario::default()
    }
}

pub(super) fn on_laptop(scale: f64, programs: Vec<Placed>) -> Scenario {
    scenario(machine(LAPTOP, "mega", Kernel::Old, scale), programs)
}

pub(super) fn on_server(scale: f64, programs: Vec<Placed>) -> Scenario {
    let machine = MachineSpec {
        nodes: 2,
        ..machine(SERVER, "mega-server", Kernel::Old, scale)
    };
    scenario(machine, programs)
}

pub(super) fn on_ryzen(scale: f64, programs: Vec<Placed>) -> Scenario {
    scenario(machine(RYZEN, "lrbhps", Kernel::Linux61, scale), programs)
}

pub(super) fn on_study(scale: f64, kernel: Kernel, programs: Vec<Placed>) -> Scenario {
    scenario(machine(STUDY, "study", kernel, scale), programs)
}

pub(super) fn on_ingens(scale: f64, programs: Vec<Placed>) -> Scenario {
    scenario(machine(INGENS, "ingens", Kernel::Old, scale), programs)
}

/// The same where run time is proportional to size: scans are more frequent at smaller scales, so that equally much happens between two.
pub(super) fn in_proportion(scenario: Scenario, scale: f64) -> Scenario {
    let interval = scenario.interval.mul_f64(scale.clamp(1e-3, 1.0));
    Scenario {
        interval: interval.max(Duration::from_millis(5)),
        ..scenario
    }
}

/// A program that starts at once.
pub(super) fn runs(run: Spec) -> Placed {
    Placed::new(run)
}

/// A paper's Redis at a scale, with this many requests of its clients in flight.
///
/// # Panics
/// When there is none of this name; a test covers all experiments.
pub(super) fn redis(name: &str, scale: f64, in_flight: u32) -> RedisOptions {
    let options = RedisOptions::of_paper(name).unwrap_or_else(|| panic!("no Redis of a paper '{name}'"));
    // A thousand values of half a megabyte exceed a small machine.
    let least = if options.most_bytes > 1 << 16 { 20 } else { 1000 };
    RedisOptions {
        keys: at_least(least, options.keys, scale),
        requests: options.requests.map(|n| count(n, scale)),
        in_flight,
        ..options
    }
}

/// Part of each huge page that LRBHPS's fragmenter unmaps. The paper does not say how much; GUPS with its 8 GB fits beside the rest.
const UNMAPPED_KIB: u64 = 1536;

/// Memory that the fragmenter leaves, besides 3 %: the kernel's own on a machine of any size, and a margin.
const KEPT: u64 = 64 * MIB;

/// LRBHPS's fragmenter (section 4.2), a program as any other: nearly all memory as huge pages, part of each unmapped.
pub(super) fn fragmenter(memory: Bytes) -> Placed {
    let run = Spec::Turnover(TurnoverOptions {
        mib: (memory.0 / 100 * 97).saturating_sub(KEPT) / MIB,
        piece_kib: 2048,
        keep_kib: 2048 - UNMAPPED_KIB,
        rounds: 0,
        ..TurnoverOptions::default()
    });
    Placed {
        name: Some("fragmenter".to_string()),
        ..Placed::new(run)
    }
}

/// An idle program that keeps the run going after the others have ended.
pub(super) fn watcher(seconds: u64) -> Placed {
    let run = Spec::Sparse(SparseOptions {
        mib: 16,
        time_ns: Some(seconds * 1_000_000_000),
        ..SparseOptions::default()
    });
    Placed {
        name: Some("watcher".to_string()),
        ..Placed::new(run)
    }
}

/// Linux with base pages.
pub(super) const fn base(paper: &'static str) -> SystemOf {
    SystemOf {
        paper,
        live: "base",
        text: "base",
    }
}

/// A system with the live variant's text.
pub(super) const fn same(paper: &'static str, text: &'static str) -> SystemOf {
    SystemOf {
        paper,
        live: text,
        text,
    }
}

/// A system that only runs in simulation.
pub(super) const fn only(paper: &'static str, text: &'static str) -> SystemOf {
    SystemOf { paper, live: "", text }
}

/// The published figures of the live experiment of this name, with our systems' texts and renamed metrics.
///
/// # Panics
/// When there is no such experiment; a test covers all of them.
pub(super) fn published_live(name: &str, systems: &[SystemOf], renamed: &[(&str, &str)]) -> Vec<Published> {
    let live = experiment::find(name).unwrap_or_else(|| panic!("no live experiment '{name}'"));
    let mut published = live.setup(1.0).published;
    for one in &mut published {
        let by_variant = |system: &&SystemOf| one.variant.as_deref().is_some_and(|live| live == system.live);
        let by_name = |system: &&SystemOf| one.variant.is_none() && one.system == system.paper;
        let system = systems.iter().find(|s| by_variant(s) || by_name(s));
        one.variant = system.map(|system| system.text.to_string());
        if let Some((_, to)) = renamed.iter().find(|(from, _)| *from == one.metric) {
            one.metric = (*to).to_string();
        }
    }
    published
}

/// Published figures of a system.
pub(super) fn published(place: &str, case: Option<&str>, system: &SystemOf, values: &[(&str, f64)]) -> Vec<Published> {
    experiment::published(place, case, system.paper, Some(system.text), values)
}
