//! The storm: threads that apply every memory call Linux has to their memory and check every word of it against a model
//! throughout. A manager that passes an hour of it corrupts no data.

mod area;
mod child;
mod history;

use self::area::{StormArea, WrongPage, HARMLESS};
use self::child::{Caller, Victim};
use crate::memory::content::{below, mix};
use crate::memory::{base_page_bytes, fork_child, rss_bytes, Child, Exit, MemoryError, Protection};
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_to_ns};
use crate::workload::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Options of `storm`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Every memory call at once, with each word checked against a model")]
pub struct Options {
    /// Time to run
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Threads, each with areas of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Memory of all threads in MiB; half of it for areas, the rest for copies after forks
    #[arg(long, default_value_t = 512)]
    pub memory_mib: usize,
    /// Do not fork and do not start processes
    #[arg(long)]
    pub no_fork: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// The operations with their weights.
const OPERATIONS: &[(&str, u64)] = &[
    ("map", 10),
    ("unmap", 4),
    ("unmap-part", 6),
    ("write", 40),
    ("verify", 40),
    ("protect-none", 4),
    ("protect-read", 4),
    ("protect-write", 16),
    ("grow", 6),
    ("move", 6),
    ("dontneed", 8),
    ("free", 6),
    ("lock", 3),
    ("unlock", 4),
    ("advise", 24),
    ("thread", 3),
    ("fork", 2),
    ("process", 1),
];

/// State shared by the threads.
#[derive(Debug)]
struct Shared {
    done: Vec<AtomicU64>,
    refused: Vec<AtomicU64>,
    verified_pages: AtomicU64,
    stop: AtomicBool,
    corrupt: Mutex<Option<String>>,
}

impl Shared {
    fn new() -> Self {
        let zeros = || OPERATIONS.iter().map(|_| AtomicU64::new(0)).collect();
        let (verified_pages, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            done: zeros(),
            refused: zeros(),
            verified_pages,
            stop,
            corrupt: Mutex::new(None),
        }
    }

    fn blame(&self, text: String) {
        self.stop.store(true, Relaxed);
        self.corrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(text);
    }

    fn counts(&self) -> Value {
        let object = |c: &[AtomicU64]| -> Value {
            let named = OPERATIONS
                .iter()
                .zip(c)
                .map(|((name, _), n)| ((*name).to_string(), json!(n.load(Relaxed))));
            Value::Object(named.collect())
        };
        let total: u64 = self.done.iter().map(|n| n.load(Relaxed)).sum();
        json!({"operations": total, "done": object(&self.done), "refused": object(&self.refused),
            "verified_pages": self.verified_pages.load(Relaxed), "rss_bytes": rss_bytes()})
    }
}

/// Why an operation failed.
#[derive(Debug)]
enum Trouble {
    /// Refused by the kernel or the model.
    Refused,
    /// Memory is corrupt.
    Corrupt(String),
}

impl From<MemoryError> for Trouble {
    fn from(_: MemoryError) -> Self {
        Self::Refused
    }
}

struct Worker<'a> {
    id: u16,
    /// The storm's.
    seed: u64,
    rng: Pcg64Mcg,
    budget_pages: usize,
    areas: Vec<StormArea>,
    guests: Vec<JoinHandle<Option<StormArea>>>,
    children: Vec<Child>,
    victims: Vec<Victim>,
    /// The most recent operations, for the report of a corruption.
    recent: VecDeque<String>,
    shared: &'a Shared,
    caller: Option<Caller>,
    forks: bool,
}

/// The entry of /proc/self/pagemap for `address`.
fn pagemap_entry(address: usize) -> u64 {
    let mut entry = [0; 8];
    let at = (address / base_page_bytes() * 8) as u64;
    let read = std::fs::File::open("/proc/self/pagemap").and_then(|f| f.read_exact_at(&mut entry, at));
    read.map_or(0, |()| u64::from_ne_bytes(entry))
}

