//! Watches a program while it runs: attaches the manager, samples memory, marks phases.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Options, Progress};
use crate::measure::faults::Watched;
use crate::measure::manager::{Later, Manager};
use crate::measure::recorder::Recorder;
use crate::measure::sampler::{Memory, Sampler};
use crate::prepare::condition::Kept;
use crate::program::{ProgramError, Watch};

/// Time between two scans of a recording: several for each second in which a program fills memory.
const RECORDED_EVERY: Duration = Duration::from_millis(250);

/// Watches one run.
pub(super) struct Watcher<'a> {
    pub options: &'a Options,
    /// None in variants without a manager.
    pub manager_options: Option<Vec<String>>,
    pub scratch: &'a Path,
    pub kept: &'a Kept,
    pub sampler: Sampler,
    pub faults: Watched,
    pub managers: Vec<Manager>,
    /// Where agents have their pages, in variants with a manager that leaves them alone first.
    pub agents: Option<&'a Path>,
    pub later: Vec<Later>,
    /// Where to record what has no manager, without the file's extension.
    pub record: Option<PathBuf>,
    pub recorders: Vec<Recorder>,
    pub began: Instant,
    pub phases: Vec<(f64, String)>,
    pub values: BTreeMap<String, f64>,
    pub is_mosaic: bool,
    pub tell: &'a mut dyn FnMut(&Progress<'_>),
}

impl Watch for Watcher<'_> {
    fn process(&mut self, pid: i32) -> Result<(), ProgramError> {
        self.kept.process(pid)?;
        if let Some(options) = &self.manager_options {
            let (mega, cpu) = (&self.options.mega, self.options.client_cpu);
            match self.agents {
                Some(agents) => {
                    let later = Later::start(mega, options, pid, self.scratch, cpu, agents);
                    self.later.push(later);
                }
                None => self
                    .managers
                    .push(Manager::start(mega, options, pid, self.scratch, cpu)?),
            }
        } else if let Some(path) = &self.record {
            let trace = match self.recorders.len() {
                0 => path.with_extension("trace"),
                n => path.with_extension(format!("{}.trace", n + 1)),
            };
            let recorder = Recorder::start(&self.options.mega, pid, &trace, RECORDED_EVERY)?;
            self.recorders.push(recorder);
        }
        self.sampler.process(pid);
        self.faults.process(pid);
        Ok(())
    }

    fn phase(&mut self, name: &str) {
        self.phases.push((self.began.elapsed().as_secs_f64(), name.to_string()));
        (self.tell)(&Progress::Phase(name));
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.sampler.figure(name, value);
    }

    fn memory_now(&mut self, prefix: &str) {
        let Some(Memory {
            rss_bytes,
            taken_bytes,
            pss_bytes,
            huge_bytes,
            waste_bytes,
            hugetlb_bytes,
            gigantic_bytes,
        }) = self.sampler.memory_now()
        else {
            return;
        };
        let name = |what: &str| match prefix {
            "" => what.to_string(),
            prefix => format!("{prefix}_{what}"),
        };
        let mut put = |what: &str, bytes: u64| self.values.insert(name(what), bytes as f64);
        put("rss_bytes", rss_bytes);
        put("taken_bytes", taken_bytes);
        put("pss_bytes", pss_bytes);
        put("huge_bytes", huge_bytes);
        if let Some(waste) = waste_bytes {
            put("waste_bytes", waste);
        }
        if self.is_mosaic || hugetlb_bytes > 0 {
            put("hugetlb_bytes", hugetlb_bytes);
            put("gigantic_bytes", gigantic_bytes);
        }
    }
}
