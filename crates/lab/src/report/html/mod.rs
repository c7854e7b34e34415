//! A record as one self-contained page: no network, no script, no font. It is readable on a phone, in print and in dark mode. First
//! comes the verdict in a sentence, then one picture of it, then a table for each figure; everything else is folded.

mod notes;
mod tables;

use std::fmt::Write;

use super::compared::{CaseComparison, Comparison};
use super::comparison::comparison;
use super::plot::{bars, colour, glance, memory, published, quantiles, series};
use super::scale::{civil, duration_text};
use crate::result::{Better, Outcome, Record};
use mega_cli::draw::svg::escape;

/// Colours and layout.
const STYLE: &str = include_str!("style.css");

/// The page of `record`.
#[must_use]
pub fn page(record: &Record) -> String {
    let record = &*record.by_what_differs();
    let seen = comparison(record);
    let mut out = String::new();
    head(&mut out, record, &seen);
    at_a_glance(&mut out, record, &seen.cases);
    for (index, case) in seen.cases.iter().enumerate() {
        section(&mut out, record, index, case);
    }
    details(&mut out, record, &seen);
    whole(&record.experiment.title, &out)
}

/// A whole page with this title, in our colours, around a body of HTML.
#[must_use]
pub fn whole(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}
use put;

fn head(out: &mut String, record: &Record, seen: &Comparison) {
    let about = &record.experiment;
    let [year, month, day, hour, minute, _] = civil(record.settings.began_unix_s);
    put!(
        out,
        "<header>\n<p class=\"kicker\">mega {} · {} · {year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC</p>",
        if record.machine.is_simulated() { "sim" } else { "bench" },
        escape(&about.name)
    );
    put!(out, "<h1>{}</h1>", escape(&about.title));
    put!(out, "<p class=\"lead\">{}</p>", escape(&about.question));
    put!(out, "<p class=\"verdict\">{}</p>", escape(&with_signs(&seen.verdict)));
    notes::notes(out, record, seen);
    if let Some(source) = &about.source {
        let scale = about
            .scale
            .as_ref()
            .map_or(String::new(), |s| format!(" {}.", s.trim_end_matches('.')));
        put!(
            out,
            "<p class=\"soft\">Reproduces {}.{}</p>",
            escape(source),
            escape(&scale)
        );
    }
    put!(out, "</header>");
}

/// `1.30x` as `1.30×`.
fn with_signs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_sign = c == 'x' && before.is_ascii_digit() && chars.peek().is_none_or(|next| !next.is_alphanumeric());
        out.push(if is_sign { '×' } else { c });
        before = c;
    }
    out
}

/// One picture that answers the question: the ratios of every figure that can be better or worse.
fn at_a_glance(out: &mut String, record: &Record, cases: &[CaseComparison]) {
    let metrics = cases.first().map_or(&[][..], |case| &case.metrics);
    let judged = metrics
        .iter()
        .enumerate()
        .filter(|(_, metric)| metric.better != Better::Neither);
    let mut figures = String::new();
    for (index, metric) in judged {
        figure(&mut figures, &metric.label, "", glance::glance(cases, index));
    }
    put!(out, "<section id=\"glance\">\n<h2>At a glance</h2>");
    if !figures.is_empty() {
        put!(out, "<p class=\"soft\">{}</p>", glance::legend(record.is_exact()));
        put!(out, "<div class=\"figures\">\n{figures}</div>");
    }
    put!(out, "<ul class=\"key\">");
    for (index, variant) in record.variants.iter().enumerate() {
        let about = match variant.about.as_str() {
            "" => String::new(),
            about => format!(" <span class=\"soft\">{}</span>", escape(about)),
        };
        let swatch = format!("<span class=\"swatch {}\"></span>", colour(index));
        put!(
            out,
            "<li>{swatch}<strong>{}</strong>{about}</li>",
            escape(&variant.name)
        );
    }
    put!(out, "</ul>\n</section>");
}

