//! Contents of huge pages: what is known, and which to read next.
//!
//! Zero-filled base pages inside a huge page show in no page table; their contents must be read. That costs a hundred times more than
//! reading the tables, so each huge page is read once it has stayed huge for an interval (one that is being filled says nothing yet),
//! and again from time to time, within an allowance of processor time per scan.

use std::collections::BTreeMap;
use std::time::Duration;

use mega_core::observe::Region;
use mega_core::units::BasePages;

use crate::sys::process_cpu_time;

/// Scans between two looks at the same huge page, at first.
const AGAIN_AFTER: u32 = 12;
/// And at most: each look that finds the same doubles them. So memory that stays as it is is not read once a minute for ever; to read all of
/// it would also find every latent memory error of the machine.
const AGAIN_AFTER_MAX: u32 = 16 * AGAIN_AFTER;
/// Part of the allowance that looking again may take; looking for the first time may take all of it.
const AGAIN_PART: u32 = 8;
/// Huge pages read at a time, so that the allowance is kept.
const BATCH: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Known {
    zero: Option<u16>,
    due: u32,
    /// Scans until the next look.
    again: u32,
}

/// The huge pages of one process. About 30 bytes each.
#[derive(Debug, Default)]
pub struct KnownContents {
    known: BTreeMap<Region, Known>,
    scan: u32,
}

impl KnownContents {
    /// Begins a scan with the regions that are huge now, by rising address: others are forgotten, new ones are due next time.
    pub fn begin_scan(&mut self, huge: impl Iterator<Item = Region>) {
        self.scan += 1;
        let mut old = std::mem::take(&mut self.known);
        let scan = self.scan;
        self.known = huge
            .map(|region| {
                let new = Known {
                    zero: None,
                    due: scan + 1,
                    again: AGAIN_AFTER,
                };
                (region, old.remove(&region).unwrap_or(new))
            })
            .collect();
    }

    /// Reads what is due, first looks first, with `read` until the allowance is spent; says what was spent. `read` gives the
    /// number of zero-filled base pages for each address that is still huge.
    pub fn inspect(&mut self, allowance: Duration, mut read: impl FnMut(&[Region]) -> Vec<(Region, u16)>) -> Duration {
        let began = process_cpu_time();
        let spent = || process_cpu_time().saturating_sub(began);
        let scan = self.scan;
        for (first_look, part) in [(true, 1), (false, AGAIN_PART)] {
            let mut due: Vec<(u32, Region)> = self
                .known
                .iter()
                .filter(|(_, known)| known.zero.is_none() == first_look && known.due <= scan)
                .map(|(region, known)| (known.due, *region))
                .collect();
            due.sort_unstable();
            for batch in due.chunks(BATCH) {
                if spent() >= allowance / part {
                    break;
                }
                let regions: Vec<_> = batch.iter().map(|(_, region)| *region).collect();
                for region in &regions {
                    // Not read for whatever reason: not first in line again at once.
                    self.set(*region, None);
                }
                for (region, zero) in read(&regions) {
                    self.set(region, Some(zero));
                }
            }
        }
        spent()
    }

    /// Huge pages that were never read.
    pub fn unread(&self) -> usize {
        self.known.values().filter(|known| known.zero.is_none()).count()
    }

    fn set(&mut self, region: Region, zero: Option<u16>) {
        let scan = self.scan;
        if let Some(known) = self.known.get_mut(&region) {
            match (zero, known.zero) {
                (Some(now), Some(before)) if now == before => known.again = (known.again * 2).min(AGAIN_AFTER_MAX),
                (Some(_), _) => known.again = AGAIN_AFTER,
                (None, _) => {}
            }
            known.due = scan + known.again;
            known.zero = zero.or(known.zero);
        }
    }

    /// Takes note of a look made for another reason.
    pub fn note(&mut self, region: Region, zero: u16) {
        self.set(region, Some(zero));
    }

    /// Zero-filled base pages of a huge page at its last look.
    pub fn zero(&self, region: Region) -> Option<BasePages> {
        self.known.get(&region)?.zero.map(|zero| BasePages(zero.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Duration = Duration::from_secs(60);

    fn scan(c: &mut KnownContents, huge: &[u64], allowance: Duration) -> Vec<u64> {
        c.begin_scan(huge.iter().map(|&r| Region(r)));
        let mut read = Vec::new();
        c.inspect(allowance, |batch| {
            read.extend(batch.iter().map(|r| r.0));
            batch.iter().map(|r| (*r, 7)).collect()
        });
        read
    }

    #[test]
    fn a_huge_page_is_read_once_it_has_stayed_huge_for_an_interval_and_again_much_later() {
        let mut c = KnownContents::default();
        assert!(scan(&mut c, &[1, 2], PLENTY).is_empty());
        assert_eq!(scan(&mut c, &[1, 2, 3], PLENTY), [1, 2]);
        assert_eq!(c.zero(Region(1)), Some(BasePages(7)));
        assert_eq!(c.zero(Region(3)), None);
        assert_eq!(scan(&mut c, &[1, 2, 3], PLENTY), [3]);
        let reads: Vec<_> = (0..AGAIN_AFTER)
            .map(|_| scan(&mut c, &[1, 2, 3], PLENTY).len())
            .collect();
        assert_eq!(reads.iter().sum::<usize>(), 3, "{reads:?}");
    }

    #[test]
    fn what_stays_the_same_is_read_ever_more_rarely_and_what_changes_as_before() {
        let looks = |zero: fn(u32) -> u16| {
            let mut c = KnownContents::default();
            let mut at = Vec::new();
            for n in 0..1000 {
                c.begin_scan([Region(1)].into_iter());
                c.inspect(PLENTY, |batch| {
                    at.push(n);
                    batch.iter().map(|r| (*r, zero(n))).collect()
                });
            }
            at
        };
        let same = looks(|_| 7);
        assert_eq!(same[..4], [1, 13, 37, 85]);
        assert!(
            same.windows(2).all(|pair| pair[1] - pair[0] <= AGAIN_AFTER_MAX) && same.len() < 12,
            "{same:?}"
        );
        assert_eq!(looks(|n| n as u16).len(), 84);
    }

    #[test]
    fn what_is_no_longer_huge_is_forgotten() {
        let mut c = KnownContents::default();
        scan(&mut c, &[1, 2], PLENTY);
        scan(&mut c, &[1, 2], PLENTY);
        scan(&mut c, &[2], PLENTY);
        assert_eq!(c.zero(Region(1)), None);
        assert!(scan(&mut c, &[1, 2], PLENTY).is_empty(), "huge anew: not due yet");
    }

    #[test]
    fn without_an_allowance_nothing_is_read() {
        let mut c = KnownContents::default();
        scan(&mut c, &[1], Duration::ZERO);
        assert!(scan(&mut c, &[1], Duration::ZERO).is_empty());
    }
}
