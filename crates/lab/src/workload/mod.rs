//! The workloads: each is one process that lays out memory in a defined way, uses it, checks it, and reports as JSON
//! lines. `mega workload NAME --key value…` and the binary `mega-workload` both call [`run`]. [`stage`] defines the events and
//! their order.

pub mod arenas;
pub mod btree;
pub mod chunks;
pub mod churn;
pub mod compute;
pub mod events;
pub mod forks;
pub mod graph;
pub mod grow;
pub mod gups;
pub mod hold;
pub mod holes;
mod hot;
pub mod kinds;
pub mod kv;
pub mod paths;
pub mod rehash;
pub mod simplex;
pub mod sizes;
pub mod sparse_area;
pub mod stage;
pub mod store;
pub mod storm;
pub mod stride;
pub mod table;
pub mod touch;

pub use mega_sim::workload::pattern::Zipf;
pub use stage::Stage;

use crate::memory::{self, Area, Heap, Mapping, MemoryError};
use clap::Parser;
use serde_json::{json, Value};
use std::ops::Range;

/// Bytes of a mebibyte.
pub const MIB: usize = 1 << 20;

/// Why a workload failed, or what corruption it found.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload {0:?}; there are {names}", names = names())]
    Unknown(String),
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
    /// A memory call failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Some other system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the kernel answered.
        source: std::io::Error,
    },
    /// Memory does not contain what was written: the most serious failure.
    #[error("corrupt memory: {0}")]
    Corrupt(String),
}

impl WorkloadError {
    /// The exit status for this error: 2 for wrong usage, 3 for corrupt memory, 1 otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unknown(_) | Self::Usage(_) => 2,
            Self::Corrupt(_) => 3,
            Self::Memory(_) | Self::System { .. } => 1,
        }
    }

    /// Corrupt memory of `workload`.
    pub(crate) fn corrupt(workload: &str, what: std::fmt::Arguments<'_>) -> Self {
        Self::Corrupt(format!("{workload}: {what}"))
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// A workload's memory and approximate run time, from its options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Peak memory if all of it is huge pages.
    pub memory_bytes: u64,
    /// Run time, first touch included; `None`: until it is told to quit.
    pub seconds: Option<f64>,
}

/// A workload, as its options.
pub trait Workload: Parser {
    /// The common options.
    fn common(&self) -> &Common;
    /// Its approximate needs.
    fn plan(&self) -> Plan;
    /// Runs it to its end.
    ///
    /// # Errors
    /// Failed system calls, options that make no sense together, corrupt memory.
    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError>;
}

/// Base pages that are touched for the first time per second (approximate; for plans only).
const TOUCHES_PER_SECOND: f64 = 500_000.0;

impl Plan {
    /// The plan of a workload that fills `mib` MiB and then runs for `seconds`.
    #[must_use]
    pub fn of(mib: usize, seconds: f64) -> Self {
        let memory_bytes = (mib as u64).saturating_mul(MIB as u64);
        Self {
            memory_bytes,
            seconds: Some(seconds + Self::touch_seconds(mib)),
        }
    }

    /// The same; without `seconds` it runs until it is told to quit.
    #[must_use]
    pub fn held(mib: usize, seconds: Option<f64>) -> Self {
        let plan = Self::of(mib, seconds.unwrap_or(0.0));
        Self {
            seconds: plan.seconds.filter(|_| seconds.is_some()),
            ..plan
        }
    }

    /// Time to touch `mib` MiB for the first time.
    #[must_use]
    pub fn touch_seconds(mib: usize) -> f64 {
        mib as f64 * (MIB / 4096) as f64 / TOUCHES_PER_SECOND
    }
}

/// A workload's name and description.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    start: fn(&[String]) -> Result<(), WorkloadError>,
    plan: fn(&[String]) -> Result<Option<Plan>, WorkloadError>,
}

macro_rules! entry {
    ($name:literal, $help:literal, $options:ty) => {
        Entry {
            name: $name,
            help: $help,
            start: |args| parse_and_run::<$options>(args, $name),
            plan: |args| Ok(parse::<$options>(args, $name)?.map(|o| o.plan())),
        }
    };
}

