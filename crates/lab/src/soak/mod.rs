//! Hours of everything at once: a daemon, a Redis under load with an agent in it, and storms beside it. What grows, what gets slower, what
//! is left behind?
//!
//! `mega off` is timed at the start, on daemons of some seconds, and at the end, on the one that ran all the time.

mod daemon;
mod load;
mod storms;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mega_linux::proc::{smaps, ProcRoot};
use serde::{Deserialize, Serialize};

use crate::program::redis::{RedisError, Server, ServerOptions};
use crate::program::Own;
use crate::report::scale::{duration_text, value_text};
use crate::result::{Machine, Settings, Unit};
use crate::stats::median;
use crate::variant::agent::{library, Agent};

use daemon::Daemon;
use load::Load;
use storms::Storms;

/// Daemons that are stopped at the start, and how long each runs before.
const SHORT_DAEMONS: usize = 3;
const SHORT: Duration = Duration::from_secs(15);
/// Of the whole time, the first and the last part that are compared.
const PART: u32 = 12;
/// The most samples that are kept.
const SAMPLES: u32 = 120;
/// Growth that is no leak: a share, and so much in any case.
const MORE: f64 = 1.1;
const MORE_BYTES: u64 = 2 << 20;

/// Why it could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// Something of the system.
    #[error("cannot {doing}: {why}")]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// The reason.
        why: String,
    },
    /// The server.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

fn failed<E: ToString>(doing: &'static str) -> impl Fn(E) -> SoakError {
    move |error| SoakError::Failed {
        doing,
        why: error.to_string(),
    }
}

/// What to run, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program `mega`, near which the agent is.
    pub mega: PathBuf,
    /// The program `mega-lab`, for the storms.
    pub lab: PathBuf,
    /// Time under load.
    pub time: Duration,
    /// Keys of the Redis, of 0.5 to 4 KB each.
    pub keys: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// One look at everything, and what was counted since the one before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Since the daemon was started.
    pub seconds: f64,
    /// Of the daemon: resident memory.
    pub daemon_bytes: u64,
    /// Its open descriptors.
    pub daemon_descriptors: u64,
    /// Its threads.
    pub daemon_threads: u64,
    /// Its processor time, as a share of one.
    pub daemon_cpu: f64,
    /// Its scans.
    pub scans: u64,
    /// Mean time of a scan; 0 without scans.
    pub scan_ns: f64,
    /// Processes it manages.
    pub processes: u64,
    /// Promotions.
    pub promotions: u64,
    /// Of the Redis: resident memory.
    pub redis_bytes: u64,
    /// Of it, in huge pages.
    pub redis_huge_bytes: u64,
    /// Its open descriptors.
    pub redis_descriptors: u64,
    /// Requests answered.
    pub requests: u64,
    /// Latency of a request, from when it was due: median.
    pub p50_ns: u64,
    /// The same: 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub worst_ns: u64,
    /// Storms that ended by themselves.
    pub storms: u64,
    /// Storms killed in their middle.
    pub killed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Soak {
    /// 1.
    pub schema: u32,
    /// "soak".
    pub kind: String,
    /// Where it ran.
    pub machine: Machine,
    /// How.
    pub settings: Settings,
    /// Looks, in order.
    pub samples: Vec<Sample>,
    /// Times of `mega off` at the start.
    pub off_at_start_ns: Vec<u64>,
    /// And of the one at the end.
    pub off_at_end_ns: u64,
    /// Settings of the machine that differ from before: name, before, after.
    pub changed_settings: Vec<(String, String, String)>,
    /// Why data were wrong, if they were.
    pub wrong: Option<String>,
}

/// Medians of the first and the last part of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// First part.
    pub start: f64,
    /// Last part.
    pub end: f64,
}

impl Soak {
    /// A figure at the start and at the end: the first sample does not count, in which programs start.
    #[must_use]
    pub fn compared(&self, figure: impl Fn(&Sample) -> f64) -> Option<Compared> {
        let all = self.samples.get(1..)?;
        let part = (all.len() / PART as usize).max(1);
        let of = |samples: &[Sample]| median(&samples.iter().map(&figure).collect::<Vec<_>>());
        Some(Compared {
            start: of(all.get(..part)?)?,
            end: of(all.get(all.len().checked_sub(part)?..)?)?,
        })
    }

