//! The allocation-latency study's khugehog: a driver that allocates 2 MB blocks of kernel memory to exhaustion and times each.

use super::program::{after, describe};
use super::{Memory, Program, ProgramError, Progress, Results};
use serde::{Deserialize, Serialize};

/// Options of [`Hog`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HogOptions {
    /// Compact all memory first (`/proc/sys/vm/compact_memory`).
    pub compact: bool,
    /// Delay before it starts in ns; others may compact meanwhile.
    pub wait_ns: u64,
    /// Maximum number of blocks; all there are when not given.
    pub count: Option<u64>,
}

/// The program.
#[derive(Debug)]
pub struct Hog {
    options: HogOptions,
    /// When it begins.
    begins_ns: Option<u64>,
    compacted: bool,
    results: Results,
}

impl Hog {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// None at present.
    pub fn new(options: HogOptions) -> Result<Self, ProgramError> {
        Ok(Self {
            options,
            begins_ns: None,
            compacted: false,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Hog {
    describe!("hog");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let begins = match self.begins_ns {
            Some(ns) => ns,
            None => {
                self.results.begin("prepare", memory.now_ns());
                *self.begins_ns.insert(after(memory.now_ns(), self.options.wait_ns))
            }
        };
        if memory.now_ns() < begins {
            return Ok(Progress::Sleeps(begins));
        }
        if !self.compacted {
            self.compacted = true;
            if self.options.compact {
                let start = memory.now_ns();
                memory.compact()?;
                self.results.add("compact_ns", memory.now_ns() - start);
            }
            self.results.begin("take", memory.now_ns());
        }
        while self.options.count.is_none_or(|most| self.results.operations < most) {
            let start = memory.now_ns();
            let taken = memory.take_block()?;
            let now = memory.now_ns();
            if !taken {
                self.results.add("failed_ns", now - start);
                return Ok(Progress::Done);
            }
            self.results.record("alloc", now - start);
            self.results.operations += 1;
            self.results.mark(now, 1);
            if now >= until_ns {
                return Ok(Progress::Ran);
            }
        }
        Ok(Progress::Done)
    }
}
