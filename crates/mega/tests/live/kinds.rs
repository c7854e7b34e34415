//! Must hold 1: four kinds of regions, each treated as it should be.

use std::time::Duration;

use crate::support::{addresses, alone, can_run, huge_among, rss_bytes, Manager, Workload};

const REGIONS: usize = 64;

/// The four kinds under policy `mega`: promoted, left alone, left alone, and given back.
fn four_kinds(vmas: usize, fork: bool) {
    let _alone = alone();
    if !can_run(3 * 1024) {
        return;
    }
    let regions = REGIONS.to_string();
    let (mut workload, ready) =
        Workload::start(&["kinds", "--regions", &regions, "--vmas", &vmas.to_string(), "--mix"]);
    assert_eq!(ready["collapse_failed"], 0, "{ready}");
    let of = |kind| addresses(&ready, kind);
    let pid = workload.pid;
    let before = rss_bytes(pid);
    assert_eq!(huge_among(pid, &of("huge-waste")), REGIONS);

    let manager = Manager::start(&["--interval", "1s", &pid.to_string()]);
    if fork {
        std::thread::sleep(Duration::from_secs(3));
        workload.send("fork 8");
        workload.wait_event("forked", Duration::from_secs(5));
        workload.check();
        let exited = workload.wait_event("child-exited", Duration::from_secs(60));
        assert_eq!(exited["ok"], true, "{exited}");
    }
    std::thread::sleep(Duration::from_secs(20));
    workload.check();
    let managed = manager.stop();
    assert!(managed.status.success());
    assert!(
        managed.scans() >= 12,
        "the history of ten scans must fill: {}",
        managed.scans()
    );

    let hot = huge_among(pid, &of("full-hot"));
    assert!(
        hot * 100 >= REGIONS * 99,
        "{hot} of {REGIONS} full and hot regions are huge: {}",
        managed.summary
    );
    assert_eq!(huge_among(pid, &of("full-cold")), 0, "cold regions were promoted");
    assert_eq!(huge_among(pid, &of("tenth-hot")), 0, "sparse regions were promoted");
    assert_eq!(
        huge_among(pid, &of("huge-waste")),
        0,
        "wasteful huge pages were not demoted"
    );
    let given_back = before.saturating_sub(rss_bytes(pid));
    let waste = REGIONS as u64 * 502 * 4096;
    assert!(
        given_back * 100 >= waste * 99,
        "{given_back} of {waste} wasted bytes came back"
    );
    workload.check();
    assert!(workload.quit().success());
}

#[test]
fn each_kind_of_region_is_treated_as_it_should_be() {
    four_kinds(4, false);
}

#[test]
fn each_kind_is_treated_so_when_spread_over_a_hundred_mappings() {
    four_kinds(100, false);
}

#[test]
fn each_kind_is_treated_so_across_a_fork() {
    four_kinds(4, true);
}
