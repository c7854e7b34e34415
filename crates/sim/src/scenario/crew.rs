//! The programs of a run, taking turns on one clock, and their samples.

use crate::host::Drive;
use crate::machine::Machine;
use crate::unit::SpaceId;
use crate::workload::{Program, Progress, Results};
use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, REGION_PAGES};

use super::outcome::{ProgramOutcome, Sample};

/// How far one program may run ahead of another, in ns: each has a processor of its own, and they share physical memory. About the time of as many
/// faults as a processor takes pages at once from the buddy allocator (31, mm/page_alloc.c, `zone_batchsize`): their pages interleave this finely.
const TURN_NS: u64 = 30_000;
/// Maximum number of samples; beyond it every other one is dropped, and the time between two doubles.
const MOST_SAMPLES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Not started.
    Waits,
    /// Running.
    Runs,
    /// Sleeps until then, in ns.
    Sleeps(u64),
    /// Ended: with an error, if it did not complete.
    Over(Option<String>),
}

/// One program.
pub struct Member {
    name: String,
    program: Box<dyn Program<Machine>>,
    starts_ns: u64,
    /// It starts so long after this one has ended.
    after: Option<usize>,
    exits: bool,
    node: u8,
    state: State,
    id: Option<SpaceId>,
    end_ns: u64,
    last: ProgramOutcome,
}

impl Member {
    /// A program that starts then. `exits`: its memory is freed when it ends; otherwise it stays to the end of the run.
    pub fn new(name: String, program: Box<dyn Program<Machine>>, starts_ns: u64, exits: bool) -> Self {
        Self {
            name,
            program,
            starts_ns,
            after: None,
            exits,
            node: 0,
            state: State::Waits,
            id: None,
            end_ns: 0,
            last: ProgramOutcome::default(),
        }
    }

    /// The same, on this NUMA node.
    #[must_use]
    pub fn on(self, node: u8) -> Self {
        Self { node, ..self }
    }

    /// The same, but it starts so long after that member has ended.
    #[must_use]
    pub fn after(self, other: Option<usize>) -> Self {
        Self { after: other, ..self }
    }

    /// The moment up to which it has run.
    fn reached(&self, machine: &Machine) -> u64 {
        match self.state {
            State::Waits if self.after.is_some() => u64::MAX,
            State::Waits => self.starts_ns,
            State::Sleeps(until) => until,
            State::Runs => self.id.map_or(self.starts_ns, |id| machine.clock_ns(id)),
            State::Over(_) => u64::MAX,
        }
    }

    /// Runs until then, or until it sleeps or ends.
    fn turn(&mut self, machine: &mut Machine, until_ns: u64) {
        if self.state == State::Waits {
            machine.pass_until(self.starts_ns);
            self.id = machine.spawn(&self.name);
            if self.id.is_none() {
                self.state = State::Over(Some("too many processes".to_string()));
                return;
            }
            self.state = State::Runs;
            if let Some(id) = self.id {
                machine.run_on(id, self.node);
            }
            self.last.counted_before = machine.counters();
        }
        let Some(id) = self.id else { return };
        machine.run_as(id);
        if let State::Sleeps(wakes) = self.state {
            machine.sleep_until(id, wakes);
            self.state = State::Runs;
        }
        match self.program.step(machine, until_ns) {
            Ok(Progress::Ran) => {}
            // Sleeping until now means going on.
            Ok(Progress::Sleeps(until)) => self.state = State::Sleeps(until.max(machine.clock_ns(id))),
            Ok(Progress::Done) => self.state = State::Over(None),
            Err(error) => self.state = State::Over(Some(error.to_string())),
        }
        if machine.space(id).is_none() {
            self.state = State::Over(Some("killed: out of memory".to_string()));
        }
        if let State::Over(_) = self.state {
            self.note(machine);
            self.end_ns = machine.clock_ns(id).max(self.last.end_ns);
            if self.exits {
                let _ = machine.exit(id);
            }
        }
    }

    /// Its memory now.
    fn note(&mut self, machine: &Machine) {
        let Some(space) = self.id.and_then(|id| machine.space(id)) else {
            return;
        };
        let counts = space.counts;
        let waste = space
            .tables
            .all_used()
            .into_iter()
            .filter_map(|region| space.tables.huge_of(region));
        let waste_pages: u64 = waste.map(|huge| u64::from(REGION_PAGES - huge.held())).sum();
        self.last = ProgramOutcome {
            start_ns: space.started_ns,
            end_ns: space.clock_ps / 1000,
            resident_bytes: counts.resident_pages * BASE_PAGE_BYTES,
            huge_bytes: counts.huge * HUGE_PAGE_BYTES,
            giant_bytes: space.tables.giants() << 30,
            waste_bytes: waste_pages * BASE_PAGE_BYTES,
            swapped_bytes: counts.swapped * BASE_PAGE_BYTES,
            faults: counts.faults,
            zero_faults: counts.zero_faults,
            fault_ns: counts.fault_ns,
            stall_ns: counts.stall_ns,
            bad_accesses: counts.bad_accesses,
            peak_resident_bytes: self
                .last
                .peak_resident_bytes
                .max(counts.resident_pages * BASE_PAGE_BYTES),
            peak_huge_bytes: self.last.peak_huge_bytes.max(counts.huge * HUGE_PAGE_BYTES),
            counted_before: self.last.counted_before,
            ..ProgramOutcome::default()
        };
    }

