//! `mega` called in every way, what it says, and what it leaves behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use mega_core::journal::{Event, Line};
use rustix::process::{Pid, Signal};

use crate::support::{alone, can_run, read_journal, slow, wait_until, MEGA};

/// Where managers keep what they changed and whom they manage.
pub const STATE: &str = "/run/mega";

/// The longest that anything takes that comes soon: an emulated processor (tests/vm/live) is a fiftieth of a real one.
pub const LONG: Duration = Duration::from_secs(90);

/// Ends a process without warning; it may have ended by itself.
pub fn kill_9(pid: i32) {
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

/// Options of a manager that does as much as it can, as soon as it can.
pub const FAST: &[&str] = &[
    "--interval",
    "100ms",
    "--stall-budget",
    "50%",
    "--cpu-budget",
    "100%",
    "--free-blocks",
    "0",
];

/// Whether a test has what it needs; no other one runs while what this returns is held.
///
/// The test, and what it starts, gets a state folder of its own: its `mega off` must not end the managers of whoever runs the tests.
pub fn ready(mib: u64) -> Option<MutexGuard<'static, ()>> {
    let alone = alone();
    if !can_run(mib) {
        return None;
    }
    fs::create_dir_all(STATE).unwrap();
    // SAFETY: strings that end with a zero byte, and no other memory; the namespace is this thread's and its children's only.
    let private = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/run/mega".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"mode=755".as_ptr().cast(),
            ) == 0
    };
    if !private {
        eprintln!(
            "SKIPPED: no mount namespace can be made here: {}",
            std::io::Error::last_os_error()
        );
        return None;
    }
    Some(alone)
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    /// Its exit status, or 128 and its signal.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// What it said, but for the remark that this machine is too slow for the interval asked for.
    pub fn complaints(&self) -> String {
        let lines = self.stderr.split_inclusive('\n');
        lines
            .filter(|line| !line.contains("to stay within the budget"))
            // Where a second of patience is a fiftieth of one.
            .filter(|line| slow() == 1 || !line.contains("left alone until it returns"))
            .collect()
    }
}

/// A program under way, with its output in files so that it never waits for a reader. Killed when dropped.
pub struct Program {
    child: Child,
    folder: tempfile::TempDir,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| File::create(folder.path().join(name)).unwrap();
        // Whoever runs the tests in the background may ignore these, and what is ignored stays so.
        // SAFETY: signal is async-signal-safe, and nothing else runs between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            })
        };
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Self { child, folder }
    }

    /// `mega ARGS`
    pub fn mega(args: &[&str]) -> Self {
        Self::start(Command::new(MEGA).args(args).stdin(Stdio::null()))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("out")).unwrap()).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("err")).unwrap()).into_owned()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end, this long at most.
    pub fn wait(mut self, most: Duration) -> Ended {
        let ended = wait_until(most, || !self.is_running());
        assert!(
            ended,
            "no end within {most:?}; stderr: {}\n{}",
            self.stderr(),
            where_it_waits(self.pid())
        );
        Ended {
            status: self.child.wait().unwrap(),
            stdout: fs::read(self.folder.path().join("out")).unwrap(),
            stderr: self.stderr(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process and its children were asked to do, and where in the kernel their threads are: for whoever reads why a test hung.
fn where_it_waits(pid: u32) -> String {
    let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\0', " ");
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let mut text = format!("{pid}: {}\n", read(folder.join("cmdline")));
    for task in fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
        let (stack, state) = (read(task.path().join("stack")), read(task.path().join("stat")));
        text += &format!("{}\n{stack}", state.chars().take(60).collect::<String>());
        for child in read(task.path().join("children")).split_whitespace() {
            text += &child.parse().map(where_it_waits).unwrap_or_default();
        }
    }
    text
}

/// `mega ARGS` to its end.
pub fn mega(args: &[&str]) -> Ended {
    Program::mega(args).wait(LONG)
}

/// A program's figures while it lives.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub descriptors: usize,
    pub rss_kib: u64,
}

pub fn sample(pid: u32) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(Sample {
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
        rss_kib: rss.trim().trim_end_matches(" kB").parse().ok()?,
    })
}

/// A manager (`mega manage` or `mega run`) with a journal.
pub struct Manager {
    pub program: Program,
    journal: PathBuf,
    _folder: tempfile::TempDir,
}

/// What a manager left behind.
pub struct Managed {
    pub ended: Ended,
    pub lines: Vec<Line>,
}

