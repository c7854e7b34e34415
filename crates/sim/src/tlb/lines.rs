//! Where the cache lines of page tables are: in L1, L2, L3 or memory.
//!
//! Each level of cache is a set-associative array of tags for lines of page tables alone, as large as the share of the cache that they are said
//! to win against data ([`Preset::share_percent`](super::Preset)). A line found nowhere comes from memory and is then in every level. Tags
//! are 32 bits of a hash of space, level and line number, so one false hit is expected in some hundred million look-ups: small and fast matter
//! more here, as the arrays stand for megabytes of cache.

/// Bytes of a cache line, and so eight entries of a page table.
pub const LINE_BYTES: u64 = 64;
/// Ways of a set; one set's tags fill half a line of the machine that simulates.
const WAYS: usize = 8;

/// One level: tags in the order of use, the last used first; 0 is empty.
#[derive(Debug, Clone)]
struct Level {
    sets: Box<[[u32; WAYS]]>,
    mask: u64,
    cycles: u32,
}

impl Level {
    fn new(lines: u64, cycles: u32) -> Self {
        let sets = previous_power_of_two(lines / WAYS as u64);
        Self {
            sets: vec![[0; WAYS]; sets as usize].into(),
            mask: sets - 1,
            cycles,
        }
    }

    /// Whether the line is here; it is now, and the last used.
    #[inline]
    fn access(&mut self, hash: u64, tag: u32) -> bool {
        let set = &mut self.sets[(hash & self.mask) as usize];
        if set[0] == tag {
            return true;
        }
        let mut place = WAYS - 1;
        let mut hit = false;
        // From the back, so that the first match stands; whole-set loops of fixed length become vector code.
        for (way, old) in set.iter().enumerate() {
            if *old == tag {
                place = way;
                hit = true;
            }
        }
        let old = *set;
        for way in 1..WAYS {
            set[way] = if way <= place { old[way - 1] } else { old[way] };
        }
        set[0] = tag;
        hit
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
    /// Room for so many lines at so many cycles each, L1 first; lines are rounded down to 8 times a power of two.
    pub(super) fn new(levels: [(u64, u32); 3], memory_cycles: u32) -> Self {
        Self {
            levels: levels.map(|(lines, cycles)| Level::new(lines, cycles)),
            memory_cycles,
        }
    }

    /// Reads one line; what that takes in cycles.
    #[inline]
    pub(super) fn read(&mut self, key: u64) -> u32 {
        let hash = mix(key);
        let tag = (hash >> 32) as u32 | 1;
        for level in &mut self.levels {
            if level.access(hash, tag) {
                return level.cycles;
            }
        }
        self.memory_cycles
    }

    /// Nothing of the page tables is in any cache.
    pub(super) fn clear(&mut self) {
        for level in &mut self.levels {
            level.sets.fill([0; WAYS]);
        }
    }

    /// How many lines each level can hold.
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
            let mut naive: [Vec<Vec<u64>>; 3] = [vec![vec![]; 2], vec![vec![]; 8], vec![vec![]; 16]];
            for key in keys {
                let mut expected = 200;
                for (level, cycles) in [4, 14, 50].into_iter().enumerate() {
                    let sets = naive[level].len() as u64;
                    let set = &mut naive[level][(mix(key) % sets) as usize];
                    let at = set.iter().position(|k| *k == key);
                    if let Some(at) = at {
                        set.remove(at);
                    }
                    set.insert(0, key);
                    set.truncate(8);
                    if at.is_some() {
                        expected = cycles;
                        break;
                    }
                }
                prop_assert_eq!(lines.read(key), expected);
            }
        }
    }

    #[test]
    fn room_is_rounded_down_to_a_power_of_two_of_sets() {
        let lines = Lines::new([(100, 1), (8, 1), (1, 1)], 9);
        assert_eq!(lines.capacity(), [64, 8, 8]);
    }
}
