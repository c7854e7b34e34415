//! A run from beginning to end: a machine, a system that manages its memory, the initial state of memory, programs.
//!
//! ```text
//!   Scenario ── build ─► Machine ── fragmented ─► programs, one clock ─► Outcome
//!      │                                                 ▲
//!      └── System: fault policy, scan policy, compaction ─┘  core's Control on a SimHost
//! ```
//!
//! Scenarios are written as JSON with defaults for everything omitted. The same scenario gives the same [`Outcome`], bit by bit.

mod as_text;
mod crew;
mod outcome;
mod system;
#[cfg(test)]
mod tests;

pub use outcome::{Outcome, ProgramOutcome, Sample};
pub use system::{System, SystemError, BACKDROPS};

use std::time::Duration;

use mega_core::budget::Budget;
use mega_core::control::{Control, Observer, Settings};
use mega_core::journal::Line;
use mega_core::units::{Bytes, Share};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Costs};
use crate::host::{Drive, SimHost};
use crate::machine::{Config, ConfigError, Machine};
use crate::physical::{Fragmenter, Layout};
use crate::tlb;
use crate::workload::{Program, ProgramError, Spec};
use as_text::Text;
use crew::{Crew, Member};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text is not a scenario: line, column, field.
    #[error("scenario: {0}")]
    Json(String),
    /// The machine.
    #[error("scenario: machine: {0}")]
    Machine(#[from] ConfigError),
    /// The TLB.
    #[error("scenario: machine: {0}")]
    Tlb(String),
    /// No costs of this name.
    #[error("scenario: machine: there is no {what} '{name}'; there are {known}")]
    Unknown {
        /// `costs`.
        what: &'static str,
        /// What was given.
        name: String,
        /// The known names.
        known: String,
    },
    /// A program.
    #[error("scenario: program {nth} ({name}): {source}")]
    Program {
        /// Its place in the list, from 1.
        nth: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        source: ProgramError,
    },
    /// No program is given.
    #[error("scenario: no programs")]
    Empty,
    /// A field with an invalid value.
    #[error("scenario: {field}: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// The least time between scans or samples.
const LEAST_TIME: Duration = Duration::from_millis(1);
/// The maximum swap space.
const MOST_SWAP: u64 = 1 << 40;
/// The maximum number of programs.
const MOST_PROGRAMS: usize = 1024;
/// A program may use so many times the machine's memory: enough to run out of memory.
const MOST_TIMES: u64 = 2;

/// A machine's costs: a name, or values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "serde_json::Value")]
pub enum CostsOf {
    /// One of [`cost::names`].
    Name(String),
    /// What `mega sim calibrate` wrote.
    Values(Box<Costs>),
}

impl TryFrom<serde_json::Value> for CostsOf {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        match value {
            serde_json::Value::String(name) => Ok(Self::Name(name)),
            value => serde_json::from_value(value)
                .map(Self::Values)
                .map_err(|e| format!("costs: {e}")),
        }
    }
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineSpec {
    /// Its memory.
    #[serde(with = "as_text")]
    pub memory: Bytes,
    /// NUMA nodes.
    pub nodes: u8,
    /// Processors: they determine the size of the per-CPU free lists.
    pub cpus: u16,
    /// The GB below 4 GB is device memory, as on PCs.
    pub pc_hole: bool,
    /// What things cost.
    pub costs: CostsOf,
    /// The TLB by name; none: translation is free.
    pub tlb: Option<String>,
    /// Swap space.
    #[serde(with = "as_text")]
    pub swap: Bytes,
    /// A split frees zero-filled base pages (Linux 6.12 and later).
    pub split_frees: bool,
    /// `vm.compaction_proactiveness`; 0: kcompactd only when woken (before Linux 5.9).
    pub proactiveness: u8,
    /// Large mappings are aligned to 2 MB (Linux 6.7 and later).
    pub align_mappings: bool,
}

impl Default for MachineSpec {
    /// The development machine, with 16 GB.
    fn default() -> Self {
        Self {
            memory: Bytes(16 << 30),
            nodes: 1,
            cpus: 2,
            pc_hole: false,
            costs: CostsOf::Name("development".to_string()),
            tlb: Some("development".to_string()),
            swap: Bytes(0),
            split_frees: true,
            proactiveness: 20,
            align_mappings: true,
        }
    }
}

impl MachineSpec {
    /// The machine's configuration.
    ///
    /// # Errors
    /// The invalid part.
    pub fn config(&self, seed: u64) -> Result<Config, ScenarioError> {
        let unknown = |what, name: &str, known: Vec<&str>| ScenarioError::Unknown {
            what,
            name: name.chars().take(64).collect(),
            known: known.join(", "),
        };
        let costs = match &self.costs {
            CostsOf::Name(name) => cost::preset(name).ok_or_else(|| unknown("costs", name, cost::names().to_vec()))?,
            CostsOf::Values(costs) => (**costs).clone(),
        };
        let tlb = match &self.tlb {
            None => None,
            Some(text) => Some(tlb::named(text).map_err(ScenarioError::Tlb)?),
        };
        let mut layout = Layout::of_bytes(self.memory.0).with_nodes(self.nodes);
        layout.cpus = self.cpus;
        if self.pc_hole {
            layout = layout.with_pc_hole();
        }
        let config = Config {
            layout,
            costs,
            tlb,
            seed,
            swap_bytes: self.swap.0,
            split_frees: self.split_frees,
            proactiveness: self.proactiveness,
            align_mappings: self.align_mappings,
            ..Config::of_bytes(self.memory.0)
        };
        config.check()?;
        Ok(config)
    }
}

/// The state of memory before the programs start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fragment {
    /// At least this share of free memory lies outside free blocks; a part of the fragmented blocks is unmovable.
    Unusable {
        /// The share.
        #[serde(with = "as_text")]
        share: Share,
        /// Share of the blocks with kernel pages.
        #[serde(with = "as_text", default)]
        unmovable: Share,
    },
    /// The allocation-latency study's frag: 28 of 32 GB, three of four pages freed.
    Study,
    /// LRBHPS's (section 4.2): huge pages to exhaustion, this part of each unmapped.
    Lrbhps {
        /// The part.
        #[serde(with = "as_text")]
        part: Share,
    },
}

