use mega_sim::scenario::{Placed, Scenario, Silent};
use mega_sim::workload::{Spec, NAMES};

use super::*;
use crate::report::check::check;
use crate::report::{comparison, html, terminal};
use crate::result::{About, Case};

/// A small scenario of one program.
fn scenario(program: &str, system: &str) -> Scenario {
    let text = format!(
        r#"{{"machine": {{"memory": "512M"}}, "system": "{system}", "interval": "20ms", "every": "20ms",
            "programs": [{{"run": {program}}}]}}"#
    );
    Scenario::from_json(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Options with which a program is over soon.
fn small(name: &str) -> String {
    let options = match name {
        "graph" => r#""scale": 12, "iterations": 3"#,
        "compute" => r#""passes": 3"#,
        "store" => r#""dense_mib": 8, "sparse_mib": 32, "grow": 2000, "time_ns": 50000000"#,
        "redis" => r#""keys": 2000, "delete_share": 0.3, "read_all": true, "requests": 3000"#,
        "sizes" => r#""mib": 8, "to_kib": 64, "pause_ns": 1000000"#,
        "stride" => r#""mib": 8, "times": 2, "shifts": 4"#,
        "churn" => r#""mib": 8, "times": 3"#,
        "touch" => r#""mib": 16"#,
        "hog" => r#""count": 20"#,
        "shards" => r#""mib": 16, "times": 2, "file_mib": 8, "table_mib": 4, "visits": 100000"#,
        "heap" => r#""mib": 16, "array_mib": 16, "visits": 100000"#,
        "turnover" => r#""mib": 16, "round_mib": 8"#,
        "chunks" => r#""mib": 48, "chunk_mib": 8, "time_ns": 50000000"#,
        _ => r#""mib": 16, "time_ns": 50000000"#,
    };
    format!(r#"{{"program": "{name}", {options}}}"#)
}

fn run(program: &str, system: &str) -> Run {
    let outcome = scenario(program, system).run(&mut Silent).unwrap();
    run_of(&outcome, 0, 0, 0)
}

#[test]
fn every_figure_is_a_metric_and_every_metric_of_a_live_twin_is_there() {
    let all = metrics();
    let mut names: Vec<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a metric is listed twice");
    for name in NAMES {
        let run = run(&small(name), "thp-always");
        assert_eq!(run.outcome, Outcome::Done, "{name}");
        for value in run.values.keys() {
            let shown = names.binary_search(&value.as_str()).is_ok();
            // Percentiles between those that are shown, and what only the simulated twin says.
            let detail = value.ends_with("_ns") || ["keys", "height"].contains(&value.as_str());
            assert!(shown || detail, "{name}: {value} is no metric");
        }
        assert!(run.values.values().all(|value| value.is_finite()), "{name}");
        let lacks = ["longest_gap_ns"];
        for metric in crate::program::builtin::metrics_of(name).unwrap_or_default() {
            // Where nothing was deleted or inserted there is no latency of it.
            let absent = lacks.contains(&metric.name.as_str()) || metric.name.starts_with("insert_");
            assert!(
                absent || run.values.contains_key(&metric.name),
                "{name}: no {}",
                metric.name
            );
        }
        // It takes blocks from the kernel, and touches none of them.
        if *name != "hog" {
            assert!(
                run.values["faults"] > 0.0 && run.distributions.contains_key("fault"),
                "{name}"
            );
            assert!(
                run.values["tlb_accesses"] > 0.0 && run.values["tlb_walk_cycles_share"] < 1.0,
                "{name}"
            );
        }
        assert!(!run.phases.is_empty() && run.seconds > 0.0, "{name}");
    }
}

#[test]
fn figures_are_those_of_the_program_and_of_the_machine() {
    let base = run(&small("gups"), "base");
    let v = &base.values;
    assert_eq!(
        (v["rss_bytes"], v["huge_bytes"], v["huge_faults"]),
        (f64::from(16 << 20), 0.0, 0.0)
    );
    assert_eq!(v["faults"], 4096.0);
    assert_eq!(base.distributions["fault"].count, 4096);
    assert!((v["ops_per_s"] * v["op_ns"] / 1e9 - 1.0).abs() < 1e-9);
    assert!(v["elapsed_ns"] >= 50e6 && v["first_touch_ns"] > 4096.0 * 500.0);
    assert!(v["fault_total_ns"] <= v["first_touch_ns"]);
    assert!(!v.contains_key("promoted"), "nobody manages");
    let names: Vec<&str> = base.phases.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["fill", "update"]);
    let huge = run(&small("gups"), "thp-always");
    assert_eq!(
        (huge.values["huge_bytes"], huge.values["huge_faults"]),
        (f64::from(16 << 20), 8.0)
    );
    assert!(huge.values["ops_per_s"] > v["ops_per_s"]);
    let managed = run(&small("gups"), "mega:compact=off");
    assert!(managed.values.contains_key("promoted") && managed.values["manager_cpu_ns"] > 0.0);
}

#[test]
fn a_redis_is_timed_by_what_it_serves_or_else_by_what_it_is_filled_with() {
    let filled = run(r#"{"program": "redis", "keys": 2000}"#, "base");
    assert_eq!(filled.distributions["request"].count, 2000);
    assert_eq!(filled.distributions["request"], filled.distributions["set"]);
    let served = run(&small("redis"), "base");
    assert_eq!(served.distributions["request"].count, 3000);
    let rate = 3000.0 / (served.values["elapsed_ns"] / 1e9);
    assert!((served.values["ops_per_s"] / rate - 1.0).abs() < 1e-9);
    assert!(served.values["read_ns"] > 0.0 && served.values["deleted"] > 100.0);
}

#[test]
fn the_pauses_of_sizes_count_for_its_run_time_alone() {
    let run = run(&small("sizes"), "base");
    let of = |name: &str| run.values[name];
    // Four sizes, a pause of a millisecond after each.
    assert!(of("elapsed_ns") >= of("allocate_ns") + of("free_ns") + 4e6);
}

#[test]
fn programs_at_once_add_up_and_their_phases_have_their_names() {
    let mut two = scenario(&small("touch"), "base");
    two.programs.push(Placed {
        name: Some("second".into()),
        ..Placed::new(serde_json::from_str::<Spec>(&small("touch")).unwrap())
    });
    let run = run_of(&two.run(&mut Silent).unwrap(), 0, 0, 0);
    assert_eq!(run.values["faults"], 8192.0);
    assert!(run.distributions.contains_key("touch") && run.distributions.contains_key("touch-2"));
    let names: Vec<&str> = run.phases.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["touch: touch", "second: touch"]);
}

#[test]
fn a_program_that_fails_makes_the_run_failed_with_the_reason() {
    let mut large = scenario(&small("touch"), "base");
    large.programs[0].run = serde_json::from_str(r#"{"program": "touch", "mib": 900}"#).unwrap();
    let run = run_of(&large.run(&mut Silent).unwrap(), 0, 0, 0);
    assert_eq!(run.outcome, Outcome::Failed("touch: killed: out of memory".into()));
    assert_eq!(run.values["oom_kill"], 1.0);
}

/// A record of two systems.
fn small_record(rounds: usize) -> crate::result::Record {
    let systems = ["base", "thp-always"];
    let mut runs = Vec::new();
    for round in 0..rounds {
        for (variant, system) in systems.iter().enumerate() {
            let scenario = Scenario {
                seed: 1 + round as u64,
                ..scenario(&small("touch"), system)
            };
            runs.push(run_of(&scenario.run(&mut Silent).unwrap(), 0, variant, round));
        }
    }
    let one = scenario(&small("touch"), "base");
    record(Parts {
        about: About {
            name: "touch".into(),
            title: "first touches".into(),
            question: "How long do they take?".into(),
            source: None,
            scale: None,
            differs: None,
        },
        machine: machine(&one.machine),
        cases: vec![Case {
            name: "touch".into(),
            program: small("touch"),
            condition: condition(one.fragment),
        }],
        variants: systems.iter().map(|system| variant(&system.parse().unwrap())).collect(),
        runs,
        published: Vec::new(),
        main: main_metrics(&["touch"]),
        rounds,
        seed: 1,
        command: "mega sim run --workload touch".into(),
    })
}

#[test]
fn a_program_is_said_with_the_options_that_were_given() {
    let said = |text: &str| program(&serde_json::from_str(text).unwrap());
    assert_eq!(said(r#"{"program": "gups"}"#), "gups");
    assert_eq!(
        said(r#"{"program": "gups", "mib": 7, "updates": 3}"#),
        "gups mib=7 updates=3"
    );
}

#[test]
fn a_record_of_simulated_runs_holds_together_and_is_the_same_each_time() {
    let record = small_record(1);
    check(&record).unwrap();
    assert_eq!(record, small_record(1));
    let json = |record| serde_json::to_string(record).unwrap();
    assert!(json(&record) == json(&small_record(1)), "the bytes are the same, too");
    let main: Vec<&str> = record.main_metrics().map(|metric| metric.name.as_str()).collect();
    assert_eq!(
        main,
        ["first_touch_ns", "touch_p99_ns", "peak_rss_bytes", "peak_huge_bytes"]
    );
    assert!(record.machine.is_simulated() && record.machine.system.contains("development"));
    assert!(record.variants[1]
        .knobs
        .iter()
        .any(|(name, value)| name == "linux enabled" && value == "always"));
}

#[test]
fn the_report_says_that_it_was_simulated_and_nothing_of_noise_or_tests() {
    let one = small_record(1);
    let page = html::page(&one);
    assert!(page.contains("mega sim ·") && page.contains("The machine is simulated"));
    for word in ["Wilcoxon", "too few", "steal", "pinned", "alternation"] {
        assert!(!page.contains(word), "{word} in the page");
    }
    let text = terminal::text(&one);
    assert!(text.contains("2 simulated runs") && !text.contains("too few"), "{text}");
    let sentence = &comparison(&one).cases[0].sentence;
    assert!(
        sentence.starts_with("Against base: ") && sentence.contains("under thp-always"),
        "{sentence}"
    );
    // With seeds there is something to tell, and to say what by.
    let page = html::page(&small_record(2));
    assert!(page.contains("2 rounds with a seed each") && page.contains("Wilcoxon"));
}

#[test]
fn a_manager_that_ends_later_than_its_program_takes_no_rates_away() {
    let mut scenario = scenario(
        r#"{"program":"gups","mib":64,"time_ns":4300000000,"weight":64}"#,
        "mega",
    );
    scenario.interval = std::time::Duration::from_secs(1);
    let run = run_of(&scenario.run(&mut Silent).unwrap(), 0, 0, 0);
    let rates = run.series.columns["ops_per_s"].iter().flatten().count();
    assert!(rates > 30, "{rates} of {} samples", run.series.seconds.len());
    let (mean, settled) = (run.values["ops_per_s"], run.values["settled_per_s"]);
    assert!((0.7..1.5).contains(&(settled / mean)), "{settled} and {mean}");
}
