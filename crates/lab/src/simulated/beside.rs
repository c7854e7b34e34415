//! Policy `auto` beside the systems of each table: how fast it is against the best of them, in how much memory.

use std::fmt::Write as _;

use crate::result::Record;
use crate::stats::median;

/// The variant.
const AUTO: &str = "auto";
const BASE: &str = "base";
/// Figures of speed, the first that a record has counts; whether more is better.
const SPEED: [(&str, bool); 5] = [
    ("speedup", true),
    ("ops_per_s", true),
    ("fifty_rounds_ns", false),
    ("elapsed_ns", false),
    ("waited_ns", false),
];
/// Figures of memory.
const MEMORY: [&str; 2] = ["taken_bytes", "rss_bytes"];
/// As fast as the first: within this share.
const TIED: f64 = 0.01;

/// `auto` in a case of an experiment, relative to base pages.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The experiment.
    pub experiment: String,
    /// Its case.
    pub case: String,
    /// Speed of `auto`.
    pub auto: f64,
    /// The fastest other variant, and its speed.
    pub best: (String, f64),
    /// Memory of `auto`, and of the fastest other.
    pub memory: [Option<f64>; 2],
}

impl Beside {
    /// First, or tied with the first.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.auto >= self.best.1 * (1.0 - TIED)
    }
}

/// Each case in which base pages, `auto` and another were run, of experiments that measure speed.
#[must_use]
pub fn beside(records: &[Record]) -> Vec<Beside> {
    records
        .iter()
        .flat_map(|record| (0..record.cases.len()).filter_map(move |case| one(record, case)))
        .collect()
}

fn one(record: &Record, case: usize) -> Option<Beside> {
    let figure = |variant: &str, metric: &str| {
        let at = record.variants.iter().position(|known| known.name == variant)?;
        let values: Vec<f64> = record
            .values(case, at, metric)
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        median(&values).filter(|value| *value > 0.0)
    };
    let (metric, is_more) = SPEED.into_iter().find(|(metric, _)| figure(AUTO, metric).is_some())?;
    let speed = |variant: &str| {
        let (one, base) = (figure(variant, metric)?, figure(BASE, metric)?);
        Some(if is_more { one / base } else { base / one })
    };
    let others = record
        .variants
        .iter()
        .filter(|variant| variant.name != AUTO && variant.name != BASE);
    let best = others
        .filter_map(|variant| Some((variant.name.clone(), speed(&variant.name)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let memory = |variant: &str| {
        let metric = MEMORY.into_iter().find(|metric| figure(BASE, metric).is_some())?;
        Some(figure(variant, metric)? / figure(BASE, metric)?)
    };
    Some(Beside {
        experiment: record.experiment.name.clone(),
        case: record.cases[case].name.clone(),
        auto: speed(AUTO)?,
        memory: [memory(AUTO), memory(&best.0)],
        best,
    })
}

/// In Markdown.
#[must_use]
pub fn table(all: &[Beside]) -> String {
    let mut text = String::from(
        "| experiment | case | `auto` | the fastest other | memory: `auto` | memory: that other | first or tied |\n\
         | --- | --- | ---: | ---: | ---: | ---: | --- |\n",
    );
    let ratio = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{value:.2}"));
    for one in all {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} {} | {} | {} | {} |",
            one.experiment,
            one.case,
            one.auto,
            one.best.1,
            one.best.0,
            ratio(one.memory[0]),
            ratio(one.memory[1]),
            if one.is_first() { "yes" } else { "no" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn auto_is_held_against_the_fastest_other_and_base_pages_are_one() {
        let mut record = synthetic::record(&Options {
            rounds: 1,
            ..Options::default()
        });
        let mut names = [BASE, "other", AUTO, "slow"].into_iter();
        for variant in &mut record.variants {
            variant.name = names.next().unwrap_or("another").to_string();
        }
        for run in &mut record.runs {
            let speed = [100.0, 150.0, 149.0, 80.0].get(run.variant).copied().unwrap_or(1.0);
            run.values = [
                ("ops_per_s".to_string(), speed),
                ("taken_bytes".to_string(), 200.0 - speed),
            ]
            .into();
        }
        let all = beside(std::slice::from_ref(&record));
        let first = &all[0];
        assert_eq!((first.auto, first.best.clone()), (1.49, ("other".to_string(), 1.5)));
        assert!(first.is_first(), "within a hundredth");
        assert_eq!(first.memory, [Some(0.51), Some(0.5)]);
        assert!(
            table(&all).contains("| 1.49 | 1.50 other | 0.51 | 0.50 | yes |"),
            "{}",
            table(&all)
        );
        record.variants.iter_mut().for_each(|variant| variant.name += "-x");
        assert!(beside(&[record]).is_empty(), "without auto nothing");
    }
}
