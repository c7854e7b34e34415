//! Ours: huge pages as soon as memory has been filled densely, in base pages' memory, without anything to be chosen.
//!
//! - A region that is densely populated (90 %) is promoted without waiting for accessed bits: what was just filled is used. A collapse stalls
//!   the faults of its mapping, so while its range (a run of adjacent regions) grows slowly, only regions well behind the growing edge are
//!   promoted, and the others as soon as the range pauses: nothing of it changed between two looks. A range that grows fast waits for the
//!   pause as a whole. A region that stayed as it is for 5 s is promoted wherever the edge is.
//! - A program that is served already (an agent in it or its allocator collapses, or has faults map huge pages) is left to that: only what
//!   stayed as it is for 5 s is promoted. Doing the same twice costs twice.
//! - Sparse regions never are. The holes that promotions fill, with what other huge pages are known to waste, stay within 3 % of the resident
//!   memory, or 64 MB; when memory is short nothing is wasted.
//! - Huge pages that are mostly zero-filled are split, as `trim` does; beyond the allowance the most wasteful go first. So are those of which the
//!   program has unmapped a part, once it has let the region be for an interval: else the kernel keeps that part until memory is short.
//! - Accessed bits are cleared only while free blocks are too few for all: then what is in use comes first and what is not waits. A cold huge
//!   page stays as it is: it costs nothing.
//! - While the memory of a program that nobody else serves grows it asks to look again soon.

use std::collections::BTreeSet;
use std::time::Duration;

use mega_range::intent::Intent;
use mega_range::waste;

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{Machine, Observation, ProcessId, ProcessView, Region, Snapshot};
use crate::policy::params::{parameters, Count, ParamValue};
use crate::policy::table::Table;
use crate::policy::{release, Decision, Needs, Param, ParamError, Policy, ZERO_FILLED_LIMIT};
use crate::units::{BasePages, Bytes, Share, Time, UnitError, REGION_PAGES};

parameters! {
    /// Its thresholds.
    pub struct AutoParams for "auto" {
        density: Share = Share::percent(90), "populated share from which a region is promoted";
        behind: Count<1, 512> = Count(8), "regions from the growing edge of a range to what is promoted while it grows, and the most that grow at one look";
        zero: Share = ZERO_FILLED_LIMIT, "zero-filled share from which a huge page is demoted";
        waste: Share = Share::percent(waste::PERCENT as u32), "share of the resident memory that huge pages may waste";
        least_waste: Bytes = Bytes(waste::LEAST), "memory that they may waste in any case";
    }
}

/// The meaning of the parameter `for`.
const FOR: &str = "what matters: balanced, latency (no promotion in a growing range), throughput (no stall budget) or memory (full regions only)";

/// A region that did not change for so long is promoted wherever its range grows.
const SETTLED: Duration = Duration::from_secs(5);
/// Less memory available than this share is short.
const SHORT_OF_MEMORY: Share = Share::percent(10);
/// More memory pressure than this, too.
const UNDER_PRESSURE: Share = Share::percent(5);
/// Free blocks that are left alone.
const SPARE_BLOCKS: u64 = 32;
/// A program grows if so many pages changed between two looks, or this part of all.
const GROWTH_PAGES: u64 = 512;
const GROWTH_PART: u64 = 512;
/// Room that promotions into holes leave below a control group's limit.
const CLEAR_OF_LIMITS: Bytes = Bytes::mib(64);
/// Looks from one reading of contents to the next, once all are known.
const LOOKS_BETWEEN_CONTENTS: u32 = 12;
/// How soon to look again, by how long ago memory grew.
const SOON: [(Duration, Duration); 3] = [
    (Duration::from_secs(1), Duration::from_millis(250)),
    (Duration::from_secs(2), Duration::from_millis(500)),
    (Duration::from_secs(4), Duration::from_secs(1)),
];
/// And while there is something to promote.
const AT_WORK: Duration = Duration::from_secs(1);

/// What is remembered of a region.
#[derive(Debug, Clone, Copy)]
struct Past {
    /// When its population changed last.
    changed: Time,
    /// Base pages populated when it was last seen base-mapped.
    populated: u16,
    /// It was seen base-mapped: what its huge page wastes are the holes of then.
    was_base: bool,
    /// A huge page maps it.
    is_huge: bool,
}

/// A base-mapped region that may be promoted, as far as it goes.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    process: ProcessId,
    seen: Observation,
    holes: u64,
}

