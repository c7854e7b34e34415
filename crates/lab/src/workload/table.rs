//! The dense part of `store`: an index by open addressing and a slab of values, both mapped and fully used. A value holds
//! its key, its version and words derived from both, so any word of it can be checked.

use super::{Common, WorkloadError};
use crate::memory::content::{self, mix};
use crate::memory::{base_page_bytes, Mapping};
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::{table_key, table_rank_at};
use std::sync::atomic::Ordering::Relaxed;

/// Words of a value before its derived words: key and version.
const HEAD: usize = 2;

/// The table.
#[derive(Debug)]
pub struct ValueTable {
    /// Pairs of key (0: free) and slab number.
    index: Mapping,
    mask: usize,
    slab: Mapping,
    words_per_value: usize,
    count: usize,
    /// Free slots of the slab, last in, first out; untouched while there are none.
    free: Mapping,
    free_count: usize,
    seed: u64,
}

impl ValueTable {
    /// Maps a table whose slab has `bytes` for values of `value_bytes` (a multiple of 8, at least 32), untouched.
    ///
    /// # Errors
    /// Invalid sizes; memory.
    pub fn new(bytes: usize, value_bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        if value_bytes < 32 || value_bytes % 8 != 0 || value_bytes > bytes {
            let text = format!("values of {value_bytes} bytes: expected a multiple of 8, 32 at least, {bytes} at most");
            return Err(WorkloadError::Usage(text));
        }
        let count = bytes / value_bytes;
        let slots = (count * 2).next_power_of_two();
        let (index, slab, free) = (
            common.map(slots.saturating_mul(16))?,
            common.map(bytes)?,
            common.map(count * 8)?,
        );
        Ok(Self {
            index,
            mask: slots - 1,
            slab,
            words_per_value: value_bytes / 8,
            count,
            free,
            free_count: 0,
            seed: common.seed,
        })
    }

    /// Index and slab.
    #[must_use]
    pub fn mappings(&self) -> [&Mapping; 2] {
        [&self.index, &self.slab]
    }

    /// Capacity in values; all are present after [`Self::fill`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The key of rank `rank`; ranks are scattered over the slab, so that hot keys share no pages.
    #[must_use]
    pub fn key(&self, rank: u64) -> u64 {
        table_key(self.seed, rank)
    }

    /// Inserts every key, recording the first touch of each page of the slab in `touches`.
    pub fn fill(&self, touches: &mut Latency) {
        let words_per_page = base_page_bytes() / 8;
        let mut next_page = 0;
        let words = self.slab.words();
        for slab_at in 0..self.count {
            let end = (slab_at + 1) * self.words_per_value;
            // The value is written afterwards, over the touched word.
            while next_page * words_per_page < end {
                let w = &words[next_page * words_per_page];
                let start = now_ns();
                w.store(1, Relaxed);
                touches.record(now_ns() - start);
                next_page += 1;
            }
            let key = self.key(self.rank_at(slab_at));
            self.insert(key, slab_at as u64);
            self.write(slab_at, key, 0);
        }
    }

    /// Rank of the value at a slab place: a fixed shuffle (multiplication by an odd constant, modulo the count).
    fn rank_at(&self, slab_at: usize) -> u64 {
        let count = self.count as u64;
        table_rank_at(slab_at as u64, content::scatter(count), count)
    }

    fn insert(&self, key: u64, slab_at: u64) {
        let words = self.index.words();
        let mut slot = mix(key) as usize & self.mask;
        while words[slot * 2].load(Relaxed) != 0 {
            slot = (slot + 1) & self.mask;
        }
        words[slot * 2].store(key, Relaxed);
        words[slot * 2 + 1].store(slab_at, Relaxed);
    }

    /// Index slot and slab place of `key`; `None` when it is not there.
    fn look(&self, key: u64) -> Result<Option<(usize, usize)>, WorkloadError> {
        let words = self.index.words();
        let mut slot = mix(key) as usize & self.mask;
        for _ in 0..=self.mask {
            match words[slot * 2].load(Relaxed) {
                k if k == key => match words[slot * 2 + 1].load(Relaxed) as usize {
                    at if at < self.count => return Ok(Some((slot, at))),
                    at => return Err(WorkloadError::Corrupt(format!("index of key {key:#x} points to {at}"))),
                },
                0 => break,
                _ => slot = (slot + 1) & self.mask,
            }
        }
        Ok(None)
    }

