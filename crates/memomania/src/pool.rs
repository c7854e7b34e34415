//! A pool: one reservation of address space, and what is done to parts of it.
//!
//! Free memory of a pool is mapped PROT_NONE, so that touching it ends as it would without the library. Base pages and THP are ordinary
//! mappings laid over that, with the kernel's semantics page by page. Hugetlb pages are there as long as any base page of theirs is in use:
//!
//! - they are always readable and writable, unless one protection was asked for all of a page that is wholly in use;
//! - what is unmapped of one stays readable until it is handed out again, as zeros, or the last part goes;
//! - what the kernel can do only to whole hugetlb pages, and the program wants for a part, is done after the page was replaced by base
//!   pages ([`crate::demote`]).
//!
//! A hugetlb page is reserved in the kernel when it is mapped, so that touching it never fails.

use memomania_layout::layout::Layout;
use memomania_layout::map::{Map, Page, Slot, FOREIGN};
use memomania_layout::page::{Kind, BASE, GIGANTIC, HUGE};
use memomania_layout::request::flag;
use memomania_layout::settings::{Fallback, Settings};

use crate::sys::{self, Result};

mod advise;
mod fork;
mod free;
mod ordinary;
mod protect;
mod take;

const ANONYMOUS: i32 = flag::MAP_PRIVATE | flag::MAP_ANONYMOUS;
const RESERVED: i32 = ANONYMOUS | flag::MAP_NORESERVE;

/// One pool.
pub struct Pool {
    base: usize,
    pub map: Map<'static>,
    layout: Layout,
    fallback: Fallback,
    /// Memory that was never asked for becomes used when it is made accessible: the heap's, which mimalloc commits so.
    commits: bool,
    /// Hugetlb pages may be replaced by base pages while the program uses them.
    demotes: bool,
}

/// How much is reserved and where. Does not change once there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: usize,
    pub end: usize,
}

impl Extent {
    /// Has anything to do with this range.
    pub fn meets(&self, start: usize, end: usize) -> bool {
        start < self.end && self.start < end
    }
}

/// Rounds up to base pages.
pub fn pages(bytes: usize) -> usize {
    bytes.div_ceil(BASE)
}

impl Pool {
    /// Reserves address space and what is needed to keep account of it. `bytes` is a whole number of gigabytes.
    pub fn reserve(bytes: usize, layout: Layout, settings: &Settings<'_>, commits: bool) -> Result<Self> {
        let room = sys::mmap(0, bytes + GIGANTIC, 0, RESERVED, -1, 0)?;
        let base = room.next_multiple_of(GIGANTIC);
        if base > room {
            sys::munmap(room, base - room)?;
        }
        if base + bytes < room + bytes + GIGANTIC {
            sys::munmap(base + bytes, room + GIGANTIC - base)?;
        }
        let slots = bytes / HUGE;
        let slot_bytes = slots * size_of::<Slot>();
        let account = sys::mmap(
            0,
            pages(bytes) + slot_bytes,
            flag::PROT_READ | flag::PROT_WRITE,
            RESERVED,
            -1,
            0,
        )?;
        // Huge pages for what is mostly never touched would be a waste.
        let _ = sys::madvise(account, pages(bytes) + slot_bytes, libc::MADV_NOHUGEPAGE);
        // SAFETY: freshly mapped for this alone, never unmapped, zeros, and aligned for both: slots come first.
        let (slot_map, page_map) = unsafe {
            (
                std::slice::from_raw_parts_mut(account as *mut Slot, slots),
                std::slice::from_raw_parts_mut((account + slot_bytes) as *mut Page, pages(bytes)),
            )
        };
        let mut map = Map::new(page_map, slot_map);
        for interval in layout.intervals() {
            let end = interval.end.min(bytes);
            let end = end - end % interval.kind.bytes();
            if interval.kind != Kind::Base && interval.start < end {
                map.set_kind(pages(interval.start), pages(end), interval.kind);
            }
        }
        Ok(Self {
            base,
            map,
            layout,
            fallback: settings.fallback,
            commits,
            demotes: settings.demote,
        })
    }

    pub fn extent(&self) -> Extent {
        Extent {
            start: self.base,
            end: self.base + self.map.len() * BASE,
        }
    }

    pub fn address(&self, page: usize) -> usize {
        self.base + page * BASE
    }

    /// The pages of a range of addresses that is in the pool.
    pub fn range(&self, start: usize, end: usize) -> (usize, usize) {
        ((start - self.base) / BASE, pages(end - self.base))
    }

    fn bytes(start: usize, end: usize) -> usize {
        (end - start) * BASE
    }

    /// Makes a range that the kernel has unmapped the pool's again; whether it is. What is mapped there stays, and is somebody else's.
    pub fn seal(&mut self, start: usize, end: usize) -> bool {
        let flags = RESERVED | flag::MAP_FIXED_NOREPLACE;
        let sealed = sys::mmap(self.address(start), Self::bytes(start, end), 0, flags, -1, 0);
        // A kernel that does not know the flag (before 4.17) takes the address as a hint.
        match sealed {
            Ok(address) if address == self.address(start) => true,
            Ok(elsewhere) => {
                let _ = sys::munmap(elsewhere, Self::bytes(start, end));
                false
            }
            Err(_) => false,
        }
    }

    /// Reserves anew what is there.
    fn clear(&self, start: usize, end: usize) -> Result<()> {
        sys::mmap(
            self.address(start),
            Self::bytes(start, end),
            0,
            RESERVED | flag::MAP_FIXED,
            -1,
            0,
        )
        .map(|_| ())
    }

    /// Says that a range, all of which is on ordinary pages, is now what the program put there at an address of its choice.
    pub fn take_foreign(&mut self, start: usize, end: usize, protection: i32) {
        let page = Page::try_from(protection & flag::PROT_ALL).unwrap_or(0);
        self.map.take(start, end, FOREIGN | page);
    }

    /// Hugetlb pages of this kind that are there, in bytes.
    pub fn hugetlb_bytes(&self, kind: Kind) -> usize {
        self.map.usage().live[kind as usize] * BASE
    }
}
