//! Each capability of the unit taken away in turn: `mega doctor` says what does not work then and which capability it needs, and managing does
//! as it says.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use crate::{is_root, stderr};

const SEEING: &str = "see accessed pages (utilization)";
const ACTING: [&str; 2] = ["promote", "demote, give zero pages back"];

/// `mega` without these capabilities.
fn without(capabilities: &str, args: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}"));
    command.arg(env!("CARGO_BIN_EXE_mega")).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

/// What doctor says of each thing that it names: whether it works, and why.
fn doctor(capabilities: &str) -> BTreeMap<String, (bool, String)> {
    let out = without(capabilities, &["doctor", "--json"]);
    let said: Json = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let text = |of: &Json| of.as_str().unwrap().to_owned();
    let each = said["capabilities"].as_array().unwrap().iter();
    each.map(|one| (text(&one["capability"]), (one["works"] == true, text(&one["detail"]))))
        .collect()
}

/// Manages a program that fills 64 MB and waits; the answer has the summary, as JSON where it came to that.
fn run(capabilities: &str, options: &[&str]) -> (Output, Json) {
    let mut args = vec!["run", "--json", "--no-agent", "--interval", "100ms"];
    args.extend(options);
    args.extend(["--", "perl", "-e", "$x = 'x' x (64 << 20); sleep 3"]);
    let out = without(capabilities, &args);
    let summary = stderr(&out);
    let summary = summary.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    (out, summary.unwrap_or(Json::Null))
}

#[test]
fn without_a_capability_doctor_says_what_does_not_work_and_managing_does_as_it_says() {
    if !is_root() {
        return;
    }
    let all = doctor("+all");
    if !ACTING.iter().chain([&SEEING]).all(|name| all[*name].0) {
        eprintln!("SKIPPED: not everything works here with all capabilities: {all:?}");
        return;
    }
    // CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON; those without it are of no use, since frame numbers are hidden.
    for (capabilities, lost, named) in [
        ("-bpf", &[][..], ""),
        ("-perfmon", &[], ""),
        ("-bpf,-perfmon", &[], ""),
        ("-sys_resource", &[], ""),
        ("-sys_admin", &[SEEING], ""),
        ("-sys_ptrace", &ACTING, "CAP_SYS_PTRACE"),
        ("-sys_nice", &ACTING, "CAP_SYS_NICE"),
    ] {
        let now = doctor(capabilities);
        for (name, (worked, _)) in &all {
            let (works, why) = &now[name];
            assert_eq!(
                *works,
                *worked && !lost.contains(&name.as_str()),
                "{capabilities}: {name}: {why}"
            );
            assert!(
                *works == *worked || why.contains(named),
                "{capabilities}: {name}: {why}"
            );
        }
        let (out, summary) = run(capabilities, &[]);
        match now[ACTING[0]].0 {
            // What doctor says works, works: the 32 regions are promoted.
            true => {
                assert_eq!(out.status.code(), Some(0), "{capabilities}: {}", stderr(&out));
                let promoted = summary["promoted"].as_u64().unwrap_or(0);
                assert!(promoted >= 16, "{capabilities}: {summary}: {}", stderr(&out));
            }
            false => {
                assert_eq!(out.status.code(), Some(125), "{capabilities}");
                assert!(stderr(&out).contains(named), "{capabilities}: {}", stderr(&out));
            }
        }
    }
    assert!(doctor("-sys_admin")["see mapped, huge and zero pages"]
        .1
        .contains("CAP_SYS_ADMIN"));
    // Deciding alone needs less.
    let (out, _) = run("-sys_nice", &["--dry-run"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
}
