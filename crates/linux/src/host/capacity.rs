//! How many processes can be managed: each holds a descriptor (its pidfd), and their number is limited (RLIMIT_NOFILE).
//!
//! Without a limit of our own a program that forks a thousand children would take the descriptors that the scanner, /proc and the
//! claims need, and nobody would be managed any more. Where there are more processes than room, the largest are managed.

use std::collections::BTreeSet;

use crate::sys;

/// Descriptors for everything but processes and BPF links: readers, state, journal, pipes, compaction.
const RESERVE: u64 = 64;
/// A managed process gives way only to one this many times its size, so that similar ones do not take turns.
const STICKY: u64 = 2;

/// Processes at most, beside the scanner's links.
pub fn most() -> usize {
    from_limit(sys::open_files_limit(), crate::scan::links_max() as u64)
}

fn from_limit(limit: u64, links: u64) -> usize {
    // Whatever the limit: a few, or managing makes no sense.
    usize::try_from(limit.saturating_sub(RESERVE + links).max(16)).unwrap_or(usize::MAX)
}

/// The `most` largest of `named` by `size`, where managed ones count more.
pub fn largest(
    named: &BTreeSet<u32>,
    managed: &BTreeSet<u32>,
    most: usize,
    mut size: impl FnMut(u32) -> u64,
) -> BTreeSet<u32> {
    let weight = |pid: u32, bytes: u64| match managed.contains(&pid) {
        true => bytes.saturating_mul(STICKY),
        false => bytes,
    };
    let mut ranked: Vec<(u64, bool, u32)> = named
        .iter()
        .map(|&pid| (weight(pid, size(pid)), managed.contains(&pid), pid))
        .collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.truncate(most);
    ranked.into_iter().map(|(_, _, pid)| pid).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_reserve_is_kept_for_everything_but_processes() {
        assert_eq!(from_limit(1024, 256), 704);
        assert_eq!(from_limit(100, 25), 16);
        assert!(from_limit(u64::MAX, 256) > 1 << 40);
    }

    #[test]
    fn where_room_is_short_the_largest_are_managed_and_similar_ones_do_not_take_turns() {
        let sizes = BTreeMap::from([(1, 100), (2, 150), (3, 1000), (4, 10), (5, 10)]);
        let named: BTreeSet<u32> = sizes.keys().copied().collect();
        let chosen = |managed: &[u32]| largest(&named, &managed.iter().copied().collect(), 2, |pid| sizes[&pid]);
        assert_eq!(chosen(&[]), BTreeSet::from([2, 3]));
        assert_eq!(chosen(&[1, 4]), BTreeSet::from([1, 3]), "twice its size counts");
    }
}
