use super::*;
use crate::workload::{ChunksOptions, GupsOptions, SparseOptions};

fn gups(mib: u64, ms: u64) -> Placed {
    Placed::new(Spec::Gups(GupsOptions {
        mib,
        time_ns: ms * 1_000_000,
        ..GupsOptions::default()
    }))
}

fn scenario(system: &str, programs: Vec<Placed>) -> Scenario {
    let mut machine = MachineSpec {
        memory: Bytes(512 << 20),
        ..MachineSpec::default()
    };
    machine.tlb = None;
    Scenario {
        machine,
        system: system.parse().unwrap(),
        programs,
        interval: Duration::from_millis(50),
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario) -> Outcome {
    scenario.run(&mut Silent).unwrap()
}

#[test]
fn the_kernel_alone_gives_base_pages_or_huge_ones_as_it_is_told() {
    for (system, huge) in [("base", 0), ("thp-always", 128 << 20)] {
        let outcome = run(&scenario(system, vec![gups(128, 100)]));
        let program = &outcome.programs[0];
        assert_eq!(program.resident_bytes, 128 << 20, "{system}");
        assert_eq!(program.huge_bytes, huge, "{system}");
        assert!(program.done && program.failed.is_none() && outcome.manager.is_none());
        assert!(program.elapsed_ns() >= 100_000_000 && program.results.operations > 0);
        assert!(outcome.samples.len() >= 2);
        assert_eq!(outcome.samples.last().unwrap().resident_bytes, 128 << 20);
    }
}

#[test]
fn a_manager_promotes_what_is_used_and_leaves_what_is_not() {
    let chunks = Placed::new(Spec::Chunks(ChunksOptions {
        mib: 192,
        time_ns: 1_500_000_000,
        ..ChunksOptions::default()
    }));
    let outcome = run(&scenario("mega:compact=off", vec![chunks]));
    // One chunk of six is used: 32 MB.
    assert_eq!(outcome.programs[0].huge_bytes, 32 << 20);
    assert_eq!(outcome.manager.unwrap().promoted, 16);
}

#[test]
fn the_same_scenario_gives_the_same_bytes_and_its_text_reads_back() {
    let mut scenario = scenario("mega", vec![gups(64, 600), gups(32, 200)]);
    scenario.programs[1].starts = Duration::from_millis(70);
    scenario.programs[1].exits = true;
    scenario.fragment = Some(Fragment::Unusable {
        share: Share::percent(80),
        unmovable: Share::percent(3),
    });
    let first = run(&scenario);
    // Not assert_eq: histograms are long.
    assert!(format!("{first:?}") == format!("{:?}", run(&scenario)));
    assert_eq!(first.programs[1].start_ns, 70_000_000);
    let again = Scenario::from_json(&scenario.to_json()).unwrap();
    assert_eq!(again, scenario);
}

#[test]
fn an_end_ends_it_and_memory_that_does_not_fit_kills_the_program_that_wanted_it() {
    let mut short = scenario("base", vec![gups(64, 100_000)]);
    short.ends = Some(Duration::from_millis(300));
    let outcome = run(&short);
    assert!(!outcome.programs[0].done);
    assert!(
        (300_000_000..310_000_000).contains(&outcome.end_ns),
        "{}",
        outcome.end_ns
    );
    let outcome = run(&scenario("base", vec![gups(1024, 100)]));
    assert_eq!(outcome.programs[0].failed.as_deref(), Some("killed: out of memory"));
    assert_eq!(outcome.counters.oom_kill, 1);
}

#[test]
fn a_program_begins_after_another_is_over() {
    let mut two = scenario("base", vec![gups(64, 100), gups(32, 100)]);
    two.programs[0].after = Some(1);
    two.programs[0].starts = Duration::from_millis(30);
    let outcome = run(&two);
    let [first, second] = [&outcome.programs[0], &outcome.programs[1]];
    assert_eq!(first.start_ns, second.end_ns + 30_000_000);
    assert!(first.counted_before.pgfault >= 8192 && second.counted_before.pgfault == 0);
    assert!(first.done && second.done);
}

#[test]
fn a_program_takes_memory_where_it_runs() {
    let mut two = scenario("base", vec![gups(64, 10)]);
    two.machine.nodes = 2;
    for node in 0..2 {
        two.programs[0].node = node;
        let zones = run(&two).zones;
        let free = |node| -> u64 {
            let of_node = zones.iter().filter(|zone| zone.node == node);
            of_node.map(|zone| zone.free_pages + zone.listed_pages).sum()
        };
        assert!(free(1 - node) >= free(node) + 16_000, "{} {}", free(0), free(1));
    }
}

#[test]
fn a_long_run_keeps_a_bounded_number_of_samples() {
    let sleeps = Placed::new(Spec::Sparse(SparseOptions {
        mib: 16,
        time_ns: Some(12_000_000_000),
        ..SparseOptions::default()
    }));
    let mut long = scenario("base", vec![sleeps]);
    long.every = Duration::from_millis(1);
    let samples = run(&long).samples;
    assert!((512..=1025).contains(&samples.len()), "{}", samples.len());
    let steps: Vec<u64> = samples.windows(2).map(|s| s[1].at_ns - s[0].at_ns).collect();
    let (_, but_last) = steps.split_last().unwrap();
    assert!(but_last.iter().all(|step| *step == 16_000_000), "{:?}", &steps[..9]);
}

#[test]
fn what_is_wrong_is_named() {
    for (text, why) in [
        ("{", "line 1"),
        (r#"{"programs": []}"#, "no programs"),
        (r#"{"sytem": "base"}"#, "sytem"),
        (r#"{"system": "magic"}"#, "there are base"),
        (
            r#"{"machine": {"memory": "16"}, "programs": [{"run": {"program": "gups"}}]}"#,
            "16 MB",
        ),
        (
            r#"{"machine": {"tlb": "atari"}, "programs": [{"run": {"program": "gups"}}]}"#,
            "no TLB 'atari'",
        ),
        (
            r#"{"machine": {"costs": "atari"}, "programs": [{"run": {"program": "gups"}}]}"#,
            "no costs 'atari'",
        ),
        (
            r#"{"programs": [{"run": {"program": "chunks", "mib": 1}}]}"#,
            "program 1 (chunks)",
        ),
        (r#"{"interval": "often"}"#, "'often'"),
        (
            r#"{"interval": "1us", "programs": [{"run": {"program": "gups"}}]}"#,
            "interval: 1us is less than 1ms",
        ),
        (
            r#"{"programs": [{"run": {"program": "gups"}, "after": 1}]}"#,
            "program 1 waits for a program that is not in the list",
        ),
        (
            r#"{"cpu_budget": "0%", "programs": [{"run": {"program": "gups"}}]}"#,
            "cpu_budget: must exceed 0%",
        ),
        (
            r#"{"machine": {"swap": "2T"}, "programs": [{"run": {"program": "gups"}}]}"#,
            "machine.swap: 2048G is more than 1T",
        ),
        (
            r#"{"machine": {"memory": "1G"}, "programs": [{"run": {"program": "gups", "mib": 4096}}]}"#,
            "program 1 (gups): needs 4294967296 bytes",
        ),
    ] {
        let error = Scenario::from_json(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
