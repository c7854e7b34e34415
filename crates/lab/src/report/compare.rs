//! Two records of one experiment side by side: do repeated runs agree, or has something changed? Medians may differ between
//! days; the ratios between variants should not.

use comfy_table::{presets, CellAlignment, ContentArrangement, Table};
use serde::Serialize;
use thiserror::Error;

use super::compared::{Cell, MetricComparison};
use super::comparison::compare_metric;
use super::scale::{digits, value_text};
use super::terminal::{elided, printable};
use crate::result::{Metric, Outcome, Record, Unit, SCHEMA};
use crate::stats::median;
use mega_cli::text::wrapped;

/// Why two records cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompareError {
    /// They are records of different experiments.
    #[error("these are different experiments: {0} and {1}")]
    Experiments(String, String),
    /// No variant of any case has values in both.
    #[error("the records have no measurement in common")]
    NothingInCommon,
}

/// Two records side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Version of this format.
    pub schema: u32,
    /// Always `bench-agreement`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// What is in one of them only: `variant mthp`, and which.
    pub only_in_one: Vec<String>,
    /// What was measured in both.
    pub lines: Vec<Line>,
    /// How far the ratios to the first variant moved, by main metric.
    pub ratios_moved: Vec<Moved>,
    /// Outcomes of the runs of both.
    pub runs: [Runs; 2],
}

/// Outcomes of the runs of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Runs {
    /// Completed runs.
    pub done: usize,
    /// Of these, runs on a noisy machine.
    pub doubtful: usize,
}

impl Runs {
    fn of(record: &Record) -> Self {
        let done = || record.runs.iter().filter(|run| run.outcome == Outcome::Done);
        Self {
            done: done().count(),
            doubtful: done().filter(|run| !run.noise.doubtful.is_empty()).count(),
        }
    }
}

/// Ratios that moved by less agree.
pub const AGREES: f64 = 0.05;

/// One metric of one variant of one case, in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Name of the case.
    pub case: String,
    /// Name of the metric.
    pub metric: String,
    /// Its unit.
    pub unit: Unit,
    /// Name of the variant.
    pub variant: String,
    /// Median in the first record.
    pub a: f64,
    /// Median in the second.
    pub b: f64,
    /// `b / a`; `None` when one is not above zero.
    pub b_over_a: Option<f64>,
    /// Median ratio to the first variant, in the first record.
    pub ratio_a: Option<f64>,
    /// The same in the second.
    pub ratio_b: Option<f64>,
    /// `ratio_b / ratio_a`: 1 if the second agrees with the first.
    pub ratio_change: Option<f64>,
    /// The intervals of the two ratios overlap.
    pub ratios_overlap: Option<bool>,
}

/// How far the ratios of a metric moved from the first record to the second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moved {
    /// Name of the metric.
    pub metric: String,
    /// Its label.
    pub label: String,
    /// Number of ratios.
    pub ratios: usize,
    /// Median of how far they moved, as a share: 0.02 is 2 % up or down.
    pub median_share: f64,
    /// Maximum.
    pub max_share: f64,
    /// How many moved by less than [`AGREES`].
    pub agree: usize,
    /// Number of ratios whose intervals do not overlap.
    pub apart: usize,
}

/// Compares `b` with `a`: cases, variants and main metrics by their names.
///
/// # Errors
/// When they are of different experiments or have nothing in common.
pub fn compare(a: &Record, b: &Record) -> Result<Agreement, CompareError> {
    if a.experiment.name != b.experiment.name {
        let names = (a.experiment.name.clone(), b.experiment.name.clone());
        return Err(CompareError::Experiments(names.0, names.1));
    }
    let mut lines = Vec::new();
    for (case_a, case) in a.cases.iter().enumerate() {
        let Some(case_b) = b.cases.iter().position(|c| c.name == case.name) else {
            continue;
        };
        for metric in a.main_metrics() {
            let in_a = compare_metric(a, case_a, metric);
            let in_b = compare_metric(b, case_b, metric);
            lines.extend(metric_lines(&case.name, &in_a, &in_b));
        }
    }
    if lines.is_empty() {
        return Err(CompareError::NothingInCommon);
    }
    Ok(Agreement {
        schema: SCHEMA,
        kind: "bench-agreement",
        experiment: a.experiment.name.clone(),
        only_in_one: only_in_one(a, b),
        ratios_moved: moved(a, &lines),
        runs: [Runs::of(a), Runs::of(b)],
        lines,
    })
}

