//! `mega` where mega.ko is loaded: `tests/vm/live` runs this on Debian's kernels. Elsewhere every test says that it is not.
//!
//! One test at a time: each measures the machine's memory.

#[path = "../live/support.rs"]
mod support;
#[allow(dead_code)] // shared with the test program `hazards`, which uses all of it
#[path = "../hazards/tool.rs"]
mod tool;

use std::path::Path;
use std::sync::MutexGuard;
use std::time::Duration;

use mega_core::journal::Event;
use mega_lab::contiguity::{Amount, FragKind, FragOptions, Fragmenter};
use mega_linux::module::Module;
use serde_json::Value;

use support::{addresses, huge_among, Workload, LAB};
use tool::{mega, ready, state_files, Manager};

const SOON: Duration = Duration::from_secs(120);

fn alone() -> Option<MutexGuard<'static, ()>> {
    if let Err(error) = Module::open() {
        eprintln!("SKIPPED: {error}");
        return None;
    }
    ready(1500)
}

fn json(args: &[&str]) -> Value {
    let ended = mega(args);
    assert_eq!(ended.code(), 0, "{args:?}: {}", ended.stderr);
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

fn fragmented(mib: u64) -> Fragmenter {
    let options = FragOptions {
        kind: FragKind::Study,
        amount: Amount::Bytes(mib << 20),
        ..FragOptions::default()
    };
    Fragmenter::start(Path::new(LAB), &options).unwrap()
}

#[test]
fn doctor_says_that_it_is_there_and_what_for() {
    let Some(_alone) = alone() else { return };
    let said = json(&["doctor", "--json"]);
    let findings = said["machine"]["findings"].as_array().unwrap();
    let module = findings.iter().find(|finding| finding["name"] == "module").unwrap();
    assert_eq!(module["status"], "ok", "{module}");
    let detail = module["detail"].as_str().unwrap();
    assert!(
        detail.contains("version 1") && detail.contains("compact, blocks, age, probe"),
        "{detail}"
    );
    for what in [
        "compact chosen blocks",
        "clear accessed bits without side effects",
        "time allocations inside the kernel",
    ] {
        let found = said["capabilities"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["capability"] == what);
        assert_eq!(found.unwrap()["works"], true, "{what}");
    }
}

#[test]
fn compact_empties_the_blocks_that_the_planner_names_and_says_what_became_of_them() {
    let Some(_alone) = alone() else { return };
    let mut fragmenter = fragmented(384);
    let plan = json(&["compact", "--budget", "40M", "--dry-run", "--json"]);
    assert_eq!(
        (plan["way"].as_str(), plan["asked_blocks"].as_u64()),
        (Some("chosen"), Some(20))
    );
    let choices = plan["choices"].as_array().unwrap();
    let benefits: Vec<f64> = choices
        .iter()
        .map(|choice| choice["benefit"].as_f64().unwrap())
        .collect();
    assert!(benefits.is_sorted_by(|a, b| a >= b), "{benefits:?}");
    let line = json(&["compact", "--budget", "40M", "--json"]);
    assert_eq!(
        (line["way"].as_str(), line["asked_blocks"].as_u64()),
        (Some("chosen"), Some(20))
    );
    let freed = line["outcomes"]["freed"].as_u64().unwrap_or(0);
    assert!(freed >= 18, "{line}");
    assert!(line["seen_free_blocks"].as_u64().unwrap() * 10 >= freed * 9, "{line}");
    let text = mega(&["compact", "--budget", "8M"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("by chosen") && text.contains("seen free right afterwards"),
        "{text}"
    );
    fragmenter.verify().unwrap();
    fragmenter.release().unwrap();
    // The kernel's choice from the same beginning: fragmented anew.
    let mut fragmenter = fragmented(384);
    let by_kernel = json(&["compact", "--how", "node", "--budget", "40M", "--json"]);
    assert!(by_kernel["outcomes"].is_null(), "{by_kernel}");
    let each = |line: &Value| {
        let gained = line["after_blocks"].as_f64().unwrap() - line["before_blocks"].as_f64().unwrap();
        (gained, line["moved_pages"].as_f64().unwrap() / gained.max(1.0))
    };
    let ((gained, chosen), (by_node, node)) = (each(&line), each(&by_kernel));
    eprintln!("VM chosen: {gained} blocks, {chosen:.0} pages moved each; node: {by_node}, {node:.0}");
    fragmenter.verify().unwrap();
    fragmenter.release().unwrap();
    assert!(state_files().is_empty());
}

#[test]
fn a_manager_keeps_its_stock_by_chosen_blocks_and_by_the_kernel_where_it_is_told_to() {
    let Some(_alone) = alone() else { return };
    for (how, way) in [("auto", "chosen"), ("chosen", "chosen"), ("node", "node")] {
        // Anew: a quick machine may have its stock after one of them.
        let fragmenter = fragmented(384);
        let args = [
            "--policy=mega",
            "--interval=1s",
            "--cpu-budget=100%",
            "--compact=mega:interval=1s,budget=16M",
            "--compact-how",
            how,
            "--",
            "sleep",
            "10",
        ];
        let managed = Manager::start("run", &args).wait(SOON);
        assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
        let done = managed.lines.iter().find_map(|line| match &line.event {
            Event::Compacted {
                way,
                outcomes,
                seen_free_blocks,
                ..
            } => {
                // Within the time of an order an emulated processor may not get beyond looking.
                let did = way != "chosen" || outcomes.as_ref().is_some_and(|outcomes| outcomes.contains("freed:"));
                did.then(|| (way.clone(), outcomes.clone(), *seen_free_blocks))
            }
            _ => None,
        });
        let (by, outcomes, seen_free) = done.unwrap_or_else(|| panic!("{how}: {:?}", managed.lines));
        assert_eq!(by, way, "{how}");
        if way == "chosen" {
            assert!(
                outcomes.is_some_and(|outcomes| outcomes.contains("freed:")) && seen_free >= Some(1),
                "{:?}",
                managed.lines
            );
            assert!(managed.ended.stderr.contains("(chosen: "), "{}", managed.ended.stderr);
        } else {
            assert_eq!((outcomes, seen_free), (None, None));
        }
        fragmenter.release().unwrap();
    }
}

#[test]
fn hog_allocates_inside_the_kernel() {
    let Some(_alone) = alone() else { return };
    let one = json(&["hog", "--kernel", "--count", "32", "--json"]);
    assert_eq!(
        (one["how"].as_str(), one["obtained"].as_u64()),
        (Some("kernel"), Some(32))
    );
    assert_eq!(
        (one["latencies_ns"].as_array().unwrap().len(), one["stopped"].as_str()),
        (32, Some("count"))
    );
    assert_eq!(one["probe"]["flags"], "reclaim,movable");
    let small = json(&["hog", "--kernel", "--order=0", "--flags=none", "--count=1000", "--json"]);
    assert_eq!(
        (small["obtained"].as_u64(), small["probe"]["order"].as_u64()),
        (Some(1000), Some(0))
    );
    let text = mega(&["hog", "--kernel", "--count", "8"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("8 chunks of 2.0M by the kernel, flags reclaim,movable"),
        "{text}"
    );
    assert!(!text.contains("with all held"), "they are freed by then: {text}");
    assert_eq!(
        mega(&["hog", "--kernel", "--order", "20"]).code(),
        1,
        "higher than any that the kernel has"
    );
}

#[test]
fn with_its_eyes_regions_are_promoted_and_left_as_with_any_others() {
    let Some(_alone) = alone() else { return };
    const REGIONS: usize = 8;
    let (mut workload, ready) = Workload::start(&["kinds", "--regions", "8", "--vmas", "4"]);
    let pid = workload.pid;
    let number = pid.to_string();
    let args = [
        "--policy=mega",
        "--scanner=module",
        "--interval=500ms",
        "--duration=20s",
        "--cpu-budget=100%",
        "--stall-budget=100%",
        &number,
    ];
    let managed = Manager::start("manage", &args).wait(SOON);
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    workload.check();
    let huge = |kind| huge_among(pid, &addresses(&ready, kind));
    assert!(
        huge("full-hot") >= REGIONS - 1,
        "{} of {REGIONS}: {}",
        huge("full-hot"),
        managed.ended.stderr
    );
    assert_eq!(
        (huge("full-cold"), huge("tenth-hot")),
        (0, 0),
        "cold and sparse regions stay as they are"
    );
    let aged = managed
        .lines
        .iter()
        .any(|line| matches!(line.event, Event::Age { regions, refused: 0, .. } if regions > 0));
    assert!(aged, "no accessed bits were cleared");
    assert!(workload.quit().success());
}
