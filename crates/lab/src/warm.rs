//! Warming guest memory. On a virtual machine a page that the host does not back costs 45 times a warm one on first
//! touch, and freed memory is taken back after about 2 s: warm right before each measured run.

use crate::clock::now_ns;
use crate::memory::{base_page_bytes, Mapping, MemoryError, HUGE_BYTES};
use mega_linux::knobs::Knobs;
use mega_linux::proc::{buddyinfo, vmstat, ProcRoot};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What warming did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Warmed {
    /// Memory touched and given back.
    pub bytes: u64,
    /// Time that took.
    pub elapsed_ns: u64,
    /// Median time for 2 MB: what a measured run will pay from now on, about.
    pub median_per_2mb_ns: u64,
    /// Share of 2 MB pieces that took over twice the median: what was cold.
    pub cold_share: f64,
}

/// Maps, touches and unmaps `bytes`.
///
/// # Errors
/// When the memory cannot be mapped.
pub fn warm(bytes: u64) -> Result<Warmed, MemoryError> {
    let start = now_ns();
    let mut area = Mapping::new(usize::try_from(bytes).unwrap_or(usize::MAX).max(1))?;
    // Huge pages where there are any: the host backs the memory either way, and it is done sooner.
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
    let cold = pieces.iter().filter(|ns| **ns > 2 * median).count();
    let cold_share = cold as f64 / pieces.len().max(1) as f64;
    Ok(Warmed {
        bytes,
        elapsed_ns,
        median_per_2mb_ns: median,
        cold_share,
    })
}

