//! Looking: what /proc says of every process at each look; page tables and contents of some in turn, within a budget of time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mega_cli::text::printable;
use mega_core::units::Bytes;
use mega_linux::deadline::{self, Late};
use mega_linux::inspect::regions::region_map;
use mega_linux::inspect::usage::{self, InspectError, UsageOptions};
use mega_linux::knobs::thp;
use mega_linux::proc::{cgroup, meminfo, smaps, stat, task, ProcRoot};
use mega_linux::scan::{choose, Preference, Scanner};

use crate::daemon::{self, Daemon};
use crate::figures::Figures;
use crate::seen::{Look, Map, Process};

/// Huge pages of a process whose contents are read at most for its waste, evenly spaced.
const READ_MAX: usize = 256;
/// The same for a map.
const MAP_READ_MAX: usize = 2048;
/// The part of the interval that a pass over the processes may take: sizes in huge pages, then page tables.
const BUDGET_PART: u32 = 20;
/// How long a process that holds its `mmap_lock` is waited for, once; until it lets go it is not asked again.
const LIMIT: Duration = Duration::from_secs(2);

/// What to look at.
#[derive(Debug, Clone)]
pub struct Subject {
    /// These processes; all if empty.
    pub pids: Vec<u32>,
    /// Of all, those with at least so much resident.
    pub min_resident: Bytes,
    /// Time between looks.
    pub interval: Duration,
}

/// What page tables said of a process, and when.
#[derive(Default)]
struct Deep {
    start: u64,
    sized: Option<Instant>,
    huge: Option<u64>,
    scanned: Option<Instant>,
    waste: Option<u64>,
    qualifies: Option<u64>,
    owners: Vec<String>,
    /// Why nothing of its mappings is known.
    locked: Option<String>,
}

/// Looks again and again.
pub struct Looker {
    root: ProcRoot,
    subject: Subject,
    scanner: Result<Box<dyn Scanner>, String>,
    deep: BTreeMap<u32, Deep>,
}

impl Looker {
    /// Takes the best scanner that works here; without one only what /proc says is shown.
    #[must_use]
    pub fn new(subject: Subject) -> Self {
        let scanner = choose(Preference::Best)
            .map(|(scanner, _)| scanner)
            .map_err(|error| error.to_string());
        Self {
            root: ProcRoot::default(),
            subject,
            scanner,
            deep: BTreeMap::new(),
        }
    }

    /// Looks, at the regions of this process too.
    pub fn look(&mut self, map_of: Option<u32>) -> Look {
        let began = Instant::now();
        let daemon = daemon::ask();
        let mut processes = self.processes(daemon.as_ref().ok());
        processes.sort_by_key(|process| Reverse(process.figures.resident_bytes));
        self.deep
            .retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        self.size(&processes);
        self.scan(&processes);
        for process in &mut processes {
            self.complete(process, daemon.as_ref());
        }
        processes.sort_by_key(|process| process.pid);
        let map = map_of.map(|pid| self.map(pid));
        let memory = meminfo::read(&self.root)
            .ok()
            .and_then(|all| Some([all.total_bytes?, all.available_bytes?, all.anon_huge_bytes.unwrap_or(0)]));
        Look {
            processes,
            map,
            daemon,
            scanner: self
                .scanner
                .as_ref()
                .map(|scanner| scanner.name().to_string())
                .map_err(Clone::clone),
            memory,
            took: began.elapsed(),
        }
    }

    /// How long to wait after a look, so that looking takes a tenth of the time at most.
    #[must_use]
    pub fn pause(&self, took: Duration) -> Duration {
        self.subject.interval.saturating_sub(took).max(took * 9)
    }

