//! A paper's table or figure in simulation: its programs on its machine under its systems, and what the paper found.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use mega_sim::scenario::{Outcome as SimOutcome, Scenario, ScenarioError, Silent, System};

use super::{derived, figures};
use crate::measure::speedup;
use crate::result::{About, Metric, Published, Record, Run};
use crate::stats::median;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line; a live experiment of this name is of the same table.
    pub name: &'static str,
    /// The paper, in a word.
    pub paper: &'static str,
    /// A one-line title.
    pub title: &'static str,
    /// Paper and table or figure.
    pub source: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// What differs from the paper.
    pub differs: &'static str,
    /// Published facts that the model cannot know, and why.
    pub cannot_know: &'static [(&'static str, &'static str)],
    /// Comparisons that differ from the published ones, and why.
    pub misses: &'static [Miss],
    /// Comparisons that are published without numbers.
    pub words: &'static [Words],
    /// Comparisons that depend on what the model cannot know, whether reproduced or not, and on what.
    pub unknown: &'static [Miss],
    pub(super) setup: fn(f64) -> Setup,
}

/// A pattern of comparisons and the reason why they differ from the published ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miss {
    /// The case; empty: any.
    pub case: &'static str,
    /// The metric; a trailing star matches any suffix.
    pub metric: &'static str,
    /// One system, by the paper's name; empty: any.
    pub a: &'static str,
    /// The other; empty: any.
    pub b: &'static str,
    /// Why.
    pub why: &'static str,
}

impl Miss {
    /// Whether it matches this comparison.
    #[must_use]
    pub fn fits(&self, case: &str, metric: &str, a: &str, b: &str) -> bool {
        let metrics = match self.metric.strip_suffix('*') {
            Some(begin) => metric.starts_with(begin),
            None => metric == self.metric,
        };
        let is = |wanted: &str, name: &str| wanted.is_empty() || wanted == name;
        let systems = (is(self.a, a) && is(self.b, b)) || (is(self.a, b) && is(self.b, a));
        metrics && is(self.case, case) && systems
    }
}

/// A comparison published without numbers: one system has more of something than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The case.
    pub case: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// The system with more, by the paper's name.
    pub more: &'static str,
    /// The system with less.
    pub less: &'static str,
    /// Where it is published.
    pub place: &'static str,
}

/// A program under a condition.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name, unique in the experiment.
    pub name: String,
    /// What runs, in words.
    pub program: String,
    /// The state of memory, in words.
    pub condition: String,
    /// Everything else. Its system is replaced unless the case has its own.
    pub scenario: Scenario,
    /// Its own system, instead of the experiment's.
    pub system: Option<String>,
    /// Number of trailing programs that only prepare or load the machine: their figures do not count.
    pub beside: usize,
}

impl Case {
    /// A scenario in which all programs count.
    #[must_use]
    pub fn new(name: &str, program: impl Into<String>, condition: &str, scenario: Scenario) -> Self {
        Self {
            name: name.to_string(),
            program: program.into(),
            condition: condition.to_string(),
            scenario,
            system: None,
            beside: 0,
        }
    }

    /// The same with this many trailing programs that do not count.
    #[must_use]
    pub fn beside(self, beside: usize) -> Self {
        Self { beside, ..self }
    }
}

/// A system under its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemOf {
    /// The paper's.
    pub paper: &'static str,
    /// The variant of the live experiment that corresponds; empty: none.
    pub live: &'static str,
    /// By the grammar of [`System`].
    pub text: &'static str,
}

/// Ours, as `mega run` has it: the agent's rules at faults, the manager's between them.
pub const AUTO: SystemOf = SystemOf {
    paper: "auto",
    live: "auto",
    text: "auto",
};

/// An experiment at one scale.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What runs.
    pub cases: Vec<Case>,
    /// The systems; the first is the baseline.
    pub systems: Vec<SystemOf>,
    /// The metrics that are shown first.
    pub main: Vec<&'static str>,
    /// What the paper found, by our names.
    pub published: Vec<Published>,
    /// If the paper has ratios: their metric, and the system with 1.
    pub speedup_of: Option<(&'static str, &'static str)>,
    /// The paper's size and this one, in words.
    pub size: String,
}

