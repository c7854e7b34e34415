//! Taking huge pages until none is left, timing each: `khugehog` of the allocation-latency study, from user space.
//!
//! - *fault*: one word of each 2 MB of MADV_HUGEPAGE memory is written. The time is that of the fault: allocation, with the
//!   compaction that `defrag` allows, and zeroing (which khugehog did not do; about 0.1 ms where memory is warm). Whether it gave
//!   a huge page is what the page tables say afterwards; what fell back to a base page was not obtained.
//! - *hugetlb*: `nr_hugepages` is raised by one at a time. The time is that of the write: allocation alone, with compaction. The
//!   setting is put back however this ends; after a SIGKILL `mega off` does it.
//! - *kernel*: mega.ko allocates and times, as khugehog did. All is freed before anybody can look at what is left meanwhile.
//!
//! On a virtual machine the first touch of memory that the host does not back costs much more than the rest: compare runs of
//! the same memory only.

use super::probe::{by_module, ProbeOptions};
use super::room::{Room, RoomError};
use super::spectrum::Latencies;
use super::take::{base_case, by_faults, by_hugetlb, Limits};
use crate::memory::{MemoryError, HUGE_BYTES};
use mega_linux::contiguity::{self, Contiguity};
use mega_linux::knobs::KnobError;
use mega_linux::module::ModuleError;
use mega_linux::proc::{vmstat, ProcRoot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The version of [`HogResult`].
pub const SCHEMA: u32 = 1;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum HogError {
    /// There is no room for it.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The kernel refused a call on our memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The machine's state cannot be read.
    #[error(transparent)]
    State(#[from] mega_linux::error::Error),
    /// The setting cannot be changed, or not safely.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// The way needs a privilege that we do not have.
    #[error("{} cannot be written: {source}; taking huge pages as hugetlb needs root, --how fault works without", path.display())]
    NotAllowed {
        /// The setting.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The setting says something that is not a number.
    #[error("{}: '{text}' is not a number of pages", path.display())]
    NotANumber {
        /// The setting.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// mega.ko cannot do it.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The setting is not as it was.
    #[error("{} is not put back: {why}", path.display())]
    NotPutBack {
        /// The setting.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The kernel has no hugetlb pages of this size.
    #[error("{} is not there: this kernel has no hugetlb pages of 2 MB", path.display())]
    NoHugetlb {
        /// The setting.
        path: PathBuf,
    },
}

/// How huge pages are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// By faults in MADV_HUGEPAGE memory.
    #[default]
    Fault,
    /// By raising nr_hugepages.
    Hugetlb,
    /// By mega.ko, inside the kernel.
    Kernel,
}

impl How {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Hugetlb => "hugetlb",
            Self::Kernel => "kernel",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for How {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Fault, Self::Hugetlb, Self::Kernel]
            .into_iter()
            .find(|how| how.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a way to take huge pages: fault, hugetlb or kernel"))
    }
}

/// What to take, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HogOptions {
    /// The way.
    pub how: How,
    /// How many huge pages; `None`: as many as there are.
    pub count: Option<u64>,
    /// By mega.ko: of which order, and how hard each allocation tries.
    pub probe: ProbeOptions,
    /// Touch the same amount as base pages afterwards.
    pub base: bool,
    /// Where settings that are changed are remembered: /run/mega, where `mega off` looks.
    pub state_folder: PathBuf,
}

impl Default for HogOptions {
    fn default() -> Self {
        Self {
            how: How::Fault,
            count: None,
            probe: ProbeOptions::default(),
            base: false,
            state_folder: PathBuf::from(mega_linux::knobs::STATE_FOLDER),
        }
    }
}

/// Why no more were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// As many as were asked for are there.
    Count,
    /// The kernel gives none any more.
    NoneLeft,
    /// Available memory is down to the safety margin.
    Margin,
    /// The user wanted so.
    Asked,
    /// mega.ko takes no longer than a minute.
    Time,
}

impl Stopped {
    /// For people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Count => "as many as were asked for",
            Self::NoneLeft => "the kernel gives none any more",
            Self::Margin => "available memory is down to the safety margin",
            Self::Asked => "it was stopped",
            Self::Time => "it takes a minute at most",
        }
    }
}

