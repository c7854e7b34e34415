//! The readers over a made-up machine, over this machine, and over texts that no kernel ever wrote.

use std::path::{Path, PathBuf};

use mega_core::units::Blocks;
use mega_linux::knobs::thp::{self, Mode, Owner};
use mega_linux::proc::vm_flags::VmFlags;
use mega_linux::proc::*;
use mega_linux::process::family::Family;
use mega_linux::vma::{Obstacle, Vma};
use mega_linux::{knobs, process::select};
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/small")
}

fn made_up() -> ProcRoot {
    ProcRoot::under(&folder())
}

#[test]
fn mappings_of_the_made_up_program_are_read_and_judged() {
    let vmas: Vec<Vma> = maps::read(&made_up(), 42).unwrap().iter().map(Vma::from).collect();
    let judged: Vec<_> = vmas
        .iter()
        .map(|vma| (vma.name.as_deref().unwrap_or(""), vma.region_count(), vma.obstacle()))
        .collect();
    assert_eq!(
        judged,
        [
            ("/opt/my program/bin", 3, Some(Obstacle::File)),
            ("[heap]", 4, None),
            ("", 2, None),
            ("/memfd:shared", 1, Some(Obstacle::Shmem)),
            ("/tmp/line\nend", 0, Some(Obstacle::File)),
            ("[stack]", 2, Some(Obstacle::Stack)),
            ("[vsyscall]", 0, Some(Obstacle::Special)),
        ]
    );
}

#[test]
fn amounts_of_the_made_up_program_are_bytes() {
    let entries = smaps::read(&made_up(), 42).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0].usage.anon_huge_bytes, Some(4 << 20));
    assert_eq!(entries[0].usage.referenced_bytes, Some(4 << 20));
    assert_eq!(entries[0].thp_eligible, Some(true));
    assert_eq!(entries[1].usage.anon_huge_bytes, None);
    assert_eq!(Vma::from(&entries[1]).obstacle(), Some(Obstacle::NoHugePage));
    assert!(entries[2].flags.unwrap().contains(VmFlags::GROWSDOWN));
    let rollup = smaps::read_rollup(&made_up(), 42).unwrap();
    assert_eq!((rollup.rss_bytes, rollup.size_bytes), (Some(8200 << 10), None));
}

#[test]
fn the_made_up_program_is_known_by_its_odd_name() {
    let stat = stat::read(&made_up(), 42).unwrap();
    assert_eq!(
        (stat.comm.as_str(), stat.state, stat.ppid, stat.start_ticks),
        ("a) Z (b", 'S', 1, 4711)
    );
    let status = status::read(&made_up(), 42).unwrap();
    assert_eq!((status.thp_enabled, status.uid), (Some(false), Some((1000, 1001))));
    assert_eq!(status.memory.rss_bytes, Some(8200 << 10));
    let all = select::by_comm(&made_up(), &|name| name.contains('Z')).unwrap();
    assert_eq!(all, [42].into());
    assert_eq!(task::threads(&made_up(), 42).unwrap(), [42, 44].into());
    assert_eq!(task::children(&made_up(), 42).unwrap(), Some([7].into()));
    // The child is a zombie and no member.
    let found = Family::of([42, 7, 999]).look(&made_up()).unwrap().found;
    assert_eq!(found.iter().map(|m| m.pid).collect::<Vec<_>>(), [42]);
    assert_eq!(
        cgroup::read(&made_up(), 42).unwrap()[0].path,
        "/system.slice/my.service"
    );
}

#[test]
fn a_family_is_followed_without_children_files_too() {
    let tree = tempfile::tempdir().unwrap();
    let root = ProcRoot::under(tree.path());
    for (pid, parent) in [(10, 1), (11, 10), (12, 11), (13, 1)] {
        std::fs::create_dir_all(root.of_thread(pid, pid, "")).unwrap();
        let line = format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 4096 1 0\n");
        std::fs::write(root.of_process(pid, "stat"), line).unwrap();
    }
    let mut family = Family::of([10]);
    family.look(&root).unwrap();
    assert_eq!(family.members().map(|m| m.pid).collect::<Vec<_>>(), [10, 11, 12]);
    // The one in the middle ends; its child, adopted by init, stays.
    std::fs::remove_dir_all(root.of_process(11, "")).unwrap();
    let line = "12 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12 4096 1 0\n";
    std::fs::write(root.of_process(12, "stat"), line).unwrap();
    let look = family.look(&root).unwrap();
    assert_eq!(look.gone.iter().map(|m| m.pid).collect::<Vec<_>>(), [11]);
    assert_eq!(family.members().map(|m| m.pid).collect::<Vec<_>>(), [10, 12]);
    // Its PID is used again by a stranger, who is not taken for it.
    std::fs::write(root.of_process(12, "stat"), line.replace(" 12 4096", " 99 4096")).unwrap();
    assert_eq!(family.look(&root).unwrap().gone.len(), 1);
    assert_eq!(family.members().count(), 1);
}

