//! Whether a region of our own memory is mapped by a huge page: by the page tables, never by what a call returned.

use crate::memory::{huge_bytes_within, HUGE_BYTES};
use mega_linux::scan::{choose, Preference, RegionScan, ScanRange, Scanner};

/// A way to check.
pub(super) enum HugeCheck {
    /// PAGEMAP_SCAN (6.7), or /proc/self/pagemap where frame numbers may be seen.
    Scanner(Box<dyn Scanner>, Vec<RegionScan>),
    /// /proc/self/smaps has only sums: regions must be checked in order, each right after its first touch.
    Sums(u64),
}

impl std::fmt::Debug for HugeCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl HugeCheck {
    /// The best way that works here.
    pub fn best() -> Self {
        let ways = ["pagemap_scan", "pagemap"].into_iter();
        let scanner = ways.map(Preference::Only).find_map(|way| choose(way).ok());
        match scanner {
            Some((scanner, _)) => Self::Scanner(scanner, Vec::new()),
            None => Self::Sums(0),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scanner(scanner, _) => scanner.name(),
            Self::Sums(_) => "smaps",
        }
    }

    /// Whether the 2 MB at `address`, of the mapping that begins at `start`, are mapped by a huge page.
    pub fn is_huge(&mut self, start: usize, address: usize) -> bool {
        match self {
            Self::Scanner(scanner, found) => {
                found.clear();
                let range = ScanRange {
                    start: address as u64,
                    end: (address + HUGE_BYTES) as u64,
                    young: false,
                };
                let seen = scanner.scan(std::process::id() as i32, &[range], found);
                seen.is_ok() && found.first().is_some_and(RegionScan::is_huge)
            }
            Self::Sums(before) => {
                let so_far = start..address + HUGE_BYTES;
                let now = huge_bytes_within(std::slice::from_ref(&so_far));
                let more = now > *before;
                *before = now;
                more
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Mapping, MADV_COLLAPSE};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn every_way_tells_huge_from_base_pages() {
        for way in [HugeCheck::best(), HugeCheck::Sums(0)] {
            let mut way = way;
            let mut area = Mapping::new(2 * HUGE_BYTES).unwrap();
            area.advise(0..HUGE_BYTES, libc::MADV_NOHUGEPAGE).unwrap();
            area.words().iter().step_by(512).for_each(|w| w.store(1, Relaxed));
            if let Err(error) = area.advise(HUGE_BYTES..2 * HUGE_BYTES, MADV_COLLAPSE) {
                eprintln!("SKIPPED: {error}");
                return;
            }
            let start = area.start();
            assert!(!way.is_huge(start, start), "{way:?}");
            assert!(way.is_huge(start, start + HUGE_BYTES), "{way:?}");
        }
    }
}
