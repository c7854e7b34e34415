//! What the documents publish is what the records in `results` say. `make results` writes the tables anew (MEGA_RESULTS=write).

use std::fs;
use std::path::{Path, PathBuf};

use mega_lab::documents::fill;
use mega_lab::experiment::auto::gates::{gates, Seen};
use mega_lab::experiment::auto::reasons;
use mega_lab::experiment::{family, programs, tables};
use mega_lab::report::folder;
use mega_lab::result::Record;
use mega_lab::simulated::accuracy::{compare, Half, PARTS};
use mega_lab::simulated::magnitudes::{magnitudes, table};
use mega_lab::simulated::{self, beside, count, recorded};

/// Pages with tables in them.
const PAGES: [&str; 4] = [
    "docs/simulator-experiments.md",
    "docs/presets.md",
    "docs/simulator.md",
    "docs/results.md",
];
/// Pages that are made as a whole from the records of a family.
const WHOLE: [(&str, &str); 2] = [("auto", "docs/auto.md"), ("programs", "docs/programs.md")];
/// A record in a repository is small.
const LARGEST: u64 = 256 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of a folder below `results`, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root().join("results").join(folder)) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("the entry can be read").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    paths
}

fn records(folder: &str) -> Vec<Record> {
    let read = |path: &PathBuf| folder::read(path).unwrap_or_else(|error| panic!("{error}"));
    files(folder).iter().map(read).collect()
}

/// The simulated records in the order of the experiments.
fn simulated_records() -> Vec<Record> {
    let of = |experiment: &simulated::Experiment| {
        let path = root()
            .join("results/simulated")
            .join(format!("{}.json", experiment.name));
        folder::read(&path).unwrap_or_else(|error| panic!("{error}"))
    };
    simulated::all().map(of).collect()
}

/// What the simulator says beside what the machine said.
fn accuracy(half: Half) -> String {
    let [live, counted, simulated] = PARTS.map(|part| {
        let name = format!("results/accuracy/{}-{part}.json", half.name());
        folder::read(&root().join(name)).unwrap_or_else(|error| panic!("{error}"))
    });
    compare(half, &live, &counted, &simulated).text()
}

/// Compares, or with MEGA_RESULTS=write replaces.
fn is_or_becomes(path: &str, wanted: &str) {
    if std::env::var_os("MEGA_RESULTS").is_some_and(|value| value == "write") {
        fs::write(root().join(path), wanted).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    for (number, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(
            found,
            wanted,
            "{path}:{}: not what the records say; `make results`",
            number + 1
        );
    }
    assert_eq!(found.lines().count(), wanted.lines().count(), "{path}: `make results`");
}

#[test]
fn the_tables_of_the_documents_are_made_from_the_records() {
    let records = simulated_records();
    let (orderings, programs, live) = (count(&records), self::records("programs"), self::records("live"));
    let made = |name: &str| match name {
        "directions" => Some(orderings.counts()),
        "magnitudes" => Some(table(&magnitudes(&records))),
        "beside" => Some(beside::table(&beside::beside(&records))),
        "presets" => Some(programs::presets(&programs)),
        "recorded" => Some(recorded::tables(&self::records("recorded"), &programs)),
        "accuracy-held-out" => Some(accuracy(Half::HeldOut)),
        "live-machine" => Some(tables::machine(&live)),
        "live-directions" => Some(tables::directions(&live)),
        _ => {
            let name = name.strip_prefix("live ")?;
            let record = live.iter().find(|record| record.experiment.name == name)?;
            Some(tables::beside(record))
        }
    };
    for path in PAGES {
        let filled = fill(&text(path), made).unwrap_or_else(|error| panic!("{path}: {error}"));
        is_or_becomes(path, &filled);
    }
}

#[test]
fn each_live_record_has_its_table() {
    let page = text("docs/results.md");
    for record in records("live") {
        let name = &record.experiment.name;
        assert!(
            page.contains(&format!("<!-- from results: live {name} -->")),
            "{name} is nowhere"
        );
    }
}

#[test]
fn the_counts_that_sentences_name_are_those_of_the_records() {
    let both = count(&simulated_records()).of(&["MEGA", "LRBHPS"]);
    let (all, known) = (both.orders, both.knowable_not_tied);
    let (reproduced, of) = (all.reproduced, all.of);
    let percent = format!("{:.0} %", all.percent());
    for (path, wanted) in [
        (
            "README.md",
            format!("{reproduced} of {of} ({percent}) come out as published"),
        ),
        ("README.md", format!("{} of {}", known.reproduced, known.of)),
        (
            "docs/figures.md",
            format!("| {reproduced} of {of}, [{} of {} without", known.reproduced, known.of),
        ),
        (
            "docs/simulator-experiments.md",
            format!("Of the {of} better-or-worse comparisons"),
        ),
        (
            "docs/simulator-experiments.md",
            format!("**{reproduced} ({percent}) come out"),
        ),
    ] {
        let page = text(path).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&wanted), "{path} does not say: {wanted}");
    }
}

