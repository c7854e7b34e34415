//! `mega sim run`: figures, journals, traces, and the same bytes each time.

use mega_core::journal::{Event, Line};
use mega_lab::result::Outcome;

use crate::{built, command, result, sim, without_times, Ended, MEGA};

const CHUNKS: &[&str] = &[
    "run",
    "--workload",
    "chunks",
    "--set",
    "mib=96M",
    "--set",
    "chunk_mib=8M",
    "--set",
    "time_ns=400ms",
    "--memory",
    "256M",
    "--interval",
    "20ms",
];

fn run(more: &[&str]) -> Ended {
    sim(&[CHUNKS, more].concat())
}

#[test]
fn systems_are_run_side_by_side_and_the_report_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    // At 20 ms the default of 5 % leaves room for a region's accessed bits at a time: not enough for all in this time.
    let systems = "base,thp-always,mega:compact=off,lrbhps:t=64";
    let ended = run(&["-o", output, "--stall-budget", "20%", "--system", systems]).done();
    let text = ended.stdout();
    let (results, record) = result(folder.path());
    assert!(text.contains("operations/s") && text.contains("lrbhps:t=64"), "{text}");
    let report = results.join("report.html");
    assert!(
        text.trim_end().ends_with(&format!("report: {}", report.display())),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.starts_with("report:")),
        "{text}"
    );
    assert!(ended.stderr().contains("[4/4]"), "{}", ended.stderr());
    assert!(std::fs::read_to_string(report)
        .unwrap()
        .contains("The machine is simulated"));
    assert_eq!(record.runs.len(), 4);
    assert!(record.runs.iter().all(|run| run.outcome == Outcome::Done));
    let huge = |variant: usize| record.values(0, variant, "huge_bytes")[0].1 as u64 >> 20;
    // Chunks of which every sixth is used.
    assert_eq!((huge(0), huge(1), huge(2), huge(3)), (0, 96, 16, 96));
    assert!(record.settings.command.starts_with("mega sim run --workload chunks"));
    assert!(record.machine.is_simulated() && !record.machine.virtual_machine);
}

#[test]
fn the_same_command_gives_the_same_record_on_any_number_of_threads_and_another_seed_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let record = |name: &str, more: &[&str]| {
        let output = folder.path().join(name);
        run(&[
            &[
                "-q",
                "--rounds",
                "2",
                "--fragment",
                "50%",
                "-o",
                output.to_str().unwrap(),
            ],
            more,
        ]
        .concat())
        .done();
        without_times(result(&output).1)
    };
    let one = record("one", &["--threads", "1"]);
    assert_eq!(one.runs.len(), 6);
    assert!(one == record("many", &["--threads", "5"]));
    let other = record("other", &["--seed", "2"]);
    assert!(other.runs != one.runs && other.settings.seed == 2);
    // The second round of the first is the first of the other.
    let of_round = |record: &mega_lab::result::Record, round: usize| {
        let runs = record.runs.iter().filter(|run| run.round == round);
        runs.map(|run| run.values.clone()).collect::<Vec<_>>()
    };
    assert!(of_round(&one, 1) == of_round(&other, 0));
    assert!(of_round(&one, 0) != of_round(&one, 1));
}

