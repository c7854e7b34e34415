//! Event counters, under the names of /proc/vmstat where the kernel has one.

/// The counters. They only increase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Faults.
    pub pgfault: u64,
    /// Faults that read from swap.
    pub pgmajfault: u64,
    /// Huge pages from faults.
    pub thp_fault_alloc: u64,
    /// Faults that wanted a huge page and got a base page.
    pub thp_fault_fallback: u64,
    /// Huge pages from collapses, by anyone.
    pub thp_collapse_alloc: u64,
    /// Collapses that found no block.
    pub thp_collapse_alloc_failed: u64,
    /// Huge pages split into base pages.
    pub thp_split_page: u64,
    /// Huge mappings split, with the memory staying whole.
    pub thp_split_pmd: u64,
    /// Huge pages put on the deferred split queue.
    pub thp_deferred_split_page: u64,
    /// Huge pages split by the shrinker of underused ones.
    pub thp_underused_split_page: u64,
    /// Direct compactions.
    pub compact_stall: u64,
    /// Those after which a block was free.
    pub compact_success: u64,
    /// Those after which none was.
    pub compact_fail: u64,
    /// Runs of kcompactd.
    pub compact_daemon_wake: u64,
    /// Frames scanned by the migrate scanner.
    pub compact_migrate_scanned: u64,
    /// Frames scanned by the free scanner.
    pub compact_free_scanned: u64,
    /// Frames isolated.
    pub compact_isolated: u64,
    /// Frames migrated.
    pub pgmigrate_success: u64,
    /// Frames that could not be migrated.
    pub pgmigrate_fail: u64,
    /// Base pages read from swap.
    pub pswpin: u64,
    /// Base pages written to swap.
    pub pswpout: u64,
    /// Lazily freed base pages dropped.
    pub pglazyfreed: u64,
    /// Page cache dropped, in base pages.
    pub cache_dropped: u64,
    /// Processes killed by the OOM killer.
    pub oom_kill: u64,
    /// Copy-on-write copies after a fork, in base pages.
    pub cow: u64,
    /// Reservations made.
    pub reserved: u64,
    /// Reservations that failed for want of a free block.
    pub reserve_failed: u64,
    /// Reservations mapped huge in place.
    pub reserve_promoted: u64,
    /// Reservations broken.
    pub reserve_broken: u64,
    /// Huge pages demoted by policies or given back as zeroes: base pages freed.
    pub zero_freed: u64,
    /// Allocations that needed reclaim.
    pub allocstall: u64,
    /// Accesses that did not find what the program had stored. Anything but 0 is a bug of the simulator.
    pub content_errors: u64,
}

/// Processor time not charged to any program, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackgroundTime {
    /// khugepaged.
    pub khugepaged_ns: u64,
    /// kcompactd.
    pub kcompactd_ns: u64,
    /// Work on reservations: filling, breaking, evacuating.
    pub reservations_ns: u64,
    /// Zeroing free memory.
    pub prezero_ns: u64,
    /// Splitting underused huge pages.
    pub shrinker_ns: u64,
}

impl BackgroundTime {
    /// The sum.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.khugepaged_ns + self.kcompactd_ns + self.reservations_ns + self.prezero_ns + self.shrinker_ns
    }
}
