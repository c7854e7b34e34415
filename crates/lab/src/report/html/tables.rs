//! The tables of the page, each in its own scrolling box.

use super::put;
use crate::report::comparison::{compare_metric, Against, Cell, MetricComparison};
use crate::report::plot::{colour, ratio, shown};
use crate::report::scale::duration_text;
use crate::result::{Better, Metric, Outcome, Record, Run, Unit};
use mega_cli::draw::svg::escape;
use std::fmt::Write;

/// The label of a metric or a column, or its name in words.
pub fn label_of(record: &Record, name: &str) -> String {
    if let Some(metric) = record.metrics.iter().find(|m| m.name == name) {
        return metric.label.clone();
    }
    let plain = ["_bytes", "_ns", "_share"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    plain.unwrap_or(name).replace('_', " ")
}

/// Variants down, metrics across; in each cell median, interval, ratio and verdict.
pub fn medians(out: &mut String, metrics: &[MetricComparison]) {
    let Some(first) = metrics.first() else {
        return;
    };
    put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Medians\"><table>\n<thead><tr><th scope=\"col\">variant</th>");
    for metric in metrics {
        let good = match metric.better {
            Better::Higher => "<small>higher is better</small>",
            Better::Lower => "<small>lower is better</small>",
            Better::Neither => "<small>&nbsp;</small>",
        };
        put!(out, "<th scope=\"col\">{}{good}</th>", escape(&metric.label));
    }
    put!(out, "</tr></thead>\n<tbody>");
    for (index, variant) in first.variants.iter().enumerate() {
        let name = escape(&variant.variant);
        let swatch = format!("<span class=\"swatch {}\"></span>", colour(index));
        put!(out, "<tr><th scope=\"row\" title=\"{name}\">{swatch}{name}</th>");
        for metric in metrics {
            put!(out, "<td>{}</td>", median_cell(metric.unit, &metric.variants[index]));
        }
        put!(out, "</tr>");
    }
    put!(out, "</tbody></table></div>");
}

fn median_cell(unit: Unit, cell: &Cell) -> String {
    let Some(median) = cell.median else {
        return "<span class=\"soft\">not measured</span>".to_string();
    };
    let mark = if cell.doubtful > 0 { "*" } else { "" };
    let mut text = format!("{}{mark}", escape(&shown(unit, median)));
    if let Some(i) = cell.interval {
        let _ = write!(
            text,
            "<small>{} – {}</small>",
            escape(&shown(unit, i.low)),
            escape(&shown(unit, i.high))
        );
    }
    if let Some(against) = &cell.against_first {
        let _ = write!(text, "<div>{}</div>", against_text(against));
    }
    text
}

fn against_text(against: &Against) -> String {
    let word = against.word();
    let class = match word {
        "better" | "worse" => word,
        _ => "plain",
    };
    // That the rounds are too few is said once, in the sentence above the table.
    let tag = match word {
        "" | "too few rounds" => String::new(),
        word => format!("<span class=\"tag {class}\">{word}</span>"),
    };
    let Some(times) = against.paired.ratio else {
        return tag;
    };
    let interval = against.paired.ratio_interval.map_or(String::new(), |i| {
        format!("<small>{} – {}</small>", ratio(i.low), ratio(i.high))
    });
    format!("<strong>{}</strong> {tag}{interval}", ratio(times))
}

/// Failed, skipped and doubtful runs of a case, a line each.
pub fn not_counted(out: &mut String, record: &Record, case: usize) {
    let troubles = crate::report::terminal::troubles(record, case);
    if troubles.is_empty() {
        return;
    }
    put!(out, "<div class=\"note\">");
    for (head, text) in troubles {
        put!(out, "<p><strong>{}</strong>{}</p>", escape(&head), escape(&text));
    }
    put!(out, "</div>");
}

/// The secondary metrics.
pub fn others(out: &mut String, record: &Record, case: usize) {
    let measured = |m: &&Metric| {
        !m.main
            && record
                .runs
                .iter()
                .any(|r| r.case == case && r.values.contains_key(&m.name))
    };
    let others = record.metrics.iter().filter(measured);
    let compared: Vec<MetricComparison> = others.map(|m| compare_metric(record, case, m)).collect();
    if compared.is_empty() {
        return;
    }
    put!(out, "<details><summary>More figures</summary>");
    medians(out, &compared);
    put!(out, "</details>");
}

/// Every run of a case with its values and its noise.
pub fn runs(out: &mut String, record: &Record, case: usize) {
    let runs: Vec<&Run> = record.runs.iter().filter(|run| run.case == case).collect();
    let has = |m: &&Metric| runs.iter().any(|run| run.values.contains_key(&m.name));
    let metrics: Vec<&Metric> = record.metrics.iter().filter(has).collect();
    put!(out, "<h3>{}</h3>", escape(&record.cases[case].name));
    if runs.is_empty() {
        put!(out, "<p>No runs.</p>");
        return;
    }
    put!(
        out,
        "<div class=\"scroll\"><table>\n<thead><tr><th>variant</th><th>round</th><th>time</th>"
    );
    for metric in &metrics {
        put!(out, "<th>{}</th>", escape(&metric.label));
    }
    let noise = match record.machine.is_simulated() {
        true => "",
        false => "<th>steal</th><th>others</th><th>probe</th>",
    };
    put!(out, "{noise}<th class=\"words\">outcome</th></tr></thead>\n<tbody>");
    for run in runs {
        put!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td>",
            escape(record.variants.get(run.variant).map_or("?", |v| v.name.as_str())),
            run.round + 1,
            duration_text(run.seconds)
        );
        for metric in &metrics {
            let value = run
                .values
                .get(&metric.name)
                .map_or("-".to_string(), |v| shown(metric.unit, *v));
            put!(out, "<td>{}</td>", escape(&value));
        }
        let share = |share: Option<f64>| share.map_or("-".to_string(), |s| shown(Unit::Share, s));
        let probe = run.noise.probe_ns.filter(|(before, _)| *before > 0.0);
        let probe = probe.map_or("-".to_string(), |(before, after)| ratio(after / before));
        if !record.machine.is_simulated() {
            let (steal, others) = (share(run.noise.steal_share), share(run.noise.others_share));
            put!(out, "<td>{steal}</td><td>{others}</td><td>{probe}</td>");
        }
        put!(out, "<td class=\"words\">{}</td></tr>", escape(&how_it_went(run)));
    }
    put!(out, "</tbody></table></div>");
}

fn how_it_went(run: &Run) -> String {
    match &run.outcome {
        Outcome::Done if run.noise.doubtful.is_empty() => "done".to_string(),
        Outcome::Done => format!("done, doubtful: {}", run.noise.doubtful.join("; ")),
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Skipped(why) => format!("skipped: {why}"),
    }
}
