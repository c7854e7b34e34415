//! Where THP is always, `mega run` keeps the command's faults small (PR_THP_DISABLE_EXCEPT_ADVISED, 6.18), and huge pages come all the same
//! where they are promoted or advised.

use std::time::Duration;

use mega_linux::sys::can_except_advised;

use crate::support::{alone, can_run, huge_bytes, huge_pages_everywhere, rss_bytes, wait_until, Workload, MEGA};

const SPARSE: [&str; 5] = ["sparse", "--mib", "768", "--share", "0.1"];
const DENSE: [&str; 3] = ["dense", "--mib", "256"];

/// Whether it can be tried here.
fn can() -> bool {
    let can = can_except_advised();
    if !can {
        eprintln!("SKIPPED: needs PR_THP_DISABLE_EXCEPT_ADVISED of Linux 6.18");
    }
    can && can_run(2 * 1024)
}

#[test]
fn scattered_memory_stays_small_and_dense_memory_becomes_huge_under_thp_always() {
    let _alone = alone();
    if !can() {
        return;
    }
    let _always = huge_pages_everywhere();
    // Stock: ten times as much.
    let (stock, _) = Workload::start(&SPARSE);
    let swollen = rss_bytes(stock.pid);
    assert!(stock.quit().success());
    assert!(swollen > 700 << 20, "stock THP: {} MB", swollen >> 20);

    for prefix in [
        &[MEGA, "run", "--quiet", "--no-agent", "--"][..],
        &[MEGA, "run", "--quiet", "--policy", "mega", "--"],
    ] {
        let (mut sparse, _) = Workload::start_under(prefix, &SPARSE);
        let resident = rss_bytes(sparse.pid);
        assert!(
            resident < 150 << 20,
            "{prefix:?}: {} MB, stock {} MB",
            resident >> 20,
            swollen >> 20
        );
        assert_eq!(huge_bytes(sparse.pid), 0, "{prefix:?}");
        sparse.check();
        assert!(sparse.quit().success());
    }

    // MADV_COLLAPSE passes by, from outside.
    let (mut dense, _) = Workload::start_under(&[MEGA, "run", "--quiet", "--no-agent", "--"], &DENSE);
    let pid = dense.pid;
    let is_huge = || huge_bytes(pid) > 200 << 20;
    assert!(
        wait_until(Duration::from_secs(60), is_huge),
        "{} MB huge",
        huge_bytes(pid) >> 20
    );
    dense.check();
    assert!(dense.quit().success());

    // Advice passes by, from inside.
    let advised = [&DENSE[..], &["--thp", "advise"]].concat();
    let (mut dense, _) = Workload::start_under(&[MEGA, "run", "--quiet", "--policy", "mega", "--"], &advised);
    assert!(huge_bytes(dense.pid) > 200 << 20);
    dense.check();
    assert!(dense.quit().success());
}

#[test]
fn who_wants_huge_faults_has_them() {
    let _alone = alone();
    if !can() {
        return;
    }
    let _always = huge_pages_everywhere();
    for prefix in [
        &[MEGA, "run", "--quiet", "--no-agent", "--for", "throughput", "--"][..],
        &[MEGA, "run", "--quiet", "--policy", "trim", "--"],
        &[MEGA, "run", "--quiet", "--dry-run", "--"],
    ] {
        let (dense, _) = Workload::start_under(prefix, &DENSE);
        assert!(
            huge_bytes(dense.pid) > 200 << 20,
            "{prefix:?}: {} MB",
            huge_bytes(dense.pid) >> 20
        );
        assert!(dense.quit().success());
    }
}