/// The same amount as base pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaseCase {
    /// Memory that was touched.
    pub bytes: u64,
    /// Time for each 2 MB of it, all of whose base pages are touched.
    pub per_2mb: Latencies,
    /// Each of them in order.
    pub latencies_ns: Vec<u64>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HogResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The way.
    pub how: How,
    /// How it was found out which of them are huge.
    pub checked_by: String,
    /// What mega.ko was told; none with the other ways.
    pub probe: Option<ProbeOptions>,
    /// How many were asked for.
    pub wanted: Option<u64>,
    /// Huge pages that were had.
    pub obtained: u64,
    /// Requests for which the kernel gave none (a base page, or nothing).
    pub fell_back: u64,
    /// Why no more were taken.
    pub stopped: Stopped,
    /// Share of the memory that was free before that was had as huge pages, 0 to 1.
    pub share_of_free: f64,
    /// Latencies of those that were had.
    pub latency: Latencies,
    /// Each of them in order.
    pub latencies_ns: Vec<u64>,
    /// Latencies of those that were not.
    pub fell_back_latency: Latencies,
    /// The kernel's counters of compaction (/proc/vmstat), by how much they grew while huge pages were taken.
    pub counters: BTreeMap<String, u64>,
    /// Base pages, for comparison.
    pub base: Option<BaseCase>,
    /// Free memory before.
    pub before: Contiguity,
    /// With all of them held; none where mega.ko has freed them by then.
    pub held: Option<Contiguity>,
    /// After all were freed.
    pub after: Contiguity,
}

/// Counters that tell what compaction did.
const COUNTERS: [&str; 8] = [
    "compact_stall",
    "compact_success",
    "compact_fail",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_isolated",
    "pgmigrate_success",
    "pgmigrate_fail",
];

/// The one that takes huge pages.
#[derive(Debug)]
pub struct Hog;

impl Hog {
    /// Takes huge pages, times each, and frees them all. `stop` is asked before each.
    ///
    /// Whoever calls this in a process of its own should have it [go first](super::room::go_first) when memory is short.
    ///
    /// # Errors
    /// When nothing can be measured; nothing is held or changed then.
    pub fn run(
        options: &HogOptions,
        root: &ProcRoot,
        stop: &dyn Fn() -> bool,
        held: &mut dyn FnMut(),
    ) -> Result<HogResult, HogError> {
        let room = Room::read(root)?;
        let probe = (options.how == How::Kernel).then(|| options.probe.clone());
        let chunk_bytes = probe.as_ref().map_or(HUGE_BYTES as u64, ProbeOptions::chunk_bytes);
        if let Some(count) = options.count {
            room.admit(super::room::Amount::Bytes(count.saturating_mul(chunk_bytes)))?;
        }
        let limits = Limits {
            root,
            stop,
            count: options.count.unwrap_or(u64::MAX),
            most: room.usable_bytes / chunk_bytes,
        };
        let before = contiguity::read(root)?;
        let counted = counters(root);
        let mut taken = match options.how {
            How::Fault => by_faults(&limits)?,
            How::Hugetlb => by_hugetlb(&limits, &options.state_folder)?,
            How::Kernel => by_module(&limits, &options.probe, room.available_bytes - room.usable_bytes)?,
        };
        let counters_after = counters(root);
        held();
        taken.free()?;
        let obtained = taken.latencies_ns.len() as u64;
        let base = match options.base && taken.stopped != Stopped::Asked {
            true => base_case(obtained * chunk_bytes / HUGE_BYTES as u64, &limits)?,
            false => None,
        };
        Ok(HogResult {
            schema: SCHEMA,
            how: options.how,
            checked_by: taken.checked_by,
            probe,
            wanted: options.count,
            obtained,
            fell_back: taken.fell_back_ns.len() as u64,
            stopped: taken.stopped,
            share_of_free: (obtained * chunk_bytes) as f64 / before.free_bytes.max(1) as f64,
            latency: Latencies::of(&taken.latencies_ns),
            latencies_ns: taken.latencies_ns,
            fell_back_latency: Latencies::of(&taken.fell_back_ns),
            counters: grown(&counted, &counters_after),
            base,
            before,
            held: taken.held,
            after: contiguity::read(root)?,
        })
    }
}

