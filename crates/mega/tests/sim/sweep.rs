//! `mega sim sweep`: whole, in shards, stopped and resumed: the same bytes.

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
fn shards_and_a_killed_sweep_leave_the_same_bytes_as_a_whole_one() {
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
    let expected = table("whole");
    assert_eq!(expected.lines().count(), POINTS + 1);
    let header = expected.lines().next().unwrap();
    assert!(
        header.starts_with("point,workload,memory_bytes,fragment,seed,system,failed,"),
        "{header}"
    );
    assert!(header.split(',').any(|name| name == "ops_per_s"));

    for shard in ["2/3", "3/3", "1/3"] {
        sweep(
            folder.path(),
            &["-q", "-o", at("shards").to_str().unwrap(), "--shard", shard],
        )
        .done();
    }
    let shards = (1..=3).map(|i| fs::read_to_string(at("shards").join(format!("points-{i}-of-3.csv"))).unwrap());
    let mut lines: Vec<String> = shards
        .flat_map(|text| text.lines().skip(1).map(str::to_string).collect::<Vec<_>>())
        .collect();
    lines.sort_by_key(|line| line.split(',').next().unwrap().parse::<usize>().unwrap());
    assert!(expected.lines().skip(1).eq(lines.iter().map(String::as_str)));
    let joined = sweep(folder.path(), &["-o", at("shards").to_str().unwrap()]).done();
    assert!(joined
        .stderr()
        .contains(&format!("{POINTS} of {POINTS} points are done already")));
    assert!(table("shards") == expected);

    // Stopped, killed, and brought to its end.
    let killed = at("killed");
    for (signal, after) in [(Signal::INT, 3), (Signal::KILL, 8)] {
        let file = folder.path().join("sweep.json");
        let mut child = command(&[
            "sweep",
            file.to_str().unwrap(),
            "-q",
            "--threads",
            "1",
            "-o",
            killed.to_str().unwrap(),
        ])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
        let results = killed.join("results.jsonl");
        let end = Instant::now() + Duration::from_secs(60);
        while fs::read_to_string(&results).map_or(0, |text| text.lines().count()) <= after {
            assert!(
                Instant::now() < end && child.try_wait().unwrap().is_none(),
                "it ended before it was stopped"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        if signal == Signal::INT {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert_eq!(ended.status.code(), Some(1), "{said}");
            assert!(
                said.contains("stopped after") && said.contains("the same command goes on"),
                "{said}"
            );
            assert!(killed.join("points.csv").is_file() && !killed.join("report.html").exists());
        }
    }
    let resumed = sweep(folder.path(), &["-o", killed.to_str().unwrap()]).done();
    assert!(resumed.stderr().contains("are done already"), "{}", resumed.stderr());
    assert!(table("killed") == expected);
}

#[test]
fn a_changed_file_is_refused_and_anew_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sweep.json");
    let out = folder.path().join("out");
    let run = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        sim(&[
            &["sweep", file.to_str().unwrap(), "-q", "-o", out.to_str().unwrap()],
            more,
        ]
        .concat())
    };
    let small = r#"{"systems": ["base"], "workloads": [{"program": "touch", "mib": 8}], "memory": ["64M"]}"#;
    run(small, &[]).done();
    let changed = small.replace("64M", "128M");
    run(&changed, &[]).one_line(2, &["results.jsonl", "another sweep", "--anew"]);
    run(&changed, &["--anew"]).done();
    // The last line cut in two.
    let results = out.join("results.jsonl");
    let text = fs::read_to_string(&results).unwrap();
    fs::write(&results, &text[..text.len() - 10]).unwrap();
    let ended = sim(&["sweep", file.to_str().unwrap(), "-o", out.to_str().unwrap()]).done();
    assert!(
        ended.stderr().contains("was not written to its end: dropped"),
        "{}",
        ended.stderr()
    );
    assert_eq!(fs::read_to_string(&results).unwrap(), text);
}

#[test]
fn a_dry_run_names_the_points_and_runs_none() {
    let folder = tempfile::tempdir().unwrap();
    let ended = sweep(folder.path(), &["--dry-run", "--shard", "1/8"]).done();
    let text = ended.stdout();
    assert_eq!(text.lines().count(), POINTS / 8);
    assert_eq!(text.lines().next(), Some("0: chunks, base, 192M, none, seed 1"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the file");
}
