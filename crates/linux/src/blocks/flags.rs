//! The flags of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst), and what a page with them is.
//!
//! What was looked up or measured on 6.18:
//! - BUDDY is set for every page of a free chunk, not only for its first one: where the page has no flag of its own, the kernel asks the
//!   buddy allocator. Their number agrees with /proc/buddyinfo's within what changes between two reads (tested).
//! - Pages on a processor's own free lists have no flag and a count of 0, and so have pages that the kernel took for itself (vmalloc,
//!   stacks). 2 MB chunks are on those lists too.
//! - Frames without memory read as 0 where older kernels say NOPAGE. /proc/iomem tells.
//! - THP is set for any large folio of anonymous memory or page cache, 64 KB ones too. What is huge is told from heads and tails.
//! - SLAB pages keep other things where the bits of ANON and MMAP come from: SLAB goes first.

use mega_core::compaction::block::PageKind;

const SLAB: u64 = 1 << 7;
const LRU: u64 = 1 << 5;
const BUDDY: u64 = 1 << 10;
const MMAP: u64 = 1 << 11;
const ANON: u64 = 1 << 12;
const SWAPCACHE: u64 = 1 << 13;
const SWAPBACKED: u64 = 1 << 14;
const COMPOUND_TAIL: u64 = 1 << 16;
const HUGE: u64 = 1 << 17;
const HWPOISON: u64 = 1 << 19;
const NOPAGE: u64 = 1 << 20;
const KSM: u64 = 1 << 21;
const THP: u64 = 1 << 22;
const OFFLINE: u64 = 1 << 23;
const ZERO_PAGE: u64 = 1 << 24;
const IDLE: u64 = 1 << 25;
const PGTABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;

/// What a page with these flags is, not knowing its neighbours.
pub(super) fn kind(flags: u64) -> PageKind {
    let has = |any: u64| flags & any != 0;
    if has(BUDDY) {
        PageKind::Free
    } else if flags & !IDLE == 0 {
        PageKind::Unflagged
    } else if has(NOPAGE | OFFLINE | HWPOISON) {
        PageKind::Offline
    } else if has(SLAB | PGTABLE | RESERVED | ZERO_PAGE) {
        PageKind::Unmovable
    } else if has(LRU | ANON | THP | KSM | SWAPCACHE | SWAPBACKED) {
        PageKind::Movable
    } else {
        PageKind::Unmovable
    }
}

/// Some process maps it. It is /proc/kpagecount's "not 0" for all but slab pages, at no further cost.
pub(super) fn is_mapped(flags: u64) -> bool {
    flags & MMAP != 0 && flags & SLAB == 0
}

/// The pages of a block are one huge page, or a part of a larger one: no folio begins after the first page.
pub(super) fn is_huge(flags: &[u64]) -> bool {
    let large = |flags: u64| flags & (THP | HUGE) != 0;
    match flags.split_first() {
        Some((&first, rest)) => large(first) && rest.iter().all(|&f| large(f) && f & COMPOUND_TAIL != 0),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 1 << 15;

    #[test]
    fn flags_seen_on_a_real_machine_are_what_they_were_made_by() {
        for (flags, made) in [
            (0x400, PageKind::Free),
            (0x408, PageKind::Free),
            (0x0, PageKind::Unflagged),
            (0x2000000, PageKind::Unflagged),
            (0x4_0000_5828, PageKind::Movable),   // anonymous
            (0x4_0000_0028, PageKind::Movable),   // page cache
            (0x8_0000_0060, PageKind::Movable),   // a block device's page cache
            (0x2_0204_483c, PageKind::Movable),   // locked by mlock: may still be moved
            (0x4_0241_5828, PageKind::Movable),   // in a large folio
            (0x9_0000_0000, PageKind::Unmovable), // struct pages
            (0x1_0000_0000, PageKind::Unmovable),
            (0x400_0000, PageKind::Unmovable), // a page table
            (0x80, PageKind::Unmovable),       // slab
            (0x1_1080, PageKind::Unmovable),   // slab that looks anonymous
            (0x1_0000, PageKind::Unmovable),   // inside the kernel's own compound page
            (0x100_0000, PageKind::Unmovable), // the zero page
            (0x80_0000, PageKind::Offline),    // given to the balloon
            (0x10_0000, PageKind::Offline),
        ] {
            assert_eq!(kind(flags), made, "{flags:#x}");
        }
        assert!(is_mapped(0x4_0000_5828) && !is_mapped(0x4_0000_0028));
        assert!(!is_mapped(SLAB | MMAP));
    }

    #[test]
    fn a_block_is_huge_only_if_one_folio_fills_it() {
        let huge = |f: &dyn Fn(usize) -> u64| is_huge(&(0..512).map(f).collect::<Vec<_>>());
        assert!(huge(&|i| THP | if i == 0 { HEAD } else { COMPOUND_TAIL }));
        assert!(huge(&|i| HUGE | if i == 0 { HEAD } else { COMPOUND_TAIL }));
        assert!(huge(&|_| HUGE | COMPOUND_TAIL), "in the middle of a 1 GB page");
        assert!(
            !huge(&|i| THP | if i % 16 == 0 { HEAD } else { COMPOUND_TAIL }),
            "64 KB folios"
        );
        assert!(!huge(&|_| ANON));
        assert!(!huge(&|i| THP | if i == 511 { HEAD } else { COMPOUND_TAIL }));
    }
}
