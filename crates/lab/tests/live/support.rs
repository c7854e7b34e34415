//! Programs under test, `mega` beside them, and the truth about their memory.

#![allow(dead_code)] // three test programs share this, and each uses a part of it

#[path = "../commands/mod.rs"]
mod commands;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mega_core::action::{ActionKind, Outcome};
use mega_core::journal::{Event, Line};
use mega_linux::inspect::usage::{self, UsageOptions};
use mega_linux::knobs::Knobs;
use mega_linux::proc::ProcRoot;
use mega_linux::scan::{choose, Preference, RegionScan, ScanRange, Scanner};
use serde_json::Value;

pub use commands::{built, LAB, MEGA};

/// Held by each test for as long as it runs: two that measure memory would measure each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many times slower than a machine of its own this one is: `MEGA_SLOW`, which tests/vm/live sets where a processor is emulated.
pub fn slow() -> u64 {
    std::env::var("MEGA_SLOW").map_or(1, |text| {
        text.parse().unwrap_or_else(|e| panic!("MEGA_SLOW={text}: {e}"))
    })
}

/// Whether a test has what it needs; says why not.
pub fn can_run(mib: u64) -> bool {
    built();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: managing other processes needs root");
        return false;
    }
    let info = mega_linux::proc::meminfo::read(&ProcRoot::default()).unwrap();
    let available_mib = info.available_bytes.unwrap() >> 20;
    if available_mib < mib {
        eprintln!("SKIPPED: needs {mib} MB of available memory, there are {available_mib} MB");
        return false;
    }
    true
}

/// Lines of a child's standard output, with time-outs.
struct Lines(Receiver<String>);

impl Lines {
    fn of(reader: impl Read + Send + 'static) -> Self {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receive)
    }
}

/// A workload of the lab as a child process; ended when dropped.
pub struct Workload {
    child: Child,
    stdin: ChildStdin,
    lines: Lines,
    /// Its own PID, which is not the child's when something runs it.
    pub pid: i32,
}

impl Workload {
    /// Starts it and waits until it says that it is ready.
    pub fn start(args: &[&str]) -> (Self, Value) {
        Self::start_under(&[], args)
    }

    /// The same, with `mega run …` or another command line before it.
    pub fn start_under(prefix: &[&str], args: &[&str]) -> (Self, Value) {
        Self::start_until("ready", Self::command(prefix, args))
    }

    /// The same, but stopped as soon as it is there, so that it lasts until somebody has found it.
    pub fn born_under(prefix: &[&str], args: &[&str]) -> Self {
        let born = Self::start_until("born", Self::command(prefix, args)).0;
        born.signal(rustix::process::Signal::STOP);
        born
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }

    fn command(prefix: &[&str], args: &[&str]) -> Command {
        let mut line: Vec<&str> = prefix.to_vec();
        line.extend([LAB, "workload"]);
        line.extend(args);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        command
    }

    /// The same of any program that says and obeys what a workload does.
    pub fn start_command(command: Command) -> (Self, Value) {
        Self::start_until("ready", command)
    }

