//! The demonstration: what is measured, of a store in three variants.

pub mod picture;
pub mod redis;
pub mod report;
pub mod store;

use std::ffi::OsString;

use anyhow::{Context, Result};
use mega_linux::look::{look, LookOptions};
use mega_linux::proc::ProcRoot;
use serde_json::{json, Value};

/// How memory is managed while the store runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Base pages only.
    Base,
    /// Stock THP, always.
    Stock,
    /// Base pages at fault, managed by `mega run`.
    Mega,
    /// Stock THP, always, and `mega run --policy trim` to take back what it wastes.
    Trim,
}

impl Variant {
    /// In the order in which they run.
    pub const ALL: [Self; 4] = [Self::Base, Self::Stock, Self::Mega, Self::Trim];

    /// The column's head.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base pages",
            Self::Stock => "stock THP",
            Self::Mega => "mega",
            Self::Trim => "THP + trim",
        }
    }

    /// The progress line.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Base => "base pages (THP not asked for)",
            Self::Stock => "stock THP (transparent_hugepage/enabled = always for this variant)",
            Self::Mega => {
                "mega run: base pages at fault, policy mega (scans every 2 s instead of 5, to be done sooner)"
            }
            Self::Trim => "mega run --policy trim: stock THP, and what it wastes is taken back",
        }
    }

    /// Whether the kernel is to make huge pages at faults.
    pub fn thp_always(self) -> bool {
        matches!(self, Self::Stock | Self::Trim)
    }

    /// Time to serve: managed variants need theirs to settle, the others are as they are from the start.
    fn seconds(self, managed: u64) -> u64 {
        match self {
            Self::Base | Self::Stock => managed.div_ceil(3).max(3),
            Self::Mega => managed,
            Self::Trim => (managed * 3).div_ceil(4).max(3),
        }
    }

    /// What to put before the command.
    fn prefix(self) -> Result<Vec<OsString>> {
        let policy = match self {
            Self::Base | Self::Stock => return Ok(Vec::new()),
            Self::Mega => "mega",
            Self::Trim => "trim",
        };
        let own = std::env::current_exe().context("cannot find our own program")?;
        let mut prefix = vec![own.into_os_string()];
        prefix.extend(["run", "--quiet", "--policy", policy, "--interval", "2s", "--"].map(OsString::from));
        Ok(prefix)
    }
}

/// How large and how long.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Dense, hot memory.
    pub dense_mib: u64,
    /// Sparse memory.
    pub sparse_mib: u64,
    /// Time to serve in the managed variants.
    pub seconds: u64,
}

/// What was measured in one variant.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Which.
    pub variant: Variant,
    /// Operations per second, settled: the median of the last seconds.
    pub ops_per_s: f64,
    /// What the three latencies below are of.
    pub latency_of: &'static str,
    /// p50, p99, p99.9 in nanoseconds.
    pub latency_ns: [u64; 3],
    /// Time to fill the store, in nanoseconds.
    pub fill_ns: u64,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// Of it, in huge pages.
    pub huge_bytes: u64,
    /// Of that, zero-filled.
    pub waste_bytes: u64,
    /// Every value was read back and was right.
    pub verified: bool,
}

impl Measured {
    /// For machines.
    pub fn to_json(&self) -> Value {
        json!({
            "variant": self.variant.name(),
            "ops_per_s": self.ops_per_s,
            "latency_of": self.latency_of,
            "p50_ns": self.latency_ns[0], "p99_ns": self.latency_ns[1], "p999_ns": self.latency_ns[2],
            "fill_ns": self.fill_ns,
            "rss_bytes": self.rss_bytes, "huge_bytes": self.huge_bytes, "waste_bytes": self.waste_bytes,
            "verified": self.verified,
        })
    }
}

/// Resident, huge and wasted bytes of a process, by looking at it.
fn memory_of(pid: i32) -> Result<[u64; 3]> {
    let (mut scanner, _) = crate::manage::scanner_for(crate::args::ScannerChoice::Auto)?;
    let seen = look(
        &ProcRoot::default(),
        scanner.as_mut(),
        pid as u32,
        &LookOptions::default(),
    )?;
    Ok([
        seen.total.rss_bytes,
        seen.total.huge_bytes,
        seen.total.waste_bytes.unwrap_or(0),
    ])
}