fn section(out: &mut String, record: &Record, index: usize, case: &CaseComparison) {
    put!(out, "<section>\n<h2>{}</h2>", escape(&case.case));
    let program = &record.cases[index].program;
    put!(
        out,
        "<p class=\"soft\">{}; {}</p>",
        escape(program),
        escape(&case.condition)
    );
    tables::medians(out, &case.metrics);
    notes::not_counted(out, record, index);
    folded(out, "Beside the paper", &beside_the_paper(record, index, case));
    folded(out, "Figures", &figures(record, index, case));
    pictures(out, record, index);
    tables::others(out, record, index);
    put!(out, "</section>");
}

/// Figures that are folded until somebody wants them.
fn folded(out: &mut String, summary: &str, figures: &str) {
    if !figures.is_empty() {
        put!(
            out,
            "<details><summary>{summary}</summary>\n<div class=\"figures\">\n{figures}</div></details>"
        );
    }
}

fn beside_the_paper(record: &Record, index: usize, case: &CaseComparison) -> String {
    let mut figures = String::new();
    for metric in &case.metrics {
        let places = published::published_of(record, index, &metric.metric);
        let place = places.first().map_or("", |p| p.place.as_str());
        let differs = record.experiment.differs.as_deref().unwrap_or("");
        let note = format!("{place}. {differs} Ratios are to the first row.");
        let label = format!("{}: the paper and here", metric.label);
        figure(&mut figures, &label, &note, published::published(record, index, metric));
    }
    figures
}

/// Medians, figures over time, distributions.
fn figures(record: &Record, index: usize, case: &CaseComparison) -> String {
    let mut figures = String::new();
    for metric in &case.metrics {
        let good = match metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "",
        };
        let interval = match record.is_exact() {
            true => "",
            false => "whiskers: the median's 95 % interval",
        };
        let note = [good, interval].into_iter().filter(|part| !part.is_empty());
        let note = note.collect::<Vec<_>>().join("; ");
        figure(&mut figures, &metric.label, &note, bars::bars(metric));
    }
    for column in series::columns(record, index) {
        let names: Vec<&str> = series::phase_names(record, index).into_iter().collect();
        let dots = match names.as_slice() {
            [] => String::new(),
            names => format!("a dot: {} begins", names.join(", ")),
        };
        let rounds = match record.is_exact() {
            true => "",
            false => "median of the rounds, in a band from minimum to maximum",
        };
        let note = [rounds, &dots].into_iter().filter(|part| !part.is_empty());
        let note = note.collect::<Vec<_>>().join("; ");
        let label = format!("{} over time", tables::label_of(record, column));
        figure(&mut figures, &label, &note, series::series(record, index, column));
    }
    for name in quantiles::distributions(record, index) {
        let label = format!("latency: {}", name.replace('_', " "));
        let note = "p90, p99, p99.9; each line ends at the maximum";
        figure(&mut figures, &label, note, quantiles::quantiles(record, index, name));
    }
    figures
}

/// Snapshots of physical memory, a row of figures for each variant.
fn pictures(out: &mut String, record: &Record, case: usize) {
    let runs = (0..record.variants.len()).filter_map(|v| Some((v, memory::run_of(record, case, v)?)));
    let mut figures = String::new();
    for (variant, run) in runs {
        for picture in &run.pictures {
            let label = format!("{}: {}", record.variants[variant].name, picture.moment);
            figure(&mut figures, &label, "", Some(memory::memory(picture)));
        }
    }
    if figures.is_empty() {
        return;
    }
    put!(out, "<details><summary>Physical memory</summary>\n<p class=\"soft\">Base pages in use per block of 2 MB, along physical addresses; one run per variant.</p>");
    put!(out, "<ul class=\"key\">");
    for (name, _) in memory::PAGE_CLASSES {
        put!(out, "<li><span class=\"swatch memory-{name}\"></span>{name}</li>");
    }
    put!(out, "</ul>\n<div class=\"figures\">\n{figures}</div></details>");
}

