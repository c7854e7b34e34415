//! What an experiment runs: programs under conditions, variants, and how.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::measure::{agent, counters, faults, manager, mosaic, speedup, summary};
use crate::prepare::condition::Condition;
use crate::program::Program;
use crate::result::{Case, Metric, Record};
use crate::variant::Variant;

/// A program under a condition.
#[derive(Debug)]
pub struct CasePlan {
    /// Short name, unique in the plan.
    pub name: String,
    /// What runs.
    pub program: Box<dyn Program>,
    /// The state of the machine.
    pub condition: Condition,
}

/// What to run.
#[derive(Debug)]
pub struct Plan {
    /// Programs under conditions.
    pub cases: Vec<CasePlan>,
    /// How memory is managed; the first is the baseline.
    pub variants: Vec<Variant>,
    /// Further options for every manager: `--interval 1s`.
    pub manager_options: Vec<String>,
    /// Keep a prefaulted pool for the program. Not where free blocks are measured: the pool holds them.
    pub prefault: bool,
    /// Measure page fault latency by the kernel's tracepoints.
    pub faults: bool,
    /// Metrics that are shown first, by name.
    pub main: Vec<String>,
    /// Folder for recordings of what no manager manages: CASE.trace, CASE.2.trace of a further process that the program names.
    pub record: Option<PathBuf>,
}

/// How to run it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `mega`: managers.
    pub mega: PathBuf,
    /// The program `mega-lab`: workloads, the fragmenter.
    pub lab: PathBuf,
    /// libmemomania.so, for variants with a mosaic of page sizes; or why it is missing.
    pub library: Result<PathBuf, String>,
    /// Where the state of managers and settings is kept: /run/mega.
    pub state: PathBuf,
    /// Rounds.
    pub rounds: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Processor of the program.
    pub program_cpu: Option<usize>,
    /// Processor of clients, manager and sampler.
    pub client_cpu: Option<usize>,
    /// Set to stop after the current run.
    pub stop: Arc<AtomicBool>,
}

/// Progress of an experiment.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins: its number from 0, of so many.
    Begins {
        /// Number of this run.
        number: usize,
        /// Of so many.
        of: usize,
        /// Its case.
        case: &'a str,
        /// Its variant.
        variant: String,
        /// Its round, from 0.
        round: usize,
    },
    /// A phase of it begins.
    Phase(&'a str),
    /// It ended; the record so far.
    Ended(&'a Record),
}

impl Plan {
    /// All metrics, once each; the main ones are marked and come first, in their order.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all: Vec<Metric> = Vec::new();
        let own = self.cases.iter().flat_map(|case| case.program.metrics());
        let around = summary::metrics()
            .into_iter()
            .chain(faults::metrics())
            .chain(mosaic::metrics())
            .chain(self.wants_speedup().then(speedup::metric))
            .chain(manager::metrics())
            .chain(agent::metrics())
            .chain(counters::metrics());
        for mut metric in own.chain(around) {
            if all.iter().all(|known| known.name != metric.name) {
                metric.main = self.main.contains(&metric.name);
                all.push(metric);
            }
        }
        let place = |metric: &Metric| {
            self.main
                .iter()
                .position(|name| *name == metric.name)
                .unwrap_or(usize::MAX)
        };
        all.sort_by_key(place);
        all
    }

    /// Speed-ups are for papers that have no other figures.
    pub(super) fn wants_speedup(&self) -> bool {
        self.main.iter().any(|name| name == speedup::NAME)
    }

    /// The cases, for the record.
    #[must_use]
    pub fn case_infos(&self) -> Vec<Case> {
        let info = |case: &CasePlan| Case {
            name: case.name.clone(),
            program: case.program.describe(),
            condition: case.condition.to_string(),
        };
        self.cases.iter().map(info).collect()
    }

    /// Estimated time for this number of rounds, in seconds.
    #[must_use]
    pub fn seconds(&self, rounds: usize) -> f64 {
        let once: f64 = self.cases.iter().map(|case| case.program.seconds() + 4.0).sum();
        // A variant with a profile has one run more: the one that the profile is of.
        let known = self.variants.iter().filter(|variant| variant.is_known()).count();
        once * (self.variants.len() * rounds + known) as f64
    }
}
