//! The experiments by name: the papers', scaled to this machine, with the published numbers; and our own.
//!
//! One file per paper. An experiment names its programs, variants and main figures, what the paper found, and in one sentence what
//! differs here.

use crate::prepare::condition::Condition;
use crate::program::{catalogue, Program};
use crate::result::Published;
use crate::run::{CasePlan, Plan};
use crate::variant::Variant;

pub mod auto;
pub mod demo;
pub mod family;
mod ingens;
mod lrbhps;
mod mega;
mod member;
mod memomania;
mod ours;
pub mod programs;
mod study;
pub mod tables;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// A one-line title.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// Paper and table or figure; none: ours.
    pub source: Option<&'static str>,
    /// What differs from the paper.
    pub differs: Option<&'static str>,
    /// Systems of the paper that cannot run on an unmodified kernel, and where they can.
    pub elsewhere: Option<&'static str>,
    /// Memory needed at scale 1, with a reserve for huge page bloat.
    pub full_bytes: u64,
    setup: fn(f64) -> Setup,
}

/// An experiment at one scale.
#[derive(Debug)]
pub struct Setup {
    /// Programs, conditions, variants.
    pub plan: Plan,
    /// What the paper found, at the paper's size.
    pub published: Vec<Published>,
    /// The paper's size and ours, in words.
    pub size: Option<String>,
}

/// Part of the machine's memory that an experiment may use.
const MEMORY_SHARE: f64 = 0.7;

/// All experiments, in the order in which they are listed.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    mega::LIST
        .iter()
        .chain(ingens::LIST)
        .chain(lrbhps::LIST)
        .chain(study::LIST)
        .chain(memomania::LIST)
        .chain(ours::LIST)
        .chain(auto::LIST)
        .chain(programs::LIST)
}

/// The experiment of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.name == name)
}

impl Experiment {
    /// The scale that fits a machine with this much memory: at most 1, the paper's size.
    #[must_use]
    pub fn fitting_scale(&self, memory_bytes: u64) -> f64 {
        let fits = memory_bytes as f64 * MEMORY_SHARE / self.full_bytes.max(1) as f64;
        // Two digits: the same machine gives the same scale, whatever its kernel reserves.
        ((fits * 100.0).floor() / 100.0).clamp(0.01, 1.0)
    }

    /// Its programs and variants at a scale.
    #[must_use]
    pub fn setup(&self, scale: f64) -> Setup {
        (self.setup)(scale)
    }
}

/// The papers' systems on this kernel, beside the papers' figures: their policy and their planner, without our budgets. Of our demotion for
/// zero-filled pages MEGA keeps that of huge pages that are nothing else.
pub(crate) const INGENS: &str = "ingens:compact=ingens:cpu-budget=100%:stall-budget=100%";
pub(crate) const MEGA: &str = "mega:zdem=100%:compact=mega:cpu-budget=100%:stall-budget=100%";

const GB: f64 = 1e9;
const GIB: u64 = 1 << 30;

/// A program of the catalogue at a scale.
///
/// # Panics
/// When the catalogue has no such program; a test covers all experiments.
fn program(name: &str, scale: f64) -> Box<dyn Program> {
    let entry = catalogue::find(name).unwrap_or_else(|| panic!("no program '{name}' in the catalogue"));
    (entry.make)(scale)
}

fn case(name: &str, program: Box<dyn Program>, condition: Condition) -> CasePlan {
    CasePlan {
        name: name.to_string(),
        program,
        condition,
    }
}

fn plan(cases: Vec<CasePlan>, variants: &[&str], main: &[&str]) -> Plan {
    let parse = |name: &&str| name.parse::<Variant>().unwrap_or_else(|e| panic!("{e}"));
    Plan {
        cases,
        variants: variants.iter().map(parse).collect(),
        manager_options: Vec::new(),
        prefault: !main.contains(&"free_blocks"),
        faults: main.iter().any(|name| name.starts_with("fault")),
        main: main.iter().map(ToString::to_string).collect(),
        record: None,
    }
}

/// Figures of one system in a paper: metric and value in its base unit.
pub(crate) fn published(
    place: &str,
    case: Option<&str>,
    system: &str,
    variant: Option<&str>,
    values: &[(&str, f64)],
) -> Vec<Published> {
    let one = |(metric, value): &(&str, f64)| Published {
        case: case.map(str::to_string),
        system: system.to_string(),
        variant: variant.map(str::to_string),
        metric: (*metric).to_string(),
        value: *value,
        place: place.to_string(),
    };
    values.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_experiment_can_be_set_up_at_any_scale_and_its_metrics_exist() {
        for experiment in all() {
            for scale in [0.01, 0.3, 1.0] {
                let setup = experiment.setup(scale);
                assert!(
                    !setup.plan.cases.is_empty() && !setup.plan.variants.is_empty(),
                    "{}",
                    experiment.name
                );
                let metrics: BTreeSet<String> = setup.plan.metrics().into_iter().map(|m| m.name).collect();
                for name in setup.plan.main.iter().chain(setup.published.iter().map(|p| &p.metric)) {
                    assert!(
                        metrics.contains(name),
                        "{}: no metric '{name}' in {metrics:?}",
                        experiment.name
                    );
                }
                let cases: BTreeSet<&str> = setup.plan.cases.iter().map(|c| c.name.as_str()).collect();
                assert_eq!(cases.len(), setup.plan.cases.len(), "{}: case names", experiment.name);
                let variants: BTreeSet<String> = setup.plan.variants.iter().map(ToString::to_string).collect();
                for published in &setup.published {
                    assert!(
                        published.case.as_deref().is_none_or(|case| cases.contains(case)),
                        "{published:?}"
                    );
                    assert!(
                        published.variant.as_ref().is_none_or(|v| variants.contains(v)),
                        "{published:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_every_paper_experiment_says_what_differs() {
        let names: BTreeSet<&str> = all().map(|e| e.name).collect();
        assert_eq!(names.len(), all().count());
        for experiment in all().filter(|e| e.source.is_some()) {
            assert!(experiment.differs.is_some(), "{}", experiment.name);
        }
        assert!(find("mega-table3").is_some() && find("mega-table99").is_none());
    }

    #[test]
    fn an_experiment_uses_the_memory_there_is_and_no_more() {
        for experiment in all() {
            for memory in [8 * GIB, 24 * GIB, 1024 * GIB] {
                let scale = experiment.fitting_scale(memory);
                assert!((0.01..=1.0).contains(&scale));
                let needs = |case: &CasePlan| case.program.needs().memory_bytes;
                let most = experiment.setup(scale).plan.cases.iter().map(needs).max().unwrap_or(0);
                assert!(
                    most <= memory * 8 / 10,
                    "{} needs {most} of {memory} at {scale}",
                    experiment.name
                );
            }
        }
    }
}
