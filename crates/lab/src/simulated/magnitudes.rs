//! How far simulated figures are from published ones: of each experiment the median and the worst ratio. Inputs of the model are left out.

use std::fmt::Write as _;

use serde::Serialize;

use super::inputs::is_input;
use crate::report::scale::digits;
use crate::result::{Published, Record};
use crate::stats::median;

/// Figures whose ratio is nearer to 1 are near.
pub const NEAR: f64 = 0.25;

/// The figures of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Magnitudes {
    /// The experiment.
    pub experiment: String,
    /// Figures that are published and were simulated.
    pub figures: usize,
    /// Of these, within [`NEAR`] of what is published.
    pub within_25_percent: usize,
    /// Simulated over published of the figure in the middle by its distance from 1; of two in the middle, the farther.
    pub median: f64,
    /// The same of the farthest figure; 0 where nothing was simulated of what is published.
    pub worst: f64,
}

/// Of each of these records that has published figures above zero.
#[must_use]
pub fn magnitudes(records: &[Record]) -> Vec<Magnitudes> {
    records.iter().filter_map(of).collect()
}

fn of(record: &Record) -> Option<Magnitudes> {
    let record = record.by_what_differs();
    let mut ratios: Vec<f64> = record.published.iter().flat_map(|one| ratios(&record, one)).collect();
    ratios.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    Some(Magnitudes {
        experiment: record.experiment.name.clone(),
        figures: ratios.len(),
        within_25_percent: ratios.iter().filter(|ratio| (*ratio - 1.0).abs() <= NEAR).count(),
        median: *ratios.get(ratios.len() / 2)?,
        worst: *ratios.last()?,
    })
}

/// From 1, the same for a half and a double.
fn distance(ratio: f64) -> f64 {
    match ratio {
        ratio if ratio > 0.0 => ratio.ln().abs(),
        _ => f64::INFINITY,
    }
}

/// Simulated over published, in each case that the figure belongs to.
fn ratios(record: &Record, one: &Published) -> Vec<f64> {
    let variant = |name: &String| record.variants.iter().position(|v| v.name == *name);
    let counts = one.value > 0.0 && !is_input(&record.experiment.name, &one.metric, &one.system);
    let Some(variant) = one.variant.as_ref().and_then(variant).filter(|_| counts) else {
        return Vec::new();
    };
    let of_case = |case: &usize| one.case.as_ref().is_none_or(|name| *name == record.cases[*case].name);
    let cases = (0..record.cases.len()).filter(of_case);
    let here = |case| {
        let values: Vec<f64> = record
            .values(case, variant, &one.metric)
            .into_iter()
            .map(|(_, v)| v)
            .collect();
        Some(median(&values)? / one.value)
    };
    cases.filter_map(here).collect()
}

/// In Markdown.
#[must_use]
pub fn table(all: &[Magnitudes]) -> String {
    let mut text =
        String::from("| experiment | figures | within 25 % | median | worst |\n| --- | ---: | ---: | ---: | ---: |\n");
    for one in all {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            one.experiment,
            one.figures,
            one.within_25_percent,
            digits(one.median),
            digits(one.worst)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn half_and_double_are_equally_far_and_nothing_is_farthest() {
        assert_eq!(distance(0.5), distance(2.0));
        assert!(distance(0.0) > distance(1e-300));
    }

    #[test]
    fn the_median_and_the_worst_ratio_are_those_of_the_published_figures() {
        let mut record = synthetic::record(&Options {
            rounds: 1,
            ..Options::default()
        });
        let one = |metric: &str, variant: &str, times: f64| {
            let at = record.variants.iter().position(|v| v.name == variant).unwrap();
            let value = record.values(0, at, metric)[0].1 * times;
            Published {
                case: Some(record.cases[0].name.clone()),
                system: variant.to_string(),
                variant: Some(variant.to_string()),
                metric: metric.to_string(),
                value,
                place: String::new(),
            }
        };
        let published = vec![
            one("rss_bytes", "base", 1.0),
            one("rss_bytes", "linux-thp", 0.9),
            one("ops_per_s", "base", 4.0),
        ];
        record.published = published;
        let found = &magnitudes(&[record.clone()])[0];
        assert_eq!((found.figures, found.within_25_percent), (3, 2));
        assert!(
            (found.median - 1.0 / 0.9).abs() < 1e-9 && (found.worst - 0.25).abs() < 1e-9,
            "{found:?}"
        );
        assert!(table(std::slice::from_ref(found)).contains("| redis-bloat | 3 | 2 | 1.11 | 0.250 |"));
        record.published.clear();
        assert!(magnitudes(&[record]).is_empty());
    }
}
