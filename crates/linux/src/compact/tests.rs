//! What each way needs, over a made-up tree.

use std::fs;

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcRoot) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = ProcRoot::under(folder.path());
    (folder, root)
}

#[test]
fn what_a_kernel_does_not_have_is_said_in_one_line_of_the_way() {
    let (_folder, root) = tree(&[]);
    for (way, why) in [
        (Way::Chosen, "chosen: not possible here: mega.ko is not loaded"),
        (Way::Node, "node: not possible here: the kernel has no compaction"),
        (Way::Proactive, "proactive: not possible here: "),
        (
            Way::Pool,
            "pool: not possible here: the kernel has no hugetlb pages of 2 MB",
        ),
        (
            Way::Offline,
            "offline: not possible here: the kernel cannot take memory offline",
        ),
    ] {
        let text = available(way, &root).unwrap_err().to_string();
        assert!(text.starts_with(why) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn without_numa_the_files_for_all_memory_are_taken() {
    let (_folder, root) = tree(&[
        ("proc/sys/vm/compact_memory", ""),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
    ]);
    assert!(available(Way::Node, &root).is_ok());
    assert_eq!(pool::find(&root).unwrap().len(), 1);
}

#[test]
fn only_groups_that_are_online_and_in_one_zone_of_ordinary_memory_are_taken_offline() {
    let (_folder, root) = tree(&[
        ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
        ("sys/devices/system/memory/memory0/state", "online\n"),
        ("sys/devices/system/memory/memory0/valid_zones", "DMA32\n"),
        ("sys/devices/system/memory/memory32/state", "online\n"),
        ("sys/devices/system/memory/memory32/valid_zones", "Normal\n"),
        ("sys/devices/system/memory/memory33/state", "offline\n"),
        ("sys/devices/system/memory/memory33/valid_zones", "Normal Movable\n"),
        ("sys/devices/system/memory/memory34/state", "online\n"),
        ("sys/devices/system/memory/memory34/valid_zones", "none\n"),
    ]);
    let (groups, bytes) = offline::find(&root).unwrap();
    assert_eq!((groups.into_keys().collect::<Vec<_>>(), bytes), (vec![32], 128 << 20));
}

#[test]
fn counters_are_by_how_much_they_went_up() {
    let read = |text: &str| vmstat::parse(Path::new("v"), text.as_bytes()).unwrap();
    let before = read("compact_stall 5\npgmigrate_success 7\nnr_free_pages 1\n");
    let after = read("compact_stall 9\npgmigrate_success 7\nnr_free_pages 3\ncompact_new 4\n");
    let grown: Vec<(String, u64)> = grown(&before, &after).into_iter().collect();
    let expected = [("compact_new", 0), ("compact_stall", 4), ("pgmigrate_success", 0)];
    assert_eq!(grown, expected.map(|(name, n)| (name.to_string(), n)));
}

#[test]
fn nodes_take_turns() {
    let (_folder, root) = tree(&[
        ("sys/devices/system/node/node0/compact", ""),
        ("sys/devices/system/node/node1/compact", ""),
        ("proc/buddyinfo", "Node 0, zone   Normal 0 0 0 0 0 0 0 0 0 3 1\n"),
        ("proc/zoneinfo", "Node 0, zone   Normal\n  pages free     9\n"),
        ("proc/vmstat", "pgmigrate_success 7\n"),
    ]);
    let mut node = node::Node::open(&root).unwrap();
    let written =
        |node: u32| fs::read_to_string(root.sys.join(format!("devices/system/node/node{node}/compact"))).unwrap();
    for (first, second) in [(0, 1), (1, 0)] {
        // Told to stop once the first one has been written to.
        for node in [0, 1] {
            fs::write(root.sys.join(format!("devices/system/node/node{node}/compact")), "").unwrap();
        }
        let refresher = Refresher::new(&root);
        let stop = || !written(first).is_empty();
        let task = Task {
            root: &root,
            chosen: &[],
            asked: Blocks(1),
            target: Blocks(1 << 40),
            lists_before: 0,
            moved_before: 0,
            refresher: &refresher,
            deadline: Instant::now() + Duration::from_secs(20),
            stop: &stop,
        };
        let _ = node.make(&task).unwrap();
        assert!(!written(first).is_empty(), "node {first} is the first");
        assert!(written(second).is_empty());
    }
}
