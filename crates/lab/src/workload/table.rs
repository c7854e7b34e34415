//! The dense part of `store`: an index by open addressing and a slab of values, both mapped and fully used. A value says
//! which key it belongs to, how often it was written, and is otherwise derived from both, so any word of it can be checked.

use super::{Common, WorkloadError};
use crate::clock::now_ns;
use crate::content::{self, mix};
use crate::latency::Latency;
use crate::memory::{base_page_bytes, Mapping};
use std::sync::atomic::Ordering::Relaxed;

/// Words of a value before its derived words: key and version.
const HEAD: usize = 2;

/// The table.
#[derive(Debug)]
pub struct Table {
    /// Pairs of key (0: free) and slab number.
    index: Mapping,
    mask: usize,
    slab: Mapping,
    words_per_value: usize,
    count: usize,
    seed: u64,
}

impl Table {
    /// Maps a table whose slab has `bytes` for values of `value_bytes` (a multiple of 8, at least 32), untouched.
    ///
    /// # Errors
    /// Sizes that make no sense; memory.
    pub fn new(bytes: usize, value_bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        if value_bytes < 32 || value_bytes % 8 != 0 || value_bytes > bytes {
            let text = format!("values of {value_bytes} bytes: expected a multiple of 8, 32 at least, {bytes} at most");
            return Err(WorkloadError::Usage(text));
        }
        let count = bytes / value_bytes;
        let slots = (count * 2).next_power_of_two();
        let (index, slab) = (common.map(slots * 16)?, common.map(bytes)?);
        Ok(Self {
            index,
            mask: slots - 1,
            slab,
            words_per_value: value_bytes / 8,
            count,
            seed: common.seed,
        })
    }

    /// Index and slab.
    #[must_use]
    pub fn mappings(&self) -> [&Mapping; 2] {
        [&self.index, &self.slab]
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The key of rank `rank`; ranks are scattered over the slab, so that hot keys share no pages.
    #[must_use]
    pub fn key(&self, rank: u64) -> u64 {
        mix(self.seed.wrapping_mul(0x1_0001).wrapping_add(rank)) | 1
    }

    /// Puts every key in, recording the first touch of each page of the slab in `touches`.
    pub fn fill(&self, touches: &mut Latency) {
        let words_per_page = base_page_bytes() / 8;
        let mut next_page = 0;
        let words = self.slab.words();
        for slab_at in 0..self.count {
            let end = (slab_at + 1) * self.words_per_value;
            // The value is written afterwards, over what the touch leaves.
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
        (slab_at as u128 * u128::from(self.stride()) % self.count as u128) as u64
    }

    /// A number without common factor with the count.
    fn stride(&self) -> u64 {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let n = self.count as u64;
        let mut stride = (n as f64 * 0.618_033_988) as u64 | 1;
        while gcd(stride, n) != 1 {
            stride += 2;
        }
        stride
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

    fn find(&self, key: u64) -> Result<usize, WorkloadError> {
        let words = self.index.words();
        let mut slot = mix(key) as usize & self.mask;
        for _ in 0..=self.mask {
            match words[slot * 2].load(Relaxed) {
                k if k == key => match words[slot * 2 + 1].load(Relaxed) as usize {
                    at if at < self.count => return Ok(at),
                    at => return Err(WorkloadError::Corrupt(format!("index of key {key:#x} points to {at}"))),
                },
                0 => break,
                _ => slot = (slot + 1) & self.mask,
            }
        }
        Err(WorkloadError::Corrupt(format!("key {key:#x} is gone from the index")))
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

    /// Writes a new version of the value of `key`, after a check of the old one: a write must not hide a corruption.
    ///
    /// # Errors
    /// When index or value are corrupt.
    pub fn put(&self, key: u64) -> Result<(), WorkloadError> {
        self.get(key, 1)?;
        let at = self.find(key)?;
        let version = self.slab.words()[at * self.words_per_value + 1].load(Relaxed);
        self.write(at, key, version + 1);
        Ok(())
    }

    /// Reads the value of `key` and checks its head and every `step`-th word.
    ///
    /// # Errors
    /// When anything is not what it must be.
    pub fn get(&self, key: u64, step: usize) -> Result<(), WorkloadError> {
        let at = self.find(key)?;
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
    /// The first that is not what it must be.
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
            let t = Table::new(1 << 20, value_bytes, &Common::of_seed(3)).unwrap();
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
    fn a_changed_word_a_lost_key_and_a_stale_version_are_found() {
        let t = Table::new(1 << 16, 1024, &Common::of_seed(3)).unwrap();
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
                Table::new(1 << 20, bad, &Common::of_seed(1)).unwrap_err().exit_code(),
                2
            );
        }
    }
}