#[test]
fn the_made_up_machine_is_read() {
    let root = made_up();
    assert_eq!(vmstat::read(&root).unwrap().thp_fault_alloc(), Some(7));
    let buddy = buddyinfo::read(&root).unwrap();
    assert_eq!(buddy.free_blocks(), Blocks(1 + 2 * 3 + 4 + 2 * 18));
    assert_eq!(buddy.zones[0].free_blocks(), Blocks(7));
    assert_eq!(meminfo::read(&root).unwrap().available_bytes, Some(23_000_000 << 10));
    assert_eq!(zoneinfo::read(&root).unwrap()[0].low_pages, Some(20));
    assert_eq!(pressure::read(&root).unwrap().unwrap().some.avg10_percent, 1.25);
    assert!(cpuinfo::read(&root).unwrap().has("la57"));
}

#[test]
fn the_owners_of_the_made_up_program_s_huge_pages_are_named() {
    let settings = thp::read(&made_up()).unwrap().unwrap();
    assert_eq!(
        (settings.enabled, settings.huge_page_mode()),
        (Mode::Madvise, Mode::Madvise)
    );
    assert_eq!(
        (settings.shrink_underused, settings.khugepaged.max_ptes_none),
        (None, Some(511))
    );
    assert_eq!(settings.sizes[&(64 << 10)], Mode::Never);
    let machine = Owner::Machine {
        mode: Mode::Madvise,
        own_size: false,
    };
    assert_eq!(
        thp::owners(&made_up(), 42).unwrap(),
        [
            Owner::Process,
            Owner::SwitchedOff {
                mappings: 1,
                bytes: 4 << 20
            },
            Owner::AskedFor {
                mappings: 1,
                bytes: 8 << 20
            },
            machine,
        ]
    );
}

#[test]
fn a_wrong_setting_is_named_with_what_was_expected() {
    let tree = tempfile::tempdir().unwrap();
    let root = ProcRoot::under(tree.path());
    assert_eq!(thp::read(&root).unwrap(), None);
    std::fs::create_dir_all(root.thp("khugepaged")).unwrap();
    std::fs::write(root.thp("enabled"), "always [perhaps] never").unwrap();
    let error = thp::read(&root).unwrap_err().to_string();
    assert!(
        error.ends_with("enabled:1: enabled: expected always, madvise, never or inherit, found 'perhaps'"),
        "{error}"
    );
}

#[test]
fn cgroups_are_found_through_the_mounts_of_a_made_up_machine() {
    let tree = tempfile::tempdir().unwrap();
    let root = ProcRoot::under(tree.path());
    let v1 = root.sys.join("fs/cgroup/systemd");
    let v2 = root.sys.join("fs/cgroup/uni fied");
    for (folder, pids) in [
        (v1.join("system.slice/old.service"), "5\n"),
        (v2.join("system.slice/new.service"), "6\n"),
        (v2.join("system.slice/new.service/worker"), "7\n0\n"),
        (v2.join("user.slice/one/app.service"), "8\n"),
        (v2.join("user.slice/two/app.service"), "9\n"),
        (v2.join("bad"), "x\n"),
    ] {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.procs"), pids).unwrap();
    }
    std::fs::create_dir_all(root.proc.join("self")).unwrap();
    let escaped = v2.display().to_string().replace(' ', "\\040");
    let mounts = format!(
        "1 0 0:1 / {} rw - cgroup cgroup rw,name=systemd\n2 0 0:2 / {escaped} rw - cgroup2 cgroup2 rw\n",
        v1.display()
    );
    std::fs::write(root.proc.join("self/mountinfo"), mounts).unwrap();
    assert_eq!(select::by_unit(&root, "new").unwrap(), [6, 7].into());
    assert_eq!(select::by_unit(&root, "old.service").unwrap(), [5].into());
    assert_eq!(
        select::by_cgroup(&root, Path::new("system.slice/new.service/worker")).unwrap(),
        [7].into()
    );
    let several = select::by_unit(&root, "app").unwrap_err().to_string();
    assert!(
        several.contains("several run") && several.contains("user.slice/one"),
        "{several}"
    );
    let wrong = select::by_cgroup(&root, Path::new("/bad")).unwrap_err().to_string();
    assert!(
        wrong.ends_with("cgroup.procs:1: pid: expected a number, found 'x'"),
        "{wrong}"
    );
    let missing = select::by_unit(&root, "nothing").unwrap_err().to_string();
    assert!(missing.contains("unit 'nothing.service'"), "{missing}");
}

