//! A program that does what a trace says.

use super::places::Places;
use crate::workload::{Memory, MemoryError, Program, ProgramError, Progress, Results};
use mega_core::units::BASE_PAGE_BYTES as PAGE;
use mega_trace::{Kind, Record, Source, TraceError};
use serde::{Deserialize, Serialize};

/// How to replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayOptions {
    /// The process to replay; the first in the trace when not given.
    pub process: Option<u32>,
    /// Map 2 MB around an access to a place that the trace never mapped (a trace without mappings, as Valgrind's); otherwise such
    /// accesses are counted and left out.
    pub map_unknown: bool,
    /// Keep the trace's times: sleep until an access's time comes. Otherwise one follows the other.
    pub keep_times: bool,
}

/// Records between two looks at the clock.
const BATCH: u32 = 64;

/// A program that does what a trace says. A mapping lies elsewhere here, at the same place relative to 2 MB.
///
/// Results: operations are accesses; `left_out` counts accesses to what is not mapped, `unsupported` calls that the memory does
/// not model, `scans` and `regions` what scanners saw.
#[derive(Debug)]
pub struct Replay<S> {
    source: S,
    options: ReplayOptions,
    places: Places,
    process: Option<u32>,
    is_ours: bool,
    /// The trace's time and the memory's, when the first time was met.
    clock: Option<(u64, u64)>,
    /// A run that goes on: address, distance, accesses left, kind.
    run: Option<(u64, i64, u64, Kind)>,
    wakes_ns: u64,
    record: u64,
    begun: bool,
    left_out: u64,
    results: Results,
}

fn wrong(record: u64, what: String) -> ProgramError {
    ProgramError::Trace(TraceError::Replay { record, what })
}

impl<S: Source> Replay<S> {
    /// Of this source.
    pub fn new(source: S, options: ReplayOptions) -> Self {
        Self {
            source,
            options,
            places: Places::new(options.map_unknown),
            process: options.process,
            is_ours: true,
            clock: None,
            run: None,
            wakes_ns: 0,
            record: 0,
            begun: false,
            left_out: 0,
            results: Results::default(),
        }
    }

    fn wrong(&self, what: impl ToString) -> ProgramError {
        wrong(self.record, what.to_string())
    }

    /// What the memory does not model is counted, and left out.
    fn allow(&mut self, result: Result<(), MemoryError>) -> Result<(), ProgramError> {
        match result {
            Err(MemoryError::Unsupported(_)) => {
                self.results.add("unsupported", 1);
                Ok(())
            }
            Err(e) => Err(self.wrong(e)),
            Ok(()) => Ok(()),
        }
    }

    fn access<M: Memory>(&mut self, memory: &mut M, address: u64, kind: Kind) -> Result<(), ProgramError> {
        let record = self.record;
        match self
            .places
            .translate(memory, address)
            .map_err(|what| wrong(record, what))?
        {
            Some(at) => {
                self.results.operations += 1;
                match kind {
                    Kind::Read => memory.touch(at, false),
                    Kind::Write => memory.touch(at, true),
                    Kind::Update => memory.update(at),
                }
            }
            None => self.left_out += 1,
        }
        Ok(())
    }

    fn one<M: Memory>(&mut self, memory: &mut M, record: Record) -> Result<(), ProgramError> {
        let number = self.record;
        match record {
            Record::Time(ns) => {
                let (began, here) = *self.clock.get_or_insert((ns, memory.now_ns()));
                if self.options.keep_times {
                    self.wakes_ns = here.saturating_add(ns.saturating_sub(began));
                }
                return Ok(());
            }
            Record::Process(id) => {
                self.is_ours = *self.process.get_or_insert(id.pid) == id.pid;
                return Ok(());
            }
            Record::Scan(_) => {
                self.results.add("scans", 1);
                return Ok(());
            }
            _ if !self.is_ours => return Ok(()),
            _ => {}
        }
        match record {
            Record::Touch { address, kind } => self.access(memory, address, kind)?,
            Record::Run {
                address,
                stride,
                count,
                kind,
            } => self.run = Some((address, stride, count, kind)),
            Record::Map { address, bytes } => self.places.map(memory, address, bytes).map_err(|e| wrong(number, e))?,
            Record::Unmap { address, bytes } => self
                .places
                .unmap(memory, address, bytes)
                .map_err(|e| wrong(number, e))?,
            Record::Remap {
                address,
                bytes,
                to,
                to_bytes,
            } => {
                let moved = self.places.remap(memory, (address, bytes), (to, to_bytes));
                if !moved.map_err(|e| wrong(number, e))? {
                    self.results.add("unsupported", 1);
                }
            }
            Record::Advise { address, bytes, advice } => {
                for (_, n, to) in self.places.overlaps(address, bytes) {
                    let done = memory.advise(to, n.next_multiple_of(PAGE), advice);
                    self.allow(done)?;
                }
            }
            Record::Fork(child) => {
                let done = memory.fork(child);
                self.allow(done)?;
            }
            Record::Exit(child) => {
                let done = memory.child_exits(child);
                self.allow(done)?;
            }
            Record::Work(ns) => memory.work(ns),
            Record::Region(_) => self.results.add("regions", 1),
            Record::Time(_) | Record::Process(_) | Record::Scan(_) => {}
        }
        Ok(())
    }

