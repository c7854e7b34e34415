//! MEGA's Table 6: memory visited in steps of 32 KB, shifted by 8 bytes each time.

use super::pattern::{strides, Strides};
use super::program::{describe, map_area};
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
            advise: false,
        }
    }
}

/// Visits between two looks at the clock.
const PIECE: usize = 1024;

/// The program. A visit loads and stores: on memory that is fresh, two faults.
#[derive(Debug)]
pub struct Stride {
    options: StrideOptions,
    base: Option<u64>,
    pass: Option<Strides>,
    passes: u32,
    results: Results,
}

impl Stride {
    /// With these options.
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

    fn pass(&self) -> Strides {
        let step = self.options.step_kib.clamp(1, 1 << 30) * 128;
        let words = self.options.mib.max(1) * MIB / 8;
        strides(
            words as usize,
            step as usize,
            self.options.shifts.unwrap_or(step) as usize,
        )
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
            let mut visits = 0;
            let mut batch = Batch::new(memory);
            for index in pass.take(PIECE) {
                batch.update(base + index as u64 * 8);
                visits += 1;
            }
            drop(batch);
            memory.work(visits * pace::STRIDE);
            let now = memory.now_ns();
            self.results.operations += visits;
            self.results.mark(now, visits);
            if visits < PIECE as u64 {
                self.pass = None;
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
    }
}
