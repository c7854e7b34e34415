//! What is measured: a workload of ours, a real program with its client, or any command. Each knows how to run itself once
//! and what it can say about it; everything else (variant, condition, sampling, noise) is done around it.

pub mod allocation;
pub mod batch;
pub mod builtin;
pub mod catalogue;
pub mod command;
pub mod mariadb;
pub mod memcached;
pub mod redis;
pub mod sqlite;
mod support;
mod task;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Instant;

pub use catalogue::{catalogue, Entry};
pub(crate) use support::latency_metrics;

use crate::result::{Distribution, Metric, Picture};

/// A program that cannot be run, or was not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed. With how to install it.
    #[error("{program} is not installed: {how}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// A command that installs it.
        how: &'static str,
    },
    /// It did not start, with what it said.
    #[error("{program} did not start: {why}")]
    Start {
        /// Its name.
        program: String,
        /// In one line.
        why: String,
    },
    /// It ended with an error, or by a signal.
    #[error("{program} ended with {status}{}", last_words(.said))]
    Ended {
        /// Its name.
        program: String,
        /// Exit status, in words.
        status: String,
        /// Its last line on stderr; may be empty.
        said: String,
    },
    /// It took too long and was ended.
    #[error("{program} was not done after {seconds} s and was ended")]
    Hung {
        /// Its name.
        program: String,
        /// The limit.
        seconds: u64,
    },
    /// Its memory or its answers were wrong: the worst that can be found.
    #[error("{program}: wrong data: {why}")]
    Wrong {
        /// Its name.
        program: String,
        /// What was found.
        why: String,
    },
    /// What it printed has no figure in it where one is expected.
    #[error("{program}: {why}")]
    NoFigure {
        /// Its name.
        program: String,
        /// What was looked for, and where.
        why: String,
    },
    /// The machine does not have now what it needs; another time it may.
    #[error("{0}")]
    NotHere(String),
    /// Stopped because the user asked.
    #[error("stopped")]
    Stopped,
    /// Anything else the system refused.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, to what.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

fn last_words(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

/// What a program needs of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Memory at its peak with all in huge pages, with its client.
    pub memory_bytes: u64,
    /// Free disk below the scratch folder.
    pub disk_bytes: u64,
}

/// Where and how to run once.
#[derive(Debug)]
pub struct Launch {
    /// The `mega` program, for `mega workload`.
    pub mega: PathBuf,
    /// Processor for the program.
    pub program_cpu: Option<usize>,
    /// Processor for its client.
    pub client_cpu: Option<usize>,
    /// Variables for the program, not for its client: a library to preload, and what that is told.
    pub environment: Vec<(OsString, OsString)>,
    /// An empty folder of its own, removed afterwards.
    pub scratch: PathBuf,
    /// Seed of everything random.
    pub seed: u64,
    /// When to give up.
    pub deadline: Instant,
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

impl Launch {
    /// Gives up when the time is over or the user wants to: call it in every loop that waits.
    ///
    /// # Errors
    /// [`ProgramError::Stopped`] or [`ProgramError::Hung`].
    pub fn check(&self, program: &str, limit_s: u64) -> Result<(), ProgramError> {
        if self.stop.load(Relaxed) {
            return Err(ProgramError::Stopped);
        }
        if Instant::now() >= self.deadline {
            return Err(ProgramError::Hung {
                program: program.to_string(),
                seconds: limit_s,
            });
        }
        Ok(())
    }
}

/// How a program tells what goes on while it runs. What listens attaches the manager, samples memory, marks phases.
pub trait Watch {
    /// This process does the work; called once it exists, before it has touched its memory. May be called for more than one.
    /// Returns once the process is being managed, when the variant manages.
    ///
    /// # Errors
    /// When it cannot be managed.
    fn process(&mut self, pid: i32) -> Result<(), ProgramError>;
    /// Something new begins: `fill`, `serve`, `delete`.
    fn phase(&mut self, name: &str);
    /// A figure at this moment, for the series: throughput so far.
    fn figure(&mut self, name: &str, value: f64);
    /// Memory figures are to be taken now (`rss_bytes`, `huge_bytes`, `waste_bytes`, `pss_bytes`), under these names with this
    /// prefix: at the moment the experiment is about. Called again with the same prefix, the later one holds.
    fn memory_now(&mut self, prefix: &str);
}

/// What one run gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// By metric name, in the metric's base unit.
    pub values: BTreeMap<String, f64>,
    /// Latencies by name.
    pub distributions: BTreeMap<String, Distribution>,
    /// Physical memory at moments of the run.
    pub pictures: Vec<Picture>,
}

/// Something that can be run and measured.
pub trait Program: std::fmt::Debug {
    /// Short name: `redis-del-50`, `gups`.
    fn name(&self) -> String;
    /// What runs, as a command line or in words, for the report.
    fn describe(&self) -> String;
    /// What it measures itself. Memory, processor time, faults and counters are measured around it and not listed here.
    fn metrics(&self) -> Vec<Metric>;
    /// What it needs.
    fn needs(&self) -> Needs;
    /// About how long one run takes, in seconds.
    fn seconds(&self) -> f64;
    /// Whether it can run here.
    ///
    /// # Errors
    /// [`ProgramError::Missing`] with how to install it.
    fn ready(&self) -> Result<(), ProgramError> {
        Ok(())
    }
    /// Runs once, from start to end, and ends everything that it started.
    ///
    /// # Errors
    /// Whatever went wrong, in one line.
    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError>;
}