/// Until the settings are put back, memory that somebody frees is warm for whoever takes memory next. Where a setting is not there, or
/// cannot be changed, memory is less warm; the report names it.
///
/// - A guest tells its host of as few free blocks as it can, of none but the largest the kernel has (4 MB on x86): free page reporting's own
///   parameter (Linux 5.14). Memory that collapses and the stock let go then mostly stays warm.
/// - Processors keep as little freed memory for themselves as they can (`vm.percpu_pagelist_high_fraction`, Linux 5.14). Else up to an eighth of
///   memory that was let go as huge pages lies where faults of base pages do not look.
///
/// Returns what could not be set, and why.
pub fn let_others_have_it(root: &ProcRoot, knobs: &mut Knobs) -> Vec<String> {
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

/// A processor may keep one part in so many of a zone: less than the few hundred pages that the kernel leaves it in any case.
const LEAST_SHARE: u32 = 1_000_000;

/// Keeps the memory warm that a program will take next, for as long as it lives.
///
/// It holds a stock of touched huge pages, which the host cannot take back, and lets go of so many at a time that the machine's free
/// memory stays a little above what it was: the kernel hands out first what was freed last, so faults and collapses get warm memory,
/// however long the program takes to fill. Collapses (`thp_collapse_alloc` of /proc/vmstat) free as much as they take, but not
/// blocks: for each of them a piece is let go, too, while there are any, and from then on one is touched again and let go.
/// What was let go and not taken within half a second is touched anew, before the host takes it (after 2 s).
///
/// No more is let go at once: of what is free and was not yet, the host takes up to a sixteenth of all free memory every 2 s, and whoever faults
/// meanwhile waits for it.
///
/// Each processor has free lists of its own, from which it serves itself first and the others not at all: small ones with
/// [`let_others_have_it`]. So memory is let go on the processor that will take it: see [`Takers`].
///
/// Where variants are compared, all of them must have it.
#[derive(Debug)]
pub struct KeepWarm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The processors that take memory; none: wherever the thread happens to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takers {
    /// Where the program runs, whose faults take memory.
    pub faults: Option<usize>,
    /// Where the manager runs, whose collapses take memory. The thread waits there.
    pub collapses: Option<usize>,
}

/// Pieces let go and not yet taken while somebody takes them: half a gigabyte, that huge page faults take in 50 ms.
const AHEAD: usize = 256;
/// The same while nobody does. Each is touched anew every [`STALE`], which is to cost the measured run little.
const IDLE_AHEAD: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// What was let go is touched anew after this time: well before free page reporting has it.
const STALE: Duration = Duration::from_millis(500);
/// What managers collapse in one run, at most: 2048 huge pages.
const COLLAPSED_BYTES: u64 = 4 << 30;

impl KeepWarm {
    /// The stock for a program that takes so many bytes, and for those of them that are collapsed later. What is let go ahead is mostly still
    /// there at the end, and some of what is taken is not the program's own.
    #[must_use]
    pub fn stock_for(bytes: u64) -> u64 {
        bytes + bytes.min(COLLAPSED_BYTES) + bytes / 32 + (AHEAD * HUGE_BYTES) as u64
    }

    /// Begins with a stock of `bytes`, which is touched before this returns.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn start(bytes: u64, takers: Takers) -> Result<Self, MemoryError> {
        let mut stock = Stock::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            go_to(takers.collapses);
            stock.fill();
            let begun = Seen::now();
            let _ = at(takers.faults, takers, || stock.let_go(AHEAD));
            let _ = ready.send(());
            keep(&mut stock, begun, takers, &told, Seen::now);
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

/// Does something on a processor, and goes back to where the thread waits.
fn at<T>(cpu: Option<usize>, takers: Takers, work: impl FnOnce() -> T) -> T {
    go_to(cpu);
    let done = work();
    go_to(takers.collapses);
    done
}

fn keep(stock: &mut Stock, begun: Seen, takers: Takers, told: &AtomicBool, mut see: impl FnMut() -> Seen) {
    let mut watch = Watch::new(begun);
    let mut quiet_since = Instant::now();
    while !told.load(Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let owed = watch.look(see(), stock.held());
        if owed.collapsed {
            stock.touch_again(owed.again);
            stock.let_go(owed.again + owed.taken);
            quiet_since = Instant::now();
        } else if owed.taken > 0 && at(takers.faults, takers, || stock.let_go(owed.taken)) > 0 {
            watch.ahead = AHEAD;
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > STALE {
            stock.touch_again(watch.ahead);
            watch.ahead = IDLE_AHEAD;
            stock.let_go(watch.ahead);
            quiet_since = Instant::now();
        }
    }
}

/// What the machine's counters say that others have taken.
#[derive(Debug)]
struct Watch {
    begun: Seen,
    before: Seen,
    /// Pieces to be free beside what was free at the beginning.
    ahead: usize,
    /// What collapses freed, in pieces: free memory, but not blocks.
    scattered: usize,
}

/// In pieces.
#[derive(Debug, PartialEq, Eq)]
struct Owed {
    collapsed: bool,
    /// Taken, and to be let go.
    taken: usize,
    /// Collapsed, and to be touched again and let go, since no piece is left for it.
    again: usize,
}

impl Watch {
    fn new(begun: Seen) -> Self {
        Self {
            begun,
            before: begun,
            ahead: AHEAD,
            scattered: 0,
        }
    }

    fn look(&mut self, now: Seen, held: usize) -> Owed {
        let collapses = now.collapses.saturating_sub(self.before.collapses);
        self.before = now;
        let collapsed = usize::try_from(collapses).unwrap_or(AHEAD).min(AHEAD);
        let from_stock = collapsed.min(held);
        self.scattered += from_stock;
        // What others gave back otherwise counts for nothing.
        let target_bytes = self.begun.free_bytes + ((self.ahead + self.scattered) * HUGE_BYTES) as u64;
        Owed {
            collapsed: collapsed > 0,
            taken: (target_bytes.saturating_sub(now.free_bytes) / HUGE_BYTES as u64) as usize,
            again: collapsed - from_stock,
        }
    }
}

impl Drop for KeepWarm {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Counters of the machine at one moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Free memory, without what processors keep for themselves.
    free_bytes: u64,
    /// Huge pages made by collapsing since boot, by anyone.
    collapses: u64,
}

impl Seen {
    fn now() -> Self {
        let counters = vmstat::read(&ProcRoot::default()).unwrap_or_default();
        Self {
            free_bytes: counters.get("nr_free_pages").unwrap_or(0) * base_page_bytes() as u64,
            collapses: counters.thp_collapse_alloc().unwrap_or(0),
        }
    }
}

/// A ring of huge pages: `out` places, from `gone` on, are let go, the others are held. Neighbours are mostly the halves of one block of 4 MB,
/// which free page reporting takes when both are free. So all even pieces come first, then all odd ones; these from the last one on, since of the
/// even ones the first are taken last (the kernel hands out first what was freed last).
#[derive(Debug)]
struct Stock {
    area: Mapping,
    gone: usize,
    out: usize,
}

impl Stock {
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

    /// Where a place of the ring is in the area.
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

    /// Touches all, in the order of addresses.
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

    /// Lets go of so many pieces, or of all that are left; how many.
    fn let_go(&mut self, count: usize) -> usize {
        let count = count.min(self.held());
        for _ in 0..count {
            let start = self.start(self.gone + self.out);
            // What the kernel keeps for itself stays warm all the same.
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
    fn warming_touches_what_it_says_and_gives_it_back() {
        let w = warm(8 << 20).unwrap();
        assert_eq!(w.bytes, 8 << 20);
        assert!(w.elapsed_ns > 0 && w.median_per_2mb_ns > 0);
        assert!((0.0..=1.0).contains(&w.cold_share));
    }

    #[test]
    fn what_keeps_freed_memory_from_others_is_little_until_the_settings_are_put_back() {
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
        assert!(let_others_have_it(&root, &mut knobs).is_empty());
        assert!(knobs.held().unwrap().is_empty(), "a kernel without the settings");
        let (order, share) = (
            parameters.join("page_reporting_order"),
            vm.join("percpu_pagelist_high_fraction"),
        );
        std::fs::write(&order, "9\n").unwrap();
        std::fs::write(&share, "0\n").unwrap();
        assert!(let_others_have_it(&root, &mut knobs).is_empty());
        let text = |path| std::fs::read_to_string(path).unwrap().trim().to_string();
        assert_eq!((text(&order), text(&share)), ("10".into(), "1000000".into()));
        knobs.restore().unwrap();
        assert_eq!((text(&order), text(&share)), ("9".into(), "0".into()));
        // What is no setting cannot be set: it is said, and the other one is.
        std::fs::remove_file(&order).unwrap();
        std::fs::create_dir(&order).unwrap();
        let refused = let_others_have_it(&root, &mut knobs);
        assert!(
            refused.len() == 1 && refused[0].contains("page_reporting_order"),
            "{refused:?}"
        );
        assert_eq!(text(&share), "1000000");
    }

    #[test]
    fn a_stock_holds_all_but_what_it_let_go_and_takes_that_back() {
        let mut stock = Stock::new(64 << 20).unwrap();
        stock.fill();
        let held = |stock: &Stock| {
            let firsts = stock.area.words().iter().step_by(HUGE_BYTES / 8);
            firsts.filter(|w| w.load(Relaxed) == 1).count()
        };
        assert_eq!((stock.pieces(), held(&stock)), (32, 32));
        stock.let_go(8);
        assert_eq!(held(&stock), 24);
        stock.touch_again(3);
        assert_eq!(held(&stock), 27);
        stock.touch_again(100);
        assert_eq!(held(&stock), 32, "no more than was let go");
        for _ in 0..10 {
            stock.let_go(8);
            stock.touch_again(8);
        }
        assert_eq!(held(&stock), 32, "the ring closes");
        assert_eq!((stock.let_go(30), stock.let_go(1000), stock.let_go(1)), (30, 2, 0));
        assert_eq!(held(&stock), 0, "no more than there is");
    }

    #[test]
    fn the_ring_has_the_even_pieces_and_then_the_odd_ones_from_the_last_on() {
        let orders: [&[usize]; 4] = [&[0], &[0, 1], &[0, 2, 4, 6, 5, 3, 1], &[0, 2, 4, 6, 7, 5, 3, 1]];
        for order in orders {
            let stock = Stock::new(order.len() * HUGE_BYTES).unwrap();
            let pieces = (0..2 * order.len()).map(|place| stock.start(place) / HUGE_BYTES);
            assert!(pieces.eq(order.iter().chain(order).copied()), "{order:?}");
        }
    }

    #[test]
    fn a_stock_is_let_go_as_others_take_memory() {
        let mut stock = Stock::new(640 << 20).unwrap();
        stock.fill();
        let begun = Seen::now();
        stock.let_go(AHEAD);
        // As if others had taken 40 pieces more than there were free.
        let taken = Seen {
            free_bytes: begun.free_bytes + (40 * HUGE_BYTES) as u64,
            ..begun
        };
        let told = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| keep(&mut stock, taken, Takers::default(), &told, Seen::now));
            std::thread::sleep(Duration::from_millis(200));
            told.store(true, Relaxed);
        });
        assert!(stock.out > AHEAD, "{} pieces let go", stock.out);
    }

    fn after(free: usize, collapses: u64) -> Seen {
        Seen {
            free_bytes: (free * HUGE_BYTES) as u64,
            collapses,
        }
    }

    #[test]
    fn a_stock_is_let_go_for_what_is_collapsed_and_touched_again_where_none_is_left() {
        // Looks, one after another: free pieces beside those at the beginning, collapses.
        let keep_through = |stock: &mut Stock, looks: &[(usize, u64)]| {
            let told = AtomicBool::new(false);
            let mut looks = looks.iter();
            let see = || {
                let (free, collapses) = looks.next().copied().unwrap();
                told.store(looks.len() == 0, Relaxed);
                after(1000 + free, collapses)
            };
            keep(stock, after(1000, 0), Takers::default(), &told, see);
        };
        let mut stock = Stock::new((AHEAD + 8) * HUGE_BYTES).unwrap();
        stock.fill();
        stock.let_go(AHEAD);
        keep_through(&mut stock, &[(AHEAD, 5), (AHEAD + 5, 5)]);
        assert_eq!((stock.out, stock.gone), (AHEAD + 5, 0), "five collapses");
        stock.let_go(3);
        keep_through(&mut stock, &[(AHEAD, 4), (AHEAD, 4)]);
        assert_eq!((stock.held(), stock.gone), (0, 4), "four, and none is left");
    }

    #[test]
    fn what_was_taken_and_what_was_collapsed_is_owed() {
        let mut watch = Watch::new(after(1000, 7));
        let mut look = |free: usize, collapses: u64, held: usize| {
            let owed = watch.look(after(free, collapses), held);
            (owed.collapsed, owed.taken, owed.again)
        };
        assert_eq!(look(1000 + AHEAD, 7, 50), (false, 0, 0), "nobody took any");
        assert_eq!(look(990 + AHEAD, 7, 50), (false, 10, 0), "ten by faults");
        assert_eq!(look(1000 + AHEAD, 12, 40), (true, 5, 0), "five collapses");
        assert_eq!(look(1005 + AHEAD, 12, 35), (false, 0, 0), "which were let go");
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
