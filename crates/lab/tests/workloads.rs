//! The workloads as the processes that other crates run: events, commands, exit status, no orphans.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

struct Workload {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Workload {
    fn start(args: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mega-workload"))
            .args(args.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
    }

    /// The next event of this name; others are skipped.
    fn wait_for(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "no event {name} before the end"
            );
            let v: Value = serde_json::from_str(&line).expect("each line is JSON");
            assert!(v["t_ns"].as_u64().unwrap() > 0);
            if v["event"] == name {
                return v;
            }
        }
    }

    fn exit_code(mut self) -> Option<i32> {
        drop(self.input.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn gups_waits_runs_reports_and_checks() {
    let mut w = Workload::start("gups --mib 16 --seconds 0.5 --report 0.2s --check --wait --pin 0");
    let ready = w.wait_for("ready");
    assert_eq!(ready["areas"][0]["bytes"], 16 << 20);
    assert!(ready["first_touch_ns"].as_u64().unwrap() > 0);
    w.say("go");
    assert!(w.wait_for("report")["updates_per_s"].as_f64().unwrap() > 0.0);
    assert!(w.wait_for("result")["updates"].as_u64().unwrap() > 0);
    assert_eq!(w.wait_for("checked")["ok"], true);
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn gups_of_one_seed_and_number_of_updates_ends_by_itself() {
    let mut w = Workload::start("gups --mib 4 --updates 100000 --check");
    assert_eq!(w.wait_for("result")["updates"], 100_000);
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn store_serves_and_verifies_everything() {
    let mut w = Workload::start("store --dense-mib 8 --sparse-mib 48 --seconds 1.2 --grow 200 --zipf 0.9");
    let ready = w.wait_for("ready");
    assert_eq!(ready["areas"].as_array().unwrap().len(), 3);
    assert!(ready["touch"]["count"].as_u64().unwrap() > 2048);
    let report = w.wait_for("report");
    assert!(report["op"]["p999_ns"].as_u64().unwrap() >= report["op"]["p50_ns"].as_u64().unwrap());
    let checked = w.wait_for("checked");
    assert_eq!(checked["ok"], true);
    assert_eq!(checked["values"], 8192);
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn kinds_are_checked_forked_and_located() {
    let mut w = Workload::start("kinds --regions 2 --vmas 3 --mix --write");
    let ready = w.wait_for("ready");
    assert_eq!(ready["areas"].as_array().unwrap().len(), 3);
    for kind in ["full-hot", "full-cold", "tenth-hot", "huge-waste"] {
        let starts = ready["kinds"][kind].as_array().unwrap();
        assert_eq!(starts.len(), 2);
        assert!(starts.iter().all(|s| s.as_u64().unwrap() % (2 << 20) == 0));
    }
    if ready["collapse_failed"] == 0 {
        assert_eq!(ready["huge_bytes"], 2 * (2 << 20), "only huge-waste is huge: {ready}");
    }
    w.say("fork 0.5");
    w.wait_for("forked");
    std::thread::sleep(Duration::from_millis(300));
    w.say("check");
    let checked = w.wait_for("checked");
    assert_eq!(checked["ok"], true);
    assert!(checked["sweeps"].as_u64().unwrap() > 0);
    assert_eq!(w.wait_for("child-exited")["ok"], true);
    w.say("where");
    assert_eq!(w.wait_for("where")["kinds"], ready["kinds"]);
    w.say("check-all");
    assert_eq!(w.wait_for("checked")["pages"], 2 * 4 * 512);
    w.say("quit");
    w.wait_for("result");
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn holders_hold_and_check() {
    for args in ["sparse --mib 48", "dense --mib 8 --write"] {
        let mut w = Workload::start(args);
        assert!(w.wait_for("ready")["rss_bytes"].as_u64().unwrap() > 8_000_000, "{args}");
        w.say("check");
        assert_eq!(w.wait_for("checked")["ok"], true, "{args}");
        assert_eq!(w.exit_code(), Some(0), "the end of input means quit");
    }
}

#[test]
fn storm_with_forks_and_killed_processes_finds_no_corruption() {
    let mut w = Workload::start("storm --seconds 3 --threads 2 --memory-mib 64 --seed 7");
    let result = w.wait_for("result");
    assert_eq!(result["ok"], true, "{result}");
    for name in ["fork", "process"] {
        assert!(result["done"][name].as_u64().unwrap() > 0, "{name}: {result}");
    }
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn churn_and_stride_time_their_rounds() {
    let mut w = Workload::start("churn --mib 16 --times 3 --whole");
    assert_eq!(w.wait_for("result")["round_ns"]["count"], 3);
    assert_eq!(w.exit_code(), Some(0));
    let mut w = Workload::start("stride --mib 16 --times 2");
    assert_eq!(w.wait_for("report")["visits"], 2 << 20);
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn with_wait_first_nothing_is_mapped_before_go_nor_freed_before_a_line() {
    let mut w = Workload::start("touch --mib 32 --wait-first");
    let born = w.wait_for("born");
    let path = format!("/proc/{}/statm", born["pid"]);
    // Size and resident size in MB.
    let megabytes = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let pages: Vec<u64> = text.split_whitespace().map(|f| f.parse().unwrap()).collect();
        [pages[0] / 256, pages[1] / 256]
    };
    std::thread::sleep(Duration::from_millis(100));
    let before = megabytes();
    assert!(before[1] < 16);
    w.say("go");
    let result = w.wait_for("result");
    assert!(result["metrics"]["first_touch_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(result["latency"]["touch"]["count"], 8192);
    std::thread::sleep(Duration::from_millis(100));
    let held = megabytes();
    assert!(
        held[0] >= before[0] + 32 && held[1] >= before[1] + 30,
        "{before:?} {held:?}"
    );
    w.say("quit");
    assert_eq!(w.wait_for("checked")["ok"], true);
    assert_eq!(w.exit_code(), Some(0));
}

#[test]
fn with_wait_first_quit_or_the_end_of_input_ends_it_before_it_began() {
    for quit in [true, false] {
        let mut w = Workload::start("gups --mib 16 --wait-first");
        w.wait_for("born");
        if quit {
            w.say("quit");
        }
        assert_eq!(w.exit_code(), Some(0));
    }
}

#[test]
fn every_workload_says_born_first() {
    for args in [
        "gups --mib 4 --updates 1",
        "churn --mib 4 --times 1",
        "storm --seconds 0 --memory-mib 16",
        "dense --mib 4",
    ] {
        let mut w = Workload::start(args);
        let mut line = String::new();
        w.output.read_line(&mut line).unwrap();
        let v: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&v["event"], &v["pid"]),
            (&"born".into(), &w.child.id().into()),
            "{args}"
        );
        assert_eq!(w.exit_code(), Some(0));
    }
}

#[test]
fn the_ranks_of_a_graph_depend_on_the_seed_only() {
    let checksum = |seed: u32| {
        let mut w = Workload::start(&format!("graph --scale 12 --iterations 4 --seed {seed}"));
        let sum = w.wait_for("checked")["checksum"].clone();
        assert_eq!(w.exit_code(), Some(0));
        sum
    };
    assert!(checksum(1).is_string());
    assert_eq!(checksum(1), checksum(1));
    assert_ne!(checksum(1), checksum(2));
}

#[test]
fn a_fixed_piece_of_work_on_the_heap_depends_on_the_seed_only() {
    for (args, count) in [
        ("simplex --mib 16 --visits 3000000", "visits"),
        ("events --mib 16 --events 100000", "events"),
        ("paths --mib 16 --cells 200000", "cells"),
    ] {
        let checked = |seed: u32| {
            let mut w = Workload::start(&format!("{args} --seed {seed}"));
            let result = w.wait_for("result");
            assert!(result["metrics"]["elapsed_ns"].as_f64().unwrap() > 0.0);
            let checked = w.wait_for("checked");
            assert_eq!(checked["ok"], true, "{args}");
            assert_eq!(w.exit_code(), Some(0), "{args}");
            (result[count].clone(), checked["checksum"].clone())
        };
        let first = checked(1);
        assert!(first.0.as_u64().unwrap() >= 100_000, "{args}: {first:?}");
        assert_eq!(first, checked(1), "{args}");
        assert_ne!(first.1, checked(2).1, "{args}");
        let mut w = Workload::start(&format!("{args} --thp advise"));
        w.wait_for("born");
        assert_eq!(w.exit_code(), Some(2), "{args}");
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    assert_eq!(Workload::start("gusp").exit_code(), Some(2));
    assert_eq!(Workload::start("gups --mib x").exit_code(), Some(2));
    assert_eq!(Workload::start("gups --pin 100000").exit_code(), Some(1));
}

#[test]
fn a_workload_dies_with_its_parent() {
    // A shell that starts a workload in the background, says its pid and is killed.
    let script = format!(
        "exec 3<&0; {} dense --mib 4 <&3 & echo $!; wait",
        env!("CARGO_BIN_EXE_mega-workload")
    );
    let mut shell = Command::new("sh")
        .arg("-c")
        .arg(script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut line = String::new();
    let mut pid = None;
    // The workload shares the shell's output: its pid is the line that is a number.
    while pid.is_none() || !line.contains("ready") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0);
        pid = pid.or_else(|| line.trim().parse::<u32>().ok());
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    let path = format!("/proc/{}/stat", pid.unwrap());
    let gone = || std::fs::read_to_string(&path).map_or(true, |s| s.contains(") Z "));
    let end = Instant::now() + Duration::from_secs(5);
    while !gone() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(gone(), "it outlived its parent");
}