/// All workloads.
pub const LIST: &[Entry] = &[
    entry!(
        "gups",
        "random updates of a large table of 64-bit integers",
        gups::Options
    ),
    entry!(
        "store",
        "a key-value store with a dense hot and a scattered part",
        store::Options
    ),
    entry!(
        "kv",
        "a hash table under reads, inserts and deletes of popular keys",
        kv::Options
    ),
    entry!("btree", "a B-tree under random inserts and lookups", btree::Options),
    entry!("graph", "page rank on a generated scale-free graph", graph::Options),
    entry!(
        "simplex",
        "a network simplex on malloc'ed arcs and nodes (like 429.mcf)",
        simplex::Options
    ),
    entry!(
        "events",
        "a discrete event simulation of small objects (like 471.omnetpp)",
        events::Options
    ),
    entry!(
        "paths",
        "path finding by A* on a map, one object per cell (like 473.astar)",
        paths::Options
    ),
    entry!(
        "compute",
        "hashes a small area: gains nothing from huge pages",
        compute::Options
    ),
    entry!("touch", "times each first touch of an area", touch::Options),
    entry!(
        "chunks",
        "fills chunks and goes on using one in six (MEGA, Table 4)",
        chunks::Options
    ),
    entry!(
        "churn",
        "allocates, iterates over and frees memory (MEGA, Table 5)",
        churn::Options
    ),
    entry!("stride", "visits memory in strides (MEGA, Table 6)", stride::Options),
    entry!(
        "sizes",
        "allocates and frees objects of doubling size (MEGA, Figure 1)",
        sizes::Options
    ),
    entry!(
        "holes",
        "frees half of its memory in 1 MB chunks (MEGA, Figure 2)",
        holes::Options
    ),
    entry!("grow", "fills an array that realloc grows", grow::Options),
    entry!("rehash", "fills and reads a hash table that doubles", rehash::Options),
    entry!("arenas", "threads with small objects of all sizes", arenas::Options),
    entry!("forks", "a fork server: copies on write", forks::Options),
    entry!(
        "kinds",
        "regions of the four kinds a policy must distinguish",
        kinds::Options
    ),
    entry!(
        "sparse",
        "touches a scattered share of base pages and holds them",
        hold::SparseOptions
    ),
    entry!("dense", "touches all of an area and keeps it hot", hold::DenseOptions),
    entry!(
        "storm",
        "all memory calls concurrently, with every word checked",
        storm::Options
    ),
];

fn names() -> String {
    LIST.iter().map(|e| e.name).collect::<Vec<_>>().join(", ")
}

fn entry(name: &str) -> Result<&'static Entry, WorkloadError> {
    let found = LIST.iter().find(|e| e.name == name);
    found.ok_or_else(|| WorkloadError::Unknown(name.to_string()))
}

/// Runs workload `name` with `args` to completion, or prints its help if `args` ask for it.
///
/// From here on the process dies with its parent.
///
/// # Errors
/// Wrong usage, failed system calls, corrupt memory.
pub fn run(name: &str, args: &[String]) -> Result<(), WorkloadError> {
    (entry(name)?.start)(args)
}

/// The plan of workload `name` with `args`.
///
/// # Errors
/// Wrong usage; here a request for help counts as such.
pub fn plan(name: &str, args: &[String]) -> Result<Plan, WorkloadError> {
    let plan = (entry(name)?.plan)(args)?;
    plan.ok_or_else(|| WorkloadError::Usage(format!("{name} {}: help has no plan", args.join(" "))))
}

/// Parses `args`; `None` when they ask for help, which is printed.
fn parse<O: Workload>(args: &[String], name: &'static str) -> Result<Option<O>, WorkloadError> {
    let command = O::command().name(name).no_binary_name(true);
    match command.try_get_matches_from(args).and_then(|m| O::from_arg_matches(&m)) {
        Ok(options) => Ok(Some(options)),
        Err(e) if e.use_stderr() => Err(WorkloadError::Usage(e.to_string().trim_end().to_string())),
        Err(help) => {
            print!("{help}");
            Ok(None)
        }
    }
}

fn parse_and_run<O: Workload>(args: &[String], name: &'static str) -> Result<(), WorkloadError> {
    let Some(options) = parse::<O>(args, name)? else {
        return Ok(());
    };
    memory::die_with_parent().map_err(WorkloadError::system("die with the parent"))?;
    options.common().apply()?;
    match Stage::enter(name, options.common()) {
        Some(mut stage) => options.run(&mut stage),
        None => Ok(()),
    }
}

/// Options of every workload.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Seed of all random draws
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Bind the process to this CPU
    #[arg(long, value_name = "CPU")]
    pub pin: Option<usize>,
    /// Page size to request: the machine's default, huge pages by MADV_HUGEPAGE, or base pages only by prctl (which
    /// also blocks MADV_COLLAPSE by other processes)
    #[arg(long, value_enum, default_value = "default")]
    pub thp: Thp,
    /// Wait for `go` on stdin before mapping memory, and for another line before freeing it
    #[arg(long)]
    pub wait_first: bool,
}

