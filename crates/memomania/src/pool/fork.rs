//! What becomes of a pool's hugetlb pages when the program forks ([`crate::fork`] says when what is done).

use memomania_layout::page::Kind;
use memomania_layout::request::flag;

use super::{Pool, ANONYMOUS, RESERVED};
use crate::demote::{self, Held};
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

    /// Holds writers to hugetlb pages of this kind back. Neighbours at once: each range that is held cuts the kernel's mappings at its ends.
    pub fn hold_all(&self, kind: Kind, held: &Held) {
        let mut from = 0;
        while let Some((first, mut last)) = self.next_live(kind, from) {
            while let Some((_, end)) = self.next_live(kind, last).filter(|(next, _)| *next == last) {
                last = end;
            }
            let _ = held.hold(self.address(first), Self::bytes(first, last));
            from = last;
        }
    }

    /// Lets writers to hugetlb pages of this kind go on.
    pub fn let_go_all(&self, kind: Kind, held: &Held) {
        let mut from = 0;
        while let Some((first, last)) = self.next_live(kind, from) {
            held.let_go(self.address(first), Self::bytes(first, last));
            from = last;
        }
    }

    /// In the child of a fork: copies all 2 MB pages, and lets the parent go on with each.
    pub fn copy_all(&mut self, held: Option<&Held>) -> Result<()> {
        let mut result = Ok(());
        let mut from = 0;
        while let Some((first, last)) = self.next_live(Kind::Huge, from) {
            result = result.and(self.demote_as(first, last, false));
            if let Some(held) = held {
                held.let_go(self.address(first), Self::bytes(first, last));
            }
            from = last;
        }
        result
    }

    /// Before a fork: copies what is in use of gigantic pages to base pages, for the child, which does not get those pages ([`Pool::bring`]).
    pub fn make_shadow(&mut self) -> Result<()> {
        let Some((mut first, mut last)) = self.next_live(Kind::Gigantic, 0) else {
            return Ok(());
        };
        self.shadow = sys::mmap(0, Self::bytes(0, self.map.len()), 0, RESERVED, -1, 0)?;
        let done = loop {
            if let Err(error) = self.make_shadow_of(first, last) {
                break Err(error);
            }
            match self.next_live(Kind::Gigantic, last) {
                Some(next) => (first, last) = next,
                None => break Ok(()),
            }
        };
        if done.is_err() {
            self.drop_shadow();
        }
        done
    }

    fn make_shadow_of(&self, first: usize, last: usize) -> Result<()> {
        let (address, bytes) = (self.address(first), Self::bytes(first, last));
        let to = self.shadow + Self::bytes(0, first);
        let protection = i32::from(self.map.slot(first).live) & flag::PROT_ALL;
        let flags = ANONYMOUS | flag::MAP_FIXED;
        sys::mmap(to, bytes, flag::PROT_READ | flag::PROT_WRITE, flags, -1, 0)?;
        let _ = sys::madvise(to, bytes, libc::MADV_NOHUGEPAGE);
        let is_readable = protection & flag::PROT_READ != 0;
        if !is_readable {
            sys::mprotect(address, bytes, protection | flag::PROT_READ)?;
        }
        self.copy_used(first, last, to);
        if !is_readable {
            sys::mprotect(address, bytes, protection)?;
        }
        Ok(())
    }

    /// In the child of a fork: has the copies where the gigantic pages were. What there is no copy of is no memory any more: touching it ends
    /// the child, which must not go on with something else.
    pub fn use_shadow(&mut self) -> Result<()> {
        let mut result = Ok(());
        let mut from = 0;
        while let Some((first, last)) = self.next_live(Kind::Gigantic, from) {
            let protection = i32::from(self.map.slot(first).live) & flag::PROT_ALL;
            let (address, bytes) = (self.address(first), Self::bytes(first, last));
            let moved = match self.shadow {
                0 => Err(ENOMEM),
                shadow => demote::place(shadow + Self::bytes(0, first), bytes, address),
            };
            result = result.and(match moved {
                Ok(()) => self.became_ordinary(first, last, protection),
                Err(error) => self.lose(first, last).and(Err(error)),
            });
            from = last;
        }
        self.drop_shadow();
        result
    }

    /// Says that a hugetlb page is gone, with what was in it.
    fn lose(&mut self, first: usize, last: usize) -> Result<()> {
        self.map.set_live(first, last, 0);
        self.map.set_kind(first, last, Kind::Base);
        self.map.free(first, last, false);
        self.clear(first, last)
    }

    /// There are copies.
    pub fn has_shadow(&self) -> bool {
        self.shadow != 0
    }

    /// Gives the copies back.
    pub fn drop_shadow(&mut self) {
        if self.shadow != 0 {
            let _ = sys::munmap(self.shadow, Self::bytes(0, self.map.len()));
            self.shadow = 0;
        }
    }
}
