use std::collections::BTreeSet;

use super::*;
use crate::experiment as live;
use crate::result::Outcome;

/// Small enough for all of them in some seconds.
const SMALL: f64 = 0.02;

#[test]
fn names_are_unique_and_an_experiment_of_a_live_ones_name_is_of_the_same_table() {
    let names: BTreeSet<&str> = all().map(|experiment| experiment.name).collect();
    assert_eq!(names.len(), all().count());
    for experiment in all() {
        assert!(
            !experiment.differs.is_empty() && !experiment.question.is_empty(),
            "{}",
            experiment.name
        );
        if let Some(twin) = live::find(experiment.name) {
            assert_eq!(twin.source, Some(experiment.source), "{}", experiment.name);
        }
    }
    assert!(find("mega-table3").is_some() && find("mega-table99").is_none());
}

#[test]
fn every_experiment_can_be_set_up_and_its_published_figures_have_a_case_and_a_system() {
    for experiment in all() {
        for scale in [0.01, 0.3, 1.0] {
            let setup = experiment.setup(scale);
            let systems: BTreeSet<&str> = setup.systems.iter().map(|s| s.text).collect();
            assert_eq!(systems.len(), setup.systems.len(), "{}: systems", experiment.name);
            let cases: BTreeSet<&str> = setup.cases.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(cases.len(), setup.cases.len(), "{}: cases", experiment.name);
            for case in &setup.cases {
                for system in &setup.systems {
                    let text = case.system.as_deref().unwrap_or(system.text);
                    let scenario = mega_sim::scenario::Scenario {
                        system: text.parse().unwrap_or_else(|e| panic!("{}: {e}", experiment.name)),
                        ..case.scenario.clone()
                    };
                    scenario
                        .check()
                        .unwrap_or_else(|e| panic!("{}, {}: {e}", experiment.name, case.name));
                }
            }
            for published in &setup.published {
                let known = published.case.as_deref().is_none_or(|case| cases.contains(case));
                assert!(known, "{}: {published:?}", experiment.name);
                let known = published.variant.as_deref().is_none_or(|v| systems.contains(v));
                assert!(known, "{}: {published:?}", experiment.name);
            }
            for miss in experiment.misses.iter().chain(experiment.unknown) {
                assert!(miss.case.is_empty() || cases.contains(miss.case), "{miss:?}");
                for name in [miss.a, miss.b] {
                    assert!(name.is_empty() || published_name(&setup, name), "{miss:?}");
                }
            }
        }
    }
}

fn published_name(setup: &Setup, name: &str) -> bool {
    setup.published.iter().any(|p| p.system == name) || setup.systems.iter().any(|s| s.paper == name)
}

#[test]
fn every_experiment_runs_small_and_has_what_the_paper_has() {
    for experiment in all() {
        let record = experiment.run(SMALL, 1, 2, &|_| {});
        for run in &record.runs {
            assert_eq!(
                run.outcome,
                Outcome::Done,
                "{}, {}, {}",
                experiment.name,
                record.cases[run.case].name,
                record.variants[run.variant].name
            );
        }
        for name in experiment.setup(SMALL).main {
            let shown = record.main_metrics().any(|metric| metric.name == name);
            assert!(shown, "{}: no metric {name} to be shown first", experiment.name);
        }
        let measured = record.by_what_differs();
        for published in measured.published.iter().filter(|p| p.variant.is_some()) {
            let variant = measured
                .variants
                .iter()
                .position(|v| Some(&v.name) == published.variant.as_ref());
            let variant = variant.unwrap_or_else(|| panic!("{}: {published:?}", experiment.name));
            let has = (0..measured.cases.len()).any(|c| !measured.values(c, variant, &published.metric).is_empty());
            assert!(has, "{}: no value for {published:?}", experiment.name);
            let known = record.metrics.iter().any(|metric| metric.name == published.metric);
            assert!(known, "{}: no metric {}", experiment.name, published.metric);
        }
        let text = side_by_side(&record);
        assert!(text.contains("| figure | system | published |"), "{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_record_on_any_number_of_threads() {
    let experiment = find("mega-table4").unwrap();
    let text = |threads| serde_json::to_string(&experiment.run(0.01, 3, threads, &|_| {})).unwrap();
    let one = text(1);
    // Not assert_eq: it is long.
    assert!(one == text(4) && one.contains("huge_bytes"));
}
