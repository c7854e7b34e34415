//! What becomes of a pool's hugetlb pages when the program forks ([`crate::fork`] says when what is done).

use memomania_layout::map::{PROTECTION, READ_WRITE, USED};
use memomania_layout::page::Kind;
use memomania_layout::request::flag;

use super::Pool;
use crate::demote;
use crate::report::{self, Event};
use crate::sys::{self, Result, ENOMEM};

impl Pool {
    /// Before a fork whose child copies 2 MB pages: one that was reserved and never touched is reserved for the parent alone, and a child that
    /// reads it dies.
    pub fn touch_all(&mut self) -> Result<()> {
        let mut from = 0;
        while let Some((first, last)) = self.next_live(Kind::Huge, from) {
            let live = i32::from(self.map.slot(first).live);
            let (address, bytes) = (self.address(first), Self::bytes(first, last));
            let is_readable = live & flag::PROT_READ != 0;
            if !is_readable {
                sys::mprotect(address, bytes, live & flag::PROT_ALL | flag::PROT_READ)?;
            }
            sys::touch(address);
            if !is_readable {
                sys::mprotect(address, bytes, live & flag::PROT_ALL)?;
            }
            from = last;
        }
        Ok(())
    }

    /// The next granule of hugetlb pages of this kind that is there, from a page on.
    fn next_live(&self, kind: Kind, from: usize) -> Option<(usize, usize)> {
        if self.hugetlb_bytes(kind) == 0 {
            return None;
        }
        let mut at = from;
        while at < self.map.len() {
            let (first, last) = self.map.granule(at);
            if self.map.slot(first).live != 0 && self.map.kind(first) == kind {
                return Some((first, last));
            }
            at = last;
        }
        None
    }

    /// Before a fork: has base pages stand in for the hugetlb pages of this kind, until [`Self::take_back`].
    pub fn lend(&mut self, kind: Kind) -> Result<()> {
        if !self.demotes && self.hugetlb_bytes(kind) > 0 {
            return Err(ENOMEM);
        }
        let (mut result, mut from) = (Ok(()), 0);
        while let Some((first, last)) = self.next_live(kind, from) {
            let live = self.map.slot(first).live;
            match self.replace(first, last, sys::has_threads()) {
                Ok(()) => self.map.set_lent(first, last, Some((kind, live))),
                Err(error) => result = Err(error),
            }
            from = last;
        }
        result
    }

    /// After a fork, in the parent: has hugetlb pages again where base pages stood in for them; whether there were any. Where no page is to be
    /// had any more base pages it is from now on.
    pub fn take_back(&mut self) -> bool {
        let (mut any, mut from) = (false, 0);
        while let Some((first, last, kind, live)) = self.map.next_lent(from) {
            self.map.set_lent(first, last, None);
            if self.take_back_one(first, last, kind, live).is_err() {
                report::count(Event::Demotion);
            }
            (any, from) = (true, last);
        }
        any
    }

    fn take_back_one(&mut self, first: usize, last: usize, kind: Kind, live: u8) -> Result<()> {
        let (address, bytes) = (self.address(first), Self::bytes(first, last));
        if demote::is_own_stack(address, bytes) {
            return Err(ENOMEM);
        }
        let new = self.new_hugetlb(bytes, kind)?;
        let protection = i32::from(live & PROTECTION);
        let is_readable = protection & flag::PROT_READ != 0;
        let mut done = match is_readable {
            true => Ok(()),
            false => self.protect_used(first, last, protection | flag::PROT_READ),
        };
        if done.is_ok() {
            done = demote::replace(address, bytes, new, sys::has_threads(), || {
                self.copy_used(first, last, new);
                Ok(())
            });
        }
        if let Err(error) = done {
            let _ = sys::munmap(new, bytes);
            if !is_readable {
                let _ = self.protect_used(first, last, protection);
            }
            return Err(error);
        }
        self.map.set_kind(first, last, kind);
        // Should its protection not be settable any more, it is as all of a new page is.
        let settled = self.settle_hugetlb(first, last, kind, live);
        settled.or_else(|_| self.settle_hugetlb(first, last, kind, USED | READ_WRITE))
    }

    fn protect_used(&self, first: usize, last: usize, protection: i32) -> Result<()> {
        let mut at = first;
        while at < last {
            let next = self.map.run(at, last);
            if self.map.page(at) & USED != 0 {
                sys::mprotect(self.address(at), Self::bytes(at, next), protection)?;
            }
            at = next;
        }
        Ok(())
    }

    /// After a fork, in the child: what stood in for hugetlb pages stays.
    pub fn keep(&mut self) {
        let mut from = 0;
        while let Some((first, last, ..)) = self.map.next_lent(from) {
            self.map.set_lent(first, last, None);
            report::count(Event::Demotion);
            from = last;
        }
    }

    /// In the child of a fork: copies all 2 MB pages.
    pub fn copy_all(&mut self) -> Result<()> {
        let (mut result, mut from) = (Ok(()), 0);
        while let Some((first, last)) = self.next_live(Kind::Huge, from) {
            result = result.and(self.replace(first, last, false));
            report::count(Event::Demotion);
            from = last;
        }
        result
    }

    /// In the child of a fork: gigantic pages for which nothing stood in are no memory any more ([`Pool::settle_hugetlb`]). Touching them ends the
    /// child, which must not go on with something else. Whether there were any.
    pub fn lose_gigantic(&mut self) -> bool {
        let (mut any, mut from) = (false, 0);
        while let Some((first, last)) = self.next_live(Kind::Gigantic, from) {
            self.map.set_live(first, last, 0);
            self.map.set_kind(first, last, Kind::Base);
            self.map.free(first, last, false);
            let _ = self.clear(first, last);
            (any, from) = (true, last);
        }
        any
    }
}
