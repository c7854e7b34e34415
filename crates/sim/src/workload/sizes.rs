//! MEGA's Figure 1: the same memory allocated and freed as objects of 8 KB, of 16 KB, up to 128 MB, by the C library's allocator.

use super::glibc::{Block, Glibc};
use super::pattern::object_sizes;
use super::program::{after, describe};
use super::{Memory, Program, ProgramError, Progress, Results, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Sizes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SizesOptions {
    /// Memory to allocate and free for each size in MiB.
    pub mib: u64,
    /// Size of the first objects in KiB.
    pub from_kib: u64,
    /// Size of the last objects in KiB.
    pub to_kib: u64,
    /// Pause after each size in ns.
    pub pause_ns: u64,
}

impl Default for SizesOptions {
    fn default() -> Self {
        Self {
            mib: 10_240,
            from_kib: 8,
            to_kib: 128 << 10,
            pause_ns: 1_000_000_000,
        }
    }
}

/// Bytes of an object's entry in the list of objects (a `Vec`).
const ENTRY: u64 = 24;

#[derive(Debug)]
enum State {
    Start,
    Allocate,
    Check { at: usize },
    Free { at: usize },
    Rest { until_ns: u64 },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Sizes {
    options: SizesOptions,
    /// Sizes to come, the next one last.
    sizes: Vec<u64>,
    heap: Option<Glibc>,
    list: Option<Block>,
    objects: Vec<Block>,
    state: State,
    results: Results,
}

impl Sizes {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// More memory than an address space has; objects of no size.
    pub fn new(options: SizesOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        if options.from_kib == 0 {
            return Err(ProgramError::Usage("objects of 0 KiB".into()));
        }
        let bytes = options.mib.max(1) * MIB;
        let mut sizes: Vec<u64> = object_sizes(options.from_kib, options.to_kib)
            .take_while(|b| *b <= bytes)
            .collect();
        sizes.reverse();
        Ok(Self {
            options,
            sizes,
            heap: None,
            list: None,
            objects: Vec::new(),
            state: State::Start,
            results: Results::default(),
        })
    }
}

/// A size in short form: `8K`, `2M`.
fn size_name(bytes: u64) -> String {
    match bytes {
        b if b >= MIB && b % MIB == 0 => format!("{}M", b / MIB),
        b => format!("{}K", b / 1024),
    }
}

impl<M: Memory> Program<M> for Sizes {
    describe!("sizes");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let total = self.options.mib.max(1) * MIB;
        let heap = match &mut self.heap {
            Some(heap) => heap,
            // The objects with their heads, and the list of them.
            none => none.insert(Glibc::new(memory, total + total / 64 + 64 * MIB)?),
        };
        loop {
            let bytes = self.sizes.last().copied().unwrap_or(total);
            let count = (total / bytes) as usize;
            match &mut self.state {
                State::Start => {
                    if self.sizes.is_empty() {
                        self.state = State::Done;
                        continue;
                    }
                    self.results.begin(size_name(bytes), memory.now_ns());
                    self.list = Some(heap.allocate(memory, count as u64 * ENTRY)?);
                    self.state = State::Allocate;
                }
                State::Allocate => {
                    while self.objects.len() < count {
                        let object = heap.allocate(memory, bytes)?;
                        for offset in (0..bytes).step_by(PAGE as usize) {
                            memory.touch(object.address + offset, true);
                            memory.work(1);
                        }
                        let entry = self.objects.len() as u64 * ENTRY;
                        if let Some(list) = self.list {
                            memory.touch(list.address + entry, true);
                        }
                        self.objects.push(object);
                        if memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    let pages = count as u64 * bytes.div_ceil(PAGE);
                    self.results.mark(memory.now_ns(), pages);
                    self.results.begin("check", memory.now_ns());
                    self.state = State::Check { at: 0 };
                }
                State::Check { at } => {
                    while let Some(object) = self.objects.get(*at) {
                        for offset in (0..bytes).step_by(PAGE as usize) {
                            memory.touch(object.address + offset, false);
                            memory.work(1);
                        }
                        *at += 1;
                        if memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    self.results
                        .begin(format!("{} freed", size_name(bytes)), memory.now_ns());
                    self.state = State::Free { at: 0 };
                }
                State::Free { at } => {
                    while let Some(object) = self.objects.get(*at) {
                        heap.free(memory, *object)?;
                        *at += 1;
                        if memory.now_ns() >= until_ns {
                            return Ok(Progress::Ran);
                        }
                    }
                    self.objects.clear();
                    if let Some(list) = self.list.take() {
                        heap.free(memory, list)?;
                    }
                    self.results.operations += count as u64 * bytes.div_ceil(PAGE);
                    let now = memory.now_ns();
                    self.results.begin("rest", now);
                    self.sizes.pop();
                    self.state = State::Rest {
                        until_ns: after(now, self.options.pause_ns),
                    };
                }
                State::Rest { until_ns } => {
                    if memory.now_ns() < *until_ns {
                        return Ok(Progress::Sleeps(*until_ns));
                    }
                    self.results.mark(memory.now_ns(), 0);
                    self.state = State::Start;
                }
                State::Done => return Ok(Progress::Done),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn every_page_of_every_object_is_touched_and_all_of_it_is_freed() {
        let o = SizesOptions {
            mib: 4,
            to_kib: 1024,
            pause_ns: 500,
            ..SizesOptions::default()
        };
        let (m, p) = run(Sizes::new(o).unwrap());
        assert_eq!(
            Program::<crate::workload::CountingMemory>::results(&p).operations,
            8 * 1024
        );
        assert!(m.resident_pages() < 150, "{} pages are left", m.resident_pages());
        let results = steps_do_not_matter(|| Sizes::new(o).unwrap());
        let names: Vec<&str> = results.phases.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(
            (names[0], names[2], names[28], names.len()),
            ("8K", "8K freed", "1M", 32)
        );
    }
}