#[test]
fn what_the_readme_says_of_real_programs_is_in_their_records() {
    let records = records("programs");
    let of = |variant: &str| {
        let speeds = programs::speeds(&records, variant);
        assert_eq!(speeds.len(), records.len(), "each ran under {variant}");
        let gain = speeds.iter().filter(|speed| **speed >= 1.05).count();
        (gain, speeds[0], speeds[speeds.len() - 1])
    };
    let ((thp, thp_least, thp_most), (auto, auto_least, auto_most)) = (of("thp-always"), of("auto"));
    let runs = || records.iter().flat_map(|record| &record.runs);
    let doubtful = runs().filter(|run| !run.noise.doubtful.is_empty()).count();
    let doubt = if 2 * doubtful > runs().count() {
        "; most runs disturbed"
    } else {
        ""
    };
    let wanted = format!(
        "of [{} real programs](docs/programs.md) {thp} gained 5 % or more under stock THP ({thp_least:.2} to {thp_most:.2} times the \
         speed), {auto} under `auto` ({auto_least:.2} to {auto_most:.2}{doubt})",
        records.len(),
    );
    let page = text("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&wanted), "README.md does not say: {wanted}");
}

#[test]
fn pages_of_a_family_are_made_from_its_records() {
    for (name, path) in WHOLE {
        let records = records(name);
        if records.is_empty() {
            assert!(!root().join(path).exists(), "{path} has no records in results/{name}");
            continue;
        }
        let family = family::find(name).expect("a family");
        is_or_becomes(path, &(family.document)(&records));
        is_or_becomes(&path.replace(".md", ".svg"), &(family.picture)(&records));
    }
}

#[test]
fn what_is_missed_has_a_reason() {
    let records = records("auto");
    let seen: Vec<Seen<'_>> = records.iter().map(|record| Seen { record, case: 0 }).collect();
    for gate in gates(&seen) {
        assert!(
            gate.reached() != Some(false) || reasons::of(&gate.what).is_some(),
            "{}: {:?}",
            gate.what,
            gate.figure
        );
    }
}

#[test]
fn each_record_is_whole_small_and_says_how_it_was_made() {
    let mut seen = 0;
    for folder in ["simulated", "live", "auto", "programs", "accuracy", "recorded"] {
        for path in files(folder) {
            let shown = path.display();
            let record = folder::read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(fs::metadata(&path).unwrap().len() <= LARGEST, "{shown} is too large");
            assert!(record.settings.commit.is_some(), "{shown}: of which commit?");
            assert!(record.ended_early.is_none(), "{shown}: ended early");
            assert!(record.runs.iter().all(|run| run.series.seconds.is_empty()), "{shown}");
            let text = fs::read_to_string(&path).unwrap();
            for place in ["/home/", "/root/", "/tmp/", "/work/"] {
                assert!(!text.contains(place), "{shown}: {place} is a place on one machine");
            }
            seen += 1;
        }
    }
    assert!(seen >= simulated::all().count(), "{seen} records");
}