    fn find(&self, key: u64) -> Result<(usize, usize), WorkloadError> {
        let gone = || WorkloadError::Corrupt(format!("key {key:#x} is gone from the index"));
        self.look(key)?.ok_or_else(gone)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// When the index is corrupt.
    pub fn contains(&self, key: u64) -> Result<bool, WorkloadError> {
        Ok(self.look(key)?.is_some())
    }

    /// Inserts `key`, which must be absent, at the slot freed last; false when none is free.
    pub fn add(&mut self, key: u64) -> bool {
        let Some(last) = self.free_count.checked_sub(1) else {
            return false;
        };
        let at = self.free.words()[last].load(Relaxed);
        self.free_count = last;
        self.insert(key, at);
        self.write(at as usize, key, 0);
        true
    }

    /// Removes `key` after checking its head and every `step`-th word of its value: a delete must not hide a corruption.
    ///
    /// # Errors
    /// When it is absent; when index or value are corrupt.
    pub fn remove(&mut self, key: u64, step: usize) -> Result<(), WorkloadError> {
        self.get(key, step)?;
        let (slot, at) = self.find(key)?;
        self.free.words()[self.free_count].store(at as u64, Relaxed);
        self.free_count += 1;
        self.close(slot);
        Ok(())
    }

    /// Empties an index slot, and shifts the entries after it back so that probes still find them.
    fn close(&self, slot: usize) {
        let words = self.index.words();
        let (mut hole, mut next) = (slot, slot);
        for _ in 0..self.mask {
            next = (next + 1) & self.mask;
            let key = words[next * 2].load(Relaxed);
            if key == 0 {
                break;
            }
            let home = mix(key) as usize & self.mask;
            // It may move if its probe sequence starts at the hole or before it.
            if next.wrapping_sub(home) & self.mask >= next.wrapping_sub(hole) & self.mask {
                words[hole * 2].store(key, Relaxed);
                words[hole * 2 + 1].store(words[next * 2 + 1].load(Relaxed), Relaxed);
                hole = next;
            }
        }
        words[hole * 2].store(0, Relaxed);
        words[hole * 2 + 1].store(0, Relaxed);
    }

    /// Returns whole free base pages to the kernel, as a purging allocator does. Returns their bytes.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn give_back(&mut self) -> Result<usize, WorkloadError> {
        let mut free: Vec<usize> = self.free.words()[..self.free_count]
            .iter()
            .map(|w| w.load(Relaxed) as usize)
            .collect();
        free.sort_unstable();
        let (page, value) = (base_page_bytes(), self.words_per_value * 8);
        let mut given = 0;
        for run in free.chunk_by(|a, b| a + 1 == *b) {
            let from = (run[0] * value).next_multiple_of(page);
            let to = (run[0] + run.len()) * value / page * page;
            if from < to {
                self.slab.advise(from..to, libc::MADV_DONTNEED)?;
                given += to - from;
            }
        }
        Ok(given)
    }

    fn value_seed(key: u64, version: u64) -> u64 {
        key ^ mix(version)
    }

    fn write(&self, slab_at: usize, key: u64, version: u64) {
        let from = slab_at * self.words_per_value;
        let words = &self.slab.words()[from..from + self.words_per_value];
        words[0].store(key, Relaxed);
        words[1].store(version, Relaxed);
        content::fill(&words[HEAD..], Self::value_seed(key, version));
    }

    /// Writes a new version of the value of `key` after checking the old one: a write must not hide a corruption.
    ///
    /// # Errors
    /// When index or value are corrupt.
    pub fn put(&self, key: u64) -> Result<(), WorkloadError> {
        self.get(key, 1)?;
        let (_, at) = self.find(key)?;
        let version = self.slab.words()[at * self.words_per_value + 1].load(Relaxed);
        self.write(at, key, version + 1);
        Ok(())
    }

    /// Reads the value of `key` and checks its head and every `step`-th word.
    ///
    /// # Errors
    /// When anything is corrupt.
    pub fn get(&self, key: u64, step: usize) -> Result<(), WorkloadError> {
        let (_, at) = self.find(key)?;
        let from = at * self.words_per_value;
        let words = &self.slab.words()[from..from + self.words_per_value];
        let seed = Self::value_seed(key, words[1].load(Relaxed));
        let wrong = |i: usize| {
            let address = self.slab.start() + (from + i) * 8;
            let text = format!(
                "value of key {key:#x}, word {i} at {address:#x} is {:#x}",
                words[i].load(Relaxed)
            );
            WorkloadError::Corrupt(text)
        };
        if words[0].load(Relaxed) != key {
            return Err(wrong(0));
        }
        for (i, w) in words.iter().enumerate().skip(HEAD).step_by(step.max(1)) {
            if w.load(Relaxed) != content::word(seed, (i - HEAD) as u64) {
                return Err(wrong(i));
            }
        }
        Ok(())
    }

