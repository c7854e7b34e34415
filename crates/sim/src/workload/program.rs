//! A program: it runs in steps, so that several programs and the control loop share one clock.

use super::memory::{Advice, Memory, MemoryError};
use super::Latency;

/// How far a step got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The time of the step is over.
    Ran,
    /// The program sleeps until this time in ns; to step it earlier does nothing.
    Sleeps(u64),
    /// It is over. Its memory stays mapped for inspection.
    Done,
}

/// Why a program cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A memory call failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Invalid options.
    #[error("{0}")]
    Usage(String),
    /// An invalid trace.
    #[error(transparent)]
    Trace(#[from] mega_trace::TraceError),
}

/// A phase of a program: `fill`, `serve`, `free`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// When it began.
    pub start_ns: u64,
    /// When it ended; the time of the last count while it lasts.
    pub end_ns: u64,
    /// Operations in it.
    pub operations: u64,
}

/// Results so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results {
    /// Operations, without those that fill or free.
    pub operations: u64,
    /// Its phases in their order, the current one last.
    pub phases: Vec<Phase>,
    /// Latencies by operation: `touch`, `get`.
    pub latencies: Vec<(&'static str, Latency)>,
    /// Other numbers, the unit last in the name.
    pub measures: Vec<(&'static str, u64)>,
}

impl Results {
    /// Begins a phase; the one before it ends.
    pub fn begin(&mut self, name: impl Into<String>, now_ns: u64) {
        self.mark(now_ns, 0);
        self.phases.push(Phase {
            name: name.into(),
            start_ns: now_ns,
            end_ns: now_ns,
            operations: 0,
        });
    }

    /// Counts operations of the current phase, which lasts until now at least.
    pub fn mark(&mut self, now_ns: u64, operations: u64) {
        if let Some(phase) = self.phases.last_mut() {
            phase.end_ns = now_ns;
            phase.operations += operations;
        }
    }

    /// Records a latency.
    pub fn record(&mut self, name: &'static str, ns: u64) {
        let at = self.latencies.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
            self.latencies.push((name, Latency::new()));
            self.latencies.len() - 1
        });
        self.latencies[at].1.record(ns);
    }

    /// The latencies of this name.
    #[must_use]
    pub fn latency(&self, name: &str) -> Option<&Latency> {
        self.latencies.iter().find(|(n, _)| *n == name).map(|(_, l)| l)
    }

    /// Adds to a number.
    pub fn add(&mut self, name: &'static str, n: u64) {
        match self.measures.iter_mut().find(|(m, _)| *m == name) {
            Some((_, sum)) => *sum += n,
            None => self.measures.push((name, n)),
        }
    }

    /// The number of this name; 0 when there is none.
    #[must_use]
    pub fn measure(&self, name: &str) -> u64 {
        self.measures.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
    }

    /// Nanoseconds of all phases of this name.
    #[must_use]
    pub fn phase_ns(&self, name: &str) -> u64 {
        let of_name = self.phases.iter().filter(|p| p.name == name);
        of_name.map(|p| p.end_ns.saturating_sub(p.start_ns)).sum()
    }
}

/// A program that runs on a [`Memory`].
pub trait Program<M: Memory> {
    /// Its name, as the lab calls it.
    fn name(&self) -> &'static str;

    /// Its options, as they are written in a configuration.
    fn parameters(&self) -> serde_json::Value;

    /// Runs until the memory's clock passes `until_ns`, or it sleeps, or it is over. It may overrun by some hundred accesses.
    ///
    /// # Errors
    /// A failed memory call, which ends the program.
    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError>;

    /// Results so far.
    fn results(&self) -> &Results;
}

/// Steps a program to its end, with nothing else on the machine. `sleep` lets the time pass until which it sleeps.
///
/// # Errors
/// The program's error.
pub fn run_to_end<M: Memory>(
    program: &mut (impl Program<M> + ?Sized),
    memory: &mut M,
    mut sleep: impl FnMut(&mut M, u64),
) -> Result<(), ProgramError> {
    loop {
        match program.step(memory, u64::MAX)? {
            Progress::Done => return Ok(()),
            Progress::Sleeps(until_ns) => sleep(memory, until_ns),
            Progress::Ran => {}
        }
    }
}