    fn processes(&mut self, daemon: Option<&Daemon>) -> Vec<Process> {
        let pids = match self.subject.pids.as_slice() {
            [] => task::processes(&self.root).unwrap_or_default(),
            pids => pids.iter().copied().collect(),
        };
        pids.into_iter()
            .filter_map(|pid| {
                // One that ends meanwhile is not there.
                let stat = stat::read(&self.root, pid).ok()?;
                let is_known = daemon.is_some_and(|daemon| daemon.processes.contains_key(&pid));
                let is_wanted =
                    !self.subject.pids.is_empty() || is_known || stat.rss_bytes >= self.subject.min_resident.0;
                if stat.is_kernel_thread() || stat.is_over() || !is_wanted {
                    return None;
                }
                let deep = self.deep.entry(pid).or_default();
                if deep.start != stat.start_ticks {
                    *deep = Deep {
                        start: stat.start_ticks,
                        ..Deep::default()
                    };
                }
                Some(Process {
                    pid,
                    name: printable(&stat.comm).into_owned(),
                    service: self.service(pid),
                    figures: Figures {
                        resident_bytes: stat.rss_bytes,
                        ..Figures::default()
                    },
                    ..Process::default()
                })
            })
            .collect()
    }

    /// Its unit, or else its control group.
    fn service(&self, pid: u32) -> String {
        printable(cgroup::service(&cgroup::own(&self.root, pid))).into_owned()
    }

    /// The processes in the order in which they are due: never looked at, then the longest ago.
    fn due(&self, processes: &[Process], when: impl Fn(&Deep) -> Option<Instant>) -> Vec<u32> {
        let mut due: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        // Stable: of those never looked at the largest comes first.
        due.sort_by_key(|pid| self.deep.get(pid).and_then(&when));
        due
    }

