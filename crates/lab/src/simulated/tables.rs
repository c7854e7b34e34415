//! The published number, the simulated number and their ratio, side by side.

use std::fmt::Write as _;

use super::papers::find;
use crate::report::scale::{ratio_text, value_text};
use crate::result::{Outcome, Published, Record, Unit};
use crate::stats::median;

/// One experiment in Markdown: what it is, its tables, what is different, and what the model cannot know.
#[must_use]
pub fn side_by_side(record: &Record) -> String {
    let about = &record.experiment;
    let mut text = format!("### {}: {}\n\n", about.name, about.title);
    if let Some(source) = &about.source {
        let _ = writeln!(text, "{source}. {}", about.question);
    }
    for (label, value) in [("Size", &about.scale), ("Different here", &about.differs)] {
        if let Some(value) = value {
            let _ = writeln!(text, "\n{label}: {value}.");
        }
    }
    let record = record.by_what_differs();
    for case in 0..record.cases.len() {
        text += &table(&record, case);
    }
    if let Some(experiment) = find(&about.name) {
        if !experiment.cannot_know.is_empty() {
            text += "\nWhat the model cannot know:\n\n";
        }
        for (what, why) in experiment.cannot_know {
            let _ = writeln!(text, "- {what}: {why}.");
        }
    }
    text
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => ratio_text(value),
        unit => value_text(unit, value),
    }
}

/// A case: a row for each main metric of each system.
fn table(record: &Record, case: usize) -> String {
    let info = &record.cases[case];
    let mut text = format!("\n**{}** ({}; {})\n\n", info.name, info.program, info.condition);
    for run in record.runs.iter().filter(|run| run.case == case) {
        if let Outcome::Failed(why) | Outcome::Skipped(why) = &run.outcome {
            let name = &record.variants[run.variant].name;
            let _ = writeln!(text, "{name} did not come to its end: {why}.\n");
        }
    }
    text += "| figure | system | published | simulated | simulated / published |\n| --- | --- | ---: | ---: | ---: |\n";
    for metric in record.main_metrics() {
        let published = |variant: &str| -> Option<&Published> {
            record.published.iter().find(|p| {
                p.metric == metric.name
                    && p.variant.as_deref() == Some(variant)
                    && p.case.as_ref().is_none_or(|name| *name == info.name)
            })
        };
        for (index, variant) in record.variants.iter().enumerate() {
            let values: Vec<f64> = record
                .values(case, index, &metric.name)
                .into_iter()
                .map(|(_, value)| value)
                .collect();
            let here = median(&values);
            let paper = published(&variant.name);
            if here.is_none() && paper.is_none() {
                continue;
            }
            let name = match (paper, variant.about.split_once(": ")) {
                (Some(paper), _) => paper.system.as_str(),
                (None, Some((name, _))) => name,
                (None, None) => variant.name.as_str(),
            };
            let ratio = paper.zip(here).filter(|(paper, _)| paper.value != 0.0);
            let _ = writeln!(
                text,
                "| {} | {name} | {} | {} | {} |",
                metric.label,
                paper.map_or("–".to_string(), |p| shown(metric.unit, p.value)),
                here.map_or("–".to_string(), |value| shown(metric.unit, value)),
                ratio.map_or("–".to_string(), |(paper, here)| ratio_text(here / paper.value)),
            );
        }
    }
    text
}
