//! Advice at birth: a program that has filled its memory densely so far gets huge pages in what it maps next from the
//! first touch on. Allocators map a few megabytes at a time, and fill them before anybody has looked.

use crate::span::REGION;
use crate::table::LEAST_REGIONS;

/// Regions that the program has to have filled densely, with base pages.
pub const LEAST_DENSE: u32 = 16;
/// Every so many-th new mapping stays on base pages, to see how densely the program fills it.
pub const PROBES: u32 = 16;
/// A mapping of so many regions is judged by its own: it is no probe.
pub const MOST_PROBED: u64 = PROBES as u64 * 4;

/// What a program may get of huge pages in mappings that it makes from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Births {
    /// Bytes of the largest mapping that is advised: what the program has filled so far. Nothing is advised while 0.
    pub most_bytes: u64,
}

impl Births {
    /// Whether a mapping of this size is advised at birth, the `nth` that may be.
    pub fn is_advised(self, bytes: u64, nth: u32) -> bool {
        self.is_candidate(bytes) && !(nth % PROBES == PROBES - 1 && bytes / REGION < MOST_PROBED)
    }

    /// Whether a mapping of this size may be advised at birth.
    pub fn is_candidate(self, bytes: u64) -> bool {
        bytes >= LEAST_REGIONS * REGION && bytes <= self.most_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIRTHS: Births = Births { most_bytes: 1 << 30 };

    #[test]
    fn a_mapping_is_advised_at_birth_up_to_what_the_program_has_filled() {
        let of = |bytes| BIRTHS.is_advised(bytes, 0);
        assert_eq!(
            [(8 << 20) - 1, 8 << 20, 1 << 30, (1 << 30) + 1].map(of),
            [false, true, true, false]
        );
        assert!(!Births::default().is_advised(8 << 20, 0));
    }

    #[test]
    fn every_sixteenth_small_one_is_a_probe() {
        let probes = |bytes| (0..64).filter(|&nth| !BIRTHS.is_advised(bytes, nth)).count();
        assert_eq!([8 << 20, 64 << 20, 128 << 20].map(probes), [4, 4, 0]);
    }
}
