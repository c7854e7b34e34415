//! The costs as the machine charges them: in ps, per operation. The figures and their sources are in [`crate::cost`].

use std::time::Duration;

use crate::cost::Costs;
use crate::tlb::Preset;

/// Picoseconds, so that a cycle is not rounded away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    /// An access to the same page as the one before.
    pub hit: u64,
    /// An access to another page.
    pub miss: u64,
    /// The same when the program waits for it.
    pub miss_waited: u64,
    /// Extra for an access that finds the accessed bit clear.
    pub set_accessed: u64,
    /// The manager's estimate of that.
    pub set_accessed_believed: u64,
    /// The maximum cost of an access without a fault, as a load and as a store.
    pub most: u64,
    /// One cycle of a translation.
    pub cycle: u64,
    /// The same when the program waits for it.
    pub cycle_waited: u64,
    /// Entering and leaving a fault, without its work.
    pub fault: u64,
    pub zero_base: u64,
    pub zero_huge: u64,
    /// The same in one go.
    pub zero_bulk: u64,
    pub zero_page: u64,
    pub copy_base: u64,
    pub take_block: u64,
    /// A collapse without its pages.
    pub collapse: u64,
    /// One mapped page of it.
    pub collapse_page: u64,
    /// Mapping a populated block huge in place.
    pub remap_huge: u64,
    pub split: u64,
    pub split_mapping: u64,
    /// A TLB shootdown on other processors.
    pub shootdown: u64,
    pub syscall: u64,
    /// mmap or munmap of an empty area.
    pub mmap: u64,
    pub unmap: u64,
    pub unmap_huge: u64,
    pub fork_page: u64,
    pub fork_huge: u64,
    pub scan_base: u64,
    pub clear_page: u64,
    pub clear_huge: u64,
    pub madvise_page: u64,
    /// Scanning one frame in compaction.
    pub compact_scan: u64,
    /// Migrating one frame.
    pub migrate: u64,
    pub swap_out: u64,
    pub swap_in: u64,
}

/// A duration in ps.
pub(crate) fn ps_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX)
}

impl Prices {
    pub fn new(costs: &Costs, tlb: Option<&Preset>) -> Self {
        let ps = |ns: u64| ns.saturating_mul(1000);
        let (hit, miss) = (ps(costs.memory_hit_ns), ps(costs.memory_overlapped_ns));
        let cycle = tlb.map_or(0, Preset::ps_per_overlapped_cycle);
        let waited = tlb.map_or(0, Preset::ps_per_cycle);
        let translation = tlb.map_or(0, Preset::most_cycles).saturating_mul(waited);
        Self {
            hit,
            miss,
            miss_waited: ps(costs.memory_miss_ns),
            set_accessed: ps(costs.set_accessed_ns),
            set_accessed_believed: ps(costs.set_accessed_believed_ns),
            most: (hit.max(miss).max(ps(costs.memory_miss_ns)).saturating_add(hit))
                .saturating_add(translation)
                .saturating_add(ps(costs.set_accessed_ns)),
            cycle,
            cycle_waited: waited,
            fault: ps(costs.fault_entry_ns),
            zero_base: ps(costs.zero_base_ns),
            zero_huge: ps(costs.zero_huge_ns),
            zero_bulk: ps(costs.zero_huge_bulk_ns),
            zero_page: ps(costs.zero_page_ns),
            copy_base: ps(costs.copy_base_ns),
            take_block: ps(costs.allocate_block_ns),
            collapse: ps(costs.collapse_overhead_ns),
            collapse_page: ps(costs.collapse_page_ns),
            remap_huge: ps(costs.remap_huge_ns),
            split: ps(costs.split_ns),
            split_mapping: ps(costs.split_mapping_ns),
            shootdown: ps(costs.shootdown_ns),
            syscall: ps(costs.syscall_ns),
            mmap: ps(costs.mmap_ns) / 2,
            unmap: ps(costs.unmap_page_ns),
            unmap_huge: ps(costs.unmap_huge_ns),
            fork_page: ps(costs.fork_page_ns),
            fork_huge: ps(costs.fork_huge_ns),
            scan_base: ps(costs.scan_region_base_ns),
            clear_page: ps(costs.clear_page_ns),
            clear_huge: ps(costs.clear_huge_ns),
            madvise_page: ps(costs.madvise_page_ns),
            compact_scan: ps(costs.compact_scan_ns),
            migrate: ps(costs.migrate_page_ns),
            swap_out: ps(costs.swap_out_ns),
            swap_in: ps(costs.swap_in_ns),
        }
    }
}
