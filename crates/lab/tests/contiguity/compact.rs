//! Making free blocks: what is said is so, amounts hold, and settings are as they were, however it ends.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mega_core::compaction::target::Ended as Why;
use mega_core::journal::Event;
use mega_core::units::Share;
use mega_lab::contiguity::{Amount, FragKind, FragOptions, Fragmenter};
use mega_linux::compact::{available, Way};
use mega_linux::proc::ProcRoot;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{wait_until, LAB, MEGA};
use crate::tool::{mega, ready, state_files, Figures, Manager, Program};

const SOON: Duration = Duration::from_secs(60);

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_string()
}

/// Everything that a way may change.
fn settings() -> Vec<(PathBuf, String)> {
    let mut paths = vec![
        PathBuf::from("/proc/sys/vm/compaction_proactiveness"),
        PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
    ];
    if let Ok(groups) = std::fs::read_dir("/sys/devices/system/memory") {
        let states = groups.flatten().map(|group| group.path().join("state"));
        paths.extend(states.filter(|state| state.exists()));
    }
    paths.retain(|path| path.exists());
    paths.into_iter().map(|path| (path.clone(), text(&path))).collect()
}

fn fragmented(mib: u64) -> Fragmenter {
    let options = FragOptions {
        kind: FragKind::Study,
        amount: Amount::Bytes(mib << 20),
        ..FragOptions::default()
    };
    Fragmenter::start(Path::new(LAB), &options).unwrap()
}

/// Whether this way is there; says why not.
fn there(way: Way) -> bool {
    available(way, &ProcRoot::default())
        .map_err(|why| eprintln!("SKIPPED: {why}"))
        .is_ok()
}

#[test]
fn each_way_makes_blocks_says_how_many_moves_data_unharmed_and_leaves_settings_as_they_were() {
    let Some(_alone) = ready(4096) else { return };
    let before = settings();
    let mut fragmenter = fragmented(2048);
    for way in Way::STOCK.into_iter().filter(|way| there(*way)) {
        let word = way.word();
        let ended = mega(&["compact", "--how", word, "--budget", "32M", "--time", "5s", "--json"]);
        if ended.stderr.contains("it would hold") {
            eprintln!("SKIPPED: {}", ended.stderr);
            continue;
        }
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{word}");
        let line: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let n = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{key}: {line}"));
        assert_eq!((line["way"].as_str(), n("asked_blocks")), (Some(word), 16));
        assert!(
            n("took_ns") > 0 && n("cpu_ns") > 0 && line["counters"].is_object(),
            "{line}"
        );
        let gained = n("after_blocks") as i64 - n("before_blocks") as i64 + n("on_lists_blocks") as i64;
        if line["ended"] == "amount" && way != Way::Collapse && way != Way::Pool {
            assert!(gained >= 8, "others may take some, but not most of it: {line}");
        }
        // The amount holds, but for what is done between two looks. With the others the kernel goes on for a moment, or empties the
        // processors' own lists, which may hold gigabytes.
        assert!(way != Way::Node || gained < 16 + 64, "{line}");
        assert_eq!(settings(), before, "{word}");
        assert!(state_files().is_empty(), "{word}");
    }
    fragmenter.verify().unwrap();
    fragmenter.release().unwrap();
}

/// Starts a way with far too much to do, and waits until its setting is changed. None: it was done before.
fn caught(way: &str, knob: &Path, budget: &str) -> Option<Program> {
    let original = text(knob);
    for _ in 0..5 {
        let mut program = Program::mega(&["compact", "--how", way, "--budget", budget, "--time", "20s"]);
        let deadline = Instant::now() + SOON;
        while text(knob) == original && program.is_running() {
            assert!(Instant::now() < deadline, "{}", program.stderr());
            std::thread::sleep(Duration::from_micros(100));
        }
        if program.is_running() {
            return Some(program);
        }
    }
    eprintln!("SKIPPED: '{way}' was done five times before it could be caught");
    None
}

