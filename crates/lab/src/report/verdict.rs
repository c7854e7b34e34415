//! What a record found, in one sentence: who is best by the first figure, and what that costs in the others. It says no more than the
//! tests do: a variant that cannot be told from the first is neither better nor worse.

use super::compared::{fewest, too_few, Against, CaseComparison, MetricComparison};
use super::scale::ratio_text;
use crate::result::Better;
use crate::stats::Verdict;

/// Of an exact record, ratios nearer to 1 than this are alike.
const ALIKE: f64 = 0.02;

/// Cases with a winner of their own that are named; further ones are counted.
const NAMED_MAX: usize = 3;

/// A variant in a case, against the first.
#[derive(Debug, Clone, Copy)]
struct Found<'a> {
    case: &'a CaseComparison,
    variant: &'a str,
    against: &'a Against,
}

/// The finding, in one sentence.
pub(super) fn verdict(cases: &[CaseComparison], comparisons: usize, exact: bool) -> String {
    let Some(first) = cases.first() else {
        return "There is no case.".to_string();
    };
    let Some(main) = first.metrics.iter().find(|metric| metric.better != Better::Neither) else {
        return first.sentence.clone();
    };
    let base = first
        .runs
        .first()
        .map_or("the first variant", |runs| runs.variant.as_str());
    let all = found(cases, &main.metric);
    if all.is_empty() {
        return first.sentence.clone();
    }
    let winners: Vec<Found<'_>> = cases
        .iter()
        .filter_map(|case| best(&all, case, main.better, |found| is(found.against, main.better, exact)))
        .collect();
    let label = &main.label;
    if !winners.is_empty() {
        return format!("{}.", won(&winners, cases, main, base, exact));
    }
    let metrics = cases.iter().flat_map(|case| &case.metrics);
    let of_main = metrics.filter(|metric| metric.metric == main.metric);
    if let Some(rounds) = fewest(of_main) {
        let lead = best(&all, first, main.better, |_| true);
        let lead = lead.and_then(|lead| Some((lead, lead.against.paired.ratio?)));
        let lead = lead.filter(|(_, ratio)| is_good(*ratio, main.better));
        let so_far = lead.map_or(String::new(), |(lead, ratio)| {
            let place = if cases.len() > 1 {
                format!(" in {}", lead.case.case)
            } else {
                String::new()
            };
            format!(
                " So far {} leads{place}: {} the {label} of {base}.",
                lead.variant,
                times(ratio)
            )
        });
        return format!("No verdict: {}.{so_far}", too_few(rounds, comparisons));
    }
    let worse: Vec<&str> = distinct(
        all.iter()
            .filter(|found| found.against.verdict == Some(Verdict::Worse))
            .map(|found| found.variant),
    );
    match (worse.as_slice(), exact) {
        ([], false) => format!("No variant differs significantly from {base} in {label}."),
        ([], true) => format!("No variant is better than {base} in {label}."),
        (worse, _) => {
            let are = if worse.len() == 1 { "is" } else { "are" };
            format!(
                "No variant is better than {base} in {label}; {} {are} significantly worse.",
                listed(worse)
            )
        }
    }
}

/// Every variant of every case with a ratio of this metric, the first and its repetition left out.
fn found<'a>(cases: &'a [CaseComparison], metric: &str) -> Vec<Found<'a>> {
    let of_case = |case: &'a CaseComparison| {
        let metric = case.metrics.iter().find(|known| known.metric == metric);
        let cells = metric.into_iter().flat_map(|metric| &metric.variants);
        cells.filter_map(move |cell| {
            Some(Found {
                case,
                variant: &cell.variant,
                against: cell.against_first.as_ref()?,
            })
        })
    };
    let all = cases.iter().flat_map(of_case);
    all.filter(|found| !found.against.a_a && found.against.paired.ratio.is_some())
        .collect()
}

fn is_good(ratio: f64, better: Better) -> bool {
    match better {
        Better::Higher => ratio > 1.0 + ALIKE,
        Better::Lower => ratio < 1.0 - ALIKE,
        Better::Neither => false,
    }
}

/// Better: by the test, or where there is none, by the exact ratio.
fn is(against: &Against, better: Better, exact: bool) -> bool {
    match exact {
        true => against.paired.ratio.is_some_and(|ratio| is_good(ratio, better)),
        false => against.verdict == Some(Verdict::Better),
    }
}

fn best<'a>(
    all: &[Found<'a>],
    case: &CaseComparison,
    better: Better,
    wanted: impl Fn(&Found<'a>) -> bool,
) -> Option<Found<'a>> {
    let ratio = |found: &Found<'_>| found.against.paired.ratio.unwrap_or(1.0);
    let here = all.iter().filter(|found| found.case.case == case.case && wanted(found));
    let by_ratio = |a: &&Found<'a>, b: &&Found<'a>| ratio(a).total_cmp(&ratio(b));
    match better {
        Better::Lower => here.min_by(by_ratio).copied(),
        _ => here.max_by(by_ratio).copied(),
    }
}

