use super::*;

/// A made-up /sys, and a state folder.
struct Tree {
    _folder: tempfile::TempDir,
    root: ProcRoot,
    state: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = ProcRoot::under(folder.path());
        fs::create_dir_all(&root.sys).unwrap();
        let state = folder.path().join("run/mega");
        Self {
            _folder: folder,
            root,
            state,
        }
    }

    fn knob(&self, name: &str, value: &str) -> PathBuf {
        let path = self.root.sys.join(name);
        fs::write(&path, format!("{value}\n")).unwrap();
        path
    }

    fn knobs(&self) -> Knobs {
        Knobs::open(self.root.clone(), &self.state).unwrap()
    }

    /// Another manager that lives: init, as it was started.
    fn other(&self) -> Knobs {
        let mut manager = Manager::ourselves().unwrap();
        manager.pid = 1;
        manager.start_ticks = crate::proc::stat::read(&ProcRoot::default(), 1).unwrap().start_ticks;
        Knobs::open_as(self.root.clone(), &self.state, manager).unwrap()
    }

    /// What a manager leaves behind that has crashed.
    fn crash(&self, change: impl FnOnce(&mut Knobs)) {
        let mut manager = Manager::ourselves().unwrap();
        manager.start_ticks += 1;
        let mut knobs = Knobs::open_as(self.root.clone(), &self.state, manager).unwrap();
        change(&mut knobs);
        std::mem::forget(knobs);
    }

    fn state_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state.join("knobs")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

fn says(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn what_was_changed_is_put_back_on_drop_and_no_file_stays() {
    let tree = Tree::new();
    let (a, b) = (tree.knob("a", "1"), tree.knob("b", "2"));
    let mut knobs = tree.knobs();
    knobs.set(&a, "10").unwrap();
    knobs.set(&b, "20").unwrap();
    knobs.set(&a, "11").unwrap();
    assert_eq!((says(&a), says(&b)), ("11".into(), "20".into()));
    assert_eq!(tree.state_files().len(), 1);
    drop(knobs);
    assert_eq!((says(&a), says(&b)), ("1".into(), "2".into()));
    assert!(tree.state_files().is_empty());
}

#[test]
fn what_was_changed_is_put_back_when_the_manager_panics() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    let result = std::panic::catch_unwind(|| {
        let mut knobs = tree.knobs();
        knobs.set(&a, "10").unwrap();
        panic!("on purpose");
    });
    assert!(result.is_err());
    assert_eq!(says(&a), "1");
}

#[test]
fn what_a_crashed_manager_left_is_put_back_by_the_next() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| knobs.set(&a, "10").unwrap());
    assert_eq!(says(&a), "10");
    let report = tree.knobs().recover().unwrap();
    assert_eq!(report.restored, std::slice::from_ref(&a));
    assert_eq!(says(&a), "1");
    assert!(tree.state_files().is_empty());
    assert!(tree.knobs().recover().unwrap().is_empty());
}

#[test]
fn two_of_a_process_forget_nothing_of_each_other() {
    let tree = Tree::new();
    let (a, b) = (tree.knob("a", "1"), tree.knob("b", "2"));
    let mut first = tree.knobs();
    first.set(&a, "10").unwrap();
    let mut second = tree.knobs();
    second.set(&b, "20").unwrap();
    assert_eq!(tree.state_files().len(), 2);
    drop(second);
    // Killed now, what the first has changed is still remembered.
    assert_eq!((says(&a), says(&b)), ("10".into(), "2".into()));
    assert_eq!(tree.state_files().len(), 1);
    drop(first);
    assert_eq!(says(&a), "1");
    assert!(tree.state_files().is_empty());
}

#[test]
fn a_new_setting_remembers_the_true_original_behind_a_crash() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| knobs.set(&a, "10").unwrap());
    let mut knobs = tree.knobs();
    knobs.set(&a, "20").unwrap();
    knobs.restore().unwrap();
    assert_eq!(says(&a), "1");
}

#[test]
fn a_crash_between_saving_and_writing_changes_nothing() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| knobs.set(&a, "10").unwrap());
    fs::write(&a, "1\n").unwrap();
    let report = tree.knobs().recover().unwrap();
    assert!(report.left.is_empty());
    assert_eq!(says(&a), "1");
}