#[test]
fn everything_of_this_machine_can_be_read() {
    let root = ProcRoot::default();
    vmstat::read(&root).unwrap();
    assert!(!buddyinfo::read(&root).unwrap().zones.is_empty());
    assert!(meminfo::read(&root).unwrap().total_bytes.is_some());
    assert!(zoneinfo::read(&root)
        .unwrap()
        .iter()
        .any(|zone| zone.managed_pages > Some(0)));
    pressure::read(&root).unwrap();
    assert!(cpuinfo::read(&root).unwrap().processors > 0);
    mountinfo::read(&root).unwrap();
    thp::read(&root).unwrap();
    let mut read = 0;
    for pid in task::processes(&root).unwrap() {
        let results = [
            stat::read(&root, pid).map(drop),
            status::read(&root, pid).map(drop),
            maps::read(&root, pid).map(drop),
            smaps::read(&root, pid).map(drop),
            smaps::read_rollup(&root, pid).map(drop),
            cgroup::read(&root, pid).map(drop),
            task::children(&root, pid).map(drop),
        ];
        for result in results {
            match result {
                Ok(()) => read += 1,
                Err(error) => assert!(error.is_gone() || error.is_refused(), "{error}"),
            }
        }
    }
    assert!(read > 0);
}

/// Every parser, whatever it says.
fn parse_all(text: &[u8]) {
    let path = Path::new("/proc/made/up");
    if let Ok(mappings) = maps::parse(path, text) {
        for vma in mappings.iter().map(Vma::from) {
            let _ = (vma.obstacles().count(), vma.regions(), vma.can());
        }
    }
    let _ = smaps::parse(path, text);
    let _ = smaps::parse_rollup(path, text);
    let _ = stat::parse(path, text);
    let _ = status::parse(path, text);
    let _ = task::parse_children(path, text);
    let _ = vmstat::parse(path, text);
    if let Ok(buddy) = buddyinfo::parse(path, text) {
        assert!((0.0..=1.0).contains(&buddy.fragmentation()));
        let own = extfrag::parse(path, text).unwrap_or_default();
        let state = mega_linux::blocks::fragmentation::of(&buddy, Some((&own, &own)));
        assert!((0.0..=1.0).contains(&state.unusable_share));
        let computed = mega_linux::blocks::fragmentation::of(&buddy, None);
        assert!(computed.zones.iter().all(|zone| zone.fragmentation_index <= 1.0));
    }
    let _ = extfrag::parse(path, text);
    let _ = meminfo::parse(path, text);
    let _ = zoneinfo::parse(path, text);
    let _ = pressure::parse(path, text);
    let _ = cpuinfo::parse(path, text);
    let _ = mountinfo::parse(path, text);
    let _ = cgroup::parse(path, text);
}

/// Real texts: those of the made-up machine and some of ourselves.
fn samples() -> Vec<Vec<u8>> {
    let names = [
        "42/maps",
        "42/smaps",
        "42/smaps_rollup",
        "42/status",
        "42/stat",
        "42/cgroup",
        "42/task/42/children",
        "vmstat",
        "buddyinfo",
        "meminfo",
        "zoneinfo",
        "pressure/memory",
        "cpuinfo",
    ];
    let ours = [
        "/proc/self/maps",
        "/proc/self/status",
        "/proc/self/stat",
        "/proc/self/mountinfo",
        "/proc/buddyinfo",
    ];
    let made_up = names.iter().map(|name| folder().join("proc").join(name));
    let all = made_up.chain(ours.iter().map(PathBuf::from));
    all.map(|path| std::fs::read(&path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_text_makes_a_reader_panic(text in prop::collection::vec(any::<u8>(), 0..400)) {
        parse_all(&text);
    }

    #[test]
    fn no_words_make_a_reader_panic(text in "([0-9a-f]{0,20}|Node|zone|Rss:|VmFlags:|kB|-|:|,|\\(|\\)|[|]|\\\\[0-9]{1,3}|\n| |avg10=|some|rw-p|18446744073709551615){0,60}") {
        parse_all(text.as_bytes());
    }

    #[test]
    fn no_change_to_a_real_text_makes_a_reader_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let samples = samples();
        let mut text = which.get(&samples).clone();
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        parse_all(&text);
        text.truncate(cut.index(text.len() + 1));
        parse_all(&text);
    }

    #[test]
    fn no_state_file_makes_recovery_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let tree = tempfile::tempdir().unwrap();
        let state = tree.path().join("run");
        let mut knobs = knobs::Knobs::open(ProcRoot::under(tree.path()), &state).unwrap();
        std::fs::write(state.join("knobs/1-1.json"), &text).unwrap();
        let report = knobs.recover().unwrap();
        prop_assert_eq!(report.corrupt.len(), 1);
    }

    #[test]
    fn every_address_pair_is_judged_without_overflow(start in any::<u64>(), end in any::<u64>()) {
        prop_assume!(start < end);
        let text = format!("{start:x}-{end:x} rw-p 0 00:00 0\n");
        let vma = Vma::from(&maps::parse(Path::new("maps"), text.as_bytes()).unwrap()[0]);
        if let Some(regions) = vma.regions() {
            prop_assert!(start <= regions.start && regions.end <= end && regions.start < regions.end);
            prop_assert_eq!((regions.start % (2 << 20), regions.end % (2 << 20)), (0, 0));
        }
    }
}
