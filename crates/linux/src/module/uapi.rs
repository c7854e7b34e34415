//! The structures of `kernel/module/uapi/mega.h`, which says what each field means. `tests/module_layout.rs` holds the two against each
//! other.

use std::mem::size_of;

/// Version of the contract that this program speaks.
pub const VERSION: u32 = 1;

/// [`Info::abilities`]: answers [`IOC_COMPACT`].
pub const CAN_COMPACT: u64 = 1 << 0;
/// [`Info::abilities`]: answers [`IOC_BLOCKS`].
pub const CAN_BLOCKS: u64 = 1 << 1;
/// [`Info::abilities`]: answers [`IOC_AGE`].
pub const CAN_AGE: u64 = 1 << 2;
/// [`Info::abilities`]: answers [`IOC_PROBE`].
pub const CAN_PROBE: u64 = 1 << 3;
/// [`Info::abilities`]: pages have PG_young, so clearing accessed bits hides nothing from reclaim (CONFIG_PAGE_IDLE_FLAG).
pub const CAN_YOUNG: u64 = 1 << 4;

/// [`Compact::flags`]: also evacuate blocks that hold huge pages (THP or hugetlb); each is migrated to another free block, or split.
pub const COMPACT_HUGE: u32 = 1;

/// [`Age::flags`]: clear accessed bits that are set.
pub const AGE_CLEAR: u32 = 1;
/// [`Age::flags`]: flush the TLBs once after clearing, so that an access after the call is seen by the next one.
pub const AGE_FLUSH: u32 = 2;
/// [`Age::flags`]: also read PG_young, where DAMON, page_idle and this module keep accessed bits that they cleared.
pub const AGE_YOUNG: u32 = 4;
/// [`Age::flags`]: with CLEAR and YOUNG, clear PG_young too; reclaim then does not learn of those accesses.
pub const AGE_TAKE: u32 = 8;
/// [`Age::found`]: a secondary MMU (a virtual machine) maps the memory; its accesses are not seen.
pub const AGE_SECONDARY: u32 = 1;

/// [`Region::flags`]: mapped by one huge page.
pub const REGION_HUGE: u16 = 1;
/// [`Region::flags`]: the table changed at each try; all counts are 0.
pub const REGION_RACED: u16 = 2;
/// [`Region::flags`]: part of a 1 GB page; only `mapped` is counted.
pub const REGION_GIGANTIC: u16 = 4;
/// [`Region::flags`]: hugetlb; only `mapped` is counted.
pub const REGION_HUGETLB: u16 = 8;
/// [`Region::flags`]: a leaf that is no huge page (device memory); only `mapped` is counted.
pub const REGION_OTHER: u16 = 16;

/// [`Block::flags`]: not all of it is online memory.
pub const BLOCK_HOLE: u32 = 1;
/// [`Block::flags`]: exactly one huge page fills it.
pub const BLOCK_HEAD: u32 = 2;
/// [`Block::flags`]: it is, or is part of, one free chunk.
pub const BLOCK_WHOLE: u32 = 4;
/// [`Block::flags`]: its pages belong to two zones.
pub const BLOCK_TWO_ZONES: u32 = 8;

/// [`Block::type`](Block#structfield.type): reserved for atomic allocations (MIGRATE_HIGHATOMIC).
pub const TYPE_ATOMIC: u8 = 4;
/// [`Block::type`](Block#structfield.type): contiguous memory allocator.
pub const TYPE_CMA: u8 = 5;
/// [`Block::type`](Block#structfield.type): isolated by somebody else.
pub const TYPE_ISOLATED: u8 = 6;

/// [`Probe::flags`]: allow direct reclaim and direct compaction.
pub const PROBE_RECLAIM: u32 = 1;
/// [`Probe::flags`]: wake kswapd and kcompactd.
pub const PROBE_KSWAPD: u32 = 2;
/// [`Probe::flags`]: with RECLAIM, try harder, short of the OOM killer.
pub const PROBE_RETRY: u32 = 4;
/// [`Probe::flags`]: allocate from blocks for movable pages.
pub const PROBE_MOVABLE: u32 = 8;
/// [`Probe::flags`]: zero-fill, as a page fault does.
pub const PROBE_ZERO: u32 = 16;