/// Maps an area, and advises it huge if asked, as the lab's `--thp advise` does.
pub(super) fn map_area<M: Memory>(memory: &mut M, bytes: u64, advise: bool) -> Result<u64, MemoryError> {
    let address = memory.map(bytes)?;
    if advise {
        memory.advise(address, bytes.next_multiple_of(super::PAGE), Advice::Huge)?;
    }
    Ok(address)
}

/// A time that lies `ns` after now.
pub(super) fn after(now_ns: u64, ns: u64) -> u64 {
    now_ns.saturating_add(ns)
}

/// The parts of [`Program`] that are the same for all: `options` and `results` are fields.
macro_rules! describe {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn parameters(&self) -> serde_json::Value {
            serde_json::to_value(&self.options).unwrap_or_default()
        }

        fn results(&self) -> &Results {
            &self.results
        }
    };
}
pub(super) use describe;

/// Refuses sizes that no address space has (47 bits).
pub(super) fn check_mib(mib: u64) -> Result<(), ProgramError> {
    if mib > 1 << 27 {
        return Err(ProgramError::Usage(format!("{mib} MiB do not fit an address space")));
    }
    Ok(())
}

/// Refuses a share outside of 0 to 1.
pub(super) fn check_share(name: &str, share: f64) -> Result<(), ProgramError> {
    if !(0.0..=1.0).contains(&share) {
        return Err(ProgramError::Usage(format!(
            "{name} {share}: a share lies between 0 and 1"
        )));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workload::CountingMemory;

    fn run_by<P: Program<CountingMemory>>(mut program: P, step_ns: u64, touch_ns: u64) -> (CountingMemory, P) {
        let mut memory = CountingMemory::new();
        memory.touch_ns = touch_ns;
        loop {
            let until = memory.now_ns().saturating_add(step_ns);
            match program.step(&mut memory, until).unwrap() {
                Progress::Done => break,
                Progress::Sleeps(until_ns) => memory.wait_until(until_ns),
                Progress::Ran => {}
            }
        }
        assert_eq!(memory.stray, 0, "{} left its memory", program.name());
        (memory, program)
    }

    /// Runs a program to its end in one step.
    pub fn run<P: Program<CountingMemory>>(program: P) -> (CountingMemory, P) {
        run_by(program, u64::MAX, 1)
    }

    /// Runs it in one step and in many small ones: the results must be the same. Returns them.
    pub fn steps_do_not_matter<P: Program<CountingMemory>>(new: impl Fn() -> P) -> Results {
        let (memory, program) = run_by(new(), u64::MAX, 3);
        for step_ns in [1, 10_007] {
            let (other_memory, other) = run_by(new(), step_ns, 3);
            assert_eq!(other.results(), program.results(), "{}", program.name());
            let counts = |m: &CountingMemory| (m.reads, m.writes, m.resident_pages(), m.calls, m.now_ns());
            assert_eq!(counts(&other_memory), counts(&memory), "{}", program.name());
        }
        program.results().clone()
    }

    #[test]
    fn phases_end_where_the_next_begins_and_numbers_add_up() {
        let mut r = Results::default();
        r.begin("fill", 5);
        r.mark(9, 3);
        r.begin("serve", 10);
        r.mark(30, 7);
        r.add("freed_bytes", 4);
        r.add("freed_bytes", 5);
        r.record("get", 100);
        assert_eq!(
            (r.phase_ns("fill"), r.phase_ns("serve"), r.phases[1].operations),
            (5, 20, 7)
        );
        assert_eq!((r.measure("freed_bytes"), r.measure("x")), (9, 0));
        assert_eq!(r.latency("get").map(Latency::count), Some(1));
    }
}
