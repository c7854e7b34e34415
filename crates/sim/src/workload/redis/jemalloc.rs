//! The allocator of Redis, jemalloc 5, as far as pages go; one arena, as one thread uses it.
//!
//! * Size classes: multiples of 16 up to 128 bytes (and 8), then four in each doubling (jemalloc, "size_classes").
//! * Small ones (below 16 KB) come from slabs: the smallest run of pages that they fill without rest, the first free place of the
//!   lowest slab that has one.
//! * Large ones are runs of pages of their own, with a page more, in which they begin at a random cache line (`cache_oblivious`).
//! * Runs are taken from dirty pages first, then from retained ones, the lowest that surely fits; then the arena grows by mappings of
//!   2 MB and more, each larger than the one before (`retain`).
//! * Dirty pages are given back by MADV_DONTNEED, oldest first, as a smooth curve over `dirty_decay_ms` allows (10 s; muzzy pages are
//!   off, as in jemalloc 5.2).
//!
//! Not modelled: the thread cache (up to 200 objects of a small class), metadata (1 to 2 %), arenas of other threads, `lg_extent_max_active_fit`.

use super::decay::Decay;
use super::extents::Extents;
use super::mix;
use crate::workload::{Advice, Memory, MemoryError, PAGE};
use std::collections::{BTreeMap, BTreeSet};

/// The first class that is not served from slabs.
const LARGE: u64 = 16 << 10;
/// Bytes of the first mapping of an arena.
const GROW: u64 = 2 << 20;
/// Allocations and frees between two looks at the clock (`ARENA_TICKER`).
const TICKS: u32 = 1000;
/// No slab.
const NONE: u32 = u32::MAX;

/// Bytes of the class that serves a request of `bytes`.
#[must_use]
pub fn class_bytes(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => {
            let step = 1 << ((bytes - 1).ilog2() - 2);
            bytes.next_multiple_of(step)
        }
    }
}

/// Pages of a slab of a small class, and the number of places in it.
fn slab_of(class: u64) -> (u64, u32) {
    let mut pages = 1;
    while pages * PAGE % class != 0 {
        pages += 1;
    }
    (pages, (pages * PAGE / class) as u32)
}

/// An allocated object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its first address.
    pub address: u64,
    /// Bytes of its class.
    class: u32,
    slab: u32,
}

#[derive(Debug, Clone)]
struct Slab {
    address: u64,
    /// A bit for each free place.
    free: [u64; 8],
    free_count: u32,
}

#[derive(Debug, Default)]
struct Bin {
    pages: u64,
    places: u32,
    current: Option<u32>,
    /// Slabs with free places besides the current one, by address.
    partly: BTreeSet<(u64, u32)>,
}

/// The allocator's state.
#[derive(Debug)]
pub struct Jemalloc {
    dirty: Extents,
    retained: Extents,
    bins: BTreeMap<u64, Bin>,
    slabs: Vec<Slab>,
    unused_slabs: Vec<u32>,
    /// First and end address of each mapping.
    mappings: BTreeMap<u64, u64>,
    next_growth: u64,
    mapped_pages: u64,
    allocated_bytes: u64,
    draws: u64,
    seed: u64,
    ticks: u32,
    stamp: u64,
    decay: Decay,
}

impl Jemalloc {
    /// An empty arena that gives dirty pages back within `decay_ns`.
    #[must_use]
    pub fn new(decay_ns: u64, seed: u64) -> Self {
        Self {
            dirty: Extents::default(),
            retained: Extents::default(),
            bins: BTreeMap::new(),
            slabs: Vec::new(),
            unused_slabs: Vec::new(),
            mappings: BTreeMap::new(),
            next_growth: GROW,
            mapped_pages: 0,
            allocated_bytes: 0,
            draws: 0,
            seed,
            ticks: 0,
            stamp: 0,
            decay: Decay::new(decay_ns),
        }
    }