    fn in_turn(
        &mut self,
        due: &[u32],
        mut one: impl FnMut(&ProcRoot, &mut Result<Box<dyn Scanner>, String>, u32, &mut Deep),
    ) {
        let until = Instant::now() + self.subject.interval / BUDGET_PART;
        for pid in due {
            if let Some(deep) = self.deep.get_mut(pid) {
                one(&self.root, &mut self.scanner, *pid, deep);
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    fn size(&mut self, processes: &[Process]) {
        let due = self.due(processes, |deep| deep.sized);
        self.in_turn(&due, |root, _, pid, deep| {
            let its_root = root.clone();
            let seen = deadline::within(pid, LIMIT, move || smaps::read_rollup(&its_root, pid));
            deep.locked = late(&seen);
            deep.huge = seen.ok().and_then(Result::ok).map(|usage| {
                let huge = [usage.anon_huge_bytes, usage.shmem_huge_bytes, usage.file_huge_bytes];
                huge.into_iter().flatten().sum()
            });
            deep.sized = Some(Instant::now());
        });
    }

    fn scan(&mut self, processes: &[Process]) {
        let due = self.due(processes, |deep| deep.scanned);
        let options = UsageOptions {
            read_max: READ_MAX,
            limit: LIMIT,
            ..UsageOptions::default()
        };
        self.in_turn(&due, |root, scanner, pid, deep| {
            let seen = match scanner {
                Ok(scanner) => match usage::read(root, scanner.as_mut(), pid, &options) {
                    Ok(seen) => Some(seen),
                    Err(error) => {
                        deep.locked = error.is_locked().then(|| error.to_string());
                        None
                    }
                },
                Err(_) => None,
            };
            deep.waste = seen.as_ref().and_then(|usage| usage.total.waste_bytes);
            deep.qualifies = seen.map(|usage| usage.total.qualifies_bytes);
            let its_root = root.clone();
            let owners = deadline::within(pid, LIMIT, move || thp::owners(&its_root, pid));
            let owners = owners.ok().and_then(Result::ok).unwrap_or_default();
            deep.owners = owners
                .iter()
                .map(|owner| printable(&owner.to_string()).into_owned())
                .collect();
            deep.scanned = Some(Instant::now());
        });
    }

    fn complete(&self, process: &mut Process, daemon: Result<&Daemon, &String>) {
        let Some(deep) = self.deep.get(&process.pid) else {
            return;
        };
        let figures = &mut process.figures;
        (figures.huge_bytes, figures.waste_bytes, figures.qualifies_bytes) = (deep.huge, deep.waste, deep.qualifies);
        match daemon.map(|daemon| (daemon, daemon.processes.get(&process.pid))) {
            Ok((daemon, Some(known))) => {
                let seen = known.figures;
                figures.waste_bytes = figures.waste_bytes.or(seen.waste_bytes);
                figures.huge_bytes = figures.huge_bytes.or(seen.huge_bytes);
                (figures.gain, figures.stall) = (seen.gain, seen.stall);
                (figures.promotions, figures.demotions) = (seen.promotions, seen.demotions);
                process.rule = Some(printable(&known.rule).into_owned());
                process.doing = printable(&known.state).into_owned();
                if daemon.dry_run {
                    process.doing += ", dry run";
                }
                process
                    .why
                    .push(printable(&format!("rule {}, policy {}", known.rule, known.policy)).into_owned());
                if !known.refusals.is_empty() {
                    let reasons: Vec<String> = known.refusals.iter().map(|(why, n)| format!("{why} ({n})")).collect();
                    process
                        .why
                        .push(printable(&format!("refused: {}", reasons.join(", "))).into_owned());
                }
            }
            Ok((_, None)) => {
                process.doing = "no rule".to_string();
            }
            Err(_) => process.doing = "unmanaged".to_string(),
        }
        process
            .why
            .extend(deep.locked.iter().map(|why| format!("not seen: {why}")));
        if let Some(qualifies) = deep.qualifies.filter(|n| *n > 0) {
            process
                .why
                .push(format!("{} would qualify for promotion", Bytes(qualifies)));
        }
        process
            .why
            .extend(deep.owners.iter().map(|owner| format!("THP: {owner}")));
    }

    fn map(&mut self, pid: u32) -> Map {
        let regions = match &mut self.scanner {
            Ok(scanner) => {
                region_map(&self.root, scanner.as_mut(), pid, MAP_READ_MAX).map_err(|error| error.to_string())
            }
            Err(why) => Err(why.clone()),
        };
        Map { pid, regions }
    }
}

/// Why a call gave no answer in time.
fn late<T>(answer: &Result<T, Late>) -> Option<String> {
    answer.as_ref().err().map(|late| InspectError::from(*late).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looker(pids: Vec<u32>) -> Looker {
        Looker {
            root: ProcRoot::default(),
            subject: Subject {
                pids,
                min_resident: Bytes::mib(64),
                interval: Duration::from_secs(2),
            },
            scanner: Err("none in this test".to_string()),
            deep: BTreeMap::new(),
        }
    }

    #[test]
    fn a_process_is_seen_with_what_proc_says_and_without_a_scanner_its_waste_is_unknown() {
        let own = std::process::id();
        let mut looker = looker(vec![own, u32::MAX - 1]);
        let mut processes = looker.processes(None);
        assert_eq!(processes.len(), 1, "one that is not there is left out");
        looker.size(&processes);
        looker.scan(&processes);
        let none = "no daemon".to_string();
        looker.complete(&mut processes[0], Err(&none));
        let process = &processes[0];
        assert_eq!((process.pid, process.doing.as_str()), (own, "unmanaged"));
        assert!(process.figures.resident_bytes > 0 && process.figures.huge_bytes.is_some());
        assert_eq!(process.figures.waste_bytes, None);
        assert!(looker.map(own).regions.is_err());
    }

    #[test]
    fn looking_takes_a_tenth_of_the_time_at_most() {
        let looker = looker(Vec::new());
        assert_eq!(looker.pause(Duration::from_millis(100)), Duration::from_millis(1900));
        assert_eq!(looker.pause(Duration::from_secs(3)), Duration::from_secs(27));
    }

    #[test]
    fn those_never_looked_at_come_first_and_then_the_longest_ago() {
        let mut looker = looker(Vec::new());
        let now = Instant::now();
        for (pid, sized) in [
            (1, Some(now)),
            (2, None),
            (3, now.checked_sub(Duration::from_secs(1))),
            (4, None),
        ] {
            let deep = Deep {
                sized,
                ..Deep::default()
            };
            looker.deep.insert(pid, deep);
        }
        let process = |pid| Process {
            pid,
            ..Process::default()
        };
        let due = looker.due(&[process(1), process(4), process(3), process(2)], |deep| deep.sized);
        assert_eq!(due, [4, 2, 3, 1]);
    }
}
