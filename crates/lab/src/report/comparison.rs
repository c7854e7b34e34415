//! Each variant against the first: medians, intervals, ratios and verdicts per case and main metric, and the number of runs
//! behind them.

use serde::Serialize;

use super::scale::{ratio_text, value_text};
use crate::result::{Better, Metric, Outcome, Record, Run, Unit, VariantInfo, SCHEMA};
use crate::stats::{
    interval_of_median, median, paired, range_holds, Interval, Paired, Verdict, ROUNDS_TO_TELL, SIGNIFICANT,
};

/// Summary of a record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this format.
    pub schema: u32,
    /// Always `bench-comparison`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// The baseline variant.
    pub base: Option<String>,
    /// The experiment was ended before its last run, by whom or what.
    pub ended_early: Option<String>,
    /// Every case of the record.
    pub cases: Vec<CaseComparison>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseComparison {
    /// Name of the case.
    pub case: String,
    /// The state of the machine.
    pub condition: String,
    /// The finding, in a sentence.
    pub sentence: String,
    /// Outcomes of the runs, by variant.
    pub runs: Vec<RunCounts>,
    /// The main metrics.
    pub metrics: Vec<MetricComparison>,
}

/// Outcomes of the runs of a variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunCounts {
    /// Name of the variant.
    pub variant: String,
    /// Completed runs, doubtful ones included.
    pub done: usize,
    /// Of these, runs on a noisy machine.
    pub doubtful: usize,
    /// Failed runs.
    pub failed: usize,
    /// Skipped runs.
    pub skipped: usize,
}

/// One metric of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// Its name.
    pub metric: String,
    /// Its label.
    pub label: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// Every variant of the record, in its order.
    pub variants: Vec<Cell>,
}

/// One metric of one variant of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Name of the variant.
    pub variant: String,
    /// Number of values.
    pub rounds: usize,
    /// Of these, how many come from doubtful runs.
    pub doubtful: usize,
    /// Median in the base unit; `None` without a value.
    pub median: Option<f64>,
    /// 95 % interval of the median; `None` for fewer than two values.
    pub interval: Option<Interval>,
    /// Against the first variant; `None` for the first itself and without a round in which both have a value.
    pub against_first: Option<Against>,
}

/// One variant against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The ratio and the test.
    #[serde(flatten)]
    pub paired: Paired,
    /// The verdict; `None` when neither direction is better.
    pub verdict: Option<Verdict>,
    /// Both are single simulated runs: the ratio is exact, and no test applies.
    #[serde(skip)]
    pub exact: bool,
}

impl Against {
    /// The verdict in words.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.verdict {
            _ if self.exact => "",
            Some(Verdict::Better) => "better",
            Some(Verdict::Worse) => "worse",
            Some(Verdict::NoDifference) => "no difference",
            Some(Verdict::TooFew) => "too few rounds",
            None if self.paired.rounds < ROUNDS_TO_TELL => "too few rounds",
            None if self.paired.p.is_some_and(|p| p < SIGNIFICANT) => "different",
            None => "no difference",
        }
    }
}

/// A note that the rounds are too few for a test, and how far their intervals can be believed.
#[must_use]
pub fn too_few(rounds: usize) -> String {
    let are = match rounds {
        1 => "1 round is".to_string(),
        n => format!("{n} rounds are"),
    };
    let holds = match rounds {
        0 | 1 => String::new(),
        n => format!(
            ", and intervals of {n} hold the median in {:.0} % of cases at most",
            range_holds(n) * 100.0
        ),
    };
    format!("{are} too few for a verdict; {ROUNDS_TO_TELL} are needed{holds}")
}

/// Summarizes `record`.
#[must_use]
pub fn comparison(record: &Record) -> Comparison {
    let case = |index: usize| {
        let case = &record.cases[index];
        let metrics: Vec<_> = record
            .main_metrics()
            .map(|m| compare_metric(record, index, m))
            .collect();
        let runs: Vec<_> = (0..record.variants.len()).map(|v| count(record, index, v)).collect();
        CaseComparison {
            case: case.name.clone(),
            condition: case.condition.clone(),
            sentence: sentence(&metrics, &runs, record.is_exact()),
            runs,
            metrics,
        }
    };
    Comparison {
        schema: SCHEMA,
        kind: "bench-comparison",
        experiment: record.experiment.name.clone(),
        base: record.variants.first().map(|v| v.name.clone()),
        ended_early: record.ended_early.clone(),
        cases: (0..record.cases.len()).map(case).collect(),
    }
}

