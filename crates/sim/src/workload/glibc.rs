//! The C library's allocator, as far as page-sized objects go (glibc 2.31 to 2.39, malloc/malloc.c; one arena).
//!
//! Large requests are mappings of their own: from a threshold on that starts at 128 KB and rises to the size of a mapping that was
//! freed, up to 32 MB (`M_MMAP_THRESHOLD`, dynamic); 65,536 of them at most. The others come from the heap: the smallest free piece
//! that fits, else its top, which grows by what is missing and 128 KB more (`M_TOP_PAD`). Freed pieces join their neighbours; when the
//! top is larger than twice the threshold, all but 128 KB of it goes back (`M_TRIM_THRESHOLD`).
//!
//! Not modelled: tcache, fast bins and the order within bins (objects below 1 KB), arenas of other threads, the heap's place
//! (here 2 MB-aligned, there at a random page). The heap is mapped at once and its top moves within it: its last region may become
//! huge beyond the heap's end. Giving back is MADV_DONTNEED here and a shrinking `brk` there.

use super::{Advice, Memory, MemoryError, PAGE};
use std::collections::{BTreeMap, BTreeSet};

const TOP_PAD: u64 = 128 << 10;
const THRESHOLD_MIN: u64 = 128 << 10;
const THRESHOLD_MAX: u64 = 32 << 20;
const MAPPINGS_MAX: u32 = 65_536;
/// Bytes before what the caller gets: the size, and that of the piece before.
const HEAD: u64 = 16;
/// The least that is kept as a top.
const LEAST: u64 = 32;

/// An object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its first address.
    pub address: u64,
    /// Bytes that it takes with its head.
    bytes: u64,
    mapped: bool,
}

/// The allocator's state.
#[derive(Debug)]
pub struct Glibc {
    heap: u64,
    room: u64,
    /// Offset in the heap of its top, and of the end that `brk` has set.
    top: u64,
    end: u64,
    free_by_place: BTreeMap<u64, u64>,
    free_by_size: BTreeSet<(u64, u64)>,
    threshold: u64,
    trim: u64,
    mappings: u32,
}