impl Fragment {
    fn fragmenter(self, memory: Bytes, seed: u64) -> Fragmenter {
        match self {
            Self::Unusable { share, unmovable } => Fragmenter::ballast(share, unmovable, seed),
            Self::Study => Fragmenter::study(memory.0),
            Self::Lrbhps { part } => Fragmenter::lrbhps(part, seed),
        }
    }
}

/// A program and when it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The program: `{"program": "gups", "mib": 4096}`.
    pub run: Spec,
    /// Its name in the results; by default the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it starts.
    #[serde(with = "as_text", default)]
    pub starts: Duration,
    /// That counts from the end of this program: its place in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    /// Its memory is freed when it ends; otherwise when the run ends.
    #[serde(default)]
    pub exits: bool,
    /// The NUMA node of the processor that it runs on: its memory comes from there first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub node: u8,
}

impl Placed {
    /// This program from the start.
    #[must_use]
    pub fn new(run: Spec) -> Self {
        Self {
            run,
            name: None,
            starts: Duration::ZERO,
            after: None,
            exits: false,
            node: 0,
        }
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The machine.
    pub machine: MachineSpec,
    /// The system that manages memory.
    pub system: System,
    /// The state of memory; none: all free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Fragment>,
    /// The programs.
    pub programs: Vec<Placed>,
    /// Time between the manager's scans.
    #[serde(with = "as_text")]
    pub interval: Duration,
    /// Maximum share of time that a program is stalled by the manager.
    #[serde(with = "as_text")]
    pub stall_budget: Share,
    /// Maximum share of a processor used by the manager.
    #[serde(with = "as_text")]
    pub cpu_budget: Share,
    /// The run ends then, even if programs are still running.
    #[serde(with = "as_text::optional", skip_serializing_if = "Option::is_none")]
    pub ends: Option<Duration>,
    /// Time between two samples.
    #[serde(with = "as_text")]
    pub every: Duration,
    /// Seed of the machine; programs have their own.
    pub seed: u64,
    /// Also report observations and all decisions to the observer, so that they can be replayed. Not part of the JSON.
    #[serde(skip)]
    pub full_journal: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            machine: MachineSpec::default(),
            // It is the first name in the grammar.
            system: "base".parse().expect("a system"),
            fragment: None,
            programs: Vec::new(),
            interval: settings.interval,
            stall_budget: settings.budget.stall,
            cpu_budget: settings.budget.cpu,
            ends: None,
            every: Duration::from_secs(1),
            seed: 1,
            full_journal: false,
        }
    }
}

