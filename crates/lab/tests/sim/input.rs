//! Whatever is asked for or found in a file: one clear line, status 2, bounded memory.

use std::fs;
use std::process::Command;

use crate::{sim, Ended, LAB};

/// Address space that a refusal may take, in KB.
const ROOM_KB: u32 = 2 << 20;

/// With little address space: what allocates as much as a file asks for is found out.
fn bounded(args: &[&str]) -> Ended {
    let script = format!("ulimit -v {ROOM_KB}; exec \"$0\" sim \"$@\"");
    let output = Command::new("timeout")
        .args(["-k", "1", "20", "sh", "-c", &script, LAB])
        .args(args)
        .output();
    Ended(output.unwrap())
}

#[test]
fn scenarios_that_make_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    let path = file.to_str().unwrap();
    let gups = |machine: &str, options: &str| {
        format!(r#"{{"machine": {{{machine}}}, "programs": [{{"run": {{"program": "gups"{options}}}}}]}}"#)
    };
    let many = vec![r#"{"run": {"program": "touch", "mib": 1}}"#; 5000].join(",");
    for (text, words) in [
        (String::new(), &["s.json", "line 1 column 0"][..]),
        ("{".repeat(100_000), &["line 1 column"]),
        ("[1]".to_string(), &["invalid"]),
        (r#"{"programs": []}"#.to_string(), &["no programs"]),
        (r#"{"programs": [{}]}"#.to_string(), &["run", "line 1"]),
        (r#"{"programs": [{"run": {}}]}"#.to_string(), &["program"]),
        (r#"{"program": []}"#.to_string(), &["program", "line 1 column"]),
        ("{\n\"sistem\": 1}".to_string(), &["sistem", "line 2"]),
        (gups("", r#", "mob": 1"#), &["mob"]),
        (gups(r#""memory": "0""#, ""), &["machine", "at least 16 MB"]),
        (gups(r#""memory": "1E""#, ""), &["1E"]),
        (gups(r#""memory": "16384T""#, ""), &["1 TB"]),
        (gups(r#""memory": "99999999999999999999""#, ""), &["size"]),
        (gups(r#""memory": 16"#, ""), &["string"]),
        (gups(r#""nodes": 0"#, ""), &["0 nodes"]),
        (gups(r#""nodes": 300"#, ""), &["300"]),
        (gups(r#""swap": "1000T""#, ""), &["machine.swap"]),
        (gups(r#""costs": "atari""#, ""), &["atari", "development"]),
        (
            gups(r#""costs": {"machine": "x"}"#, ""),
            &["costs: missing field `kernel`", "line 1"],
        ),
        (gups(r#""tlb": "atari""#, ""), &["atari", "haswell"]),
        (gups("", r#", "mib": 1099511627776"#), &["program 1 (gups)", "2 times"]),
        (gups("", r#", "mib": 18446744073709551615"#), &["program 1 (gups)"]),
        (gups("", r#", "mib": -1"#), &["-1"]),
        (gups(r#""memory": "64M""#, ""), &["program 1 (gups)", "2 times"]),
        (format!(r#"{{"programs": [{many}]}}"#), &["programs: 5000"]),
        (
            r#"{"programs": [{"run": {"program": "redis", "keys": 4000000000}}]}"#.to_string(),
            &["program 1 (redis)"],
        ),
        (
            r#"{"programs": [{"run": {"program": "graph", "scale": 31, "edge_factor": 4294967295}}]}"#.to_string(),
            &["program 1 (graph)"],
        ),
        (
            r#"{"programs": [{"run": {"program": "sparse", "mib": 134217728, "share": 0.9}}]}"#.to_string(),
            &["program 1 (sparse)"],
        ),
        (
            r#"{"system": "magic", "programs": []}"#.to_string(),
            &["magic", "there are base"],
        ),
        (r#"{"interval": "0s", "programs": []}"#.to_string(), &["interval"]),
        (
            r#"{"fragment": {"unusable": {"share": "200%"}}}"#.to_string(),
            &["200%"],
        ),
        (" ".repeat(5 << 20), &["more than 4 MB"]),
    ] {
        fs::write(&file, text).unwrap();
        let ended = bounded(&["run", path]);
        assert!(!ended.stderr().contains("panicked"), "{}", ended.stderr());
        ended.one_line(2, words);
    }
    fs::write(&file, [0xff, 0xfe, 0]).unwrap();
    sim(&["run", path]).one_line(1, &["s.json"]);
    sim(&["run", folder.path().join("none.json").to_str().unwrap()]).one_line(1, &["cannot read", "none.json"]);
    sim(&["run", folder.path().to_str().unwrap()]).one_line(1, &["cannot read"]);
}

#[test]
fn options_that_make_no_sense() {
    let run = |more: &[&str]| bounded(&[&["run", "--workload", "gups", "--memory", "64M"], more].concat());
    for (args, words) in [
        (&["--set", "mib"][..], &["'mib'", "KEY=VALUE"][..]),
        (&["--set", "mob=1"], &["mob", "it has: "]),
        (&["--set", "mib=soon"], &["gups: mib", "soon"]),
        (&["--set", "mib=16T"], &["gups", "2 times"]),
        (&["--system", "magic"], &["magic", "there are base"]),
        (&["--system", "mega:uprom=900%"], &["mega:uprom=900%", "uprom"]),
        (&["--system", "base,base"], &["--system", "'base'", "twice"]),
        (&["--system", ""], &["there are base"]),
        (&["--machine", "atari"], &["atari"]),
        (&["--tlb", "atari"], &["atari"]),
        (&["--fragment", "lots"], &["--fragment", "lots"]),
        (&["--fragment", "90%/x"], &["--fragment", "x"]),
    ] {
        run(&[&["--set", "mib=16"], args].concat()).one_line(2, words);
    }
    sim(&["run", "--workload", "gusp"]).one_line(2, &["gusp", "gups"]);
    sim(&["run", "--trace", "/no/such/trace"]).one_line(1, &["/no/such/trace"]);
    sim(&["run", "--workload", "gups", "--costs", "/no/such/costs"]).one_line(1, &["/no/such/costs"]);
    // Memory that is too small for a program that may be tried: it is killed, and that is said.
    let folder = tempfile::tempdir().unwrap();
    let tight = [
        "--set",
        "mib=100",
        "--system",
        "base",
        "-q",
        "-o",
        folder.path().to_str().unwrap(),
    ];
    run(&tight).one_line(1, &["no run completed", "out of memory"]);
}

#[test]
fn sweeps_that_make_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.json");
    let path = file.to_str().unwrap();
    let touch = r#"{"program": "touch", "mib": 8}"#;
    let lists = |systems: &str, workloads: &str, more: &str| {
        format!(r#"{{"systems": [{systems}], "workloads": [{workloads}]{more}}}"#)
    };
    let seeds: Vec<String> = (0..400_000).map(|n| n.to_string()).collect();
    for (text, words) in [
        (String::new(), &["w.json", "line 1"][..]),
        ("{}".to_string(), &["systems"]),
        (lists("", touch, ""), &["systems: the list is empty"]),
        (lists(r#""base""#, "", ""), &["workloads: the list is empty"]),
        (lists(r#""magic""#, touch, ""), &["magic"]),
        (lists(r#""base""#, "3", ""), &["workloads[0]"]),
        (lists(r#""base""#, r#"{"program": "x"}"#, ""), &["workloads[0]", "x"]),
        (lists(r#""base""#, touch, r#", "sneeds": []"#), &["sneeds"]),
        (lists(r#""base""#, touch, r#", "memory": ["0"]"#), &["touch, base, 0"]),
        (lists(r#""base""#, touch, r#", "memory": ["much"]"#), &["memory[0]"]),
        (
            lists(
                r#""base","linux","mega""#,
                touch,
                &format!(r#", "seeds": [{}]"#, seeds.join(",")),
            ),
            &["more than 100000 points"],
        ),
        (
            lists(r#""base""#, touch, r#", "parameters": {"t": ["1"]}"#),
            &["parameters.t", "no system takes it"],
        ),
    ] {
        fs::write(&file, text).unwrap();
        let ended = bounded(&["sweep", path, "-o", folder.path().join("out").to_str().unwrap()]);
        assert!(!ended.stderr().contains("panicked"), "{}", ended.stderr());
        ended.one_line(2, words);
    }
    assert!(!folder.path().join("out").exists(), "nothing was begun");
    sim(&["sweep", "/no/such/sweep"]).one_line(1, &["/no/such/sweep"]);
}