    /// What is not as it was: one line each. Empty: nothing grew, nothing was left, all data were right.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.wrong.clone());
        let changed = self.changed_settings.iter();
        all.extend(changed.map(|(name, before, after)| format!("{name} was '{before}' and is '{after}'")));
        let mut grown = |what: &str, figure: fn(&Sample) -> f64, more: f64, least: f64| {
            let Some(seen) = self.compared(figure) else { return };
            if seen.end > (seen.start * more).max(seen.start + least) {
                all.push(format!(
                    "{what}: {:.0} at the start, {:.0} at the end",
                    seen.start, seen.end
                ));
            }
        };
        grown(
            "resident bytes of the daemon",
            |s| s.daemon_bytes as f64,
            MORE,
            MORE_BYTES as f64,
        );
        // A storm has some processes, and each has a descriptor while it is managed.
        grown("descriptors of the daemon", |s| s.daemon_descriptors as f64, 1.0, 16.0);
        grown("threads of the daemon", |s| s.daemon_threads as f64, 1.0, 1.0);
        grown("descriptors of the Redis", |s| s.redis_descriptors as f64, 1.0, 1.0);
        all
    }
}

/// What is compared: its name, the figure, its unit.
type Row = (&'static str, fn(&Sample) -> f64, Unit);

const ROWS: [Row; 9] = [
    ("daemon: resident", |s| s.daemon_bytes as f64, Unit::Bytes),
    ("daemon: descriptors", |s| s.daemon_descriptors as f64, Unit::Count),
    ("daemon: threads", |s| s.daemon_threads as f64, Unit::Count),
    ("daemon: processor", |s| s.daemon_cpu, Unit::Share),
    ("daemon: a scan", |s| s.scan_ns, Unit::Ns),
    ("Redis: descriptors", |s| s.redis_descriptors as f64, Unit::Count),
    ("Redis: a request, p50", |s| s.p50_ns as f64, Unit::Ns),
    ("Redis: p99.9", |s| s.p999_ns as f64, Unit::Ns),
    ("Redis: resident", |s| s.redis_bytes as f64, Unit::Bytes),
];

impl Soak {
    /// What was compared: a name, and the figure at the start and at the end.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 3]> {
        let compared = ROWS.iter().filter_map(|(name, figure, unit)| {
            let seen = self.compared(figure)?;
            let text = |value| value_text(*unit, value);
            Some([(*name).to_string(), text(seen.start), text(seen.end)])
        });
        let mut rows: Vec<_> = compared.collect();
        let text = |ns: u64| value_text(Unit::Ns, ns as f64);
        let offs: Vec<String> = self.off_at_start_ns.iter().map(|ns| text(*ns)).collect();
        rows.push(["mega off".to_string(), offs.join(", "), text(self.off_at_end_ns)]);
        rows
    }

    /// What was done, in a line.
    #[must_use]
    pub fn done(&self) -> String {
        let sum = |of: fn(&Sample) -> u64| self.samples.iter().map(of).sum::<u64>();
        format!(
            "{} requests, {} storms ({} of them killed), {} scans, {} promotions in {}",
            sum(|s| s.requests),
            sum(|s| s.storms + s.killed),
            sum(|s| s.killed),
            sum(|s| s.scans),
            sum(|s| s.promotions),
            duration_text(self.settings.seconds),
        )
    }
}

/// What there is of a kind in a folder of /proc.
fn entries(pid: u32, folder: &str) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, |all| all.count() as u64)
}

fn resident(pid: u32) -> (u64, u64) {
    let rollup = smaps::read_rollup(&ProcRoot::default(), pid).unwrap_or_default();
    (rollup.rss_bytes.unwrap_or(0), rollup.anon_huge_bytes.unwrap_or(0))
}

/// What counts, and is no setting; and what acts when it is read.
const NO_SETTINGS: [&str; 4] = ["stats", "pages_collapsed", "full_scans", "stat_refresh"];

/// The machine's settings of memory, as `mega off` has to leave them: every file that can be read.
fn settings() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> = ["/sys/kernel/mm", "/proc/sys/vm"].map(PathBuf::from).to_vec();
    while let Some(path) = open.pop() {
        let is_setting = |name: &std::ffi::OsStr| !NO_SETTINGS.iter().any(|no| name == *no);
        if !path.file_name().is_some_and(is_setting) {
            continue;
        }
        match std::fs::read_dir(&path) {
            Ok(entries) => open.extend(entries.filter_map(|entry| Some(entry.ok()?.path()))),
            Err(_) => {
                if let Ok(text) = std::fs::read_to_string(&path) {
                    found.insert(path.display().to_string(), text.trim().to_string());
                }
            }
        }
    }
    found
}