    /// Some accesses of the run that goes on; false when it is over.
    fn go_on<M: Memory>(&mut self, memory: &mut M) -> Result<bool, ProgramError> {
        let Some((address, stride, left, kind)) = self.run.take() else {
            return Ok(false);
        };
        let now = left.min(u64::from(BATCH));
        let place = |i: u64| address.wrapping_add((stride as u64).wrapping_mul(i));
        for i in 0..now {
            self.access(memory, place(i), kind)?;
        }
        if left > now {
            self.run = Some((place(now), stride, left - now, kind));
        }
        Ok(true)
    }
}

impl<M: Memory, S: Source> Program<M> for Replay<S> {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn parameters(&self) -> serde_json::Value {
        serde_json::to_value(self.options).unwrap_or_default()
    }

    fn results(&self) -> &Results {
        &self.results
    }

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        if !self.begun {
            self.begun = true;
            self.results.begin("replay", memory.now_ns());
        }
        loop {
            for _ in 0..BATCH {
                if memory.now_ns() < self.wakes_ns {
                    return Ok(Progress::Sleeps(self.wakes_ns));
                }
                if self.go_on(memory)? {
                    break;
                }
                let Some(record) = self.source.next_record()? else {
                    let left_out = std::mem::take(&mut self.left_out);
                    if left_out > 0 {
                        self.results.add("left_out", left_out);
                    }
                    self.results.mark(memory.now_ns(), 0);
                    return Ok(Progress::Done);
                };
                self.one(memory, record)?;
                self.record += 1;
            }
            if memory.now_ns() >= until_ns {
                return Ok(Progress::Ran);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../trace/src/testing.rs"]
mod testing;

#[cfg(test)]
mod tests {
    use super::super::Recorder;
    use super::testing::any_record;
    use super::*;
    use crate::workload::{run_to_end, CountingMemory, Spec, NAMES};
    use mega_core::units::HUGE_PAGE_BYTES;
    use mega_trace::{Advice, Header, LackeyReader, Reader, TextReader};
    use proptest::prelude::*;

    fn small(name: &str) -> Spec {
        let text = match name {
            "graph" => r#"{"program": "graph", "scale": 8, "iterations": 2}"#.to_string(),
            "compute" => r#"{"program": "compute", "passes": 3}"#.to_string(),
            "store" => r#"{"program": "store", "dense_mib": 1, "sparse_mib": 2, "time_ns": 100000}"#.to_string(),
            "redis" => r#"{"program": "redis", "keys": 200, "delete_share": 0.5, "read_all": true}"#.to_string(),
            "sizes" => r#"{"program": "sizes", "mib": 1, "pause_ns": 0}"#.to_string(),
            "stride" | "churn" => format!(r#"{{"program": "{name}", "mib": 1, "times": 1}}"#),
            "touch" => r#"{"program": "touch", "mib": 1}"#.to_string(),
            "turnover" => r#"{"program": "turnover", "mib": 2, "round_mib": 1}"#.to_string(),
            "shards" => r#"{"program": "shards", "mib": 1, "times": 2, "file_mib": 1, "visits": 100}"#.to_string(),
            "heap" => r#"{"program": "heap", "mib": 1, "array_mib": 1, "visits": 100}"#.to_string(),
            "chunks" => r#"{"program": "chunks", "mib": 2, "chunk_mib": 1, "time_ns": 1000}"#.to_string(),
            "sparse" => r#"{"program": "sparse", "mib": 4, "time_ns": 1000}"#.to_string(),
            _ => format!(r#"{{"program": "{name}", "mib": 1, "time_ns": 1000}}"#),
        };
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn what_a_program_did_is_done_again_by_its_recording() {
        // A driver takes the kernel's memory: no trace has that.
        for name in NAMES.iter().filter(|name| **name != "hog") {
            let memory = CountingMemory::with_touch_ns(1);
            let mut recorder = Recorder::new(memory, Vec::new(), &Header::default()).unwrap();
            let mut program = small(name).build::<Recorder<CountingMemory, Vec<u8>>>().unwrap();
            let sleep = |r: &mut Recorder<_, _>, ns| {
                let memory: &mut CountingMemory = r.memory();
                memory.wait_until(ns);
                r.note_time();
            };
            run_to_end(program.as_mut(), &mut recorder, sleep).unwrap();
            let (first, file) = recorder.finish().unwrap();
            let mut again = CountingMemory::with_touch_ns(1);
            let mut replay = Replay::new(Reader::new(&file[..]).unwrap(), ReplayOptions::default());
            run_to_end(&mut replay, &mut again, |m, ns| m.wait_until(ns)).unwrap();
            let counts = |m: &CountingMemory| {
                (
                    m.reads,
                    m.writes,
                    m.stray,
                    m.calls,
                    m.resident_pages(),
                    m.mapped_pages(),
                )
            };
            assert_eq!(counts(&again), counts(&first), "{name}");
            assert_eq!(replay.results.measure("left_out"), 0);
            assert!(first.touches() > 100, "{name}: {} touches", first.touches());
            // A touch takes less than two bytes in the file, most of them far less.
            assert!(
                file.len() as u64 <= 1000 + first.touches() * 4,
                "{name}: {} bytes",
                file.len()
            );
        }
    }

    #[test]
    fn mappings_keep_their_place_in_their_region_and_partial_unmaps_split_them() {
        let (a, kind) = (0x7f00_0020_3000u64, Kind::Write);
        let records = vec![
            Record::Map {
                address: a,
                bytes: 5 * PAGE,
            },
            Record::Run {
                address: a,
                stride: PAGE as i64,
                count: 5,
                kind,
            },
            Record::Unmap {
                address: a + PAGE,
                bytes: 2 * PAGE,
            },
            Record::Touch {
                address: a + PAGE,
                kind,
            },
            Record::Touch {
                address: a + 4 * PAGE,
                kind,
            },
            Record::Advise {
                address: a,
                bytes: 5 * PAGE,
                advice: Advice::DontNeed,
            },
            Record::Touch { address: a, kind },
            Record::Remap {
                address: a + 3 * PAGE,
                bytes: 2 * PAGE,
                to: 0x1000_0000,
                to_bytes: 3 * PAGE,
            },
            Record::Touch {
                address: 0x1000_2000,
                kind,
            },
            Record::Fork(3),
        ];
        let mut m = CountingMemory::new();
        let mut replay = Replay::new(records.into_iter(), ReplayOptions::default());
        run_to_end(&mut replay, &mut m, |_, _| {}).unwrap();
        assert_eq!((m.stray, replay.results.measure("left_out")), (0, 1));
        assert_eq!((m.mapped_pages(), m.resident_pages()), (1 + 3, 2));
        let at = replay.places.translate(&mut m, a).unwrap().unwrap();
        assert_eq!(at % HUGE_PAGE_BYTES, a % HUGE_PAGE_BYTES);
    }

    #[test]
    fn only_one_process_is_replayed_and_times_are_kept() {
        let text = "process 5\nmap 0 4096\nw 0\nprocess 6\nmap 0 8192\nw 0\nprocess 5\ntime 100\nw 0\ntime 5000\nw 8\n";
        for (process, writes) in [(None, 3), (Some(6), 1)] {
            let source = TextReader::new(text.as_bytes());
            let mut replay = Replay::new(
                source,
                ReplayOptions {
                    process,
                    keep_times: true,
                    ..ReplayOptions::default()
                },
            );
            let mut m = CountingMemory::new();
            run_to_end(&mut replay, &mut m, |m, ns| m.wait_until(ns)).unwrap();
            assert_eq!((m.writes, m.now_ns()), (writes, 4900));
        }
    }

    #[test]
    fn places_never_mapped_are_mapped_when_asked_for() {
        let text = " L 1fff000758,8\n S 1fff000758,8\n S 1fffffffff,8\n S ffffffffffffffff,1\n";
        let source = || LackeyReader::new(text.as_bytes(), false);
        let mut m = CountingMemory::new();
        let mut replay = Replay::new(
            source(),
            ReplayOptions {
                map_unknown: true,
                ..ReplayOptions::default()
            },
        );
        run_to_end(&mut replay, &mut m, |_, _| {}).unwrap();
        assert_eq!(
            (m.mapped_pages(), m.resident_pages(), replay.results.measure("left_out")),
            (3 * 512, 3, 1)
        );
        let mut replay = Replay::new(source(), ReplayOptions::default());
        run_to_end(&mut replay, &mut m, |_, _| {}).unwrap();
        assert_eq!(replay.results.measure("left_out"), 5);
    }

    proptest! {
        #[test]
        fn no_trace_makes_a_replay_panic_or_leave_its_memory(
            records in proptest::collection::vec(any_record(), 0..60),
            map_unknown: bool,
            low: bool,
        ) {
            // Half of the time addresses are few, so that they meet.
            let few = |n: u64| if low { n % 32 * PAGE } else { n };
            let records: Vec<Record> = records.into_iter().map(|r| match r {
                Record::Map { address, bytes } => Record::Map { address: few(address), bytes: few(bytes) },
                Record::Unmap { address, bytes } => Record::Unmap { address: few(address), bytes: few(bytes) },
                Record::Remap { address, bytes, to, to_bytes } => Record::Remap {
                    address: few(address), bytes: few(bytes), to: few(to), to_bytes: few(to_bytes),
                },
                Record::Touch { address, kind } => Record::Touch { address: few(address), kind },
                Record::Run { address, stride, count, kind } => Record::Run { address, stride, count: count % 500 + 1, kind },
                other => other,
            }).collect();
            let mut m = CountingMemory::new();
            let mut replay = Replay::new(records.into_iter(), ReplayOptions { map_unknown, ..ReplayOptions::default() });
            let _ = run_to_end(&mut replay, &mut m, |_, _| {});
            prop_assert_eq!(m.stray, 0);
        }
    }
}
