//! Advice at birth: a program that has filled its memory densely so far gets huge pages in what it maps next from the
//! first touch on. Allocators map a few megabytes at a time, and fill them before anybody has looked. What earlier runs
//! of it did counts, too, for a little.

use crate::mappings::LEAST_REGIONS;
use crate::span::REGION;
use crate::waste;

/// Regions that the program has to have filled densely, with base pages.
pub const LEAST_DENSE: u32 = 16;
/// Every so many-th new mapping stays on base pages, to see how densely the program fills it, unless contents have shown
/// that since the last one.
pub const PROBES: u32 = 16;
/// Regions of a probe that show how densely it is filled; the rest of it needs no base pages.
pub const PROBED: u32 = 4;
/// A mapping of so many regions is judged by its own: it is no probe.
pub const MOST_PROBED: u64 = PROBES as u64 * 4;
/// The part of the resident memory that the largest mapping advised at birth may have.
pub const PART: u64 = 4;
/// What earlier runs stand for until the program has filled more itself: with [`UNPROBED_PART`] no more is advised than
/// may be wasted.
pub const EARLIER: u64 = waste::LEAST * UNPROBED_PART;
/// The part of it that is advised until there is another probe, whatever that probe's size.
pub const UNPROBED_PART: u64 = 2;

/// A new mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New {
    /// Its size.
    pub bytes: u64,
    /// The program has placed it itself, in addresses that it had reserved, or an advised mapping has grown by it: pieces
    /// that adjoin are one mapping to the kernel, and are followed as one.
    pub is_piece: bool,
}

/// What becomes of a new mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Birth {
    /// Faults map huge pages in it.
    Advised,
    /// It stays on base pages, to see how densely it is filled.
    Probe,
    /// It is too small, or too large to trust what was seen elsewhere.
    Unknown,
}

/// What a program may get of huge pages in mappings that it makes from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Births {
    /// What the program has filled so far; nothing is advised while 0.
    pub resident_bytes: u64,
    /// Whether this run has shown it; else only earlier ones have, and a probe is no reason to advise more.
    pub is_seen: bool,
    /// Whether contents have just shown that the program fills what it gets.
    pub is_filled: bool,
}

impl Births {
    /// What becomes of a mapping that may be advised, where so many others and so many bytes have been since the last probe,
    /// or since contents have shown how they are filled. Pieces are no probes by their number: one of them is too small to
    /// tell.
    pub fn of(self, new: New, since: u32, unprobed: u64) -> Birth {
        let is_turn = since >= PROBES - 1 && new.bytes / REGION < MOST_PROBED && !new.is_piece;
        if !self.is_candidate(new) {
            Birth::Unknown
        } else if is_turn || unprobed.saturating_add(new.bytes) > self.resident_bytes / UNPROBED_PART {
            Birth::Probe
        } else {
            Birth::Advised
        }
    }

    /// Whether such a mapping may be advised at birth.
    pub fn is_candidate(self, new: New) -> bool {
        let least = if new.is_piece { 1 } else { LEAST_REGIONS };
        new.bytes >= least * REGION && new.bytes <= self.resident_bytes / PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIRTHS: Births = Births {
        resident_bytes: 1 << 30,
        is_seen: true,
        is_filled: false,
    };

    fn whole(bytes: u64) -> New {
        New { bytes, is_piece: false }
    }

    #[test]
    fn a_mapping_is_advised_at_birth_up_to_a_quarter_of_what_the_program_has_filled() {
        use Birth::{Advised, Unknown};
        let of = |bytes| BIRTHS.of(whole(bytes), 0, 0);
        let sizes = [(8 << 20) - 1, 8 << 20, 1 << 28, (1 << 28) + 1];
        assert_eq!(sizes.map(of), [Unknown, Advised, Advised, Unknown]);
        assert_eq!(Births::default().of(whole(8 << 20), 0, 0), Unknown);
    }

    #[test]
    fn every_sixteenth_small_one_is_a_probe_and_one_whenever_half_of_the_memory_was_advised() {
        let first = |bytes| (0..64).find(|&since| BIRTHS.of(whole(bytes), since, 0) == Birth::Probe);
        assert_eq!([8 << 20, 64 << 20, 128 << 20].map(first), [Some(15), Some(15), None]);
        assert_eq!(BIRTHS.of(whole(8 << 20), 0, (504 << 20) + 1), Birth::Probe);
        assert_eq!(BIRTHS.of(whole(8 << 20), 0, 504 << 20), Birth::Advised);
    }

    #[test]
    fn a_piece_of_a_reserve_is_advised_from_one_region_on_and_a_probe_only_once_half_of_the_memory_was_advised() {
        let of = |bytes, nth, unprobed| BIRTHS.of(New { bytes, is_piece: true }, nth, unprobed);
        assert_eq!(of((2 << 20) - 1, 0, 0), Birth::Unknown);
        assert!((0..64).all(|nth| of(4 << 20, nth, 0) == Birth::Advised));
        assert_eq!(of(4 << 20, 0, 508 << 20), Birth::Advised);
        assert_eq!(of(4 << 20, 0, (508 << 20) + 1), Birth::Probe);
    }
}