    fn results(&self) -> &Results {
        self.program.results()
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    fn outcome(mut self, machine: &Machine) -> ProgramOutcome {
        // Once its memory is freed, its state at its end counts.
        if !(self.is_over() && self.exits) {
            self.note(machine);
        }
        let done = self.is_over();
        let end_ns = if done { self.end_ns } else { self.last.end_ns };
        ProgramOutcome {
            name: self.name,
            program: self.program.name(),
            results: self.program.results().clone(),
            failed: match self.state {
                State::Over(why) => why,
                _ => None,
            },
            done,
            end_ns,
            ..self.last
        }
    }
}

/// All programs of a run.
pub struct Crew {
    members: Vec<Member>,
    every_ns: u64,
    next_ns: u64,
    samples: Vec<Sample>,
}

impl Crew {
    /// Samples the programs this often.
    pub fn new(members: Vec<Member>, every_ns: u64) -> Self {
        Self {
            members,
            every_ns: every_ns.max(1_000_000),
            next_ns: 0,
            samples: Vec::new(),
        }
    }

    /// Runs whichever is behind, until all have reached this moment. False: all have ended.
    fn advance(&mut self, machine: &mut Machine, until_ns: u64) -> bool {
        loop {
            self.release();
            let mut behind: Option<(u64, usize)> = None;
            let mut second = until_ns;
            for (i, member) in self.members.iter().enumerate() {
                let at = member.reached(machine);
                match behind {
                    Some((least, _)) if at >= least => second = second.min(at),
                    _ => {
                        if let Some((least, _)) = behind {
                            second = second.min(least);
                        }
                        behind = Some((at, i));
                    }
                }
            }
            match behind {
                Some((u64::MAX, _)) | None => return false,
                Some((at, _)) if at >= until_ns => return true,
                Some((at, i)) => {
                    let turn = second.max(at).saturating_add(TURN_NS).min(until_ns);
                    self.members[i].turn(machine, turn);
                }
            }
        }
    }

    /// Starts those that waited for one that has ended.
    fn release(&mut self) {
        for i in 0..self.members.len() {
            let Some(other) = self.members[i].after else { continue };
            if let Some(over) = self.members.get(other).filter(|member| member.is_over()) {
                let from = over.end_ns;
                let member = &mut self.members[i];
                member.starts_ns = member.starts_ns.saturating_add(from);
                member.after = None;
            }
        }
    }

    fn sample(&mut self, machine: &Machine, at_ns: u64) {
        let mut sample = Sample {
            at_ns,
            free_blocks: machine.physical().free_blocks(),
            free_bytes: machine.physical().free_bytes(),
            ..Sample::default()
        };
        for member in &mut self.members {
            member.note(machine);
            sample.operations += member.results().operations;
            if member.id.is_some_and(|id| machine.space(id).is_some()) {
                sample.resident_bytes += member.last.resident_bytes;
                sample.huge_bytes += member.last.huge_bytes;
                sample.waste_bytes += member.last.waste_bytes;
            }
        }
        if self.samples.len() == MOST_SAMPLES {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.every_ns = self.every_ns.saturating_mul(2);
        }
        self.samples.push(sample);
    }

    /// The results: the programs, and the samples with a last one at the end.
    pub fn finish(mut self, machine: &Machine) -> (Vec<ProgramOutcome>, Vec<Sample>) {
        let reached = self.members.iter().map(|member| member.end_ns);
        let at_ns = reached.fold(machine.now_ns(), u64::max);
        self.sample(machine, at_ns);
        let programs = self.members.into_iter().map(|member| member.outcome(machine));
        (programs.collect(), self.samples)
    }
}

impl Drive for Crew {
    fn run(&mut self, machine: &mut Machine, until_ns: u64) -> bool {
        loop {
            let horizon = until_ns.min(self.next_ns);
            if !self.advance(machine, horizon) {
                return false;
            }
            if horizon == self.next_ns {
                machine.pass_until(horizon);
                self.sample(machine, horizon);
                self.next_ns = self.next_ns.saturating_add(self.every_ns);
            }
            if horizon == until_ns {
                return true;
            }
        }
    }
}
