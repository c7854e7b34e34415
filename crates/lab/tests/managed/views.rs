//! What `mega` says is so: `show` against the kernel's own figures, `doctor`, `policies`, a dry run, replays, and what goes to a terminal.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use mega_linux::proc::{status, ProcRoot};
use serde_json::Value;

use crate::child::{self, What};
use crate::support::{
    addresses, alone, can_run, huge_among, huge_bytes, regions_of, rss_bytes, wait_until, Manager, Workload, MEGA,
};

const REGIONS: usize = 64;
const HUGE: u64 = 2 << 20;

fn mega(args: &[&str]) -> Output {
    Command::new(MEGA).args(args).output().unwrap()
}

/// What a command says on standard output; it must succeed and say nothing else.
fn said(args: &[&str]) -> String {
    let out = mega(args);
    assert!(
        out.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(
        out.stderr.is_empty(),
        "{args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

fn json_of(args: &[&str]) -> Value {
    let text = said(args);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    assert_eq!(value["schema"], 1, "{args:?}");
    value
}

fn fits(text: &str) {
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "wider than 80 columns:\n{}", wide.join("\n"));
}

fn kinds() -> (Workload, Value) {
    let (workload, ready) = Workload::start(&["kinds", "--regions", &REGIONS.to_string(), "--mix"]);
    assert_eq!(ready["collapse_failed"], 0, "{ready}");
    (workload, ready)
}

fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= b / 100 + (1 << 20)
}

#[test]
fn show_agrees_with_the_kernel_and_with_what_the_program_wrote() {
    let _alone = alone();
    if !can_run(2048) {
        return;
    }
    let (workload, ready) = kinds();
    let (first, _) = child::start(&[], What::NoHuge, 64);
    let pid = workload.pid.to_string();
    let seen = json_of(&["show", "--json", &pid, &first.pid.to_string()]);
    let list = seen["processes"].as_array().unwrap();
    let pids: Vec<_> = list.iter().map(|p| p["pid"].as_i64().unwrap() as i32).collect();
    assert_eq!(
        pids,
        [workload.pid, first.pid],
        "in the order in which they were asked for"
    );
    let total = &list[0]["total"];
    let number = |name: &str| total[name].as_u64().unwrap();
    assert!(near(number("rss_bytes"), rss_bytes(workload.pid)), "{total}");
    assert_eq!(number("huge_bytes"), huge_bytes(workload.pid));
    assert_eq!(number("waste_bytes"), REGIONS as u64 * 502 * 4096);
    let full = [addresses(&ready, "full-hot"), addresses(&ready, "full-cold")].concat();
    let base = regions_of(workload.pid, &full)
        .iter()
        .flatten()
        .filter(|region| !region.is_huge())
        .count();
    assert_eq!(base, 2 * REGIONS);
    assert_eq!(number("qualifies_bytes"), base as u64 * HUGE);
    let parts: u64 = list[0]["mappings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["rss_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(parts, number("rss_bytes"), "the mappings add up");

    let text = said(&["show", "--top", "0", &pid, &first.pid.to_string()]);
    eprintln!("{text}");
    fits(&text);
    assert!(
        text.starts_with(&format!("{pid} ")) && text.contains(&format!("\n{} ", first.pid)),
        "{text}"
    );
    let waste = mega_core::units::Bytes(number("waste_bytes")).to_string();
    assert!(text.contains(&format!("wasted in them {waste}")), "{waste}:\n{text}");
    assert!(workload.quit().success() && first.quit().success());
}

#[test]
fn show_names_who_switched_huge_pages_off() {
    let _alone = alone();
    if !can_run(512) {
        return;
    }
    let owners = |pid: i32| {
        let pid = pid.to_string();
        let text = said(&["show", &pid]);
        fits(&text);
        let found = json_of(&["show", "--json", &pid])["processes"][0]["thp"].clone();
        (text, found.as_array().unwrap().clone())
    };
    let (disabled, _) = Workload::start(&["dense", "--mib", "64", "--thp", "never"]);
    let (text, found) = owners(disabled.pid);
    assert!(text.contains("PR_SET_THP_DISABLE"), "{text}");
    assert_eq!(found[0]["owner"], "process");

    let (advised, _) = child::start(&[], What::NoHuge, 64);
    let (text, found) = owners(advised.pid);
    assert!(text.contains("MADV_NOHUGEPAGE"), "{text}");
    let off = found.iter().find(|owner| owner["owner"] == "switched-off").unwrap();
    assert_eq!(
        (off["mappings"].as_u64(), off["bytes"].as_u64()),
        (Some(1), Some(64 << 20))
    );

    let (wanted, _) = Workload::start(&["dense", "--mib", "64", "--thp", "advise"]);
    let (text, found) = owners(wanted.pid);
    assert!(
        text.contains("MADV_HUGEPAGE") && found.iter().any(|owner| owner["owner"] == "asked-for"),
        "{text}"
    );
    for program in [disabled, advised, wanted] {
        assert!(program.quit().success());
    }
    // Nobody there: a failure in one line, not a panic.
    let out = mega(&["show", "4194304"]);
    let why = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), why.lines().count()), (Some(1), 1), "{why}");
}

