//! A `mega manage` beside the measured program: its cost and its actions.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mega_core::action::{ActionKind, Outcome};
use mega_core::journal::{Event, Line};
use mega_linux::agent::alone;
use mega_linux::proc::{stat, status, ProcRoot};
use mega_linux::process::family::Family;
use rustix::process::{kill_process, Pid, Signal};

use super::agent;
use super::counters::cpu_ns;
use crate::memory::{die_with_parent_after_exec, pin_process_to_cpu};
use crate::program::ProgramError;
use crate::result::{Better, Metric, Unit};

/// Long enough for an emulated processor, too (tests/vm/experiments).
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// A running manager. Dropping it ends it; the program continues.
#[derive(Debug)]
pub struct Manager {
    child: Child,
    journal: PathBuf,
    ended: bool,
}

/// The metrics that [`Manager::finish`] gives.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    vec![
        Metric::new(
            "manager_cpu_ns",
            "processor time of the manager",
            Unit::Ns,
            Better::Lower,
        ),
        Metric::new(
            "manager_rss_bytes",
            "resident memory of the manager",
            Unit::Bytes,
            Better::Lower,
        ),
        Metric::new("promoted", "regions promoted", Unit::Count, Better::Neither),
        Metric::new("demoted", "regions demoted", Unit::Count, Better::Neither),
        Metric::new("stall_ns", "time spent in actions", Unit::Ns, Better::Lower),
        Metric::new(
            "compactions",
            "compactions for the free-block target",
            Unit::Count,
            Better::Neither,
        ),
        Metric::new(
            "made_blocks",
            "blocks freed for the free-block target",
            Unit::Count,
            Better::Higher,
        ),
        Metric::new(
            "compaction_moved_pages",
            "pages migrated for the free-block target",
            Unit::Count,
            Better::Lower,
        ),
        Metric::new(
            "compaction_cpu_ns",
            "processor time of compactions for the free-block target",
            Unit::Ns,
            Better::Lower,
        ),
    ]
}

fn manager_error(doing: &str, why: impl std::fmt::Display) -> ProgramError {
    ProgramError::Start {
        program: "mega manage".to_string(),
        why: format!("{doing}: {why}"),
    }
}

/// One that is not yet needed, beside a program with an agent: it begins when `mega run` would begin it. The thread lives
/// as long as its manager, which ends with who started it.
#[derive(Debug)]
pub struct Later {
    over: Sender<()>,
    thread: JoinHandle<Result<BTreeMap<String, f64>, ProgramError>>,
}

impl Later {
    /// As [`Manager::start`], but waits for nothing; agents have their pages in the folder `agents`.
    #[must_use]
    pub fn start(mega: &Path, options: &[String], pid: i32, folder: &Path, cpu: Option<usize>, agents: &Path) -> Self {
        let (over, is_over) = channel();
        let (mega, options, folder) = (mega.to_owned(), options.to_owned(), folder.to_owned());
        let agents = agents.to_owned();
        let thread = std::thread::spawn(move || {
            let root = ProcRoot::default();
            let mut family = Family::of([pid as u32]);
            let pids = || {
                let _ = family.look(&root);
                family.members().map(|member| member.pid).collect()
            };
            let page = |pid| agent::of(&agents, pid);
            let is_stopped = |most| is_over.recv_timeout(most) != Err(RecvTimeoutError::Timeout);
            if alone::are_stopped(&root, pids, page, is_stopped) {
                return Ok(unneeded());
            }
            match Manager::start(&mega, &options, pid, &folder, cpu) {
                Ok(manager) => {
                    let _ = is_over.recv();
                    manager.finish(&root)
                }
                // It has ended just now.
                Err(_) if !stat::read(&root, pid as u32).is_ok_and(|stat| !stat.is_over()) => Ok(unneeded()),
                Err(error) => Err(error),
            }
        });
        Self { over, thread }
    }

    /// Ends it and returns its cost and actions; nothing of either where it was not needed.
    ///
    /// # Errors
    /// It did not start, or failed.
    pub fn finish(self) -> Result<BTreeMap<String, f64>, ProgramError> {
        let _ = self.over.send(());
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(manager_error("cannot start it", "its thread panicked")))
    }
}

/// What a manager that never began costs and does.
fn unneeded() -> BTreeMap<String, f64> {
    let names = COUNTS.into_iter().chain(["manager_cpu_ns"]);
    names.map(|name| (name.to_string(), 0.0)).collect()
}

