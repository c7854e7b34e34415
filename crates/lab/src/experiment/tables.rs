//! What a live run of a paper's experiment gave, beside the paper's figures, in Markdown: docs/results.md from records alone.

use std::fmt::Write as _;

use super::{INGENS, MEGA};
use crate::report::scale::{civil, ratio_text, value_text};
use crate::result::{Metric, Outcome, Published, Record, Unit};
use crate::simulated::{compared, Reproduced};
use crate::stats::spread;
use mega_cli::text::wrapped;

/// An experiment: how it was measured, and a row for each main figure of each case; the paper's figure in brackets.
#[must_use]
pub fn beside(record: &Record) -> String {
    let (about, settings) = (&record.experiment, &record.settings);
    let doubtful = record.runs.iter().filter(|run| !run.noise.doubtful.is_empty()).count();
    let [year, month, day, ..] = civil(settings.began_unix_s);
    let rounds = match settings.rounds {
        1 => "one round".to_string(),
        n => format!("{n} rounds"),
    };
    let mut how = format!(
        "`{}`: {rounds}, {doubtful} of {} runs doubtful, {year}-{month:02}-{day:02}.",
        settings.command,
        record.runs.len()
    );
    for said in [&about.scale, &about.differs].into_iter().flatten() {
        let mut letters = said.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        let _ = write!(how, " {first}{}.", letters.as_str());
    }
    let mut text = format!("{}\n\n", wrapped("", &how));
    let record = record.by_what_differs();
    for run in &record.runs {
        if let Outcome::Failed(why) | Outcome::Skipped(why) = &run.outcome {
            let (case, variant) = (&record.cases[run.case].name, label(&record.variants[run.variant].name));
            let _ = writeln!(
                text,
                "{}\n",
                wrapped("", &format!("{case}, {variant}, did not end: {why}."))
            );
        }
    }
    rows(&mut text, &record);
    text
}

fn rows(text: &mut String, record: &Record) {
    let heads: Vec<&str> = record.variants.iter().map(|variant| label(&variant.name)).collect();
    let _ = writeln!(
        text,
        "| | {} |\n| --- |{}",
        heads.join(" | "),
        " ---: |".repeat(heads.len())
    );
    for (index, case) in record.cases.iter().enumerate() {
        for metric in record.main_metrics() {
            let cells: Vec<String> = (0..record.variants.len())
                .map(|variant| cell(record, index, variant, metric))
                .collect();
            if cells.iter().all(|cell| cell == NOTHING) {
                continue;
            }
            let name = match record.cases.len() {
                1 => metric.label.clone(),
                _ => format!("{}: {}", case.name, metric.label),
            };
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
    }
}

const NOTHING: &str = "–";

/// The median, half of the range of its rounds, and what the paper has.
fn cell(record: &Record, case: usize, variant: usize, metric: &Metric) -> String {
    let values = record.values(case, variant, &metric.name);
    let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
    let mut text = match spread(&values) {
        None => NOTHING.to_string(),
        Some(all) if all.count == 1 || all.median == 0.0 => shown(metric.unit, all.median),
        Some(all) => {
            let half = 50.0 * (all.max - all.min) / all.median.abs();
            format!("{} ±{half:.0} %", shown(metric.unit, all.median))
        }
    };
    let of_this = |one: &&Published| {
        one.metric == metric.name
            && one.variant.as_ref() == Some(&record.variants[variant].name)
            && one.case.as_ref().is_none_or(|name| *name == record.cases[case].name)
    };
    for one in record.published.iter().filter(of_this) {
        let _ = write!(text, " ({})", shown(metric.unit, one.value));
    }
    text
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => ratio_text(value),
        unit => value_text(unit, value),
    }
}

/// A variant in a column's head.
fn label(variant: &str) -> &str {
    match variant {
        "base" => "base pages",
        "thp-always" => "stock THP",
        "thp-always+trim" => "stock THP + trim",
        "thp-always-defrag" => "THP, aggressive",
        "thp-always-defrag+trim" => "THP, aggressive + trim",
        "mthp-64k" => "64 KB folios",
        INGENS => "Ingens",
        MEGA => "MEGA",
        name => name,
    }
}

/// Where these were measured, of which commits, and how many runs of how many are doubtful.
#[must_use]
pub fn machine(records: &[Record]) -> String {
    let mut text = String::new();
    super::auto::table::origins(&mut text, records);
    let runs = || records.iter().flat_map(|record| &record.runs);
    let doubtful = runs().filter(|run| !run.noise.doubtful.is_empty()).count();
    let _ = writeln!(
        text,
        "{doubtful} of {} runs are doubtful: the machine was disturbed.",
        runs().count()
    );
    text
}

/// How many of the orders that the papers publish of systems which ran here came out, by paper. Medians are compared, whatever their spread.
#[must_use]
pub fn directions(records: &[Record]) -> String {
    let mut papers: Vec<(String, Reproduced, Reproduced)> = Vec::new();
    for record in records {
        let record = record.by_what_differs();
        let paper = paper(record.experiment.source.as_deref().unwrap_or_default());
        for one in compared(&record, paper, &|_| true) {
            if one.simulated.is_none() {
                continue;
            }
            let known = papers.iter().position(|(name, ..)| *name == one.paper);
            let at = known.unwrap_or_else(|| {
                papers.push((one.paper.clone(), Reproduced::default(), Reproduced::default()));
                papers.len() - 1
            });
            let (_, orders, ties) = &mut papers[at];
            if one.tie { ties } else { orders }.add(one.reproduced);
        }
    }
    let share = |share: &Reproduced| match share.of {
        0 => NOTHING.to_string(),
        of => format!("{} of {of}", share.reproduced),
    };
    let mut text = String::from("| paper | better or worse | alike |\n| --- | ---: | ---: |\n");
    for (paper, orders, ties) in &papers {
        let _ = writeln!(text, "| {paper} | {} | {} |", share(orders), share(ties));
    }
    text
}

/// A paper in a word or two.
fn paper(source: &str) -> &str {
    match source.split([' ', ',']).next() {
        Some("Hugepage") => "allocation-latency study",
        word => word.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    fn record(rounds: usize) -> Record {
        let mut record = synthetic::record(&Options {
            rounds,
            ..Options::default()
        });
        let metric = record.main_metrics().next().unwrap().name.clone();
        record.published = vec![Published {
            case: Some(record.cases[0].name.clone()),
            system: "Linux".to_string(),
            variant: Some(record.variants[0].name.clone()),
            metric,
            value: 0.0,
            place: "Table 1".to_string(),
        }];
        record
    }

    #[test]
    fn a_row_for_each_main_figure_of_each_case_and_the_papers_figure_in_its_cell_only() {
        let record = record(3);
        let text = beside(&record);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(
            rows.len(),
            2 + record.cases.len() * record.main_metrics().count(),
            "{text}"
        );
        assert_eq!(text.matches(" (0").count(), 1, "{text}");
        assert!(rows[2].contains(" (0") && rows[2].contains('±'), "{text}");
        assert!(text.starts_with(&format!("`{}`", record.settings.command)));
        assert!(text.contains("3 rounds"), "{text}");
    }

    #[test]
    fn one_round_has_no_spread_and_what_failed_is_said() {
        let mut record = record(1);
        record.runs[0].outcome = Outcome::Failed("no memory".to_string());
        let text = beside(&record);
        assert!(text.contains("one round") && !text.contains('±'), "{text}");
        assert!(text.contains("did not end: no memory."), "{text}");
        assert!(text.contains(NOTHING), "{text}");
    }
}