#[test]
fn doctor_and_policies_say_what_there_is() {
    let text = said(&["doctor"]);
    fits(&text);
    assert!(text.contains("promote") && text.contains("reservation"), "{text}");
    let doctor = json_of(&["doctor", "--json"]);
    assert_eq!(doctor["kind"], "doctor");
    assert!(
        doctor["capabilities"].as_array().unwrap().len() >= 6 && doctor["machine"].is_object(),
        "{doctor}"
    );

    let text = said(&["policies"]);
    fits(&text);
    let listed = json_of(&["policies", "--json"]);
    let names: Vec<_> = listed["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "auto",
            "mega",
            "ingens",
            "trim",
            "hawkeye",
            "ethp",
            "khugepaged",
            "base"
        ]
    );
    for name in names {
        assert!(text.lines().any(|line| line == name), "{name} in\n{text}");
        let one = said(&["policies", name]);
        assert!(one.starts_with(name) && text.contains(&one), "{one}");
    }
    assert_eq!(mega(&["policies", "none-such"]).status.code(), Some(2));
}

#[test]
fn a_dry_run_decides_and_acts_on_nothing() {
    let _alone = alone();
    if !can_run(2048) {
        return;
    }
    let peak = |pid: i32| {
        status::read(&ProcRoot::default(), pid as u32)
            .unwrap()
            .memory
            .rss_peak_bytes
            .unwrap()
    };
    for policy in ["mega", "ingens", "base"] {
        let (mut workload, ready) = kinds();
        let before = (huge_bytes(workload.pid), peak(workload.pid));
        let pid = workload.pid.to_string();
        let managed = Manager::start(&[
            "--dry-run",
            "--policy",
            policy,
            "--interval",
            "300ms",
            "--duration",
            "6s",
            &pid,
        ])
        .finish();
        assert!(managed.status.success());
        let has = |wanted: &str| {
            managed
                .lines
                .iter()
                .filter(|line| line.to_json().contains(wanted))
                .count()
        };
        assert_eq!(has("\"event\":\"outcome\""), 0, "{policy}");
        assert_eq!(has("\"event\":\"age\""), 0, "{policy}");
        assert!(has("\"event\":\"decide\"") >= REGIONS, "{policy} decides");
        assert_eq!(
            (
                managed.summary["promoted"].as_u64(),
                managed.summary["demoted"].as_u64()
            ),
            (Some(0), Some(0))
        );
        assert_eq!(huge_bytes(workload.pid), before.0, "{policy}");
        assert!(
            near(peak(workload.pid), before.1),
            "{policy}: {} {}",
            peak(workload.pid),
            before.1
        );
        assert_eq!(huge_among(workload.pid, &addresses(&ready, "huge-waste")), REGIONS);
        workload.check();
        assert!(workload.quit().success());
    }
}

/// Manages with a full journal in this form. It never waits for processor time, which is not all in a journal.
fn full_journal(path: &Path, policy: &str, json: bool) {
    let (workload, _) = kinds();
    let mut command = Command::new(MEGA);
    command.args([
        "manage",
        "-q",
        "--policy",
        policy,
        "--interval",
        "300ms",
        "--duration",
        "8s",
        "--cpu-budget",
        "100%",
        "--journal-full",
        "--journal",
    ]);
    command
        .arg(path)
        .args(json.then_some("--json"))
        .arg(workload.pid.to_string());
    assert!(command.status().unwrap().success());
    assert!(workload.quit().success());
}

