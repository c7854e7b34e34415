//! Calibration: measures the costs of this machine and the reach of its TLB from user space, for the simulator ([`mega_sim::cost`]).
//!
//! [`run`] takes fifteen seconds and 1.1 GB, changes no setting and leaves nothing behind: it unmaps what it maps, and works in a thread of its own,
//! pinned to one CPU (a second one answers shootdowns). Each figure is the median of repeated samples; the first round is discarded, as the first
//! touch of memory that the host does not back costs many times the others. What user space cannot measure (compaction, swap, scanning) keeps
//! the default's value.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | the costs: faults, copies, collapse and split, ageing, calls |
//! | `reach` | random accesses over growing memory: the pointer chase |
//! | [`predict`] | what the chase should take on a processor, by the TLB model |
//! | [`fit`] | the figures of a processor's preset that differ from machine to machine, found by the chase |
//! | `area`, `clock`, `cpus` | memory to measure on (unsafe code), time, pinning |

mod area;
mod clock;
mod cpus;
pub mod fit;
pub mod predict;
mod reach;

use std::hint::{black_box, spin_loop};
use std::io;

use area::Area;
use clock::{minor_faults, now_ns, time};
use cpus::{beside, on_one_cpu};
use reach::{chase_ns, independent_ns};
pub use reach::{reach, Reach};
use rustix::mm::Advice;
use serde::Serialize;

use mega_sim::cost::Costs;
use mega_sim::workload::pattern;
use predict::LOOP_CYCLES;

const PAGE: usize = 4096;
const REGION: usize = 2 << 20;
const MIB: usize = 1 << 20;
/// Memory to fault in and to promote: more than the processor's caches hold, as in real programs. Zeroing and copying cached memory
/// takes half as long.
const FAULTED: usize = 1 << 30;
const PROMOTED: usize = 256 * MIB;
/// Memory faulted in between two readings of the clock.
const CHUNK: usize = 128 * PAGE;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A system call failed.
    #[error("calibrating: {what}: {error}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The measuring thread ended early.
    #[error("calibrating: the measuring thread ended early")]
    Thread,
}

fn failed(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> CalibrateError {
    move |error| CalibrateError::System {
        what,
        error: error.into(),
    }
}

/// One figure's samples in nanoseconds (of `mhz`: in cycles per microsecond).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// What was measured.
    pub what: &'static str,
    /// How many samples.
    pub samples: usize,
    /// First quartile.
    pub p25: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub p75: f64,
}

/// Result of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The costs, with the default's where nothing was measured. [`Costs::to_json`] is what to keep.
    pub costs: Costs,
    /// What the costs follow from, with the spread.
    pub samples: Vec<Sample>,
    /// Which costs could not be measured, and why.
    pub notes: Vec<String>,
}

/// Measures this machine's costs. Name, kernel and date are the caller's, and are kept with them.
///
/// # Errors
///
/// If memory cannot be mapped, or the measuring thread cannot run. A single figure that cannot be measured is a note instead.
pub fn run(machine: &str, kernel: &str, date: &str) -> Result<Calibration, CalibrateError> {
    let mut calibration = Calibration {
        costs: Costs {
            machine: machine.into(),
            kernel: kernel.into(),
            date: date.into(),
            ..Costs::default()
        },
        samples: Vec::new(),
        notes: Vec::new(),
    };
    on_one_cpu(|second_cpu| {
        calibration.faults()?;
        calibration.copies()?;
        calibration.promotions(second_cpu)?;
        calibration.ageing()?;
        calibration.calls(second_cpu)?;
        calibration.memory()
    })?;
    if let Err(error) = calibration.costs.check() {
        calibration
            .notes
            .push(format!("the figures contradict each other: {error}"));
    }
    Ok(calibration)
}

/// Cycles per microsecond of this CPU as it runs now: a chain of squarings and exclusive ors, three cycles and one on every x86-64 of the last ten
/// years. (A chain of multiplications alone would be shortened by the compiler.)
#[must_use]
pub fn mhz() -> u32 {
    let factor = black_box(0x9E37_79B9_7F4A_7C15u64);
    let mut best = f64::MAX;
    for _ in 0..20 {
        let mut x = 1u64;
        let start = now_ns();
        for _ in 0..1_000_000 {
            x = x.wrapping_mul(x) ^ factor;
        }
        black_box(x);
        best = best.min((now_ns() - start) as f64);
    }
    (4.0 * 1e6 * 1000.0 / best) as u32
}

