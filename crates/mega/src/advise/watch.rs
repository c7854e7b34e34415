//! Watching a program, or a running process, with all that comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mega_cli::signals::stopped;
use mega_linux::inspect::heat::{self, Window};
use mega_linux::inspect::regions::region_map;
use mega_linux::proc::{maps, stat, ProcRoot};
use mega_linux::process::family::Family;
use mega_linux::process::Process;
use mega_linux::scan::Scanner;

use super::layout::Layout;

/// Processes with less than this are not looked at: huge pages cannot matter there.
const LEAST_BYTES: u64 = 8 << 20;
/// Processes whose heat is looked at, the largest first.
const HEATED: usize = 2;
/// Huge pages whose contents are read.
const READ_MAX: usize = 256;
/// From one round to the next: at first, at most, and how it grows.
const ROUND: (Duration, Duration, f64) = (Duration::from_millis(50), Duration::from_millis(500), 1.25);
/// A look at a process is repeated after this many times what it took.
const SPARED: u32 = 25;
/// Windows: the first, the shortest, and the longest, which every other one is.
const WINDOW: Duration = Duration::from_millis(4);
const SHORTEST: Duration = Duration::from_micros(250);
pub const LONGEST: Duration = Duration::from_millis(64);

/// What was seen of one process.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// PID.
    pub pid: u32,
    /// Name.
    pub name: String,
    /// File names of what it has mapped.
    pub files: BTreeSet<String>,
    /// When most was resident.
    pub layout: Layout,
    /// Processor time while it was watched.
    pub cpu: Duration,
    /// The kernel's part of it.
    pub system: Duration,
    /// Page faults meanwhile.
    pub faults: u64,
    /// Touches of base pages in dense regions, estimated over all the time that it was watched.
    pub touches: f64,
    /// Base pages in use at a time: the most in one window, of all dense regions.
    pub in_use: u64,
    /// Windows looked at.
    pub windows: u32,
    /// Why there are none.
    pub unseen: Option<String>,
}

/// What a process had used when the watch began.
#[derive(Default)]
struct Had {
    user_ticks: u64,
    system_ticks: u64,
    faults: u64,
}

/// One that is being watched.
struct One {
    process: Process,
    seen: Seen,
    at_first: Had,
    /// Dense regions as of the last look.
    dense: Vec<u64>,
    look_at: Instant,
    heat_at: Instant,
    /// Since when touches are not counted.
    counted: Instant,
    window: Duration,
}

/// Watches until `is_over` or a signal; without a scanner only what is resident. Answers what was seen, those with the most processor time
/// first, and the most that was resident at a time.
pub fn watch(
    root: &ProcRoot,
    mut scanner: Option<&mut dyn Scanner>,
    family: &mut Family,
    stop: &OwnedFd,
    mut is_over: impl FnMut(Duration) -> bool,
) -> (Vec<Seen>, u64) {
    let began = Instant::now();
    let mut watched: BTreeMap<u32, One> = BTreeMap::new();
    let mut done: Vec<Seen> = Vec::new();
    let (mut peak, mut round, mut is_first) = (0, ROUND.0, true);
    loop {
        let _ = family.look(root);
        let mut there: Vec<(u64, u32)> = Vec::new();
        let mut resident = 0;
        for member in family.members() {
            let Ok(now) = stat::read(root, member.pid) else {
                continue;
            };
            resident += now.rss_bytes;
            let known = watched
                .get(&member.pid)
                .is_some_and(|one| one.process.start_ticks() == now.start_ticks);
            if !known {
                done.extend(watched.remove(&member.pid).map(|one| one.seen));
                // One that is found later was started meanwhile.
                let had = match is_first {
                    true => Had {
                        user_ticks: now.user_ticks,
                        system_ticks: now.system_ticks,
                        faults: now.minor_faults,
                    },
                    false => Had::default(),
                };
                let Some(one) = One::begin(root, member.pid, &now, had) else {
                    continue;
                };
                watched.insert(member.pid, one);
            }
            let Some(one) = watched.get_mut(&member.pid) else {
                continue;
            };
            one.seen.name.clone_from(&now.comm);
            let had = &one.at_first;
            one.seen.system = ticks(now.system_ticks.saturating_sub(had.system_ticks));
            one.seen.cpu = one.seen.system + ticks(now.user_ticks.saturating_sub(had.user_ticks));
            one.seen.faults = now.minor_faults.saturating_sub(had.faults);
            if now.rss_bytes >= LEAST_BYTES {
                there.push((now.rss_bytes, member.pid));
            }
        }
        is_first = false;
        peak = peak.max(resident);
        there.sort_unstable_by(|a, b| b.cmp(a));
        for (rank, (_, pid)) in there.iter().enumerate() {
            let (Some(one), Some(scanner)) = (watched.get_mut(pid), scanner.as_deref_mut()) else {
                continue;
            };
            one.look(root, scanner);
            if rank < HEATED {
                one.heat(scanner);
            }
        }
        if is_over(began.elapsed()) || stopped(stop, round) {
            break;
        }
        round = round.mul_f64(ROUND.2).min(ROUND.1);
    }
    done.extend(watched.into_values().map(|one| one.seen));
    done.sort_by_key(|seen| std::cmp::Reverse((seen.cpu, seen.layout.resident_bytes)));
    (done, peak)
}