#[test]
fn a_live_journal_replays_and_a_tampered_one_does_not() {
    let _alone = alone();
    if !can_run(2048) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (policy, json) in [("mega", false), ("ingens", true)] {
        let path = folder.path().join(policy);
        let name = path.to_str().unwrap();
        full_journal(&path, policy, json);
        let replayed = json_of(&["replay", "--json", name]);
        eprintln!("{replayed}");
        assert_eq!(replayed["policy"], policy);
        let counts = |sort: &str, what: &str| replayed[sort][what].as_u64().unwrap();
        assert!(replayed["scans"].as_u64().unwrap() >= 10 && counts("decisions", "same") >= REGIONS as u64);
        for what in ["moved", "missing", "extra"] {
            assert_eq!(counts("decisions", what), 0, "{replayed}");
        }
        // Where time ends an interval's work, a few are carried out an interval earlier or later.
        let (same, other) = (
            counts("outcomes", "same"),
            counts("outcomes", "missing") + counts("outcomes", "extra"),
        );
        assert!(same >= REGIONS as u64 && other * 10 <= same, "{replayed}");
        assert_eq!(counts("rest", "extra"), counts("rest", "missing"), "{replayed}");

        let others = json_of(&["replay", "--json", name, "--policy", policy]);
        let both = others["both"].as_u64().unwrap();
        assert_eq!(
            (both, &others["only_live"], &others["only_other"]),
            (counts("decisions", "same"), &0.into(), &0.into())
        );
        let base = json_of(&["replay", "--json", name, "--policy", "base"]);
        assert!(base["only_live"].as_u64().unwrap() >= REGIONS as u64 / 2, "{base}");
        assert!(base["scans"].as_array().unwrap().len() as u64 >= 10);
        fits(&said(&["replay", name, "--policy", "trim", "--set", "zero=70%"]).replace('\t', " "));
        fits(&said(&["replay", name]).replace('\t', " "));

        let journal = std::fs::read_to_string(&path).unwrap();
        let is_decision = |line: &&str| line.contains(if json { "\"event\":\"decide\"" } else { " decide " });
        let one = journal.lines().find(is_decision).unwrap();
        let swap = |from: &str, to: &str| journal.replacen(one, &one.replace(from, to), 1);
        let tampered = [
            ("left out", journal.replacen(&format!("{one}\n"), "", 1)),
            (
                "another action",
                if one.contains("promote") {
                    swap("promote", "demote")
                } else {
                    swap("demote", "promote")
                },
            ),
            ("twice", journal.replacen(one, &format!("{one}\n{one}"), 1)),
        ];
        for (how, text) in tampered {
            assert_ne!(text, journal, "{how}: {one}");
            std::fs::write(&path, text).unwrap();
            let out = mega(&["replay", name]);
            assert_eq!(
                out.status.code(),
                Some(1),
                "{policy}, a decision {how}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        // Wherever a line is cut, also in its last number and before its end of line.
        let half = journal.len() / 2;
        let line = half + journal[half..].find('\n').unwrap() + 1;
        let end = line + journal[line..].find('\n').unwrap();
        for cut in [line + 7, line.midpoint(end), end - 1, end] {
            std::fs::write(&path, &journal[..cut]).unwrap();
            let out = mega(&["replay", name]);
            let error = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "cut at {cut} of {line} to {end}");
            assert!(error.contains("cut short"), "cut at {cut} of {line} to {end}: {error}");
        }
    }
}

#[test]
fn the_status_line_is_for_terminals_only() {
    let _alone = alone();
    if !can_run(1024) {
        return;
    }
    let (workload, _) = Workload::start(&["dense", "--mib", "128"]);
    let pid = workload.pid.to_string();
    let args = ["manage", "--interval", "300ms", "--duration", "2s", &pid];
    let out = mega(&args);
    let (stdout, stderr) = (
        String::from_utf8(out.stdout).unwrap(),
        String::from_utf8(out.stderr).unwrap(),
    );
    assert!(out.status.success() && stderr.is_empty(), "{stderr}");
    assert!(
        stdout.starts_with("mega: ") && stdout.contains("promoted") && !stdout.contains('\x1b'),
        "{stdout}"
    );

    let terminal = |args: &[&str]| {
        let line = format!("{MEGA} {}", args.join(" "));
        let out = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output();
        out.map(|out| (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned()))
    };
    match terminal(&args) {
        Err(why) => eprintln!("SKIPPED: no terminal without script (util-linux): {why}"),
        Ok((ok, text)) => {
            assert!(
                ok && text.contains("\r\x1b[2K") && text.contains(" huge, ") && text.contains(", scan "),
                "{text:?}"
            );
            let (ok, text) = terminal(&["manage", "-q", "--duration", "1s", &pid]).unwrap();
            assert!(ok && text.is_empty(), "{text:?}");
        }
    }
    assert!(workload.quit().success());
}

#[test]
fn an_interrupt_ends_with_the_summary() {
    let _alone = alone();
    if !can_run(1024) {
        return;
    }
    for json in [false, true] {
        let (workload, _) = Workload::start(&["dense", "--mib", "64"]);
        let mut manager = Command::new(MEGA)
            .args(["manage", &workload.pid.to_string()])
            .args(json.then_some("--json"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Whoever is managed is written down below /run/mega.
        let claimed = || std::fs::read_dir("/run/mega/claims").is_ok_and(|list| list.count() > 0);
        wait_until(Duration::from_secs(10), claimed);
        std::thread::sleep(Duration::from_millis(500));
        rustix::process::kill_process(rustix::process::Pid::from_child(&manager), rustix::process::Signal::INT)
            .unwrap();
        let mut out = String::new();
        manager.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(manager.wait().unwrap().success(), "{out}");
        assert_eq!(out.lines().count(), 1, "{out}");
        if json {
            let summary: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(
                (summary["schema"].as_u64(), &summary["kind"]),
                (Some(1), &"summary".into())
            );
        } else {
            assert!(
                out.starts_with("mega: ") && out.contains("promoted") && out.contains("scans in"),
                "{out}"
            );
        }
        assert!(workload.quit().success());
    }
}
