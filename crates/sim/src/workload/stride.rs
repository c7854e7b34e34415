//! MEGA's Table 6: memory visited in steps of 32 KB, shifted by 8 bytes each time.

use super::pattern::{strides, Strides};
use super::program::{describe, map_area};
use super::sampled::{weighed, SampledShifts};
use super::{pace, Batch, Memory, Program, ProgramError, Progress, Results, MIB};
use serde::{Deserialize, Serialize};

/// Options of [`Stride`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StrideOptions {
    /// Size of the area in MiB.
    pub mib: u64,
    /// How many passes over all words.
    pub times: u32,
    /// Step in KiB.
    pub step_kib: u64,
    /// Shifts of each pass; all of them (step / 8) when not given.
    pub shifts: Option<u64>,
    /// Consecutive shifts of which two are simulated: the first, and the second on behalf of the rest, which access the same pages.
    pub weight: u64,
    /// MADV_HUGEPAGE on the area.
    pub advise: bool,
}

impl Default for StrideOptions {
    fn default() -> Self {
        Self {
            mib: 6144,
            times: 10,
            step_kib: 32,
            shifts: None,
            weight: 1,
            advise: false,
        }
    }
}

/// Visits between clock reads.
const PIECE: usize = 1024;

/// How far a pass is.
#[derive(Debug)]
struct Pass {
    shifts: SampledShifts,
    /// The shift that is under way: its first word, what is left of it, and what it counts.
    shift: Option<(u64, Strides, u64)>,
}

/// The program. A visit loads and stores: on memory that is fresh, two faults.
#[derive(Debug)]
pub struct Stride {
    options: StrideOptions,
    base: Option<u64>,
    pass: Option<Pass>,
    passes: u32,
    results: Results,
}

impl Stride {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area larger than an address space.
    pub fn new(options: StrideOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        Ok(Self {
            options,
            base: None,
            pass: None,
            passes: 0,
            results: Results::default(),
        })
    }

    /// Words of a step.
    fn step_words(&self) -> u64 {
        self.options.step_kib.clamp(1, 1 << 30) * 128
    }

    fn pass(&self) -> Pass {
        let step = self.step_words();
        let shifts = self.options.shifts.map_or(step, |shifts| shifts.min(step));
        Pass {
            shifts: SampledShifts::new(shifts, self.options.weight),
            shift: None,
        }
    }
}

impl<M: Memory> Program<M> for Stride {
    describe!("stride");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let base = match self.base {
            Some(base) => base,
            None => *self
                .base
                .insert(map_area(memory, self.options.mib.max(1) * MIB, self.options.advise)?),
        };
        let (step, words) = (self.step_words(), self.options.mib.max(1) * MIB / 8);
        loop {
            let Some(pass) = &mut self.pass else {
                if self.passes == self.options.times {
                    return Ok(Progress::Done);
                }
                self.passes += 1;
                self.results.begin("pass", memory.now_ns());
                self.pass = Some(self.pass());
                continue;
            };
            let Some((first, strides, weight)) = &mut pass.shift else {
                let Some((shift, weight)) = pass.shifts.next() else {
                    self.pass = None;
                    continue;
                };
                // The words from the shift on, in steps.
                let left = words.saturating_sub(shift);
                pass.shift = Some((shift, strides(left as usize, step as usize, 1), weight));
                continue;
            };
            let (mut visits, from) = (0, base + *first * 8);
            weighed(memory, *weight, |memory| {
                let mut batch = Batch::new(memory);
                for index in strides.take(PIECE) {
                    batch.update(from + index as u64 * 8);
                    visits += 1;
                }
                drop(batch);
                memory.work(visits * pace::STRIDE);
            });
            let now = memory.now_ns();
            self.results.operations += visits * *weight;
            self.results.mark(now, visits * *weight);
            if visits < PIECE as u64 {
                pass.shift = None;
            }
            if now >= until_ns {
                return Ok(Progress::Ran);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn each_word_is_loaded_and_stored_once_a_pass() {
        let o = StrideOptions {
            mib: 1,
            times: 2,
            ..StrideOptions::default()
        };
        let (m, _) = run(Stride::new(o).unwrap());
        assert_eq!((m.reads, m.writes, m.written_pages()), (2 * 131_072, 2 * 131_072, 256));
        let few = StrideOptions { shifts: Some(3), ..o };
        assert_eq!(steps_do_not_matter(|| Stride::new(few).unwrap()).operations, 2 * 3 * 32);
        let sampled = StrideOptions { weight: 64, ..o };
        let (m, p) = run(Stride::new(sampled).unwrap());
        assert_eq!((p.results.operations, m.reads), (2 * 131_072, 2 * 131_072 / 32));
        assert_eq!(m.written_pages(), 256);
    }
}