    /// Looks up every key and checks every word of its value.
    ///
    /// # Errors
    /// The first corrupt value.
    pub fn verify(&self) -> Result<usize, WorkloadError> {
        (0..self.count as u64).try_for_each(|rank| self.get(self.key(rank), 1))?;
        Ok(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_before_and_after_writes_whatever_the_value_size() {
        for value_bytes in [32, 1000, 1024, 4096, 5000] {
            let t = ValueTable::new(1 << 20, value_bytes, &Common::of_seed(3)).unwrap();
            let mut touches = Latency::new();
            t.fill(&mut touches);
            assert_eq!(t.verify().unwrap(), (1 << 20) / value_bytes, "{value_bytes}");
            let used = (t.count() * value_bytes).div_ceil(4096) as u64;
            assert_eq!(touches.count(), used, "one first touch per page used");
            (0..10).for_each(|r| t.put(t.key(r)).unwrap());
            t.verify().unwrap();
        }
    }

    #[test]
    fn keys_come_and_go_and_all_others_stay_found() {
        let mut t = ValueTable::new(1 << 18, 64, &Common::of_seed(3)).unwrap();
        t.fill(&mut Latency::new());
        let n = t.count() as u64;
        let gone = |rank: u64| mix(rank) % 3 == 0;
        assert!(!t.add(1), "there is no room");
        for rank in (0..n).filter(|r| gone(*r)) {
            t.remove(t.key(rank), 1).unwrap();
        }
        for rank in 0..n {
            assert_eq!(t.contains(t.key(rank)).unwrap(), !gone(rank));
            assert_eq!(t.get(t.key(rank), 1).is_ok(), !gone(rank));
        }
        for rank in (0..n).filter(|r| gone(*r)) {
            assert!(t.add(t.key(rank)));
        }
        assert_eq!(t.verify().unwrap(), t.count());
        assert!(!t.add(1));
    }

    #[test]
    fn pages_without_values_are_given_back_and_no_others() {
        let mut t = ValueTable::new(1 << 20, 2048, &Common::of_seed(3)).unwrap();
        t.fill(&mut Latency::new());
        // Places 0..=2 are free: page 0, and half of page 1.
        let key_at = |at: usize| t.slab.words()[at * 256].load(Relaxed);
        let keys = [key_at(0), key_at(1), key_at(2), key_at(9)];
        for key in keys {
            t.remove(key, 1).unwrap();
        }
        assert_eq!(t.give_back().unwrap(), 4096);
        assert_eq!(content::verify_zero(t.slab.page_words(0)), Ok(()));
        let left = (0..t.count() as u64).map(|r| t.key(r)).filter(|k| !keys.contains(k));
        assert_eq!(left.filter(|k| t.get(*k, 1).is_ok()).count(), t.count() - 4);
    }

    #[test]
    fn a_changed_word_a_lost_key_and_a_stale_version_are_found() {
        let t = ValueTable::new(1 << 16, 1024, &Common::of_seed(3)).unwrap();
        t.fill(&mut Latency::new());
        t.slab.words()[5].fetch_xor(1, Relaxed);
        assert!(t.verify().unwrap_err().to_string().contains("word 5"));
        t.slab.words()[5].fetch_xor(1, Relaxed);
        t.slab.words()[1].store(9, Relaxed);
        assert!(t.verify().is_err());
        t.slab.words()[1].store(0, Relaxed);
        t.verify().unwrap();
        t.index.words().iter().for_each(|w| w.store(0, Relaxed));
        assert!(t.verify().unwrap_err().to_string().contains("gone from the index"));
    }

    #[test]
    fn value_sizes_that_make_no_sense_are_wrong_usage() {
        for bad in [0, 16, 33, 1 << 30] {
            assert_eq!(
                ValueTable::new(1 << 20, bad, &Common::of_seed(1))
                    .unwrap_err()
                    .exit_code(),
                2
            );
        }
    }
}