    fn start_until(event: &str, mut command: Command) -> (Self, Value) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let mut workload = Self {
            child,
            stdin,
            lines,
            pid: 0,
        };
        let said = workload.wait_event(event, Duration::from_secs(120));
        workload.pid = said["pid"].as_i64().unwrap() as i32;
        (workload, said)
    }

    /// Waits for this event; panics when it does not come.
    pub fn wait_event(&mut self, name: &str, most: Duration) -> Value {
        let deadline = Instant::now() + most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.0.recv_timeout(left) {
                // What a test program prints of its own is not for us.
                Ok(line) if !line.starts_with('{') => {}
                Ok(line) => {
                    let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
                    if event["event"] == name {
                        return event;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no event '{name}' within {most:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the workload ended before its event '{name}'"),
            }
        }
    }

    /// Sends a command.
    pub fn send(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
    }

    /// Has it check all of its memory; panics unless every word is right.
    pub fn check(&mut self) -> Value {
        self.send("check");
        let checked = self.wait_event("checked", Duration::from_secs(120));
        assert_eq!(checked["ok"], true, "{checked}");
        checked
    }

    /// Ends it in order and gives its status.
    pub fn quit(mut self) -> ExitStatus {
        let _ = writeln!(self.stdin, "quit");
        self.child.wait().unwrap()
    }

    /// Waits for its end without a word.
    pub fn wait(mut self, most: Duration) -> ExitStatus {
        let deadline = Instant::now() + most;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the workload did not end within {most:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The child that was started: the workload, or what runs it.
    pub fn child_pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mega manage` or another command of ours that runs until it is told to stop; killed when dropped.
pub struct Manager {
    child: Child,
    journal: PathBuf,
    _folder: tempfile::TempDir,
}

/// What a manager left behind.
pub struct Managed {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its journal.
    pub lines: Vec<Line>,
    /// Its summary.
    pub summary: Value,
}

impl Manager {
    /// `mega manage ARGS` with a journal and a JSON summary.
    pub fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let child = Command::new(MEGA)
            .args(["manage", "--json", "--journal"])
            .arg(&journal)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let manager = Self {
            child,
            journal,
            _folder: folder,
        };
        // Managing has begun once the first scan is in the journal (or it ended, which the caller will see).
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && std::fs::metadata(&manager.journal).map_or(0, |m| m.len()) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        manager
    }

    /// The manager's PID.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its journal so far.
    fn lines_so_far(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.journal).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| Line::parse(line).ok()).collect()
    }

    /// Regions promoted and demoted so far.
    pub fn done_so_far(&self) -> (usize, usize) {
        let lines = self.lines_so_far();
        let done = |kind| lines.iter().filter(|line| is_done(&line.event, kind)).count();
        (done(ActionKind::Promote), done(ActionKind::Demote))
    }

    /// Scans made so far.
    pub fn scans_so_far(&self) -> usize {
        scans(&self.lines_so_far())
    }

    /// Times that it cleared accessed bits so far.
    pub fn agings_so_far(&self) -> usize {
        let lines = self.lines_so_far();
        lines
            .iter()
            .filter(|line| matches!(line.event, Event::Age { .. }))
            .count()
    }

    /// Asks it to stop, waits, and reads what it left.
    pub fn stop(mut self) -> Managed {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.read_out()
    }

    /// Waits for its own end (`--duration`, or nobody left) and reads what it left.
    pub fn finish(mut self) -> Managed {
        self.read_out()
    }

    fn read_out(&mut self) -> Managed {
        let mut out = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        let status = self.child.wait().unwrap();
        Managed {
            status,
            lines: read_journal(&self.journal),
            summary: serde_json::from_str(out.lines().last().unwrap_or("null")).unwrap(),
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_done(event: &Event, kind: ActionKind) -> bool {
    matches!(event, Event::Outcome { action, outcome: Outcome::Done, .. } if *action == kind)
}

fn scans(lines: &[Line]) -> usize {
    lines
        .iter()
        .filter(|line| matches!(line.event, Event::Scanned { .. }))
        .count()
}

/// A journal's lines.
pub fn read_journal(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| Line::parse(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

impl Managed {
    /// Scans that were made.
    pub fn scans(&self) -> usize {
        scans(&self.lines)
    }
}

/// What the page tables of a process show for these regions.
pub fn regions_of(pid: i32, addresses: &[u64]) -> Vec<Option<RegionScan>> {
    let (mut scanner, _): (Box<dyn Scanner>, _) = choose(Preference::Best).unwrap();
    addresses
        .iter()
        .map(|&start| {
            let range = ScanRange {
                start,
                end: start + (2 << 20),
                young: false,
            };
            let mut found = Vec::new();
            scanner.scan(pid, &[range], &mut found).unwrap();
            found.first().copied()
        })
        .collect()
}

/// How many of these regions are huge.
pub fn huge_among(pid: i32, addresses: &[u64]) -> usize {
    regions_of(pid, addresses)
        .iter()
        .flatten()
        .filter(|region| region.is_huge())
        .count()
}

/// The addresses that a workload's event names under `kinds`.
pub fn addresses(event: &Value, kind: &str) -> Vec<u64> {
    event["kinds"][kind]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_u64().unwrap())
        .collect()
}

/// Resident bytes of a process.
pub fn rss_bytes(pid: i32) -> u64 {
    mega_linux::proc::smaps::read_rollup(&ProcRoot::default(), pid as u32)
        .unwrap()
        .rss_bytes
        .unwrap()
}

/// Bytes of a process in anonymous huge pages.
pub fn huge_bytes(pid: i32) -> u64 {
    mega_linux::proc::smaps::read_rollup(&ProcRoot::default(), pid as u32)
        .unwrap()
        .anon_huge_bytes
        .unwrap()
}

/// Zero-filled bytes inside a process's huge pages.
pub fn waste_bytes(pid: i32) -> u64 {
    let (mut scanner, _): (Box<dyn Scanner>, _) = choose(Preference::Best).unwrap();
    let seen = usage::read(
        &ProcRoot::default(),
        scanner.as_mut(),
        pid as u32,
        &UsageOptions::default(),
    )
    .unwrap();
    seen.total.waste_bytes.unwrap()
}

/// Has faults make huge pages in every program of this machine until what it returns is dropped; a test that was killed meanwhile
/// is made good for by the next one.
pub fn huge_pages_everywhere() -> Knobs {
    // Not where managers keep theirs: `mega off` would take the test for one.
    let mut knobs = Knobs::open(ProcRoot::default(), Path::new("/run/mega-tests")).unwrap();
    knobs.recover().unwrap();
    let enabled = ProcRoot::default().thp("enabled");
    knobs.set(&enabled, "always").unwrap();
    knobs
}

/// Waits until something is so; false when it does not become so in time.
pub fn wait_until(most: Duration, mut so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + most;
    loop {
        if so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
