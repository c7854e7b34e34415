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

#[test]
fn three_parts_run_at_once_and_merged_are_the_sweep_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    sweep(folder.path(), &["-q", "-o", &at("whole")]).done();
    let file = at("sweep.json");
    let (parts, files) = (["1/3", "2/3", "3/3"], ["a", "b", "c"].map(at));
    let shard = |i: usize| command(&["shard", &file, parts[i], "-o", &files[i], "--threads", "1"]);
    // As a task runner would; the third is killed on its way, which leaves nothing, and is done again.
    let children: Vec<_> = (0..2).map(|i| shard(i).spawn().unwrap()).collect();
    let mut killed = shard(2).spawn().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let merge = |files: &[String], into: &str| {
        let words = ["merge", "-o", into]
            .into_iter()
            .chain(files.iter().map(String::as_str));
        sim(&words.collect::<Vec<_>>())
    };
    merge(&files[..2], &at("missing")).one_line(1, &["shards are missing: 1 of 3: 3"]);
    crate::Ended(shard(2).output().unwrap()).done();
    let before = fs::metadata(&files[2]).unwrap().modified().unwrap();
    let again = crate::Ended(shard(2).output().unwrap()).done();
    assert!(again.stderr().contains("done already"), "{}", again.stderr());
    assert_eq!(fs::metadata(&files[2]).unwrap().modified().unwrap(), before);

    merge(&files, &at("merged")).done();
    let table = |name: &str| fs::read(folder.path().join(name).join("points.csv")).unwrap();
    assert!(table("merged") == table("whole"), "the same bytes");
    let record = |name: &str| {
        let mut record = crate::folder::read(&folder.path().join(name)).unwrap_or_else(|e| panic!("{e}"));
        record.settings.command = String::new();
        crate::without_times(record)
    };
    assert_eq!(record("merged"), record("whole"));
}
