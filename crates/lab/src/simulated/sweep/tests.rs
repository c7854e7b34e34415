use std::fs;

use mega_sim::scenario::Silent;

use super::*;

const SMALL: &str = r#"{
    "scenario": {"machine": {"tlb": null}, "interval": "20ms"},
    "systems": ["base", "thp-always", "mega:compact=off"],
    "parameters": {"uprom": ["30%", "70%"]},
    "workloads": [
        {"program": "touch", "mib": 16},
        {"name": "both", "programs": [
            {"run": {"program": "gups", "mib": 8, "time_ns": 5000000}},
            {"run": {"program": "gups", "mib": 8, "time_ns": 5000000, "seed": 9}}
        ]}
    ],
    "memory": ["128M", "256M"],
    "fragment": [null, "80%"],
    "seeds": [1, 2]
}"#;

fn sweep() -> Sweep {
    Sweep::from_json(SMALL).unwrap()
}

fn options(folder: &Path) -> Options {
    Options {
        folder: folder.to_path_buf(),
        threads: 2,
        command: "mega sim sweep".into(),
    }
}

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn go(options: &Options) -> Result<Done, SweepError> {
    run(&sweep(), options, &AtomicBool::new(false), |_| {})
}

fn csv(done: &Done) -> String {
    fs::read_to_string(&done.csv).unwrap()
}

#[test]
fn points_are_all_combinations_in_an_order_that_the_file_gives() {
    let sweep = sweep();
    let systems: Vec<String> = sweep.systems().iter().map(ToString::to_string).collect();
    assert_eq!(
        systems,
        [
            "base",
            "thp-always",
            "mega:compact=off:uprom=30%",
            "mega:compact=off:uprom=70%"
        ]
    );
    assert_eq!(sweep.len(), 2 * 2 * 2 * 2 * 4);
    let labels: BTreeSet<String> = (0..sweep.len()).map(|i| sweep.label(sweep.point(i))).collect();
    assert_eq!(labels.len(), sweep.len());
    let label = |i| sweep.label(sweep.point(i));
    assert_eq!(label(0), "touch, base, 128M, none, seed 1");
    assert_eq!(label(5), "touch, thp-always, 128M, none, seed 2");
    assert_eq!(label(63), "both, mega:compact=off:uprom=70%, 256M, 80%, seed 2");
    let scenario = sweep.scenario(sweep.point(63));
    let seeds: Vec<u64> = scenario
        .programs
        .iter()
        .map(|placed| serde_json::to_value(&placed.run).unwrap()["seed"].as_u64().unwrap())
        .collect();
    assert_eq!((seeds, scenario.seed), (vec![2, 9], 2));
    scenario.run(&mut Silent).unwrap();
}

use std::collections::BTreeSet;

#[test]
fn the_number_of_threads_does_not_change_a_byte_and_a_stopped_sweep_keeps_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let whole = go(&options(&folder.path().join("whole"))).unwrap();
    assert_eq!((whole.done, whole.of, whole.stopped), (64, 64, false));
    let expected = csv(&whole);
    assert_eq!(expected.lines().count(), 65);
    let alone = Options {
        threads: 1,
        ..options(&folder.path().join("alone"))
    };
    assert!(csv(&go(&alone).unwrap()) == expected, "the same bytes on one thread");

    let stop = AtomicBool::new(false);
    let mut ended = 0;
    let stopped = run(&sweep(), &alone, &stop, |progress| {
        ended += usize::from(matches!(progress, Progress::Ended { .. }));
        stop.store(ended >= 5, Relaxed);
    })
    .unwrap();
    assert!(stopped.stopped && stopped.record.is_none());
    assert!((5..64).contains(&stopped.done), "{}", stopped.done);
    let first: Vec<&str> = expected.lines().take(1 + stopped.done).collect();
    assert_eq!(csv(&stopped).lines().collect::<Vec<_>>(), first);
}

#[test]
fn a_whole_sweep_has_a_record_with_a_round_for_each_seed() {
    let folder = tempfile::tempdir().unwrap();
    let record = go(&options(folder.path())).unwrap().record.unwrap();
    crate::report::check::check(&record).unwrap();
    assert_eq!(
        (record.cases.len(), record.variants.len(), record.settings.rounds),
        (8, 4, 2)
    );
    assert_eq!(record.runs.len(), 64);
    assert!(record
        .runs
        .iter()
        .all(|run| run.outcome == crate::result::Outcome::Done));
    assert_eq!(record.values(0, 0, "faults"), [(0, 4096.0), (1, 4096.0)]);
}

