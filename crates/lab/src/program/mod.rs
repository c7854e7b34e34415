//! What is measured: a workload of ours, a real program with its client, or any command. Each runs itself once and reports its
//! figures; everything else (variant, condition, sampling, noise) is done around it.

pub mod allocation;
pub mod batch;
pub mod builtin;
pub mod catalogue;
pub mod command;
pub mod mariadb;
pub mod memcached;
pub mod real;
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

/// Why a program could not be run or did not complete.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error("{program} is not installed: {how}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// A command that installs it.
        how: &'static str,
    },
    /// It did not start.
    #[error("{program} did not start: {why}")]
    Start {
        /// Its name.
        program: String,
        /// In one line.
        why: String,
    },
    /// It exited with an error or by a signal.
    #[error("{program} ended with {status}{}", last_words(.said))]
    Ended {
        /// Its name.
        program: String,
        /// Exit status, in words.
        status: String,
        /// Its last line on stderr; may be empty.
        said: String,
    },
    /// It exceeded its time limit and was killed.
    #[error("{program} did not finish within {seconds} s and was killed")]
    Hung {
        /// Its name.
        program: String,
        /// The limit.
        seconds: u64,
    },
    /// Its memory or its answers were wrong: the worst case.
    #[error("{program}: wrong data: {why}")]
    Wrong {
        /// Its name.
        program: String,
        /// What was found.
        why: String,
    },
    /// Its output lacks an expected figure.
    #[error("{program}: {why}")]
    NoFigure {
        /// Its name.
        program: String,
        /// What was looked for, and where.
        why: String,
    },
    /// The machine lacks a resource at the moment.
    #[error("{0}")]
    NotHere(String),
    /// Stopped because the user asked.
    #[error("stopped")]
    Stopped,
    /// Another system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, to what.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
}

fn last_words(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

/// Resources that a program needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Peak memory with everything in huge pages, including its client.
    pub memory_bytes: u64,
    /// Free disk below the scratch folder.
    pub disk_bytes: u64,
}

/// What applies to the program alone.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Its environment: a library to preload and its settings.
    pub environment: Vec<(OsString, OsString)>,
    /// That library is the agent.
    pub has_agent: bool,
    /// It has base pages only, by prctl(PR_SET_THP_DISABLE).
    pub base_pages_only: bool,
}

/// Where and how to run once.
#[derive(Debug)]
pub struct Launch {
    /// The program `mega`: managers.
    pub mega: PathBuf,
    /// The program `mega-lab`: workloads, the fragmenter.
    pub lab: PathBuf,
    /// Processor for the program.
    pub program_cpu: Option<usize>,
    /// Processor for its client.
    pub client_cpu: Option<usize>,
    /// What applies to the program, not to its client.
    pub own: Own,
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
    /// Fails at the deadline or when the user stops: call it in every waiting loop.
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

/// Receives the progress of a running program: attaches the manager, samples memory, marks phases.
pub trait Watch {
    /// Announces a process that does the work, before it touches its memory; may be called for several. Returns once the process is
    /// managed, in variants with a policy.
    ///
    /// # Errors
    /// When it cannot be managed.
    fn process(&mut self, pid: i32) -> Result<(), ProgramError>;
    /// A phase begins: `fill`, `serve`, `delete`.
    fn phase(&mut self, name: &str);
    /// A current figure, for the series: throughput.
    fn figure(&mut self, name: &str, value: f64);
    /// Takes memory figures now (`rss_bytes`, `huge_bytes`, `waste_bytes`, `pss_bytes`), under these names with this prefix: at the
    /// moment the experiment measures. A later call with the same prefix replaces them.
    fn memory_now(&mut self, prefix: &str);
}

/// Result of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// By metric name, in the metric's base unit.
    pub values: BTreeMap<String, f64>,
    /// Latencies by name.
    pub distributions: BTreeMap<String, Distribution>,
    /// Snapshots of physical memory.
    pub pictures: Vec<Picture>,
}

/// A program that can be run and measured.
pub trait Program: std::fmt::Debug {
    /// Short name: `redis-del-50`, `gups`.
    fn name(&self) -> String;
    /// What runs, as a command line or in words, for the report.
    fn describe(&self) -> String;
    /// What it measures itself. Memory, processor time, faults and counters are measured around it and not listed here.
    fn metrics(&self) -> Vec<Metric>;
    /// What it needs.
    fn needs(&self) -> Needs;
    /// Estimated time of one run, in seconds.
    fn seconds(&self) -> f64;
    /// Whether it can run here.
    ///
    /// # Errors
    /// [`ProgramError::Missing`] with how to install it.
    fn ready(&self) -> Result<(), ProgramError> {
        Ok(())
    }
    /// Runs once to completion, and stops everything that it started.
    ///
    /// # Errors
    /// What failed, in one line.
    fn run(&self, launch: &Launch, watch: &mut dyn Watch) -> Result<Figures, ProgramError>;
}
