//! The scans of a trace, one at a time, as a policy is shown them.

use std::collections::BTreeMap;

use super::record::Record;
use super::{Source, TraceError};
use mega_core::observe::{Machine, Observation, ProcessId, ProcessView, Snapshot};
use mega_core::units::Time;

/// The most regions of one scan (32 TB), as in a journal: a small file cannot ask for all memory.
const MOST_REGIONS: u64 = 1 << 24;

/// Rebuilds what a scanner saw. A scan is its record and the processes and regions that follow it directly; all else is passed over.
#[derive(Debug)]
pub struct Scans<S> {
    source: S,
    /// The record that ended the last scan.
    ahead: Option<Record>,
    process: ProcessId,
    time_ns: u64,
    records: u64,
}

impl<S: Source> Scans<S> {
    /// Of this source.
    pub fn new(source: S) -> Self {
        Self {
            source,
            ahead: None,
            process: ProcessId { pid: 0, started: 0 },
            time_ns: 0,
            records: 0,
        }
    }

    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if let Some(record) = self.ahead.take() {
            return Ok(Some(record));
        }
        let record = self.source.next_record()?;
        self.records += u64::from(record.is_some());
        Ok(record)
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::Replay {
            record: self.records.saturating_sub(1),
            what,
        }
    }

    /// The next scan; none at the proper end. Its time is that of the trace.
    ///
    /// # Errors
    /// What the source says, and observations that cannot be: counts that contradict each other, regions that do not rise, more than 32 TB.
    pub fn next_scan(&mut self) -> Result<Option<Snapshot>, TraceError> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(Record::Time(ns)) => self.time_ns = ns,
                Some(Record::Process(id)) => self.process = id,
                Some(Record::Scan(machine)) => return self.scan(machine).map(Some),
                Some(_) => {}
            }
        }
    }

    fn scan(&mut self, machine: Machine) -> Result<Snapshot, TraceError> {
        let mut processes: BTreeMap<ProcessId, Vec<Observation>> = BTreeMap::new();
        let mut regions = 0;
        loop {
            match self.next()? {
                Some(Record::Process(id)) => {
                    self.process = id;
                    processes.entry(id).or_default();
                }
                Some(Record::Region(seen)) => {
                    regions += 1;
                    if regions > MOST_REGIONS {
                        return Err(self.wrong(format!("more than {MOST_REGIONS} regions in one scan")));
                    }
                    if !seen.is_sane() {
                        return Err(self.wrong(format!("impossible page counts for region {}", seen.region)));
                    }
                    let own = processes.entry(self.process).or_default();
                    if own.last().is_some_and(|last| last.region >= seen.region) {
                        return Err(self.wrong(format!("region {} is not above the one before it", seen.region)));
                    }
                    own.push(seen);
                }
                other => {
                    self.ahead = other;
                    break;
                }
            }
        }
        Ok(Snapshot {
            at: Time(self.time_ns),
            machine,
            processes: processes
                .into_iter()
                .map(|(id, regions)| ProcessView { id, regions })
                .collect(),
        })
    }
}

/// Scans in tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use mega_core::observe::{Can, Region};
    use mega_core::units::{BasePages, Blocks, Bytes};

    pub fn region(number: u64, mapped: u32, accessed: u32) -> Record {
        Record::Region(Observation {
            region: Region(number),
            mapped: BasePages(mapped),
            accessed: BasePages(accessed),
            dirty: BasePages(0),
            zero: Some(BasePages(0)),
            kept: BasePages(0),
            huge: false,
            shared: false,
            raced: false,
            aged: true,
            can: Can::ALL,
        })
    }

    pub fn process(pid: u32) -> Record {
        Record::Process(ProcessId { pid, started: 7 })
    }

    pub fn scan() -> Record {
        Record::Scan(Machine {
            available_bytes: Bytes(1),
            total_bytes: Bytes(2),
            free_blocks: Blocks(3),
            pressure: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{process, region, scan};
    use super::*;
    use crate::testing::any_record;
    use proptest::prelude::*;

    fn all(records: Vec<Record>) -> Result<Vec<Snapshot>, TraceError> {
        let mut scans = Scans::new(records.into_iter());
        let mut found = Vec::new();
        while let Some(seen) = scans.next_scan()? {
            found.push(seen);
        }
        Ok(found)
    }

    #[test]
    fn a_scan_has_its_time_its_processes_by_id_and_their_regions_and_nothing_else() {
        let map = Record::Map {
            address: 0,
            bytes: 4096,
        };
        let records = vec![
            Record::Time(5),
            process(2),
            map,
            scan(),
            process(2),
            region(4, 512, 3),
            region(9, 1, 1),
            process(1),
            Record::Time(90),
            process(3),
            map,
            scan(),
            scan(),
            region(1, 1, 1),
            Record::Work(1),
            region(2, 1, 1),
        ];
        let found = all(records).unwrap();
        let shape: Vec<(u64, Vec<(u32, usize)>)> = found
            .iter()
            .map(|s| {
                (
                    s.at.0,
                    s.processes.iter().map(|p| (p.id.pid, p.regions.len())).collect(),
                )
            })
            .collect();
        assert_eq!(shape, [(5, vec![(1, 0), (2, 2)]), (90, vec![]), (90, vec![(3, 1)])]);
    }

    #[test]
    fn what_cannot_be_is_an_error_that_names_the_record() {
        for (records, record, words) in [
            (vec![scan(), process(1), region(3, 1, 2)], 2, "impossible"),
            (
                vec![scan(), process(1), region(3, 1, 1), region(3, 1, 1)],
                3,
                "not above",
            ),
            (
                vec![
                    scan(),
                    region(3, 1, 1),
                    process(1),
                    process(0),
                    region(9, 1, 1),
                    process(1),
                    region(4, 1, 1),
                    region(2, 1, 1),
                ],
                7,
                "not above",
            ),
        ] {
            let error = all(records).unwrap_err();
            let TraceError::Replay { record: at, what } = &error else {
                panic!("{error}")
            };
            assert!(*at == record && what.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_records_make_it_panic(records in proptest::collection::vec(any_record(), 0..60)) {
            let _ = all(records);
        }
    }
}
