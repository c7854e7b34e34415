//! Shared by all programs: progress for the watcher, time limits, finding executables, request metrics.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use super::{Figures, Launch, ProgramError, Watch};
use crate::memory::{pin_for_now, Pinned};
use crate::result::{Better, Distribution, Metric, Unit};
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::Latency;

/// Between two throughput figures.
const FIGURE_EVERY_S: f64 = 0.5;

/// Polling interval.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Quantiles of a [`Distribution`].
const QUANTILES: [f64; 12] = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// One run of a program: where it runs, its watcher, its deadline.
pub(super) struct Session<'a> {
    /// The program's name.
    pub name: String,
    /// Where and how.
    pub launch: &'a Launch,
    /// The watcher.
    pub watch: &'a mut dyn Watch,
    limit_s: u64,
    /// Time of the last figure, and operations done by then.
    told: (u64, u64),
}

impl<'a> Session<'a> {
    /// A session of program `name`, starting now.
    pub fn new(name: String, launch: &'a Launch, watch: &'a mut dyn Watch) -> Self {
        let left = launch.deadline.saturating_duration_since(Instant::now());
        Self {
            name,
            launch,
            watch,
            limit_s: left.as_secs_f64().ceil() as u64,
            told: (now_ns(), 0),
        }
    }

    /// Fails at the deadline or when the user stops.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.launch.check(&self.name, self.limit_s)
    }

    /// Starts a phase.
    pub fn phase(&mut self, name: &str) {
        self.watch.phase(name);
        self.told = (now_ns(), 0);
    }

    /// Reports `done` operations of this phase: throughput twice a second; fails like [`Self::check`].
    pub fn progress(&mut self, done: u64) -> Result<(), ProgramError> {
        let now = now_ns();
        if now - self.told.0 >= seconds_to_ns(FIGURE_EVERY_S) {
            let rate = (done - self.told.1) as f64 / seconds_between(self.told.0, now);
            self.watch.figure("ops_per_s", rate);
            self.told = (now, done);
        }
        self.check()
    }

    /// Lets the program idle, so that policies can act.
    pub fn settle(&mut self, time: Duration) -> Result<(), ProgramError> {
        if time.is_zero() {
            return Ok(());
        }
        self.phase("settle");
        self.wait(time)
    }

    /// Waits, or fails like [`Self::check`].
    pub fn wait(&self, time: Duration) -> Result<(), ProgramError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK_EVERY)),
            }
        }
    }

    /// Pins the calling thread, the client, to its processor until the result is dropped.
    pub fn pin_client(&self) -> Result<Option<Pinned>, ProgramError> {
        let pin = self.launch.client_cpu.map(pin_for_now).transpose();
        pin.map_err(system("pin the client to its processor"))
    }

    /// The reason of a failure: deadline, user, or else `error`.
    pub fn reason<T>(&self, result: Result<T, ProgramError>) -> Result<T, ProgramError> {
        match result {
            Err(ProgramError::Missing { .. } | ProgramError::Wrong { .. }) | Ok(_) => result,
            Err(error) => Err(self.check().err().unwrap_or(error)),
        }
    }
}

/// Kills a process at the deadline or when the user stops, so that no client waits for it forever.
pub(super) struct Ender {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ender {
    /// Of process `pid`, which must be a child of ours that was not waited for.
    pub fn of(pid: i32, launch: &Launch) -> Result<Self, ProgramError> {
        let doing = format!("open process {pid}");
        let pid = Pid::from_raw(pid).ok_or_else(|| system(&doing)(std::io::ErrorKind::InvalidInput))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(system(&doing))?;
        let (over, wait) = channel();
        let (deadline, stop) = (launch.deadline, launch.stop.clone());
        let thread = std::thread::spawn(move || {
            while wait.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if stop.load(Relaxed) || Instant::now() >= deadline {
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                    return;
                }
            }
        });
        Ok(Self {
            over: Some(over),
            thread: Some(thread),
        })
    }
}

impl Drop for Ender {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Adds to a system error what was being done.
pub(super) fn system<E: Into<std::io::Error>>(doing: &str) -> impl Fn(E) -> ProgramError + '_ {
    move |source| ProgramError::System {
        doing: doing.to_string(),
        source: source.into(),
    }
}

