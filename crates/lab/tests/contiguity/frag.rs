//! Fragmenting: data is checked, every end frees, and nobody is pushed out of memory.

use std::path::Path;
use std::time::{Duration, Instant};

use mega_core::units::Share;
use mega_lab::contiguity::{Amount, FragKind, FragOptions, Fragmenter, Made};
use mega_linux::proc::ProcRoot;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{rss_bytes, wait_until, LAB};
use crate::tool::{mega, ready, Program};

const SOON: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Events that a program has written so far.
fn events(program: &Program) -> Vec<Value> {
    let text = program.stdout();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn wait_event(program: &mut Program, name: &str) -> Value {
    let mut found = None;
    wait_until(SOON, || {
        found = events(program).into_iter().find(|event| event["event"] == name);
        found.is_some() || !program.is_running()
    });
    found.unwrap_or_else(|| panic!("no event '{name}': {} {}", program.stdout(), program.stderr()))
}

/// Free memory, with what the processors' own lists have: a process that ends leaves hundreds of megabytes there.
fn free_bytes() -> u64 {
    let state = mega_linux::blocks::fragmentation::read(&ProcRoot::default()).unwrap();
    state.free_bytes + state.percpu_bytes.unwrap_or(0)
}

#[test]
fn every_signal_that_ends_it_frees_at_once_what_was_checked_while_it_was_held() {
    let Some(_alone) = ready(2048) else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut program = Program::mega(&[
            "frag",
            "--json",
            "--kind",
            "holes",
            "--amount",
            "800M",
            "--keep",
            "90%",
            "--refresh",
            "100ms",
        ]);
        let made: Made = serde_json::from_value(wait_event(&mut program, "ready")).unwrap();
        assert_eq!((made.kind, made.taken_bytes), (FragKind::Holes, 800 * MIB));
        assert!(made.kept_bytes.abs_diff(720 * MIB) <= 2 * MIB, "{}", made.kept_bytes);
        let resident = rss_bytes(program.pid() as i32);
        assert!(
            resident >= made.kept_bytes && resident < made.kept_bytes + 64 * MIB,
            "{resident}"
        );
        let adjusted = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", program.pid())).unwrap();
        assert_eq!(adjusted.trim(), "1000");
        let held = wait_event(&mut program, "held");
        assert!(held["verified"]["pages"].as_u64().unwrap() >= 64 * MIB / 4096, "{held}");
        assert!(
            held["free"]["zones"].as_array().is_some_and(|zones| !zones.is_empty()),
            "{held}"
        );
        let held = free_bytes();
        let asked = Instant::now();
        program.signal(signal);
        let ended = program.wait(SOON);
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""));
        // Others take and free memory too, but not that much at that moment.
        let back = wait_until(SOON, || free_bytes() > held + 500 * MIB);
        assert!(back, "{held} bytes were free, and are {} now", free_bytes());
    }
}

#[test]
fn stopped_while_it_begins_it_says_so_and_frees() {
    let Some(_alone) = ready(2048) else { return };
    let program = Program::mega(&["frag", "--amount", "1000M"]);
    // Long enough to have begun, not to be done: the whole takes most of a second.
    wait_until(SOON, || rss_bytes(program.pid() as i32) > 20 * MIB);
    program.signal(Signal::INT);
    let ended = program.wait(SOON);
    assert_eq!(
        (ended.code(), ended.stderr.as_str()),
        (1, "mega: stopped before memory was fragmented; everything is freed\n")
    );
}

#[test]
fn more_than_there_is_is_refused_with_what_can_be_had() {
    let Some(_alone) = ready(512) else { return };
    for args in [["frag", "--amount", "10T"], ["hog", "--count", "5242880"]] {
        let ended = mega(&args);
        assert_eq!((ended.code(), ended.stderr.lines().count()), (1, 1), "{}", ended.stderr);
        assert!(
            ended
                .stderr
                .starts_with("mega: 10T is more than may be taken: at most "),
            "{}",
            ended.stderr
        );
    }
    let ended = mega(&["frag", "--amount", "100%"]);
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("available free"), "{}", ended.stderr);
}

#[test]
fn its_time_over_it_checks_all_and_tells_people_so_in_eighty_columns() {
    let Some(_alone) = ready(1024) else { return };
    for kind in ["study", "reserve", "holes"] {
        let ended = mega(&[
            "frag",
            "--kind",
            kind,
            "--amount",
            "128M",
            "--hold",
            "600ms",
            "--refresh",
            "200ms",
        ]);
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{kind}");
        let text = String::from_utf8(ended.stdout).unwrap();
        assert!(text.contains("unusable at order 9") && text.contains("index"), "{text}");
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("freed ") && last.contains("kept pages found right"),
            "{last}"
        );
        assert!(!last.ends_with("all of them 0 times"), "{last}");
        let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:?}");
    }
}

#[test]
fn a_target_out_of_reach_is_said_to_be_missed() {
    let Some(_alone) = ready(1024) else { return };
    let ended = mega(&[
        "frag", "--target", "100%", "--amount", "64M", "--hold", "100ms", "--json",
    ]);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("the target of 100.0% is not reached"),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_experiment_has_memory_fragmented_checked_and_freed_by_a_child() {
    let Some(_alone) = ready(1024) else { return };
    for pin in [false, true] {
        let options = FragOptions {
            kind: FragKind::Reserve,
            amount: Amount::Bytes(256 * MIB),
            keep: Some(Share::percent(25)),
            pin,
            ..FragOptions::default()
        };
        let mut fragmenter = Fragmenter::start(Path::new(LAB), &options).unwrap();
        let made = fragmenter.made().clone();
        assert_eq!(made.kept_bytes, made.taken_bytes / 4);
        assert_eq!(made.pinned_bytes, if pin { made.kept_bytes } else { 0 });
        assert_eq!(made.huge_pages * 2 * MIB, made.taken_bytes);
        let resident = rss_bytes(fragmenter.pid() as i32);
        assert!(
            resident >= made.kept_bytes && resident < made.kept_bytes + 48 * MIB,
            "{resident}"
        );
        let pages = made.kept_bytes / 4096;
        assert_eq!(fragmenter.verify().unwrap().pages, pages);
        let last = fragmenter.release().unwrap();
        assert_eq!((last.pages, last.passes), (2 * pages, 2));
    }
    // Dropped, it is gone; and what it cannot do, it says.
    let options = FragOptions {
        amount: Amount::Bytes(64 * MIB),
        ..FragOptions::default()
    };
    let fragmenter = Fragmenter::start(Path::new(LAB), &options).unwrap();
    let pid = fragmenter.pid();
    drop(fragmenter);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let options = FragOptions {
        amount: Amount::Bytes(10 << 40),
        ..options
    };
    let error = Fragmenter::start(Path::new(LAB), &options).unwrap_err().to_string();
    assert!(error.contains("10T is more than may be taken"), "{error}");
}
