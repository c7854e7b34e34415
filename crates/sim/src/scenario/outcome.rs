//! What a run of a scenario leaves behind. Whole numbers only, so that the same seed gives the same bytes.

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
    /// Everything over time; the last is the end.
    pub samples: Vec<Sample>,
    /// What the kernel counted.
    pub counters: Counters,
    /// Processor time that no program pays for.
    pub background: BackgroundTime,
    /// Latencies of all faults.
    pub faults: Latency,
    /// What the TLB counted; none without one.
    pub tlb: Option<tlb::Counts>,
    /// Cycles of that TLB's processor in a microsecond; 0 without one.
    pub tlb_mhz: u32,
    /// The manager; none where the kernel is alone.
    pub manager: Option<Status>,
    /// Share of free memory that is of no use for a huge page at the end, in millionths.
    pub unusable_ppm: u32,
    /// Free memory at the end, by zone and order.
    pub zones: Vec<ZoneFree>,
    /// When it was over, in ns.
    pub end_ns: u64,
}

/// One program.
#[derive(Debug, Clone, Default)]
pub struct ProgramOutcome {
    /// Its name.
    pub name: String,
    /// What it is: [`crate::workload::Program::name`].
    pub program: &'static str,
    /// What it says itself.
    pub results: Results,
    /// It came to its end, or to an error.
    pub done: bool,
    /// Why it could not go on.
    pub failed: Option<String>,
    /// When it began, in ns.
    pub start_ns: u64,
    /// When it was over.
    pub end_ns: u64,
    /// Memory at the end of the run, or at its own if it exits.
    pub resident_bytes: u64,
    /// The same, in huge pages.
    pub huge_bytes: u64,
    /// Of those, in pages of 1 GB.
    pub giant_bytes: u64,
    /// Zero-filled base pages in huge pages.
    pub waste_bytes: u64,
    /// Memory that was swapped out.
    pub swapped_bytes: u64,
    /// Faults.
    pub faults: u64,
    /// Those that took no memory: loads of what holds nothing, which map the shared zero page.
    pub zero_faults: u64,
    /// Time in faults.
    pub fault_ns: u64,
    /// Time waited for locks and for regions under work.
    pub stall_ns: u64,
    /// Accesses to what is not mapped.
    pub bad_accesses: u64,
    /// What the kernel had counted when it began.
    pub counted_before: Counters,
    /// Most memory at any sample.
    pub peak_resident_bytes: u64,
    /// Most memory in huge pages at any sample.
    pub peak_huge_bytes: u64,
}

impl ProgramOutcome {
    /// How long it ran, in ns.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// The machine at a moment; memory of all programs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// When.
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
