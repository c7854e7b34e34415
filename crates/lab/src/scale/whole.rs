//! The whole loop, decisions and actions included, on a simulated machine: 1 TB in 5,000 processes, of which 50 use theirs.
//!
//! What it costs is this machine's own processor time, without that of running the programs. Looking is the simulated host's; what looking
//! costs on a live one is the other subjects'.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mega_core::control::{Control, Observer, Settings};
use mega_core::fault;
use mega_core::host::Host;
use mega_core::journal::{Event, Line};
use mega_core::policy;
use mega_linux::sys;
use mega_sim::host::SimHost;
use mega_sim::machine::{Config, Machine};
use mega_sim::unit::SpaceId;
use serde::Serialize;

use super::{failed, ns, ScaleError, GB, LOOKS, ONE_RUNS_IN, WANTS};
use crate::memory::rss_bytes;
use crate::stats::median;

/// Processes at scale 1, and the memory of each: together 1 TB.
const PROCESSES: f64 = 5_000.0;
const BYTES: u64 = (GB as u64) / 5;
/// Simulated time.
const TIME_NS: u64 = 150_000_000_000;
const PAGE: u64 = 4096;

/// What the loop cost.
#[derive(Debug, Clone, Serialize)]
pub struct Whole {
    /// The policy.
    pub policy: &'static str,
    /// Processes.
    pub processes: usize,
    /// Their memory.
    pub bytes: u64,
    /// Scans.
    pub scans: usize,
    /// Promotions.
    pub promoted: u64,
    /// Processor time of the first scan, with its decisions and actions.
    pub first_ns: u64,
    /// The same of one in the last half of the time, the median.
    pub scan_ns: u64,
    /// Of it, the look at the simulated machine.
    pub look_ns: u64,
    /// Resident memory that managing took here.
    pub memory_bytes: u64,
}

/// Processor time of this process, without that of the programs.
struct Ours {
    driven: Rc<Cell<Duration>>,
    last: Duration,
    scans: Vec<u64>,
}

impl Ours {
    fn now(&self) -> Duration {
        sys::process_cpu_time().saturating_sub(self.driven.get())
    }
}

impl Observer for Ours {
    fn event(&mut self, line: &Line) {
        if let Event::Scanned { .. } = line.event {
            let now = self.now();
            self.scans.push(ns(now.saturating_sub(self.last)));
            self.last = now;
        }
    }
}

/// A machine with its memory filled.
struct Filled {
    machine: Machine,
    all: Vec<SpaceId>,
    /// Those that use their memory, and where it begins.
    busy: Vec<(SpaceId, u64)>,
}

fn filled(processes: usize) -> Result<Filled, ScaleError> {
    let bytes = processes as u64 * BYTES;
    let base = fault::by_name("base").ok_or_else(|| failed("simulate")("no base pages"))?;
    let mut machine = Machine::new(&Config::of_bytes((bytes + bytes / 4).next_multiple_of(GB as u64)), base);
    let (mut all, mut busy) = (Vec::new(), Vec::new());
    for n in 0..processes {
        let id = machine
            .spawn("one")
            .ok_or_else(|| failed("simulate")("no more processes"))?;
        let area = machine.mmap(id, BYTES, true).map_err(failed("map simulated memory"))?;
        for at in (area..area + BYTES).step_by(PAGE as usize) {
            machine.access(id, at, true).map_err(failed("fill simulated memory"))?;
        }
        all.push(id);
        if n % ONE_RUNS_IN == 0 {
            busy.push((id, area));
        }
    }
    Ok(Filled { machine, all, busy })
}

/// Manages such a machine by this policy; at scale 1 with 5 GB of memory here, in some minutes.
///
/// # Errors
/// The machine cannot be simulated, or there is no such policy.
pub fn measure(policy: &'static str, scale: f64) -> Result<Whole, ScaleError> {
    let processes = ((PROCESSES * scale) as usize).max(1);
    let Filled { machine, all, busy } = filled(processes)?;
    let mut policy_of = policy::by_name(policy).ok_or_else(|| failed("find a policy")(policy))?;
    let driven = Rc::new(Cell::new(Duration::ZERO));
    let counted = Rc::clone(&driven);
    let drive = move |machine: &mut Machine, until: u64| {
        let began = sys::process_cpu_time();
        for (id, area) in &busy {
            for at in (*area..area + BYTES).step_by(PAGE as usize) {
                // A page that was given back is filled again.
                let _ = machine.access(*id, at, true);
            }
        }
        for id in &all {
            machine.compute(*id, until.saturating_sub(machine.clock_ns(*id)) + 1);
        }
        counted.set(counted.get() + sys::process_cpu_time().saturating_sub(began));
        true
    };
    let end = machine.now_ns() + TIME_NS;
    let mut host = SimHost::new(machine, drive, end);
    let before = rss_bytes();
    let mut ours = Ours {
        driven,
        last: sys::process_cpu_time(),
        scans: Vec::new(),
    };
    let status = Control::new(&mut host, policy_of.as_mut(), Settings::default(), &mut ours).run();
    let memory_bytes = rss_bytes().saturating_sub(before);
    let looks: Vec<f64> = (0..LOOKS)
        .map(|_| {
            let began = ours.now();
            host.observe(&WANTS);
            ns(ours.now().saturating_sub(began)) as f64
        })
        .collect();
    let settled: Vec<f64> = ours.scans[ours.scans.len() / 2..].iter().map(|ns| *ns as f64).collect();
    Ok(Whole {
        policy,
        processes,
        bytes: processes as u64 * BYTES,
        scans: ours.scans.len(),
        promoted: status.promoted,
        first_ns: ours.scans.first().copied().unwrap_or(0),
        scan_ns: median(&settled).unwrap_or(0.0) as u64,
        look_ns: median(&looks).unwrap_or(0.0) as u64,
        memory_bytes,
    })
}
