//! The Rust side of `bpf/intf.h`: same order, same units. The size is checked against the loaded map.

use super::RegionScan;

pub(super) const RANGES_MAX: usize = 512;
pub(super) const REGIONS_MAX: usize = 4096;
pub(super) const CONTENTS_MAX: usize = 64;
pub(super) const NEEDLE_WORDS: usize = 8;

pub(super) const MODE_SCAN: u32 = 1;
pub(super) const MODE_PAGE_MAP: u32 = 2;
pub(super) const MODE_CONTENTS: u32 = 3;
pub(super) const MODE_PROBE: u32 = 4;
pub(super) const MODE_FIND_PAGE: u32 = 5;
pub(super) const MODE_FIND_DIRECT: u32 = 6;
pub(super) const MODE_READ_WORD: u32 = 7;

pub(super) const STATUS_NOT_RUN: u32 = 0;
pub(super) const STATUS_OK: u32 = 1;
pub(super) const STATUS_NO_MM: u32 = 2;
pub(super) const STATUS_MM_CHANGED: u32 = 3;

pub(super) const RANGE_YOUNG: u64 = 1;
pub(super) const RANGE_HEADS: u64 = 2;

/// A frame that no entry names: frame bits never include bit 0.
pub(super) const NO_FRAME: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Machine {
    pub direct_map: u64,
    pub vmemmap: u64,
    pub frame_mask: u64,
    pub zero_entry: u64,
    pub huge_zero_entry: u64,
    pub levels: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    pub mode: u32,
    pub nr_ranges: u32,
    pub tables_max: u32,
    pub fd: u32,
    pub address: u64,
    pub deadline_ns: u64,
    pub frame: u64,
    pub needle: [u64; NEEDLE_WORDS],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reply {
    pub status: u32,
    pub nr_regions: u32,
    pub range: u32,
    pub complete: u32,
    pub next: u64,
    pub entry: u64,
    pub entry_shift: u32,
    pub page_size: u32,
    pub found: u64,
    pub pgd: u64,
    pub young_bit: u32,
    pub direct_loads: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub start: u64,
    pub end: u64,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bits {
    pub mapped: [u64; 8],
    pub accessed: [u64; 8],
    pub dirty: [u64; 8],
    pub zero: [u64; 8],
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawContents {
    pub address: u64,
    pub time_ns: u64,
    pub zero: u16,
    pub checked: u16,
    pub flags: u16,
    pub pad: u16,
}

#[repr(C)]
pub(super) struct Shared {
    pub machine: Machine,
    pub request: Request,
    pub reply: Reply,
    pub page_map: Bits,
    pub ranges: [Range; RANGES_MAX],
    pub contents: [RawContents; CONTENTS_MAX],
    pub regions: [RegionScan; REGIONS_MAX],
}

/// Bytes of one record of the iter/task_vma stream: four 64-bit words.
pub(super) const VMA_RECORD: usize = 32;
