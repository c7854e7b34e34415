//! Memory that is not to be managed like any other: each kind treated as documented, and its contents sacred.

use std::time::Duration;

use mega_core::action::Outcome;
use mega_core::journal::Event;
use mega_core::observe::Why;
use mega_core::units::HUGE_PAGE_BYTES;
use mega_linux::proc::ProcRoot;
use mega_linux::process::Process;
use mega_linux::sys::{self, Madvise};

use crate::child::{self, What};
use crate::support::{
    addresses, alone, can_run, huge_among, huge_bytes, rss_bytes, wait_until, Managed, Manager, Workload,
};

const MIB: usize = 64;
const REGIONS: usize = MIB / 2;

/// Scans follow each other fast, so that a full history takes three seconds.
fn manage(pid: i32, policy: &str, seconds: u64) -> Managed {
    let limit = format!("{seconds}s");
    Manager::start(&[
        "--policy",
        policy,
        "--interval",
        "300ms",
        "--cpu-budget",
        "50%",
        "--stall-budget",
        "50%",
        "--duration",
        &limit,
        &pid.to_string(),
    ])
    .finish()
}

/// Actions that were carried out or tried on a process: done, and not.
fn tried(managed: &Managed) -> (usize, usize) {
    let outcomes = managed.lines.iter().filter_map(|line| match line.event {
        Event::Outcome { outcome, .. } => Some(outcome == Outcome::Done),
        _ => None,
    });
    let (done, not): (Vec<_>, Vec<_>) = outcomes.partition(|done| *done);
    (done.len(), not.len())
}

/// Regions that the scans saw.
fn most_regions(managed: &Managed) -> u64 {
    let seen = managed.lines.iter().filter_map(|line| match line.event {
        Event::Scan { regions, .. } => Some(regions),
        _ => None,
    });
    seen.max().unwrap()
}

#[test]
fn locked_memory_is_promoted_by_what_is_mapped_and_never_demoted() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let (mut program, ready) = child::start(&[], What::Locked, MIB);
    let all = addresses(&ready, "all");
    assert_eq!((all.len(), huge_among(program.pid, &all)), (REGIONS, 0));
    // The kernel clears no accessed bits of locked memory, so nobody knows how much of it is used: `mega` leaves it alone.
    assert_eq!(tried(&manage(program.pid, "mega", 6)), (0, 0));
    let managed = manage(program.pid, "ingens", 3);
    assert_eq!(huge_among(program.pid, &all), REGIONS, "{}", managed.summary);
    let managed = manage(program.pid, "base", 2);
    assert_eq!(huge_among(program.pid, &all), REGIONS, "{}", managed.summary);
    assert_eq!(tried(&managed), (0, 0), "nothing is tried that the kernel refuses");
    program.check();
    assert!(program.quit().success());
}

#[test]
fn what_others_collapse_is_told_from_what_we_promote() {
    const BY_OTHERS: u64 = 8;
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let collapsed = |managed: &Managed| -> u64 {
        let each = managed.lines.iter().filter_map(|line| match line.event {
            Event::Collapsed { regions, .. } => Some(regions),
            _ => None,
        });
        each.sum()
    };
    let (mut program, ready) = child::start(&[], What::Locked, MIB);
    let all = addresses(&ready, "all");
    let manager = Manager::start(&[
        "--policy",
        "ingens",
        "--interval",
        "300ms",
        "--dry-run",
        &program.pid.to_string(),
    ]);
    assert!(wait_until(Duration::from_secs(10), || manager.scans_so_far() >= 3));
    let process = Process::open(&ProcRoot::default(), u32::try_from(program.pid).unwrap()).unwrap();
    for &address in &all[..BY_OTHERS as usize] {
        sys::process_madvise(process.pidfd(), address, HUGE_PAGE_BYTES, Madvise::Collapse).unwrap();
    }
    let scans = manager.scans_so_far();
    assert!(wait_until(Duration::from_secs(10), || manager.scans_so_far() >= scans + 3));
    let managed = manager.stop();
    assert_eq!(collapsed(&managed), BY_OTHERS, "{}", managed.summary);
    assert_eq!(managed.summary["collapsed_by_others"], BY_OTHERS);
    let managed = manage(program.pid, "ingens", 3);
    assert_eq!(huge_among(program.pid, &all), REGIONS, "{}", managed.summary);
    assert_eq!(
        (collapsed(&managed), tried(&managed).0),
        (0, REGIONS - BY_OTHERS as usize)
    );
    program.check();
    assert!(program.quit().success());
}