#[test]
fn ended_by_ctrl_c_or_killed_the_setting_is_put_back_by_itself_or_by_mega_off() {
    let Some(_alone) = ready(4096) else { return };
    let before = settings();
    for (way, word, knob, budget) in [
        (
            Way::Proactive,
            "proactive",
            "/proc/sys/vm/compaction_proactiveness",
            "16G",
        ),
        (
            Way::Pool,
            "pool",
            "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            "1G",
        ),
    ] {
        if !there(way) || !Path::new(knob).exists() {
            continue;
        }
        let _fragmenter = fragmented(2048);
        for signal in [Signal::INT, Signal::KILL] {
            let Some(program) = caught(word, Path::new(knob), budget) else {
                continue;
            };
            program.signal(signal);
            let ended = program.wait(SOON);
            if signal == Signal::KILL {
                assert_eq!(ended.code(), 137, "{word}");
                let off = mega(&["off"]);
                assert_eq!(off.code(), 0, "{}", off.stderr);
            } else {
                assert!(ended.code() <= 1, "{word}: {}", ended.stderr);
            }
            assert_eq!(settings(), before, "{word} {signal:?}");
            assert!(state_files().is_empty(), "{word} {signal:?}");
        }
    }
}

#[test]
fn the_kernels_compaction_ends_when_its_time_is_over() {
    let Some(_alone) = ready(4096) else { return };
    let _fragmenter = fragmented(2048);
    let began = Instant::now();
    let ended = mega(&["compact", "--budget", "20G", "--time", "10ms", "--json"]);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let line: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let took = Duration::from_nanos(line["took_ns"].as_u64().unwrap());
    assert!(took < Duration::from_secs(1), "{line}");
    assert!(line["ended"] == "time" || line["ended"] == "through", "{line}");
    assert!(began.elapsed() < SOON);
}

#[test]
fn a_dry_run_names_what_it_would_make_and_makes_nothing() {
    let Some(_alone) = ready(512) else { return };
    for args in [
        &["compact", "--dry-run", "--json"][..],
        &["compact", "--dry-run", "--how", "offline"],
    ] {
        let before = settings();
        let ended = mega(args);
        if ended.stderr.contains("not possible here") {
            eprintln!("SKIPPED: {}", ended.stderr);
            continue;
        }
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(
            said.contains("\"dry_run\":true") || said.starts_with("planner mega would make "),
            "{said}"
        );
        assert_eq!(settings(), before);
    }
}