    /// Bytes of the classes of all objects.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Bytes of pages in use or dirty: what of its mappings it has not given back.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        (self.mapped_pages - self.retained.pages()) * PAGE
    }

    /// A run of pages, and whether it is known to be zero.
    fn run<M: Memory>(&mut self, memory: &mut M, pages: u64) -> Result<(u64, bool), MemoryError> {
        if let Some(at) = self.dirty.fit(pages) {
            return Ok((at, false));
        }
        if let Some(at) = self.retained.fit(pages) {
            return Ok((at, true));
        }
        let mut bytes = self.next_growth;
        while bytes < pages * PAGE {
            bytes = class_bytes(bytes + 1);
        }
        let at = memory.map(bytes)?;
        self.next_growth = class_bytes(bytes + 1);
        self.mappings.insert(at, at + bytes);
        self.mapped_pages += bytes / PAGE;
        if bytes / PAGE > pages {
            self.stamp += 1;
            self.retained
                .add(at + pages * PAGE, bytes / PAGE - pages, self.stamp, |_| false);
        }
        Ok((at, true))
    }

    fn free_run(&mut self, address: u64, pages: u64) {
        self.stamp += 1;
        let mappings = &self.mappings;
        self.dirty
            .add(address, pages, self.stamp, |at| !mappings.contains_key(&at));
    }

    fn large<M: Memory>(&mut self, memory: &mut M, class: u64) -> Result<(Object, bool), MemoryError> {
        let (run, zero) = self.run(memory, class / PAGE + 1)?;
        self.draws += 1;
        let line = mix(self.seed ^ self.draws) % (PAGE / 64);
        Ok((
            Object {
                address: run + line * 64,
                class: (class / PAGE) as u32,
                slab: NONE,
            },
            zero,
        ))
    }

    fn new_slab<M: Memory>(&mut self, memory: &mut M, class: u64) -> Result<u32, MemoryError> {
        let (pages, places) = slab_of(class);
        let (address, _) = self.run(memory, pages)?;
        let mut free = [0u64; 8];
        for place in 0..places {
            free[place as usize / 64] |= 1 << (place % 64);
        }
        let slab = Slab {
            address,
            free,
            free_count: places,
        };
        Ok(match self.unused_slabs.pop() {
            Some(id) => {
                self.slabs[id as usize] = slab;
                id
            }
            None => {
                self.slabs.push(slab);
                self.slabs.len() as u32 - 1
            }
        })
    }

    fn small<M: Memory>(&mut self, memory: &mut M, class: u64) -> Result<Object, MemoryError> {
        let bin = self.bins.entry(class).or_insert_with(|| {
            let (pages, places) = slab_of(class);
            Bin {
                pages,
                places,
                ..Bin::default()
            }
        });
        if bin.current.is_none_or(|id| self.slabs[id as usize].free_count == 0) {
            bin.current = bin.partly.pop_first().map(|(_, id)| id);
        }
        let id = match bin.current {
            Some(id) => id,
            None => {
                let id = self.new_slab(memory, class)?;
                if let Some(bin) = self.bins.get_mut(&class) {
                    bin.current = Some(id);
                }
                id
            }
        };
        let slab = &mut self.slabs[id as usize];
        // The current slab has a free place: it was just checked, or it is new.
        let group = slab.free.iter().position(|g| *g != 0).unwrap_or(0);
        let place = group as u64 * 64 + u64::from(slab.free[group].trailing_zeros());
        slab.free[group] &= slab.free[group].wrapping_sub(1);
        slab.free_count -= 1;
        Ok(Object {
            address: slab.address + place * class,
            class: class as u32,
            slab: id,
        })
    }

    /// An object of `bytes`; its content is not touched, for jemalloc keeps its books elsewhere.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn allocate<M: Memory>(&mut self, memory: &mut M, bytes: u64) -> Result<Object, MemoryError> {
        if bytes > 1 << 43 {
            return Err(MemoryError::NoMemory { bytes });
        }
        let class = class_bytes(bytes);
        let object = if class < LARGE {
            self.small(memory, class)?
        } else {
            self.large(memory, class)?.0
        };
        self.allocated_bytes += class;
        self.ticks += 1;
        Ok(object)
    }

    /// An object of zeroes (`calloc`): written unless its pages are fresh.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn allocate_zeroed<M: Memory>(&mut self, memory: &mut M, bytes: u64) -> Result<Object, MemoryError> {
        let class = class_bytes(bytes.min(1 << 43));
        let (object, zero) = if class < LARGE || bytes > 1 << 43 {
            (self.allocate(memory, bytes)?, false)
        } else {
            self.allocated_bytes += class;
            self.ticks += 1;
            self.large(memory, class)?
        };
        if !zero {
            let mut at = object.address;
            while at < object.address + bytes {
                memory.touch(at, true);
                at = (at / PAGE + 1) * PAGE;
            }
        }
        Ok(object)
    }

    /// Frees an object of this allocator.
    ///
    /// # Errors
    /// None so far: what is freed is given back later.
    pub fn free<M: Memory>(&mut self, _memory: &mut M, object: Object) -> Result<(), MemoryError> {
        self.ticks += 1;
        if object.slab == NONE {
            let pages = u64::from(object.class);
            self.allocated_bytes -= pages * PAGE;
            self.free_run(object.address / PAGE * PAGE, pages + 1);
            return Ok(());
        }
        let class = u64::from(object.class);
        self.allocated_bytes -= class;
        let slab = &mut self.slabs[object.slab as usize];
        let place = (object.address - slab.address) / class;
        slab.free[place as usize / 64] |= 1 << (place % 64);
        slab.free_count += 1;
        let (address, free) = (slab.address, slab.free_count);
        if let Some(bin) = self.bins.get_mut(&class) {
            let is_current = bin.current == Some(object.slab);
            if free == bin.places && !is_current {
                bin.partly.remove(&(address, object.slab));
                self.unused_slabs.push(object.slab);
                let pages = bin.pages;
                self.free_run(address, pages);
            } else if !is_current {
                bin.partly.insert((address, object.slab));
            }
        }
        Ok(())
    }

    /// Gives back what has decayed, if enough was allocated and freed since the last look.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn tick<M: Memory>(&mut self, memory: &mut M) -> Result<(), MemoryError> {
        if self.ticks >= TICKS {
            self.ticks = 0;
            self.decay(memory)?;
        }
        Ok(())
    }

    /// The background thread: gives back what has decayed. Returns when to look again; never while nothing is dirty.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn background<M: Memory>(&mut self, memory: &mut M) -> Result<u64, MemoryError> {
        self.decay(memory)?;
        let next = self.decay.next_ns();
        Ok(if self.dirty.pages() == 0 {
            u64::MAX
        } else {
            next.max(memory.now_ns() + 1)
        })
    }

    fn decay<M: Memory>(&mut self, memory: &mut M) -> Result<(), MemoryError> {
        let Some(limit) = self.decay.limit(memory.now_ns(), self.dirty.pages()) else {
            return Ok(());
        };
        while self.dirty.pages() > limit {
            let Some((address, pages)) = self.dirty.oldest() else {
                break;
            };
            memory.advise(address, pages * PAGE, Advice::DontNeed)?;
            self.stamp += 1;
            let mappings = &self.mappings;
            self.retained
                .add(address, pages, self.stamp, |at| !mappings.contains_key(&at));
        }
        self.decay.done(self.dirty.pages());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CountingMemory;

    #[test]
    fn classes_and_slabs_are_those_of_jemalloc() {
        let sizes = [
            1,
            9,
            100,
            128,
            129,
            4096,
            4102,
            8192,
            8198,
            14_337,
            16_385,
            2 << 20,
            (2 << 20) + 10,
        ];
        let classes = [
            8,
            16,
            112,
            128,
            160,
            4096,
            5120,
            8192,
            10_240,
            16_384,
            20_480,
            2 << 20,
            2_621_440,
        ];
        assert_eq!(sizes.map(class_bytes), classes);
        assert_eq!(
            [16, 48, 4096, 5120, 8192, 10_240, 14_336].map(slab_of),
            [(1, 256), (3, 256), (1, 1), (5, 4), (2, 1), (5, 2), (7, 2)]
        );
    }

    #[test]
    fn freed_pages_are_used_again_before_new_ones_and_decay_in_time() {
        let mut m = CountingMemory::new();
        let mut j = Jemalloc::new(1_000_000_000, 1);
        let all: Vec<Object> = (0..100).map(|_| j.allocate(&mut m, 100_000).unwrap()).collect();
        let kept = j.kept_bytes();
        for o in &all {
            m.touch(o.address, true);
            m.touch(o.address + 99_999, true);
            j.free(&mut m, *o).unwrap();
        }
        assert_eq!((j.allocated_bytes(), j.kept_bytes()), (0, kept));
        let again = j.allocate(&mut m, 100_000).unwrap();
        assert_eq!(again.address / PAGE, all[0].address / PAGE);
        j.background(&mut m).unwrap();
        let mut half = 0;
        for ms in (50..=1200).step_by(50) {
            m.wait_until(ms * 1_000_000);
            j.background(&mut m).unwrap();
            if ms == 500 {
                half = j.kept_bytes();
            }
        }
        assert!(
            half > kept / 4 && half < kept * 9 / 10,
            "{half} of {kept} after half of the time"
        );
        assert_eq!(j.kept_bytes(), 29 * PAGE);
        assert!(m.resident_pages() <= 29);
    }

    proptest::proptest! {
        #[test]
        fn objects_never_overlap_and_all_comes_back(ops in proptest::collection::vec((1u64..60_000, 0usize..8), 1..300)) {
            let mut m = CountingMemory::new();
            let mut j = Jemalloc::new(1000, 3);
            let mut live: Vec<(Object, u64)> = Vec::new();
            for (bytes, which) in ops {
                if which < 3 && !live.is_empty() {
                    let (o, _) = live.swap_remove(bytes as usize % live.len());
                    j.free(&mut m, o).unwrap();
                } else {
                    let bytes = if which == 7 { bytes } else { bytes % 300 + 1 };
                    let o = j.allocate(&mut m, bytes).unwrap();
                    for (other, n) in &live {
                        proptest::prop_assert!(o.address + bytes <= other.address || other.address + n <= o.address);
                    }
                    m.touch(o.address, true);
                    m.touch(o.address + bytes - 1, true);
                    live.push((o, bytes));
                }
                m.work(7);
                j.background(&mut m).unwrap();
            }
            for (o, _) in live.drain(..) {
                j.free(&mut m, o).unwrap();
            }
            proptest::prop_assert_eq!(j.allocated_bytes(), 0);
            for _ in 0..300 {
                m.work(10);
                j.background(&mut m).unwrap();
            }
            // What is left are the current slabs, seven pages at most each.
            proptest::prop_assert!(j.kept_bytes() <= 7 * PAGE * j.bins.len() as u64);
            proptest::prop_assert_eq!(m.stray, 0);
        }
    }
}