/// Page sizes that a workload requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Thp {
    /// The machine's default.
    #[default]
    Default,
    /// MADV_HUGEPAGE on its areas.
    Advise,
    /// THP disabled for the process.
    Never,
}

impl Common {
    /// This seed; everything else at its default.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self {
            seed,
            pin: None,
            thp: Thp::Default,
            wait_first: false,
        }
    }

    /// Binds the process to its CPU and disables THP for it, if requested.
    ///
    /// # Errors
    /// When there is no such CPU.
    pub fn apply(&self) -> Result<(), WorkloadError> {
        if self.thp == Thp::Never {
            memory::disable_thp().map_err(WorkloadError::system("disable THP"))?;
        }
        match self.pin {
            Some(cpu) => memory::pin_to_cpu(cpu).map_err(WorkloadError::system("bind to the CPU")),
            None => Ok(()),
        }
    }

    /// Maps an area of `bytes` and applies the requested advice.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn map(&self, bytes: usize) -> Result<Mapping, MemoryError> {
        let mut memory = Mapping::new(bytes)?;
        if self.thp == Thp::Advise {
            memory.advise(0..memory.len_bytes(), libc::MADV_HUGEPAGE)?;
        }
        Ok(memory)
    }

    /// An area of `bytes`: from the allocator if `on_heap`, else mapped and advised.
    ///
    /// # Errors
    /// Out of memory, or advice requested for memory of the allocator.
    pub fn area(&self, bytes: usize, on_heap: bool) -> Result<Area, WorkloadError> {
        if !on_heap {
            return Ok(Area::Mapped(self.map(bytes)?));
        }
        self.must_not_advise("--heap")?;
        Ok(Area::Heap(Heap::new(bytes)?))
    }

    /// Rejects advice for memory of the C library's allocator.
    ///
    /// # Errors
    /// Advice is requested.
    pub fn must_not_advise(&self, who: &str) -> Result<(), WorkloadError> {
        match self.thp {
            Thp::Advise => Err(WorkloadError::Usage(format!(
                "{who} takes its memory from the C library's allocator, which cannot be advised"
            ))),
            _ => Ok(()),
        }
    }

    /// The generator of this seed.
    #[must_use]
    pub fn rng(&self) -> rand_pcg::Pcg64Mcg {
        mega_sim::workload::pattern::rng(self.seed)
    }
}

/// Bytes of `mib` mebibytes, at least one.
///
/// # Errors
/// When that exceeds the address space.
pub fn mebibytes(mib: usize) -> Result<usize, WorkloadError> {
    mib.max(1)
        .checked_mul(MIB)
        .ok_or_else(|| WorkloadError::Usage(format!("{mib} MiB do not fit an address space")))
}

/// An area as events report it: decimal for programs, hexadecimal for people.
#[must_use]
pub fn area_json(name: &str, mapping: &Mapping) -> Value {
    range_json(name, mapping.range())
}

/// The same for a range of addresses.
#[must_use]
pub fn range_json(name: &str, r: Range<usize>) -> Value {
    json!({ "name": name, "start": r.start, "bytes": r.len(), "hex": format!("{:#x}-{:#x}", r.start, r.end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let e = run("gusp", &[]).unwrap_err();
        assert_eq!(e.exit_code(), 2);
        assert!(e.to_string().contains("gups, store, kv"));
    }

    #[test]
    fn every_workload_has_help_and_refuses_unknown_options() {
        for entry in LIST {
            run(entry.name, &args("--help")).unwrap();
            assert_eq!(
                run(entry.name, &args("--no-such-option 1")).unwrap_err().exit_code(),
                2,
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_another_does_not() {
        use rand_core::RngCore;
        let rng = |seed| Common::of_seed(seed).rng().next_u64();
        assert_eq!(rng(1), rng(1));
        assert_ne!(rng(1), rng(2));
    }

    #[test]
    fn every_workload_has_a_plan_and_wrong_usage_has_none() {
        for entry in LIST {
            let plan = plan(entry.name, &[]).unwrap();
            assert!(plan.memory_bytes > 0, "{}", entry.name);
            assert!(plan.seconds.is_none_or(|s| s > 0.0), "{}", entry.name);
            assert!((entry.plan)(&args("--no-such-option")).is_err());
        }
        let gups = plan("gups", &args("--gib 4 --seconds 20")).unwrap();
        assert_eq!(gups.memory_bytes, 4 << 30);
        assert!(gups.seconds > Some(20.0));
        assert!(plan("gups", &args("--help")).is_err());
        assert!(plan("gusp", &[]).is_err());
    }

    #[test]
    fn a_size_beyond_the_address_space_is_wrong_usage() {
        assert_eq!(mebibytes(usize::MAX).unwrap_err().exit_code(), 2);
    }
}