fn metric_lines(case: &str, in_a: &MetricComparison, in_b: &MetricComparison) -> Vec<Line> {
    // Ratios are to the first variant: comparable only if that is the same in both.
    let first = |m: &MetricComparison| m.variants.first().map(|v| v.variant.clone());
    let same_first = first(in_a) == first(in_b);
    let line = |cell_a: &Cell| {
        let cell_b = in_b.variants.iter().find(|v| v.variant == cell_a.variant)?;
        let (a, b) = (cell_a.median?, cell_b.median?);
        let against = |cell: &Cell| cell.against_first.clone().filter(|_| same_first);
        let (against_a, against_b) = (against(cell_a), against(cell_b));
        let ratio_a = against_a.as_ref().and_then(|x| x.paired.ratio);
        let ratio_b = against_b.as_ref().and_then(|x| x.paired.ratio);
        let interval_a = against_a.and_then(|x| x.paired.ratio_interval);
        let interval_b = against_b.and_then(|x| x.paired.ratio_interval);
        Some(Line {
            case: case.to_string(),
            metric: in_a.metric.clone(),
            unit: in_a.unit,
            variant: cell_a.variant.clone(),
            a,
            b,
            b_over_a: (a > 0.0 && b > 0.0).then(|| b / a),
            ratio_a,
            ratio_b,
            ratio_change: ratio_a.zip(ratio_b).map(|(a, b)| b / a),
            ratios_overlap: interval_a
                .zip(interval_b)
                .map(|(a, b)| a.low <= b.high && b.low <= a.high),
        })
    };
    in_a.variants.iter().filter_map(line).collect()
}

fn only_in_one(a: &Record, b: &Record) -> Vec<String> {
    fn missing(kind: &str, which: &str, of: Vec<&String>, other: &[&String]) -> Vec<String> {
        let absent = of.into_iter().filter(|name| !other.contains(name));
        absent
            .map(|name| format!("{kind} {name} is only in the {which}"))
            .collect()
    }
    fn cases(r: &Record) -> Vec<&String> {
        r.cases.iter().map(|c| &c.name).collect()
    }
    fn variants(r: &Record) -> Vec<&String> {
        r.variants.iter().map(|v| &v.name).collect()
    }
    let mut found = missing("case", "first", cases(a), &cases(b));
    found.extend(missing("case", "second", cases(b), &cases(a)));
    found.extend(missing("variant", "first", variants(a), &variants(b)));
    found.extend(missing("variant", "second", variants(b), &variants(a)));
    found
}

fn moved(record: &Record, lines: &[Line]) -> Vec<Moved> {
    let of = |metric: &Metric| {
        let mine = || lines.iter().filter(|l| l.metric == metric.name);
        let shares: Vec<f64> = mine().filter_map(|l| Some((l.ratio_change? - 1.0).abs())).collect();
        Some(Moved {
            metric: metric.name.clone(),
            label: metric.label.clone(),
            ratios: shares.len(),
            median_share: median(&shares)?,
            max_share: shares.iter().copied().fold(0.0, f64::max),
            agree: shares.iter().filter(|share| **share < AGREES).count(),
            apart: mine().filter(|l| l.ratios_overlap == Some(false)).count(),
        })
    };
    record.main_metrics().filter_map(of).collect()
}

impl Agreement {
    /// As text in eighty columns, with a line break at its end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!(
            "{}\n",
            wrapped("", &printable(&format!("{}: A against B", self.experiment)))
        );
        for group in self.lines.chunk_by(|x, y| x.case == y.case && x.metric == y.metric) {
            out.push('\n');
            out.push_str(&wrapped(
                "",
                &printable(&format!("{}, {}", group[0].case, group[0].metric)),
            ));
            out.push('\n');
            out.push_str(&table(group));
        }
        out.push('\n');
        for moved in &self.ratios_moved {
            let apart = match moved.apart {
                0 => "every pair of intervals overlaps".to_string(),
                n => format!("{n} of {} pairs of intervals do not overlap", moved.ratios),
            };
            let said = format!(
                "{}: the ratios to the first variant moved by {} % (median), {} % at most; {apart}.",
                moved.label,
                digits(moved.median_share * 100.0),
                digits(moved.max_share * 100.0),
            );
            out.push_str(&wrapped("", &printable(&said)));
            out.push('\n');
        }
        out.push_str(&wrapped("", &self.verdict()));
        out.push('\n');
        for only in &self.only_in_one {
            out.push_str(&wrapped("", &printable(&format!("Not compared: {only}."))));
            out.push('\n');
        }
        out
    }
}

