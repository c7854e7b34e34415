//! The tables of the page: one for each figure, narrow enough for a phone; the long ones scroll in a box of their own.

use super::put;
use crate::report::compared::{Against, Cell, MetricComparison};
use crate::report::comparison::compare_metric;
use crate::report::plot::{colour, ratio, shown};
use crate::report::scale::{digits, duration_text, Scale};
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

/// A table for each metric, side by side where there is room: variants down; value, ratio and one mark across, the unit in the head.
pub fn medians(out: &mut String, metrics: &[MetricComparison]) {
    put!(out, "<div class=\"tables\">");
    for metric in metrics {
        table(out, metric);
    }
    put!(out, "</div>");
}

fn table(out: &mut String, metric: &MetricComparison) {
    let good = match metric.better {
        Better::Higher => ", higher is better",
        Better::Lower => ", lower is better",
        Better::Neither => "",
    };
    let medians = metric.variants.iter().filter_map(|cell| cell.median);
    let scale = Scale::of(metric.unit, medians.fold(0.0, |a: f64, b| a.max(b.abs())));
    let unit = match (metric.unit, scale.name()) {
        (Unit::Ratio, _) => "×".to_string(),
        (_, "us") => "µs".to_string(),
        (_, name) => name.to_string(),
    };
    let label = escape(&metric.label);
    put!(
        out,
        "<table class=\"figure\">\n<caption>{label}<small>{good}</small></caption>"
    );
    put!(
        out,
        "<thead><tr><th scope=\"col\">variant</th><th scope=\"col\">{}</th><th scope=\"col\">ratio</th>\
         <th scope=\"col\" class=\"words\"><span class=\"unseen\">verdict</span></th></tr></thead>\n<tbody>",
        if unit.is_empty() { "median" } else { &unit }
    );
    for (index, cell) in metric.variants.iter().enumerate() {
        let name = escape(&cell.variant);
        let swatch = format!("<span class=\"swatch {}\"></span>", colour(index));
        put!(
            out,
            "<tr><th scope=\"row\">{swatch}{name}</th>{}</tr>",
            cells(cell, &scale)
        );
    }
    put!(out, "</tbody></table>");
}

/// Value, ratio and mark of a variant.
fn cells(cell: &Cell, scale: &Scale) -> String {
    let Some(median) = cell.median else {
        return "<td colspan=\"3\" class=\"soft\">not measured</td>".to_string();
    };
    let number = |value: f64| escape(&scale.number(value).replace(" us", " µs"));
    let between = |low: String, high: String| format!("<small>{low}–{high}</small>");
    let star = if cell.doubtful > 0 { "*" } else { "" };
    let interval = cell
        .interval
        .map_or(String::new(), |i| between(number(i.low), number(i.high)));
    let value = format!("<td>{}{star}{interval}</td>", number(median));
    let Some(against) = &cell.against_first else {
        return format!("{value}<td></td><td></td>");
    };
    let times = against.paired.ratio.map_or("–".to_string(), ratio);
    let i = against.paired.ratio_interval;
    let interval = i.map_or(String::new(), |i| between(digits(i.low), digits(i.high)));
    format!(
        "{value}<td><strong>{times}</strong>{interval}</td><td class=\"words\">{}</td>",
        mark(against)
    )
}

/// One mark, in words and a sign: it needs no colour. That rounds are too few is said once, below the verdict.
fn mark(against: &Against) -> String {
    let (class, sign) = match against.word() {
        "better" => ("better", "▲ better"),
        "worse" => ("worse", "▼ worse"),
        "not significant" => ("plain", "not sig."),
        "A/A" => ("plain", "A/A"),
        _ => return String::new(),
    };
    format!("<span class=\"tag {class}\">{sign}</span>")
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
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Runs\"><table>\n<thead><tr><th>variant</th><th>round</th><th>time</th>"
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
