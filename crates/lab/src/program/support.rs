//! What the programs have in common: telling the watcher how it goes, giving up in time, finding what is installed, and
//! the metrics of requests.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use super::{Figures, Launch, ProgramError, Watch};
use crate::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::latency::Latency;
use crate::memory::{pin_for_now, Pinned};
use crate::result::{Better, Distribution, Metric, Unit};

/// Between two figures of the throughput.
const FIGURE_EVERY_S: f64 = 0.5;

/// Between two looks of whoever waits.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Quantiles of a [`Distribution`].
const QUANTILES: [f64; 12] = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// One run of a program: where it runs, who watches, when it must be over.
pub(super) struct Session<'a> {
    /// The program's name.
    pub name: String,
    /// Where and how.
    pub launch: &'a Launch,
    /// Who is told.
    pub watch: &'a mut dyn Watch,
    limit_s: u64,
    /// When a figure was last told, and how much was done by then.
    told: (u64, u64),
}

impl<'a> Session<'a> {
    /// Of the program `name`, from now on.
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

    /// Gives up when the time is over or the user wants to.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.launch.check(&self.name, self.limit_s)
    }

    /// Something new begins, of which nothing is done yet.
    pub fn phase(&mut self, name: &str) {
        self.watch.phase(name);
        self.told = (now_ns(), 0);
    }

    /// `done` things are done in this phase: tells the throughput twice a second, and gives up like [`Self::check`].
    pub fn progress(&mut self, done: u64) -> Result<(), ProgramError> {
        let now = now_ns();
        if now - self.told.0 >= seconds_to_ns(FIGURE_EVERY_S) {
            let rate = (done - self.told.1) as f64 / seconds_between(self.told.0, now);
            self.watch.figure("ops_per_s", rate);
            self.told = (now, done);
        }
        self.check()
    }

    /// Leaves the program alone, so that policies can act.
    pub fn settle(&mut self, time: Duration) -> Result<(), ProgramError> {
        if time.is_zero() {
            return Ok(());
        }
        self.phase("settle");
        self.wait(time)
    }

    /// Waits, or gives up.
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

    /// Binds the calling thread, the client, to its processor until the result is dropped.
    pub fn pin_client(&self) -> Result<Option<Pinned>, ProgramError> {
        let pin = self.launch.client_cpu.map(pin_for_now).transpose();
        pin.map_err(system("bind the client to its processor"))
    }

    /// When the time is over or the user stopped, that is the reason; else it is `error`.
    pub fn reason<T>(&self, result: Result<T, ProgramError>) -> Result<T, ProgramError> {
        match result {
            Err(ProgramError::Missing { .. } | ProgramError::Wrong { .. }) | Ok(_) => result,
            Err(error) => Err(self.check().err().unwrap_or(error)),
        }
    }
}

/// Ends a process when the time is over or the user wants to stop, so that nobody waits for its answer for ever.
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

/// Turns the system's answer into an error that says what was being done.
pub(super) fn system<E: Into<std::io::Error>>(doing: &str) -> impl Fn(E) -> ProgramError + '_ {
    move |source| ProgramError::System {
        doing: doing.to_string(),
        source: source.into(),
    }
}

/// The program of this name in PATH, or at this path when it has a slash.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let there = |path: &PathBuf| {
        let may = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        may && path.is_file()
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(there);
    }
    // Servers live where not everybody's PATH leads.
    let also = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(also);
    folders.map(|folder| folder.join(program)).find(there)
}

/// The program of this name, or how to install it.
pub(super) fn need(program: &'static str, how: &'static str) -> Result<PathBuf, ProgramError> {
    find(program).ok_or(ProgramError::Missing { program, how })
}

/// A port of the loopback that nobody listens on now.
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

/// The last line of a file that says something; empty when there is none.
pub(super) fn last_line(path: &Path) -> String {
    let text = tail(path, 4096);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(300).collect()
}

/// `count` scaled, at least `least`.
pub(super) fn scaled(count: u64, scale: f64, least: u64) -> u64 {
    ((count as f64 * scale) as u64).max(least)
}

/// A metric that is shown first.
pub(super) fn metric(name: &str, label: &str, unit: Unit, better: Better) -> Metric {
    Metric {
        name: name.into(),
        label: label.into(),
        unit,
        better,
        main: true,
    }
}

/// The same metric among the details.
pub(super) fn detail(metric: Metric) -> Metric {
    Metric { main: false, ..metric }
}

/// Operations in a second.
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
