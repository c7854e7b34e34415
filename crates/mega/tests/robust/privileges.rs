//! Each capability of the unit taken away in turn: `mega doctor` says what does not work then, and managing does as it says.

use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use crate::{is_root, stderr};

/// `mega` without these capabilities.
fn without(capabilities: &str, args: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}"));
    command.arg(env!("CARGO_BIN_EXE_mega")).args(args).stdin(Stdio::null());
    command.output().unwrap()
}

/// What works, by doctor.
fn works(capabilities: &str) -> Vec<String> {
    let out = without(capabilities, &["doctor", "--json"]);
    let said: Json = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let works = |one: &&Json| one["works"] == true;
    let names = said["capabilities"].as_array().unwrap().iter().filter(works);
    names
        .map(|one| one["capability"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn without_a_capability_doctor_says_what_does_not_work_and_managing_does_as_it_says() {
    if !is_root() {
        return;
    }
    let all = works("+all");
    let has = |what: &str| all.iter().any(|name| name == what);
    if ![
        "promote",
        "demote, give zero pages back",
        "see accessed pages (utilization)",
    ]
    .map(has)
    .contains(&true)
    {
        eprintln!("SKIPPED: with all capabilities nothing works here");
        return;
    }
    let acting: &[&str] = &["promote", "demote, give zero pages back"];
    let seeing: &[&str] = &["see accessed pages (utilization)"];
    // CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON; those without it are of no use, since frame numbers are hidden.
    for (capabilities, lost) in [
        ("-bpf", &[][..]),
        ("-perfmon", &[]),
        ("-bpf,-perfmon", &[]),
        ("-sys_resource", &[]),
        ("-sys_admin", seeing),
        ("-sys_ptrace", acting),
        ("-sys_nice", acting),
    ] {
        let now = works(capabilities);
        let gone: Vec<&String> = all.iter().filter(|name| !now.contains(name)).collect();
        assert!(
            lost.iter()
                .filter(|name| has(name))
                .all(|name| gone.iter().any(|gone| gone == name)),
            "{capabilities}: {gone:?}"
        );
        assert!(
            gone.iter().all(|name| lost.contains(&name.as_str())),
            "{capabilities}: {gone:?}"
        );
        let run = without(capabilities, &["run", "--no-agent", "--quiet", "--", "true"]);
        match now.iter().any(|name| name == "promote") {
            true => assert_eq!(run.status.code(), Some(0), "{capabilities}: {}", stderr(&run)),
            false => {
                assert_eq!(run.status.code(), Some(125), "{capabilities}");
                assert!(stderr(&run).contains("CAP_SYS_"), "{capabilities}: {}", stderr(&run));
            }
        }
    }
}
