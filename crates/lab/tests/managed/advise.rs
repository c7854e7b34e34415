//! `mega advise` is right on six programs whose answer is known.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{alone, built, can_run, huge_pages_everywhere, Workload, LAB, MEGA};

/// A command, watched while it runs on base pages.
fn advise(options: &[&str], command: &[&str]) -> Value {
    let out = Command::new(MEGA)
        .args(["advise", "--json"])
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{command:?}: {e}: {said}"));
    let answer = &report["answer"];
    eprintln!(
        "{}: {} ({}), saves {} of {:.1} s",
        command[command.len().min(2) - 1..].join(" "),
        answer["verdict"],
        answer["sure"],
        answer["saved_range"],
        report["cpu_s"].as_f64().unwrap()
    );
    report
}

fn workload(options: &[&str], args: &[&str]) -> Value {
    let report = advise(options, &[&[LAB, "workload"], args].concat());
    assert_eq!(report["notes"].as_array().unwrap().len(), 0, "{}", report["notes"]);
    report
}

fn verdict(report: &Value) -> &str {
    report["answer"]["verdict"].as_str().unwrap()
}

/// The most that it may save.
fn most(report: &Value) -> f64 {
    report["answer"]["saved_range"][1].as_f64().unwrap()
}

#[test]
fn touches_at_random_all_over_much_memory_are_worth_it() {
    let _alone = alone();
    if !can_run(3 * 1024) {
        return;
    }
    for program in [
        &["gups", "--mib", "1024", "--seconds", "5"][..],
        &["rehash", "--mib", "512", "--seconds", "4"],
        &["btree", "--mib", "512", "--seconds", "5"],
    ] {
        let report = workload(&[], program);
        // Where one touch after another costs little more on base pages (a host that maps huge pages itself, or is busy), so does a tree.
        let costs = &report["costs"];
        let cost = |of: &str| costs[format!("{of}_chained_touch_ns")].as_f64().unwrap();
        let gains_little = program[0] == "btree" && cost("base") < 1.5 * cost("huge");
        let right: &[&str] = match gains_little {
            true => &["worth-it", "do-not-bother"],
            false => &["worth-it"],
        };
        assert!(right.contains(&verdict(&report)), "{report:#}");
        if verdict(&report) != "worth-it" {
            eprintln!("btree: not worth it on this machine");
            continue;
        }
        let names: Vec<_> = report["settings"].as_array().unwrap().iter().collect();
        assert!(
            names
                .iter()
                .any(|s| s["set"].as_str().unwrap().contains("glibc.malloc.hugetlb")),
            "{names:?}"
        );
        assert!(
            report["answer"]["bloat_bytes"].as_u64().unwrap() < 64 << 20,
            "{report:#}"
        );
    }
}

#[test]
fn what_fits_the_caches_and_a_compiler_are_not_worth_a_thought() {
    let _alone = alone();
    if !can_run(1024) {
        return;
    }
    let report = workload(&[], &["compute", "--seconds", "3"]);
    assert_eq!(
        (verdict(&report), &report["answer"]["sure"]),
        ("do-not-bother", &"sure".into())
    );
    assert_eq!(most(&report), 0.0);
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the compiler: no cc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("many.c");
    std::fs::write(&source, functions(1500)).unwrap();
    let source = source.to_str().unwrap();
    let report = advise(&[], &["cc", "-O2", "-c", "-o", "/dev/null", source]);
    assert_eq!(report["notes"].as_array().unwrap().len(), 0, "{report:#}");
    let why = format!("{} {} {}", report["cpu_s"], report["answer"], report["costs"]);
    assert!(report["cpu_s"].as_f64().unwrap() > 0.5, "it compiled something: {why}");
    assert_eq!(verdict(&report), "do-not-bother", "{why}");
    assert_eq!(report["settings"].as_array().unwrap().len(), 0);
}

/// A file of C with so many functions.
fn functions(count: usize) -> String {
    let one = |i: usize| {
        format!(
            "int f{i}(int a, int b) {{ int s = {i}; for (int k = 0; k < a; k++) {{ if ((k ^ b) % 7 == {}) s += k * b; \
             else s ^= s << (k & 3); switch (s & 7) {{ case 1: s -= b; break; case 2: s *= 3; break; case 5: s += a; \
             default: s++; }} }} return s; }}\n",
            i % 7
        )
    };
    (0..count).map(one).collect()
}

#[test]
fn a_scattered_sixth_would_be_hurt() {
    let _alone = alone();
    if !can_run(4 * 1024) {
        return;
    }
    let report = workload(&[], &["sparse", "--mib", "3072", "--seconds", "3"]);
    assert_eq!(verdict(&report), "would-hurt", "{report:#}");
    // Five sixths of 3 GB.
    let bloat = report["answer"]["bloat_bytes"].as_u64().unwrap() >> 20;
    assert!((2300..=3000).contains(&bloat), "{bloat} MB");
    let settings = report["settings"].as_array().unwrap();
    assert!(settings.iter().any(|s| s["set"] == "MemoryTHP=disable"), "{settings:?}");
}

#[test]
fn a_running_process_is_watched_and_left_as_it_is_and_runs_of_both_kinds_are_compared() {
    let _alone = alone();
    if !can_run(2 * 1024) {
        return;
    }
    let (mut dense, _) = Workload::start(&["dense", "--mib", "256", "--thp", "never"]);
    let pid = dense.pid.to_string();
    let out = Command::new(MEGA)
        .args(["advise", "--time", "2s", &pid])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(
        text.lines().count() < 40 && text.contains("verdict"),
        "one page: {text}"
    );
    dense.check();
    assert!(dense.quit().success());

    let _always = huge_pages_everywhere();
    let report = workload(&["--compare=1"], &["gups", "--mib", "512", "--updates", "30000000"]);
    let runs = &report["compared"];
    assert_eq!(runs["by"], "stock", "{report:#}");
    let faults = |kind: &str| runs[kind][0]["faults"].as_u64().unwrap();
    // 131072 base pages; 256 huge ones.
    assert!(faults("base") > 120_000 && faults("huge") < 40_000, "{runs}");
    assert!(report["answer"]["measured"].is_array(), "{report:#}");
}

#[test]
fn what_cannot_be_advised_on_is_a_clear_line() {
    built();
    for (args, status, part) in [
        (&["advise"][..], 2, "PID"),
        (&["advise", "0"], 2, "0"),
        (&["advise", "1", "--", "true"], 2, "cannot be used with"),
        (&["advise", "--compare=0", "--", "true"], 2, "compare"),
        (&["advise", "--compare", "1"], 2, "PID"),
        (
            &["advise", "--", "/nonexistent/program"],
            1,
            "cannot run '/nonexistent/program'",
        ),
        (&["advise", "2147483647"], 1, "no such process"),
    ] {
        let out = Command::new(MEGA).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}