/// `struct mega_info`: what the module is. Written by the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// [`VERSION`].
    pub version: u32,
    /// Size of a base page.
    pub base_page_bytes: u32,
    /// Base pages of a block or region: 512.
    pub block_pages: u32,
    /// Largest [`Probe::order`].
    pub order_max: u32,
    /// Set of `CAN_*`.
    pub abilities: u64,
    /// Number of blocks: block numbers are below it.
    pub blocks: u64,
    /// Largest [`Compact::count`].
    pub compact_max: u32,
    /// Largest [`Blocks::count`].
    pub blocks_max: u32,
    /// Largest [`Age::count`].
    pub age_max: u32,
    /// Largest [`Probe::count`].
    pub probe_max: u32,
    /// Largest `budget_ns` of any request.
    pub budget_max_ns: u64,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// `struct mega_compact_block`: a block to evacuate and what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompactBlock {
    /// In: its number (physical address divided by 2 MB).
    pub block: u64,
    /// Out, as all that follows: `enum mega_outcome`, see [`super::BlockOutcome`].
    pub outcome: u32,
    /// Time spent on it; all ones: 4.3 s or more.
    pub took_ns: u32,
    /// Pages that had to be moved.
    pub in_use: u16,
    /// Of those, pages that are no longer there.
    pub moved: u16,
    /// Pages that looked pinned at the last look.
    pub pinned: u16,
    /// Unmovable pages at the last look.
    pub unmovable: u16,
}

/// `struct mega_compact`: evacuates chosen blocks in the order given, until the budget is spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Compact {
    /// In: [`VERSION`].
    pub version: u32,
    /// In: `COMPACT_*`.
    pub flags: u32,
    /// In and out: address of `CompactBlock[count]`.
    pub list: u64,
    /// In: entries; above [`Info::compact_max`]: E2BIG.
    pub count: u32,
    /// Out: blocks with an outcome.
    pub done: u32,
    /// In: looked at before each block; above [`Info::budget_max_ns`]: EINVAL.
    pub budget_ns: u64,
    /// Out, as all that follows: duration of the call.
    pub took_ns: u64,
    /// Pages moved.
    pub moved: u64,
    /// Blocks freed.
    pub freed: u32,
    /// Blocks of which pages were being moved, freed ones included.
    pub tried: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// `struct mega_block`: a block as its struct pages show it, read without locks. free + listed + movable + unmovable + huge + poisoned +
/// absent is 512.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// Pages in the buddy allocator.
    pub free: u16,
    /// Pages without a user outside the buddy allocator: mostly on per-CPU free lists.
    pub listed: u16,
    /// Pages on an LRU list, on the way to one, or of a driver that can move them.
    pub movable: u16,
    /// Slab, page tables, reserved and all other pages.
    pub unmovable: u16,
    /// Pages in huge pages (THP of 2 MB, hugetlb and its pool).
    pub huge: u16,
    /// Pages with memory errors.
    pub poisoned: u16,
    /// Pages that are no online memory.
    pub absent: u16,
    /// Of the movable and huge pages: with more references than mappings.
    pub pinned: u16,
    /// Of the movable and huge pages: mapped by some process.
    pub mapped: u16,
    /// Of the movable pages: on the way to an LRU list.
    pub batched: u16,
    /// `enum mega_zone`.
    pub zone: u8,
    /// `enum mega_type`: the migrate type that the allocator keeps the block for.
    pub r#type: u8,
    /// NUMA node.
    pub node: u16,
    /// `BLOCK_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// `struct mega_blocks`: reads blocks from number `first` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Blocks {
    /// In: [`VERSION`].
    pub version: u32,
    /// In: 0.
    pub flags: u32,
    /// In: number of the first block.
    pub first: u64,
    /// Out: address of `Block[count]`.
    pub list: u64,
    /// In: entries; above [`Info::blocks_max`]: E2BIG.
    pub count: u32,
    /// Out: entries written; fewer than `count` at the end of memory.
    pub done: u32,
    /// Out: duration of the call.
    pub took_ns: u64,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// `struct mega_region`: a region with a page table or a leaf. Counts are base pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// Its first virtual address.
    pub address: u64,
    /// Present.
    pub mapped: u16,
    /// Accessed bit set, before it was cleared; a huge page counts as 512.
    pub accessed: u16,
    /// Accessed bit clear, but PG_young set.
    pub young: u16,
    /// Dirty bit set.
    pub dirty: u16,
    /// The shared zero page.
    pub zero: u16,
    /// Present and not writable.
    pub write_protected: u16,
    /// Neither none nor present.
    pub swapped: u16,
    /// `REGION_*`.
    pub flags: u16,
}

