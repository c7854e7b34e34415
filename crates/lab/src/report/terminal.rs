//! A record on the terminal: a table per case, a sentence, and failed runs, in eighty columns.

use std::collections::BTreeMap;

use comfy_table::{presets, CellAlignment, ContentArrangement, Table};

use super::compared::{Cell, MetricComparison};
use super::comparison::comparison;
use super::scale::{digits, duration_text, Scale};
use crate::result::{Better, Outcome, Record, Run};
use crate::stats::Interval;
use mega_cli::text::wrapped;

/// Columns of the terminal.
const WIDTH: u16 = 80;

/// Maximum width of a variant's name in a table.
const NAME_MAX: usize = 20;

/// `record` as text, with a line break at its end.
#[must_use]
pub fn text(record: &Record) -> String {
    let record = &*record.by_what_differs();
    let seen = comparison(record);
    let about = &record.experiment;
    let mut out = wrapped("", &format!("{}: {}", about.name, about.title));
    out.push('\n');
    if !about.question.is_empty() {
        line(&mut out, "", &about.question);
    }
    if let Some(source) = &about.source {
        line(&mut out, "", &format!("Reproduces {source}."));
    }
    out.push('\n');
    line(&mut out, "", &seen.verdict);
    for (index, case) in seen.cases.iter().enumerate() {
        out.push('\n');
        let program = &record.cases[index].program;
        line(&mut out, "", &format!("{}: {program}, {}", case.case, case.condition));
        for metric in &case.metrics {
            if metric.variants.iter().any(|v| v.median.is_some()) {
                out.push('\n');
                out.push_str(&table(metric));
            }
        }
        out.push('\n');
        line(&mut out, "", &case.sentence);
        for (head, text) in troubles(record, index) {
            line(&mut out, &head, &text);
        }
    }
    if let Some(why) = &record.ended_early {
        out.push('\n');
        line(
            &mut out,
            "",
            &format!("Ended early: {why}. The figures are from the runs until then."),
        );
    }
    out.push('\n');
    line(&mut out, "", &foot(record, seen.tests.comparisons));
    out
}

fn line(out: &mut String, head: &str, text: &str) {
    out.push_str(&wrapped(head, &printable(text)));
    out.push('\n');
}

/// `text` without control characters: a name from a file does not move the cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `text` in at most `max` characters, the middle left out: names of variants differ at both ends.
#[must_use]
pub fn elided(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_string();
    }
    let head = max.saturating_sub(2).div_ceil(2);
    let tail = max.saturating_sub(2) - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}..{end}")
}

fn table(metric: &MetricComparison) -> String {
    let largest = metric
        .variants
        .iter()
        .filter_map(|v| v.median)
        .fold(0.0, |a: f64, b| a.max(b.abs()));
    let scale = Scale::of(metric.unit, largest);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH);
    let good = match metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "",
    };
    let median = match scale.name() {
        "" => "median",
        name => name,
    };
    let label = elided(&printable(&metric.label), NAME_MAX);
    table.set_header([&label, median, "95 %", "ratio", "95 %", good]);
    for cell in &metric.variants {
        table.add_row(row(cell, &scale));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == 5 { 0 } else { 2 }));
        if (1..5).contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n"))
}

fn row(cell: &Cell, scale: &Scale) -> [String; 6] {
    let mark = if cell.doubtful > 0 { "*" } else { "" };
    let median = cell
        .median
        .map_or("-".to_string(), |m| format!("{}{mark}", scale.number(m)));
    let interval = cell.interval.map_or(String::new(), |i| range(i, |v| scale.number(v)));
    let (ratio, ratio_interval, word) = match &cell.against_first {
        Some(against) => (
            against
                .paired
                .ratio
                .map_or("-".to_string(), |r| format!("{}x", digits(r))),
            against
                .paired
                .ratio_interval
                .map_or(String::new(), |i| range(i, digits)),
            against.word().to_string(),
        ),
        None => (String::new(), String::new(), String::new()),
    };
    let name = elided(&printable(&cell.variant), NAME_MAX);
    [name, median, interval, ratio, ratio_interval, word]
}

fn range(interval: Interval, number: impl Fn(f64) -> String) -> String {
    format!("{}-{}", number(interval.low), number(interval.high))
}

/// Failed, skipped and doubtful runs of a case, by variant, with the rounds.
pub(super) fn troubles(record: &Record, case: usize) -> Vec<(String, String)> {
    let mut found: BTreeMap<(u8, usize, String), Vec<usize>> = BTreeMap::new();
    for run in record.runs.iter().filter(|run| run.case == case) {
        for (kind, why) in trouble(run) {
            found.entry((kind, run.variant, why)).or_default().push(run.round);
        }
    }
    let text = |((kind, variant, why), rounds): ((u8, usize, String), Vec<usize>)| {
        let head = ["* doubtful: ", "failed: ", "skipped: "][usize::from(kind)];
        let name = record.variants.get(variant).map_or("?", |v| v.name.as_str());
        (head.to_string(), format!("{name}, {}: {why}", rounds_text(&rounds)))
    };
    found.into_iter().map(text).collect()
}

