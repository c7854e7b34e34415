//! Which cache holds the lines of page tables: L1, L2, L3 or memory.
//!
//! Each level of cache is a set-associative array of tags for lines of page tables alone, as large as the share of the cache that they are said
//! to win against data ([`Preset::share_percent`](super::Preset)). A line found nowhere comes from memory and is then in every level. Tags
//! are 16 bits of a hash of space, level and line number, so about one look-up in ten thousand hits falsely: small and fast matter more here,
//! as the arrays stand for megabytes of cache.

use wide::{i16x8, CmpEq};

/// Bytes of a cache line, and so eight entries of a page table.
pub const LINE_BYTES: u64 = 64;
/// Ways of a set: its tags are one vector.
const WAYS: usize = 8;

/// All bits of the places behind this one; of none for the last and for what is nowhere.
const BEHIND: [i16x8; WAYS + 1] = {
    let mut all = [i16x8::new([0; WAYS]); WAYS + 1];
    let mut at = 0;
    while at < WAYS {
        let mut behind = [0; WAYS];
        let mut place = at + 1;
        while place < WAYS {
            behind[place] = -1;
            place += 1;
        }
        all[at] = i16x8::new(behind);
        at += 1;
    }
    all
};

/// One level: a set's tags in the order of use, the last used first; 0 is empty.
#[derive(Debug, Clone)]
struct Level {
    sets: Box<[i16x8]>,
    mask: u64,
    cycles: u32,
}

/// Never 0, which is an empty place.
#[inline]
fn tag_of(hash: u64) -> i16 {
    (hash >> 48) as i16 | 1
}

impl Level {
    fn new(lines: u64, cycles: u32) -> Self {
        let sets = previous_power_of_two(lines / WAYS as u64);
        Self {
            sets: vec![i16x8::splat(0); sets as usize].into(),
            mask: sets - 1,
            cycles,
        }
    }

    /// Whether the line is here; it is now, and the last used. The same instructions either way: see [`order`](super::order), whose trick this is.
    #[inline]
    fn access(&mut self, hash: u64) -> bool {
        let set = &mut self.sets[(hash & self.mask) as usize];
        let old = *set;
        let tag = tag_of(hash);
        let same = old.cmp_eq(i16x8::splat(tag)).move_mask() as u32;
        let at = (same | 1 << WAYS).trailing_zeros() as usize;
        let [a, b, c, d, e, f, g, _] = old.to_array();
        let moved = i16x8::new([tag, a, b, c, d, e, f, g]);
        *set = moved ^ ((moved ^ old) & BEHIND[at]);
        same != 0
    }

    /// The same for several lines; leaves those that miss at the front, in their order, and returns their number.
    #[inline]
    fn filter(&mut self, hashes: &mut [u64]) -> usize {
        let mut missed = 0;
        let mut before = 0;
        for i in 0..hashes.len() {
            let hash = hashes[i];
            // The line asked for just before is here, and asking again changes nothing.
            let hit = (i > 0 && hash == before) || self.access(hash);
            before = hash;
            hashes[missed] = hash;
            missed += usize::from(!hit);
        }
        missed
    }
}

/// The largest power of two up to `n`, at least 1.
fn previous_power_of_two(n: u64) -> u64 {
    1 << n.max(1).ilog2()
}

/// The lines of page tables in three levels of cache.
#[derive(Debug, Clone)]
pub struct Lines {
    levels: [Level; 3],
    memory_cycles: u32,
}

impl Lines {
    /// Space for so many lines at so many cycles each, L1 first; lines are rounded down to 8 times a power of two.
    pub(super) fn new(levels: [(u64, u32); 3], memory_cycles: u32) -> Self {
        Self {
            levels: levels.map(|(lines, cycles)| Level::new(lines, cycles)),
            memory_cycles,
        }
    }

    /// Reads one line; returns the cycles.
    #[inline]
    pub(super) fn read(&mut self, key: u64) -> u32 {
        let hash = mix(key);
        for level in &mut self.levels {
            if level.access(hash) {
                return level.cycles;
            }
        }
        self.memory_cycles
    }

    /// Reads these lines one after the other; returns the cycles in total. A level of cache depends only on what missed in the level before, so going
    /// level by level is equivalent. The keys are destroyed.
    pub(super) fn read_all(&mut self, keys: &mut [u64]) -> u64 {
        for key in keys.iter_mut() {
            *key = mix(*key);
        }
        let mut cycles = 0;
        let mut left = keys.len();
        for level in &mut self.levels {
            let missed = level.filter(&mut keys[..left]);
            cycles += (left - missed) as u64 * u64::from(level.cycles);
            left = missed;
        }
        cycles + left as u64 * u64::from(self.memory_cycles)
    }

    /// Drops all lines of page tables from all caches.
    pub(super) fn clear(&mut self) {
        for level in &mut self.levels {
            level.sets.fill(i16x8::splat(0));
        }
    }

    /// Number of lines each level can hold.
    #[must_use]
    pub fn capacity(&self) -> [usize; 3] {
        [0, 1, 2].map(|level: usize| self.levels[level].sets.len() * WAYS)
    }
}

/// Spreads a key over 64 bits (the finisher of SplitMix64).
#[inline]
pub(super) fn mix(key: u64) -> u64 {
    let x = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_are_where_a_naive_cache_has_them(keys in prop::collection::vec(1u64..400, 1..3000)) {
            let mut lines = Lines::new([(16, 4), (64, 14), (128, 50)], 200);
            let mut at_once = lines.clone();
            let mut sum = 0;
            let mut naive: [Vec<Vec<u64>>; 3] = [vec![vec![]; 2], vec![vec![]; 8], vec![vec![]; 16]];
            for &key in &keys {
                let mut expected = 200;
                for (level, cycles) in [4, 14, 50].into_iter().enumerate() {
                    let sets = naive[level].len() as u64;
                    let set = &mut naive[level][(mix(key) % sets) as usize];
                    let tag = mix(key) >> 48 | 1;
                    let at = set.iter().position(|k| *k == tag);
                    if let Some(at) = at {
                        set.remove(at);
                    }
                    set.insert(0, tag);
                    set.truncate(8);
                    if at.is_some() {
                        expected = cycles;
                        break;
                    }
                }
                prop_assert_eq!(lines.read(key), expected);
                sum += u64::from(expected);
            }
            let mut keys = keys;
            let cycles: u64 = keys.chunks_mut(37).map(|keys| at_once.read_all(keys)).sum();
            prop_assert_eq!(cycles, sum);
            for (one, other) in lines.levels.iter().zip(&at_once.levels) {
                prop_assert_eq!(&one.sets, &other.sets);
            }
        }
    }

    #[test]
    fn room_is_rounded_down_to_a_power_of_two_of_sets() {
        let lines = Lines::new([(100, 1), (8, 1), (1, 1)], 9);
        assert_eq!(lines.capacity(), [64, 8, 8]);
    }
}