#[test]
fn what_somebody_else_changed_is_left_and_reported() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    let mut knobs = tree.knobs();
    knobs.set(&a, "10").unwrap();
    fs::write(&a, "99\n").unwrap();
    let report = knobs.restore().unwrap();
    let left = Left {
        path: a.clone(),
        original: "1".into(),
        current: "99".into(),
    };
    assert_eq!(report.left, [left]);
    assert_eq!(says(&a), "99");
}

#[test]
fn a_second_manager_is_refused_another_value() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    let mut first = tree.other();
    first.set(&a, "10").unwrap();
    let error = tree.knobs().set(&a, "20").unwrap_err();
    assert!(
        error.to_string().ends_with("process 1 holds it at '10' until it ends"),
        "{error}"
    );
    assert_eq!(says(&a), "10");
    first.restore().unwrap();
    assert_eq!(says(&a), "1");
}

#[test]
fn the_last_of_two_managers_puts_the_true_original_back() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    for first_out in [true, false] {
        let (mut first, mut second) = (tree.other(), tree.knobs());
        first.set(&a, "10").unwrap();
        second.set(&a, "10").unwrap();
        assert_eq!(second.held().unwrap().len(), 2);
        let (out, last) = match first_out {
            true => (&mut first, &mut second),
            false => (&mut second, &mut first),
        };
        assert_eq!(out.restore().unwrap().shared, std::slice::from_ref(&a));
        assert_eq!(says(&a), "10");
        assert_eq!(last.restore().unwrap().restored, std::slice::from_ref(&a));
        assert_eq!(says(&a), "1");
    }
}

#[test]
fn choices_in_brackets_are_read_and_only_the_chosen_word_is_kept() {
    let tree = Tree::new();
    let a = tree.knob("a", "always [madvise] never");
    let mut knobs = tree.knobs();
    assert_eq!(knobs.get(&a).unwrap(), "madvise");
    knobs.set(&a, "never").unwrap();
    knobs.restore().unwrap();
    assert_eq!(says(&a), "madvise");
}

#[test]
fn corrupt_state_is_kept_aside_and_reported_and_nothing_is_written() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| knobs.set(&a, "10").unwrap());
    let file = tree.state_files().remove(0);
    let whole = fs::read(&file).unwrap();
    for text in [
        &b""[..],
        b"{",
        b"\xff\xff",
        b"null",
        &whole[..whole.len() / 2],
        br#"{"schema":2,"manager":{"pid":1,"start_ticks":1,"boot":""},"knobs":{}}"#,
    ] {
        fs::write(&file, text).unwrap();
        let report = tree.knobs().recover().unwrap();
        assert_eq!(report.corrupt, [file.with_extension("corrupt")]);
        assert_eq!(fs::read(&report.corrupt[0]).unwrap(), text);
        assert_eq!(says(&a), "10");
    }
}

#[test]
fn a_state_file_cannot_have_us_write_elsewhere() {
    let tree = Tree::new();
    let outside = tree.state.parent().unwrap().join("outside");
    fs::create_dir_all(&tree.state).unwrap();
    fs::write(&outside, "mine\n").unwrap();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| knobs.set(&a, "10").unwrap());
    let file = tree.state_files().remove(0);
    for path in [outside.clone(), tree.root.sys.join("../run/outside")] {
        let text = serde_json::to_string(&serde_json::json!({
            "schema": 1,
            "manager": {"pid": std::process::id(), "start_ticks": 1, "boot": Manager::ourselves().unwrap().boot},
            "knobs": {
                path.to_str().unwrap(): {"original": "evil", "ours": ["mine"]},
                a.to_str().unwrap(): {"original": "1", "ours": ["10"]},
            },
        }));
        fs::write(&file, text.unwrap()).unwrap();
        fs::write(&a, "10\n").unwrap();
        let report = tree.knobs().recover().unwrap();
        assert_eq!((report.corrupt.len(), report.restored.len()), (1, 1), "{report:?}");
        assert_eq!(says(&outside), "mine");
        assert_eq!(says(&a), "1", "what is a setting is put back all the same");
        assert!(tree.knobs().recover().unwrap().is_empty());
    }
    assert!(matches!(
        tree.knobs().set(&outside, "x"),
        Err(KnobError::NotAKnob { .. })
    ));
}

