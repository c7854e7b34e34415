//! What looking costs as there is more to look at: the live host over many processes, many mappings, much address space, much memory.
//!
//! Nothing is decided or done: how decisions and bookkeeping grow is tested in the core (`crates/core/tests/scale.rs`).

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mega_core::host::{Host, Wants};
use mega_linux::host::{LinuxHost, Listed, Options};
use mega_linux::proc::ProcRoot;
use mega_linux::scan::{choose, Preference};
use mega_linux::sys;
use serde::Serialize;

use crate::memory::{base_page_bytes, rss_bytes, Mapping, Protection};

/// Looks after the first one; the median counts.
const LOOKS: usize = 5;
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
    /// So many processes that sleep.
    Processes(usize),
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
    /// Median time of a look after that.
    pub look_ns: u64,
    /// Median processor time of it.
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
    all.extend([6_500, 65_000].map(|n| Subject::Mappings(scaled(n).min(65_000))));
    all.extend([GB << 7, GB << 10].map(|n| Subject::SparseBytes(scaled(n).next_multiple_of(GB))));
    all.extend([GB / 2, 4 * GB].map(|n| Subject::ResidentBytes(scaled(n))));
    all
}

/// Processes that sleep, and end with this.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start(count: usize) -> Result<Self, ScaleError> {
        let mut sleepers = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let mut command = Command::new("sleep");
            command.arg("600").stdin(Stdio::null());
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

fn host(pids: &[u32], stop: Option<std::os::fd::OwnedFd>) -> Result<LinuxHost, ScaleError> {
    let (scanner, _) = choose(Preference::Best).map_err(failed("look at page tables"))?;
    let options = Options {
        root: ProcRoot::default(),
        stop,
        duration: None,
        dry_run: true,
        contents: false,
        claims: None,
        actuator: None,
    };
    Ok(LinuxHost::new(scanner, Box::new(Listed(pids.to_vec())), options))
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
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
        Subject::Processes(count) => sleepers = Sleepers::start(count)?,
        Subject::Mappings(count) => memory = Some(cut(count)?),
        Subject::SparseBytes(bytes) => memory = Some(touched(bytes, GB)?),
        Subject::ResidentBytes(bytes) => memory = Some(touched(bytes, base_page_bytes())?),
    }
    let pids = match sleepers.0.is_empty() {
        true => own,
        false => sleepers.0.iter().map(Child::id).collect(),
    };
    let before = rss_bytes();
    let mut live = host(&pids, None)?;
    let began = Instant::now();
    let mut seen = live.observe(&WANTS).processes.len();
    let first = began.elapsed();
    let (mut times, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        let (began, used) = (Instant::now(), sys::process_cpu_time());
        seen = live.observe(&WANTS).processes.len();
        times.push(ns(began.elapsed()));
        cpu.push(ns(sys::process_cpu_time().saturating_sub(used)));
    }
    let memory_bytes = rss_bytes().saturating_sub(before);
    drop(live);
    let stop_ns = ns(time_to_stop(&pids, first)?);
    drop(memory);
    Ok(Cost {
        subject,
        seen,
        first_ns: ns(first),
        look_ns: median(times),
        look_cpu_ns: median(cpu),
        memory_bytes,
        stop_ns,
    })
}

/// How long a first look goes on after it was asked to stop in its middle.
fn time_to_stop(pids: &[u32], first: Duration) -> Result<Duration, ScaleError> {
    let (stop, ask) = rustix::pipe::pipe().map_err(failed("make a pipe"))?;
    let mut live = host(pids, Some(stop))?;
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