/// The kernel's USER_HZ is 100 on all that we run on.
fn ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(10))
}

impl One {
    fn begin(root: &ProcRoot, pid: u32, now: &stat::Stat, at_first: Had) -> Option<Self> {
        let process = Process::open(root, pid).ok()?;
        let at = Instant::now();
        Some(Self {
            seen: Seen {
                pid,
                name: now.comm.clone(),
                ..Seen::default()
            },
            process,
            at_first,
            dense: Vec::new(),
            look_at: at,
            heat_at: at,
            counted: at,
            window: WINDOW,
        })
    }

    /// Where its memory is, from time to time.
    fn look(&mut self, root: &ProcRoot, scanner: &mut dyn Scanner) {
        let began = Instant::now();
        if began < self.look_at {
            return;
        }
        let pid = self.process.pid();
        match region_map(root, scanner, pid, READ_MAX) {
            Ok(map) if self.process.is_alive() => {
                let mut layout = Layout::of(&map);
                self.dense = std::mem::take(&mut layout.dense);
                if layout.resident_bytes >= self.seen.layout.resident_bytes {
                    self.seen.layout = layout;
                }
            }
            Ok(_) => {}
            Err(error) => self.seen.unseen = Some(error.to_string()),
        }
        if let Ok(list) = maps::read(root, pid) {
            let names = list.iter().filter_map(|mapping| mapping.name.as_deref());
            let files = names
                .filter(|name| name.starts_with('/'))
                .filter_map(|name| name.rsplit('/').next());
            self.seen.files.extend(files.map(str::to_owned));
        }
        self.look_at = Instant::now() + (began.elapsed() * SPARED).max(Duration::from_millis(200));
    }

    /// What it touches in its dense regions.
    fn heat(&mut self, scanner: &mut dyn Scanner) {
        let began = Instant::now();
        if began < self.heat_at {
            return;
        }
        if !scanner.sees_accessed() {
            self.seen.unseen = Some(format!(
                "scanner {} cannot see which pages are accessed",
                scanner.name()
            ));
            return;
        }
        // Evenly spaced ones, others each time.
        let step = self.dense.len().div_ceil(heat::SAMPLE).max(1);
        let first = self.seen.windows as usize % step;
        let sample: Vec<u64> = self.dense.iter().copied().skip(first).step_by(step).collect();
        if sample.is_empty() {
            self.counted = began;
            return;
        }
        let scale = self.dense.len() as f64 / sample.len() as f64;
        let long = self.seen.windows % 2 == 0;
        let length = if long { LONGEST } else { self.window };
        match heat::window(scanner, &self.process, &sample, length) {
            Ok(window) => {
                let in_use = (window.pages as f64 * scale) as u64;
                self.seen.in_use = self.seen.in_use.max(in_use);
                self.seen.windows += 1;
                if !long {
                    let since = self.counted.elapsed();
                    self.seen.touches += window.touches_per_second * scale * since.as_secs_f64();
                    self.counted = Instant::now();
                    self.window = fitting(window, length);
                }
            }
            Err(error) if self.process.is_alive() => self.seen.unseen = Some(error.to_string()),
            Err(_) => {}
        }
        let spared = began.elapsed().saturating_sub(length) * SPARED;
        self.heat_at = Instant::now() + spared.min(Duration::from_secs(2));
    }
}

/// A window in which some of the pages of a region that is in use are touched, but not most.
fn fitting(seen: Window, length: Duration) -> Duration {
    match seen.filled {
        filled if filled > 0.6 => (length / 4).max(SHORTEST),
        filled if filled < 0.05 => (length * 4).min(LONGEST),
        _ => length,
    }
}