#[test]
fn wrong_usage_is_said_in_one_line_with_status_2_and_125_for_run() {
    for (args, code, words) in [
        (&["compact", "--planner", "demand"][..], 2, "give it --watch"),
        (&["compact", "--planner", "magic"], 2, "no planner 'magic'"),
        (&["manage", "--compact", "mega:budget=x", "1"], 2, "parameter 'budget'"),
        (&["run", "--compact", "magic", "--", "true"], 125, "no planner 'magic'"),
    ] {
        let ended = mega(args);
        assert_eq!(
            (ended.code(), ended.stderr.lines().count()),
            (code, 1),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn nobody_may_not_compact_and_is_told_what_that_needs() {
    let Some(_alone) = ready(512) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("mega");
    assert!(Command::new("cp").arg(MEGA).arg(&copy).status().unwrap().success());
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy).arg("compact").stdin(Stdio::null());
    let ended = Program::start(&mut command).wait(SOON);
    assert_eq!((ended.code(), ended.stderr.lines().count()), (1, 1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("compact cannot be written") && ended.stderr.contains("needs root"),
        "{}",
        ended.stderr
    );
}

#[test]
fn watching_makes_pass_after_pass_until_ctrl_c() {
    let Some(_alone) = ready(4096) else { return };
    let _fragmenter = fragmented(1024);
    let program = Program::mega(&["compact", "--watch=100ms", "--budget", "4M", "--json"]);
    std::thread::sleep(Duration::from_secs(2));
    program.signal(Signal::INT);
    let ended = program.wait(SOON);
    assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""));
    let said = String::from_utf8(ended.stdout).unwrap();
    let passes: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(passes.len() >= 3, "{said}");
    assert!(passes.iter().any(|pass| pass["asked_blocks"] == 2), "{said}");
}

#[test]
fn a_managed_command_has_a_stock_made_beside_it_and_the_helper_is_no_part_of_it() {
    let Some(_alone) = ready(2048) else { return };
    let _fragmenter = fragmented(512);
    let stock = "mega:interval=100ms,budget=4M";
    let args = [
        "--interval",
        "100ms",
        "--cpu-budget",
        "100%",
        "--duration",
        "60s",
        "--compact",
        stock,
        "--",
        "sleep",
        "3",
    ];
    let managed = Manager::start("run", &args).wait(SOON);
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    let mut compactions = 0;
    for line in &managed.lines {
        match &line.event {
            Event::Start { compact, .. } => assert_eq!(compact.as_deref(), Some("mega:interval=100ms,budget=4M")),
            Event::Found { name, .. } => assert_eq!(name, "sleep", "only the command is managed"),
            Event::Compacted {
                way,
                asked_blocks,
                ended,
                ..
            } => {
                assert_eq!((way.as_str(), *asked_blocks), ("node", 2));
                assert_ne!(*ended, Why::Refused);
                compactions += 1;
            }
            _ => {}
        }
    }
    assert!(compactions > 0, "{:?}", managed.lines);
    assert!(
        managed.ended.stderr.contains("blocks made in"),
        "{}",
        managed.ended.stderr
    );
    assert!(state_files().is_empty());
}

#[test]
fn switched_off_there_is_no_stock() {
    let Some(_alone) = ready(512) else { return };
    let args = ["--interval", "100ms", "--compact", "off", "--", "sleep", "1"];
    let managed = Manager::start("run", &args).wait(SOON);
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    let stock = |event: &Event| matches!(event, Event::Stock { .. } | Event::Compacted { .. });
    assert!(!managed.lines.iter().any(|line| stock(&line.event)));
}

#[test]
fn whoever_takes_huge_pages_from_the_stock_of_a_manager_does_not_compact_for_them() {
    const COUNT: u64 = 192;
    let Some(_alone) = ready(6144) else { return };
    if !there(Way::Node) {
        return;
    }
    let figures = Figures::of("a stock kept");
    let hog = || {
        let ended = mega(&["hog", "--how", "hugetlb", "--count", &COUNT.to_string(), "--json"]);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        let line: Value = serde_json::from_slice(&ended.stdout).unwrap();
        (
            line["obtained"].as_u64().unwrap(),
            line["counters"]["compact_stall"].as_u64().unwrap(),
            line["latency"]["max_ns"].as_u64().unwrap(),
        )
    };
    let options = FragOptions {
        kind: FragKind::Study,
        target: Some(Share::percent(90)),
        ..FragOptions::default()
    };
    let _fragmenter = Fragmenter::start(Path::new(LAB), &options).unwrap();
    let free = || {
        mega_linux::blocks::fragmentation::read(&ProcRoot::default())
            .unwrap()
            .free_blocks
    };
    if free() >= COUNT {
        eprintln!(
            "SKIPPED: memory cannot be fragmented enough: {} blocks are free",
            free()
        );
        return;
    }
    let without = hog();
    let managed = Manager::start(
        "run",
        &[
            "--interval",
            "200ms",
            "--cpu-budget",
            "100%",
            "--compact",
            "demand:interval=200ms,floor=1G,budget=1G",
            "--",
            "sleep",
            "60",
        ],
    );
    let kept = wait_until(SOON, || free() >= COUNT * 2);
    // Others take blocks of it too, now and then.
    let with: Vec<_> = (0..3).map(|_| hog()).collect();
    figures.say(format!(
        "taken, direct compactions, longest in ns: {without:?} without, {with:?} with a free-block target ({} free)",
        free()
    ));
    managed.program.signal(Signal::TERM);
    let managed = managed.wait(SOON);
    assert!(
        kept,
        "the free-block target was not reached: {:?}",
        managed.ended.stderr
    );
    assert!(without.1 > 0, "nobody had to compact: {without:?}");
    assert!(with.iter().all(|(taken, ..)| *taken == COUNT), "{with:?}");
    assert!(with.iter().any(|(_, stalls, _)| *stalls == 0), "{with:?}");
}