impl Scenario {
    /// Reads a scenario and checks it.
    ///
    /// # Errors
    /// Invalid text, or an invalid value.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_json::from_str(text).map_err(|e| ScenarioError::Json(e.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// As JSON that reads back the same.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Texts and numbers only: it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Checks whether it can be run.
    ///
    /// # Errors
    /// What is invalid.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_machine()?;
        if self.programs.len() > MOST_PROGRAMS {
            let why = format!("{}; at most {MOST_PROGRAMS}", self.programs.len());
            return Err(ScenarioError::Field { field: "programs", why });
        }
        let most = (self.machine.memory.0 + self.machine.swap.0).saturating_mul(MOST_TIMES);
        for (i, placed) in self.programs.iter().enumerate() {
            if placed
                .after
                .is_some_and(|other| other == i || other >= self.programs.len())
            {
                return Err(ScenarioError::Field {
                    field: "programs.after",
                    why: format!("program {} waits for a program that is not in the list", i + 1),
                });
            }
            let needs = placed.run.needs_bytes();
            if needs > most {
                let text = format!("needs {needs} bytes, more than {MOST_TIMES} times the machine's memory");
                return Err(ScenarioError::Program {
                    nth: i + 1,
                    name: placed.run.name().to_string(),
                    source: ProgramError::Usage(text),
                });
            }
        }
        self.members().map(drop)
    }

    /// Checks whether it can be run with the caller's programs: see [`Scenario::run_programs`].
    ///
    /// # Errors
    /// What is invalid.
    pub fn check_machine(&self) -> Result<(), ScenarioError> {
        self.machine.config(self.seed)?;
        let wrong = |field, why: String| Err(ScenarioError::Field { field, why });
        if self.machine.swap.0 > MOST_SWAP {
            return wrong("machine.swap", format!("{} is more than 1T", self.machine.swap.show()));
        }
        for (field, time) in [("interval", self.interval), ("every", self.every)] {
            if time < LEAST_TIME {
                return wrong(field, format!("{} is less than {}", time.show(), LEAST_TIME.show()));
            }
        }
        for (field, budget) in [("stall_budget", self.stall_budget), ("cpu_budget", self.cpu_budget)] {
            if budget == Share::ZERO {
                return wrong(field, "must exceed 0%".to_string());
            }
        }
        Ok(())
    }

    fn tlb_mhz(&self) -> u32 {
        let preset = self.machine.tlb.as_deref().and_then(|text| tlb::named(text).ok());
        preset.map_or(0, |preset| preset.mhz)
    }

    fn members(&self) -> Result<Vec<Member>, ScenarioError> {
        if self.programs.is_empty() {
            return Err(ScenarioError::Empty);
        }
        let member = |(i, placed): (usize, &Placed)| {
            let name = placed.name.clone().unwrap_or_else(|| placed.run.name().to_string());
            let program = placed.run.build().map_err(|source| ScenarioError::Program {
                nth: i + 1,
                name: name.clone(),
                source,
            })?;
            Ok(Member::new(name, program, nanos(placed.starts), placed.exits)
                .after(placed.after)
                .on(placed.node))
        };
        self.programs.iter().enumerate().map(member).collect()
    }

    /// The machine, with its memory in the initial state.
    ///
    /// # Errors
    /// What is invalid.
    pub fn machine(&self) -> Result<Machine, ScenarioError> {
        let config = self.machine.config(self.seed)?;
        let mut machine = Machine::new(&config, self.system.fault_policy());
        if let Some(fragment) = self.fragment {
            let how = fragment.fragmenter(self.machine.memory, self.seed);
            machine.physical_mut().fragment(&how);
        }
        Ok(machine)
    }

    /// Runs it. `observer` receives the manager's events.
    ///
    /// # Errors
    /// What is invalid. A program that fails is no error: the outcome has it.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Outcome, ScenarioError> {
        let members = self.members()?;
        Ok(self.run_members(self.machine()?, members, observer))
    }

    /// Runs these programs, each with its name, instead of the scenario's own: a trace, for example.
    ///
    /// # Errors
    /// What is invalid.
    pub fn run_programs(
        &self,
        programs: Vec<(String, Box<dyn Program<Machine>>)>,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ScenarioError> {
        let members = programs
            .into_iter()
            .map(|(name, program)| Member::new(name, program, 0, false));
        Ok(self.run_members(self.machine()?, members.collect(), observer))
    }

    fn run_members(&self, machine: Machine, members: Vec<Member>, observer: &mut dyn Observer) -> Outcome {
        let mut crew = Crew::new(members, nanos(self.every));
        let stop_ns = self.ends.map_or(u64::MAX, nanos);
        let (machine, crew, manager) = match self.system.scan_policy() {
            None => {
                let mut machine = machine;
                if crew.run(&mut machine, stop_ns) {
                    machine.pass_until(stop_ns);
                }
                (machine, crew, None)
            }
            Some(mut policy) => {
                let mut host = SimHost::new(machine, crew, stop_ns);
                host.compacting = self.system.compacting();
                let settings = Settings {
                    interval: self.interval,
                    budget: Budget {
                        stall: self.stall_budget,
                        cpu: self.cpu_budget,
                        ..Budget::default()
                    },
                    full_journal: self.full_journal,
                    ..Settings::default()
                };
                let control = Control::new(&mut host, policy.as_mut(), settings, observer);
                let status = control.with_free_block_target(self.system.free_block_target()).run();
                (host.machine, host.drive, Some(status))
            }
        };
        let (programs, samples) = crew.finish(&machine);
        let ends = programs.iter().map(|program| program.end_ns);
        let end_ns = ends.fold(machine.now_ns(), u64::max);
        Outcome {
            programs,
            samples,
            counters: machine.counters(),
            background: *machine.background(),
            faults: machine.fault_latency().clone(),
            tlb: machine.tlb_counts(),
            tlb_mhz: self.tlb_mhz(),
            manager,
            unusable_ppm: machine.physical().unusable(crate::unit::BLOCK_ORDER).as_millionths(),
            zones: machine.physical().free_by_order(),
            end_ns,
        }
    }
}

fn is_zero(node: &u8) -> bool {
    *node == 0
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Line) {}
}
