//! `mega` beside programs that are hostile or unlucky, and on a kernel that says no. Each test ends with: nobody panicked, settings are as they
//! were, and the programs' data is right.
//!
//! Needs root; says so and skips otherwise. State folders are a mount of each test's own.

mod fail;
mod groups;
mod inject;
mod programs;
mod state;
mod unlucky;
mod userfault;
mod victim;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mega_core::action::Outcome;
use mega_core::journal::{Event, Line};
use rustix::process::{kill_process, Pid, Signal};

/// The longest that anything takes that comes soon, on a machine that a storm of forks shares with other tests.
const LONG: Duration = Duration::from_secs(240);

/// Options of a manager that promotes all it can, as soon as it can.
const OPTIONS: &[&str] = &[
    "--policy",
    "khugepaged",
    "--set",
    "pages_to_scan=100000000",
    "--set",
    "scan_sleep_s=1",
    "--interval",
    "100ms",
    "--stall-budget",
    "50%",
    "--cpu-budget",
    "100%",
    "--free-blocks",
    "0",
];
/// The longest text of /run/mega: its file system is so large.
const STATE_MOUNT: &str = "mode=755,size=4m";

/// Puts settings back when dropped, also when the test fails: the state by which that is done goes with the test's mount.
struct Ready {
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_mega")).arg("off").output();
    }
}

/// Whether a test has what it needs; no other one runs while what this returns is held. The calling thread, and what it starts, has a
/// /run/mega of its own.
fn ready() -> Option<Ready> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: managing needs root");
        return None;
    }
    fs::create_dir_all("/run/mega").unwrap();
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (none, all, state, kind, data) = (
        text("none"),
        text("/"),
        text("/run/mega"),
        text("tmpfs"),
        text(STATE_MOUNT),
    );
    // SAFETY: strings that live through the calls; the namespace is this thread's and its children's only.
    let private = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none.as_ptr(),
                all.as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(none.as_ptr(), state.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast()) == 0
    };
    if !private {
        eprintln!("SKIPPED: no mount namespace can be made here");
        return None;
    }
    Some(Ready { _alone: alone })
}

/// Looks until it is so, for [`LONG`] at most.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All settings that managers here may change.
fn settings() -> BTreeMap<PathBuf, String> {
    let mut folders = vec![PathBuf::from("/sys/kernel/mm/transparent_hugepage")];
    let mut all = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true if entry.file_name() == "stats" => {}
                true => folders.push(entry.path()),
                // Counters can only be read.
                false if entry.metadata().unwrap().permissions().mode() & 0o200 == 0 => {}
                false => drop(all.insert(entry.path(), fs::read_to_string(entry.path()).unwrap_or_default())),
            }
        }
    }
    all
}

/// Whether the kernel has `--fault-size`: then managers change settings.
fn fault_size() -> &'static [&'static str] {
    match Path::new("/sys/kernel/mm/transparent_hugepage/hugepages-64kB").exists() {
        true => &["--fault-size", "64K"],
        false => &[],
    }
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// A `mega manage` under way; killed when dropped.
struct Manager {
    child: Child,
    folder: tempfile::TempDir,
}

/// How one ended.
struct Ended {
    code: Option<i32>,
    stderr: String,
}

impl Manager {
    /// The command, not started yet.
    fn command(folder: &Path, args: &[&str]) -> Command {
        Self::command_with(folder, OPTIONS, args)
    }

    /// The same with other options.
    fn command_with(folder: &Path, options: &[&str], args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
        command.arg("manage").args(options).args(fault_size()).args(args);
        command.arg("--journal").arg(folder.join("journal"));
        let file = |name: &str| File::create(folder.join(name)).unwrap();
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        command
    }

    /// One over these processes.
    fn start(pids: &[u32]) -> Self {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        Self::start_with(&pids.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn start_with(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Self::command(folder.path(), args).spawn().unwrap();
        Self { child, folder }
    }

    /// One that has been started by [`Manager::command`].
    fn of(child: Child, folder: tempfile::TempDir) -> Self {
        Self { child, folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("err")).unwrap()).into_owned()
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.folder.path().join("journal")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| Line::parse(line).ok()).collect()
    }

    fn scans(&self) -> usize {
        let is_scan = |line: &&Line| matches!(line.event, Event::Scanned { .. });
        self.lines().iter().filter(is_scan).count()
    }

    /// Actions done on a process.
    fn done(&self, process: u32) -> usize {
        let is_done =
            |line: &&Line| matches!(line.event, Event::Outcome { pid, outcome: Outcome::Done, .. } if pid == process);
        self.lines().iter().filter(is_done).count()
    }

    #[track_caller]
    fn wait_done(&self, pid: u32) {
        let (had, began) = (self.done(pid), Instant::now());
        while self.done(pid) <= had {
            assert!(
                began.elapsed() < LONG,
                "not within {LONG:?}: something is done on {pid}; {} scans; {}",
                self.scans(),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn wait_scans(&self, more: usize) {
        let had = self.scans();
        until("it scans", || self.scans() >= had + more);
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to stop and waits; says how long that took.
    #[track_caller]
    fn stop(mut self) -> (Ended, Duration) {
        let began = Instant::now();
        signal(self.pid(), Signal::TERM);
        until("it stops", || !self.is_running());
        (self.ended(), began.elapsed())
    }

    fn ended(&mut self) -> Ended {
        let status = self.child.wait().unwrap();
        Ended {
            code: status.code(),
            stderr: self.stderr(),
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mega off`, which must say that all is well.
#[track_caller]
fn off() {
    let off = Command::new(env!("CARGO_BIN_EXE_mega")).arg("off").output().unwrap();
    assert!(off.status.success(), "{}", String::from_utf8_lossy(&off.stderr));
}

/// No line of a kind is said twice of a process, and nobody panicked.
#[track_caller]
fn is_calm(stderr: &str, context: &str) {
    assert!(!stderr.contains("panicked"), "{context}: {stderr}");
    let mut said = BTreeMap::new();
    for line in stderr.lines() {
        *said.entry(line).or_insert(0) += 1;
    }
    let often: Vec<_> = said.iter().filter(|(_, times)| **times > 1).collect();
    assert!(often.is_empty(), "{context}: said more than once: {often:?}");
    assert!(said.len() < 40, "{context}: a flood: {stderr}");
}
