//! The workloads: each is one process that lays out memory on purpose, uses it, checks it, and says what it saw as JSON
//! lines. `mega workload NAME --key value…` and the binary `mega-workload` both end up in [`run`].

pub mod churn;
pub mod gups;
pub mod hold;
mod hot;
pub mod kinds;
pub mod sparse_area;
pub mod store;
pub mod storm;
mod storm_area;
mod storm_child;
pub mod stride;
pub mod table;
pub mod zipf;

use crate::memory::{self, Mapping, MemoryError};
use clap::Parser;
use serde_json::{json, Value};

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

/// One workload's name and what it is.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name to call it by.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    start: fn(&[String]) -> Result<(), WorkloadError>,
}

macro_rules! entry {
    ($name:literal, $help:literal, $body:path) => {
        Entry {
            name: $name,
            help: $help,
            start: |args| parse_and_run(args, $name, $body),
        }
    };
}

/// All workloads.
pub const LIST: &[Entry] = &[
    entry!("gups", "random updates of a large table of 64-bit integers", gups::run),
    entry!(
        "store",
        "a key-value store with a dense hot and a scattered part",
        store::run
    ),
    entry!(
        "kinds",
        "regions of the four kinds that a policy must tell apart",
        kinds::run
    ),
    entry!(
        "sparse",
        "touches a scattered share of base pages and holds them",
        hold::sparse
    ),
    entry!("dense", "touches all of an area and keeps it hot", hold::dense),
    entry!("storm", "every memory call at once, with each word checked", storm::run),
    entry!(
        "churn",
        "allocates, iterates over and frees memory (MEGA, Table 5)",
        churn::run
    ),
    entry!("stride", "visits memory in strides (MEGA, Table 6)", stride::run),
];

fn names() -> String {
    LIST.iter().map(|e| e.name).collect::<Vec<_>>().join(", ")
}

/// Runs workload `name` with `args` to its end. Prints its help instead when `args` ask for it.
///
/// The process will die with its parent from here on.
///
/// # Errors
/// Wrong usage, failed system calls, corrupt memory.
pub fn run(name: &str, args: &[String]) -> Result<(), WorkloadError> {
    let entry = LIST
        .iter()
        .find(|e| e.name == name)
        .ok_or_else(|| WorkloadError::Unknown(name.to_string()))?;
    (entry.start)(args)
}

fn parse_and_run<O: Parser>(
    args: &[String],
    name: &'static str,
    body: fn(&O) -> Result<(), WorkloadError>,
) -> Result<(), WorkloadError> {
    let command = O::command().name(name).no_binary_name(true);
    let parsed = command.try_get_matches_from(args).and_then(|m| O::from_arg_matches(&m));
    match parsed {
        Ok(options) => {
            memory::die_with_parent().map_err(WorkloadError::system("die with the parent"))?;
            body(&options)
        }
        Err(e) if e.use_stderr() => Err(WorkloadError::Usage(e.to_string().trim_end().to_string())),
        Err(help) => {
            print!("{help}");
            Ok(())
        }
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

    /// The generator of this seed.
    #[must_use]
    pub fn rng(&self) -> rand_pcg::Pcg64Mcg {
        rand_pcg::Pcg64Mcg::new(u128::from(crate::content::mix(self.seed)) << 64 | u128::from(self.seed) << 1 | 1)
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
    let r = mapping.range();
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
        assert!(e.to_string().contains("gups, store, kinds"));
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
    fn a_size_beyond_the_address_space_is_wrong_usage() {
        assert_eq!(mebibytes(usize::MAX).unwrap_err().exit_code(), 2);
    }
}
