//! The memory control groups of managed processes: what their limits leave, and whether they reclaim.
//!
//! Room is limit minus use, plus half of the inactive file cache, as MemAvailable counts what can be dropped without harm. Of version 2 the
//! lower one of `memory.max` and `memory.high`; of version 1 `memory.limit_in_bytes`, which has no PSI.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mega_core::observe::groups::{MemoryGroup, MemoryGroups};
use mega_core::observe::ProcessId;
use mega_core::units::{Bytes, Share};

use crate::proc::{cgroup, mountinfo, pressure, read_bounded, ProcRoot, SMALL_BYTES};

/// Scans for which a process is taken to stay in its group.
const STAYS: u32 = 12;
/// Version 1 has this much or more where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// Where the hierarchy with the memory controller is.
#[derive(Debug)]
struct Hierarchy {
    point: PathBuf,
    /// The part of it that is mounted there.
    root: PathBuf,
    is_v1: bool,
}

/// Which group each process is in, as of a while ago.
#[derive(Debug, Default)]
pub struct GroupReader {
    hierarchy: Option<Option<Hierarchy>>,
    places: BTreeMap<ProcessId, (PathBuf, u32)>,
    scan: u32,
}

impl GroupReader {
    /// The groups of these processes now.
    pub fn read(&mut self, root: &ProcRoot, processes: impl Iterator<Item = ProcessId>) -> MemoryGroups {
        let hierarchy = self.hierarchy.get_or_insert_with(|| find(root));
        let Some(hierarchy) = hierarchy else {
            return MemoryGroups::default();
        };
        self.scan += 1;
        let mut groups = MemoryGroups::default();
        let mut known: BTreeMap<PathBuf, Option<usize>> = BTreeMap::new();
        let mut places = std::mem::take(&mut self.places);
        for id in processes {
            // Where it was, for some scans from a time of its own on: else all would be asked at the same scan.
            let place = match places.remove(&id) {
                Some((folder, until)) if self.scan < until => Some((folder, until)),
                _ => {
                    folder_of(hierarchy, root, id.pid).map(|folder| (folder, self.scan + STAYS - id.pid % (STAYS / 2)))
                }
            };
            let Some((folder, until)) = place else { continue };
            if let Some(group) = add(&mut groups, &mut known, hierarchy, &folder) {
                groups.assign(id, group);
            }
            self.places.insert(id, (folder, until));
        }
        groups
    }
}

fn find(root: &ProcRoot) -> Option<Hierarchy> {
    let mounts = mountinfo::read(root).ok()?;
    let is_v1 = |mount: &&mountinfo::Mount| mount.kind == "cgroup" && mount.options.split(',').any(|o| o == "memory");
    let (mount, is_v1) = match mounts.iter().find(is_v1) {
        Some(mount) => (mount, true),
        None => (mounts.iter().find(|mount| mount.kind == "cgroup2")?, false),
    };
    Some(Hierarchy {
        point: mount.point.clone(),
        root: mount.root.clone(),
        is_v1,
    })
}

fn folder_of(hierarchy: &Hierarchy, root: &ProcRoot, pid: u32) -> Option<PathBuf> {
    let memberships = cgroup::read(root, pid).ok()?;
    let ours = memberships.iter().find(|membership| match hierarchy.is_v1 {
        true => membership
            .controllers
            .split(',')
            .any(|controller| controller == "memory"),
        false => membership.controllers.is_empty(),
    })?;
    // A group above what is mounted here limits it as well, and cannot be seen.
    let inside = Path::new(&ours.path)
        .strip_prefix(&hierarchy.root)
        .unwrap_or(Path::new(""));
    let folder = hierarchy.point.join(inside);
    (!folder.components().any(|part| part == std::path::Component::ParentDir)).then_some(folder)
}

/// The place of a group, with all that it is part of; `None` above the first limit, and for the root.
fn add(
    groups: &mut MemoryGroups,
    known: &mut BTreeMap<PathBuf, Option<usize>>,
    hierarchy: &Hierarchy,
    folder: &Path,
) -> Option<usize> {
    if let Some(place) = known.get(folder) {
        return *place;
    }
    if folder == hierarchy.point || !folder.starts_with(&hierarchy.point) {
        return None;
    }
    let parent = folder.parent().and_then(|parent| add(groups, known, hierarchy, parent));
    let room = room(folder, hierarchy.is_v1);
    let place = match room {
        // Without a limit of its own it is as its parent.
        None => parent,
        Some(_) => Some(
            groups.add(MemoryGroup {
                id: std::fs::metadata(folder).map_or(0, |folder| folder.ino()),
                parent,
                room,
                pressure: pressure::read_cgroup(folder)
                    .ok()
                    .flatten()
                    .map(|pressure| Share::millionths((pressure.some.avg10_percent * 1e4) as u32)),
            }),
        ),
    };
    known.insert(folder.to_owned(), place);
    place
}

