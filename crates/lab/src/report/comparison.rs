//! Each variant against the first: medians, intervals, ratios and verdicts per case and main metric, and the number of runs
//! behind them. All comparisons of a record that get a verdict are one family, corrected by Holm's procedure. Secondary metrics, and
//! the first variant repeated (an A/A comparison), are not tested.

use std::collections::BTreeSet;

use serde::Serialize;

use super::compared::{
    fewest, too_few, Against, CaseComparison, Cell, Comparison, MetricComparison, RunCounts, Tests, WithoutDoubtful,
};
use super::scale::{ratio_text, value_text};
use super::verdict::verdict;
use crate::result::{Better, Metric, Outcome, Record, Run, VariantInfo, SCHEMA};
use crate::stats::exclusion::{rule, Rounds};
use crate::stats::{holm, interval_of_median, median, paired, rounds_needed, SIGNIFICANT};

/// A record with its comparison: what `--json` prints.
#[derive(Debug, Serialize)]
pub struct Printed<'a> {
    #[serde(flatten)]
    record: &'a Record,
    comparison: Comparison,
}

impl<'a> Printed<'a> {
    /// Of this record.
    #[must_use]
    pub fn of(record: &'a Record) -> Self {
        Self {
            record,
            comparison: comparison(record),
        }
    }
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
            sentence: String::new(),
            runs,
            metrics,
        }
    };
    let mut cases: Vec<CaseComparison> = (0..record.cases.len()).map(case).collect();
    let comparisons = judge(&mut cases, record.is_exact());
    for case in &mut cases {
        case.sentence = sentence(&case.metrics, &case.runs, comparisons);
    }
    Comparison {
        schema: SCHEMA,
        kind: "bench-comparison",
        experiment: record.experiment.name.clone(),
        base: record.variants.first().map(|v| v.name.clone()),
        ended_early: record.ended_early.clone(),
        verdict: verdict(&cases, comparisons, record.is_exact()),
        tests: Tests {
            test: "wilcoxon signed-rank, two-sided, on the logarithms of paired ratios",
            correction: "holm",
            level: SIGNIFICANT,
            comparisons,
            rounds_needed: rounds_needed(comparisons),
            exclusion_rule: record.settings.exclusion_rule.unwrap_or(rule().version),
        },
        cases,
    }
}

/// Gives every comparison of a figure that can be better or worse its verdict among all of them. Returns their number.
fn judge(cases: &mut [CaseComparison], exact: bool) -> usize {
    if exact {
        return 0;
    }
    let metrics = cases.iter_mut().flat_map(|case| &mut case.metrics);
    let judged = metrics.filter(|metric| metric.better != Better::Neither);
    let mut family: Vec<(Better, &mut Against)> = judged
        .flat_map(|metric| {
            let better = metric.better;
            let against = metric
                .variants
                .iter_mut()
                .filter_map(|cell| cell.against_first.as_mut());
            against.map(move |against| (better, against))
        })
        .filter(|(_, against)| !against.a_a && against.paired.p.is_some())
        .collect();
    let p: Vec<f64> = family.iter().filter_map(|(_, against)| against.paired.p).collect();
    let comparisons = p.len();
    for ((better, against), p) in family.iter_mut().zip(holm(&p)) {
        against.p_holm = Some(p);
        against.verdict = against.paired.verdict_among(comparisons, p, *better);
    }
    comparisons
}

/// The first variant again under a label: `base#again`.
fn is_again(first: &str, name: &str) -> bool {
    let bare = |name: &str| {
        name.split_once('#')
            .map_or(name.to_string(), |(bare, _)| bare.to_string())
    };
    bare(first) == bare(name)
}