/// `struct mega_region_map`: a region page by page; bit n of word n / 64 is base page n.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionMap {
    /// Present.
    pub mapped: [u64; 8],
    /// Accessed or young.
    pub accessed: [u64; 8],
    /// Dirty.
    pub dirty: [u64; 8],
    /// The shared zero page.
    pub zero: [u64; 8],
}

/// `struct mega_age`: reads, and clears, the accessed bits of a range of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Age {
    /// In: [`VERSION`].
    pub version: u32,
    /// In: `AGE_*`.
    pub flags: u32,
    /// In: the process; EBADF for what is no pidfd, ESRCH once it has ended or for a kernel thread.
    pub pidfd: i32,
    /// In: entries of `list`; above [`Info::age_max`]: E2BIG; 0: EINVAL.
    pub count: u32,
    /// In: first address, a multiple of 2 MB.
    pub start: u64,
    /// In: address after the last, a multiple of 2 MB.
    pub end: u64,
    /// Out: address of `Region[count]`.
    pub list: u64,
    /// Out: address of `RegionMap[count]`, or 0.
    pub maps: u64,
    /// Out, as all that follows: where to go on.
    pub next: u64,
    /// Regions written.
    pub done: u32,
    /// [`AGE_SECONDARY`].
    pub found: u32,
    /// Duration of the call.
    pub took_ns: u64,
    /// Longest time that mmap_lock was held.
    pub lock_max_ns: u64,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// `struct mega_probe`: allocates chunks of 2^order pages one after another, times each, then frees all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probe {
    /// In: [`VERSION`].
    pub version: u32,
    /// In: `PROBE_*`: how hard each allocation tries.
    pub flags: u32,
    /// In: above [`Info::order_max`]: EINVAL.
    pub order: u32,
    /// In: chunks at most; above [`Info::probe_max`]: E2BIG.
    pub count: u32,
    /// Out: address of `u32[count]`, nanoseconds each; all ones: 4.3 s or more.
    pub times: u64,
    /// In: time after which no further chunk is allocated.
    pub budget_ns: u64,
    /// In: available memory to leave; at least 64 MB are left.
    pub floor_bytes: u64,
    /// In: NUMA node, -1: any; one that does not exist: EINVAL.
    pub node: i32,
    /// Out: chunks allocated, and times written.
    pub done: u32,
    /// Out: `enum mega_probe_end`: 0 count, 1 failed, 2 floor, 3 budget, 4 signal.
    pub ended: u32,
    /// Out: duration of the failed allocation.
    pub failed_ns: u32,
    /// Out: time spent allocating, without freeing.
    pub took_ns: u64,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// _IOC of asm-generic/ioctl.h with type 0xE6.
const fn number(direction: u64, index: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | 0xE6 << 8 | index
}

/// What the module is: [`Info`].
pub const IOC_INFO: u64 = number(2, 0, size_of::<Info>());
/// Evacuates chosen blocks: [`Compact`].
pub const IOC_COMPACT: u64 = number(3, 1, size_of::<Compact>());
/// Reads the state of blocks: [`Blocks`].
pub const IOC_BLOCKS: u64 = number(3, 2, size_of::<Blocks>());
/// Reads, and clears, accessed bits: [`Age`].
pub const IOC_AGE: u64 = number(3, 3, size_of::<Age>());
/// Times allocations: [`Probe`].
pub const IOC_PROBE: u64 = number(3, 4, size_of::<Probe>());