impl Calibration {
    /// Keeps the samples; returns their median.
    fn keep(&mut self, what: &'static str, mut ns: Vec<f64>) -> f64 {
        ns.sort_by(f64::total_cmp);
        let at = |share: usize| ns.get(ns.len() * share / 4).copied().unwrap_or(0.0);
        let sample = Sample {
            what,
            samples: ns.len(),
            p25: at(1),
            median: at(2),
            p75: at(3),
        };
        let median = sample.median;
        self.samples.push(sample);
        median
    }

    /// Faults of both sizes, and unmapping.
    fn faults(&mut self) -> Result<(), CalibrateError> {
        let area = Area::new(FAULTED)?;
        let (mut faults, mut frees) = (Vec::new(), Vec::new());
        area.advise(0, area.bytes, Advice::LinuxNoHugepage)?;
        for round in 0..4 {
            let (mut fault, mut free) = (Vec::new(), Vec::new());
            for chunk in (0..area.bytes).step_by(CHUNK) {
                fault.push(fault_ns(&area, chunk));
            }
            for chunk in (0..area.bytes).step_by(8 * MIB) {
                let start = now_ns();
                area.advise(chunk, 8 * MIB, Advice::LinuxDontNeed)?;
                free.push((now_ns() - start) as f64 / (8 * MIB / PAGE) as f64);
            }
            if round > 0 {
                faults.append(&mut fault);
                frees.append(&mut free);
            }
        }
        let base = self.keep("base fault", faults);
        self.costs.unmap_page_ns = whole(self.keep("unmapping a base page", frees));

        let (mut faults, mut frees) = (Vec::new(), Vec::new());
        area.advise(0, area.bytes, Advice::LinuxHugepage)?;
        let regions = area.bytes / REGION;
        for round in 0..8 {
            let before = minor_faults();
            let mut fault: Vec<f64> = (0..regions)
                .map(|region| time(|| area.touch(region * REGION)))
                .collect();
            area.touch_every(0, area.bytes, PAGE);
            if (minor_faults() - before) as usize > regions + 16 {
                self.notes
                    .push("no huge pages at faults: their costs are the default's".into());
                return Ok(());
            }
            let free = time(|| drop(area.advise(0, area.bytes, Advice::LinuxDontNeed))) / regions as f64;
            if round > 0 {
                faults.append(&mut fault);
                frees.push(free);
            }
        }
        let huge = self.keep("huge fault", faults);
        self.costs.set_faults(whole(base), whole(huge));
        self.costs.unmap_huge_ns = whole(self.keep("unmapping a huge page", frees));
        Ok(())
    }

    /// Copies on write: a private mapping of a file in memory, read first.
    fn copies(&mut self) -> Result<(), CalibrateError> {
        let mut copies = Vec::new();
        for round in 0..4 {
            let area = Area::of_memory_file(PROMOTED)?;
            area.read_every(0, area.bytes, PAGE);
            let mut ns = Vec::new();
            for chunk in (0..area.bytes).step_by(CHUNK) {
                ns.push(fault_ns(&area, chunk));
            }
            if round > 0 {
                copies.append(&mut ns);
            }
        }
        let copy = self.keep("copy-on-write fault", copies);
        self.costs.copy_base_ns = whole(copy - self.costs.fault_entry_ns as f64);
        Ok(())
    }

    /// Collapse with all and with few pages mapped, and split: of a process running on another CPU meanwhile, which needs shootdowns.
    fn promotions(&mut self, second_cpu: Option<usize>) -> Result<(), CalibrateError> {
        let area = Area::new(PROMOTED)?;
        let busy = Area::new(PROMOTED)?;
        busy.advise(0, busy.bytes, Advice::LinuxNoHugepage)?;
        busy.touch_every(0, busy.bytes, PAGE);
        let mut rng = pattern::rng(1);
        let work = move || {
            for (index, random) in pattern::updates(&mut rng, busy.bytes as u64 / 8).take(1000) {
                busy.update(8 * index as usize, random);
            }
        };
        beside(second_cpu, work, || self.promotions_of(&area))
    }