/// What one look at a process shows.
#[derive(Debug, Default)]
struct Look {
    /// Regions in order: whether it changed since the last look, and when it last did.
    changes: Vec<(bool, Time)>,
    /// Base pages that changed.
    changed_pages: u64,
    /// Base pages mapped.
    resident: u64,
    /// Base pages wasted in huge pages, as far as known.
    wasted: u64,
    /// Huge pages that nothing is known of, and former ones of which not all is mapped.
    unknown: usize,
    /// Some region was seen before.
    is_known: bool,
    /// Regions that are new, huge and base-mapped.
    new_huge: usize,
    new_base: usize,
    /// Regions that somebody else has collapsed.
    collapsed: usize,
}

impl Look {
    /// Faults map huge pages by themselves, or others collapse: the program advised it, its allocator does it, or an agent in it.
    fn is_served(&self) -> bool {
        self.collapsed > 0 || (self.is_known && self.new_huge > self.new_base)
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct Auto {
    params: AutoParams,
    intent: Intent,
    past: Table<Past>,
    /// Processes that others serve.
    served: BTreeSet<ProcessId>,
    /// What the last decision promotes.
    promoted: BTreeSet<(ProcessId, Region)>,
    /// When any program last grew.
    grew: Option<Time>,
    /// Looks in a row at which free blocks were too few.
    short_for: u32,
    /// Contents are wanted at the next look.
    wants_contents: bool,
    looks: u32,
}

impl Auto {
    /// Populated share from which a region is promoted.
    fn density(&self) -> Share {
        match self.intent {
            Intent::Memory => Share::FULL,
            _ => self.params.density,
        }
    }

    /// Base pages that a process of this size may have wasted.
    fn allowance(&self, resident: u64, is_memory_short: bool) -> u64 {
        if is_memory_short || self.intent == Intent::Memory {
            return 0;
        }
        let share = u128::from(resident) * u128::from(self.params.waste.as_millionths()) / 1_000_000;
        let least = self.params.least_waste.0 / BasePages(1).bytes().0;
        u64::try_from(share).unwrap_or(u64::MAX).max(least)
    }

    /// Looks at a process, and remembers it.
    fn look(&mut self, process: &ProcessView, now: Time) -> Look {
        let mut look = Look::default();
        look.changes.reserve_exact(process.regions.len());
        let promoted = &self.promoted;
        self.past.update(process, |seen, had| {
            look.resident += u64::from(seen.mapped.0);
            if seen.raced {
                look.changes.push((true, now));
                return had;
            }
            look.is_known |= had.is_some();
            if had.is_none() {
                look.new_huge += usize::from(seen.huge);
                look.new_base += usize::from(!seen.huge);
            }
            let is_collapsed = seen.huge && had.is_some_and(|had| !had.is_huge);
            look.collapsed += usize::from(is_collapsed && !promoted.contains(&(process.id, seen.region)));
            let populated = seen.populated().0;
            let by = match had {
                // A new huge page is growth; one in place of base pages is not.
                None => populated,
                Some(_) if seen.huge => 0,
                Some(had) if had.was_base => populated.abs_diff(had.populated.into()),
                // A huge page was split.
                Some(_) => 0,
            };
            look.changed_pages += u64::from(by);
            let changed = had.map_or(now, |had| had.changed);
            let changed = if by > 0 { now } else { changed };
            look.changes.push((by > 0, changed));
            let now_past = match had {
                Some(had) if seen.huge => had,
                _ => Past {
                    changed,
                    populated: populated as u16,
                    was_base: !seen.huge,
                    is_huge: false,
                },
            };
            if !seen.huge && had.is_some_and(|had| had.is_huge) {
                look.unknown += usize::from(populated < REGION_PAGES);
            }
            if seen.huge {
                let holes = now_past
                    .was_base
                    .then(|| BasePages::REGION.0 - u32::from(now_past.populated));
                let zero = seen.zero.map(|zero| zero.0);
                look.unknown += usize::from(holes.is_none() && zero.is_none());
                look.wasted += u64::from(zero.or(holes).unwrap_or(0));
            }
            Some(Past {
                changed,
                is_huge: seen.huge,
                ..now_past
            })
        });
        if look.is_served() {
            self.served.insert(process.id);
        }
        look
    }

    /// Which regions of a process are clear of the growing edges of their ranges.
    fn clear_of_edges(&self, process: &ProcessView, look: &Look, now: Time) -> Vec<bool> {
        if self.served.contains(&process.id) {
            let settled = look.changes.iter().map(|(_, changed)| now.since(*changed) >= SETTLED);
            return settled.collect();
        }
        let mut clear = vec![false; process.regions.len()];
        let behind = match self.intent {
            Intent::Latency => u64::MAX,
            _ => self.params.behind.0.into(),
        };
        let mut first = 0;
        for range in process.regions.chunk_by(|a, b| a.region.0 + 1 == b.region.0) {
            let changes = &look.changes[first..first + range.len()];
            let edges: Vec<u64> = (0..)
                .zip(changes)
                .filter(|(_, change)| change.0)
                .map(|(i, _)| i)
                .collect();
            let is_slow = edges.len() as u64 <= behind;
            let mut next = 0;
            for (i, (_, changed)) in (0..).zip(changes) {
                while edges.get(next).is_some_and(|edge| *edge < i) {
                    next += 1;
                }
                let after = edges.get(next).map_or(u64::MAX, |edge| edge - i);
                let before = next.checked_sub(1).map_or(u64::MAX, |last| i - edges[last]);
                let is_behind = after.min(before) > behind && is_slow;
                clear[first + i as usize] = edges.is_empty() || is_behind || now.since(*changed) >= SETTLED;
            }
            first += range.len();
        }
        clear
    }

    /// Huge pages to split: mostly zero-filled ones, and the most wasteful until the allowance holds.
    fn give_back(&self, process: &ProcessView, wasted: &mut u64, allowance: u64, decision: &mut Decision) {
        let can = |seen: &&Observation| seen.huge && seen.can.demote && !seen.shared && !seen.raced;
        let mut wasteful: Vec<(BasePages, Region)> = process
            .regions
            .iter()
            .filter(can)
            .filter_map(|seen| seen.zero.map(|zero| (zero, seen.region)))
            // What would be promoted again stays.
            .filter(|(zero, _)| zero.0 > 0 && !self.params.density.reached_by_pages(BasePages::REGION.less(*zero)))
            .collect();
        wasteful.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (zero, region) in wasteful {
            if !self.params.zero.reached_by_pages(zero) && *wasted <= allowance {
                break;
            }
            *wasted = wasted.saturating_sub(zero.0.into());
            decision.actions.push(Action {
                process: process.id,
                region,
                kind: ActionKind::Demote,
                reason: Reason::ZeroFilled,
                utilization: None,
                benefit: zero,
                expect: Expect::Zero(BasePages(zero.0 - zero.0 / 8)),
            });
        }
    }

    /// Promotes the candidates: all of them, or while blocks are short those in use first.
    fn promote(&mut self, machine: &Machine, candidates: Vec<Candidate>, decision: &mut Decision) {
        let blocks = machine.free_blocks.0.saturating_sub(SPARE_BLOCKS);
        if candidates.len() as u64 <= blocks {
            self.short_for = 0;
        } else {
            self.short_for = self.short_for.saturating_add(1);
        }
        for Candidate { process, seen, .. } in candidates {
            let mut benefit = seen.populated();
            if self.short_for > 0 {
                if seen.can.age {
                    match decision.age.last_mut().filter(|(id, _)| *id == process) {
                        Some((_, regions)) => regions.push(seen.region),
                        None => decision.age.push((process, vec![seen.region])),
                    }
                }
                let is_cold = seen.aged && seen.accessed == BasePages::ZERO;
                // At first it is not known yet what is in use.
                if is_cold || self.short_for == 1 {
                    continue;
                }
                benefit = match seen.aged {
                    true => BasePages(REGION_PAGES + seen.accessed.0),
                    false => benefit,
                };
            }
            decision.actions.push(Action {
                process,
                region: seen.region,
                kind: ActionKind::Promote,
                reason: Reason::Mapped,
                utilization: seen.aged.then(|| seen.utilization()),
                benefit,
                expect: Expect::Populated(seen.populated()),
            });
        }
    }

    /// How soon to look again; none: at the usual interval.
    fn look_again(&self, now: Time, promotes: bool) -> Option<Duration> {
        // Accessed bits have to cover an interval.
        if self.short_for > 0 {
            return None;
        }
        let since = self.grew.map(|grew| now.since(grew));
        let by_growth = SOON
            .iter()
            .find(|(within, _)| since.is_some_and(|since| since < *within));
        by_growth.map(|(_, soon)| *soon).or(promotes.then_some(AT_WORK))
    }
}

impl Policy for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: self.short_for > 0,
            contents: self.wants_contents,
            clear_of_limits: CLEAR_OF_LIMITS,
        }
    }

    fn without_utilization(&self) -> Option<&'static str> {
        Some("promotes in the order of addresses where free blocks are too few for all")
    }

    fn stall_budget(&self) -> Option<Share> {
        let permille = self.intent.stall_permille();
        Some(permille.map_or(Share::FULL, |permille| Share::millionths(permille * 1000)))
    }

    /// For throughput, stock huge pages may come where they come; waste is taken back afterwards.
    fn wants_small_faults(&self) -> bool {
        self.intent != Intent::Throughput
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        let mut decision = Decision {
            watch_growth: seen.processes.is_empty(),
            ..Decision::default()
        };
        let is_memory_short = is_memory_short(&seen.machine);
        self.past.keep_only(&seen.processes);
        let is_there = |id: &ProcessId| seen.processes.binary_search_by_key(id, |process| process.id).is_ok();
        self.served.retain(is_there);
        let (mut candidates, mut unknown) = (Vec::new(), 0);
        for process in &seen.processes {
            let look = self.look(process, seen.at);
            let is_new = !look.is_known && look.resident > 0;
            let is_served = self.served.contains(&process.id);
            decision.watch_growth |= !is_served;
            if is_new || (!is_served && look.changed_pages >= GROWTH_PAGES.max(look.resident / GROWTH_PART)) {
                self.grew = Some(seen.at);
            }
            unknown += look.unknown;
            let allowance = self.allowance(look.resident, is_memory_short);
            let mut wasted = look.wasted;
            self.give_back(process, &mut wasted, allowance, &mut decision);
            let settled = process
                .regions
                .iter()
                .zip(&look.changes)
                .filter(|(_, change)| !change.0);
            let released = settled.filter_map(|(seen, _)| release(process.id, seen));
            decision.actions.extend(released);
            let clear = self.clear_of_edges(process, &look, seen.at);
            let mut dense: Vec<Candidate> = process
                .regions
                .iter()
                .zip(clear)
                .filter(|(seen, _)| !seen.huge && !seen.raced && !seen.shared && seen.can.promote)
                .filter(|(seen, _)| self.density().reached_by_pages(seen.populated()))
                .inspect(|_| decision.candidates += 1)
                .filter(|(_, is_clear)| *is_clear)
                .map(|(seen, _)| Candidate {
                    process: process.id,
                    seen: *seen,
                    holes: BasePages::REGION.less(seen.populated()).0.into(),
                })
                .collect();
            // The fullest first, as far as the allowance goes.
            dense.sort_by_key(|candidate| (candidate.holes, candidate.seen.region));
            dense.retain(|candidate| {
                let fits = candidate.holes == 0 || wasted + candidate.holes <= allowance;
                wasted += if fits { candidate.holes } else { 0 };
                fits
            });
            dense.sort_by_key(|candidate| candidate.seen.region);
            candidates.append(&mut dense);
        }
        self.promote(&seen.machine, candidates, &mut decision);
        let promotes = decision
            .actions
            .iter()
            .filter(|action| action.kind == ActionKind::Promote);
        self.promoted = promotes.map(|action| (action.process, action.region)).collect();
        let promotes = !self.promoted.is_empty();
        decision.look_again = self.look_again(seen.at, promotes);
        // What is being filled says nothing yet.
        self.looks = self.looks.wrapping_add(1);
        let is_turn = unknown > 0 || self.looks % LOOKS_BETWEEN_CONTENTS == 0;
        self.wants_contents = decision.look_again.is_none() && is_turn;
        decision
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParamError> {
        match name {
            "for" => {
                self.intent = Intent::read(value).map_err(|source| ParamError::Unreadable { name: "for", source })?;
                Ok(())
            }
            _ => self.params.set(name, value).map_err(|error| match error {
                ParamError::Unknown {
                    policy, name, known, ..
                } => ParamError::Unknown {
                    policy,
                    name,
                    known: format!("for, {known}"),
                },
                other => other,
            }),
        }
    }

    fn params(&self) -> Vec<Param> {
        let intent = Param {
            name: "for",
            value: self.intent.show(),
            default: Intent::default().show(),
            meaning: FOR,
        };
        std::iter::once(intent).chain(self.params.list()).collect()
    }

    fn check(&self) -> Result<(), ParamError> {
        if u64::from(self.params.zero.as_millionths()) + u64::from(self.density().as_millionths()) <= 1_000_000 {
            return Err(ParamError::Inconsistent {
                policy: "auto",
                rule: "zero must be above 100% - density, or pages would be demoted as soon as they are promoted",
            });
        }
        Ok(())
    }
}

impl ParamValue for Intent {
    fn read(text: &str) -> Result<Self, UnitError> {
        let expected = "'balanced', 'latency', 'throughput' or 'memory'";
        Intent::by_name(text.as_bytes()).ok_or_else(|| UnitError::new(text, expected))
    }
    fn show(&self) -> String {
        self.name().to_string()
    }
}

/// Whether memory is short: nothing may be wasted then.
fn is_memory_short(machine: &Machine) -> bool {
    let pressed = machine.pressure.is_some_and(|pressure| pressure > UNDER_PRESSURE);
    pressed || !SHORT_OF_MEMORY.reached_by(machine.available_bytes.0, machine.total_bytes.0)
}

#[cfg(test)]
mod tests;