#[test]
fn a_state_of_an_earlier_boot_is_forgotten() {
    let tree = Tree::new();
    let a = tree.knob("a", "1");
    tree.crash(|knobs| {
        knobs.state.manager.boot = "earlier".into();
        knobs.set(&a, "10").unwrap();
    });
    assert!(tree.knobs().recover().unwrap().restored.is_empty());
    assert_eq!(says(&a), "10");
    assert!(tree.state_files().is_empty());
}

#[test]
fn a_folder_that_others_own_or_write_is_not_trusted() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let tree = Tree::new();
    fs::create_dir_all(&tree.state).unwrap();
    fs::set_permissions(&tree.state, fs::Permissions::from_mode(0o777)).unwrap();
    drop(tree.knobs());
    assert_eq!(fs::metadata(&tree.state).unwrap().mode() & 0o022, 0);
    if std::os::unix::fs::chown(&tree.state, Some(12345), None).is_err() {
        eprintln!("skipped the owner: giving a folder away needs root");
        return;
    }
    let error = Knobs::open(tree.root.clone(), &tree.state).unwrap_err();
    assert!(error.to_string().contains("belongs to somebody else"), "{error}");
}

#[test]
fn a_setting_that_is_not_there_is_not_made() {
    let tree = Tree::new();
    let missing = tree.root.sys.join("missing");
    assert!(matches!(tree.knobs().set(&missing, "1"), Err(KnobError::File(_))));
    assert!(!missing.exists());
    assert!(tree.state_files().is_empty());
}

