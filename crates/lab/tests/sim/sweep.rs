//! `mega sim sweep`: its table and report, and what is left of a stopped one.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};

use crate::{command, sim};

/// Points that take some tens of milliseconds each.
const SWEEP: &str = r#"{
    "scenario": {"machine": {"tlb": null}, "interval": "10ms"},
    "systems": ["base", "thp-always", "mega"],
    "parameters": {"uprom": ["30%", "70%"]},
    "workloads": [{"program": "chunks", "mib": 96, "chunk_mib": 8, "time_ns": 50000000}, {"program": "touch", "mib": 64}],
    "memory": ["192M", "256M"],
    "fragment": ["none", "60%"],
    "seeds": [1, 2]
}"#;
const POINTS: usize = 4 * 2 * 2 * 2 * 2;

fn sweep(folder: &Path, more: &[&str]) -> crate::Ended {
    let file = folder.join("sweep.json");
    fs::write(&file, SWEEP).unwrap();
    sim(&[&["sweep", file.to_str().unwrap()], more].concat())
}

#[test]
fn a_sweep_leaves_a_table_and_a_report_and_a_stopped_one_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let table = |name: &str| fs::read_to_string(at(name).join("points.csv")).unwrap();
    let whole = sweep(folder.path(), &["-o", at("whole").to_str().unwrap()]).done();
    assert!(
        whole.stdout().contains(&format!("{POINTS} of {POINTS} points: ")),
        "{}",
        whole.stdout()
    );
    assert!(whole.stdout().contains("report: ") && at("whole").join("report.html").is_file());
    assert!(at("whole").join("result.json").is_file());
    let expected = table("whole");
    assert_eq!(expected.lines().count(), POINTS + 1);
    let header = expected.lines().next().unwrap();
    assert!(
        header.starts_with("point,workload,memory_bytes,fragment,seed,system,failed,"),
        "{header}"
    );
    assert!(header.split(',').any(|name| name == "ops_per_s"));
    sweep(
        folder.path(),
        &["-q", "--threads", "1", "-o", at("alone").to_str().unwrap()],
    )
    .done();
    assert!(table("alone") == expected, "the same bytes on one thread");

    let file = folder.path().join("sweep.json");
    let mut child = command(&[
        "sweep",
        file.to_str().unwrap(),
        "-q",
        "--threads",
        "1",
        "-o",
        at("stopped").to_str().unwrap(),
    ])
    .stdout(std::process::Stdio::null())
    .stderr(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !at("stopped").is_dir() {
        assert!(
            Instant::now() < end && child.try_wait().unwrap().is_none(),
            "it ended before it was stopped"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped after"), "{said}");
    assert!(expected.starts_with(&table("stopped")), "the first points");
    assert!(!at("stopped").join("report.html").exists());
}

#[test]
fn a_dry_run_names_the_points_and_runs_none() {
    let folder = tempfile::tempdir().unwrap();
    let ended = sweep(folder.path(), &["--dry-run"]).done();
    let text = ended.stdout();
    assert_eq!(text.lines().count(), POINTS);
    assert_eq!(text.lines().next(), Some("0: chunks, base, 192M, none, seed 1"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the file");
}
