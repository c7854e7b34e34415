//! Random accesses over growing memory: how far a TLB reaches. It is the pointer chase that a processor's preset is checked with.

use std::hint::black_box;

use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::area::Area;
use super::clock::{minor_faults, now_ns, time};
use super::cpus::on_one_cpu;
use super::predict::{chase, offset};
use super::{CalibrateError, PAGE, REGION};
use mega_sim::tlb::PageSize;
use mega_sim::workload::{pace, pattern};

/// One point of [`reach`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// Memory that the accesses are spread over at random.
    pub bytes: u64,
    /// The page size asked for.
    pub size: PageSize,
    /// Whether the kernel gave that size, by the number of faults.
    pub as_asked: bool,
    /// Nanoseconds per access that waits for the one before: lowest, median and highest of five runs.
    pub ns: [f64; 3],
    /// Nanoseconds per access that does not: the median of five runs.
    #[serde(default)]
    pub overlapped_ns: f64,
}

impl Reach {
    /// Several measurements of the same rows as one: of each figure the median, and as asked where all were. Rows that not all have are left out.
    #[must_use]
    pub fn median(of: &[Vec<Self>]) -> Vec<Self> {
        let Some((first, others)) = of.split_first() else {
            return Vec::new();
        };
        let same = |row: &Self| -> Option<Vec<Self>> {
            let in_one = |rows: &Vec<Self>| {
                rows.iter()
                    .find(|r| (r.bytes, r.size) == (row.bytes, row.size))
                    .cloned()
            };
            std::iter::once(Some(row.clone()))
                .chain(others.iter().map(in_one))
                .collect()
        };
        let median = |rows: &[Self], figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = rows.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[(figures.len() - 1) / 2]
        };
        let merged = |rows: Vec<Self>| Self {
            bytes: rows[0].bytes,
            size: rows[0].size,
            as_asked: rows.iter().all(|row| row.as_asked),
            ns: [
                median(&rows, |r| r.ns[0]),
                median(&rows, |r| r.ns[1]),
                median(&rows, |r| r.ns[2]),
            ],
            overlapped_ns: median(&rows, |r| r.overlapped_ns),
        };
        first.iter().filter_map(same).map(merged).collect()
    }
}

/// Nanoseconds per random access over growing memory, from 16 KB over 8 MB to `largest` bytes in powers of two, with base and with huge pages.
/// Takes about half a minute for 4 GB, and that much memory.
///
/// # Errors
///
/// If memory cannot be mapped, or the measuring thread cannot run.
pub fn reach(largest: u64) -> Result<Vec<Reach>, CalibrateError> {
    let mut rows = Vec::new();
    on_one_cpu(|_| {
        for (size, advice) in [
            (PageSize::Base, Advice::LinuxNoHugepage),
            (PageSize::Huge, Advice::LinuxHugepage),
        ] {
            let area = Area::new(largest.next_power_of_two() as usize)?;
            area.advise(0, area.bytes, advice)?;
            let before = minor_faults();
            area.touch_every(0, area.bytes, PAGE);
            let faults = (minor_faults() - before) as usize;
            let as_asked = match size {
                PageSize::Base => faults >= area.bytes / PAGE,
                _ => faults <= area.bytes / REGION + 64,
            };
            let mut bytes = 16 << 10;
            while bytes <= area.bytes as u64 {
                chase_ns(&area, bytes, 1_000_000);
                let mut ns: Vec<f64> = (0..5).map(|_| chase_ns(&area, bytes, 600_000)).collect();
                ns.sort_by(f64::total_cmp);
                let mut overlapped: Vec<f64> = (0..5).map(|_| independent_ns(&area, bytes, 2_000_000)).collect();
                overlapped.sort_by(f64::total_cmp);
                rows.push(Reach {
                    bytes,
                    size,
                    as_asked,
                    ns: [ns[0], ns[2], ns[4]],
                    overlapped_ns: overlapped[2],
                });
                bytes = if bytes < 8 << 20 { 8 << 20 } else { bytes * 2 };
            }
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Nanoseconds per load, each waiting for the one before, at random over the area's first bytes (a power of two).
pub(super) fn chase_ns(area: &Area, bytes: u64, accesses: u64) -> f64 {
    let mut place = now_ns();
    let ns = time(|| {
        for _ in 0..accesses {
            let loaded = area.read(offset(place, bytes) as usize);
            place = chase(place, loaded);
        }
    });
    black_box(place);
    ns / accesses as f64
}

/// Nanoseconds of memory per update at random where none waits for another: those of GUPS, less its computing.
pub(super) fn independent_ns(area: &Area, bytes: u64, accesses: u64) -> f64 {
    let mut rng = pattern::rng(now_ns());
    let ns = time(|| {
        for (index, random) in pattern::updates(&mut rng, bytes / 8).take(accesses as usize) {
            area.update(8 * index as usize, random);
        }
    });
    (ns / accesses as f64 - pace::UPDATE as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_chases_each_row_is_the_median_of_those_that_all_have() {
        let row = |bytes, ns: f64, as_asked| Reach {
            bytes,
            size: PageSize::Huge,
            as_asked,
            ns: [ns, ns + 1.0, ns + 2.0],
            overlapped_ns: ns / 2.0,
        };
        let median = Reach::median(&[
            vec![row(1, 10.0, true), row(2, 20.0, true)],
            vec![row(1, 30.0, true)],
            vec![row(1, 14.0, false), row(2, 22.0, true)],
        ]);
        assert_eq!(median, vec![row(1, 14.0, false)]);
        assert!(Reach::median(&[]).is_empty());
    }
}