/// What the group's own limit leaves; `None` without one.
fn room(folder: &Path, is_v1: bool) -> Option<Bytes> {
    let (limits, used, inactive): (&[&str], _, _) = match is_v1 {
        true => (
            &["memory.limit_in_bytes"],
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
        false => (&["memory.max", "memory.high"], "memory.current", "inactive_file"),
    };
    let limits = limits.iter().filter_map(|name| number(&folder.join(name)));
    let limit = limits.filter(|limit| *limit < NO_LIMIT).min()?;
    let used = number(&folder.join(used)).unwrap_or(limit);
    let stat = read_bounded(&folder.join("memory.stat"), SMALL_BYTES).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let of = |line: &str| line.strip_prefix(inactive)?.trim().parse::<u64>().ok();
    let droppable = stat.lines().find_map(of).unwrap_or(0) / 2;
    Some(Bytes(limit.saturating_sub(used.saturating_sub(droppable))))
}

/// A number in a file; `None` for "max", and where it cannot be read.
fn number(path: &Path) -> Option<u64> {
    let text = read_bounded(path, 4096).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("ROOT", folder.path().to_str().unwrap())).unwrap();
        }
        let root = ProcRoot::under(folder.path());
        (folder, root)
    }

    const A: ProcessId = ProcessId { pid: 7, started: 1 };
    const B: ProcessId = ProcessId { pid: 8, started: 1 };

    #[test]
    fn the_least_of_max_and_high_up_the_tree_minus_what_is_used_is_left() {
        let (_folder, root) = tree(&[
            ("proc/self/mountinfo", "30 20 0:25 / ROOT/cg rw - cgroup2 cgroup2 rw\n"),
            ("proc/7/cgroup", "0::/pod/a\n"),
            ("proc/8/cgroup", "0::/pod\n"),
            ("cg/memory.max", "1\n"),
            ("cg/pod/memory.max", "max\n"),
            ("cg/pod/memory.high", "1000000000\n"),
            ("cg/pod/memory.current", "900000000\n"),
            ("cg/pod/memory.stat", "anon 5\ninactive_file 100000000\n"),
            (
                "cg/pod/memory.pressure",
                "some avg10=12.50 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            ),
            ("cg/pod/a/memory.max", "4000000000\n"),
            ("cg/pod/a/memory.high", "max\n"),
            ("cg/pod/a/memory.current", "500000000\n"),
        ]);
        let groups = GroupReader::default().read(&root, [A, B].into_iter());
        let rooms: Vec<_> = groups.above(A).map(|group| group.room.unwrap().0).collect();
        assert_eq!(
            rooms,
            [3_500_000_000, 150_000_000],
            "half of the inactive cache counts as free"
        );
        let tightest = groups.tightest(A).unwrap();
        assert_eq!(groups.tightest(B), Some(tightest));
        assert_eq!(tightest.pressure, Some(Share::millionths(125_000)));
    }

    #[test]
    fn version_1_has_a_limit_too_and_without_one_nothing_is_limited() {
        let (_folder, root) = tree(&[
            (
                "proc/self/mountinfo",
                "30 20 0:25 / ROOT/cg rw - cgroup cgroup rw,memory\n",
            ),
            ("proc/7/cgroup", "4:memory:/job\n0::/\n"),
            ("proc/8/cgroup", "4:memory:/\n0::/\n"),
            ("cg/job/memory.limit_in_bytes", "100\n"),
            ("cg/job/memory.usage_in_bytes", "40\n"),
        ]);
        let groups = GroupReader::default().read(&root, [A, B].into_iter());
        assert_eq!(groups.tightest(A).unwrap().room, Some(Bytes(60)));
        assert_eq!(groups.tightest(B), None);
        fs::write(
            root.proc.join("../cg/job/memory.limit_in_bytes"),
            "9223372036854771712\n",
        )
        .unwrap();
        let groups = GroupReader::default().read(&root, [A, B].into_iter());
        assert_eq!(groups.tightest(A), None);
    }

    #[test]
    fn no_control_groups_limit_nobody() {
        let (_folder, root) = tree(&[("proc/self/mountinfo", "")]);
        let groups = GroupReader::default().read(&root, [A].into_iter());
        assert_eq!(groups, MemoryGroups::default());
    }
}
