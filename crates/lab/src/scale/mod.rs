//! What looking costs as there is more to look at: the live host over many processes, many mappings, much address space, much memory.
//!
//! Nothing is decided or done there: the whole loop is measured on a simulated machine ([`whole`]), and how bookkeeping grows is tested in the
//! core (`crates/core/tests/scale.rs`).

pub mod whole;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mega_core::host::{Host, Wants};
use mega_linux::host::{LinuxHost, Listed, Options, Roster};
use mega_linux::proc::ProcRoot;
use mega_linux::process::family::Family;
use mega_linux::process::tasks::TaskTable;
use mega_linux::scan::{choose, Preference};
use mega_linux::sys;
use serde::Serialize;

use crate::memory::{base_page_bytes, rss_bytes, Mapping, Protection};

/// Looks after the first one.
const LOOKS: usize = 5;
/// Looks before those that count, so that processes which sleep are known to, and time between those that count, in which others run.
const SETTLING: usize = 64;
const PAUSE: Duration = Duration::from_millis(600);
/// Of so many processes one runs.
const ONE_RUNS_IN: usize = 100;
/// Time that short-lived children are started for, and between two looks at them.
const CHURN: Duration = Duration::from_secs(16);
const CHURN_PAUSE: Duration = Duration::from_secs(5);
const GB: usize = 1 << 30;
/// What is managed: everything that a policy can ask for but contents.
const WANTS: Wants = Wants {
    utilization: true,
    contents: false,
    contents_cpu: Duration::ZERO,
};

/// What there is to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// So many processes that sleep, of which a hundredth (50 of 5,000) have 8 MB and run all the while.
    Processes(usize),
    /// The same with each looked at each time, and found in /proc.
    ProcessesByProc(usize),
    /// So many short-lived children in a minute, below one process.
    ChildrenAMinute(usize),
    /// So many mappings in one process.
    Mappings(usize),
    /// Address space, with one page touched in each GB.
    SparseBytes(usize),
    /// Memory on base pages.
    ResidentBytes(usize),
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {why}")]
pub struct ScaleError {
    doing: &'static str,
    why: String,
}

fn failed<E: ToString>(doing: &'static str) -> impl Fn(E) -> ScaleError {
    move |error| ScaleError {
        doing,
        why: error.to_string(),
    }
}

/// What looks at a subject cost.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// What was looked at.
    pub subject: Subject,
    /// Processes that were seen.
    pub seen: usize,
    /// Time of the first look, which opens each process.
    pub first_ns: u64,
    /// Mean time of a look after that.
    pub look_ns: u64,
    /// The longest of them.
    pub worst_ns: u64,
    /// Mean processor time of one.
    pub look_cpu_ns: u64,
    /// Resident memory that it took here; none where it is smaller than what the subject itself takes.
    pub memory_bytes: u64,
    /// From a request to stop, made in the middle of a first look, to its end.
    pub stop_ns: u64,
}

/// The subjects at a scale; 1 is 5,000 processes, 65,000 mappings, 1 TB of address space and 4 GB of memory.
pub fn subjects(scale: f64) -> Vec<Subject> {
    let scaled = |n: usize| ((n as f64 * scale) as usize).max(1);
    let mut all: Vec<Subject> = [100, 1000, 5000].map(|n| Subject::Processes(scaled(n))).to_vec();
    all.extend([100, 1000, 5000].map(|n| Subject::ProcessesByProc(scaled(n))));
    all.push(Subject::ChildrenAMinute(scaled(20_000)));
    all.extend([6_500, 65_000].map(|n| Subject::Mappings(scaled(n).min(65_000))));
    all.extend([GB << 7, GB << 10].map(|n| Subject::SparseBytes(scaled(n).next_multiple_of(GB))));
    all.extend([GB / 2, 4 * GB].map(|n| Subject::ResidentBytes(scaled(n))));
    all
}

/// Processes that sleep, and end with this.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start(count: usize) -> Result<Self, ScaleError> {
        // Some 8 MB, and a little work twice a second.
        const RUNS: &str = "BEGIN { for (i = 0; i < 100000; i++) a[i] = i; while (1) { for (i = 0; i < 1000; i++) s += a[i]; system(\"sleep 0.5\") } }";
        let mut sleepers = Self(Vec::with_capacity(count));
        for n in 0..count {
            let mut command = match n % ONE_RUNS_IN {
                0 => Command::new("awk"),
                _ => Command::new("sleep"),
            };
            let argument = if n % ONE_RUNS_IN == 0 { RUNS } else { "600" };
            command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null());
            sleepers.0.push(command.spawn().map_err(failed("start a process"))?);
        }
        Ok(sleepers)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn host(roster: Box<dyn Roster>, stop: Option<std::os::fd::OwnedFd>, table: bool) -> Result<LinuxHost, ScaleError> {
    let (scanner, _) = choose(Preference::Best).map_err(failed("look at page tables"))?;
    let options = Options {
        root: ProcRoot::default(),
        stop,
        duration: None,
        dry_run: true,
        contents: false,
        claims: None,
        actuator: None,
        table,
    };
    Ok(LinuxHost::new(scanner, roster, options))
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / (times.len() as u64).max(1)
}

/// What is below this process, as `mega run` has it.
struct Below(Family);

impl Roster for Below {
    fn pids(&mut self, root: &ProcRoot) -> Result<Vec<u32>, String> {
        self.0.look(root).map_err(|error| error.to_string())?;
        Ok(self.0.members().map(|member| member.pid).collect())
    }

    fn pids_in(&mut self, root: &ProcRoot, table: &TaskTable) -> Result<Vec<u32>, String> {
        self.0.look_in(root, table).map_err(|error| error.to_string())?;
        Ok(self.0.members().map(|member| member.pid).collect())
    }

