//! Accesses that a program makes without reading the clock in between, so that a memory can process them together.

use super::Memory;

/// What an access does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Does {
    /// A load.
    #[default]
    Load,
    /// A store.
    Store,
    /// A load and then a store: [`Memory::update`].
    Update,
}

/// One access of up to a cache line, and computing after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub address: u64,
    /// How long the program computes before its next access, in nanoseconds.
    pub work_ns: u32,
    /// What it does.
    pub does: Does,
}

impl Access {
    /// Makes it by the calls for one access.
    #[inline]
    pub fn make<M: Memory + ?Sized>(&self, memory: &mut M) {
        match self.does {
            Does::Load => memory.touch(self.address, false),
            Does::Store => memory.touch(self.address, true),
            Does::Update => memory.update(self.address),
        }
        if self.work_ns > 0 {
            memory.work(self.work_ns.into());
        }
    }
}

/// Maximum accesses of a batch.
const MOST: usize = 128;

/// Collects accesses, and makes them when it is full or dropped; until then the memory is borrowed.
///
/// What it collects has the same effect as the calls of [`Memory`] in the same order.
#[derive(Debug)]
pub struct Batch<'m, M: Memory> {
    memory: &'m mut M,
    accesses: [Access; MOST],
    n: usize,
}

impl<'m, M: Memory> Batch<'m, M> {
    /// An empty one.
    #[inline]
    pub fn new(memory: &'m mut M) -> Self {
        Self {
            memory,
            accesses: [Access::default(); MOST],
            n: 0,
        }
    }

    #[inline]
    fn add(&mut self, address: u64, does: Does) {
        if self.n == MOST {
            self.make();
        }
        self.accesses[self.n] = Access {
            address,
            work_ns: 0,
            does,
        };
        self.n += 1;
    }

    /// A load or a store: [`Memory::touch`].
    #[inline]
    pub fn touch(&mut self, address: u64, write: bool) {
        self.add(address, if write { Does::Store } else { Does::Load });
    }

    /// A load and then a store: [`Memory::update`].
    #[inline]
    pub fn update(&mut self, address: u64) {
        self.add(address, Does::Update);
    }

    /// Computing: [`Memory::work`].
    #[inline]
    pub fn work(&mut self, ns: u64) {
        let last = self.accesses[..self.n].last_mut();
        let sum = last
            .as_ref()
            .map_or(0, |last| u64::from(last.work_ns))
            .saturating_add(ns);
        match (last, u32::try_from(sum)) {
            (Some(last), Ok(sum)) => last.work_ns = sum,
            _ => {
                self.make();
                self.memory.work(ns);
            }
        }
    }

    /// Makes what was collected.
    #[inline]
    fn make(&mut self) {
        self.memory.touch_all(&self.accesses[..self.n]);
        self.n = 0;
    }
}

impl<M: Memory> Drop for Batch<'_, M> {
    fn drop(&mut self) {
        self.make();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Advice, MemoryError};

    /// Writes down what it is asked for.
    #[derive(Default)]
    struct Heard(Vec<(u64, char, u64)>);

    impl Memory for Heard {
        fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
            Err(MemoryError::NoMemory { bytes })
        }
        fn unmap(&mut self, _: u64, _: u64) -> Result<(), MemoryError> {
            Ok(())
        }
        fn advise(&mut self, _: u64, _: u64, _: Advice) -> Result<(), MemoryError> {
            Ok(())
        }
        fn touch(&mut self, address: u64, write: bool) {
            self.0.push((address, if write { 'w' } else { 'r' }, 0));
        }
        fn work(&mut self, ns: u64) {
            self.0.push((0, 'c', ns));
        }
        fn now_ns(&self) -> u64 {
            0
        }
    }

    #[test]
    fn what_is_collected_is_made_in_its_order() {
        let mut heard = Heard::default();
        let mut expected = Heard::default();
        let mut batch = Batch::new(&mut heard);
        for address in 0..1000 {
            match address % 4 {
                0 => batch.touch(address, false),
                1 => batch.touch(address, true),
                2 => batch.update(address),
                _ => batch.work(address),
            }
        }
        batch.work(u64::from(u32::MAX));
        batch.work(1);
        batch.work(2);
        drop(batch);
        for address in 0..1000 {
            match address % 4 {
                0 => expected.touch(address, false),
                1 => expected.touch(address, true),
                2 => expected.update(address),
                _ => expected.work(address),
            }
        }
        // Computing comes together, as far as it fits.
        expected.work(u64::from(u32::MAX));
        expected.work(1 + 2);
        let merged = |heard: &Heard| {
            let mut merged: Vec<(u64, char, u64)> = Vec::new();
            for &(address, what, ns) in &heard.0 {
                match merged.last_mut() {
                    Some((_, 'c', sum)) if what == 'c' => *sum += ns,
                    _ => merged.push((address, what, ns)),
                }
            }
            merged
        };
        assert_eq!(merged(&heard), merged(&expected));
    }
}