#[test]
fn fragments_are_read_as_they_are_written() {
    for text in ["none", "90%", "90%/3%", "study", "lrbhps=50%"] {
        let fragment = axes::parse_fragment(text).unwrap();
        assert_eq!(axes::fragment_text(fragment), text);
    }
    for bad in ["", "much", "101%", "90%/x", "lrbhps", "lrbhps="] {
        assert!(axes::parse_fragment(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_wrong_with_a_sweep_is_named() {
    let with = |from: &str, to: &str| {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL, "{from}");
        Sweep::from_json(&text).unwrap_err().to_string()
    };
    for (from, to, why) in [
        ("{", "", "expected struct File at line 2"),
        (r#""systems""#, r#""sistems""#, "sistems"),
        (r#""thp-always""#, r#""magic""#, "there are base"),
        (
            r#"["base", "thp-always", "mega:compact=off"]"#,
            "[]",
            "systems: the list is empty",
        ),
        (r#""thp-always""#, r#""base""#, "systems[1]: is a duplicate"),
        (r#""uprom""#, r#""uprm""#, "parameters.uprm: no system takes it"),
        (r#""70%""#, r#""700%""#, "parameters.uprom"),
        (
            r#"{"program": "touch", "mib": 16}"#,
            r#"{"program": "tuch"}"#,
            "workloads[0]",
        ),
        (
            r#"{"program": "touch", "mib": 16}"#,
            r#"{"program": "touch", "mob": 16}"#,
            "mob",
        ),
        (r#""seed": 9"#, r#""sead": 9"#, "workloads[1].programs[1]"),
        (r#""128M""#, r#""much""#, "memory[0]"),
        (r#""128M""#, r#""0""#, "touch, base, 0, none, seed 1"),
        (r#""128M""#, r#""256M""#, "memory[1]: is a duplicate"),
        (r#""mib": 16"#, r#""mib": 1099511627776"#, "more than 2 times"),
        (r#""80%""#, r#""800%""#, "fragment[1]"),
        (r#"[1, 2]"#, "[1, 1]", "1 is a duplicate"),
        (r#""tlb": null"#, r#""tlb": "atari""#, "no TLB 'atari'"),
        (
            r#""interval": "20ms""#,
            r#""system": "mega""#,
            "scenario: must not have programs or system",
        ),
    ] {
        let error = with(from, to);
        assert!(error.contains(why), "{from} -> {to}: {error}");
    }
    let seeds: Vec<String> = (0..100_000).map(|seed| seed.to_string()).collect();
    let error = with("[1, 2]", &format!("[{}]", seeds.join(",")));
    assert!(error.contains("more than 100000 points"), "{error}");
}

#[test]
fn shards_have_each_point_once_and_merged_give_the_bytes_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let expected = csv(&go(&options(&folder.path().join("whole"))).unwrap());
    let sweep = sweep();
    let paths: Vec<_> = (1..=3).map(|i| folder.path().join(format!("{i}.json"))).collect();
    for (index, path) in (1..).zip(&paths) {
        let which = shard::Shard { index, of: 3 };
        let run = || {
            let points = points(
                &sweep,
                which.points(&sweep),
                &options(folder.path()),
                &AtomicBool::new(false),
                |_| {},
            );
            shard::save(path, SMALL, which, &points.unwrap().rows).unwrap();
            fs::read(path).unwrap()
        };
        assert!(!shard::is_done(path, SMALL, which));
        let first = run();
        assert!(run() == first, "the same file each time");
        assert!(shard::is_done(path, SMALL, which) && !shard::is_done(path, "{}", which));
    }
    // In any order, one of them twice.
    let files = [2, 0, 1, 2].map(|i| paths[i].as_path());
    let (merged, rows) = shard::merge(files).unwrap();
    let rows = Points {
        rows,
        broken: Vec::new(),
    };
    let done = all_of(&merged, rows, &options(&folder.path().join("merged"))).unwrap();
    assert!(csv(&done) == expected && done.record.is_some());

    let why = |files: &[&Path]| shard::merge(files.iter().copied()).unwrap_err().to_string();
    assert_eq!(why(&files[..1]), "shards are missing: 2 of 3: 1, 2");
    let cut = fs::read_to_string(&paths[0]).unwrap();
    for (bad, words) in [
        (cut[..cut.len() / 2].to_owned(), "EOF"),
        (
            cut.replace("\"point\":3,", "\"point\":4,"),
            "its points are not those of its shard",
        ),
        (cut.replace("\"index\":1,", "\"index\":0,"), "expected I/N"),
        (
            cut.replace("16}", "24}").replace("\\\"mib\\\": 16", "\\\"mib\\\": 24"),
            "of another sweep",
        ),
        (cut.replace("4096", "4097"), "another file has other results of shard 1"),
    ] {
        assert!(bad != cut, "{words}");
        let path = folder.path().join("bad.json");
        fs::write(&path, bad).unwrap();
        let why = why(&[&paths[0], &paths[1], &paths[2], &path]);
        assert!(why.contains(words) && why.contains("bad.json"), "{why}");
    }
}
