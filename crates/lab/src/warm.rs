//! Warming guest memory. On a virtual machine a page that the host does not back costs 45 times a warm one on first
//! touch, and freed memory is taken back after about 2 s: warm right before each measured run.

use crate::clock::now_ns;
use crate::memory::{base_page_bytes, Mapping, MemoryError, HUGE_BYTES};
use mega_linux::knobs::Knobs;
use mega_linux::proc::{buddyinfo, meminfo, vmstat, ProcRoot};
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

/// Until the settings are put back, a guest tells its host of as few free blocks as it can: of none but the largest the kernel has (4 MB on x86), by
/// free page reporting's own parameter (Linux 5.14). Memory that collapses and the stock let go then mostly stays warm. Where there is
/// no such parameter, or it cannot be changed, nothing is done: memory is less warm.
pub fn report_little(root: &ProcRoot, knobs: &mut Knobs) {
    let path = root.sys.join("module/page_reporting/parameters/page_reporting_order");
    let zones = buddyinfo::read(root).map(|info| info.zones).unwrap_or_default();
    let Some(largest) = zones.iter().map(|zone| zone.free_chunks.len()).max() else {
        return;
    };
    if path.exists() {
        let _ = knobs.set(&path, &(largest.saturating_sub(1)).to_string());
    }
}

/// Keeps the memory warm that a program will take next, for as long as it lives.
///
/// It holds a stock of touched huge pages, which the host cannot take back, and lets go of so many at a time that the machine's free
/// memory stays a little above what it was: the kernel hands out first what was freed last, so faults and collapses get warm memory,
/// however long the program takes to fill. Collapses (`thp_collapse_alloc` of /proc/vmstat) free as much as they take, but not
/// blocks: for each of them one piece is touched again, which takes what they freed, and another one let go. What was let go and
/// not taken within half a second is touched anew, before the host takes it (after 2 s).
///
/// Until the stock's pieces come through, whoever takes memory takes what is free already. So once more as much is touched and given back right
/// before the program begins: the kernel hands it out first, and the host takes it slowly (a sixteenth of what is free every 2 s).
///
/// Each processor has free lists of its own, of up to a gigabyte and more, from which it serves itself first and the others not at all.
/// So memory is let go on the processor that will take it: see [`Takers`].
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

/// Pieces let go and not yet taken.
const AHEAD: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// What was let go is touched anew after this time: well before free page reporting has it.
const STALE: Duration = Duration::from_millis(500);

/// Processors' own free lists hold up to an eighth of a zone.
const KEPT_BY_PROCESSORS: u64 = 2 << 30;
/// Never touched, whoever needs memory meanwhile.
const LEFT_FREE: u64 = 512 << 20;

impl KeepWarm {
    /// Begins with a stock of `bytes`, which is touched before this returns.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn start(bytes: u64, takers: Takers) -> Result<Self, MemoryError> {
        let mut stock = Stock::new(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let beside = Stock::new(usize::try_from(beside(bytes, free_now())).unwrap_or(usize::MAX))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            go_to(takers.collapses);
            stock.fill();
            beside.fill();
            at(takers.faults, takers, || drop(beside));
            let begun = Seen::now();
            at(takers.faults, takers, || stock.let_go(AHEAD));
            let _ = ready.send(());
            keep(&mut stock, begun, takers, &told);
        });
        let _ = is_ready.recv();
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn free_now() -> u64 {
    let info = meminfo::read(&ProcRoot::default()).unwrap_or_default();
    info.free_bytes.unwrap_or(0)
}

/// How much to warm beside a stock of so many bytes: as much again and what processors keep for themselves, as far as there is free memory.
fn beside(bytes: u64, free: u64) -> u64 {
    (bytes + bytes.min(KEPT_BY_PROCESSORS)).min(free.saturating_sub(bytes + LEFT_FREE))
}

fn go_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let _ = crate::memory::pin_to_cpu(cpu);
    }
}

/// Does something on a processor, and goes back to where the thread waits.
fn at(cpu: Option<usize>, takers: Takers, work: impl FnOnce()) {
    go_to(cpu);
    work();
    go_to(takers.collapses);
}