impl Worker<'_> {
    fn pages(&self) -> usize {
        self.areas.iter().map(StormArea::len).sum()
    }

    fn describe(&self, area: &StormArea, wrong: &WrongPage) -> String {
        let m = wrong.mismatch;
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        format!(
            "thread {} pid {}: area {:#x?} page {} word {} at {:#x} is {:#x}, not {:#x}; model {:?}; pagemap {:#018x}; last operations: {}",
            self.id, std::process::id(), area.addresses(), wrong.page, m.index, wrong.address, m.found, m.expected,
            wrong.model, pagemap_entry(wrong.address), recent.join(", ")
        )
    }

    /// What led to it, to be pasted into `area.rs`.
    fn source(&self, area: &StormArea) -> String {
        area.source(&format!("storm_seed_{}_thread_{}", self.seed, self.id))
    }

    fn verify(&self, area: &StormArea) -> Result<(), Trouble> {
        self.verify_range(area, 0..area.len())
    }

    fn verify_range(&self, area: &StormArea, range: std::ops::Range<usize>) -> Result<(), Trouble> {
        let pages = area.verify(range).map_err(|wrong| {
            eprintln!("{}", self.source(area));
            Trouble::Corrupt(self.describe(area, &wrong))
        })?;
        self.shared.verified_pages.fetch_add(pages, Relaxed);
        Ok(())
    }

    /// Maps 1 page to 8 MB, dropping the oldest areas if the budget is exhausted.
    fn map(&mut self) -> Result<(), Trouble> {
        let most = (self.budget_pages / 4).clamp(1, 2048) as u64;
        let pages = 1 + below(self.rng.next_u64(), most) as usize;
        while self.pages() + pages > self.budget_pages && !self.areas.is_empty() {
            let old = self.areas.remove(0);
            self.verify(&old)?;
        }
        self.areas.push(StormArea::new(pages)?);
        Ok(())
    }

    /// Starts a thread that creates an area and exits, or adopts such an area.
    fn thread(&mut self) -> Result<(), Trouble> {
        if self.guests.len() >= 2 {
            let area = self.guests.remove(0).join().ok().flatten().ok_or(Trouble::Refused)?;
            self.verify(&area)?;
            self.areas.push(area);
            return Ok(());
        }
        if self.pages() + 2 * 512 > self.budget_pages {
            return Err(Trouble::Refused);
        }
        let seed = self.rng.next_u64();
        self.guests.push(std::thread::spawn(move || {
            let mut area = StormArea::new(1 + below(mix(seed), 512) as usize).ok()?;
            area.write(0..area.len(), seed);
            Some(area)
        }));
        Ok(())
    }

    /// Forks a child that repeatedly checks its view, and writes to its copy, while this thread continues.
    fn fork(&mut self) -> Result<(), Trouble> {
        if self.children.len() >= 2 {
            let mut child = self.children.remove(0);
            let pid = child.pid();
            return match child.wait() {
                Ok(Exit::Code(0)) => Ok(()),
                other => Err(Trouble::Corrupt(format!(
                    "forked child {pid} ended with {other:?}, see its message"
                ))),
            };
        }
        let rounds = 1 + below(self.rng.next_u64(), 5);
        let mut areas = std::mem::take(&mut self.areas);
        areas.iter_mut().for_each(StormArea::forked);
        let child = fork_child(|| {
            for round in 0..rounds {
                for area in &mut areas {
                    if let Err(wrong) = area.verify(0..area.len()) {
                        eprintln!("{}", self.source(area));
                        eprintln!("storm: in a forked child: {}", self.describe(area, &wrong));
                        return 3;
                    }
                    let range = area.draw(&mut self.rng);
                    area.write(range.start..range.end.min(range.start + 16), mix(round));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            0
        });
        self.areas = areas;
        self.children.push(child.map_err(|_| Trouble::Refused)?);
        Ok(())
    }

    fn process(&mut self) -> Result<(), Trouble> {
        self.victims.retain(|v| !v.is_due());
        if self.victims.len() >= 2 {
            return Err(Trouble::Refused);
        }
        let live_ns = below(self.rng.next_u64(), 50_000_000);
        let victim = match &self.caller {
            Some(caller) if self.rng.next_u64() % 2 == 0 => Victim::execute(caller, live_ns),
            _ => Victim::fork(live_ns),
        };
        self.victims.push(victim.map_err(|_| Trouble::Refused)?);
        Ok(())
    }

    fn operate(&mut self, name: &str) -> Result<(), Trouble> {
        match name {
            "map" => return self.map(),
            "thread" => return self.thread(),
            "fork" if self.forks => return self.fork(),
            "process" if self.forks => return self.process(),
            "fork" | "process" => return Err(Trouble::Refused),
            _ if self.areas.is_empty() => return Err(Trouble::Refused),
            _ => {}
        }
        let at = below(self.rng.next_u64(), self.areas.len() as u64) as usize;
        let range = self.areas[at].draw(&mut self.rng);
        let random = self.rng.next_u64();
        let area = &mut self.areas[at];
        let detail = format!("{name} {:#x}+{}..{}", area.addresses().start, range.start, range.end);
        self.recent.push_back(detail);
        if self.recent.len() > 16 {
            self.recent.pop_front();
        }
        match name {
            "unmap" => {
                let area = self.areas.swap_remove(at);
                self.verify(&area)?;
            }
            "unmap-part" => {
                let area = self.areas.swap_remove(at);
                self.areas.extend(area.unmap(range));
            }
            "write" => {
                // A write must not hide a corruption.
                self.verify_range(&self.areas[at], range.clone())?;
                self.areas[at].write(range, random);
            }
            "verify" => self.verify(&self.areas[at])?,
            "protect-none" => area.protect(range, Protection::None)?,
            "protect-read" => area.protect(range, Protection::Read)?,
            "protect-write" => {
                let all = 0..area.len();
                area.protect(if random % 2 == 0 { all } else { range }, Protection::ReadWrite)?;
            }
            "grow" => {
                let more = 1 + below(random, 256) as usize;
                if self.pages() + more > self.budget_pages {
                    return Err(Trouble::Refused);
                }
                self.areas[at].grow(more)?;
            }
            "move" => {
                if !area.relocate()? {
                    return Err(Trouble::Refused);
                }
            }
            "dontneed" => area.dontneed(range)?,
            "free" => area.free(range)?,
            "lock" => area.lock(true)?,
            "unlock" => area.lock(false)?,
            "advise" => area.advise(range, below(random, HARMLESS.len() as u64) as usize)?,
            other => unreachable!("operation {other}"),
        }
        Ok(())
    }

    fn run(mut self, end_ns: u64) {
        let weights: u64 = OPERATIONS.iter().map(|(_, w)| w).sum();
        while now_ns() < end_ns && !self.shared.stop.load(Relaxed) {
            let mut ticket = below(self.rng.next_u64(), weights);
            let chosen = OPERATIONS.iter().position(|(_, w)| {
                let mine = ticket < *w;
                ticket = ticket.wrapping_sub(*w);
                mine
            });
            let chosen = chosen.unwrap_or(0);
            match self.operate(OPERATIONS[chosen].0) {
                Ok(()) => self.shared.done[chosen].fetch_add(1, Relaxed),
                Err(Trouble::Refused) => self.shared.refused[chosen].fetch_add(1, Relaxed),
                Err(Trouble::Corrupt(text)) => return self.shared.blame(text),
            };
        }
        for area in std::mem::take(&mut self.areas) {
            if let Err(Trouble::Corrupt(text)) = self.verify(&area) {
                return self.shared.blame(text);
            }
        }
        for mut child in std::mem::take(&mut self.children) {
            match child.wait() {
                Ok(Exit::Code(0)) => {}
                other => {
                    return self
                        .shared
                        .blame(format!("forked child {} ended with {other:?}", child.pid()))
                }
            }
        }
        for guest in self.guests.drain(..) {
            let _ = guest.join();
        }
    }
}

/// Runs the storm and returns what was counted; `Err` at the first corruption.
fn storm(o: &Options, caller: Option<&Caller>, say: &dyn Fn(&str, Value)) -> Result<(), WorkloadError> {
    let budget_pages = mebibytes(o.memory_mib)? / base_page_bytes() / 2 / usize::from(o.threads);
    let shared = Shared::new();
    let start = now_ns();
    let end = start + seconds_to_ns(o.seconds);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for id in 0..o.threads {
            let rng = Common::of_seed(mix(o.common.seed) ^ u64::from(id)).rng();
            let worker = Worker {
                id,
                seed: o.common.seed,
                rng,
                budget_pages: budget_pages.max(16),
                areas: Vec::new(),
                guests: Vec::new(),
                children: Vec::new(),
                victims: Vec::new(),
                recent: VecDeque::new(),
                shared: &shared,
                caller: caller.cloned(),
                forks: !o.no_fork,
            };
            workers.push(scope.spawn(move || worker.run(end)));
        }
        let mut last = start;
        while !workers.iter().all(|w| w.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if now_ns() - last >= 1_000_000_000 {
                last = now_ns();
                say("report", shared.counts());
            }
        }
    });
    let corrupt = shared.corrupt.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut result = shared.counts();
    result["ok"] = json!(corrupt.is_none());
    result["corrupt"] = json!(corrupt);
    result["seed"] = json!(o.common.seed);
    say("result", result);
    corrupt.map_or(Ok(()), |text| {
        Err(WorkloadError::Corrupt(format!("seed {}: {text}", o.common.seed)))
    })
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.memory_mib, self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        stage.ready(&[], json!({"seed": self.common.seed}));
        let result = storm(self, Caller::of_this_process().as_ref(), &event);
        stage.hold();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_short_storm_does_every_operation_and_finds_nothing() {
        let o = Options::parse_from([
            "storm",
            "--seconds",
            "2",
            "--threads",
            "2",
            "--memory-mib",
            "64",
            "--no-fork",
        ]);
        let result = Mutex::new(Value::Null);
        storm(&o, None, &|name, v| {
            if name == "result" {
                *result.lock().unwrap() = v;
            }
        })
        .unwrap();
        let v = result.into_inner().unwrap();
        for (name, _) in OPERATIONS.iter().filter(|(n, _)| !["fork", "process"].contains(n)) {
            assert!(v["done"][name].as_u64().unwrap() > 0, "{name}: {v}");
        }
        assert!(v["verified_pages"].as_u64().unwrap() > 1000);
    }
}