fn trouble(run: &Run) -> Vec<(u8, String)> {
    match &run.outcome {
        Outcome::Done => run.noise.doubtful.iter().map(|why| (0, why.clone())).collect(),
        Outcome::Failed(why) => vec![(1, why.clone())],
        Outcome::Skipped(why) => vec![(2, why.clone())],
    }
}

/// `round 1`, `rounds 1, 2, 5`, counted from one.
fn rounds_text(rounds: &[usize]) -> String {
    let numbers: Vec<String> = rounds.iter().map(|r| (r + 1).to_string()).collect();
    let word = if rounds.len() == 1 { "round" } else { "rounds" };
    format!("{word} {}", numbers.join(", "))
}

fn foot(record: &Record, comparisons: usize) -> String {
    let settings = &record.settings;
    let rounds = match settings.rounds {
        1 => "1 round".to_string(),
        n => format!("{n} rounds"),
    };
    if record.is_exact() {
        return format!(
            "{} simulated runs, {}, seed {}.",
            record.runs.len(),
            duration_text(settings.seconds),
            settings.seed
        );
    }
    format!(
        "{} runs in {rounds}, {}, seed {}. Medians with 95 % intervals; ratios to {}, round by round. Verdicts: signed-rank test, \
         {comparisons} comparisons, Holm's correction.",
        record.runs.len(),
        duration_text(settings.seconds),
        settings.seed,
        record.variants.first().map_or("the first variant", |v| v.name.as_str()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    fn fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "{line}\n{text}");
        }
    }

    #[test]
    fn the_tables_fit_eighty_columns_and_show_unit_ratio_and_verdict() {
        let record = synthetic::record(&Options {
            rounds: 10,
            ..Options::default()
        });
        let text = text(&record);
        fits(&text);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("linux-thp is best in both cases"), "{text}");
        let row = |name: &str| {
            text.lines()
                .find(|l| l.starts_with(&format!("{name}  ")))
                .unwrap_or_default()
                .to_string()
        };
        assert!(row("operations/s").contains("M/s"), "{text}");
        assert!(
            row("linux-thp").contains("1.3") && row("linux-thp").ends_with("better"),
            "{text}"
        );
        assert!(row("resident memory").contains("GB") && row("resident memory").ends_with("lower is better"));
        assert!(!text.contains("too few"), "{text}");
    }

    #[test]
    fn nine_variants_with_long_names_fit_as_well() {
        let record = synthetic::record(&Options {
            rounds: 8,
            variants: 9,
            troubled: true,
            ..Options::default()
        });
        let text = text(&record);
        fits(&text);
        assert!(text.contains("ethp:a-na") && text.contains("max=100%"), "{text}");
    }

    #[test]
    fn doubtful_failed_and_skipped_runs_are_marked_and_explained() {
        let record = synthetic::record(&Options {
            rounds: 8,
            troubled: true,
            ..Options::default()
        });
        let text = text(&record);
        fits(&text);
        let marked = text
            .lines()
            .filter(|l| l.starts_with("linux-thp") && l.contains('*'))
            .count();
        assert_eq!(marked, 4, "every metric of the doubtful run: {text}");
        assert!(
            text.contains("* doubtful: linux-thp, round 1: the hypervisor stole 12 %"),
            "{text}"
        );
        assert!(
            text.contains("failed: linux-thp, round 2: the store found a <wrong> word"),
            "{text}"
        );
        assert!(
            text.contains("skipped: trim, rounds 1, 2, 3, 4, 5, 6, 7, 8: this kernel"),
            "{text}"
        );
    }

    #[test]
    fn three_rounds_say_that_they_are_too_few() {
        let text = text(&synthetic::record(&Options::default()));
        fits(&text);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            words
                .join(" ")
                .contains("3 rounds are too few for a verdict among 18 comparisons; 10 are needed"),
            "{text}"
        );
        assert!(
            text.lines()
                .any(|l| l.starts_with("linux-thp") && l.ends_with("too few rounds")),
            "{text}"
        );
    }

    #[test]
    fn nothing_done_one_variant_and_zeros_are_no_trouble() {
        let mut none = synthetic::record(&Options::default());
        none.runs.clear();
        none.ended_early = Some("interrupted\u{1b}[2J".into());
        let shown = text(&none);
        assert!(
            shown.contains("There are no runs.") && shown.contains("Ended early: interrupted"),
            "{shown}"
        );
        assert!(!shown.contains('\u{1b}'), "no control characters get through");
        let mut one = synthetic::record(&Options {
            variants: 1,
            ..Options::default()
        });
        one.runs
            .iter_mut()
            .for_each(|r| r.values.values_mut().for_each(|v| *v = 0.0));
        fits(&text(&one));
    }

    #[test]
    fn a_long_name_keeps_both_of_its_ends() {
        assert_eq!(elided("short", 20), "short");
        assert_eq!(elided("mega:uprom=30%,sprom=20%", 12), "mega:..m=20%");
        assert_eq!(elided("äöüäöüäöü", 6), "äö..öü");
    }
}