/// One metric of one case, main or not.
#[must_use]
pub fn compare_metric(record: &Record, case: usize, metric: &Metric) -> MetricComparison {
    let first = record.values(case, 0, &metric.name);
    let cell = |(index, variant): (usize, &VariantInfo)| {
        let mut values = record.values(case, index, &metric.name);
        values.retain(|(_, v)| v.is_finite());
        let plain: Vec<f64> = values.iter().map(|(_, v)| *v).collect();
        let doubtful = runs_of(record, case, index)
            .filter(|run| run.outcome == Outcome::Done && !run.noise.doubtful.is_empty())
            .filter(|run| run.values.contains_key(&metric.name));
        let against = (index > 0).then(|| paired(&first, &values)).filter(|p| p.rounds > 0);
        Cell {
            variant: variant.name.clone(),
            rounds: plain.len(),
            doubtful: doubtful.count(),
            median: median(&plain),
            interval: interval_of_median(&plain),
            against_first: against.map(|paired| Against {
                paired,
                verdict: paired.verdict(metric.better).filter(|_| !record.is_exact()),
                exact: record.is_exact(),
            }),
        }
    };
    MetricComparison {
        metric: metric.name.clone(),
        label: metric.label.clone(),
        unit: metric.unit,
        better: metric.better,
        variants: record.variants.iter().enumerate().map(cell).collect(),
    }
}

fn runs_of(record: &Record, case: usize, variant: usize) -> impl Iterator<Item = &Run> {
    let of = move |run: &&Run| run.case == case && run.variant == variant;
    record.runs.iter().filter(of)
}

fn count(record: &Record, case: usize, variant: usize) -> RunCounts {
    let mut counts = RunCounts {
        variant: record.variants[variant].name.clone(),
        ..RunCounts::default()
    };
    for run in runs_of(record, case, variant) {
        match run.outcome {
            Outcome::Done => {
                counts.done += 1;
                counts.doubtful += usize::from(!run.noise.doubtful.is_empty());
            }
            Outcome::Failed(_) => counts.failed += 1,
            Outcome::Skipped(_) => counts.skipped += 1,
        }
    }
    counts
}

/// Up to this many variants are all named in the sentence; of more, the best and the worst.
const NAMED_MAX: usize = 3;

/// The finding, in a sentence.
fn sentence(metrics: &[MetricComparison], runs: &[RunCounts], exact: bool) -> String {
    let done: usize = runs.iter().map(|r| r.done).sum();
    let not_done: usize = runs.iter().map(|r| r.failed + r.skipped).sum();
    let Some(base) = runs.first() else {
        return "There is no variant.".to_string();
    };
    if done == 0 {
        return match not_done {
            0 => "There are no runs.".to_string(),
            n => format!("Nothing was measured: none of {n} runs completed."),
        };
    }
    if runs.len() == 1 {
        return format!("Only {} was run, so there is nothing to compare.", base.variant);
    }
    // Where neither direction is better there is only a number; it is in the table.
    let judged = metrics.iter().filter(|m| m.better != Better::Neither);
    let mut clauses: Vec<String> = judged.filter_map(clause).collect();
    if clauses.is_empty() {
        clauses = metrics.iter().filter_map(clause).collect();
    }
    if clauses.is_empty() {
        return format!("No variant has a round in common with {}.", base.variant);
    }
    let against = metrics
        .iter()
        .flat_map(|m| &m.variants)
        .filter_map(|c| c.against_first.as_ref());
    let least = against.map(|a| a.paired.rounds).min().unwrap_or(0);
    let tail = if least < ROUNDS_TO_TELL && !exact {
        format!(" ({})", too_few(least))
    } else {
        String::new()
    };
    format!("Against {}: {}{tail}.", base.variant, clauses.join("; "))
}

