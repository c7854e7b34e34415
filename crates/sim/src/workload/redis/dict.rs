//! The dictionary (Redis 7, dict.c): an array of buckets with chains of entries, doubled when there are as many entries as buckets,
//! and moved over one bucket with each request.

use super::jemalloc::{Jemalloc, Object};
use super::mix;
use crate::workload::{Memory, MemoryError};

/// Bytes of an entry: key, value, next.
pub(super) const ENTRY: u64 = 24;
/// Buckets at first.
const LEAST: usize = 4;

/// One array of buckets.
#[derive(Debug)]
struct Buckets {
    memory: Object,
    /// The first item of each chain, plus 1; 0: none.
    heads: Vec<u32>,
}

impl Buckets {
    fn new<M: Memory>(memory: &mut M, heap: &mut Jemalloc, count: usize) -> Result<Self, MemoryError> {
        let object = heap.allocate_zeroed(memory, count as u64 * 8)?;
        Ok(Self {
            memory: object,
            heads: vec![0; count],
        })
    }

    fn address(&self, bucket: usize) -> u64 {
        self.memory.address + bucket as u64 * 8
    }
}

/// The dictionary of item numbers.
#[derive(Debug)]
pub(super) struct Dict {
    table: Buckets,
    /// The larger one, while entries move there, and the next bucket to move.
    next: Option<(Buckets, usize)>,
    /// The item after each in its chain, plus 1.
    chain: Vec<u32>,
    used: usize,
    seed: u64,
}

impl Dict {
    pub(super) fn new<M: Memory>(memory: &mut M, heap: &mut Jemalloc, seed: u64) -> Result<Self, MemoryError> {
        Ok(Self {
            table: Buckets::new(memory, heap, LEAST)?,
            next: None,
            chain: Vec::new(),
            used: 0,
            seed,
        })
    }

    fn hash(&self, item: u32) -> usize {
        mix(self.seed ^ u64::from(item)) as usize
    }

    /// The array and the bucket in which an item is, if it is.
    fn place(&self, item: u32) -> (&Buckets, usize) {
        let hash = self.hash(item);
        let bucket = hash & (self.table.heads.len() - 1);
        match &self.next {
            Some((next, moved)) if bucket < *moved => (next, hash & (next.heads.len() - 1)),
            _ => (&self.table, bucket),
        }
    }

    /// Reads the bucket and its chain up to the item. `at` says where an item's entry and key are.
    pub(super) fn find<M: Memory>(&self, memory: &mut M, item: u32, at: impl Fn(u32) -> Option<(u64, u64)>) {
        let (table, bucket) = self.place(item);
        memory.touch(table.address(bucket), false);
        let mut link = table.heads[bucket];
        while let Some(found) = link.checked_sub(1) {
            if let Some((entry, key)) = at(found) {
                memory.touch(entry, false);
                memory.touch(key, false);
            }
            if found == item {
                break;
            }
            link = self.chain[found as usize];
        }
    }

    /// Puts an item in that is not there, as the first of its chain.
    pub(super) fn insert<M: Memory>(
        &mut self,
        memory: &mut M,
        heap: &mut Jemalloc,
        item: u32,
        entry: impl Fn(u32) -> u64,
    ) -> Result<(), MemoryError> {
        self.move_one(memory, heap, &entry)?;
        if self.next.is_none() && self.used >= self.table.heads.len() {
            let count = (self.used + 1).next_power_of_two();
            self.next = Some((Buckets::new(memory, heap, count)?, 0));
        }
        if self.chain.len() <= item as usize {
            self.chain.resize(item as usize + 1, 0);
        }
        let hash = self.hash(item);
        // New entries go to the larger array.
        let table = match &mut self.next {
            Some((next, _)) => next,
            None => &mut self.table,
        };
        let bucket = hash & (table.heads.len() - 1);
        memory.touch(table.address(bucket), true);
        self.chain[item as usize] = table.heads[bucket];
        table.heads[bucket] = item + 1;
        self.used += 1;
        Ok(())
    }

    /// Takes an item out, which is there or not.
    pub(super) fn remove<M: Memory>(&mut self, memory: &mut M, item: u32, entry: impl Fn(u32) -> u64) {
        let hash = self.hash(item);
        let tables = [Some(&mut self.table), self.next.as_mut().map(|(next, _)| next)];
        for table in tables.into_iter().flatten() {
            let bucket = hash & (table.heads.len() - 1);
            let mut link = table.heads[bucket];
            let mut before = None;
            while let Some(found) = link.checked_sub(1) {
                let after = self.chain[found as usize];
                if found == item {
                    match before {
                        None => {
                            memory.touch(table.address(bucket), true);
                            table.heads[bucket] = after;
                        }
                        Some(previous) => {
                            memory.touch(entry(previous) + 16, true);
                            self.chain[previous as usize] = after;
                        }
                    }
                    self.used -= 1;
                    return;
                }
                before = Some(found);
                link = after;
            }
        }
    }

    /// Moves the entries of one bucket, passing ten empty ones at most, as `dictRehash(d, 1)`.
    fn move_one<M: Memory>(
        &mut self,
        memory: &mut M,
        heap: &mut Jemalloc,
        entry: &impl Fn(u32) -> u64,
    ) -> Result<(), MemoryError> {
        let Some((mut next, mut bucket)) = self.next.take() else {
            return Ok(());
        };
        let mut empty = 0;
        while bucket < self.table.heads.len() {
            memory.touch(self.table.address(bucket), false);
            let mut link = std::mem::take(&mut self.table.heads[bucket]);
            bucket += 1;
            if link == 0 {
                empty += 1;
                if empty == 10 {
                    break;
                }
                continue;
            }
            while let Some(item) = link.checked_sub(1) {
                link = self.chain[item as usize];
                let to = self.hash(item) & (next.heads.len() - 1);
                memory.touch(entry(item), true);
                memory.touch(next.address(to), true);
                self.chain[item as usize] = next.heads[to];
                next.heads[to] = item + 1;
            }
            break;
        }
        if bucket == self.table.heads.len() {
            heap.free(memory, self.table.memory)?;
            self.table = next;
        } else {
            self.next = Some((next, bucket));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::CountingMemory;

    fn items_of(dict: &Dict) -> Vec<u32> {
        let mut all = Vec::new();
        for table in [Some(&dict.table), dict.next.as_ref().map(|(n, _)| n)]
            .into_iter()
            .flatten()
        {
            for head in &table.heads {
                let mut link = *head;
                while let Some(item) = link.checked_sub(1) {
                    all.push(item);
                    link = dict.chain[item as usize];
                }
            }
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn items_stay_through_growth_and_removal() {
        let mut m = CountingMemory::new();
        let mut heap = Jemalloc::new(1_000_000_000, 1);
        let mut dict = Dict::new(&mut m, &mut heap, 5).unwrap();
        let entries = m.map(1 << 20).unwrap();
        let at = |i: u32| entries + u64::from(i) * 24;
        for i in 0..3000 {
            dict.insert(&mut m, &mut heap, i, at).unwrap();
            if i % 3 == 0 {
                dict.remove(&mut m, i / 2, at);
                let gone = dict.used;
                dict.remove(&mut m, i / 2, at);
                assert_eq!(dict.used, gone);
            }
        }
        let all = items_of(&dict);
        assert_eq!(all.len(), dict.used);
        assert!(all.windows(2).all(|w| w[0] < w[1]));
        assert!(all.contains(&2999) && !all.contains(&0));
        assert_eq!(m.stray, 0);
    }
}
