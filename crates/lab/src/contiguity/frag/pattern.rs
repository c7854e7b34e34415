//! Which pages a fragmenter keeps.

use crate::memory::content::mix;
use crate::memory::{base_page_bytes, HUGE_BYTES};
use mega_core::units::Share;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// How memory is fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragKind {
    /// `frag` of the allocation-latency study: allocates base pages of almost all memory, then frees ¾ of each 2 MB chunk's
    /// pages. The study does not say which; here the kept ones are evenly spaced.
    Study,
    /// The fragmenter of LRBHPS (section 4.2) and Quicksilver: allocates a huge page, unmaps part of it, and repeats until
    /// no huge page is left. The paper does not say how large a part; here half, at the start or the end by the seed.
    Reserve,
    /// MEGA's (section 4.3): allocates, then frees 50 % in chunks of 1 MB.
    Holes,
}

impl FragKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Study, Self::Reserve, Self::Holes];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Study => "study",
            Self::Reserve => "reserve",
            Self::Holes => "holes",
        }
    }

    /// Default share of memory kept.
    #[must_use]
    pub fn default_keep(self) -> Share {
        match self {
            Self::Study => Share::percent(25),
            Self::Reserve | Self::Holes => Share::percent(50),
        }
    }
}

impl fmt::Display for FragKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FragKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a kind of fragmentation: study, reserve or holes"))
    }
}

/// Bytes of the chunks that [`FragKind::Holes`] frees.
const HOLE_BYTES: usize = 1 << 20;

const MILLION: u64 = 1_000_000;

/// Which pages of a 2 MB chunk are kept.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    kind: FragKind,
    keep: Share,
    seed: u64,
}

impl Pattern {
    /// The pattern of a kind, share and seed.
    #[must_use]
    pub fn new(kind: FragKind, keep: Share, seed: u64) -> Self {
        Self { kind, keep, seed }
    }

    /// The runs of base pages of 2 MB chunk `chunk` that are kept, relative to its first page, ascending and disjoint.
    #[must_use]
    pub fn kept(&self, chunk: usize) -> Vec<Range<usize>> {
        let pages = HUGE_BYTES / base_page_bytes();
        match self.kind {
            FragKind::Study => self.evenly(chunk, pages, 1),
            FragKind::Holes => {
                let hole = HOLE_BYTES / base_page_bytes();
                self.evenly(chunk, pages / hole, hole)
            }
            FragKind::Reserve => {
                let n = (self.keep.fraction() * pages as f64).round() as usize;
                let start = match mix(self.seed ^ chunk as u64) & 1 {
                    0 => 0,
                    _ => pages - n,
                };
                let one = Some(start..start + n).filter(|run| !run.is_empty());
                one.into_iter().collect()
            }
        }
    }

    /// The runs of the same chunk that are freed.
    #[must_use]
    pub fn freed(&self, chunk: usize) -> Vec<Range<usize>> {
        let mut at = 0;
        let mut freed = Vec::new();
        let end = HUGE_BYTES / base_page_bytes();
        for run in self.kept(chunk).into_iter().chain(std::iter::once(end..end)) {
            if at < run.start {
                freed.push(at..run.start);
            }
            at = run.end;
        }
        freed
    }

    /// Spreads the kept pieces evenly over all pieces of all chunks; the seed sets the offset.
    fn evenly(&self, chunk: usize, pieces: usize, piece_pages: usize) -> Vec<Range<usize>> {
        let keep = u64::from(self.keep.as_millionths());
        let first = mix(self.seed) % 512 + (chunk * pieces) as u64;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for piece in 0..pieces {
            let before = (first + piece as u64).wrapping_mul(keep) % MILLION;
            if before + keep < MILLION {
                continue;
            }
            let run = piece * piece_pages..(piece + 1) * piece_pages;
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(runs: &[Range<usize>]) -> usize {
        runs.iter().map(ExactSizeIterator::len).sum()
    }

    #[test]
    fn the_study_keeps_every_fourth_page_of_every_chunk() {
        let pattern = Pattern::new(FragKind::Study, FragKind::Study.default_keep(), 1);
        for chunk in 0..8 {
            let kept = pattern.kept(chunk);
            assert_eq!((kept.len(), pages(&kept)), (128, 128));
            assert!(kept.windows(2).all(|w| w[1].start - w[0].start == 4));
        }
    }

    #[test]
    fn holes_frees_every_other_megabyte() {
        let pattern = Pattern::new(FragKind::Holes, FragKind::Holes.default_keep(), 1);
        for chunk in 0..8 {
            let (kept, freed) = (pattern.kept(chunk), pattern.freed(chunk));
            assert_eq!((kept.len(), pages(&kept), freed.len(), pages(&freed)), (1, 256, 1, 256));
            assert_eq!(kept, pattern.kept(0), "one megabyte of each two, in a row");
        }
    }

    #[test]
    fn reserve_keeps_one_end_of_each_huge_page() {
        let pattern = Pattern::new(FragKind::Reserve, Share::percent(25), 7);
        let starts: Vec<usize> = (0..64).map(|chunk| pattern.kept(chunk)[0].start).collect();
        assert!(starts.contains(&0) && starts.contains(&384));
        assert!((0..64).all(|chunk| pages(&pattern.kept(chunk)) == 128));
    }

    #[test]
    fn kept_and_freed_make_up_the_chunk_whatever_the_share() {
        for kind in FragKind::ALL {
            for millionths in [0, 1, 3333, 250_000, 333_333, 900_000, 999_999, 1_000_000] {
                let pattern = Pattern::new(kind, Share::millionths(millionths), 9);
                let mut kept = 0;
                for chunk in 0..100 {
                    let (k, f) = (pattern.kept(chunk), pattern.freed(chunk));
                    assert_eq!(pages(&k) + pages(&f), 512, "{kind} {millionths}");
                    kept += pages(&k);
                }
                let wanted = f64::from(millionths) / 1e6 * 51_200.0;
                assert!(
                    (kept as f64 - wanted).abs() <= 256.0,
                    "{kind} {millionths}: {kept} for {wanted}"
                );
            }
        }
    }

    #[test]
    fn another_seed_keeps_other_pages() {
        let kept = |seed| Pattern::new(FragKind::Study, Share::percent(25), seed).kept(0);
        assert!((2..20).any(|seed| kept(seed) != kept(1)));
        assert_eq!(kept(1), kept(1));
    }
}
