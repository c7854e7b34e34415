//! Allocating huge pages to exhaustion, timing each: `khugehog` of the allocation-latency study, from user space.
//!
//! - *fault*: one word of each 2 MB of MADV_HUGEPAGE memory is written. The time is that of the fault: allocation, with the
//!   compaction that `defrag` allows, and zeroing (which khugehog did not do; about 0.1 ms on host-backed memory). Whether it mapped
//!   a huge page is read from the page tables afterwards; a fallback to a base page does not count as obtained.
//! - *hugetlb*: `nr_hugepages` is raised by one at a time. The time is that of the write: allocation alone, with compaction. The
//!   setting is restored however this ends; after a SIGKILL `mega off` restores it.
//! - *kernel*: mega.ko allocates and times, as khugehog did. Everything is freed before the remaining free memory can be inspected.
//!
//! On a virtual machine the first touch of memory that the host does not back dominates: compare runs on equally backed memory only.

use self::kernel::by_module;
use self::outcome::Limits;
use self::user::{base_case, by_faults, by_hugetlb};
use crate::contiguity::headroom::Room;
use crate::memory::HUGE_BYTES;
use mega_linux::blocks::fragmentation::{self, Fragmentation};
use mega_linux::proc::{vmstat, ProcRoot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

mod kernel;
pub mod latencies;
pub mod outcome;
pub mod picture;
mod user;

pub use kernel::{ProbeFlags, ProbeOptions};
pub use latencies::{Bin, Latencies};
pub use outcome::{BaseCase, HogError, Stopped};

/// The version of [`HogResult`].
pub const SCHEMA: u32 = 1;

/// How huge pages are allocated.
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
        found.ok_or_else(|| format!("'{text}' is not a way to allocate huge pages: fault, hugetlb or kernel"))
    }
}

/// What to allocate, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HogOptions {
    /// The way.
    pub how: How,
    /// Number of huge pages; `None`: to exhaustion.
    pub count: Option<u64>,
    /// By mega.ko: of which order, and how hard each allocation tries.
    pub probe: ProbeOptions,
    /// Touch the same amount as base pages afterwards.
    pub base: bool,
    /// Where changed settings are saved: /run/mega, where `mega off` finds them.
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

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HogResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The way.
    pub how: How,
    /// What told huge pages from base pages.
    pub checked_by: String,
    /// Options given to mega.ko; none with the other ways.
    pub probe: Option<ProbeOptions>,
    /// Number requested.
    pub wanted: Option<u64>,
    /// Huge pages obtained.
    pub obtained: u64,
    /// Requests that fell back to base pages or failed.
    pub fell_back: u64,
    /// Why allocation ended.
    pub stopped: Stopped,
    /// Obtained huge pages as a share of the memory that was free before, 0 to 1.
    pub share_of_free: f64,
    /// Latencies of obtained huge pages.
    pub latency: Latencies,
    /// Each of them in order.
    pub latencies_ns: Vec<u64>,
    /// Latencies of failed requests.
    pub fell_back_latency: Latencies,
    /// Growth of the kernel's compaction counters (/proc/vmstat) during allocation.
    pub counters: BTreeMap<String, u64>,
    /// Base pages, for comparison.
    pub base: Option<BaseCase>,
    /// Free memory before.
    pub before: Fragmentation,
    /// While all are held; none with mega.ko, which has freed them by then.
    pub held: Option<Fragmentation>,
    /// After all are freed.
    pub after: Fragmentation,
}

/// Compaction counters.
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

/// Allocates huge pages to exhaustion.
#[derive(Debug)]
pub struct Hog;

impl Hog {
    /// Allocates huge pages, times each, and frees them all. `stop` is checked before each.
    ///
    /// A process that does nothing else should make itself the [preferred OOM victim](crate::contiguity::headroom::go_first).
    ///
    /// # Errors
    /// When nothing can be measured; then nothing is held or changed.
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
            room.admit(crate::contiguity::headroom::Amount::Bytes(
                count.saturating_mul(chunk_bytes),
            ))?;
        }
        let limits = Limits {
            root,
            stop,
            count: options.count.unwrap_or(u64::MAX),
            most: room.usable_bytes / chunk_bytes,
        };
        let before = fragmentation::read(root)?;
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
            after: fragmentation::read(root)?,
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
        let chunks = |r: &Fragmentation| r.zones.iter().map(|zone| zone.free_chunks.clone()).collect::<Vec<_>>();
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