impl Agreement {
    /// Whether the two agree, in a sentence, and how reliable they are.
    fn verdict(&self) -> String {
        let sum = |of: fn(&Moved) -> usize| self.ratios_moved.iter().map(of).sum::<usize>();
        let (agree, ratios) = (sum(|moved| moved.agree), sum(|moved| moved.ratios));
        let [a, b] = self.runs;
        let quiet = match a.doubtful + b.doubtful {
            0 => "no run was doubtful".to_string(),
            _ => format!(
                "the machine was noisy: {} of {} runs of A and {} of {} of B are doubtful",
                a.doubtful, a.done, b.doubtful, b.done
            ),
        };
        format!(
            "{agree} of {ratios} ratios moved by less than {:.0} %; {quiet}.",
            AGREES * 100.0
        )
    }
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(80);
    table.set_header(["", "A", "B", "B/A", "ratio A", "ratio B", "change"]);
    for line in lines {
        let times = |value: Option<f64>| value.map_or("-".to_string(), |v| format!("{}x", digits(v)));
        let ratio = |value: Option<f64>| if value.is_none() { String::new() } else { times(value) };
        let apart = if line.ratios_overlap == Some(false) { " !" } else { "" };
        let change = line
            .ratio_change
            .map_or(String::new(), |c| format!("{:+.1} %{apart}", (c - 1.0) * 100.0));
        table.add_row([
            elided(&printable(&line.variant), 20),
            value_text(line.unit, line.a),
            value_text(line.unit, line.b),
            times(line.b_over_a),
            ratio(line.ratio_a),
            ratio(line.ratio_b),
            change,
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == 6 { 0 } else { 2 }));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    let trimmed: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", trimmed.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    #[test]
    fn runs_on_a_machine_that_was_not_quiet_are_counted() {
        let troubled = synthetic::record(&Options {
            rounds: 8,
            troubled: true,
            ..Options::default()
        });
        let agreement = compare(&record(1), &troubled).unwrap();
        let [a, b] = agreement.runs;
        assert!(a.doubtful == 0 && b.doubtful > 0 && b.done < a.done, "{a:?} {b:?}");
        let said = agreement.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains(&format!("and {} of {} of B are doubtful.", b.doubtful, b.done)),
            "{said}"
        );
    }

    fn record(seed: u64) -> Record {
        synthetic::record(&Options {
            rounds: 8,
            seed,
            ..Options::default()
        })
    }

    #[test]
    fn repeated_runs_agree_in_their_ratios() {
        let agreement = compare(&record(1), &record(2)).unwrap();
        let ops = &agreement.ratios_moved[0];
        assert_eq!((ops.metric.as_str(), ops.ratios), ("ops_per_s", 6));
        assert!(ops.max_share < 0.03 && ops.median_share <= ops.max_share, "{ops:?}");
        assert!(agreement.only_in_one.is_empty());
        let text = agreement.text();
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("ratios moved by less than 5 %; no run was doubtful."),
            "{text}"
        );
        assert!(
            text.contains("operations/s: the ratios to the first variant moved by"),
            "{text}"
        );
    }

    #[test]
    fn a_faster_machine_moves_the_medians_and_not_the_ratios_and_a_slower_variant_moves_both() {
        let a = record(1);
        let mut b = a.clone();
        b.runs
            .iter_mut()
            .for_each(|r| *r.values.get_mut("ops_per_s").unwrap() *= 2.0);
        let of = |agreement: &Agreement, variant: &str| {
            let found = agreement
                .lines
                .iter()
                .find(|l| l.metric == "ops_per_s" && l.variant == variant);
            found.cloned().unwrap()
        };
        let same = compare(&a, &b).unwrap();
        let thp = of(&same, "linux-thp");
        assert!((thp.b_over_a.unwrap() - 2.0).abs() < 1e-9);
        assert!((thp.ratio_change.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(same.ratios_moved[0].apart, 0);
        for run in b.runs.iter_mut().filter(|r| r.variant == 1) {
            *run.values.get_mut("ops_per_s").unwrap() *= 0.9;
        }
        let moved = compare(&a, &b).unwrap();
        let thp = of(&moved, "linux-thp");
        assert!((thp.ratio_change.unwrap() - 0.9).abs() < 1e-9);
        assert_eq!((thp.ratios_overlap, moved.ratios_moved[0].apart), (Some(false), 2));
        assert!(moved.text().contains("-10.0 % !"), "{}", moved.text());
    }

    #[test]
    fn what_is_in_one_of_them_only_is_said() {
        let a = record(1);
        let mut b = record(2);
        b.variants[3].name = "another".into();
        b.cases[1].name = "elsewhere".into();
        let found = compare(&a, &b).unwrap();
        assert_eq!(
            found.only_in_one,
            [
                "case redis-del-50-fragmented is only in the first",
                "case elsewhere is only in the second",
                "variant trim is only in the first",
                "variant another is only in the second",
            ]
        );
        assert!(found
            .lines
            .iter()
            .all(|l| l.case == "redis-del-50" && l.variant != "trim"));
    }

    #[test]
    fn two_experiments_and_nothing_in_common_are_errors() {
        let a = record(1);
        let mut b = record(1);
        b.runs.clear();
        assert_eq!(compare(&a, &b), Err(CompareError::NothingInCommon));
        b.experiment.name = "other".into();
        assert!(compare(&a, &b)
            .unwrap_err()
            .to_string()
            .contains("redis-bloat and other"));
    }

    #[test]
    fn ratios_to_different_first_variants_are_not_put_side_by_side() {
        let a = record(1);
        let mut b = a.clone();
        b.variants.swap(0, 1);
        b.runs
            .iter_mut()
            .filter(|r| r.variant < 2)
            .for_each(|r| r.variant = 1 - r.variant);
        let found = compare(&a, &b).unwrap();
        assert!(found.lines.iter().all(|l| l.ratio_change.is_none()));
        assert!(found
            .lines
            .iter()
            .all(|l| (l.b_over_a.unwrap_or(1.0) - 1.0).abs() < 1e-9));
    }
}