fn figure(out: &mut String, label: &str, note: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        let note = if note.is_empty() {
            String::new()
        } else {
            format!("<small>{}</small>", escape(note))
        };
        let caption = format!("{}{note}", escape(label));
        put!(out, "<figure>\n<figcaption>{caption}</figcaption>\n{svg}</figure>");
    }
}

fn details(out: &mut String, record: &Record, seen: &Comparison) {
    put!(out, "<details class=\"card\"><summary>Reproduce</summary>");
    put!(out, "<pre>{}</pre>", escape(&record.settings.command));
    put!(out, "</details>");
    put!(out, "<details class=\"card\"><summary>Every run</summary>");
    for index in 0..record.cases.len() {
        tables::runs(out, record, index);
    }
    put!(out, "</details>");
    put!(
        out,
        "<details class=\"card\"><summary>Machine and settings</summary>\n<dl>"
    );
    for (name, value) in facts(record) {
        put!(out, "<dt>{}</dt><dd>{}</dd>", escape(&name), escape(&value));
    }
    put!(out, "</dl>\n</details>");
    put!(
        out,
        "<details class=\"card\"><summary>How the figures were judged</summary>"
    );
    for paragraph in notes::method(record, seen) {
        put!(out, "<p>{}</p>", escape(&paragraph));
    }
    put!(out, "</details>");
    put!(
        out,
        "<footer><p>{} of {} runs completed.</p></footer>",
        record.runs.iter().filter(|r| r.outcome == Outcome::Done).count(),
        record.runs.len(),
    );
}