    fn closed(&self) -> bool {
        false
    }
}

/// Starts children that end at once, so many in a minute, until it is dropped.
struct Churn(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Churn {
    fn start(a_minute: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, began) = (Arc::clone(&ended), Instant::now());
        let thread = std::thread::spawn(move || {
            let mut started = 0;
            while !stop.load(Relaxed) && began.elapsed() < CHURN * 4 {
                let due = began.elapsed().as_secs_f64() / 60.0 * a_minute as f64;
                if f64::from(started) >= due {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                started += 1;
                if let Ok(mut child) = Command::new("true").stdin(Stdio::null()).spawn() {
                    let _ = child.wait();
                }
            }
        });
        Self(ended, Some(thread))
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

/// One page touched every `step` bytes, on base pages.
fn touched(bytes: usize, step: usize) -> Result<Mapping, ScaleError> {
    let mut memory = Mapping::new(bytes).map_err(failed("map memory"))?;
    // Refused without transparent huge pages, and then there is nothing to avoid.
    let _ = memory.advise(0..bytes, libc::MADV_NOHUGEPAGE);
    for at in (0..bytes).step_by(step) {
        memory.page_words(at / base_page_bytes())[0].store(1, Relaxed);
    }
    Ok(memory)
}

/// A mapping cut into so many by its pages' protections.
fn cut(mappings: usize) -> Result<Mapping, ScaleError> {
    let page = base_page_bytes();
    let mut memory = Mapping::new((mappings + 1) * page).map_err(failed("map memory"))?;
    for n in (1..mappings).step_by(2) {
        let part = n * page..(n + 1) * page;
        memory
            .protect(part, Protection::Read)
            .map_err(failed("cut a mapping"))?;
    }
    Ok(memory)
}

/// Measures one subject. Needs what managing needs.
///
/// # Errors
/// It cannot be set up, or page tables cannot be looked at.
pub fn measure(subject: Subject) -> Result<Cost, ScaleError> {
    // Each process takes a descriptor.
    let _ = sys::set_open_files_limit(None);
    let own = vec![std::process::id()];
    let (mut sleepers, mut memory) = (Sleepers(Vec::new()), None);
    match subject {
        Subject::Processes(count) | Subject::ProcessesByProc(count) => sleepers = Sleepers::start(count)?,
        Subject::ChildrenAMinute(_) => {}
        Subject::Mappings(count) => memory = Some(cut(count)?),
        Subject::SparseBytes(bytes) => memory = Some(touched(bytes, GB)?),
        Subject::ResidentBytes(bytes) => memory = Some(touched(bytes, base_page_bytes())?),
    }
    let pids = match sleepers.0.is_empty() {
        true => own,
        false => sleepers.0.iter().map(Child::id).collect(),
    };
    let table = !matches!(subject, Subject::ProcessesByProc(_));
    let churn = match subject {
        Subject::ChildrenAMinute(count) => Some(Churn::start(count)),
        _ => None,
    };
    let roster = || -> Box<dyn Roster> {
        match churn {
            Some(_) => Box::new(Below(Family::below(std::process::id()))),
            None => Box::new(Listed(pids.clone())),
        }
    };
    let before = rss_bytes();
    let mut live = host(roster(), None, table)?;
    let began = Instant::now();
    let mut seen = live.observe(&WANTS).processes.len();
    let first = began.elapsed();
    let (settling, looks, pause) = match subject {
        Subject::Processes(count) if count >= 1000 => (SETTLING, 4 * LOOKS, PAUSE),
        Subject::Processes(_) => (SETTLING, LOOKS, PAUSE),
        Subject::ProcessesByProc(_) => (1, LOOKS, PAUSE),
        Subject::ChildrenAMinute(_) => (0, 3, CHURN_PAUSE),
        _ => (0, LOOKS, Duration::ZERO),
    };
    // Starting children is another thread's work, and calls that wait for an address space are, too.
    let cpu_time = match subject {
        Subject::ChildrenAMinute(_) => sys::thread_cpu_time,
        _ => sys::process_cpu_time,
    };
    for _ in 0..settling {
        live.observe(&WANTS);
    }
    let (mut times, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..looks {
        std::thread::sleep(pause);
        let (began, used) = (Instant::now(), cpu_time());
        seen = live.observe(&WANTS).processes.len();
        times.push(ns(began.elapsed()));
        cpu.push(ns(cpu_time().saturating_sub(used)));
    }
    let memory_bytes = rss_bytes().saturating_sub(before);
    drop(live);
    let stop_ns = ns(time_to_stop(roster(), first, table)?);
    drop(churn);
    drop(memory);
    Ok(Cost {
        subject,
        seen,
        first_ns: ns(first),
        look_ns: mean(&times),
        worst_ns: times.iter().copied().max().unwrap_or(0),
        look_cpu_ns: mean(&cpu),
        memory_bytes,
        stop_ns,
    })
}

/// How long a first look goes on after it was asked to stop in its middle.
fn time_to_stop(roster: Box<dyn Roster>, first: Duration, table: bool) -> Result<Duration, ScaleError> {
    let (stop, ask) = rustix::pipe::pipe().map_err(failed("make a pipe"))?;
    let mut live = host(roster, Some(stop), table)?;
    let asker = std::thread::spawn(move || {
        std::thread::sleep(first / 2);
        let asked = Instant::now();
        let _ = rustix::io::write(&ask, b".");
        (asked, ask)
    });
    live.observe(&WANTS);
    let ended = Instant::now();
    let (asked, _ask) = asker.join().map_err(|_| failed("ask to stop")("a thread failed"))?;
    Ok(ended.saturating_duration_since(asked))
}