/// What differs: name, before, after.
fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<(String, String, String)> {
    let gone = String::new();
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let pairs = names.into_iter().map(|name| {
        let of = |all: &BTreeMap<String, String>| all.get(name).unwrap_or(&gone).clone();
        (name.clone(), of(before), of(after))
    });
    pairs.filter(|(_, before, after)| before != after).collect()
}

/// What runs, until it is dropped.
struct Running {
    redis: Server,
    load: Load,
    storms: Storms,
}

impl Running {
    fn start(plan: &Plan, scratch: &std::path::Path) -> Result<Self, SoakError> {
        let agent = library(&plan.mega).map_err(failed("find the agent"))?;
        let environment = Agent::default().environment(&agent, scratch, None, None);
        let redis = Server::start(&ServerOptions {
            own: Own {
                environment: environment.clone(),
                has_agent: true,
                base_pages_only: false,
            },
            ..ServerOptions::default()
        })?;
        Ok(Self {
            load: Load::start(&redis, plan.keys, plan.seed)?,
            storms: Storms::start(plan.lab.clone(), environment, plan.seed),
            redis,
        })
    }

    /// Looks at everything; counts since `before`, which becomes what is counted now.
    fn sample(&self, daemon: &Daemon, began: Instant, before: &mut daemon::Counts) -> Result<Sample, SoakError> {
        let now = daemon.counts()?;
        let done = self.load.since_last();
        let storms = self.storms.since_last();
        let (redis_bytes, redis_huge_bytes) = resident(self.redis.pid() as u32);
        let scans = now.scans - before.scans;
        let sample = Sample {
            seconds: began.elapsed().as_secs_f64(),
            daemon_bytes: resident(daemon.pid()).0,
            daemon_descriptors: entries(daemon.pid(), "fd"),
            daemon_threads: entries(daemon.pid(), "task"),
            daemon_cpu: (now.cpu_s - before.cpu_s) / now.at.duration_since(before.at).as_secs_f64(),
            scans: scans as u64,
            scan_ns: match scans > 0.0 {
                true => (now.scan_s - before.scan_s) / scans * 1e9,
                false => 0.0,
            },
            processes: now.processes as u64,
            promotions: (now.promotions - before.promotions) as u64,
            redis_bytes,
            redis_huge_bytes,
            redis_descriptors: entries(self.redis.pid() as u32, "fd"),
            requests: done.count(),
            p50_ns: done.at(0.5),
            p999_ns: done.at(0.999),
            worst_ns: done.at(1.0),
            storms: storms.ended,
            killed: storms.killed,
        };
        *before = now;
        Ok(sample)
    }

    fn wrong(&self) -> Option<String> {
        self.load.wrong().or_else(|| self.storms.wrong())
    }
}

/// Runs it; `say` hears of each sample. Needs root, and that no daemon runs.
///
/// # Errors
/// Something cannot be started or looked at.
pub fn run(
    plan: &Plan,
    machine: Machine,
    settings_of_run: Settings,
    mut say: impl FnMut(&Sample),
    is_over: impl Fn() -> bool,
) -> Result<Soak, SoakError> {
    let scratch = tempfile::tempdir().map_err(failed("make a temporary folder"))?;
    let before = settings();
    let running = Running::start(plan, scratch.path())?;
    let mut off_at_start_ns = Vec::new();
    for _ in 0..SHORT_DAEMONS {
        let daemon = Daemon::start(&plan.mega, scratch.path())?;
        std::thread::sleep(SHORT.min(plan.time / 6));
        off_at_start_ns.push(daemon.off()?);
    }
    let daemon = Daemon::start(&plan.mega, scratch.path())?;
    let (began, mut counted) = (Instant::now(), daemon.counts()?);
    let every = (plan.time / SAMPLES).max(Duration::from_secs(5));
    let mut samples = Vec::new();
    while began.elapsed() < plan.time && !is_over() && running.wrong().is_none() {
        let due = every * (samples.len() as u32 + 1);
        while began.elapsed() < due && !is_over() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let sample = running.sample(&daemon, began, &mut counted)?;
        say(&sample);
        samples.push(sample);
    }
    let off_at_end_ns = daemon.off()?;
    let wrong = running.wrong();
    drop(running);
    Ok(Soak {
        schema: 1,
        kind: "soak".into(),
        machine,
        settings: Settings {
            seconds: began.elapsed().as_secs_f64(),
            ..settings_of_run
        },
        samples,
        off_at_start_ns,
        off_at_end_ns,
        changed_settings: changes(&before, &settings()),
        wrong,
    })
}
