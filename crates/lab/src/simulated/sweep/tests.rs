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
        shard: Shard::WHOLE,
        threads: 2,
        anew: false,
        made_by: "test".into(),
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
fn shards_are_the_whole_and_what_was_interrupted_leaves_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = go(&options(&folder.path().join("whole"))).unwrap();
    assert_eq!((whole.done, whole.of, whole.stopped), (64, 64, false));
    let expected = csv(&whole);
    assert_eq!(expected.lines().count(), 65);

    // On another number of threads, stopped twice.
    let stopped = folder.path().join("stopped");
    for most in [5, 20, 1000] {
        let stop = AtomicBool::new(false);
        let mut ended = 0;
        let done = run(
            &sweep(),
            &Options {
                threads: 1,
                ..options(&stopped)
            },
            &stop,
            |progress| {
                ended += usize::from(matches!(progress, Progress::Ended { .. }));
                stop.store(ended >= most, Relaxed);
            },
        );
        let done = done.unwrap();
        assert_eq!(done.stopped, most < 1000);
        if most == 1000 {
            assert!(csv(&done) == expected, "resumed, the same bytes");
        }
    }

    // By three shards, each on its own, in any order; then the whole has nothing to do.
    let shards = folder.path().join("shards");
    let mut lines: Vec<String> = Vec::new();
    for number in [2, 3, 1] {
        let shard = Shard { number, of: 3 };
        let done = go(&Options {
            shard,
            ..options(&shards)
        })
        .unwrap();
        assert_eq!(done.done, if number == 1 { 22 } else { 21 });
        lines.extend(csv(&done).lines().skip(1).map(str::to_string));
    }
    lines.sort_by_key(|line| line.split(',').next().unwrap().parse::<usize>().unwrap());
    assert!(
        expected.lines().skip(1).eq(lines.iter().map(String::as_str)),
        "the union is the whole"
    );
    let mut begun = 0;
    let done = run(&sweep(), &options(&shards), &AtomicBool::new(false), |progress| {
        begun += usize::from(matches!(progress, Progress::Begins { .. }));
    });
    assert!(begun == 0 && csv(&done.unwrap()) == expected);
}

#[test]
fn a_half_written_line_is_dropped_and_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let expected = csv(&go(&options(folder.path())).unwrap());
    let results = folder.path().join("results.jsonl");
    let text = fs::read_to_string(&results).unwrap();
    for cut in [text.len() - 7, text.len() / 2, 20, 0] {
        fs::write(&results, &text[..cut]).unwrap();
        let mut notices = Vec::new();
        let done = run(&sweep(), &options(folder.path()), &AtomicBool::new(false), |progress| {
            if let Progress::Notice(text) = progress {
                notices.push((*text).to_string());
            }
        });
        assert!(csv(&done.unwrap()) == expected, "cut at {cut}");
        assert_eq!(notices.len(), usize::from(cut > 0), "{notices:?}");
        assert!(notices.iter().all(|text| text.contains("dropped")));
    }
}

#[test]
fn results_of_another_sweep_or_mega_are_refused_and_anew_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    go(&options).unwrap();
    let other = SMALL.replace(r#""seeds": [1, 2]"#, r#""seeds": [1, 3]"#);
    let other = Sweep::from_json(&other).unwrap();
    let never = AtomicBool::new(false);
    let error = run(&other, &options, &never, |_| {}).unwrap_err().to_string();
    assert!(error.contains("another sweep") && error.contains("--anew"), "{error}");
    let newer = Options {
        made_by: "newer".into(),
        ..options.clone()
    };
    let error = go(&newer).unwrap_err().to_string();
    assert!(error.contains("mega test") && error.contains("newer"), "{error}");
    assert!(go(&Options { anew: true, ..newer }).is_ok());
    // Another layout of the same content is the same sweep.
    let same = SMALL
        .replace('\n', " ")
        .replace(r#""program": "touch", "mib": 16"#, r#""mib": 16, "program": "touch""#);
    assert_ne!(same, SMALL);
    assert_eq!(Sweep::from_json(&same).unwrap().hash(), sweep().hash());
}

#[test]
fn lines_that_no_sweep_wrote_are_named_with_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    go(&options).unwrap();
    let results = folder.path().join("results.jsonl");
    let text = fs::read_to_string(&results).unwrap();
    let header = text.lines().next().unwrap();
    for (bad, why) in [
        (format!("{header}\n{{\"point\":99}}\n"), "line 2: missing field"),
        (
            format!("{header}\n{{\"point\":64,\"failed\":null,\"values\":{{}}}}\n"),
            "line 2: point 64 of 64",
        ),
        (format!("{header}\nhello\n"), "line 2: "),
        ("{}\n".to_string(), "line 1: not the first line"),
        ("\u{0}\n".to_string(), "line 1: not the first line"),
        (format!("{header}\n{}", "x".repeat(2 << 20)), "line 2: too long"),
    ] {
        fs::write(&results, bad).unwrap();
        let error = go(&options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn two_at_once_do_not_write_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = sweep();
    let open = |shard| Results::open(folder.path(), &sweep, shard, "test", false);
    let first = open(Shard::WHOLE).unwrap();
    assert!(matches!(open(Shard::WHOLE), Err(SweepError::Busy(_))));
    assert!(open(Shard { number: 1, of: 2 }).is_ok());
    drop(first);
    assert!(open(Shard::WHOLE).is_ok());
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
fn shards_are_read_as_they_are_written_and_nothing_else_is() {
    for (text, number, of) in [("1/1", 1, 1), ("2/4", 2, 4), ("4/4", 4, 4)] {
        assert_eq!(text.parse(), Ok(Shard { number, of }));
    }
    for bad in [
        "",
        "1",
        "0/4",
        "5/4",
        "1/0",
        "-1/4",
        "a/b",
        "1/4/2",
        "+1/4",
        "1/99999999999999999999",
    ] {
        assert!(bad.parse::<Shard>().is_err(), "{bad}");
    }
    for of in [1, 3, 7] {
        let shards: Vec<Shard> = (1..=of).map(|number| Shard { number, of }).collect();
        assert!((0..100).all(|i| shards.iter().filter(|shard| shard.has(i)).count() == 1));
    }
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
        (r#""thp-always""#, r#""base""#, "systems[1]: it is in the list already"),
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
        (r#""128M""#, r#""256M""#, "memory[1]: it is in the list already"),
        (r#""mib": 16"#, r#""mib": 1099511627776"#, "more than 2 times"),
        (r#""80%""#, r#""800%""#, "fragment[1]"),
        (r#"[1, 2]"#, "[1, 1]", "1 is there twice"),
        (r#""tlb": null"#, r#""tlb": "atari""#, "no TLB 'atari'"),
        (
            r#""interval": "20ms""#,
            r#""system": "mega""#,
            "scenario: programs and system are not its",
        ),
    ] {
        let error = with(from, to);
        assert!(error.contains(why), "{from} -> {to}: {error}");
    }
    let seeds: Vec<String> = (0..100_000).map(|seed| seed.to_string()).collect();
    let error = with("[1, 2]", &format!("[{}]", seeds.join(",")));
    assert!(error.contains("more than 1000000 points"), "{error}");
}