fn sizes(tree: &Tree, sizes: &[(u64, &str)]) -> Vec<PathBuf> {
    let knob = |&(kb, mode): &(u64, &str)| {
        let folder = tree.root.thp(&format!("hugepages-{kb}kB"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("enabled"), mode).unwrap();
        folder.join("enabled")
    };
    sizes.iter().map(knob).collect()
}

#[test]
fn a_fault_size_allows_its_own_size_and_forbids_larger_ones() {
    let tree = Tree::new();
    let all = [(32, "madvise"), (64, "never"), (128, "always"), (2048, "inherit")];
    let paths = sizes(&tree, &all);
    let now = || paths.iter().map(|path| says(path)).collect::<Vec<_>>();
    let mut knobs = tree.knobs();
    fault_size(&mut knobs, FaultSize::Small).unwrap();
    assert_eq!(now(), ["madvise", "always", "never", "never"]);
    fault_size(&mut knobs, FaultSize::Base).unwrap();
    assert_eq!(now(), ["never"; 4]);
    fault_size(&mut knobs, FaultSize::Huge).unwrap();
    assert_eq!(now()[3], "always");
    knobs.restore().unwrap();
    assert_eq!(now(), ["madvise", "never", "always", "inherit"]);
}

#[test]
fn a_kernel_without_sizes_is_told_so() {
    let tree = Tree::new();
    let error = fault_size(&mut tree.knobs(), FaultSize::Small).unwrap_err();
    assert!(error.to_string().contains("no transparent huge pages"), "{error}");
    fs::create_dir_all(tree.root.thp("")).unwrap();
    let error = fault_size(&mut tree.knobs(), FaultSize::Base).unwrap_err();
    assert!(error.to_string().contains("from 6.8 on"), "{error}");
    sizes(&tree, &[(2048, "inherit")]);
    let error = fault_size(&mut tree.knobs(), FaultSize::Small).unwrap_err();
    assert!(
        error.to_string().starts_with("a fault size of 64K is not possible"),
        "{error}"
    );
    assert!("3K".parse::<FaultSize>().is_err());
}

#[test]
fn a_process_is_managed_once() {
    let tree = Tree::new();
    let claims = Claims::open(&tree.state).unwrap();
    let claim = claims.claim(123, 456).unwrap();
    let error = claims.claim(123, 456).unwrap_err();
    let us = std::process::id();
    assert_eq!(
        error.to_string(),
        format!("process 123: already managed by process {us}")
    );
    assert_eq!(claims.list().unwrap(), [(123, us)]);
    // Another process with the same PID is another one.
    let later = claims.claim(123, 789).unwrap();
    drop((claim, later));
    assert!(claims.list().unwrap().is_empty());
    claims.claim(123, 456).unwrap();
}

#[test]
fn the_claim_of_a_manager_that_ended_is_void() {
    let tree = Tree::new();
    let claims = Claims::open(&tree.state).unwrap();
    let claim = claims.claim(123, 456).unwrap();
    let file = tree.state.join("claims/123-456.json");
    let text = fs::read_to_string(&file).unwrap();
    let start = format!("\"start_ticks\": {}", Manager::ourselves().unwrap().start_ticks);
    fs::write(&file, text.replace(&start, "\"start_ticks\": 1")).unwrap();
    let ours = claims.claim(123, 456).unwrap();
    std::mem::forget(claim);
    fs::write(&file, "nonsense").unwrap();
    assert!(claims.list().unwrap().is_empty());
    drop(ours);
}

#[test]
fn a_count_that_the_kernel_left_half_way_is_ours_and_put_back_after_a_crash_and_a_larger_one_is_not() {
    for (left, restored) in [("5", true), ("60", true), ("100", true), ("101", false), ("4", false)] {
        let tree = Tree::new();
        let a = tree.knob("a", "5");
        tree.crash(|knobs| assert_eq!(knobs.raise(&a, 100).unwrap(), 100));
        // As the kernel leaves it where memory is short, or where the manager was killed in the middle of the write.
        fs::write(&a, left).unwrap();
        let done = tree.knobs().recover().unwrap();
        assert_eq!(done.left.is_empty(), restored, "{left}");
        assert_eq!(says(&a), if restored { "5" } else { left }, "{left}");
    }
}

#[test]
fn hugetlb_pages_that_go_with_their_program_are_not_put_back_for_good() {
    let tree = Tree::new();
    let count = tree.knob("nr_hugepages", "3");
    let surplus = tree.knob("surplus_hugepages", "1");
    let mut knobs = tree.knobs();
    assert_eq!(knobs.get(&count).unwrap(), "2");
    knobs.raise(&count, 10).unwrap();
    fs::write(&surplus, "0").unwrap();
    knobs.restore().unwrap();
    assert_eq!(says(&count), "2");
}

#[test]
fn a_write_that_is_left_to_somebody_is_remembered_before_it_is_made_and_read_again() {
    let tree = Tree::new();
    let a = tree.knob("a", "online");
    let mut knobs = tree.knobs();
    let mut remembered = 0;
    let mut write = |path: &Path, value: &str| {
        remembered = tree.state_files().len();
        fs::write(path, value)
    };
    knobs.set_by(&a, "offline", &mut write).unwrap();
    assert_eq!((remembered, says(&a)), (1, "offline".into()));
    let error = knobs.set_by(&a, "gone", &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(error, KnobError::NotKept { .. }), "{error}");
    drop(knobs);
    assert_eq!(says(&a), "online");
}

#[test]
fn a_file_that_was_being_saved_when_its_manager_was_killed_does_not_stay() {
    let tree = Tree::new();
    let mut knobs = tree.knobs();
    fs::write(tree.state.join("knobs/1-2.new"), "{ half").unwrap();
    assert!(knobs.recover().unwrap().is_empty());
    assert!(tree.state_files().is_empty());
}

#[test]
fn max_ptes_none_is_0_or_511_and_what_others_wrote_there_is_put_back() {
    let tree = Tree::new();
    fs::create_dir_all(tree.root.sys.join("khugepaged")).unwrap();
    let path = tree.knob("khugepaged/max_ptes_none", "300");
    let mut knobs = tree.knobs();
    for value in ["1", "64", "255", "256", "510", "512", "", "0x0", " 0"] {
        let refused = knobs.set(&path, value).unwrap_err();
        assert!(matches!(refused, KnobError::Refused { .. }), "{value}: {refused}");
        assert_eq!(says(&path), "300");
    }
    knobs.set(&path, "0").unwrap();
    assert_eq!(says(&path), "0");
    knobs.set(&path, "511").unwrap();
    assert_eq!(says(&path), "511");
    drop(knobs);
    assert_eq!(says(&path), "300");
}