impl Glibc {
    /// With room for a heap of `room` bytes.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn new<M: Memory>(memory: &mut M, room: u64) -> Result<Self, MemoryError> {
        let room = room.max(1 << 20).next_multiple_of(PAGE);
        Ok(Self {
            heap: memory.map(room)?,
            room,
            top: 0,
            end: 0,
            free_by_place: BTreeMap::new(),
            free_by_size: BTreeSet::new(),
            threshold: THRESHOLD_MIN,
            trim: THRESHOLD_MIN,
            mappings: 0,
        })
    }

    /// Bytes of the heap up to its end.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.end
    }

    fn set_free(&mut self, at: u64, bytes: u64) {
        self.free_by_place.insert(at, bytes);
        self.free_by_size.insert((bytes, at));
    }

    fn take_free(&mut self, at: u64, bytes: u64) {
        self.free_by_place.remove(&at);
        self.free_by_size.remove(&(bytes, at));
    }

    /// Writes the size of a piece: where the allocator itself touches memory.
    fn write_head<M: Memory>(&self, memory: &mut M, at: u64) {
        memory.touch(self.heap + at + 8, true);
    }

    /// An object of `bytes`; its content is not touched.
    ///
    /// # Errors
    /// When there is no memory, or the heap is larger than its room.
    pub fn allocate<M: Memory>(&mut self, memory: &mut M, bytes: u64) -> Result<Block, MemoryError> {
        let none = MemoryError::NoMemory { bytes };
        let piece = bytes.checked_add(8 + 15).ok_or(none)? & !15;
        let piece = piece.max(LEAST);
        if piece >= self.threshold && self.mappings < MAPPINGS_MAX {
            let mapped = piece.checked_add(8 + PAGE - 1).ok_or(none)? & !(PAGE - 1);
            let at = memory.map(mapped)?;
            self.mappings += 1;
            memory.touch(at + 8, true);
            return Ok(Block {
                address: at + HEAD,
                bytes: mapped,
                mapped: true,
            });
        }
        if let Some((size, at)) = self.free_by_size.range((piece, 0)..).next().copied() {
            self.take_free(at, size);
            let mut bytes = piece;
            if size - piece >= LEAST {
                self.set_free(at + piece, size - piece);
                self.write_head(memory, at + piece);
            } else {
                bytes = size;
            }
            self.write_head(memory, at);
            return Ok(Block {
                address: self.heap + at + HEAD,
                bytes,
                mapped: false,
            });
        }
        if self.end - self.top < piece + LEAST {
            let end = (self.top + piece + TOP_PAD + LEAST).next_multiple_of(PAGE);
            if end > self.room {
                return Err(none);
            }
            self.end = end;
        }
        let at = self.top;
        self.top += piece;
        self.write_head(memory, at);
        self.write_head(memory, self.top);
        Ok(Block {
            address: self.heap + at + HEAD,
            bytes: piece,
            mapped: false,
        })
    }

    /// Frees an object of this allocator.
    ///
    /// # Errors
    /// What unmapping says.
    pub fn free<M: Memory>(&mut self, memory: &mut M, block: Block) -> Result<(), MemoryError> {
        if block.mapped {
            self.mappings -= 1;
            if block.bytes > self.threshold && block.bytes <= THRESHOLD_MAX {
                self.threshold = block.bytes;
                self.trim = 2 * block.bytes;
            }
            return memory.unmap(block.address - HEAD, block.bytes);
        }
        let (mut at, mut bytes) = (block.address - HEAD - self.heap, block.bytes);
        if let Some((before, size)) = self.free_by_place.range(..at).next_back().map(|(a, s)| (*a, *s)) {
            if before + size == at {
                self.take_free(before, size);
                (at, bytes) = (before, size + bytes);
            }
        }
        if let Some(size) = self.free_by_place.get(&(at + bytes)).copied() {
            self.take_free(at + bytes, size);
            bytes += size;
        }
        if at + bytes < self.top {
            // The list's pointers, and the size before what follows.
            memory.touch(self.heap + at + HEAD, true);
            memory.touch(self.heap + at + bytes, true);
            self.set_free(at, bytes);
            return Ok(());
        }
        self.top = at;
        self.write_head(memory, at);
        if self.end - self.top >= self.trim {
            let end = (self.top + TOP_PAD + LEAST).next_multiple_of(PAGE);
            if end < self.end {
                memory.advise(self.heap + end, self.end - end, Advice::DontNeed)?;
                self.end = end;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CountingMemory;

    #[test]
    fn small_objects_share_pages_and_all_goes_back_when_all_is_freed() {
        let mut m = CountingMemory::new();
        let mut g = Glibc::new(&mut m, 64 << 20).unwrap();
        let blocks: Vec<Block> = (0..1000).map(|_| g.allocate(&mut m, 8192).unwrap()).collect();
        assert_eq!(blocks[1].address - blocks[0].address, 8192 + 16);
        assert!(g.heap_bytes() >= 1000 * 8208 && g.heap_bytes() < 1000 * 8208 + (256 << 10));
        for b in &blocks {
            m.touch(b.address, true);
            m.touch(b.address + 4096, true);
        }
        for b in blocks {
            g.free(&mut m, b).unwrap();
        }
        assert_eq!((m.stray, g.top, g.heap_bytes()), (0, 0, (128 << 10) + 4096));
        assert!(m.resident_pages() <= 33);
    }

    #[test]
    fn large_objects_are_mappings_and_the_threshold_rises_when_one_is_freed() {
        let mut m = CountingMemory::new();
        let mut g = Glibc::new(&mut m, 64 << 20).unwrap();
        let a = g.allocate(&mut m, 1 << 20).unwrap();
        assert!(a.mapped && m.mapped_pages() == (64 << 8) + 257);
        g.free(&mut m, a).unwrap();
        assert!(!g.allocate(&mut m, 1 << 20).unwrap().mapped);
        assert!(g.allocate(&mut m, 2 << 20).unwrap().mapped);
    }

    proptest::proptest! {
        #[test]
        fn objects_never_overlap(ops in proptest::collection::vec((1u64..200_000, 0usize..8), 1..200)) {
            let mut m = CountingMemory::new();
            let mut g = Glibc::new(&mut m, 64 << 20).unwrap();
            let mut live: Vec<Block> = Vec::new();
            for (bytes, which) in ops {
                if which < 3 && !live.is_empty() {
                    let b = live.swap_remove(bytes as usize % live.len());
                    g.free(&mut m, b).unwrap();
                } else {
                    let b = g.allocate(&mut m, bytes).unwrap();
                    proptest::prop_assert!(b.address % 16 == 0);
                    for other in &live {
                        let apart = b.address - HEAD + b.bytes <= other.address - HEAD + 8
                            || other.address - HEAD + other.bytes <= b.address - HEAD + 8;
                        proptest::prop_assert!(apart);
                    }
                    m.touch(b.address + bytes - 1, true);
                    live.push(b);
                }
            }
            for b in live.drain(..) {
                g.free(&mut m, b).unwrap();
            }
            proptest::prop_assert_eq!(g.top, 0);
            proptest::prop_assert!(g.free_by_place.is_empty());
            proptest::prop_assert_eq!(m.stray, 0);
        }
    }
}
