//! The outcome of a scenario's run. Whole numbers only, so that the same seed gives the same bytes.

use mega_core::control::Status;
use serde::Serialize;

use crate::machine::{BackgroundTime, Counters};
use crate::physical::ZoneFree;
use crate::tlb;
use crate::workload::{Latency, Results};

/// One run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The programs, in the scenario's order.
    pub programs: Vec<ProgramOutcome>,
    /// The state over time; the last sample is the end.
    pub samples: Vec<Sample>,
    /// The kernel's counters.
    pub counters: Counters,
    /// Processor time not charged to any program.
    pub background: BackgroundTime,
    /// Latencies of all faults.
    pub faults: Latency,
    /// The TLB's counts; none without a TLB.
    pub tlb: Option<tlb::Counts>,
    /// Cycles per microsecond of the TLB's processor; 0 without a TLB.
    pub tlb_mhz: u32,
    /// The manager's totals; none if only the kernel managed memory.
    pub manager: Option<Status>,
    /// Share of free memory outside free blocks at the end, in millionths.
    pub unusable_ppm: u32,
    /// Free memory at the end, by zone and order.
    pub zones: Vec<ZoneFree>,
    /// End of the run, in ns.
    pub end_ns: u64,
}

/// One program.
#[derive(Debug, Clone, Default)]
pub struct ProgramOutcome {
    /// Its name.
    pub name: String,
    /// Its kind: [`crate::workload::Program::name`].
    pub program: &'static str,
    /// Its own results.
    pub results: Results,
    /// Whether it ended, completed or with an error.
    pub done: bool,
    /// The error that ended it.
    pub failed: Option<String>,
    /// Its start, in ns.
    pub start_ns: u64,
    /// Its end, in ns.
    pub end_ns: u64,
    /// Resident memory at the end of the run, or at its own end if it exits.
    pub resident_bytes: u64,
    /// Of it, in huge pages.
    pub huge_bytes: u64,
    /// Of those, in 1 GB pages.
    pub giant_bytes: u64,
    /// Zero-filled base pages in huge pages.
    pub waste_bytes: u64,
    /// Memory swapped out.
    pub swapped_bytes: u64,
    /// Faults.
    pub faults: u64,
    /// Those without memory: loads of unwritten pages, which map the shared zero page.
    pub zero_faults: u64,
    /// Time in faults.
    pub fault_ns: u64,
    /// Time waited for locks and for regions being changed.
    pub stall_ns: u64,
    /// Accesses to unmapped addresses.
    pub bad_accesses: u64,
    /// The kernel's counters at its start.
    pub counted_before: Counters,
    /// Peak resident memory over the samples.
    pub peak_resident_bytes: u64,
    /// Peak memory in huge pages over the samples.
    pub peak_huge_bytes: u64,
}

impl ProgramOutcome {
    /// Its duration, in ns.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// The machine at a moment; memory of all programs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Time.
    pub at_ns: u64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// In huge pages.
    pub huge_bytes: u64,
    /// Zero-filled base pages in huge pages.
    pub waste_bytes: u64,
    /// Free 2 MB blocks.
    pub free_blocks: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Operations so far.
    pub operations: u64,
}
