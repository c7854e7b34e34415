//! Recordings of real programs, run under every system: what their memory would be. One record each, of `mega sim run --trace --scans`.

use std::fmt::Write as _;

use crate::result::Record;
use crate::stats::median;

/// Systems of which a live record may have the same figure.
const LIVE: [&str; 2] = ["thp-always", "auto"];
const MEAN: &str = "mean_rss_bytes";

/// A figure of a variant in a record's first case: the median of its rounds.
fn of(record: &Record, variant: &str, metric: &str) -> Option<f64> {
    let number = record.variants.iter().position(|one| one.name == variant)?;
    let values: Vec<f64> = record
        .values(0, number, metric)
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    median(&values)
}

fn to_base(record: &Record, variant: &str, metric: &str) -> Option<f64> {
    Some(of(record, variant, metric)? / of(record, "base", metric)?)
}

fn cell(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}"))
}

/// Two tables: mean resident memory relative to base pages, beside what live records of the same programs have; and the part of the peak that is in
/// huge pages.
#[must_use]
pub fn tables(records: &[Record], live: &[Record]) -> String {
    let Some(first) = records.first() else {
        return "Nothing is recorded.\n".to_string();
    };
    let systems: Vec<&str> = first.variants.iter().map(|one| one.name.as_str()).collect();
    let mut out = String::from("Mean resident memory relative to base pages:\n\n");
    let live_heads = LIVE.map(|name| format!("{name}, live"));
    let heads: Vec<&str> = systems
        .iter()
        .skip(1)
        .copied()
        .chain(live_heads.iter().map(String::as_str))
        .collect();
    head(&mut out, "base pages, mean", &heads);
    for record in records {
        let program = &record.cases[0].name;
        let simulated = systems.iter().skip(1).map(|system| to_base(record, system, MEAN));
        let live = live.iter().find(|live| live.cases[0].name == *program);
        let beside = LIVE.iter().map(|system| to_base(live?, system, MEAN));
        let cells: Vec<String> = simulated.chain(beside).map(cell).collect();
        let base = of(record, "base", MEAN).unwrap_or(0.0) / 1e9;
        let _ = writeln!(out, "| {program} | {base:.2} GB | {} |", cells.join(" | "));
    }
    out += "\nPart of the peak that is in huge pages:\n\n";
    head(&mut out, "base pages, peak", &systems[1..]);
    for record in records {
        let part = |system: &&str| Some(of(record, system, "peak_huge_bytes")? / of(record, system, "peak_rss_bytes")?);
        let cells: Vec<String> = systems[1..].iter().map(part).map(cell).collect();
        let base = of(record, "base", "peak_rss_bytes").unwrap_or(0.0) / 1e9;
        let _ = writeln!(
            out,
            "| {} | {base:.2} GB | {} |",
            record.cases[0].name,
            cells.join(" | ")
        );
    }
    out
}

fn head(out: &mut String, base: &str, systems: &[&str]) {
    let _ = writeln!(out, "| program | {base} | {} |", systems.join(" | "));
    let _ = writeln!(out, "| --- | --- |{}", " --- |".repeat(systems.len()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    /// A record of one program with these mean sizes.
    fn record(program: &str, sizes: &[(&str, f64)]) -> Record {
        let mut record = synthetic::record(&Options::default());
        let (run, variant) = (record.runs[0].clone(), record.variants[0].clone());
        record.cases.truncate(1);
        record.cases[0].name = program.into();
        record.variants = sizes
            .iter()
            .map(|(name, _)| crate::result::VariantInfo {
                name: (*name).to_string(),
                ..variant.clone()
            })
            .collect();
        record.runs = sizes
            .iter()
            .enumerate()
            .map(|(number, (_, bytes))| crate::result::Run {
                case: 0,
                variant: number,
                round: 0,
                values: [
                    (MEAN, *bytes),
                    ("peak_rss_bytes", *bytes),
                    ("peak_huge_bytes", *bytes / 4.0),
                ]
                .map(|(name, value)| (name.to_string(), value))
                .into(),
                ..run.clone()
            })
            .collect();
        record
    }

    #[test]
    fn memory_is_relative_to_base_pages_and_live_records_stand_beside() {
        let simulated = record("go", &[("base", 2e9), ("thp-always", 3e9)]);
        let live = record("go", &[("base", 1e9), ("thp-always", 1.25e9)]);
        let text = tables(&[simulated], &[live]);
        assert!(text.contains("| program | base pages, mean | thp-always | thp-always, live | auto, live |"));
        assert!(text.contains("| go | 2.00 GB | 1.50 | 1.25 | – |"), "{text}");
        assert!(text.contains("| go | 2.00 GB | 0.25 |"), "{text}");
        assert_eq!(tables(&[], &[]), "Nothing is recorded.\n");
    }
}
