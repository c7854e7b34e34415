//! The processors' own free lists, and how to have them given back.
//!
//! What is freed page by page goes onto the list of the processor that freed it; since Linux 6.7 such a list grows to an eighth of a zone and
//! shrinks by itself within about ten seconds. While it is full, each page that comes pushes out one that was there: a block that is
//! emptied does not become a free block before the list has gone round once. Compaction for an order gives the list back after each block;
//! compaction of a whole node does not (mm/compaction.c, `compact_zone`).
//!
//! Reading `vm.stat_refresh` has every processor do its share of the shrinking at once, up to 32 batches (2016 pages here) of each zone
//! (mm/vmstat.c, `refresh_cpu_vm_stats`; mm/page_alloc.c, `decay_pcp_high`). No setting is changed by that. Older kernels have short lists.

use crate::error::Error;
use crate::proc::{zoneinfo, ProcRoot};

/// Refreshes between two looks.
const AT_ONCE: usize = 8;
/// Looks at most: a list of 1 GB takes about 16.
const LOOKS_MAX: usize = 256;
/// Fewer pages than this between two looks are nothing.
const WORTH_IT: u64 = 512;
/// It ends when nothing came out so often: a list's limit comes down first, by an eighth at each refresh, and what is on it after that.
const IDLE_LOOKS: usize = 3;

/// Pages on the lists; 0 where the kernel does not say.
pub fn pages(root: &ProcRoot) -> Result<u64, Error> {
    let zones = zoneinfo::read(root)?;
    Ok(zones
        .iter()
        .filter_map(|zone| zone.percpu_pages)
        .fold(0, u64::saturating_add))
}

/// Has every processor give some back. False: not here.
pub fn refresh(root: &ProcRoot) -> bool {
    std::fs::read(root.proc.join("sys/vm/stat_refresh")).is_ok()
}

/// Has them given back until little more comes, or `over`. Returns how many pages came out.
pub fn drain(root: &ProcRoot, over: &dyn Fn() -> bool) -> Result<u64, Error> {
    let at_first = pages(root)?;
    let (mut left, mut idle) = (at_first, 0);
    for _ in 0..LOOKS_MAX {
        if over() || !(0..AT_ONCE).all(|_| refresh(root)) {
            break;
        }
        let now = pages(root)?;
        idle = if now + WORTH_IT > left { idle + 1 } else { 0 };
        left = left.min(now);
        if idle == IDLE_LOOKS {
            break;
        }
    }
    Ok(at_first.saturating_sub(left))
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
        assert!(!refresh(&root));
        assert_eq!((pages(&root).unwrap(), drain(&root, &|| false).unwrap()), (7000, 0));
    }

    #[test]
    fn the_lists_of_this_machine_become_short() {
        let root = ProcRoot::default();
        if !refresh(&root) {
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
            let drained = drain(&root, &|| false).unwrap();
            let after = pages(&root).unwrap();
            if drained > before / 2 && after < before {
                return;
            }
            seen.push((before, drained, after));
        }
        panic!("pages, those that came out, and those left: {seen:?}");
    }
}