#[test]
fn a_scenario_comes_from_a_file_or_standard_input_and_options_come_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two programs.json");
    let text = r#"{"machine": {"memory": "1G", "tlb": null}, "system": "thp-always", "programs": [
        {"run": {"program": "touch", "mib": 32}, "exits": true},
        {"run": {"program": "touch", "mib": 64}, "name": "late", "starts": "1s"}]}"#;
    std::fs::write(&file, text).unwrap();
    let output = folder.path().join("out");
    let args = [
        "run",
        file.to_str().unwrap(),
        "--json",
        "-q",
        "-o",
        output.to_str().unwrap(),
        "--memory",
        "256M",
    ];
    let ended = sim(&args).done();
    assert_eq!(ended.stderr(), "");
    let record: mega_lab::result::Record = serde_json::from_str(&ended.stdout()).unwrap();
    assert_eq!(
        (record.machine.memory_bytes, record.variants[0].name.as_str()),
        (256 << 20, "thp-always")
    );
    assert_eq!(record.experiment.name, "twoprograms");
    assert_eq!(record.values(0, 0, "huge_faults"), [(0, 48.0)]);
    let phases: Vec<&str> = record.runs[0].phases.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(phases, ["touch: touch", "late: touch"]);

    let mut child = command(&[
        "run",
        "-",
        "--json",
        "-q",
        "-o",
        folder.path().join("in").to_str().unwrap(),
    ])
    .stdin(std::fs::File::open(&file).unwrap())
    .stdout(std::process::Stdio::null())
    .spawn()
    .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_journal_of_a_simulated_run_is_replayed_to_the_same_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let (output, journal) = (folder.path().join("out"), folder.path().join("journal"));
    let journal = journal.to_str().unwrap();
    run(&[
        "-q",
        "-o",
        output.to_str().unwrap(),
        "--system",
        "mega",
        "--journal",
        journal,
        "--journal-full",
    ])
    .done();
    let text = std::fs::read_to_string(journal).unwrap();
    let lines: Vec<Line> = text.lines().map(|line| Line::parse(line).unwrap()).collect();
    assert!(matches!(lines[0].event, Event::Start { .. }));
    let Some(Event::Stop { promoted, .. }) = lines.last().map(|line| &line.event) else {
        panic!("{:?}", lines.last())
    };
    assert_eq!(result(&output).1.values(0, 0, "promoted"), [(0, *promoted as f64)]);
    built();
    let replayed = std::process::Command::new(MEGA)
        .args(["replay", "--json", journal])
        .output()
        .unwrap();
    assert!(replayed.status.success());
    let replayed: serde_json::Value = serde_json::from_slice(&replayed.stdout).unwrap();
    for sort in ["decisions", "outcomes"] {
        let counts = &replayed[sort];
        assert!(counts["same"].as_u64() > Some(0), "{replayed}");
        for other in ["moved", "missing", "extra"] {
            assert_eq!(counts[other], 0, "{sort}: {replayed}");
        }
    }

    for refused in [
        &["--system", "base,mega"][..],
        &["--system", "mega", "--rounds", "2"],
        &["--system", "base"],
    ] {
        run(&[&["--journal", journal], refused].concat()).one_line(2, &["--journal is for one run"]);
    }
}

#[test]
fn a_trace_is_run_under_several_systems() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    // 4 MB written page by page, then read twice.
    let text =
        "map 0x40000000 4194304\nw 0x40000000 4096 1024\nr 0x40000000 4096 1024\nr 0x40000000 4096 1024\nr 0x1000\n";
    std::fs::write(&trace, text).unwrap();
    let output = folder.path().join("out");
    let trace = trace.to_str().unwrap();
    let args = [
        "run",
        "--trace",
        trace,
        "--memory",
        "256M",
        "--system",
        "base,thp-always",
        "-q",
        "-o",
        output.to_str().unwrap(),
    ];
    sim(&args).done();
    let record = result(&output).1;
    assert_eq!(
        (record.values(0, 0, "faults"), record.values(0, 1, "faults")),
        (vec![(0, 1024.0)], vec![(0, 2.0)])
    );
    assert_eq!(record.values(0, 0, "left_out"), [(0, 1.0)]);
    assert!(record.main_metrics().any(|metric| metric.name == "elapsed_ns"));
    std::fs::write(trace, "map 0x40000000 4194304\nw soon\n").unwrap();
    sim(&args).one_line(1, &["no run completed", "line 2, column 3"]);
}

#[test]
fn the_list_names_what_can_be_run() {
    let text = sim(&["list"]).done().stdout();
    for word in [
        "gups",
        "time_ns=",
        "lrbhps",
        "thp-always",
        "mega-server",
        "zen2",
        "compact=chosen/",
    ] {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&sim(&["list", "--json"]).done().stdout()).unwrap();
    assert_eq!(
        (json["schema"].as_u64(), json["kind"].as_str()),
        (Some(1), Some("simulator"))
    );
}