fn counters(root: &ProcRoot) -> BTreeMap<String, u64> {
    let all = vmstat::read(root).unwrap_or_default();
    let one = |name: &&str| Some(((*name).to_string(), all.get(name)?));
    COUNTERS.iter().filter_map(one).collect()
}

fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = after.iter().filter_map(|(name, now)| {
        let then = before.get(name)?;
        Some((name.clone(), now.saturating_sub(*then)))
    });
    grown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(options: &HogOptions, stop: &dyn Fn() -> bool) -> HogResult {
        Hog::run(options, &ProcRoot::default(), stop, &mut || ()).unwrap()
    }

    #[test]
    fn as_many_as_asked_for_are_taken_timed_and_freed() {
        let options = HogOptions {
            count: Some(16),
            base: true,
            ..HogOptions::default()
        };
        let result = run(&options, &|| false);
        assert_eq!(result.latencies_ns.len() as u64, result.obtained);
        assert_eq!(result.latency.count, result.obtained);
        if result.stopped != Stopped::Count {
            eprintln!("SKIPPED: {}", result.stopped.describe());
            return;
        }
        assert_eq!(result.obtained, 16);
        let base = result.base.unwrap();
        assert_eq!((base.bytes, base.per_2mb.count), (32 << 20, 16));
        assert!(result.latency.min_ns > 1000, "a fault takes longer than that");
    }

    #[test]
    fn more_than_may_be_taken_is_refused_before_anything_is() {
        let options = HogOptions {
            count: Some(5 << 20),
            ..HogOptions::default()
        };
        let error = Hog::run(&options, &ProcRoot::default(), &|| false, &mut || ()).unwrap_err();
        assert!(
            error.to_string().starts_with("10T is more than may be taken"),
            "{error}"
        );
    }

    #[test]
    fn stopping_ends_it_with_what_was_had() {
        let left = std::cell::Cell::new(4);
        let stop = || left.replace(left.get() - 1) <= 0;
        let result = run(&HogOptions::default(), &stop);
        assert_eq!(result.stopped, Stopped::Asked);
        assert_eq!(result.obtained + result.fell_back, 4);
    }

    #[test]
    fn a_result_reads_back_as_it_was_written() {
        let options = HogOptions {
            count: Some(2),
            ..HogOptions::default()
        };
        let result = run(&options, &|| false);
        let text = serde_json::to_string(&result).unwrap();
        let read: HogResult = serde_json::from_str(&text).unwrap();
        assert_eq!(read.latencies_ns, result.latencies_ns);
        assert_eq!(
            (read.how, read.stopped, read.counters),
            (result.how, result.stopped, result.counters)
        );
        // The last digit of a fraction may be another one.
        assert_eq!(read.latency.percentiles, result.latency.percentiles);
        let chunks = |r: &Contiguity| r.zones.iter().map(|zone| zone.free_chunks.clone()).collect::<Vec<_>>();
        assert_eq!(chunks(&read.held.unwrap()), chunks(&result.held.unwrap()));
    }

    #[test]
    fn without_mega_ko_the_kernel_way_says_so_and_holds_nothing() {
        if mega_linux::module::Module::open().is_ok() {
            eprintln!("SKIPPED: mega.ko is loaded");
            return;
        }
        let options = HogOptions {
            how: How::Kernel,
            count: Some(1),
            ..HogOptions::default()
        };
        let error = Hog::run(&options, &ProcRoot::default(), &|| false, &mut || ()).unwrap_err();
        assert!(matches!(error, HogError::Module(_)), "{error}");
    }

    #[test]
    fn without_a_setting_for_hugetlb_or_the_right_to_write_it_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot {
            sys: folder.path().to_owned(),
            ..ProcRoot::default()
        };
        let options = HogOptions {
            how: How::Hugetlb,
            ..HogOptions::default()
        };
        let error = Hog::run(&options, &root, &|| false, &mut || ()).unwrap_err();
        assert!(matches!(error, HogError::NoHugetlb { .. }), "{error}");
    }
}
