//! Memory turnover, as in the papers' fragmenters: an area is filled and partly freed, then each new area replaces the one before.
//!
//! * MEGA, section 4.5: 200 GB, half of it freed in pieces of 1 MB; then, five times, 100 GB are allocated and the 100 GB before freed.
//! * LRBHPS, section 4.2: huge pages' worth of memory until there is none, of each of which a part is unmapped.

use super::program::{after, check_mib, describe, map_area};
use super::{Batch, Memory, Program, ProgramError, Progress, Results, BATCH, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Turnover`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnoverOptions {
    /// Size of the first area in MiB.
    pub mib: u64,
    /// It is freed in part: of each piece of so many KiB …
    pub piece_kib: u64,
    /// … the first so many KiB stay.
    pub keep_kib: u64,
    /// Areas that come after it; each is filled and gone through before the one before goes.
    pub rounds: u32,
    /// Size of each of them in MiB.
    pub round_mib: u64,
    /// Time to rest at the end in ns, with what is left.
    pub rest_ns: u64,
}

impl Default for TurnoverOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            piece_kib: 2048,
            keep_kib: 1024,
            rounds: 5,
            round_mib: 512,
            rest_ns: 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// An area of so many pages is to come.
    Come,
    /// The next page; whether it is written, or read.
    Visit {
        base: u64,
        page: u64,
        write: bool,
    },
    /// The piece of the first area that is freed next.
    FreeParts {
        piece: u64,
    },
    Rest {
        until_ns: u64,
    },
    Done,
}

/// The program.
#[derive(Debug)]
pub struct Turnover {
    options: TurnoverOptions,
    state: State,
    /// Areas so far, the first included.
    areas: u32,
    /// Where the area before lies; its pages.
    before: Option<(u64, u64)>,
    results: Results,
}

impl Turnover {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// Areas larger than an address space; pieces that are not made of pages, or of which more stays than there is.
    pub fn new(options: TurnoverOptions) -> Result<Self, ProgramError> {
        check_mib(options.mib)?;
        check_mib(options.round_mib)?;
        let o = options;
        let page_kib = PAGE / 1024;
        if o.piece_kib == 0 || o.piece_kib % page_kib != 0 || o.keep_kib % page_kib != 0 || o.keep_kib > o.piece_kib {
            let text = format!(
                "pieces of {} KiB of which {} KiB stay: expected multiples of {page_kib}",
                o.piece_kib, o.keep_kib
            );
            return Err(ProgramError::Usage(text));
        }
        Ok(Self {
            options,
            state: State::Come,
            areas: 0,
            before: None,
            results: Results::default(),
        })
    }

    fn pages(&self) -> u64 {
        let mib = if self.areas == 0 {
            self.options.mib
        } else {
            self.options.round_mib
        };
        mib.max(1) * MIB / PAGE
    }

    /// The area is filled and gone through: what goes now, and what comes next.
    fn next<M: Memory>(&mut self, memory: &mut M, base: u64) -> Result<State, ProgramError> {
        let pages = self.pages();
        self.areas += 1;
        let state = match self.before.replace((base, pages)) {
            None => State::FreeParts { piece: 0 },
            Some((before, pages)) => {
                self.results.begin("free", memory.now_ns());
                memory.unmap(before, pages * PAGE)?;
                self.after_area(memory)
            }
        };
        Ok(state)
    }

    fn after_area<M: Memory>(&mut self, memory: &mut M) -> State {
        let now = memory.now_ns();
        if self.areas <= self.options.rounds {
            return State::Come;
        }
        self.results.begin("rest", now);
        State::Rest {
            until_ns: after(now, self.options.rest_ns),
        }
    }
}

impl<M: Memory> Program<M> for Turnover {
    describe!("turnover");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        loop {
            self.state = match self.state {
                State::Come => {
                    let base = map_area(memory, self.pages() * PAGE, false)?;
                    self.results.begin("fill", memory.now_ns());
                    State::Visit {
                        base,
                        page: 0,
                        write: true,
                    }
                }
                State::Visit { base, page, write } => {
                    let pages = self.pages();
                    let end = (page + BATCH).min(pages);
                    let mut batch = Batch::new(memory);
                    for page in page..end {
                        batch.touch(base + page * PAGE, write);
                    }
                    drop(batch);
                    memory.work(end - page);
                    self.results.operations += end - page;
                    self.results.mark(memory.now_ns(), end - page);
                    match (end < pages, write) {
                        (true, _) => State::Visit { base, page: end, write },
                        (false, true) => {
                            self.results.begin("iterate", memory.now_ns());
                            State::Visit {
                                base,
                                page: 0,
                                write: false,
                            }
                        }
                        (false, false) => self.next(memory, base)?,
                    }
                }
                State::FreeParts { piece } => {
                    let o = self.options;
                    let (piece_bytes, keep) = (o.piece_kib * 1024, o.keep_kib * 1024);
                    if piece == 0 {
                        self.results.begin("free", memory.now_ns());
                    }
                    // The first area is there: it was just filled.
                    let (base, pages) = self.before.unwrap_or_default();
                    let from = piece * piece_bytes + keep;
                    let to = ((piece + 1) * piece_bytes).min(pages * PAGE);
                    if from < to {
                        memory.unmap(base + from, to - from)?;
                        self.results.add("freed_bytes", to - from);
                    }
                    if (piece + 1) * piece_bytes < pages * PAGE {
                        State::FreeParts { piece: piece + 1 }
                    } else {
                        self.after_area(memory)
                    }
                }
                State::Rest { until_ns } => {
                    let now = memory.now_ns();
                    self.results.mark(now, 0);
                    if now < until_ns {
                        return Ok(Progress::Sleeps(until_ns));
                    }
                    State::Done
                }
                State::Done => return Ok(Progress::Done),
            };
            if memory.now_ns() >= until_ns && !matches!(self.state, State::Done) {
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
    fn half_stays_of_the_first_area_and_then_one_area_replaces_the_other() {
        let o = TurnoverOptions {
            mib: 8,
            round_mib: 3,
            rounds: 0,
            ..TurnoverOptions::default()
        };
        let (m, p) = run(Turnover::new(o).unwrap());
        assert_eq!((m.resident_pages(), m.mapped_pages(), m.calls[1]), (1024, 1024, 4));
        assert_eq!(p.results.measure("freed_bytes"), 4 << 20);
        let rounds = TurnoverOptions { rounds: 5, ..o };
        let (m, p) = run(Turnover::new(rounds).unwrap());
        assert_eq!((m.resident_pages(), p.areas), (768, 6));
        assert_eq!(m.writes, 2048 + 5 * 768);
        steps_do_not_matter(|| Turnover::new(TurnoverOptions { rest_ns: 500, ..rounds }).unwrap());
    }

    #[test]
    fn a_piece_may_stay_whole_or_go_whole_and_no_other_is_accepted() {
        for (keep_kib, pages) in [(2048, 2048), (0, 0), (512, 512)] {
            let o = TurnoverOptions {
                mib: 8,
                keep_kib,
                rounds: 0,
                ..TurnoverOptions::default()
            };
            assert_eq!(run(Turnover::new(o).unwrap()).0.resident_pages(), pages);
        }
        for (piece_kib, keep_kib) in [(0, 0), (3, 0), (8, 12), (8, 2)] {
            let o = TurnoverOptions {
                piece_kib,
                keep_kib,
                ..TurnoverOptions::default()
            };
            assert!(Turnover::new(o).is_err(), "{piece_kib} {keep_kib}");
        }
    }
}