    fn promotions_of(&mut self, area: &Area) -> Result<(), CalibrateError> {
        const FEW: usize = 10;
        let (mut full, mut few, mut splits) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..5 {
            for pages in [512, FEW] {
                area.advise(0, area.bytes, Advice::LinuxNoHugepage)?;
                for region in (0..area.bytes).step_by(REGION) {
                    area.touch_every(region, pages * PAGE, PAGE);
                }
                area.advise(0, area.bytes, Advice::LinuxHugepage)?;
                warm_blocks(area.bytes + area.bytes / 4)?;
                for region in (0..area.bytes).step_by(REGION) {
                    let start = now_ns();
                    if let Err(error) = area.collapse(region) {
                        self.notes.push(format!(
                            "no collapse ({error}): promotion and demotion cost the default's"
                        ));
                        return Ok(());
                    }
                    let ns = (now_ns() - start) as f64;
                    if round > 0 {
                        if pages == 512 { &mut full } else { &mut few }.push(ns);
                    }
                }
                for region in (0..area.bytes).step_by(REGION) {
                    let ns = time(|| drop(area.advise(region, PAGE, Advice::LinuxCold)));
                    if pages == 512 && round > 0 {
                        splits.push(ns);
                    }
                }
                area.advise(0, area.bytes, Advice::LinuxDontNeed)?;
            }
        }
        let full = self.keep("collapse, 512 pages mapped", full);
        let few = self.keep("collapse, 10 pages mapped", few);
        if full > few {
            let page = (full - few) / (512 - FEW) as f64;
            self.costs.collapse_page_ns = whole(page);
            self.costs.collapse_overhead_ns = whole(few - page * FEW as f64);
        }
        self.costs.split_ns = whole(self.keep("split", splits)).max(self.costs.split_mapping_ns);
        Ok(())
    }

    /// Clearing accessed bits, and what it costs to set them again: at random, since a neighbour's entry is in the same line of the table.
    fn ageing(&mut self) -> Result<(), CalibrateError> {
        let area = Area::new(FAULTED)?;
        area.advise(0, area.bytes, Advice::LinuxNoHugepage)?;
        area.touch_every(0, area.bytes, PAGE);
        let pages = area.bytes / PAGE;
        // Odd, so that it comes to every page of a power of two of them.
        let at_random = || (0..pages).for_each(|nth| area.touch(nth * 0x9E37_79B1 % pages * PAGE));
        let (mut colds, mut touches) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let cold = time(|| drop(area.advise(0, area.bytes, Advice::LinuxCold)));
            colds.push(cold / pages as f64);
            let (first, again) = (time(at_random), time(at_random));
            touches.push((first - again) / pages as f64);
        }
        self.costs.clear_page_ns = whole(self.keep("clearing a base page's accessed bit", colds));
        self.costs.madvise_page_ns = self.costs.clear_page_ns;
        self.costs.set_accessed_ns = whole(self.keep("touching a base page whose accessed bit was cleared", touches));
        self.believed()
    }

    /// The same as a manager measures it when it begins (crates/linux/src/host/touch.rs): 4 MB in order, the difference of the least of a few
    /// measurements of each.
    fn believed(&mut self) -> Result<(), CalibrateError> {
        let area = Area::new(4 * MIB)?;
        area.advise(0, area.bytes, Advice::LinuxNoHugepage)?;
        let pages = (area.bytes / PAGE) as f64;
        let touch = || time(|| area.touch_every(0, area.bytes, PAGE)) / pages;
        touch();
        let (mut set, mut cold) = (f64::INFINITY, f64::INFINITY);
        let mut found = Vec::new();
        for _ in 0..5 {
            let before = touch();
            area.advise(0, area.bytes, Advice::LinuxCold)?;
            let after = touch();
            (set, cold) = (set.min(before), cold.min(after));
            found.push(after - before);
        }
        self.keep("the same on 4 MB in order", found);
        self.costs.set_accessed_believed_ns = whole((cold - set).clamp(20.0, 5000.0));
        Ok(())
    }

    /// System calls and shootdowns.
    fn calls(&mut self, second_cpu: Option<usize>) -> Result<(), CalibrateError> {
        let calls = (0..50).map(|_| {
            let ns = time(|| {
                for _ in 0..1000 {
                    black_box(rustix::process::getppid());
                }
            });
            ns / 1000.0
        });
        let call = self.keep("system call", calls.collect());
        self.costs.syscall_ns = whole(call);
        let pairs = (0..200).map(|_| time(|| drop(Area::new(64 << 10))));
        let pair = self.keep("mmap and munmap", pairs.collect());
        self.costs.mmap_ns = whole(pair);

        let area = Area::new(REGION)?;
        area.advise(0, area.bytes, Advice::LinuxNoHugepage)?;
        let give_back = |n: usize| {
            let mut ns = Vec::new();
            for _ in 0..n {
                area.touch(0);
                ns.push(time(|| drop(area.advise(0, PAGE, Advice::LinuxDontNeed))));
            }
            ns
        };
        give_back(500);
        let alone = self.keep("unmapping one page, no other CPU in this process", give_back(4000));
        if second_cpu.is_none() {
            self.notes.push("one CPU only: shootdown_ns is the default's".into());
            return Ok(());
        }
        let shared = beside(second_cpu, spin_loop, || {
            give_back(500);
            give_back(4000)
        });
        let shared = self.keep("unmapping one page, another CPU in this process", shared);
        self.costs.shootdown_ns = whole(shared - alone);
        Ok(())
    }

    /// Loads from the second-level cache and from memory, and the clock rate.
    fn memory(&mut self) -> Result<(), CalibrateError> {
        let area = Area::new(512 * MIB)?;
        area.advise(0, area.bytes, Advice::LinuxHugepage)?;
        area.touch_every(0, area.bytes, PAGE);
        let mhz: Vec<f64> = (0..5).map(|_| f64::from(mhz())).collect();
        let mhz = self.keep("mhz", mhz).max(1.0);
        let between = f64::from(LOOP_CYCLES) * 1000.0 / mhz;
        let mut chases = |what, bytes: usize, accesses| {
            chase_ns(&area, bytes as u64, accesses);
            let ns = (0..7)
                .map(|_| chase_ns(&area, bytes as u64, accesses) - between)
                .collect();
            self.keep(what, ns)
        };
        let hit = chases("load from 512 KB", MIB / 2, 500_000);
        let miss = chases("load from 512 MB, dependent", 512 * MIB, 500_000);
        let many: Vec<f64> = (0..7)
            .map(|_| independent_ns(&area, area.bytes as u64, 4_000_000))
            .collect();
        let many = self.keep("update in 512 MB, independent", many);
        self.costs.memory_hit_ns = whole(hit);
        self.costs.memory_miss_ns = whole(miss).max(self.costs.memory_hit_ns);
        self.costs.memory_overlapped_ns = whole(many).min(self.costs.memory_miss_ns);
        Ok(())
    }
}

