//! Whether the verdicts of `mega bench` are right.

use std::time::Duration;

use mega_lab::report::comparison::comparison;
use mega_lab::stats::Verdict;

use crate::experiments::{bench, done, result};
use crate::support::MEGA;
use crate::tool::{from_env, ready, Figures};

#[test]
fn the_same_variant_twice_is_no_difference_and_a_planted_slowdown_of_five_percent_is_found() {
    let figures = Figures::of("verdicts");
    let Some(_alone) = ready(1024) else { return };
    // More work under one variant, told by what the variant says to the program: under `base` THP is disabled for it.
    let planted = format!(
        "n=3000; grep -q '^THP_enabled:.*1' /proc/self/status && n=3150; exec {MEGA} workload compute --passes $n"
    );
    let verdict = |variants: &str, command: &str, rounds: &str| {
        let output = tempfile::tempdir().unwrap();
        let args = [
            "run",
            "--rounds",
            rounds,
            "--variants",
            variants,
            "--",
            "sh",
            "-c",
            command,
        ];
        done(&bench(output.path(), &args).wait(Duration::from_secs(200)));
        let (_, record) = result(output.path());
        let doubtful = record.runs.iter().filter(|run| !run.noise.doubtful.is_empty()).count();
        let seen = comparison(&record);
        let time = seen.cases[0]
            .metrics
            .iter()
            .find(|metric| metric.metric == "elapsed_ns")
            .unwrap();
        let against = time.variants[1].against_first.as_ref().unwrap();
        (
            against.verdict.unwrap(),
            against.paired.ratio.unwrap(),
            doubtful,
            record.runs.len(),
        )
    };
    let same = format!("exec {MEGA} workload compute --passes 600");
    // Twenty, by hand: MEGA_CONTROL_TRIALS=20.
    let trials = from_env("MEGA_CONTROL_TRIALS", 3);
    let seen: Vec<_> = (0..trials).map(|_| verdict("base,base#again", &same, "6")).collect();
    let different = seen
        .iter()
        .filter(|(verdict, ..)| *verdict != Verdict::NoDifference)
        .count();
    figures.say(format!(
        "the same twice: {different} of {trials} called different: {seen:?}"
    ));
    // By chance one in 32 is: two of three once in about 350 runs of this test.
    assert!(different <= (trials as usize / 20).max(1), "{seen:?}");
    let mut told = Vec::new();
    for _ in 0..3 {
        let seen = verdict("base,thp-madvise", &planted, "8");
        told.push(seen);
        if seen.0 == Verdict::Worse {
            break;
        }
    }
    figures.say(format!("5 % slower: {told:?}"));
    let is_found = told.iter().any(|(verdict, ..)| *verdict == Verdict::Worse);
    let (doubtful, runs) = told.iter().fold((0, 0), |(d, r), told| (d + told.2, r + told.3));
    // Where the tool says itself that most runs are doubtful, it need not find it.
    assert!(is_found || doubtful * 2 > runs, "{told:?}");
}