impl Manager {
    /// `mega SUBCOMMAND --journal … ARGS`
    pub fn start(subcommand: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let path = journal.to_str().unwrap();
        let line: Vec<&str> = [subcommand, "--journal", path]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        Self {
            program: Program::mega(&line),
            journal,
            _folder: folder,
        }
    }

    /// Its journal so far.
    pub fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(&self.journal).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| Line::parse(line).unwrap_or_else(|e| panic!("{line}: {e}")))
            .collect()
    }

    /// Waits until it manages this process; panics when it does not come to that.
    pub fn wait_found(&mut self, pid: u32) {
        let found = wait_until(LONG, || found(&self.lines()).contains_key(&pid));
        assert!(found, "process {pid} is not managed; stderr: {}", self.program.stderr());
    }

    /// Waits for its end and reads what it left.
    pub fn wait(self, most: Duration) -> Managed {
        let ended = self.program.wait(most);
        Managed {
            ended,
            lines: read_journal(&self.journal),
        }
    }

    /// Asks it to stop, and waits.
    pub fn stop(self) -> Managed {
        self.program.signal(Signal::TERM);
        self.wait(LONG)
    }
}

/// Who was found to be managed, with their names, and how often.
pub fn found(lines: &[Line]) -> BTreeMap<u32, Vec<String>> {
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for line in lines {
        if let Event::Found { pid, name, .. } = &line.event {
            found.entry(*pid).or_default().push(name.clone());
        }
    }
    found
}

/// How often each outcome came of each kind of action.
pub fn outcomes(lines: &[Line]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines {
        if let Event::Outcome { action, outcome, .. } = &line.event {
            *counts.entry(format!("{action:?} {outcome}")).or_default() += 1;
        }
    }
    counts
}

/// Whether a pattern of promoted or demoted actions of this process occurs.
pub fn done_on(lines: &[Line], process: u32) -> usize {
    let done = |event: &Event| matches!(event, Event::Outcome { pid, outcome: mega_core::action::Outcome::Done, .. } if *pid == process);
    lines.iter().filter(|line| done(&line.event)).count()
}

/// Every THP setting of this machine.
pub fn settings() -> BTreeMap<PathBuf, String> {
    fn walk(folder: &Path, all: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, what) = (entry.path(), entry.metadata().unwrap());
            if what.is_dir() && entry.file_name() != "stats" {
                walk(&path, all);
            } else if what.is_file() && what.permissions().mode() & 0o200 != 0 {
                let text = fs::read_to_string(&path).unwrap_or_default();
                all.insert(path, text);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(Path::new("/sys/kernel/mm/transparent_hugepage"), &mut all);
    // Only where the kernel has it (Linux 5.14).
    let share = PathBuf::from("/proc/sys/vm/percpu_pagelist_high_fraction");
    if let Ok(text) = fs::read_to_string(&share) {
        all.insert(share, text);
    }
    // Only where a machine can report free pages to a host.
    let reporting = Path::new("/sys/module/page_reporting/parameters");
    if reporting.exists() {
        walk(reporting, &mut all);
    }
    all
}

/// Whether the kernel has settings of what a fault maps, `--fault-size`: Linux 6.8 and later.
pub fn has_fault_sizes() -> bool {
    let has = Path::new("/sys/kernel/mm/transparent_hugepage/hugepages-64kB").exists();
    static SAID: std::sync::Once = std::sync::Once::new();
    if !has {
        SAID.call_once(|| {
            eprintln!(
                "EXPECTED: no setting is changed: hugepages-64kB, for --fault-size, is not there before Linux 6.8"
            )
        });
    }
    has
}

/// State files that managers have now, but for the lock.
pub fn state_files() -> Vec<PathBuf> {
    let folders = ["knobs", "claims"].map(|kind| Path::new(STATE).join(kind));
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Numbers that look random and are the same for the same seed.
pub struct Numbers(pub u64);

impl Numbers {
    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A number from the environment.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}"))
    })
}

/// Says a test's figures and how long it took.
pub struct Figures(&'static str, Instant);

impl Figures {
    pub fn of(test: &'static str) -> Self {
        Self(test, Instant::now())
    }

    pub fn say(&self, text: impl std::fmt::Display) {
        eprintln!("{} ({:.1} s): {text}", self.0, self.1.elapsed().as_secs_f64());
    }
}