/// One metric of one case, main or not. Verdicts are those of [`comparison`]: they depend on how many there are.
#[must_use]
pub fn compare_metric(record: &Record, case: usize, metric: &Metric) -> MetricComparison {
    let finite = |variant: usize| {
        let mut values = record.values(case, variant, &metric.name);
        values.retain(|(_, v)| v.is_finite());
        values
    };
    let first = finite(0);
    let cell = |(index, variant): (usize, &VariantInfo)| {
        let values = finite(index);
        let plain: Vec<f64> = values.iter().map(|(_, v)| *v).collect();
        let doubtful = runs_of(record, case, index)
            .filter(|run| run.outcome == Outcome::Done && !run.noise.doubtful.is_empty())
            .filter(|run| run.values.contains_key(&metric.name));
        let against = (index > 0).then(|| paired(&first, &values)).filter(|p| p.rounds > 0);
        let against = against.map(|paired| {
            let a_a = is_again(&record.variants[0].name, &variant.name);
            Against {
                paired,
                counted: counted(record, case, index, paired.rounds),
                without_doubtful: without_doubtful(record, case, index, &first, &values),
                a_a,
                p_holm: None,
                verdict: paired.verdict(metric.better).filter(|_| a_a && !record.is_exact()),
                exact: record.is_exact(),
            }
        });
        Cell {
            variant: variant.name.clone(),
            rounds: plain.len(),
            doubtful: doubtful.count(),
            median: median(&plain),
            interval: interval_of_median(&plain),
            against_first: against,
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

/// The rounds of a variant against the first, of which `kept` have both values.
fn counted(record: &Record, case: usize, variant: usize, kept: usize) -> Rounds {
    let rounds = |variant| {
        runs_of(record, case, variant)
            .map(|run| run.round)
            .collect::<BTreeSet<_>>()
    };
    let measured = rounds(0).intersection(&rounds(variant)).count();
    Rounds {
        measured,
        excluded: measured - kept,
        kept,
    }
}

/// The ratio of the rounds in which neither run is doubtful, if there are any others.
fn without_doubtful(
    record: &Record,
    case: usize,
    variant: usize,
    first: &[(usize, f64)],
    values: &[(usize, f64)],
) -> Option<WithoutDoubtful> {
    let doubtful: BTreeSet<usize> = runs_of(record, case, 0)
        .chain(runs_of(record, case, variant))
        .filter(|run| !run.noise.doubtful.is_empty())
        .map(|run| run.round)
        .collect();
    let quiet = |values: &[(usize, f64)]| -> Vec<_> {
        let quiet = values.iter().filter(|(round, _)| !doubtful.contains(round));
        quiet.copied().collect()
    };
    let found = paired(&quiet(first), &quiet(values));
    (found.rounds > 0).then_some(WithoutDoubtful {
        rounds: found.rounds,
        ratio: found.ratio,
        ratio_interval: found.ratio_interval,
    })
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
fn sentence(metrics: &[MetricComparison], runs: &[RunCounts], comparisons: usize) -> String {
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
    let tail = fewest(metrics).map_or(String::new(), |rounds| format!(" ({})", too_few(rounds, comparisons)));
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
    use crate::stats::Verdict;

    #[test]
    fn ratios_and_verdicts_are_those_that_were_planted() {
        let record = synthetic::record(&Options {
            rounds: 10,
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
                "(3 rounds are too few for a verdict among 18 comparisons; 10 are needed, and intervals of 3 hold the median in 75 % of cases at most)."
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
            rounds: 10,
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
        let p = |name: &str| against[name].as_f64().unwrap();
        assert!(p("p") < p("p_holm") && p("p_holm") < SIGNIFICANT, "{against}");
        assert_eq!(
            against["counted"],
            serde_json::json!({"measured": 10, "excluded": 0, "kept": 10})
        );
        // Three variants, three figures with a direction, two cases.
        let tests = &json["tests"];
        assert_eq!(
            (tests["comparisons"].as_u64(), tests["correction"].as_str()),
            (Some(18), Some("holm"))
        );
        assert_eq!(
            (tests["rounds_needed"].as_u64(), tests["exclusion_rule"].as_u64()),
            (Some(10), Some(1))
        );
    }

    #[test]
    fn what_is_printed_can_be_read_back_as_the_record_that_it_is() {
        let record = synthetic::record(&Options::default());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("printed.json");
        std::fs::write(&path, serde_json::to_string(&Printed::of(&record)).unwrap()).unwrap();
        let read = super::super::folder::read(&path).unwrap();
        assert_eq!(
            (&read.cases, &read.variants, read.runs.len()),
            (&record.cases, &record.variants, record.runs.len())
        );
    }

    #[test]
    fn a_round_without_both_values_is_excluded_and_a_doubtful_one_is_kept_and_shown_without_as_well() {
        let record = synthetic::record(&Options {
            rounds: 8,
            troubled: true,
            ..Options::default()
        });
        let seen = comparison(&record);
        let against = |metric: usize, variant: usize| {
            let cell = &seen.cases[0].metrics[metric].variants[variant];
            cell.against_first.clone().unwrap()
        };
        let (failed, missing) = (against(0, 1), against(1, 2));
        let rounds = |measured, excluded, kept| Rounds {
            measured,
            excluded,
            kept,
        };
        assert_eq!(failed.counted, rounds(8, 1, 7));
        assert_eq!(failed.without_doubtful.unwrap().rounds, 6);
        assert_eq!(missing.counted, rounds(8, 1, 7));
        assert_eq!(against(0, 2).counted, rounds(8, 0, 8));
    }

    #[test]
    fn the_first_variant_again_is_no_comparison_of_the_family() {
        let mut record = synthetic::record(&Options {
            rounds: 10,
            ..Options::default()
        });
        let family = comparison(&record).tests.comparisons;
        record.variants[3].name = "base#again".into();
        let seen = comparison(&record);
        assert_eq!(seen.tests.comparisons * 3, family * 2);
        let again = seen.cases[0].metrics[0].variants[3].against_first.clone().unwrap();
        assert_eq!((again.a_a, again.word(), again.p_holm), (true, "A/A", None));
        assert!(again.verdict.is_some(), "its own, uncorrected");
        assert!(is_again("mega:uprom=30%", "mega:uprom=30%#2") && !is_again("mega", "mega:uprom=30%"));
    }

    #[test]
    fn a_page_on_which_nothing_differs_has_a_false_verdict_once_in_twenty_at_most() {
        // Four variants that are all the first one, two cases, three figures with a direction each.
        let pages = 300;
        let false_verdicts = (0..pages).filter(|page| {
            let record = synthetic::record(&Options {
                rounds: 10,
                seed: 1000 + page,
                alike: true,
                ..Options::default()
            });
            let seen = comparison(&record);
            let metrics = seen.cases.iter().flat_map(|case| &case.metrics);
            let mut against = metrics
                .flat_map(|m| &m.variants)
                .filter_map(|cell| cell.against_first.as_ref());
            against.any(|against| matches!(against.verdict, Some(Verdict::Better | Verdict::Worse)))
        });
        let share = false_verdicts.count() as f64 / pages as f64;
        assert!(share <= 0.05, "{share}");
    }
}
