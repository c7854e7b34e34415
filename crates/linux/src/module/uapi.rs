//! The structures of `kernel/module/uapi/mega.h`, which says what each field means. `tests/module_layout.rs` holds the two against each
//! other.
#![allow(missing_docs, reason = "described in the header")]

use std::mem::size_of;

/// Version of the contract that this program speaks.
pub const VERSION: u32 = 1;

pub const CAN_COMPACT: u64 = 1 << 0;
pub const CAN_BLOCKS: u64 = 1 << 1;
pub const CAN_AGE: u64 = 1 << 2;
pub const CAN_PROBE: u64 = 1 << 3;
pub const CAN_YOUNG: u64 = 1 << 4;

pub const COMPACT_HUGE: u32 = 1;

pub const AGE_CLEAR: u32 = 1;
pub const AGE_FLUSH: u32 = 2;
pub const AGE_YOUNG: u32 = 4;
pub const AGE_TAKE: u32 = 8;
pub const AGE_SECONDARY: u32 = 1;

pub const REGION_HUGE: u16 = 1;
pub const REGION_RACED: u16 = 2;
pub const REGION_GIGANTIC: u16 = 4;
pub const REGION_HUGETLB: u16 = 8;
pub const REGION_OTHER: u16 = 16;

pub const BLOCK_HOLE: u32 = 1;
pub const BLOCK_HEAD: u32 = 2;
pub const BLOCK_WHOLE: u32 = 4;
pub const BLOCK_TWO_ZONES: u32 = 8;

pub const TYPE_ATOMIC: u8 = 4;
pub const TYPE_CMA: u8 = 5;
pub const TYPE_ISOLATED: u8 = 6;

pub const PROBE_RECLAIM: u32 = 1;
pub const PROBE_KSWAPD: u32 = 2;
pub const PROBE_RETRY: u32 = 4;
pub const PROBE_MOVABLE: u32 = 8;
pub const PROBE_ZERO: u32 = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    pub version: u32,
    pub base_page_bytes: u32,
    pub block_pages: u32,
    pub order_max: u32,
    pub abilities: u64,
    pub blocks: u64,
    pub compact_max: u32,
    pub blocks_max: u32,
    pub age_max: u32,
    pub probe_max: u32,
    pub budget_max_ns: u64,
    pub reserved: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompactBlock {
    pub block: u64,
    pub outcome: u32,
    pub took_ns: u32,
    pub in_use: u16,
    pub moved: u16,
    pub pinned: u16,
    pub unmovable: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Compact {
    pub version: u32,
    pub flags: u32,
    pub list: u64,
    pub count: u32,
    pub done: u32,
    pub budget_ns: u64,
    pub took_ns: u64,
    pub moved: u64,
    pub freed: u32,
    pub tried: u32,
    pub reserved: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    pub free: u16,
    pub listed: u16,
    pub movable: u16,
    pub unmovable: u16,
    pub huge: u16,
    pub poisoned: u16,
    pub absent: u16,
    pub pinned: u16,
    pub mapped: u16,
    pub batched: u16,
    pub zone: u8,
    pub r#type: u8,
    pub node: u16,
    pub flags: u32,
    pub reserved: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Blocks {
    pub version: u32,
    pub flags: u32,
    pub first: u64,
    pub list: u64,
    pub count: u32,
    pub done: u32,
    pub took_ns: u64,
    pub reserved: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    pub address: u64,
    pub mapped: u16,
    pub accessed: u16,
    pub young: u16,
    pub dirty: u16,
    pub zero: u16,
    pub write_protected: u16,
    pub swapped: u16,
    pub flags: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionMap {
    pub mapped: [u64; 8],
    pub accessed: [u64; 8],
    pub dirty: [u64; 8],
    pub zero: [u64; 8],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Age {
    pub version: u32,
    pub flags: u32,
    pub pidfd: i32,
    pub count: u32,
    pub start: u64,
    pub end: u64,
    pub list: u64,
    pub maps: u64,
    pub next: u64,
    pub done: u32,
    pub found: u32,
    pub took_ns: u64,
    pub lock_max_ns: u64,
    pub reserved: [u64; 2],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probe {
    pub version: u32,
    pub flags: u32,
    pub order: u32,
    pub count: u32,
    pub times: u64,
    pub budget_ns: u64,
    pub floor_bytes: u64,
    pub node: i32,
    pub done: u32,
    pub ended: u32,
    pub failed_ns: u32,
    pub took_ns: u64,
    pub reserved: [u64; 2],
}

/// _IOC of asm-generic/ioctl.h with type 0xE6.
const fn number(direction: u64, index: u64, bytes: usize) -> u64 {
    direction << 30 | (bytes as u64) << 16 | 0xE6 << 8 | index
}

/// _IOR and _IOWR numbers of the requests.
pub const IOC_INFO: u64 = number(2, 0, size_of::<Info>());
pub const IOC_COMPACT: u64 = number(3, 1, size_of::<Compact>());
pub const IOC_BLOCKS: u64 = number(3, 2, size_of::<Blocks>());
pub const IOC_AGE: u64 = number(3, 3, size_of::<Age>());
pub const IOC_PROBE: u64 = number(3, 4, size_of::<Probe>());
