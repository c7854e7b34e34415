//! `--fault-size`: what a fault maps, while the policy decides about 2 MB; and the settings are put back.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mega_linux::proc::ProcRoot;

use crate::child::{self, What};
use crate::support::{addresses, alone, can_run, huge_among, rss_bytes, wait_until, MEGA};

const MIB: usize = 128;
const REGIONS: usize = MIB / 2;

/// Every setting of a page size, by its file.
fn settings() -> BTreeMap<PathBuf, String> {
    let folder = ProcRoot::default().thp("");
    let sizes = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = sizes.filter(|path| path.is_dir()).map(|path| path.join("enabled"));
    let all = files.chain([ProcRoot::default().thp("enabled")]);
    all.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)))
        .collect()
}

/// Faults that got a folio of this size since boot; none where the kernel does not count.
fn faults(kb: u64) -> Option<u64> {
    let path = ProcRoot::default().thp(&format!("hugepages-{kb}kB/stats/anon_fault_alloc"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn can_set_sizes() -> bool {
    let can = ProcRoot::default().thp("hugepages-64kB/enabled").exists();
    if !can {
        eprintln!("SKIPPED: this kernel has no settings per page size (6.8)");
    }
    can
}

/// `mega run --fault-size SIZE` with these options before a program of 128 MB.
fn run_with<'a>(size: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [
        &[
            MEGA,
            "run",
            "-q",
            "--fault-size",
            size,
            "--cpu-budget",
            "50%",
            "--stall-budget",
            "50%",
        ],
        options,
        &["--"],
    ]
    .concat()
}

#[test]
fn regions_of_64_kb_folios_are_promoted_and_demoted_like_any_other() {
    let _alone = alone();
    if !can_run(1024) || !can_set_sizes() {
        return;
    }
    let (before, counted) = (settings(), faults(64));
    let prefix = run_with("64K", &["--policy", "mega", "--interval", "300ms"]);
    let (mut program, ready) = child::start(&prefix, What::Plain, MIB);
    let all = addresses(&ready, "all");
    if let (Some(before), Some(after)) = (counted, faults(64)) {
        let wanted = (MIB as u64) << 20 >> 16;
        assert!(
            after - before >= wanted * 95 / 100,
            "{} of {wanted} faults mapped 64 KB",
            after - before
        );
    }
    assert_ne!(settings(), before, "the settings are changed while it runs");
    let promoted = wait_until(Duration::from_secs(20), || huge_among(program.pid, &all) == REGIONS);
    assert!(promoted, "{} of {REGIONS} are huge", huge_among(program.pid, &all));
    program.check();

    // Most of it is cleared: contents that nobody needs go back.
    let rss = rss_bytes(program.pid);
    program.send("zero 400");
    program.wait_event("zeroed", Duration::from_secs(10));
    let demoted = wait_until(Duration::from_secs(20), || huge_among(program.pid, &all) == 0);
    assert!(demoted, "{} of {REGIONS} are still huge", huge_among(program.pid, &all));
    let returned = rss - rss_bytes(program.pid);
    let waste = REGIONS as u64 * 400 * 4096;
    eprintln!("64K: {} of {} MB given back", returned >> 20, waste >> 20);
    assert!(returned >= waste / 100 * 98, "{returned} of {waste} bytes came back");
    program.check();
    assert!(program.quit().success());
    assert_eq!(settings(), before, "the settings are put back");
}

#[test]
fn faults_map_base_pages_or_huge_pages_as_asked() {
    let _alone = alone();
    if !can_run(1024) || !can_set_sizes() {
        return;
    }
    let before = settings();
    // A policy that does nothing in this time, so that only faults count.
    let idle = ["--policy", "mega", "--interval", "60s"];
    for (size, huge) in [("4K", 0), ("2M", REGIONS)] {
        let counted = faults(64);
        let (mut program, ready) = child::start(&run_with(size, &idle), What::Plain, MIB);
        let found = huge_among(program.pid, &addresses(&ready, "all"));
        // Under 2M a block may be missing.
        assert!(found.abs_diff(huge) <= huge / 20, "{size}: {found} regions are huge");
        if size == "4K" {
            let few = counted
                .zip(faults(64))
                .is_none_or(|(before, after)| after - before < 100);
            assert!(few, "4K maps no larger folios");
        }
        program.check();
        assert!(program.quit().success());
        assert_eq!(settings(), before, "{size}: the settings are put back");
    }
}
