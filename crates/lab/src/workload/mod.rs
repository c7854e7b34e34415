//! The workloads: each is one process that lays out memory on purpose, uses it, checks it, and says what it saw as JSON
//! lines. `mega workload NAME --key value…` and the binary `mega-workload` both end up in [`run`]. What they say and when is in
//! [`stage`].

pub mod btree;
mod btree_nodes;
pub mod chunks;
pub mod churn;
pub mod compute;
pub mod events;
mod events_message;
mod events_network;
pub mod graph;
mod graph_csr;
pub mod gups;
pub mod hold;
pub mod holes;
mod hot;
pub mod kinds;
pub mod kv;
pub mod paths;
mod paths_search;
pub mod simplex;
mod simplex_instance;
mod simplex_tree;
pub mod sizes;
pub mod sparse_area;
pub mod stage;
pub mod store;
pub mod storm;
mod storm_area;
mod storm_child;
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

/// A workload that could not run, or that found its memory changed.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("there is no workload {0:?}; there are {names}", names = names())]
    Unknown(String),
    /// The arguments do not make sense.
    #[error("{0}")]
    Usage(String),
    /// Memory could not be had or changed.
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
    /// Memory does not contain what it must: the worst that can be found.
    #[error("corrupt memory: {0}")]
    Corrupt(String),
}

impl WorkloadError {
    /// The exit status of a process that fails so: 2 for wrong usage, 3 for corrupt memory, 1 otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unknown(_) | Self::Usage(_) => 2,
            Self::Corrupt(_) => 3,
            Self::Memory(_) | Self::System { .. } => 1,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// What a workload will need and about how long it takes, as its options say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Memory at its peak with all of it in huge pages.
    pub memory_bytes: u64,
    /// Time that it works for, first touch included; `None`: until it is told to quit.
    pub seconds: Option<f64>,
}

/// Options of a workload, and with them the workload.
pub trait Workload: Parser {
    /// The options that all have.
    fn common(&self) -> &Common;
    /// What it will need, about.
    fn plan(&self) -> Plan;
    /// Runs it to its end.
    ///
    /// # Errors
    /// Failed system calls, options that make no sense together, corrupt memory.
    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError>;
}

/// Base pages that are touched for the first time in a second, about: for plans only.
const TOUCHES_PER_SECOND: f64 = 500_000.0;

impl Plan {
    /// Of a workload that fills `mib` MiB and then works for `seconds`.
    #[must_use]
    pub fn of(mib: usize, seconds: f64) -> Self {
        let memory_bytes = (mib as u64).saturating_mul(MIB as u64);
        Self {
            memory_bytes,
            seconds: Some(seconds + Self::touch_seconds(mib)),
        }
    }

    /// The same, until it is told to quit when there is no time.
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

/// One workload's name and what it is.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name to call it by.
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
        "a network simplex on malloc'ed arcs and nodes (429.mcf's nature)",
        simplex::Options
    ),
    entry!(
        "events",
        "a discrete event simulation of small objects (471.omnetpp's)",
        events::Options
    ),
    entry!(
        "paths",
        "path finding by A* on a map, with an object a cell (473.astar's)",
        paths::Options
    ),
    entry!(
        "compute",
        "hashes a small area: nothing that huge pages help",
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
        "frees half of its memory in 1 MB chunks, goes on (MEGA, Figure 2)",
        holes::Options
    ),
    entry!(
        "kinds",
        "regions of the four kinds that a policy must tell apart",
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
        "every memory call at once, with each word checked",
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

/// Runs workload `name` with `args` to its end. Prints its help instead when `args` ask for it.
///
/// The process will die with its parent from here on.
///
/// # Errors
/// Wrong usage, failed system calls, corrupt memory.
pub fn run(name: &str, args: &[String]) -> Result<(), WorkloadError> {
    (entry(name)?.start)(args)
}

/// What workload `name` would need with `args`.
///
/// # Errors
/// Wrong usage; a question for help is one here.
pub fn plan(name: &str, args: &[String]) -> Result<Plan, WorkloadError> {
    let plan = (entry(name)?.plan)(args)?;
    plan.ok_or_else(|| WorkloadError::Usage(format!("{name} {}: help has no plan", args.join(" "))))
}

/// The options in `args`; `None` when they asked for help, which is printed.
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

/// Options that every workload has.
#[derive(Debug, Clone, clap::Args)]
pub struct Common {
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Bind the process to this CPU
    #[arg(long, value_name = "CPU")]
    pub pin: Option<usize>,
    /// Pages to ask for: as the machine is set, huge by MADV_HUGEPAGE, or base only by prctl (which also refuses
    /// MADV_COLLAPSE by others)
    #[arg(long, value_enum, default_value = "default")]
    pub thp: Thp,
    /// Wait for `go` on stdin before anything is mapped, and after the result for another line before anything is freed
    #[arg(long)]
    pub wait_first: bool,
}

/// Pages that a workload asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Thp {
    /// As the machine is set.
    #[default]
    Default,
    /// MADV_HUGEPAGE on its areas.
    Advise,
    /// THP disabled for the process.
    Never,
}

impl Common {
    /// This seed, and nothing else asked for.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self {
            seed,
            pin: None,
            thp: Thp::Default,
            wait_first: false,
        }
    }

    /// Binds the process, and disables THP for it, as asked.
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

    /// Maps an area of `bytes` and advises it as asked.
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

    /// An area of `bytes`, from the allocator if so asked, else mapped and advised.
    ///
    /// # Errors
    /// When there is no memory, or what the allocator gives is to be advised.
    pub fn area(&self, bytes: usize, on_heap: bool) -> Result<Area, WorkloadError> {
        if !on_heap {
            return Ok(Area::Mapped(self.map(bytes)?));
        }
        self.must_not_advise("--heap")?;
        Ok(Area::Heap(Heap::new(bytes)?))
    }

    /// Refuses advice where memory comes from the C library's allocator.
    ///
    /// # Errors
    /// It is asked for.
    pub fn must_not_advise(&self, who: &str) -> Result<(), WorkloadError> {
        match self.thp {
            Thp::Advise => Err(WorkloadError::Usage(format!(
                "{who} takes its memory from the C library's allocator: nothing there can be advised"
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
/// When that is more than an address space.
pub fn mebibytes(mib: usize) -> Result<usize, WorkloadError> {
    mib.max(1)
        .checked_mul(MIB)
        .ok_or_else(|| WorkloadError::Usage(format!("{mib} MiB do not fit an address space")))
}

/// An area, as events name it: numbers for programs, hex for people.
#[must_use]
pub fn area_json(name: &str, mapping: &Mapping) -> Value {
    range_json(name, mapping.range())
}

/// A range of addresses, in the same way.
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