/// What its journal is counted for.
const COUNTS: [&str; 7] = [
    "promoted",
    "demoted",
    "stall_ns",
    "compactions",
    "made_blocks",
    "compaction_moved_pages",
    "compaction_cpu_ns",
];

impl Manager {
    /// Starts one for process `pid` with these options, and waits until it manages it. Its journal is in `folder`.
    ///
    /// # Errors
    /// It did not start, with what it said.
    pub fn start(
        mega: &Path,
        options: &[String],
        pid: i32,
        folder: &Path,
        cpu: Option<usize>,
    ) -> Result<Self, ProgramError> {
        let journal = folder.join(format!("journal-{pid}"));
        let mut command = Command::new(mega);
        command
            .args(["manage", "--quiet", "--journal"])
            .arg(&journal)
            .args(options)
            .arg(pid.to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = die_with_parent_after_exec(&mut command)
            .spawn()
            .map_err(|e| manager_error("cannot start it", e))?;
        let mut manager = Self {
            child,
            journal,
            ended: false,
        };
        if let Some(cpu) = cpu {
            pin_process_to_cpu(manager.child.id() as i32, cpu)
                .map_err(|e| manager_error("cannot pin it to its processor", e))?;
        }
        let end = Instant::now() + READY_TIMEOUT;
        // The journal names the process once it is held and was observed.
        while !std::fs::read_to_string(&manager.journal)
            .is_ok_and(|text| text.lines().any(|line| line.contains(" found ")))
        {
            if let Ok(Some(status)) = manager.child.try_wait() {
                manager.ended = true;
                return Err(manager_error(&format!("it ended with {status}"), manager.last_words()));
            }
            if Instant::now() >= end {
                return Err(manager_error("it did not start managing within two minutes", pid));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(manager)
    }

    fn last_words(&mut self) -> String {
        let mut said = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(4096).read_to_string(&mut said);
        }
        said.lines().last().unwrap_or("").to_string()
    }

    /// Ends it and returns its cost and actions.
    ///
    /// # Errors
    /// It failed, or its journal cannot be read.
    pub fn finish(mut self, root: &ProcRoot) -> Result<BTreeMap<String, f64>, ProgramError> {
        let pid = self.child.id();
        let mut values = BTreeMap::new();
        if let Some(ns) = cpu_ns(root, pid) {
            values.insert("manager_cpu_ns".to_string(), ns as f64);
        }
        if let Some(bytes) = status::read(root, pid).ok().and_then(|status| status.memory.rss_bytes) {
            values.insert("manager_rss_bytes".to_string(), bytes as f64);
        }
        let status = self.stop().map_err(|e| manager_error("cannot end it", e))?;
        if !status.success() {
            return Err(manager_error(&format!("it ended with {status}"), self.last_words()));
        }
        let text = std::fs::read_to_string(&self.journal).map_err(|e| manager_error("cannot read its journal", e))?;
        let mut counts = BTreeMap::new();
        let mut count = |name: &str, n: u64| *counts.entry(name.to_string()).or_insert(0) += n;
        COUNTS.into_iter().for_each(|name| count(name, 0));
        for line in text.lines() {
            match Line::parse(line).map_err(|e| manager_error("its journal", e))?.event {
                Event::Outcome {
                    action,
                    outcome,
                    took_ns,
                    stall_ns,
                    ..
                } => {
                    // Without a word of it all of the call was felt.
                    count("stall_ns", stall_ns.unwrap_or(took_ns));
                    match (action, outcome) {
                        (ActionKind::Promote, Outcome::Done) => count("promoted", 1),
                        (ActionKind::Demote, Outcome::Done) => count("demoted", 1),
                        _ => {}
                    }
                }
                Event::Compacted {
                    cpu_ns,
                    before_blocks,
                    after_blocks,
                    moved_pages,
                    ..
                } => {
                    count("compactions", 1);
                    count("made_blocks", after_blocks.saturating_sub(before_blocks));
                    count("compaction_moved_pages", moved_pages);
                    count("compaction_cpu_ns", cpu_ns);
                }
                _ => {}
            }
        }
        values.extend(counts.into_iter().map(|(name, n)| (name, n as f64)));
        Ok(values)
    }

    fn stop(&mut self) -> std::io::Result<std::process::ExitStatus> {
        self.ended = true;
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.stop();
        }
    }
}
