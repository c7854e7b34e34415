//! The prefaulted pool: host-backed memory for measured runs.
//!
//! On a virtual machine the first touch of a page that the host does not back costs 45 times as much as that of a backed one, and the host
//! reclaims free memory after about 2 s (free page reporting). A pool of touched memory, released as the program takes memory, keeps
//! measurements from meeting it.

use crate::memory::{base_page_bytes, Mapping, MemoryError, HUGE_BYTES};
use crate::timing::clock::now_ns;
use mega_linux::knobs::Knobs;
use mega_linux::proc::{buddyinfo, vmstat, ProcRoot};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What prefaulting did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prefaulted {
    /// Memory touched and freed.
    pub bytes: u64,
    /// Time taken.
    pub elapsed_ns: u64,
    /// Median time per 2 MB: about what a measured run will pay afterwards.
    pub median_per_2mb_ns: u64,
    /// Share of 2 MB pieces that took over twice the median: those the host did not back.
    pub unbacked_share: f64,
}

/// Maps, touches and unmaps `bytes`, so that the host backs them for about 2 s.
///
/// # Errors
/// When the memory cannot be mapped.
pub fn prefault(bytes: u64) -> Result<Prefaulted, MemoryError> {
    let start = now_ns();
    let mut area = Mapping::new(usize::try_from(bytes).unwrap_or(usize::MAX).max(1))?;
    // Huge pages where possible: the host backs the memory either way, and it is faster.
    let _ = area.advise(0..area.len_bytes(), libc::MADV_HUGEPAGE);
    let words_per_page = base_page_bytes() / 8;
    let mut pieces: Vec<u64> = Vec::new();
    for piece in area.words().chunks(HUGE_BYTES / 8) {
        let t = now_ns();
        piece.iter().step_by(words_per_page).for_each(|w| w.store(1, Relaxed));
        pieces.push(now_ns() - t);
    }
    let bytes = area.len_bytes() as u64;
    drop(area);
    let elapsed_ns = now_ns() - start;
    let mut sorted = pieces.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    let unbacked = pieces.iter().filter(|ns| **ns > 2 * median).count();
    let unbacked_share = unbacked as f64 / pieces.len().max(1) as f64;
    Ok(Prefaulted {
        bytes,
        elapsed_ns,
        median_per_2mb_ns: median,
        unbacked_share,
    })
}

/// Keeps freed memory host-backed, until the settings are restored. Where a setting is missing or cannot be changed, some memory loses its
/// backing; the report names it.
///
/// - Free page reporting is limited to the largest blocks the kernel has (4 MB on x86), by its own parameter (Linux 5.14). Memory freed by
///   collapses and by the pool then mostly stays backed.
/// - Per-CPU free lists are made as small as possible (`vm.percpu_pagelist_high_fraction`, Linux 5.14). Otherwise up to an eighth of the
///   memory freed as huge pages lies where base page faults do not look.
///
/// Returns what could not be set, and why.
pub fn keep_freed_memory_backed(root: &ProcRoot, knobs: &mut Knobs) -> Vec<String> {
    let zones = buddyinfo::read(root).map(|info| info.zones).unwrap_or_default();
    let orders = zones.iter().map(|zone| zone.free_chunks.len()).max();
    let largest = orders.map(|orders| orders.saturating_sub(1).to_string());
    let settings = [
        (
            root.sys.join("module/page_reporting/parameters/page_reporting_order"),
            largest,
        ),
        (
            root.proc.join("sys/vm/percpu_pagelist_high_fraction"),
            Some(LEAST_SHARE.to_string()),
        ),
    ];
    let there = settings.into_iter().filter(|(path, _)| path.exists());
    let refused = there.filter_map(|(path, value)| knobs.set(&path, &value?).err());
    refused.map(|error| error.to_string()).collect()
}

/// Divisor of a zone for per-CPU lists: less than the few hundred pages that the kernel keeps there in any case.
const LEAST_SHARE: u32 = 1_000_000;