/// Progress of an experiment.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins: its number from 0, of so many.
    Begins {
        /// Number of this run.
        number: usize,
        /// Of so many.
        of: usize,
        /// Its case.
        case: &'a str,
        /// Its system, by the paper's name.
        system: &'a str,
    },
    /// It ended: its number, and the simulated time.
    Ended {
        /// Number of this run.
        number: usize,
        /// What came out.
        run: &'a Run,
    },
}

impl Experiment {
    /// Its cases and systems at a scale; 1 is the paper's size. Ours is beside the paper's.
    #[must_use]
    pub fn setup(&self, scale: f64) -> Setup {
        let mut setup = (self.setup)(scale);
        let chooses = setup.cases.iter().any(|case| case.system.is_none());
        if chooses && setup.systems.len() > 1 {
            setup.systems.push(AUTO);
        }
        setup
    }

    /// Runs every case under every system once, on this many threads. The same scale and seed give the same record on any number of threads.
    ///
    /// # Panics
    /// When a run panics: a bug in the simulator.
    #[must_use]
    pub fn run(&self, scale: f64, seed: u64, threads: usize, tell: &(dyn Fn(&Progress<'_>) + Sync)) -> Record {
        let setup = self.setup(scale);
        let of = setup.cases.len() * setup.systems.len();
        let next = AtomicUsize::new(0);
        let runs = Mutex::new(Vec::with_capacity(of));
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= of {
                break;
            }
            let (case, system) = (number / setup.systems.len(), number % setup.systems.len());
            tell(&Progress::Begins {
                number,
                of,
                case: &setup.cases[case].name,
                system: setup.systems[system].paper,
            });
            let run = run_once(&setup, case, system, seed);
            tell(&Progress::Ended { number, run: &run });
            if let Ok(mut runs) = runs.lock() {
                runs.push(run);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.clamp(1, of.max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let runs = runs.into_inner().unwrap_or_default();
        self.record(&setup, runs, scale, seed)
    }

    fn record(&self, setup: &Setup, runs: Vec<Run>, scale: f64, seed: u64) -> Record {
        let machine = setup.cases.first().map(|case| case.scenario.machine.clone());
        let variant = |system: &SystemOf| {
            let parsed: Option<System> = system.text.parse().ok();
            let mut info = parsed
                .as_ref()
                .map(figures::variant)
                .unwrap_or_else(|| crate::result::VariantInfo {
                    name: system.text.to_string(),
                    about: String::new(),
                    knobs: std::collections::BTreeMap::new(),
                });
            info.about = format!("{}: {}", system.paper, info.about);
            info
        };
        let case = |case: &Case| crate::result::Case {
            name: case.name.clone(),
            program: case.program.clone(),
            condition: case.condition.clone(),
        };
        let mut record = figures::record(figures::Parts {
            about: About {
                name: self.name.to_string(),
                title: self.title.to_string(),
                question: self.question.to_string(),
                source: Some(self.source.to_string()),
                scale: Some(setup.size.clone()),
                differs: Some(self.differs.to_string()),
            },
            machine: figures::machine(&machine.unwrap_or_default()),
            cases: setup.cases.iter().map(case).collect(),
            variants: setup.systems.iter().map(variant).collect(),
            runs,
            published: setup.published.clone(),
            main: setup.main.iter().map(ToString::to_string).collect(),
            rounds: 1,
            seed,
            command: format!("mega sim {} --scale {scale} --seed {seed}", self.name),
        });
        if let Some((metric, first)) = setup.speedup_of {
            add_speedups(&mut record, metric, first);
        }
        add_metrics(&mut record, &setup.main);
        record
    }
}

/// One run. What cannot be run is a failed run with the reason.
fn run_once(setup: &Setup, case: usize, system: usize, seed: u64) -> Run {
    let plan = &setup.cases[case];
    let text = plan.system.as_deref().unwrap_or(setup.systems[system].text);
    let run = |text: &str| -> Result<SimOutcome, String> {
        let system: System = text
            .parse()
            .map_err(|e: mega_sim::scenario::SystemError| e.to_string())?;
        let scenario = Scenario {
            system,
            seed,
            ..plan.scenario.clone()
        };
        scenario.check().map_err(|e: ScenarioError| e.to_string())?;
        scenario.run(&mut Silent).map_err(|e| e.to_string())
    };
    match run(text) {
        Err(why) => figures::failed_run(why, case, system, 0),
        Ok(all) => {
            let measured = measured(all, plan.beside);
            let mut run = figures::run_of(&measured, case, system, 0);
            let more = derived::values(&measured, &run);
            run.values
                .extend(more.into_iter().map(|(name, value)| (name.to_string(), value)));
            run
        }
    }
}

/// The outcome of the programs that count: the others are left out, and counters begin with the first that counts.
fn measured(mut outcome: SimOutcome, beside: usize) -> SimOutcome {
    let failed = outcome
        .programs
        .iter()
        .rev()
        .take(beside)
        .find_map(|p| p.failed.clone());
    outcome.programs.truncate(outcome.programs.len().saturating_sub(beside));
    if beside > 0 {
        if let Some(first) = outcome.programs.first_mut() {
            outcome.counters = derived::grown(&outcome.counters, &first.counted_before);
            first.failed = first.failed.take().or(failed);
        }
    }
    outcome
}

/// Adds each run's speed-up over the first system in the same case; times are inverted.
fn add_speedups(record: &mut Record, metric: &str, first: &str) {
    let Some(base) = record.variants.iter().position(|variant| variant.name == first) else {
        return;
    };
    let of = |record: &Record, case, variant| {
        let values: Vec<f64> = record.values(case, variant, metric).iter().map(|(_, v)| *v).collect();
        median(&values)
    };
    let bases: Vec<Option<f64>> = (0..record.cases.len()).map(|case| of(record, case, base)).collect();
    for run in &mut record.runs {
        let Some((base, value)) = bases[run.case].zip(run.values.get(metric).copied()) else {
            continue;
        };
        if base > 0.0 && value > 0.0 {
            let ratio = if metric.ends_with("_ns") {
                base / value
            } else {
                value / base
            };
            run.values.insert(speedup::NAME.to_string(), ratio);
        }
    }
}

/// Adds the metrics that this record has beyond the lab's, and orders all of them.
fn add_metrics(record: &mut Record, main: &[&str]) {
    let there = |record: &Record, name: &str| record.runs.iter().any(|run| run.values.contains_key(name));
    let new: Vec<Metric> = derived::metrics()
        .into_iter()
        .filter(|metric| there(record, &metric.name) && record.metrics.iter().all(|known| known.name != metric.name))
        .collect();
    record.metrics.extend(new);
    let place = |metric: &Metric| main.iter().position(|name| *name == metric.name);
    for metric in &mut record.metrics {
        metric.main = place(metric).is_some();
    }
    record.metrics.sort_by_key(|metric| place(metric).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_fits_by_case_metric_and_both_systems_in_any_order() {
        let miss = Miss {
            case: "",
            metric: "fault_*",
            a: "MEGA",
            b: "Ingens",
            why: "",
        };
        assert!(miss.fits("redis", "fault_p90_ns", "Ingens", "MEGA"));
        assert!(miss.fits("redis", "fault_p90_ns", "MEGA", "Ingens"));
        assert!(!miss.fits("redis", "fault_p90_ns", "Ingens", "Linux"));
        assert!(!miss.fits("redis", "faults", "Ingens", "MEGA"));
        let any = Miss {
            a: "",
            case: "redis",
            metric: "faults",
            ..miss
        };
        assert!(any.fits("redis", "faults", "Ingens", "Linux") && !any.fits("kv", "faults", "Ingens", "Linux"));
    }
}
