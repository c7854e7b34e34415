//! Carries out orders, and names what came of them.

use mega_range::density::Population;
use mega_range::orders::{Order, Outcome};
use mega_range::page::Field;
use mega_range::span::{Span, PAGE, REGION};
use mega_range::warm::Warmth;
use mega_range::world::Memory;

use crate::look::Look;
use crate::mappings::{Mapping, Mappings};
use crate::sys::{self, advice, Errno};
use crate::{remap, status, warm};

/// What is needed for it.
pub struct Hands<'a> {
    pub look: &'a mut Look,
    pub mappings: &'a Mappings,
    /// The open `maps`.
    pub maps: i32,
    /// Whether free blocks are backed.
    pub warmth: &'a mut Warmth,
    /// Blocks touched first took so long in the last order.
    pub touched_ns: u64,
}

impl Hands<'_> {
    /// Carries out an order.
    pub fn carry_out(&mut self, order: Order) -> Outcome {
        self.touched_ns = 0;
        match order {
            Order::Advise { mapping, is_part } => {
                if let Err(error) = ask(mapping.regions().start) {
                    return outcome(Err(error), Outcome::Ineligible, Field::AdviseOff);
                }
                let outcome = self.flag(mapping, is_part, advice::HUGEPAGE);
                if outcome == Outcome::Done {
                    status::add(Field::Advised, 1);
                    status::add(Field::AdvisedRegions, mapping.region_count());
                }
                outcome
            }
            Order::Withdraw { mapping, is_part } => {
                let outcome = self.flag(mapping, is_part, advice::NOHUGEPAGE);
                status::add(Field::Withdrawn, u64::from(outcome == Outcome::Done));
                outcome
            }
            Order::Populate(span) => {
                if !self.is_mapped(span) {
                    return Outcome::Gone;
                }
                let outcome = outcome(
                    madvise(span, advice::POPULATE_WRITE),
                    Outcome::Ineligible,
                    Field::PopulateOff,
                );
                if outcome == Outcome::Done {
                    status::add(Field::Populated, span.bytes() / REGION);
                }
                outcome
            }
            Order::Collapse(region) => self.collapse(region),
            Order::Probe(region) => self.probe(region),
            Order::GiveBack(region) => {
                if !self.is_mapped(Span::region(region)) {
                    return Outcome::Gone;
                }
                // A part of a huge page cannot be cold: the kernel splits it, and frees what is zero-filled.
                let page = Span::new(region, region.saturating_add(PAGE));
                let outcome = outcome(madvise(page, advice::COLD), Outcome::Busy, Field::SplitOff);
                status::add(Field::GivenBack, u64::from(outcome == Outcome::Done));
                outcome
            }
            Order::Release(region) => self.release(region),
        }
    }

    /// Splits whatever huge page pages of the region are a part of. Which of them are is not known here, so one of each
    /// eighth is named to the kernel; where it is a base page, it counts as less recently used, and no more.
    fn release(&mut self, region: u64) -> Outcome {
        if !self.is_mapped(Span::region(region)) {
            return Outcome::Gone;
        }
        let before = self.look.partly_unmapped();
        for page in self.look.some_present(region) {
            if page == 0 {
                continue;
            }
            let page = Span::new(page, page.saturating_add(PAGE));
            let outcome = outcome(madvise(page, advice::COLD), Outcome::Busy, Field::SplitOff);
            if outcome != Outcome::Done {
                return outcome;
            }
        }
        let is_split = before.is_some_and(|before| self.look.partly_unmapped() < Some(before));
        status::add(Field::GivenBack, u64::from(is_split));
        Outcome::Done
    }

    /// Flags a whole mapping.
    ///
    /// What the program maps at once must never get different flags: it could not `mremap` it any more. So a mapping
    /// that may be a part is left alone. Where in that very moment something beside it has changed, all private memory
    /// around it gets the same flag: whatever belongs together then has the same again.
    fn flag(&self, mapping: Span, is_part: bool, advice: usize) -> Outcome {
        remap::under_way(advice, || self.flag_all(mapping, is_part, advice))
    }

    fn flag_all(&self, mapping: Span, is_part: bool, advice: usize) -> Outcome {
        const TRIES: u32 = 4;
        let mut before = self.beside(mapping);
        let is_in_parts = before.iter().flatten().any(|beside| {
            let overlaps = !beside.span.intersection(mapping).is_empty();
            // Protected otherwise. What cannot be read at all is a reserve, unless it was part of the mapping before.
            let is_other_part = beside.is_own && !beside.is_writable && (is_part || beside.is_readable);
            overlaps || is_other_part
        });
        if is_in_parts || self.at(mapping.start) != Some(mapping) {
            return Outcome::Gone;
        }
        let outcome = outcome(madvise(mapping, advice), Outcome::Ineligible, Field::AdviseOff);
        let mut flagged = mapping;
        for _ in 0..TRIES {
            let now = self.beside(flagged);
            let mut changes = now.iter().zip(&before).filter(|(now, before)| now != before);
            if !changes.any(|(now, _)| now.is_some_and(|now| now.is_own)) {
                break;
            }
            flagged = self.around(flagged);
            let _ = madvise(flagged, advice);
            before = self.beside(flagged);
        }
        outcome
    }

    /// This span and all private anonymous mappings that adjoin it without a gap.
    fn around(&self, mut span: Span) -> Span {
        const MOST: u32 = 1000;
        for _ in 0..MOST {
            let before = span;
            for beside in self.beside(span).iter().flatten().filter(|beside| beside.is_own) {
                span = Span::new(span.start.min(beside.span.start), span.end.max(beside.span.end));
            }
            if span == before {
                break;
            }
        }
        span
    }

    /// What lies directly below and above.
    fn beside(&self, span: Span) -> [Option<Mapping>; 2] {
        [span.start.saturating_sub(1), span.end].map(|address| self.mappings.any_at(self.maps, address))
    }

    fn collapse(&mut self, region: u64) -> Outcome {
        if !self.is_mapped(Span::region(region)) {
            return Outcome::Gone;
        }
        let is_touched = self.touch_block();
        let begun = sys::now_ns();
        let call = madvise(Span::region(region), advice::COLLAPSE);
        if call.is_ok() {
            self.warmth.collapsed(sys::now_ns().saturating_sub(begun), is_touched);
        }
        let forbidden = match call {
            Err(sys::EINVAL) if ask(region).is_err() => Outcome::Ineligible,
            _ => Outcome::Busy,
        };
        let outcome = outcome(call, forbidden, Field::CollapseOff);
        // A hole says ENOMEM, too: the program has unmapped or moved the region meanwhile.
        let outcome = match outcome {
            Outcome::NoBlock if !self.is_mapped(Span::region(region)) => Outcome::Gone,
            outcome => outcome,
        };
        let is_done = outcome == Outcome::Done;
        status::add(
            if is_done {
                Field::Collapsed
            } else {
                Field::CollapseFailed
            },
            1,
        );
        outcome
    }

    /// Touches the block that the kernel will take next, where its host may not back it yet.
    fn touch_block(&mut self) -> bool {
        if !self.warmth.is_wanted() {
            return false;
        }
        let begun = sys::now_ns();
        let touched = warm::touch();
        self.touched_ns = sys::now_ns().saturating_sub(begun);
        // What cannot be done is not tried for ever.
        self.warmth.touched(touched.unwrap_or(0));
        status::add(Field::Warmed, touched.is_some().into());
        touched.is_some()
    }

    /// Leaves nothing but zero pages in the region. Busy where the kernel does not free what is zero-filled.
    fn probe(&mut self, region: u64) -> Outcome {
        let span = Span::region(region);
        if !self.is_mapped(span) {
            return Outcome::Gone;
        }
        if self.look.is_reached(region) {
            return Outcome::Done;
        }
        let populated = outcome(
            madvise(span, advice::POPULATE_WRITE),
            Outcome::Ineligible,
            Field::PopulateOff,
        );
        if populated != Outcome::Done {
            return populated;
        }
        let page = Span::new(region, region.saturating_add(PAGE));
        let split = outcome(madvise(page, advice::COLD), Outcome::Busy, Field::SplitOff);
        let mut seen = [Population::default()];
        let is_split = self.look.populations(region, &mut seen) && !seen.iter().any(|seen| seen.is_full());
        if split == Outcome::Done && !is_split {
            return Outcome::Busy;
        }
        status::add(Field::Probes, 1);
        split
    }

    fn at(&self, address: u64) -> Option<Span> {
        self.mappings.at(self.maps, address)
    }

    /// Whether the span is still memory to act on: meanwhile the program may have mapped something else there.
    fn is_mapped(&self, span: Span) -> bool {
        self.at(span.start).is_some_and(|mapping| mapping.contains(span))
    }
}

/// Asks whether huge pages are allowed at this address: EINVAL where the program or the kernel forbids them. A collapse
/// of a span without a whole region does nothing else.
fn ask(region: u64) -> sys::Result<()> {
    sys::madvise(region, PAGE, advice::COLLAPSE)
}

fn madvise(span: Span, advice: usize) -> sys::Result<()> {
    sys::madvise(span.start, span.bytes(), advice)
}

fn outcome(call: sys::Result<()>, invalid: Outcome, off: Field) -> Outcome {
    match call {
        Ok(()) => Outcome::Done,
        Err(sys::EINVAL) => invalid,
        Err(sys::ENOMEM) if off == Field::CollapseOff => Outcome::NoBlock,
        Err(sys::ENOMEM) => Outcome::Gone,
        Err(sys::EBUSY) => Outcome::Limit,
        Err(error @ (sys::EPERM | sys::EACCES | sys::ENOSYS)) => {
            let Errno(number) = error;
            status::set(off, u64::from(number.unsigned_abs()));
            Outcome::Refused
        }
        Err(_) => Outcome::Busy,
    }
}