/// Supplies host-backed memory for faults and collapses while it lives.
///
/// It holds touched huge pages, which the host cannot reclaim, and releases as many as keep the machine's free memory a little above its
/// starting level. The kernel allocates most recently freed memory first, so faults and collapses get backed memory however long the program
/// takes to fill. A collapse (`thp_collapse_alloc` of /proc/vmstat) frees as much as it takes, but as scattered pages: the pool releases
/// a piece for each, while it has any, and afterwards touches and releases one again. Pieces released and not taken within half a second are
/// touched again before the host reclaims them (after 2 s).
///
/// Few pieces are released ahead: the host reclaims up to a sixteenth of newly freed memory every 2 s, and faults meanwhile wait for it.
///
/// Each processor allocates from its own free lists first (small ones with [`keep_freed_memory_backed`]), so memory is released on the
/// processor that will take it: see [`Takers`].
///
/// Where variants are compared, all of them must have a pool.
#[derive(Debug)]
pub struct PrefaultedPool {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The processors that take memory; none: any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takers {
    /// The program's, whose faults take memory.
    pub faults: Option<usize>,
    /// The manager's, whose collapses take memory. The pool's thread waits there.
    pub collapses: Option<usize>,
}

/// Pieces released ahead while memory is being taken: half a gigabyte, which huge page faults take in 50 ms.
const AHEAD: usize = 256;
/// Pieces released ahead otherwise. Each is touched again every [`STALE`], which should cost the measured run little.
const IDLE_AHEAD: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Released pieces are touched again after this time: well before free page reporting gets them.
const STALE: Duration = Duration::from_millis(500);
/// Most that managers collapse in one run: 2048 huge pages.
const COLLAPSED_BYTES: u64 = 4 << 30;

impl PrefaultedPool {
    /// Size of the pool for a program that takes `bytes`, part of which is collapsed later. Pieces released ahead are mostly unused at the end,
    /// and other processes take some.
    #[must_use]
    pub fn bytes_for(bytes: u64) -> u64 {
        bytes + bytes.min(COLLAPSED_BYTES) + bytes / 32 + (AHEAD * HUGE_BYTES) as u64
    }

    /// Starts a pool of `bytes`, touched before this returns.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn start(bytes: u64, takers: Takers) -> Result<Self, MemoryError> {
        let mut ring = Ring::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            go_to(takers.collapses);
            ring.fill();
            let begun = MachineCounters::now();
            let _ = at(takers.faults, takers, || ring.release(AHEAD));
            let _ = ready.send(());
            serve(&mut ring, begun, takers, &told, MachineCounters::now);
        });
        let _ = is_ready.recv();
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn go_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let _ = crate::memory::pin_to_cpu(cpu);
    }
}

/// Does something on a processor, then returns to the thread's own.
fn at<T>(cpu: Option<usize>, takers: Takers, work: impl FnOnce() -> T) -> T {
    go_to(cpu);
    let done = work();
    go_to(takers.collapses);
    done
}