/// Machine and settings, by name.
fn facts(record: &Record) -> Vec<(String, String)> {
    let (machine, settings) = (&record.machine, &record.settings);
    let hypervisor = if machine.virtual_machine {
        ", a virtual machine"
    } else {
        ""
    };
    let commit = settings
        .commit
        .as_ref()
        .map_or(String::new(), |c| format!(", commit {c}"));
    let cpu = settings
        .program_cpu
        .map_or("not pinned".to_string(), |cpu| format!("pinned to {cpu}"));
    let memory = super::scale::value_text(crate::result::Unit::Bytes, machine.memory_bytes as f64);
    let mut facts = vec![
        (
            "Processor".to_string(),
            format!("{} × {}{hypervisor}", machine.processors, machine.processor),
        ),
        ("Memory".into(), memory),
        ("Kernel".into(), machine.kernel.clone()),
        ("System".into(), machine.system.clone()),
        ("mega".into(), format!("{}{commit}", settings.version)),
        ("Rounds".into(), settings.rounds.to_string()),
        ("Seed".into(), settings.seed.to_string()),
        (
            "Program".into(),
            if machine.is_simulated() { String::new() } else { cpu },
        ),
        ("Took".into(), duration_text(settings.seconds)),
    ];
    let knobs = |knobs: &std::collections::BTreeMap<String, String>| -> String {
        let all: Vec<String> = knobs.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        all.join("; ")
    };
    facts.push(("THP before".into(), knobs(&machine.thp)));
    for variant in record.variants.iter().filter(|v| !v.knobs.is_empty()) {
        facts.push((format!("Under {}", variant.name), knobs(&variant.knobs)));
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    fn options(variants: usize, rounds: usize, troubled: bool) -> Options {
        Options {
            variants,
            rounds,
            troubled,
            ..Options::default()
        }
    }

    #[test]
    fn the_page_says_what_was_seen_before_it_shows_it() {
        let page = page(&synthetic::record(&options(4, 10, false)));
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not there"));
        assert!(at("<h1>What huge pages cost") < at("Does managed promotion"));
        assert!(at("Does managed promotion") < at("<p class=\"verdict\">linux-thp is best in both cases: 1."));
        assert!(at("<p class=\"verdict\">") < at("At a glance"));
        assert!(at("At a glance") < at("<svg"));
        assert!(at("<svg") < at("<table"));
        assert!(at("<table") < at("<details"), "everything else is folded");
        assert!(at("the paper and here") < at("over time"));
        assert!(at("over time") < at("latency: fault"));
        assert!(at("latency: fault") < at("<summary>Reproduce</summary>"));
        assert!(at("mega bench redis-bloat --rounds 10") < at("Every run"));
        assert!(
            page.contains("this is a virtual machine with two."),
            "what differs from the paper"
        );
    }

    #[test]
    fn ratios_have_their_sign_and_names_keep_their_letters() {
        assert_eq!(
            with_signs("x86 is best: 1.30x to 2x; linux 4x4"),
            "x86 is best: 1.30× to 2×; linux 4x4"
        );
    }

    #[test]
    fn names_and_messages_from_elsewhere_cannot_become_elements() {
        let mut record = synthetic::record(&options(9, 8, true));
        let evil = "<script>alert('x')</script><img src=http://example.org/x onerror=\"y\">";
        record.experiment.title = evil.into();
        record.experiment.question = evil.into();
        record.experiment.source = Some(evil.into());
        record.experiment.scale = Some(evil.into());
        record.experiment.differs = Some(evil.into());
        record.experiment.name = evil.into();
        record.ended_early = Some(evil.into());
        record.machine.kernel = evil.into();
        record.machine.processor = evil.into();
        record.settings.command = evil.into();
        record.settings.commit = Some(evil.into());
        record.metrics.iter_mut().for_each(|m| m.label = evil.into());
        record.cases.iter_mut().for_each(|c| c.program = evil.into());
        record.cases.iter_mut().for_each(|c| c.condition = evil.into());
        record.variants.iter_mut().for_each(|v| v.about = evil.into());
        record
            .variants
            .iter_mut()
            .for_each(|v| drop(v.knobs.insert(evil.into(), evil.into())));
        record.published.iter_mut().for_each(|p| p.system = evil.into());
        record.published.iter_mut().for_each(|p| p.place = evil.into());
        for run in &mut record.runs {
            run.noise.doubtful = vec![evil.into()];
            run.phases.push((1.0, evil.into()));
            let column = run.series.columns.values().next().cloned();
            run.series.columns.extend(column.map(|c| (evil.to_string(), c)));
            let distribution = run.distributions.values().next().cloned();
            run.distributions.extend(distribution.map(|d| (evil.to_string(), d)));
        }
        let page = page(&record);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("onerror=\""));
        assert!(page.matches("&lt;script&gt;").count() > 20);
    }

    #[test]
    fn every_element_that_is_opened_is_closed() {
        for record in [
            synthetic::record(&options(9, 8, true)),
            synthetic::record(&options(1, 3, false)),
            synthetic::record(&options(4, 0, false)),
        ] {
            let page = page(&record);
            for name in [
                "section", "table", "tr", "td", "th", "svg", "g", "figure", "details", "div", "p", "ul", "li", "dl",
                "small", "text",
            ] {
                let open = page.matches(&format!("<{name}>")).count() + page.matches(&format!("<{name} ")).count();
                assert_eq!(open, page.matches(&format!("</{name}>")).count(), "{name}");
            }
            assert!(
                !page.contains("NaN") && !page.contains("inf\"") && !page.contains("None"),
                "only values"
            );
        }
    }

    #[test]
    fn doubtful_failed_and_skipped_runs_are_all_in_the_page_and_say_why() {
        let page = page(&synthetic::record(&options(4, 8, true)));
        assert!(page.contains("the store found a &lt;wrong&gt; word at 0x7f00"));
        assert!(page.contains("this kernel has no shrinker"));
        assert!(page.contains("the hypervisor stole 12 % of the processor"));
        assert!(page.contains("not measured"));
    }

    #[test]
    fn an_experiment_without_runs_has_a_page_that_says_so() {
        let mut record = synthetic::record(&options(4, 0, false));
        record.ended_early = Some("interrupted".into());
        let page = page(&record);
        assert!(page.contains("There are no runs.") && page.contains("Ended early: interrupted."));
        record.cases.clear();
        record.variants.clear();
        record.metrics.clear();
        assert!(super::page(&record).contains("<h1>"));
    }
}
