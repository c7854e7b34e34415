//! How long page faults take: of chosen processes and what they start, seen by eBPF.
//!
//! ```no_run
//! use mega_linux::faults::Faults;
//!
//! let faults = Faults::start(&[1234])?;
//! std::thread::sleep(std::time::Duration::from_secs(5));
//! let latency = faults.read()?;
//! println!("{} base faults, median {:?} ns", latency.base.count(), latency.base.quantile_ns(0.5));
//! # Ok::<(), mega_linux::faults::FaultsError>(())
//! ```
//!
//! A fault begins where the kernel's `page_fault_user` is reported. Faults that the kernel itself runs into, in a system
//! call that reads or writes user memory, are not measured.
//!
//! | where it ends | seen | not seen |
//! | --- | --- | --- |
//! | `handle_mm_fault` returns (fexit) | every fault | |
//! | `rss_stat` of anonymous memory | first writes, swap-ins | copies after fork, files and shared memory, reads of untouched memory (they map the zero page) |
//!
//! Kernels under lockdown, and some others, refuse fexit; then the second is used, which needs Linux 6.2 or later.
//! [`Faults::how`] says which. A copy after fork puts one page in another's place, so the count of pages stays the same
//! and `rss_stat` is silent; while a child that was forked lives, the faults of its parent are mostly such.
//!
//! Times leave out the processor's way into the kernel and back, and with `rss_stat` also the last steps: entering the page
//! in the page table. A program that times its own touches sees some tenths of a microsecond more.
//!
//! The size of page is that of the last movable allocation in the fault. With `rss_stat` the first write to a private
//! mapping of shared memory that has huge pages of its own can be taken for a huge fault.
//!
//! While a [`Faults`] lives, each fault and each page allocation of the machine runs a short program: see
//! `benches/faults.rs` for what that costs. Nothing stays behind when it is dropped, or when its process dies.

use std::io;

mod latency;
mod object;

pub use latency::{FaultLatency, Latencies, ORDERS};

use object::Object;

/// Why faults cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// The programs are not part of this build.
    #[error("measuring faults: {why}")]
    NotBuilt {
        /// For lack of clang, or of an x86-64 target.
        why: &'static str,
    },
    /// The kernel was built without CONFIG_DEBUG_INFO_BTF.
    #[error("measuring faults: the kernel has no BTF ({path})")]
    NoBtf {
        /// Where it would be.
        path: &'static str,
    },
    /// The kernel is locked down to confidentiality.
    #[error("measuring faults: kernel lockdown is 'confidentiality', which refuses eBPF tracing")]
    Lockdown,
    /// A capability is not in effect.
    #[error("measuring faults: {missing} is missing")]
    Capability {
        /// Its name.
        missing: &'static str,
    },
    /// fexit is refused, and `rss_stat` is reported once in 64 changes only.
    #[error("measuring faults: the kernel refuses fexit ({refused}), and before Linux 6.2 rss_stat does not report each fault")]
    Batched {
        /// Why fexit is refused.
        refused: String,
    },
    /// The programs were not accepted.
    #[error("measuring faults: {doing}: {why}")]
    Load {
        /// What was being done.
        doing: &'static str,
        /// What the kernel and libbpf said.
        why: String,
    },
    /// There is no such process, or not any more.
    #[error("measuring faults: process {pid} is gone")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// A system call failed.
    #[error("measuring faults: {doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl FaultsError {
    fn load(doing: &'static str, why: String) -> Self {
        FaultsError::Load { doing, why }
    }
}

/// The measurement; it ends when this is dropped.
pub struct Faults {
    object: Object,
    refused: Option<String>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults")
            .field("how", &self.how())
            .field("attached", &self.object.attached())
            .finish()
    }
}

impl Faults {
    /// Measures these processes from now on, all their threads, and what they start from now on. Children that are there
    /// already have to be named too.
    ///
    /// A pid is taken as the number that it is: the caller holds a pidfd. If one of them is gone, nothing is measured.
    ///
    /// # Errors
    /// The machine or our privileges do not allow it, or a process is gone.
    pub fn start(pids: &[u32]) -> Result<Faults, FaultsError> {
        let (object, refused) = Object::start()?;
        let mut faults = Faults { object, refused };
        pids.iter().try_for_each(|&pid| faults.add(pid))?;
        Ok(faults)
    }

    /// Measures one more process, as in [`start`](Faults::start); no harm if it is followed already.
    ///
    /// # Errors
    /// The process is gone, or attaching the BPF iterator failed.
    pub fn add(&mut self, pid: u32) -> Result<(), FaultsError> {
        self.object.follow(pid)
    }

    /// What was counted since the start. Counting goes on meanwhile: sums may differ by the faults of that moment.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn read(&self) -> Result<FaultLatency, FaultsError> {
        self.object.read()
    }

    /// How faults are measured here, and what is not seen that way.
    pub fn how(&self) -> &'static str {
        match self.sees_all() {
            true => "page_fault_user to the return of handle_mm_fault (fexit): every fault from user mode",
            false => {
                "page_fault_user to rss_stat: first writes to anonymous memory and swap-ins; \
                 copies after fork, files, shared memory and reads of untouched memory are not seen"
            }
        }
    }

    /// Whether every fault from user mode is seen.
    pub fn sees_all(&self) -> bool {
        self.refused.is_none()
    }

    /// Why not every fault is seen: what the kernel said to fexit.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}