fn serve(
    ring: &mut Ring,
    begun: MachineCounters,
    takers: Takers,
    told: &AtomicBool,
    mut see: impl FnMut() -> MachineCounters,
) {
    let mut demand = Demand::new(begun);
    let mut quiet_since = Instant::now();
    while !told.load(Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let owed = demand.look(see(), ring.held());
        if owed.collapsed {
            ring.touch_again(owed.again);
            ring.release(owed.again + owed.taken);
            quiet_since = Instant::now();
        } else if owed.taken > 0 && at(takers.faults, takers, || ring.release(owed.taken)) > 0 {
            demand.ahead = AHEAD;
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > STALE {
            ring.touch_again(demand.ahead);
            demand.ahead = IDLE_AHEAD;
            ring.release(demand.ahead);
            quiet_since = Instant::now();
        }
    }
}

/// Memory taken by others, by the machine's counters.
#[derive(Debug)]
struct Demand {
    begun: MachineCounters,
    before: MachineCounters,
    /// Pieces to keep free above the starting level.
    ahead: usize,
    /// Pieces freed by collapses: free memory, but scattered.
    scattered: usize,
}

/// In pieces.
#[derive(Debug, PartialEq, Eq)]
struct Owed {
    collapsed: bool,
    /// Taken: to be released.
    taken: usize,
    /// Collapsed while the pool is empty: to be touched again and released.
    again: usize,
}

impl Demand {
    fn new(begun: MachineCounters) -> Self {
        Self {
            begun,
            before: begun,
            ahead: AHEAD,
            scattered: 0,
        }
    }

    fn look(&mut self, now: MachineCounters, held: usize) -> Owed {
        let collapses = now.collapses.saturating_sub(self.before.collapses);
        self.before = now;
        let collapsed = usize::try_from(collapses).unwrap_or(AHEAD).min(AHEAD);
        let from_pool = collapsed.min(held);
        self.scattered += from_pool;
        // Memory that others freed does not count.
        let target_bytes = self.begun.free_bytes + ((self.ahead + self.scattered) * HUGE_BYTES) as u64;
        Owed {
            collapsed: collapsed > 0,
            taken: (target_bytes.saturating_sub(now.free_bytes) / HUGE_BYTES as u64) as usize,
            again: collapsed - from_pool,
        }
    }
}

impl Drop for PrefaultedPool {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The machine's counters at one moment.
#[derive(Debug, Clone, Copy)]
struct MachineCounters {
    /// Free memory, without per-CPU lists.
    free_bytes: u64,
    /// Collapses since boot.
    collapses: u64,
}

impl MachineCounters {
    fn now() -> Self {
        let counters = vmstat::read(&ProcRoot::default()).unwrap_or_default();
        Self {
            free_bytes: counters.get("nr_free_pages").unwrap_or(0) * base_page_bytes() as u64,
            collapses: counters.thp_collapse_alloc().unwrap_or(0),
        }
    }
}

/// A ring of huge pages: `out` places from `gone` on are released, the others are held. Neighbours are mostly halves of one 4 MB block,
/// which free page reporting gets when both are free. So even pieces come first, then odd ones, from the last on, since the kernel allocates
/// most recently freed memory first and the first even pieces are taken last.
#[derive(Debug)]
struct Ring {
    area: Mapping,
    gone: usize,
    out: usize,
}

impl Ring {
    fn new(bytes: usize) -> Result<Self, MemoryError> {
        let mut area = Mapping::new(bytes.max(HUGE_BYTES) / HUGE_BYTES * HUGE_BYTES)?;
        let _ = area.advise(0..area.len_bytes(), libc::MADV_HUGEPAGE);
        Ok(Self { area, gone: 0, out: 0 })
    }

    fn pieces(&self) -> usize {
        self.area.len_bytes() / HUGE_BYTES
    }

    fn held(&self) -> usize {
        self.pieces() - self.out
    }

    /// Offset in the area of a place of the ring.
    fn start(&self, place: usize) -> usize {
        let (place, even) = (place % self.pieces(), self.pieces().div_ceil(2));
        match place < even {
            true => 2 * place * HUGE_BYTES,
            false => (2 * (self.pieces() - 1 - place) + 1) * HUGE_BYTES,
        }
    }

    fn touch(&self, place: usize) {
        let start = self.start(place) / 8;
        let step = base_page_bytes() / 8;
        let piece = &self.area.words()[start..start + HUGE_BYTES / 8];
        piece.iter().step_by(step).for_each(|word| word.store(1, Relaxed));
    }

    /// Touches all, in address order.
    fn fill(&self) {
        let step = base_page_bytes() / 8;
        self.area
            .words()
            .iter()
            .step_by(step)
            .for_each(|word| word.store(1, Relaxed));
    }

    fn touch_again(&mut self, count: usize) {
        for _ in 0..count.min(self.out) {
            self.touch(self.gone);
            self.gone = (self.gone + 1) % self.pieces();
            self.out -= 1;
        }
    }

    /// Releases up to `count` pieces; returns how many.
    fn release(&mut self, count: usize) -> usize {
        let count = count.min(self.held());
        for _ in 0..count {
            let start = self.start(self.gone + self.out);
            // Pages on per-CPU lists stay backed all the same.
            let _ = self.area.advise(start..start + HUGE_BYTES, libc::MADV_DONTNEED);
            self.out += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefaulting_touches_the_bytes_and_frees_them() {
        let w = prefault(8 << 20).unwrap();
        assert_eq!(w.bytes, 8 << 20);
        assert!(w.elapsed_ns > 0 && w.median_per_2mb_ns > 0);
        assert!((0.0..=1.0).contains(&w.unbacked_share));
    }

    #[test]
    fn freed_memory_stays_backed_until_the_settings_are_restored() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        let parameters = root.sys.join("module/page_reporting/parameters");
        let vm = root.proc.join("sys/vm");
        std::fs::create_dir_all(&vm).unwrap();
        std::fs::create_dir_all(&parameters).unwrap();
        std::fs::write(
            root.proc.join("buddyinfo"),
            "Node 0, zone Normal 8 7 6 5 4 3 2 1 0 9 11\n",
        )
        .unwrap();
        let mut knobs = Knobs::open(root.clone(), &folder.path().join("state")).unwrap();
        assert!(keep_freed_memory_backed(&root, &mut knobs).is_empty());
        assert!(knobs.held().unwrap().is_empty(), "a kernel without the settings");
        let (order, share) = (
            parameters.join("page_reporting_order"),
            vm.join("percpu_pagelist_high_fraction"),
        );
        std::fs::write(&order, "9\n").unwrap();
        std::fs::write(&share, "0\n").unwrap();
        assert!(keep_freed_memory_backed(&root, &mut knobs).is_empty());
        let text = |path| std::fs::read_to_string(path).unwrap().trim().to_string();
        assert_eq!((text(&order), text(&share)), ("10".into(), "1000000".into()));
        knobs.restore().unwrap();
        assert_eq!((text(&order), text(&share)), ("9".into(), "0".into()));
        // A setting that cannot be written is reported, and the other one is set.
        std::fs::remove_file(&order).unwrap();
        std::fs::create_dir(&order).unwrap();
        let refused = keep_freed_memory_backed(&root, &mut knobs);
        assert!(
            refused.len() == 1 && refused[0].contains("page_reporting_order"),
            "{refused:?}"
        );
        assert_eq!(text(&share), "1000000");
    }

    #[test]
    fn a_ring_holds_all_but_what_it_released_and_takes_that_back() {
        let mut ring = Ring::new(64 << 20).unwrap();
        ring.fill();
        let held = |ring: &Ring| {
            let firsts = ring.area.words().iter().step_by(HUGE_BYTES / 8);
            firsts.filter(|w| w.load(Relaxed) == 1).count()
        };
        assert_eq!((ring.pieces(), held(&ring)), (32, 32));
        ring.release(8);
        assert_eq!(held(&ring), 24);
        ring.touch_again(3);
        assert_eq!(held(&ring), 27);
        ring.touch_again(100);
        assert_eq!(held(&ring), 32, "no more than was released");
        for _ in 0..10 {
            ring.release(8);
            ring.touch_again(8);
        }
        assert_eq!(held(&ring), 32, "the ring closes");
        assert_eq!((ring.release(30), ring.release(1000), ring.release(1)), (30, 2, 0));
        assert_eq!(held(&ring), 0, "no more than there is");
    }

    #[test]
    fn the_ring_has_the_even_pieces_and_then_the_odd_ones_from_the_last_on() {
        let orders: [&[usize]; 4] = [&[0], &[0, 1], &[0, 2, 4, 6, 5, 3, 1], &[0, 2, 4, 6, 7, 5, 3, 1]];
        for order in orders {
            let ring = Ring::new(order.len() * HUGE_BYTES).unwrap();
            let pieces = (0..2 * order.len()).map(|place| ring.start(place) / HUGE_BYTES);
            assert!(pieces.eq(order.iter().chain(order).copied()), "{order:?}");
        }
    }

    #[test]
    fn pieces_are_released_as_others_take_memory() {
        let mut ring = Ring::new(640 << 20).unwrap();
        ring.fill();
        let begun = MachineCounters::now();
        ring.release(AHEAD);
        // As if others had taken 40 pieces more than there were free.
        let taken = MachineCounters {
            free_bytes: begun.free_bytes + (40 * HUGE_BYTES) as u64,
            ..begun
        };
        let told = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&mut ring, taken, Takers::default(), &told, MachineCounters::now));
            std::thread::sleep(Duration::from_millis(200));
            told.store(true, Relaxed);
        });
        assert!(ring.out > AHEAD, "{} pieces released", ring.out);
    }

    fn after(free: usize, collapses: u64) -> MachineCounters {
        MachineCounters {
            free_bytes: (free * HUGE_BYTES) as u64,
            collapses,
        }
    }

    #[test]
    fn a_piece_is_released_for_each_collapse_and_touched_again_where_none_is_left() {
        // Looks, one after another: free pieces beside those at the beginning, collapses.
        let keep_through = |ring: &mut Ring, looks: &[(usize, u64)]| {
            let told = AtomicBool::new(false);
            let mut looks = looks.iter();
            let see = || {
                let (free, collapses) = looks.next().copied().unwrap();
                told.store(looks.len() == 0, Relaxed);
                after(1000 + free, collapses)
            };
            serve(ring, after(1000, 0), Takers::default(), &told, see);
        };
        let mut ring = Ring::new((AHEAD + 8) * HUGE_BYTES).unwrap();
        ring.fill();
        ring.release(AHEAD);
        keep_through(&mut ring, &[(AHEAD, 5), (AHEAD + 5, 5)]);
        assert_eq!((ring.out, ring.gone), (AHEAD + 5, 0), "five collapses");
        ring.release(3);
        keep_through(&mut ring, &[(AHEAD, 4), (AHEAD, 4)]);
        assert_eq!((ring.held(), ring.gone), (0, 4), "four, and none is left");
    }

    #[test]
    fn pieces_taken_and_collapsed_are_owed() {
        let mut demand = Demand::new(after(1000, 7));
        let mut look = |free: usize, collapses: u64, held: usize| {
            let owed = demand.look(after(free, collapses), held);
            (owed.collapsed, owed.taken, owed.again)
        };
        assert_eq!(look(1000 + AHEAD, 7, 50), (false, 0, 0), "nobody took any");
        assert_eq!(look(990 + AHEAD, 7, 50), (false, 10, 0), "ten by faults");
        assert_eq!(look(1000 + AHEAD, 12, 40), (true, 5, 0), "five collapses");
        assert_eq!(look(1005 + AHEAD, 12, 35), (false, 0, 0), "which were released");
        assert_eq!(look(1005 + AHEAD, 16, 1), (true, 1, 3), "one is left for four");
        assert_eq!(look(1006 + AHEAD, 18, 0), (true, 0, 2), "none is left");
        assert_eq!(
            look(1000 + AHEAD, 18, 3),
            (false, 6, 0),
            "the program takes what collapses freed"
        );
        assert_eq!(look(2000, 18, 3), (false, 0, 0), "others gave back");
    }
}
