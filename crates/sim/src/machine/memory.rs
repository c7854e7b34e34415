//! The machine as a program's memory: of the process set by [`Machine::run_as`].

use super::calls::Madvise;
use super::{Machine, MachineError};
use crate::workload::{Access, Advice, Memory, MemoryError};

fn said(error: MachineError, call: &'static str, address: u64, bytes: u64) -> MemoryError {
    match error {
        MachineError::NoMemory | MachineError::NoProcess => MemoryError::NoMemory { bytes },
        MachineError::NotMapped(_) | MachineError::BadRange { .. } => MemoryError::BadRange { call, address, bytes },
    }
}

impl Memory for Machine {
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        self.mmap(self.current, bytes.max(1), true)
            .map_err(|error| said(error, "mmap", 0, bytes))
    }

    fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.munmap(self.current, address, bytes)
            .map_err(|error| said(error, "munmap", address, bytes))
    }

    fn remap(&mut self, address: u64, bytes: u64, new_bytes: u64) -> Result<u64, MemoryError> {
        self.mremap(self.current, address, bytes, new_bytes)
            .map_err(|error| said(error, "mremap", address, bytes))
    }

    fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), MemoryError> {
        let advice = match advice {
            Advice::Huge => Madvise::Huge,
            Advice::NoHuge => Madvise::NoHuge,
            Advice::DontNeed => Madvise::DontNeed,
            Advice::Free => Madvise::Free,
            Advice::Cold => Madvise::Cold,
            Advice::Collapse => Madvise::Collapse,
        };
        self.madvise(self.current, address, bytes, advice)
            .map_err(|error| said(error, "madvise", address, bytes))
    }

    /// Bad accesses are counted in the process's `bad_accesses`. A killed process touches nothing any more; its program's time goes on, so that it
    /// reaches its end.
    #[inline]
    fn touch(&mut self, address: u64, write: bool) {
        if self.access(self.current, address, write).is_err() {
            self.outlive(1);
        }
    }

    #[inline]
    fn follow(&mut self, address: u64) {
        if self.access_waiting(self.current, address).is_err() {
            self.outlive(1);
        }
    }

    #[inline]
    fn work(&mut self, ns: u64) {
        self.compute(self.current, ns);
        if self.spaces.get(self.current).is_none() {
            self.outlive(ns);
        }
    }

    fn touch_all(&mut self, accesses: &[Access]) {
        let mut left = accesses;
        loop {
            left = &left[self.access_some(self.current, left)..];
            let Some((next, others)) = left.split_first() else {
                return;
            };
            next.make(self);
            left = others;
        }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        match self.spaces.get(self.current) {
            Some(space) => space.clock_ps / 1000,
            None => Machine::now_ns(self).max(self.outlived_ns),
        }
    }

    fn paid_by_page_ns(&self) -> u64 {
        self.spaces
            .get(self.current)
            .map_or(0, |space| space.paid_by_page_ps / 1000)
    }

    fn take_block(&mut self) -> Result<bool, MemoryError> {
        self.take_for_kernel(self.current)
            .map_err(|error| said(error, "alloc_pages", 0, mega_core::units::HUGE_PAGE_BYTES))
    }

    fn read_file(&mut self, pages: u64) -> Result<(), MemoryError> {
        self.fill_cache(self.current, pages)
            .map_err(|error| said(error, "read", 0, pages * mega_core::units::BASE_PAGE_BYTES))
    }

    fn compact(&mut self) -> Result<(), MemoryError> {
        self.compact_by_hand(self.current)
            .map_err(|error| said(error, "compact_memory", 0, 0))
    }

    fn fork(&mut self, child: u32) -> Result<(), MemoryError> {
        let parent = self.current;
        let made = Machine::fork(self, parent).map_err(|error| said(error, "fork", 0, 0))?;
        if let Some(before) = self.children.insert((parent, child), made) {
            let _ = self.exit(before);
        }
        Ok(())
    }

    fn child_exits(&mut self, child: u32) -> Result<(), MemoryError> {
        let bad = MemoryError::Unsupported("exit of a child that there is not");
        let id = self.children.remove(&(self.current, child)).ok_or(bad)?;
        self.exit(id).map_err(|error| said(error, "exit", 0, 0))
    }
}

impl Machine {
    /// The time of a program whose process was killed goes on.
    #[cold]
    fn outlive(&mut self, ns: u64) {
        if self.spaces.get(self.current).is_none() {
            self.outlived_ns = self.outlived_ns.max(Machine::now_ns(self)).saturating_add(ns);
        }
    }
}