fn keep(stock: &mut Stock, begun: Seen, takers: Takers, told: &AtomicBool) {
    let mut before = begun;
    let mut quiet_since = Instant::now();
    while !told.load(Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let now = Seen::now();
        let collapsed = usize::try_from(now.collapses.saturating_sub(before.collapses)).unwrap_or(0);
        before = now;
        // What others have taken, in pieces; what they gave back counts for nothing.
        let target_bytes = begun.free_bytes + (AHEAD * HUGE_BYTES) as u64;
        let taken = (target_bytes.saturating_sub(now.free_bytes) / HUGE_BYTES as u64) as usize;
        if collapsed > 0 {
            stock.touch_again(collapsed.min(AHEAD));
            stock.let_go(collapsed.min(AHEAD) + taken);
            quiet_since = Instant::now();
        } else if taken > 0 {
            at(takers.faults, takers, || stock.let_go(taken));
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > STALE {
            stock.touch_again(AHEAD);
            stock.let_go(AHEAD);
            quiet_since = Instant::now();
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

/// A ring of huge pages: `out` pieces, from `gone` on, are let go, the others are held.
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

    fn touch(&self, piece: usize) {
        let words = HUGE_BYTES / 8;
        let step = base_page_bytes() / 8;
        let piece = &self.area.words()[piece * words..(piece + 1) * words];
        piece.iter().step_by(step).for_each(|word| word.store(1, Relaxed));
    }

    fn fill(&self) {
        (0..self.pieces()).for_each(|piece| self.touch(piece));
    }

    fn touch_again(&mut self, count: usize) {
        for _ in 0..count.min(self.out) {
            self.touch(self.gone);
            self.gone = (self.gone + 1) % self.pieces();
            self.out -= 1;
        }
    }

    fn let_go(&mut self, count: usize) {
        for _ in 0..count.min(self.pieces() - self.out) {
            let start = (self.gone + self.out) % self.pieces() * HUGE_BYTES;
            // What the kernel keeps for itself stays warm all the same.
            let _ = self.area.advise(start..start + HUGE_BYTES, libc::MADV_DONTNEED);
            self.out += 1;
        }
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
    fn only_the_largest_free_blocks_are_reported_until_the_settings_are_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot {
            proc: folder.path().join("proc"),
            sys: folder.path().join("sys"),
        };
        let parameters = root.sys.join("module/page_reporting/parameters");
        std::fs::create_dir_all(&root.proc).unwrap();
        std::fs::create_dir_all(&parameters).unwrap();
        std::fs::write(
            root.proc.join("buddyinfo"),
            "Node 0, zone Normal 8 7 6 5 4 3 2 1 0 9 11\n",
        )
        .unwrap();
        let mut knobs = Knobs::open(root.clone(), &folder.path().join("state")).unwrap();
        report_little(&root, &mut knobs);
        assert!(knobs.held().unwrap().is_empty(), "a kernel without the parameter");
        let order = parameters.join("page_reporting_order");
        std::fs::write(&order, "9\n").unwrap();
        report_little(&root, &mut knobs);
        assert_eq!(std::fs::read_to_string(&order).unwrap().trim(), "10");
        knobs.restore().unwrap();
        assert_eq!(std::fs::read_to_string(&order).unwrap().trim(), "9");
    }

    #[test]
    fn beside_a_stock_as_much_again_is_warmed_and_some_memory_never_touched() {
        let gb = 1 << 30;
        assert_eq!(beside(8 * gb, 21 * gb), 10 * gb, "and what processors keep");
        assert_eq!(beside(gb / 2, 21 * gb), gb);
        assert_eq!(beside(8 * gb, 10 * gb), 3 * gb / 2, "half a gigabyte is left");
        assert_eq!(beside(8 * gb, 8 * gb), 0);
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
        stock.let_go(1000);
        assert_eq!(held(&stock), 0, "no more than there is");
    }

    #[test]
    fn a_stock_is_let_go_as_others_take_memory() {
        let mut stock = Stock::new(256 << 20).unwrap();
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
            scope.spawn(|| keep(&mut stock, taken, Takers::default(), &told));
            std::thread::sleep(Duration::from_millis(200));
            told.store(true, Relaxed);
        });
        assert!(stock.out > AHEAD, "{} pieces let go", stock.out);
    }
}