#[test]
fn memory_with_madv_nohugepage_is_never_promoted_and_may_be_demoted() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let (mut program, ready) = child::start(&[], What::NoHuge, MIB);
    for policy in ["mega", "ingens", "khugepaged"] {
        let managed = manage(program.pid, policy, 5);
        assert!(most_regions(&managed) >= REGIONS as u64);
        assert_eq!(tried(&managed), (0, 0), "{policy}");
    }
    assert_eq!(huge_among(program.pid, &addresses(&ready, "all")), 0);
    program.check();
    assert!(program.quit().success());

    let (mut program, ready) = child::start(&[], What::NoHugeAfterwards, MIB);
    let all = addresses(&ready, "all");
    assert_eq!(huge_among(program.pid, &all), REGIONS);
    let managed = manage(program.pid, "base", 3);
    assert_eq!(huge_among(program.pid, &all), 0, "{}", managed.summary);
    program.check();
    assert!(program.quit().success());
}

#[test]
fn a_process_that_disabled_thp_is_named_and_left_alone() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let (mut program, ready) = child::start(&[], What::Prctl, MIB);
    for policy in ["mega", "ingens", "khugepaged"] {
        let managed = manage(program.pid, policy, 5);
        assert_eq!(tried(&managed), (0, 0), "{policy}");
        let named = |event: &Event| matches!(event, Event::Notice { text } if text.contains("PR_SET_THP_DISABLE"));
        let notices = managed.lines.iter().filter(|line| named(&line.event)).count();
        assert_eq!(notices, 1, "{policy} says so once");
    }
    assert_eq!(huge_among(program.pid, &addresses(&ready, "all")), 0);
    program.check();
    assert!(program.quit().success());
}

#[test]
fn files_and_shared_memory_and_small_mappings_are_not_touched() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    for what in [What::Memfd, What::File, What::Small] {
        let (mut program, _) = child::start(&[], what, MIB);
        let (rss, huge) = (rss_bytes(program.pid), huge_bytes(program.pid));
        assert!(rss >= (MIB as u64) << 20, "{what:?}");
        for policy in ["mega", "ingens", "khugepaged", "base"] {
            let managed = manage(program.pid, policy, 2);
            assert!(most_regions(&managed) < 8, "{what:?}: {}", most_regions(&managed));
            let failed = managed.lines.iter().filter(|line| {
                matches!(
                    line.event,
                    Event::Outcome {
                        outcome: Outcome::Failed(_) | Outcome::Ineligible(Why::Refused),
                        ..
                    }
                )
            });
            assert_eq!(failed.count(), 0, "{what:?} under {policy}");
        }
        // Its heap may have become huge, and nothing else of it.
        assert!(huge_bytes(program.pid) <= huge + (8 << 20), "{what:?}");
        program.check();
        assert!(program.quit().success());
    }
}

#[test]
fn clearing_the_accessed_bits_of_three_gigabytes_splits_no_huge_page() {
    let _alone = alone();
    if !can_run(5 * 1024) {
        return;
    }
    const BIG_MIB: u64 = 3072;
    let mib = BIG_MIB.to_string();
    std::fs::write("/proc/sys/vm/compact_memory", "1").unwrap();
    let (mut program, _) = Workload::start(&["dense", "--mib", &mib, "--thp", "advise", "--hot-ms", "700"]);
    let before = huge_bytes(program.pid);
    assert!(
        before >= (BIG_MIB << 20) / 100 * 95,
        "{} MB of {BIG_MIB} are huge",
        before >> 20
    );
    let manager = Manager::start(&[
        "--policy",
        "mega",
        "--set",
        "udem=0%",
        "--interval",
        "500ms",
        &program.pid.to_string(),
    ]);
    let often = wait_until(Duration::from_secs(90), || manager.agings_so_far() >= 10);
    let managed = manager.stop();
    assert!(often, "{}", managed.summary);
    let cleared: Vec<u64> = managed
        .lines
        .iter()
        .filter_map(|line| match line.event {
            Event::Age { regions, .. } => Some(regions),
            _ => None,
        })
        .collect();
    // The last one may have been cut short by the stop.
    let whole = &cleared[..cleared.len().min(10)];
    assert!(
        whole.len() == 10 && whole.iter().all(|n| *n >= BIG_MIB / 2 / 100 * 95),
        "{cleared:?}"
    );
    let demoted = managed.summary["demoted"].as_u64().unwrap();
    assert_eq!(
        (demoted, managed.summary["failed"].as_u64().unwrap()),
        (0, 0),
        "{}",
        managed.summary
    );
    let kept = wait_until(Duration::ZERO, || huge_bytes(program.pid) >= before);
    assert!(
        kept,
        "{} of {} MB are still huge",
        huge_bytes(program.pid) >> 20,
        before >> 20
    );
    program.check();
    assert!(program.quit().success());
}