/// `operations/s 1.22x under thp (better), 1.19x under mega (better)`.
fn clause(metric: &MetricComparison) -> Option<String> {
    let mut compared: Vec<(&Cell, &Against)> = metric
        .variants
        .iter()
        .filter_map(|cell| Some((cell, cell.against_first.as_ref()?)))
        .collect();
    if compared.is_empty() {
        return None;
    }
    let said = |(cell, against): &(&Cell, &Against)| {
        let word = match against.word() {
            "" | "too few rounds" => String::new(),
            word => format!(" ({word})"),
        };
        match (against.paired.ratio, cell.median) {
            (Some(ratio), _) => format!("{} under {}{word}", ratio_text(ratio), cell.variant),
            (None, Some(median)) => {
                let value = value_text(metric.unit, median);
                format!("{value} under {}{word}", cell.variant)
            }
            (None, None) => cell.variant.clone(),
        }
    };
    if compared.len() <= NAMED_MAX {
        let all: Vec<String> = compared.iter().map(said).collect();
        return Some(format!("{} {}", metric.label, all.join(", ")));
    }
    // Ordered from the best; where neither direction is better, from the largest.
    compared.sort_by(|(a, _), (b, _)| b.median.unwrap_or(f64::NAN).total_cmp(&a.median.unwrap_or(f64::NAN)));
    if metric.better == Better::Lower {
        compared.reverse();
    }
    let between = compared.len() - 2;
    let first = said(compared.first()?);
    let last = said(compared.last()?);
    Some(format!("{} {first} to {last}, {between} others between", metric.label))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    #[test]
    fn ratios_and_verdicts_are_those_that_were_planted() {
        let record = synthetic::record(&Options {
            rounds: 8,
            ..Options::default()
        });
        let seen = comparison(&record);
        assert_eq!(seen.base.as_deref(), Some("base"));
        let ops = &seen.cases[0].metrics[0];
        assert_eq!((ops.metric.as_str(), ops.variants.len()), ("ops_per_s", 4));
        assert!(ops.variants[0].against_first.is_none());
        let thp = ops.variants[1].against_first.as_ref().unwrap();
        assert!((thp.paired.ratio.unwrap() - 1.3).abs() < 0.05, "{thp:?}");
        assert_eq!(thp.verdict, Some(Verdict::Better));
        let memory = &seen.cases[0].metrics[1];
        let thp = memory.variants[1].against_first.as_ref().unwrap();
        assert_eq!((thp.verdict, thp.word()), (Some(Verdict::Worse), "worse"));
        let sentence = &seen.cases[0].sentence;
        assert!(sentence.starts_with("Against base: operations/s 1.3"), "{sentence}");
        assert!(!sentence.contains("too few"), "{sentence}");
    }

    #[test]
    fn three_rounds_give_intervals_and_no_verdict() {
        let record = synthetic::record(&Options {
            rounds: 3,
            ..Options::default()
        });
        let seen = comparison(&record);
        let cell = &seen.cases[0].metrics[0].variants[1];
        assert!(cell.interval.is_some());
        assert_eq!(cell.against_first.as_ref().unwrap().verdict, Some(Verdict::TooFew));
        let sentence = &seen.cases[0].sentence;
        assert!(
            sentence.ends_with(
                "(3 rounds are too few for a verdict; 6 are needed, and intervals of 3 hold the median in 75 % of cases at most)."
            ),
            "{sentence}"
        );
    }

    #[test]
    fn failed_skipped_and_doubtful_runs_are_counted_and_missing_values_are_not_there() {
        let record = synthetic::record(&Options {
            rounds: 8,
            troubled: true,
            ..Options::default()
        });
        let seen = comparison(&record);
        let counts = &seen.cases[0].runs;
        assert_eq!((counts[1].done, counts[1].failed, counts[1].doubtful), (7, 1, 1));
        assert_eq!((counts[3].done, counts[3].skipped), (0, 8));
        let ops = &seen.cases[0].metrics[0];
        assert_eq!((ops.variants[1].rounds, ops.variants[1].doubtful), (7, 1));
        assert_eq!(ops.variants[1].against_first.as_ref().unwrap().paired.rounds, 7);
        assert_eq!(
            (ops.variants[3].median, ops.variants[3].against_first.is_some()),
            (None, false)
        );
    }

    #[test]
    fn no_runs_one_variant_and_no_variant_each_have_their_sentence() {
        let mut record = synthetic::record(&Options::default());
        record.runs.clear();
        assert_eq!(comparison(&record).cases[0].sentence, "There are no runs.");
        record.variants.clear();
        assert_eq!(comparison(&record).cases[0].sentence, "There is no variant.");
        let one = synthetic::record(&Options {
            variants: 1,
            ..Options::default()
        });
        assert!(comparison(&one).cases[0].sentence.starts_with("Only base was run"));
        let mut failed = synthetic::record(&Options {
            rounds: 2,
            ..Options::default()
        });
        for run in &mut failed.runs {
            run.outcome = Outcome::Failed("no".into());
        }
        assert!(comparison(&failed).cases[0].sentence.contains("none of 8 runs"));
    }

    #[test]
    fn of_many_variants_the_sentence_names_the_best_and_the_worst() {
        let record = synthetic::record(&Options {
            variants: 9,
            rounds: 8,
            ..Options::default()
        });
        let seen = comparison(&record);
        assert!(
            seen.cases[0].sentence.contains("6 others between"),
            "{}",
            seen.cases[0].sentence
        );
    }

    #[test]
    fn the_json_has_schema_kind_and_the_ratio() {
        let record = synthetic::record(&Options {
            rounds: 8,
            ..Options::default()
        });
        let json = serde_json::to_value(comparison(&record)).unwrap();
        assert_eq!(
            (json["schema"].as_u64(), json["kind"].as_str()),
            (Some(1), Some("bench-comparison"))
        );
        let against = &json["cases"][0]["metrics"][0]["variants"][1]["against_first"];
        assert_eq!(against["verdict"], "better");
        assert!(against["ratio"].is_f64() && against["ratio_interval"]["low"].is_f64());
    }
}