/// `linux-thp is best: 1.30x the operations/s of base (95 % 1.27x to 1.33x), at 1.80x the resident memory`.
fn won(winners: &[Found<'_>], cases: &[CaseComparison], main: &MetricComparison, base: &str, exact: bool) -> String {
    let label = &main.label;
    let names = distinct(winners.iter().map(|found| found.variant));
    if let [name] = names.as_slice() {
        let ratios: Vec<f64> = winners.iter().filter_map(|found| found.against.paired.ratio).collect();
        let place = match (winners.len(), cases.len()) {
            (_, 1) => String::new(),
            (2, 2) => " in both cases".to_string(),
            (of, all) if of == all => format!(" in all {all} cases"),
            (of, all) => format!(" in {of} of {all} cases"),
        };
        let interval = winners[0].against.paired.ratio_interval;
        let interval = match interval.filter(|_| winners.len() == 1 && !exact) {
            Some(i) => format!(" (95 % {} to {})", times(i.low), times(i.high)),
            None => String::new(),
        };
        let costs = costs(winners, main, exact);
        return format!(
            "{name} is best{place}: {} the {label} of {base}{interval}, {costs}",
            range(&ratios)
        );
    }
    let named = winners.iter().take(NAMED_MAX).filter_map(|found| {
        let ratio = times(found.against.paired.ratio?);
        Some(format!("{} in {} ({ratio} {base})", found.variant, found.case.case))
    });
    let named: Vec<String> = named.collect();
    let more = match winners.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        n => format!(", and so on in {n} more cases"),
    };
    let costs = costs(winners, main, exact);
    format!("Best in {label}: {}{more}; {costs}", named.join(", "))
}

/// In what the winners are worse than the first, at worst.
fn costs(winners: &[Found<'_>], main: &MetricComparison, exact: bool) -> String {
    let Some(first) = winners.first() else {
        return String::new();
    };
    let others = first.case.metrics.iter().filter(|metric| metric.metric != main.metric);
    let cost = |metric: &MetricComparison| {
        let better = metric.better;
        let paid = winners.iter().filter_map(|winner| {
            let there = winner.case.metrics.iter().find(|known| known.metric == metric.metric)?;
            let cell = there.variants.iter().find(|cell| cell.variant == winner.variant)?;
            let against = cell.against_first.as_ref()?;
            let ratio = against.paired.ratio?;
            let worse = match exact {
                true => better != Better::Neither && is_good(1.0 / ratio, better),
                false => against.verdict == Some(Verdict::Worse),
            };
            worse.then_some(ratio)
        });
        let worst = match better {
            Better::Higher => paid.min_by(f64::total_cmp),
            _ => paid.max_by(f64::total_cmp),
        };
        worst.map(|ratio| format!("{} the {}", times(ratio), metric.label))
    };
    let costs: Vec<String> = others.filter_map(cost).collect();
    match (costs.is_empty(), exact) {
        (true, true) => "and worse in none of the other figures".to_string(),
        (true, false) => "and significantly worse in none of the other figures".to_string(),
        (false, _) => {
            let costs: Vec<&str> = costs.iter().map(String::as_str).collect();
            let up_to = if winners.len() > 1 { "up to " } else { "" };
            format!("at {up_to}{}", listed(&costs))
        }
    }
}

fn times(ratio: f64) -> String {
    ratio_text(ratio)
}

fn range(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (times(low), times(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_string(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::comparison::comparison;
    use super::super::synthetic::{self, Options};
    use crate::result::Record;

    fn record(rounds: usize, alike: bool) -> Record {
        synthetic::record(&Options {
            rounds,
            alike,
            ..Options::default()
        })
    }

    fn of_one_case(mut record: Record) -> Record {
        record.cases.truncate(1);
        record.runs.retain(|run| run.case == 0);
        record
    }

    fn said(record: &Record) -> String {
        comparison(record).verdict
    }

    #[test]
    fn the_best_by_the_first_figure_is_named_with_what_it_costs() {
        let text = said(&of_one_case(record(10, false)));
        assert!(text.starts_with("linux-thp is best: 1.3"), "{text}");
        assert!(text.contains("the operations/s of base (95 % 1."), "{text}");
        assert!(
            text.contains(", at 1.8") && text.contains("the resident memory and "),
            "{text}"
        );
        assert!(text.ends_with("the page fault p99."), "{text}");
        let both = said(&record(10, false));
        assert!(both.starts_with("linux-thp is best in both cases: 1."), "{both}");
        assert!(both.contains("at up to 1.8"), "{both}");
    }

    #[test]
    fn where_less_is_better_the_least_is_best() {
        let mut record = of_one_case(record(10, false));
        record.metrics.remove(0);
        // trim and base have the same memory; mega has more.
        let text = said(&record);
        assert!(
            text.starts_with("No variant is better than base in resident memory; linux-thp"),
            "{text}"
        );
    }

    #[test]
    fn too_few_rounds_are_no_verdict_and_say_who_leads() {
        let text = said(&of_one_case(record(3, false)));
        assert!(text.starts_with("No verdict: 3 rounds are too few"), "{text}");
        assert!(text.contains("So far linux-thp leads: 1.3"), "{text}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_called_equal() {
        let text = said(&of_one_case(record(10, true)));
        assert_eq!(text, "No variant differs significantly from base in operations/s.");
    }

    #[test]
    fn nothing_to_compare_is_said_as_well() {
        let mut none = record(3, false);
        none.runs.clear();
        assert_eq!(said(&none), "There are no runs.");
        none.cases.clear();
        assert_eq!(said(&none), "There is no case.");
    }
}
