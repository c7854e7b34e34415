//! The per-CPU free lists (pcp), and draining them.
//!
//! Pages freed one by one go to the list of the processor that freed them. Since Linux 6.7 such a list grows to an eighth of a zone and
//! decays within about ten seconds. While it is full, each new page pushes out an older one: an evacuated block becomes a free block
//! only after the list has turned over once. Compaction for an order drains the list after each block; compaction of a whole node does
//! not (mm/compaction.c, `compact_zone`).
//!
//! Reading `vm.stat_refresh` makes every processor do its share of the decay at once, up to 32 batches (2016 pages here) of each zone
//! (mm/vmstat.c, `refresh_cpu_vm_stats`; mm/page_alloc.c, `decay_pcp_high`). No setting is changed by that. Older kernels have short lists.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::proc::{zoneinfo, ProcRoot};

/// Refreshes between two readings.
const AT_ONCE: usize = 8;
/// Readings at most: a list of 1 GB takes about 16.
const LOOKS_MAX: usize = 256;
/// Fewer pages than this between two readings count as none.
const WORTH_IT: u64 = 512;
/// Ends after so many readings without progress: a list's limit decays first, by an eighth per refresh, and its pages follow.
const IDLE_LOOKS: usize = 3;

/// Pages on the lists; 0 where /proc/zoneinfo has no per-CPU counts.
pub fn pages(root: &ProcRoot) -> Result<u64, Error> {
    let zones = zoneinfo::read(root)?;
    Ok(zones
        .iter()
        .filter_map(|zone| zone.percpu_pages)
        .fold(0, u64::saturating_add))
}

/// Refreshes of one order, counted: each wakes every processor of the machine, whoever is at work there.
#[derive(Debug)]
pub struct Refresher<'a> {
    root: &'a ProcRoot,
    left: Cell<u32>,
    spent: Cell<Duration>,
    last: Cell<Option<Instant>>,
}

/// Refreshes of one order: what a list of 1 GB takes on either side of compaction.
const PER_ORDER: u32 = 256;
/// Pages on all lists from which a refresh may be worth it: a few blocks' worth.
const WORTH_REFRESHING: u64 = 4 * 512;
/// Between two refreshes while compaction runs.
const APART: Duration = Duration::from_millis(20);

impl<'a> Refresher<'a> {
    /// For one order.
    pub fn new(root: &'a ProcRoot) -> Self {
        Self {
            root,
            left: Cell::new(PER_ORDER),
            spent: Cell::new(Duration::ZERO),
            last: Cell::new(None),
        }
    }

    /// Makes every processor give some back. False: the kernel has no `vm.stat_refresh` or refuses it, or the order has had its share.
    pub fn refresh(&self) -> bool {
        let Some(left) = self.left.get().checked_sub(1) else {
            return false;
        };
        self.left.set(left);
        let began = Instant::now();
        let done = std::fs::read(self.root.proc.join("sys/vm/stat_refresh")).is_ok();
        self.spent.set(self.spent.get() + began.elapsed());
        self.last.set(Some(began));
        done
    }

    /// As [`Refresher::refresh`], where that many pages on the lists are worth it and the last time was a while ago.
    pub fn refresh_if_due(&self, listed: u64) -> bool {
        let is_due = self.last.get().is_none_or(|last| last.elapsed() >= APART);
        listed >= WORTH_REFRESHING && is_due && self.refresh()
    }

    /// Drains the lists until little more comes, or `over`. Returns the number of pages that came out.
    pub fn drain(&self, over: &dyn Fn() -> bool) -> Result<u64, Error> {
        let at_first = pages(self.root)?;
        let (mut left, mut idle) = (at_first, 0);
        for _ in 0..LOOKS_MAX {
            if left < WORTH_REFRESHING || over() || !(0..AT_ONCE).all(|_| self.refresh()) {
                break;
            }
            let now = pages(self.root)?;
            idle = if now + WORTH_IT > left { idle + 1 } else { 0 };
            left = left.min(now);
            if idle == IDLE_LOOKS {
                break;
            }
        }
        Ok(at_first.saturating_sub(left))
    }

    /// Time in refreshes so far, during which other processors worked for us.
    pub fn spent(&self) -> Duration {
        self.spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_file_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        std::fs::create_dir_all(&root.proc).unwrap();
        let text = "Node 0, zone   Normal\n  pages free     9\n  pagesets\n    cpu: 0\n              count:    7000\n";
        std::fs::write(root.proc.join("zoneinfo"), text).unwrap();
        let refresher = Refresher::new(&root);
        assert!(!refresher.refresh());
        assert_eq!((pages(&root).unwrap(), refresher.drain(&|| false).unwrap()), (7000, 0));
    }

    #[test]
    fn processors_are_woken_only_where_lists_hold_several_blocks_and_so_often_for_an_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        std::fs::create_dir_all(root.proc.join("sys/vm")).unwrap();
        std::fs::write(root.proc.join("sys/vm/stat_refresh"), "").unwrap();
        let lists = |pages: u32| {
            let text = format!(
                "Node 0, zone   Normal\n  pages free     9\n  pagesets\n    cpu: 0\n              count:    {pages}\n"
            );
            std::fs::write(root.proc.join("zoneinfo"), text).unwrap();
        };
        let woken = |refresher: &Refresher<'_>| PER_ORDER - refresher.left.get();
        lists(2000);
        let refresher = Refresher::new(&root);
        refresher.drain(&|| false).unwrap();
        assert!(!refresher.refresh_if_due(2000));
        assert_eq!(woken(&refresher), 0);
        lists(1_000_000);
        for _ in 0..40 {
            refresher.drain(&|| false).unwrap();
            refresher.refresh_if_due(1_000_000);
        }
        assert_eq!(woken(&refresher), PER_ORDER, "however often it is asked for");
        assert!(refresher.spent() > Duration::ZERO);
    }

    #[test]
    fn the_lists_of_this_machine_become_short() {
        let root = ProcRoot::default();
        if !Refresher::new(&root).refresh() {
            eprintln!("SKIPPED: /proc/sys/vm/stat_refresh cannot be read (needs root)");
            return;
        }
        // Others free pages meanwhile: one of a few tries has to show it.
        let mut seen = Vec::new();
        for _ in 0..5 {
            // What is freed page by page goes onto the list of this processor.
            let bytes = 512 << 20;
            let mut memory = vec![0u8; bytes];
            memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            drop(memory);
            let before = pages(&root).unwrap();
            if before < 20_000 {
                eprintln!("SKIPPED: this kernel has {before} pages on its lists only (before 6.7 they are short)");
                return;
            }
            let drained = Refresher::new(&root).drain(&|| false).unwrap();
            let after = pages(&root).unwrap();
            if drained > before / 2 && after < before {
                return;
            }
            seen.push((before, drained, after));
        }
        panic!("pages, those that came out, and those left: {seen:?}");
    }
}