/// Takes so much memory in huge pages and gives it back: whoever takes blocks next gets these. A host takes back what has been free for seconds, and
/// the next touch of it costs fifty times as much as any other.
fn warm_blocks(bytes: usize) -> Result<(), CalibrateError> {
    let area = Area::new(bytes)?;
    area.advise(0, area.bytes, Advice::LinuxHugepage)?;
    area.touch_every(0, area.bytes, PAGE);
    Ok(())
}

/// Nanoseconds per fault of a chunk of base pages, without the program's own part.
fn fault_ns(area: &Area, chunk: usize) -> f64 {
    let touch = || time(|| area.touch_at_work(chunk, CHUNK));
    let (first, again) = (touch(), touch());
    (first - again) / (CHUNK / PAGE) as f64
}

/// A cost of at least 1 ns.
fn whole(ns: f64) -> u64 {
    ns.round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_faults_are_timed_on_is_mapped_afterwards() {
        let pages = (CHUNK / PAGE) as u64;
        let mapped = || {
            let area = Area::new(REGION).unwrap();
            area.advise(0, REGION, Advice::LinuxNoHugepage).unwrap();
            fault_ns(&area, CHUNK);
            let faults = |at: usize| {
                let before = minor_faults();
                area.touch_every(at, CHUNK, PAGE);
                minor_faults() - before
            };
            assert!(faults(2 * CHUNK) >= pages, "beside it nothing is");
            faults(CHUNK) < pages
        };
        // Other tests of this process fault meanwhile, but not each time.
        assert!((0..5).any(|_| mapped()));
    }

    #[test]
    fn quartiles_are_those_of_the_samples() {
        let mut calibration = Calibration {
            costs: Costs::default(),
            samples: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(calibration.keep("x", vec![5.0, 1.0, 4.0, 2.0, 3.0]), 3.0);
        assert_eq!((calibration.samples[0].p25, calibration.samples[0].p75), (2.0, 4.0));
        assert_eq!(calibration.keep("nothing", Vec::new()), 0.0);
    }
}
