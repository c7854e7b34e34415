//! The table of `kv` and `store`: an index by open addressing and a slab of values. Keys are placed as in the live one
//! (crates/lab/src/workload/table.rs); values have no content.

use super::pattern::{mix, scatter, table_key, table_rank_at};
use super::program::map_area;
use super::{pace, Advice, Latency, Memory, MemoryError, ProgramError, PAGE, PAGE_WORDS};

/// Words of a value before its derived words: key and version.
const HEAD: u64 = 2;
/// Words of a cache line.
const LINE: u64 = 8;

/// The table.
#[derive(Debug)]
pub(super) struct ValueTable {
    /// Addresses of the index (16 bytes a slot), of the values, and of the stack of free places (8 bytes each).
    index: u64,
    slab: u64,
    free_at: u64,
    /// Rank of each slot's key, plus 1; 0: free. Two ranks do not share a key (one in 2^64 pairs would).
    slots: Vec<u32>,
    mask: usize,
    /// Place of each rank.
    places: Vec<u32>,
    free: Vec<u32>,
    value_bytes: u64,
    stride: u64,
    seed: u64,
    /// Values and pages of the slab filled so far.
    filled: (u64, u64),
}

impl ValueTable {
    /// Maps a table whose slab has `bytes` for values of `value_bytes`.
    pub(super) fn new<M: Memory>(
        memory: &mut M,
        bytes: u64,
        value_bytes: u64,
        advise: bool,
        seed: u64,
    ) -> Result<Self, ProgramError> {
        if value_bytes < 32 || value_bytes % 8 != 0 || value_bytes > bytes {
            let text = format!("values of {value_bytes} bytes: expected a multiple of 8, 32 at least, {bytes} at most");
            return Err(ProgramError::Usage(text));
        }
        let count = bytes / value_bytes;
        if count > 1 << 31 {
            return Err(ProgramError::Usage(format!("{count} values are more than 2^31")));
        }
        let slots = (count * 2).next_power_of_two();
        Ok(Self {
            index: map_area(memory, slots * 16, advise)?,
            slab: map_area(memory, bytes, advise)?,
            free_at: map_area(memory, count * 8, advise)?,
            slots: vec![0; slots as usize],
            mask: slots as usize - 1,
            places: vec![0; count as usize],
            free: Vec::new(),
            value_bytes,
            stride: scatter(count),
            seed,
            filled: (0, 0),
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.places.len() as u64
    }

    fn home(&self, rank: u64) -> usize {
        mix(table_key(self.seed, rank)) as usize & self.mask
    }

    /// Inserts the next key; false when all are present. First touches of the slab go to `touches`.
    pub(super) fn fill_next<M: Memory>(&mut self, memory: &mut M, touches: &mut Latency) -> bool {
        let (place, page) = &mut self.filled;
        if *place == self.places.len() as u64 {
            return false;
        }
        let at = *place;
        let end = (at + 1) * self.value_bytes;
        while *page * PAGE < end {
            let start = memory.now_ns();
            memory.touch(self.slab + *page * PAGE, true);
            touches.record(memory.now_ns() - start);
            memory.work(2 * pace::CLOCK);
            *page += 1;
        }
        *place += 1;
        let rank = table_rank_at(at, self.stride, self.count());
        self.insert(memory, rank, at as u32);
        self.write(memory, at);
        true
    }

    fn read_slot<M: Memory>(&self, memory: &mut M, slot: usize) -> u32 {
        // The next probe depends on what is there.
        memory.follow(self.index + slot as u64 * 16);
        self.slots[slot]
    }

    fn insert<M: Memory>(&mut self, memory: &mut M, rank: u64, place: u32) {
        let mut slot = self.home(rank);
        while self.read_slot(memory, slot) != 0 {
            slot = (slot + 1) & self.mask;
        }
        memory.touch(self.index + slot as u64 * 16, true);
        self.slots[slot] = rank as u32 + 1;
        self.places[rank as usize] = place;
    }

    /// Looks a rank up; its slot if present.
    pub(super) fn look<M: Memory>(&self, memory: &mut M, rank: u64) -> Option<usize> {
        let mut slot = self.home(rank);
        for _ in 0..=self.mask {
            match self.read_slot(memory, slot) {
                0 => break,
                found if u64::from(found) == rank + 1 => return Some(slot),
                _ => slot = (slot + 1) & self.mask,
            }
        }
        None
    }

    /// Inserts an absent rank at the slot freed last; false when none is free.
    pub(super) fn add<M: Memory>(&mut self, memory: &mut M, rank: u64) -> bool {
        let Some(place) = self.free.pop() else {
            return false;
        };
        memory.touch(self.free_at + self.free.len() as u64 * 8, false);
        self.insert(memory, rank, place);
        self.write(memory, u64::from(place));
        true
    }

    /// Removes a present rank after checking every `step`-th word of its value.
    pub(super) fn remove<M: Memory>(&mut self, memory: &mut M, rank: u64, step: u64) {
        self.get(memory, rank, step);
        let Some(slot) = self.look(memory, rank) else {
            return;
        };
        memory.touch(self.free_at + self.free.len() as u64 * 8, true);
        self.free.push(self.places[rank as usize]);
        self.close(memory, slot);
    }

    /// Empties a slot, and shifts the entries after it back so that probes still find them.
    fn close<M: Memory>(&mut self, memory: &mut M, slot: usize) {
        let (mut hole, mut next) = (slot, slot);
        for _ in 0..self.mask {
            next = (next + 1) & self.mask;
            let found = self.read_slot(memory, next);
            if found == 0 {
                break;
            }
            let home = self.home(u64::from(found) - 1);
            if next.wrapping_sub(home) & self.mask >= next.wrapping_sub(hole) & self.mask {
                memory.touch(self.index + hole as u64 * 16, true);
                self.read_slot(memory, next);
                memory.touch(self.index + hole as u64 * 16 + 8, true);
                self.slots[hole] = found;
                hole = next;
            }
        }
        memory.touch(self.index + hole as u64 * 16, true);
        self.slots[hole] = 0;
    }

    /// Returns whole free base pages to the kernel. Returns their bytes.
    pub(super) fn give_back<M: Memory>(&mut self, memory: &mut M) -> Result<u64, MemoryError> {
        for at in (0..self.free.len() as u64 * 8).step_by(PAGE as usize) {
            memory.touch(self.free_at + at, false);
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let mut given = 0;
        for run in free.chunk_by(|a, b| a + 1 == *b) {
            let from = (u64::from(run[0]) * self.value_bytes).next_multiple_of(PAGE);
            let to = (u64::from(run[0]) + run.len() as u64) * self.value_bytes / PAGE * PAGE;
            if from < to {
                memory.advise(self.slab + from, to - from, Advice::DontNeed)?;
                given += to - from;
            }
        }
        Ok(given)
    }

    /// Writes a whole value.
    fn write<M: Memory>(&self, memory: &mut M, place: u64) {
        let from = self.slab + place * self.value_bytes;
        let end = from + self.value_bytes;
        let mut at = from;
        while at < end {
            memory.touch(at, true);
            at = (at + 1).next_multiple_of(PAGE);
        }
        memory.work(self.value_bytes / 8 * pace::FILL_PAGE / PAGE_WORDS);
    }

    /// Writes a new version of a present rank's value after checking the old one.
    pub(super) fn put<M: Memory>(&self, memory: &mut M, rank: u64) {
        self.get(memory, rank, 1);
        self.look(memory, rank);
        let place = u64::from(self.places[rank as usize]);
        memory.touch(self.slab + place * self.value_bytes + 8, false);
        self.write(memory, place);
    }

    /// Reads the value of a present rank: its head and every `step`-th word. Steps within a cache line touch each page once.
    pub(super) fn get<M: Memory>(&self, memory: &mut M, rank: u64, step: u64) {
        self.look(memory, rank);
        let from = self.slab + u64::from(self.places[rank as usize]) * self.value_bytes;
        memory.follow(from);
        let (step, words) = (step.max(1), self.value_bytes / 8);
        let mut page = from / PAGE;
        for i in (HEAD..words).step_by(step as usize) {
            let at = from + i * 8;
            if step >= LINE || at / PAGE != page {
                memory.touch(at, false);
                page = at / PAGE;
            }
        }
        memory.work(words.div_ceil(step) * pace::CHECK_PAGE / PAGE_WORDS + pace::VISIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CountingMemory;

    fn filled(bytes: u64, value_bytes: u64) -> (CountingMemory, ValueTable) {
        let mut m = CountingMemory::new();
        let mut t = ValueTable::new(&mut m, bytes, value_bytes, false, 3).unwrap();
        let mut touches = Latency::new();
        while t.fill_next(&mut m, &mut touches) {}
        assert_eq!(touches.count(), (bytes / value_bytes * value_bytes).div_ceil(PAGE));
        (m, t)
    }

    #[test]
    fn every_rank_is_found_at_a_place_of_its_own() {
        let (mut m, t) = filled(1 << 20, 1000);
        let mut places = t.places.clone();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..1048));
        for rank in 0..t.count() {
            assert!(t.look(&mut m, rank).is_some());
            t.get(&mut m, rank, 1);
            t.put(&mut m, rank);
        }
        assert_eq!(m.stray, 0);
    }

    #[test]
    fn what_is_removed_is_gone_and_the_rest_is_found() {
        let (mut m, mut t) = filled(1 << 20, 4096);
        for rank in 0..200 {
            t.remove(&mut m, rank, 8);
        }
        for rank in 0..256 {
            assert_eq!(t.look(&mut m, rank).is_some(), rank >= 200, "{rank}");
        }
        let before = m.resident_pages();
        assert_eq!(t.give_back(&mut m).unwrap(), 200 * 4096);
        assert_eq!(m.resident_pages(), before - 200);
        for rank in 0..200 {
            assert!(t.add(&mut m, rank));
        }
        assert!(!t.add(&mut m, 0));
        assert!((0..256).all(|rank| t.look(&mut m, rank).is_some()));
        assert_eq!(m.stray, 0);
    }
}
