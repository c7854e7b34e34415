//! The loops of a configuration: one thread for each set of rules with the same policy and limits, so that each process is decided
//! upon by one policy with its own state.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{anyhow, Context, Result};
use mega_core::units::Share;
use mega_linux::host::Roster;
use mega_linux::proc::ProcRoot;
use mega_linux::process::tasks::TaskTable;
use rustix::pipe::{pipe_with, PipeFlags};

use super::config::{Config, Loop};
use super::figures::Book;
use super::matching::Matching;
use super::notify::Notify;
use super::read::Rule;
use super::watcher::{Tell, Watcher};
use crate::args::{MadeBy, ManageOptions, ScannerChoice};
use crate::manage::{prepare, Ready};

/// Counts scans, and tells the watchdog when every loop has made one since it was told last.
struct Beat {
    scans: Vec<AtomicU64>,
    told: Mutex<Vec<u64>>,
    notify: Arc<Notify>,
}

impl Beat {
    fn scanned(&self, number: usize) {
        if let Some(scans) = self.scans.get(number) {
            scans.fetch_add(1, Ordering::Relaxed);
        }
        let now: Vec<u64> = self.counts();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if now.iter().zip(told.iter()).all(|(now, told)| now > told) {
            self.notify.ping();
            *told = now;
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.scans.iter().map(|scans| scans.load(Ordering::Relaxed)).collect()
    }
}

/// The loops that run.
pub struct Loops {
    /// Which rule each process is under.
    pub matching: Arc<Matching>,
    /// What they have seen and done.
    pub book: Book,
    needs: Vec<Loop>,
    members: Vec<Vec<usize>>,
    threads: Vec<JoinHandle<()>>,
    stop: OwnedFd,
    beat: Arc<Beat>,
}

impl Loops {
    /// Starts all, or none.
    ///
    /// # Errors
    /// One of them cannot manage.
    pub fn start(config: &Config, notify: &Arc<Notify>, tell: &Tell) -> Result<Self> {
        let (read, stop) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let (needs, members): (Vec<_>, Vec<_>) = config.loops().into_iter().unzip();
        let beat = Beat {
            scans: needs.iter().map(|_| AtomicU64::new(0)).collect(),
            told: Mutex::new(vec![0; needs.len()]),
            notify: Arc::clone(notify),
        };
        let matching = Arc::new(Matching::new(config.rules.clone(), config.interval() / 2));
        let mut loops = Self {
            matching,
            book: Book::default(),
            needs,
            members,
            threads: Vec::new(),
            stop,
            beat: Arc::new(beat),
        };
        let (ready, prepared) = channel();
        for (number, needs) in loops.needs.iter().enumerate() {
            let rules = loops.members.get(number).cloned().unwrap_or_default();
            let roster = Ruled {
                rules,
                number,
                matching: Arc::clone(&loops.matching),
                book: loops.book.clone(),
                beat: Arc::clone(&loops.beat),
            };
            let watcher = Watcher::new(number, needs, &loops.book, tell);
            let (options, ready) = (options(config, needs), ready.clone());
            let stop = read.try_clone().context("cannot watch for the end")?;
            let thread = std::thread::Builder::new().name(format!("mega-{}", needs.policy));
            let thread = thread
                .spawn(move || manage(options, roster, stop, &ready, watcher))
                .context("cannot start a thread");
            match thread {
                Ok(thread) => loops.threads.push(thread),
                Err(error) => return loops.stop().and(Err(error)),
            }
            // One after the other: each puts back first what a killed manager left.
            match prepared
                .recv()
                .unwrap_or_else(|_| Err(anyhow!("a loop ended before it began")))
            {
                Ok(()) => {}
                Err(error) => return loops.stop().and(Err(error)),
            }
        }
        Ok(loops)
    }

    /// No loop.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn none() -> Result<Self> {
        Self::start(&Config::none(), &Arc::new(Notify::nowhere()), &Tell::default())
    }

    /// Whether one has ended by itself.
    pub fn any_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Policy, numbers of the rules and scans so far of each.
    pub fn each(&self) -> impl Iterator<Item = (&Loop, &[usize], u64)> {
        let scans = self.beat.counts();
        self.needs
            .iter()
            .zip(&self.members)
            .zip(scans)
            .map(|((needs, rules), scans)| (needs, rules.as_slice(), scans))
    }

    /// Ends all; every process is left to others then.
    ///
    /// # Errors
    /// One has ended by a panic.
    pub fn stop(self) -> Result<()> {
        // Nobody reads the byte, so that it is there for all.
        let _ = rustix::io::write(&self.stop, &[1]);
        let mut ended = Ok(());
        for thread in self.threads {
            ended = ended.and(thread.join().map_err(|_| anyhow!("a loop has panicked")));
        }
        ended
    }
}

fn manage(options: ManageOptions, roster: Ruled, stop: OwnedFd, ready: &Sender<Result<()>>, watcher: Watcher) {
    match prepare(options).and_then(Ready::with_scanner) {
        Err(error) => drop(ready.send(Err(error))),
        Ok(mut prepared) => {
            prepared.output.also(Box::new(watcher));
            let _ = ready.send(Ok(()));
            // Compaction alone is left to open, and what it wants was checked.
            let _ = prepared.manage(Box::new(roster), stop);
        }
    }
}

fn options(config: &Config, needs: &Loop) -> ManageOptions {
    ManageOptions {
        policy: needs.policy.clone(),
        set: needs.set.clone(),
        interval: config.interval(),
        stall_budget: needs.stall.map(Share::millionths),
        // Each counts the time of the whole process, and so keeps all together below it.
        cpu_budget: config.share("cpu-budget"),
        free_memory: config.share("free-memory"),
        free_blocks: config.free_blocks(),
        pressure: config.share("pressure"),
        compact: "off".to_owned(),
        compact_how: MadeBy::Auto,
        duration: None,
        fault_size: None,
        journal: None,
        journal_full: false,
        json: false,
        dry_run: config.dry_run(),
        no_contents: false,
        scanner: ScannerChoice::Auto,
        quiet: false,
        verbose: false,
    }
}

/// The processes of some rules.
struct Ruled {
    rules: Vec<usize>,
    number: usize,
    matching: Arc<Matching>,
    book: Book,
    beat: Arc<Beat>,
}

impl Roster for Ruled {
    fn pids(&mut self, _root: &ProcRoot) -> Result<Vec<u32>, String> {
        self.find(None)
    }

    fn pids_in(&mut self, _root: &ProcRoot, table: &TaskTable) -> Result<Vec<u32>, String> {
        self.find(Some(table))
    }

    fn closed(&self) -> bool {
        false
    }
}

impl Ruled {
    fn find(&mut self, table: Option<&TaskTable>) -> Result<Vec<u32>, String> {
        self.beat.scanned(self.number);
        let found = self.matching.look(table)?;
        let (mut pids, mut places) = (Vec::new(), Vec::new());
        for (pid, at) in found {
            if at.is_small || !self.rules.contains(&at.rule) {
                continue;
            }
            pids.push(pid);
            let rule = self.matching.rules().get(at.rule).map(Rule::name);
            places.extend(rule.map(|rule| (pid, Arc::new(at.place(&rule)))));
        }
        self.book.place(self.number, &places);
        Ok(pids)
    }
}
