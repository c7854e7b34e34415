//! Sweeps: systems and their parameters × workloads × sizes of memory × states of memory × seeds. Each combination is a numbered point.
//!
//! ```text
//!   file ─► Sweep ─ points 0..n ─► threads ─► rows in order ─► points.csv, record (result.json, report)
//! ```
//!
//! A point's number follows from the file alone: workload, memory, state, seed, system, the last changing fastest. Results are the same
//! bytes on any number of threads, and of machines (`shard`). `docs/simulator.md` describes the file.

pub mod axes;
mod csv;
mod record;
mod run;
pub mod shard;
#[cfg(test)]
mod tests;

pub use run::{all_of, points, run, Done, Options, Points, Progress, Row};

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use mega_core::units::Bytes;
use mega_sim::scenario::{Fragment, Scenario, ScenarioError, System};
use serde::Deserialize;
use serde_json::Value;

use axes::Workload;

/// The most points of a sweep: all results are kept in memory until its end.
pub const MOST_POINTS: usize = 100_000;

/// Why a sweep cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Not a sweep: line, column, field.
    #[error("sweep: {0}")]
    Json(String),
    /// An invalid field.
    #[error("sweep: {field}: {why}")]
    Field {
        /// Its path: `workloads[2]`.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A point that cannot be run.
    #[error("sweep: {point}: {source}")]
    Point {
        /// Which, in words.
        point: String,
        /// Why.
        source: ScenarioError,
    },
    /// A file of results could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no shard, or does not go with the others.
    #[error("{}: {why}", path.display())]
    Shard {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Not every shard is there.
    #[error("shards are missing: {0}")]
    Missing(String),
}

/// An invalid field.
fn wrong(field: impl Into<String>, why: impl fmt::Display) -> SweepError {
    SweepError::Field {
        field: field.into(),
        why: why.to_string(),
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    scenario: Scenario,
    systems: Vec<System>,
    #[serde(default)]
    parameters: BTreeMap<String, Vec<String>>,
    workloads: Vec<Value>,
    #[serde(default)]
    memory: Vec<String>,
    #[serde(default)]
    fragment: Vec<Value>,
    #[serde(default)]
    seeds: Vec<u64>,
}

/// A sweep.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// What all points share.
    base: Scenario,
    workloads: Vec<Workload>,
    memory: Vec<Bytes>,
    fragment: Vec<Option<Fragment>>,
    seeds: Vec<u64>,
    /// With their parameters.
    systems: Vec<System>,
}

/// One point: places in the sweep's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its number, from 0.
    pub index: usize,
    /// Which workload.
    pub workload: usize,
    /// Which size of memory.
    pub memory: usize,
    /// Which state of memory.
    pub fragment: usize,
    /// Which seed.
    pub seed: usize,
    /// Which system.
    pub system: usize,
}

impl Sweep {
    /// Reads a sweep and checks every combination.
    ///
    /// # Errors
    /// Where the text is wrong, or which point cannot be run.
    pub fn from_json(text: &str) -> Result<Self, SweepError> {
        let file: File = serde_json::from_str(text).map_err(|e| SweepError::Json(e.to_string()))?;
        let base = file.scenario;
        if !base.programs.is_empty() || base.system.to_string() != "base" {
            let why = "must not have programs or system; use workloads and systems";
            return Err(wrong("scenario", why));
        }
        let sweep = Self {
            workloads: axes::workloads(&file.workloads)?,
            memory: axes::memory(&file.memory, base.machine.memory)?,
            fragment: axes::fragments(&file.fragment, base.fragment)?,
            seeds: axes::seeds(file.seeds, base.seed)?,
            systems: axes::systems(file.systems, &file.parameters)?,
            base,
        };
        sweep.check()?;
        Ok(sweep)
    }

    fn sizes(&self) -> [usize; 5] {
        [
            self.workloads.len(),
            self.memory.len(),
            self.fragment.len(),
            self.seeds.len(),
            self.systems.len(),
        ]
    }

    fn check(&self) -> Result<(), SweepError> {
        let points = self
            .sizes()
            .iter()
            .try_fold(1usize, |all, size| all.checked_mul(*size))
            .filter(|points| *points <= MOST_POINTS);
        if points.is_none() {
            let [workloads, memory, fragment, seeds, systems] = self.sizes();
            let why = format!(
                "{workloads} workloads, {memory} sizes, {fragment} states, {seeds} seeds and {systems} systems are more than \
                 {MOST_POINTS} points"
            );
            return Err(wrong("lists", why));
        }
        // Whether it can be run does not depend on seed or system.
        let step = self.seeds.len() * self.systems.len();
        for index in (0..self.len()).step_by(step) {
            let point = self.point(index);
            self.scenario(point).check().map_err(|source| SweepError::Point {
                point: self.label(point),
                source,
            })?;
        }
        Ok(())
    }

    /// Number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sizes().iter().product()
    }

    /// Never: no list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The systems, with their parameters.
    #[must_use]
    pub fn systems(&self) -> &[System] {
        &self.systems
    }

    /// The names of the programs that run, each once.
    #[must_use]
    pub fn programs(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for workload in &self.workloads {
            for name in workload.programs() {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// The point of this number.
    #[must_use]
    pub fn point(&self, index: usize) -> Point {
        let mut rest = index;
        let mut place = |size: usize| {
            let place = rest % size;
            rest /= size;
            place
        };
        let [_, memory, fragment, seeds, systems] = self.sizes();
        let (system, seed, fragment, memory) = (place(systems), place(seeds), place(fragment), place(memory));
        Point {
            index,
            workload: rest,
            memory,
            fragment,
            seed,
            system,
        }
    }

    /// What a point runs.
    #[must_use]
    pub fn scenario(&self, point: Point) -> Scenario {
        let mut scenario = self.base.clone();
        scenario.machine.memory = self.memory[point.memory];
        scenario.fragment = self.fragment[point.fragment];
        scenario.seed = self.seeds[point.seed];
        scenario.system = self.systems[point.system].clone();
        scenario.programs = self.workloads[point.workload].placed(scenario.seed);
        scenario
    }

    /// A point for people.
    #[must_use]
    pub fn label(&self, point: Point) -> String {
        format!(
            "{}, {}, {}, {}, seed {}",
            self.workloads[point.workload].name,
            self.systems[point.system],
            self.memory[point.memory],
            axes::fragment_text(self.fragment[point.fragment]),
            self.seeds[point.seed],
        )
    }
}
