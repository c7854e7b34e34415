//! What the benchmarks share: a GUPS process, a manager beside it, medians.
#![allow(dead_code, missing_docs)] // each benchmark uses a part of it

#[path = "../../tests/commands/mod.rs"]
mod commands;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use mega_core::action::Outcome;
use mega_core::journal::{Event, Line};
use mega_lab::memory::pin_process_to_cpu;
use mega_lab::prepare::pool::{PrefaultedPool, Takers};
use serde_json::Value;

pub use commands::{built, LAB, MEGA};

/// The measured program has this processor for itself; clients and the manager have the other.
pub const PROGRAM_CPU: usize = 0;
pub const MANAGER_CPU: usize = 1;

/// `--name value` of the command line, or the default.
pub fn option(name: &str, default: u64) -> u64 {
    let args: Vec<String> = std::env::args().collect();
    args.windows(2)
        .find(|pair| pair[0] == format!("--{name}"))
        .map_or(default, |pair| {
            pair[1]
                .parse()
                .unwrap_or_else(|_| panic!("--{name} {} is not a number", pair[1]))
        })
}

pub fn median(values: &[f64]) -> f64 {
    mega_lab::stats::median(values).unwrap_or(f64::NAN)
}

pub fn needs(mib: u64) -> bool {
    built();
    let info = mega_linux::proc::meminfo::read(&mega_linux::proc::ProcRoot::default()).unwrap();
    let there = info.available_bytes.unwrap() >> 20;
    let root = rustix::process::geteuid().is_root();
    if !root || there < mib {
        println!("SKIPPED: needs root and {mib} MB of available memory (there are {there} MB)");
    }
    root && there >= mib
}

/// Of this process, in huge pages now.
pub fn huge_mib(pid: i32) -> u64 {
    let root = mega_linux::proc::ProcRoot::default();
    mega_linux::proc::smaps::read_rollup(&root, pid as u32)
        .unwrap()
        .anon_huge_bytes
        .unwrap_or(0)
        >> 20
}

/// Keeps memory warm for the manager's collapses. It goes round: what a collapse frees is warm, too, so a part of the free memory is
/// enough.
pub fn keep_warm() -> PrefaultedPool {
    let info = mega_linux::proc::meminfo::read(&mega_linux::proc::ProcRoot::default()).unwrap();
    let bytes = (info.free_bytes.unwrap() / 3).clamp(256 << 20, 3 << 30);
    let takers = Takers {
        faults: Some(MANAGER_CPU),
        collapses: Some(MANAGER_CPU),
    };
    PrefaultedPool::start(bytes, takers).unwrap()
}

/// A GUPS process that updates for a long time and reports twice a second.
pub struct Gups {
    child: Child,
    _stdin: ChildStdin,
    lines: Receiver<(u64, f64)>,
    pub pid: i32,
}

