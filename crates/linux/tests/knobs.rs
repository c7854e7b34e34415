//! Settings of this machine, changed and put back. These tests take turns: there is one machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mega_linux::knobs::thp::{self, Mode};
use mega_linux::knobs::{fault_size, FaultSize, KnobError, Knobs};
use mega_linux::proc::{smaps, ProcRoot};
use mega_linux::sys::{self, Madvise, Scratch};
use rustix::fd::AsFd;

const HUGE: u64 = 2 << 20;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings that are put back at the end of the test, or none where we may not change them.
fn knobs(folder: &tempfile::TempDir) -> Option<Knobs> {
    let root = ProcRoot::default();
    let knob = root.thp("enabled");
    if std::fs::OpenOptions::new().write(true).open(&knob).is_err() {
        eprintln!("skipped: {} cannot be written, which needs root", knob.display());
        return None;
    }
    Some(Knobs::open(root, folder.path()).unwrap())
}

fn set_size(knobs: &mut Knobs, size: FaultSize) -> bool {
    match fault_size(knobs, size) {
        Ok(()) => true,
        Err(error @ KnobError::Unsupported { .. }) => {
            eprintln!("skipped: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// What huge pages of 2 MB the mapping with this region has, in bytes.
fn huge_bytes(region: u64) -> u64 {
    let entries = smaps::read(&ProcRoot::default(), std::process::id()).unwrap();
    let entry = entries
        .iter()
        .find(|entry| (entry.mapping.start..entry.mapping.end).contains(&region))
        .unwrap();
    entry.usage.anon_huge_bytes.unwrap()
}

fn faults() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/anon_fault_alloc");
    text.ok()?.trim().parse().ok()
}

/// Touches a whole region of new memory. MADV_NORMAL leaves it alone, but keeps it apart from its neighbours.
fn region() -> (Scratch, u64) {
    let mut scratch = Scratch::map(3 * HUGE as usize).unwrap();
    let start = scratch.range().start.next_multiple_of(HUGE);
    scratch.touch(start..start + HUGE, 4096);
    (scratch, start)
}

fn collapse(region: u64) {
    let pidfd = sys::pidfd_open(std::process::id()).unwrap();
    sys::process_madvise(pidfd.as_fd(), region, HUGE, Madvise::Collapse).unwrap();
}

#[test]
fn collapse_makes_huge_pages_whatever_the_fault_size() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let root = ProcRoot::default();
    let Some(mut knobs) = knobs(&folder) else { return };
    let before = thp::read(&root).unwrap().unwrap();
    for size in [FaultSize::Small, FaultSize::Base] {
        if !set_size(&mut knobs, size) {
            return;
        }
        let allocated = faults();
        let (_memory, region) = region();
        assert_eq!(huge_bytes(region), 0, "{size}");
        if size == FaultSize::Small {
            assert!(faults() >= allocated.map(|n| n + 20), "64 KB folios at faults");
        }
        collapse(region);
        assert_eq!(huge_bytes(region), HUGE, "{size}");
    }
    // The global setting at never too.
    knobs.set(&root.thp("enabled"), "never").unwrap();
    let (_memory, region) = region();
    collapse(region);
    assert_eq!(huge_bytes(region), HUGE);
    drop(knobs);
    let after = thp::read(&root).unwrap().unwrap();
    assert_eq!((before.enabled, before.sizes), (after.enabled, after.sizes));
}

#[test]
fn huge_faults_are_huge() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let Some(mut knobs) = knobs(&folder) else { return };
    if !set_size(&mut knobs, FaultSize::Huge) {
        return;
    }
    assert_eq!(thp::read(knobs.root()).unwrap().unwrap().huge_page_mode(), Mode::Always);
    let (_memory, region) = region();
    assert_eq!(huge_bytes(region), HUGE);
}

#[test]
fn a_value_that_the_kernel_refuses_changes_nothing() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let Some(mut knobs) = knobs(&folder) else { return };
    let knob = knobs.root().thp("enabled");
    let before = knobs.get(&knob).unwrap();
    let error = knobs.set(&knob, "sometimes").unwrap_err();
    assert!(error.to_string().contains("cannot write"), "{error}");
    assert_eq!(knobs.get(&knob).unwrap(), before);
    assert!(knobs.restore().unwrap().is_empty());
}

#[test]
fn a_manager_that_is_killed_leaves_what_the_next_puts_back() {
    const CHILD: &str = "MEGA_TEST_KILLED_IN";
    let root = ProcRoot::default();
    let knob = root.thp("khugepaged/scan_sleep_millisecs");
    if let Some(folder) = std::env::var_os(CHILD) {
        let mut knobs = Knobs::open(root, folder.as_ref()).unwrap();
        let value: u64 = knobs.get(&knob).unwrap().parse().unwrap();
        knobs.set(&knob, &(value + 1).to_string()).unwrap();
        let us = rustix::process::getpid();
        rustix::process::kill_process(us, rustix::process::Signal::KILL).unwrap();
        unreachable!();
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let Some(mut knobs) = knobs(&folder) else { return };
    let before: u64 = knobs.get(&knob).unwrap().parse().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_manager_that_is_killed_leaves_what_the_next_puts_back"])
        .env(CHILD, folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    assert_eq!(knobs.get(&knob).unwrap(), (before + 1).to_string());
    assert_eq!(knobs.recover().unwrap().restored, std::slice::from_ref(&knob));
    assert_eq!(knobs.get(&knob).unwrap(), before.to_string());
}