/// The program of this name in PATH, or at this path when it has a slash; as an absolute path, since what we start may run in another
/// folder than ours.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let there = |path: &PathBuf| {
        let may = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        may && path.is_file()
    };
    if program.contains('/') {
        return std::path::absolute(program).ok().filter(there);
    }
    // Servers are installed in folders outside of some users' PATH.
    let also = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(also);
    let paths = folders.filter_map(|folder| std::path::absolute(folder.join(program)).ok());
    paths.into_iter().find(there)
}

/// The program of this name, or how to install it.
pub(super) fn need(program: &'static str, how: &'static str) -> Result<PathBuf, ProgramError> {
    find(program).ok_or(ProgramError::Missing { program, how })
}

/// An unused port of the loopback.
pub(super) fn free_port() -> Result<u16, ProgramError> {
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    Ok(address.map_err(system("find a free port"))?.port())
}

/// The last `most_bytes` of a file, or nothing when it cannot be read.
pub(super) fn tail(path: &Path, most_bytes: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let length = file.metadata().map_or(0, |m| m.len());
        if file.seek(SeekFrom::Start(length.saturating_sub(most_bytes))).is_ok() {
            let _ = file.take(most_bytes).read_to_end(&mut bytes);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last non-empty line of a file, or nothing.
pub(super) fn last_line(path: &Path) -> String {
    let text = tail(path, 4096);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(300).collect()
}

/// `count` scaled, at least `least`.
pub(super) fn scaled(count: u64, scale: f64, least: u64) -> u64 {
    ((count as f64 * scale) as u64).max(least)
}

/// A main metric.
pub(super) fn metric(name: &str, label: &str, unit: Unit, better: Better) -> Metric {
    Metric {
        name: name.into(),
        label: label.into(),
        unit,
        better,
        main: true,
    }
}

/// The same metric as a secondary one.
pub(super) fn detail(metric: Metric) -> Metric {
    Metric { main: false, ..metric }
}

/// Operations per second.
pub(super) fn ops_per_s() -> Metric {
    metric("ops_per_s", "operations/s", Unit::PerSecond, Better::Higher)
}

/// Wall time.
pub(super) fn time_ns() -> Metric {
    metric("elapsed_ns", "time", Unit::Ns, Better::Lower)
}

/// The metrics that [`latencies`] sets.
pub(crate) fn latency_metrics() -> Vec<Metric> {
    let of = |name: &str, label: &str| metric(name, label, Unit::Ns, Better::Lower);
    vec![
        detail(of("request_mean_ns", "request mean")),
        of("request_p50_ns", "request p50"),
        detail(of("request_p90_ns", "request p90")),
        of("request_p99_ns", "request p99"),
        of("request_p999_ns", "request p99.9"),
        detail(of("request_max_ns", "request max")),
    ]
}

/// Puts the latencies of requests into `figures`.
pub(super) fn latencies(latency: &Latency, figures: &mut Figures) {
    let s = latency.summary();
    let values = [
        ("mean", s.mean_ns),
        ("p50", s.p50_ns as f64),
        ("p90", s.p90_ns as f64),
        ("p99", s.p99_ns as f64),
        ("p999", s.p999_ns as f64),
        ("max", s.max_ns as f64),
    ];
    for (name, value) in values {
        figures.values.insert(format!("request_{name}_ns"), value);
    }
    let distribution = Distribution {
        count: s.count,
        mean_ns: s.mean_ns,
        quantiles: QUANTILES.map(|q| (q, latency.at(q) as f64)).to_vec(),
    };
    figures.distributions.insert("request".into(), distribution);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_path_and_only_when_it_can_run() {
        assert!(find("sh").is_some());
        assert!(find("/bin/sh").is_some());
        assert_eq!(find("no-such-program-here"), None);
        assert_eq!(find("/etc/passwd"), None);
        assert_eq!(find("/bin"), None);
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first\n  second  \n\n \n").unwrap();
        assert_eq!(last_line(file.path()), "second");
        assert_eq!(tail(file.path(), 3), "\n \n");
        assert_eq!(last_line(Path::new("/nonexistent")), "");
    }

    #[test]
    fn the_distribution_ends_with_the_largest_value_at_one() {
        let (mut latency, mut figures) = (Latency::new(), Figures::default());
        (1..=100).for_each(|v| latency.record(v));
        latencies(&latency, &mut figures);
        assert_eq!(figures.values["request_p50_ns"], 50.0);
        let distribution = &figures.distributions["request"];
        assert_eq!(distribution.quantiles.last(), Some(&(1.0, 100.0)));
        assert_eq!(distribution.count, 100);
        assert!(latency_metrics().iter().all(|m| figures.values.contains_key(&m.name)));
    }
}