impl Gups {
    pub fn start(mib: u64, thp: &str) -> Self {
        mega_lab::prepare::pool::prefault(mib << 20).unwrap();
        let mut child = Command::new(LAB)
            .args([
                "workload",
                "gups",
                "--seconds",
                "100000",
                "--report",
                "0.5",
                "--thp",
                thp,
            ])
            .args(["--mib", &mib.to_string(), "--pin", &PROGRAM_CPU.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let next = move || -> Option<Value> { serde_json::from_str(&lines.next()?.ok()?).ok() };
        let mut next = next;
        while next().expect("gups ended")["event"] != "ready" {}
        let (send, receive) = channel();
        std::thread::spawn(move || {
            while let Some(event) = next() {
                let rate = event["updates_per_s"].as_f64();
                if let (true, Some(rate)) = (event["event"] == "report", rate) {
                    let _ = send.send((event["t_ns"].as_u64().unwrap_or(0), rate));
                }
            }
        });
        let pid = child.id() as i32;
        Self {
            child,
            _stdin: stdin,
            lines: receive,
            pid,
        }
    }

    /// Reports of this long from now on: when, and updates per second.
    pub fn observe(&self, time: Duration) -> Vec<(u64, f64)> {
        while self.lines.try_recv().is_ok() {}
        let _ = self.lines.recv();
        let end = Instant::now() + time;
        let mut seen = Vec::new();
        while Instant::now() < end {
            seen.extend(self.lines.recv_timeout(Duration::from_secs(5)));
        }
        seen
    }

    pub fn rate(&self, seconds: u64) -> f64 {
        let rates: Vec<f64> = self
            .observe(Duration::from_secs(seconds))
            .iter()
            .map(|(_, rate)| *rate)
            .collect();
        median(&rates)
    }
}

impl Drop for Gups {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mega manage` on one process, on the other processor.
pub struct Manager {
    child: Child,
    journal: PathBuf,
    _folder: tempfile::TempDir,
}

/// What a manager did, from its journal.
pub struct Did {
    /// First and last promotion done, by CLOCK_MONOTONIC.
    pub from_ns: u64,
    pub to_ns: u64,
    pub promoted: usize,
    /// Time of each collapse.
    pub took_us: Vec<f64>,
    /// What was charged for each action, done or not.
    pub charged_us: Vec<f64>,
}

impl Manager {
    pub fn start(pid: i32, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let child = Command::new(MEGA)
            .args(["manage", "-q", "--journal"])
            .arg(&journal)
            .args(args)
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        pin_process_to_cpu(child.id() as i32, MANAGER_CPU).unwrap();
        Self {
            child,
            journal,
            _folder: folder,
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Processor time so far and resident memory now.
    pub fn cost(&self) -> (Duration, u64) {
        let root = mega_linux::proc::ProcRoot::default();
        let pid = self.child.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        let rss = mega_linux::proc::smaps::read_rollup(&root, pid)
            .unwrap()
            .rss_bytes
            .unwrap_or(0);
        (Duration::from_millis(ticks * 10), rss)
    }

    pub fn stop(mut self) -> Did {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the manager ended with {status}");
        let text = std::fs::read_to_string(&self.journal).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| Line::parse(line).unwrap()).collect();
        let clock = lines.iter().find_map(|line| match &line.event {
            Event::Start { clock_ns, .. } => Some(*clock_ns),
            _ => None,
        });
        let clock = clock.unwrap();
        let done: Vec<(u64, u64)> = lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Outcome {
                    outcome: Outcome::Done,
                    took_ns,
                    ..
                } => Some((clock + line.at.0, *took_ns)),
                _ => None,
            })
            .collect();
        let charged = lines.iter().filter_map(|line| match &line.event {
            Event::Outcome { took_ns, stall_ns, .. } => Some(stall_ns.unwrap_or(*took_ns) as f64 / 1e3),
            _ => None,
        });
        Did {
            charged_us: charged.collect(),
            from_ns: done.first().map_or(0, |first| first.0 - first.1),
            to_ns: done.last().map_or(0, |last| last.0),
            promoted: done.len(),
            took_us: done.iter().map(|(_, took)| *took as f64 / 1e3).collect(),
        }
    }
}

impl Did {
    /// Seconds from the first to the last promotion.
    pub fn seconds(&self) -> f64 {
        (self.to_ns.saturating_sub(self.from_ns)) as f64 / 1e9
    }

    /// Milliseconds per region.
    pub fn ms_per_region(&self) -> f64 {
        self.seconds() * 1e3 / self.promoted.max(1) as f64
    }

    /// Median, mean and share of collapses over twice the median: those hit cold or fragmented memory. And the share that was charged.
    pub fn collapse(&self) -> String {
        let mid = median(&self.took_us);
        let mean = self.took_us.iter().sum::<f64>() / self.took_us.len().max(1) as f64;
        let cold = self.took_us.iter().filter(|us| **us > 2.0 * mid).count() as f64 / self.took_us.len().max(1) as f64;
        let most = self.took_us.iter().copied().fold(0.0, f64::max);
        let charged = self.charged_us.iter().sum::<f64>() / self.took_us.iter().sum::<f64>().max(1.0);
        format!(
            "{mid:.0} us median, {mean:.0} mean, {most:.0} max, {:.1}% over twice the median, {:.0}% charged",
            100.0 * cold,
            100.0 * charged
        )
    }

    pub fn during(&self, t_ns: u64) -> bool {
        (self.from_ns..=self.to_ns).contains(&t_ns)
    }
}

/// Flushes standard output, so that long runs show how far they are.
pub fn show(text: &str) {
    println!("{text}");
    let _ = std::io::stdout().flush();
}
