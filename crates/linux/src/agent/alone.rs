//! How long agents are left alone before a manager begins beside them.
//!
//! Opening the scanner takes a tenth of a second of a processor, and what a manager collapses in a command that is soon over is in vain. So it
//! begins when opening it is a fiftieth of the command's time, or sooner where there is something to do that agents cannot.

use std::time::Duration;

use mega_core::range::page::Field;

use super::done::Said;
use crate::proc::{buddyinfo, maps, stat, ProcRoot};

/// What a command does in its first moments is left to the agent in any case.
const LEAST: Duration = Duration::from_secs(1);
/// The longest that agents are alone.
const MOST: Duration = Duration::from_secs(5);
/// From this size on, a process without a helper is worth a manager.
const LARGE_BYTES: u64 = 64 << 20;
/// Free blocks below which a manager makes more of them: twice those below which agents withhold advice (512 MB).
const BLOCKS: u64 = 256;

/// Waits until a manager is needed; true if `stopped`, which waits for so long, says so before. `page` is what the agent of a process says, and
/// the inode of the file that says it.
pub fn are_stopped(
    root: &ProcRoot,
    mut pids: impl FnMut() -> Vec<u32>,
    mut page: impl FnMut(u32) -> Option<(Said, u64)>,
    mut stopped: impl FnMut(Duration) -> bool,
) -> bool {
    // A page outlives an exec that leaves the agent behind.
    let is_mapped =
        |pid, inode| maps::read(root, pid).is_ok_and(|maps| maps.iter().any(|mapping| mapping.inode == inode));
    let mut has_helper =
        |pid| page(pid).is_some_and(|(said, inode)| said.get(Field::Helper) != 0 && is_mapped(pid, inode));
    let is_large = |pid: u32| stat::read(root, pid).is_ok_and(|stat| stat.rss_bytes >= LARGE_BYTES);
    let mut waited = Duration::ZERO;
    loop {
        if stopped(LEAST) {
            return true;
        }
        waited += LEAST;
        let are_blocks_short = || buddyinfo::read(root).is_ok_and(|info| info.free_blocks().0 < BLOCKS);
        if waited >= MOST || are_blocks_short() || pids().into_iter().any(|pid| is_large(pid) && !has_helper(pid)) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::range::page::{BYTES, MAGIC, VERSION};

    /// What an agent with a helper says.
    fn helped() -> Said {
        let mut page = [0u8; BYTES];
        for (at, word) in [(0, MAGIC), (1, VERSION), (Field::Helper.word(), 1)] {
            page[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        Said::read(&page).unwrap()
    }

    /// How often it waits in a machine with so many free blocks, for a process of this size, which has the page of inode 9 mapped.
    fn waits(blocks: u64, rss_bytes: u64, page: Option<u64>, stopped_at: usize) -> (bool, usize) {
        let folder = tempfile::tempdir().unwrap();
        let zone = format!("Node 0, zone   Normal{}{blocks}      0\n", "      0 ".repeat(9));
        std::fs::create_dir_all(folder.path().join("proc/7")).unwrap();
        std::fs::write(folder.path().join("proc/buddyinfo"), zone).unwrap();
        let pages = rss_bytes / 4096;
        let stat = format!(
            "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 {rss_bytes} {pages}{}\n",
            " 0".repeat(28)
        );
        std::fs::write(folder.path().join("proc/7/stat"), stat).unwrap();
        let mapped = "7f0000000000-7f0000001000 rw-s 00000000 00:19 9 /run/mega/agents-1/7\n";
        std::fs::write(folder.path().join("proc/7/maps"), mapped).unwrap();
        let mut waits = 0;
        let is_stopped = are_stopped(
            &ProcRoot::under(folder.path()),
            || vec![7],
            |_| page.map(|inode| (helped(), inode)),
            |_| {
                waits += 1;
                waits == stopped_at
            },
        );
        (is_stopped, waits)
    }

    #[test]
    fn agents_are_alone_until_the_price_of_a_manager_is_small_or_it_is_needed() {
        let (many, large) = (BLOCKS, LARGE_BYTES);
        assert_eq!(waits(many, large, Some(9), 9), (false, 5), "nothing to do");
        assert_eq!(
            waits(many, large - 4096, None, 9),
            (false, 5),
            "small, without a helper"
        );
        assert_eq!(waits(many, large, None, 9), (false, 1), "large, without a helper");
        assert_eq!(waits(many, large, Some(8), 9), (false, 1), "what it was before an exec");
        assert_eq!(waits(many - 1, large, Some(9), 9), (false, 1), "blocks are short");
        assert_eq!(waits(many, large, Some(9), 2), (true, 2), "over before");
    }
}
