//! Sweeps: systems and their parameters × workloads × sizes of memory × states of memory × seeds, each combination a point with a number.
//!
//! ```text
//!   file ─► Sweep ─ points 0..n ─► shard ─► pool of threads ─► results.jsonl, a line each, synced
//!                                                                   │ once all are there, or on the way
//!                                                                   └─► points.csv (Table), report
//! ```
//!
//! A point's number follows from the file alone: workload, memory, state, seed, system, the last changing fastest. So shards (`--shard i/n`:
//! every n-th point) partition the points, and a resumed sweep leaves the same bytes as one that was never interrupted. `docs/simulator.md`
//! describes the file.

pub mod axes;
pub mod pool;
mod results;
mod run;
mod table;
#[cfg(test)]
mod tests;

pub use results::{Results, Row};
pub use run::{run, Done, Options, Progress};
pub use table::{Column, Table, Values};

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use mega_core::units::Bytes;
use mega_sim::scenario::{Fragment, Scenario, ScenarioError, System};
use serde::Deserialize;
use serde_json::Value;

use axes::Workload;

/// The most points of a sweep.
pub const MOST_POINTS: usize = 1_000_000;

/// Why a sweep cannot be run, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The text is no sweep: line, column, field.
    #[error("sweep: {0}")]
    Json(String),
    /// A field that makes no sense.
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
    /// A file of results could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process writes it.
    #[error("{} is being written by another sweep", .0.display())]
    Busy(PathBuf),
    /// Results of another sweep, or of another mega.
    #[error("{} {why}; give another folder, or --anew to begin anew", path.display())]
    Other {
        /// Which.
        path: PathBuf,
        /// What differs.
        why: String,
    },
    /// A line that no sweep wrote.
    #[error("{}, line {line}: {why}", path.display())]
    Line {
        /// Which.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// A field that makes no sense.
fn wrong(field: impl Into<String>, why: impl fmt::Display) -> SweepError {
    SweepError::Field {
        field: field.into(),
        why: why.to_string(),
    }
}

/// As it is written.
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
    hash: String,
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

/// Every n-th point: `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 1.
    pub number: usize,
    /// Of so many.
    pub of: usize,
}

impl Shard {
    /// All points.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Whether a point is of this shard.
    #[must_use]
    pub fn has(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no shard: expected 1/4 to 4/4, for example");
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        let whole = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<usize>().ok()).flatten().ok_or_else(bad)
        };
        let (number, of) = (whole(number)?, whole(of)?);
        if number == 0 || number > of || of > MOST_POINTS {
            return Err(bad());
        }
        Ok(Self { number, of })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Sweep {
    /// Reads a sweep and checks every combination.
    ///
    /// # Errors
    /// Where the text is wrong, or which point cannot be run.
    pub fn from_json(text: &str) -> Result<Self, SweepError> {
        let file: File = serde_json::from_str(text).map_err(|e| SweepError::Json(e.to_string()))?;
        let content: Value = serde_json::from_str(text).map_err(|e| SweepError::Json(e.to_string()))?;
        let base = file.scenario;
        if !base.programs.is_empty() || base.system.to_string() != "base" {
            let why = "programs and system are not its: see workloads and systems";
            return Err(wrong("scenario", why));
        }
        let sweep = Self {
            workloads: axes::workloads(&file.workloads)?,
            memory: axes::memory(&file.memory, base.machine.memory)?,
            fragment: axes::fragments(&file.fragment, base.fragment)?,
            seeds: axes::seeds(file.seeds, base.seed)?,
            systems: axes::systems(file.systems, &file.parameters)?,
            hash: format!("{:016x}", hash(canonical(&content).as_bytes())),
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

    /// Never: every list has something in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What its results are marked with: of another file it is another.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
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

/// The same content in another layout, or its fields in another order, is the same sweep.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, String> = fields.iter().map(|(key, value)| (key, canonical(value))).collect();
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// FNV-1a, 64 bits: it tells files apart, and withstands nobody who wants it not to.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
