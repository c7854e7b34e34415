//! Hugetlb pages of a pool replaced by base pages, with what is in them, while the program uses them ([`crate::demote`]).

use memomania_layout::map::USED;
use memomania_layout::page::Kind;
use memomania_layout::request::flag;

use super::{Pool, ANONYMOUS};
use crate::demote;
use crate::report::{self, Event};
use crate::sys::{self, Result, ENOMEM};

impl Pool {
    /// Replaces one hugetlb page by base pages for good, with its content and each page's protection.
    pub fn demote(&mut self, start: usize, end: usize) -> Result<()> {
        if !self.demotes {
            report::count(Event::DemotionFailed);
            return Err(ENOMEM);
        }
        self.replace(start, end, sys::has_threads())?;
        report::count(Event::Demotion);
        Ok(())
    }

    /// Replaces one hugetlb page by base pages; `shared` says whether other threads may be writing there.
    pub(super) fn replace(&mut self, start: usize, end: usize, shared: bool) -> Result<()> {
        let live = self.map.slot(start).live;
        let (address, bytes) = (self.address(start), Self::bytes(start, end));
        let temporary = sys::mmap(0, bytes, flag::PROT_READ | flag::PROT_WRITE, ANONYMOUS, -1, 0)?;
        let _ = sys::madvise(temporary, bytes, libc::MADV_NOHUGEPAGE);
        let protection = i32::from(live) & flag::PROT_ALL;
        if protection & flag::PROT_READ == 0 {
            let readable = sys::mprotect(address, bytes, protection | flag::PROT_READ);
            readable.inspect_err(|_| {
                let _ = sys::munmap(temporary, bytes);
            })?;
        }
        let copy = || {
            self.copy_used(start, end, temporary);
            Ok(())
        };
        let done = match demote::is_own_stack(address, bytes) {
            true => demote::replace_own_stack(address, bytes, temporary, shared),
            false => demote::replace(address, bytes, temporary, shared, copy),
        };
        if let Err(error) = done {
            if protection & flag::PROT_READ == 0 {
                let _ = sys::mprotect(address, bytes, protection);
            }
            let _ = sys::munmap(temporary, bytes);
            report::count(Event::DemotionFailed);
            return Err(error);
        }
        self.became_ordinary(start, end, protection)
    }

    /// Copies what is in use of a range to other memory.
    pub(super) fn copy_used(&self, start: usize, end: usize, to: usize) {
        let mut at = start;
        while at < end {
            let next = self.map.run(at, end);
            if self.map.page(at) & USED != 0 {
                sys::copy(self.address(at), to + Self::bytes(start, at), Self::bytes(at, next));
            }
            at = next;
        }
    }

    /// Says that base pages are there instead of a hugetlb page, which had this protection.
    pub(super) fn became_ordinary(&mut self, start: usize, end: usize, protection: i32) -> Result<()> {
        self.map.set_live(start, end, 0);
        self.map.set_kind(start, end, Kind::Base);
        self.map.clean(start, end);
        // What is not in use is not to be accessible, as in the rest of the pool.
        let mut at = start;
        while at < end {
            let next = self.map.run(at, end);
            if self.map.page(at) & USED == 0 {
                self.clear(at, next)?;
            } else if protection != flag::PROT_READ | flag::PROT_WRITE {
                sys::mprotect(self.address(at), Self::bytes(at, next), protection)?;
            }
            at = next;
        }
        Ok(())
    }

    /// Has this thread's stack on ordinary pages, if the program has put it into this pool.
    pub fn make_stack_ordinary(&mut self) -> Result<()> {
        let (low, high) = demote::own_stack();
        let extent = self.extent();
        if !extent.meets(low, high) {
            return Ok(());
        }
        let (start, end) = self.range(low.max(extent.start), high.min(extent.end));
        self.make_ordinary(start, end)
    }

    /// Has ordinary pages wherever the range touches, with the content that is there.
    pub fn make_ordinary(&mut self, start: usize, end: usize) -> Result<()> {
        let mut at = start;
        while at < end {
            let (first, last) = self.map.granule(at);
            if self.map.kind(at).is_hugetlb() {
                match self.map.slot(at).live {
                    0 => self.map.set_kind(first, last, Kind::Base),
                    _ => self.demote(first, last)?,
                }
            }
            at = last;
        }
        Ok(())
    }
}
