//! A record as one self-contained page: no network, no script, no font. It is readable on a phone and in dark mode, and has
//! first the findings, then figures, then every number behind them.

mod tables;

use std::fmt::Write;

use super::comparison::{comparison, CaseComparison};
use super::plot::{bars, colour, memory, published, quantiles, series};
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
    head(&mut out, record, &seen.cases);
    for (index, case) in seen.cases.iter().enumerate() {
        section(&mut out, record, index, case);
    }
    details(&mut out, record);
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

fn head(out: &mut String, record: &Record, cases: &[CaseComparison]) {
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
    if let Some(why) = &record.ended_early {
        put!(
            out,
            "<p class=\"note\">Ended early: {}. The figures are from the runs until then.</p>",
            escape(why)
        );
    }
    put!(out, "<div class=\"seen\">");
    for case in cases {
        let name = if cases.len() > 1 {
            format!("<strong>{}</strong>: ", escape(&case.case))
        } else {
            String::new()
        };
        put!(out, "<p>{name}{}</p>", escape(&case.sentence));
    }
    put!(out, "</div>\n<ul class=\"key\">");
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
    put!(out, "</ul>\n</header>");
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
    tables::not_counted(out, record, index);
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
    for metric in &case.metrics {
        let places = published::published_of(record, index, &metric.metric);
        let place = places.first().map_or("", |p| p.place.as_str());
        let differs = record.experiment.differs.as_deref().unwrap_or("");
        let note = format!("{place}. {differs} Ratios are to the first row.");
        let label = format!("{}: the paper and here", metric.label);
        figure(&mut figures, &label, &note, published::published(record, index, metric));
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
    if !figures.is_empty() {
        put!(out, "<div class=\"figures\">\n{figures}</div>");
    }
    pictures(out, record, index);
    tables::others(out, record, index);
    put!(out, "</section>");
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
    put!(out, "<h3>Physical memory</h3>\n<p class=\"soft\">Base pages in use per block of 2 MB, along physical addresses; one run per variant.</p>");
    put!(out, "<ul class=\"key\">");
    for (name, _) in memory::PAGE_CLASSES {
        put!(out, "<li><span class=\"swatch memory-{name}\"></span>{name}</li>");
    }
    put!(out, "</ul>\n<div class=\"figures\">\n{figures}</div>");
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

fn details(out: &mut String, record: &Record) {
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
        "<footer><p>{} of {} runs completed{}</p></footer>",
        record.runs.iter().filter(|r| r.outcome == Outcome::Done).count(),
        record.runs.len(),
        how_to_read(record),
    );
}

/// The method, after the number of runs.
fn how_to_read(record: &Record) -> String {
    let simulated = "The machine is simulated: times are simulated, and the same seed gives the same figures.";
    if record.is_exact() {
        return format!(". {simulated} Ratios are to the first variant.");
    }
    let statistics = "An interval is the median's at 95 % by bootstrap. Ratios are taken round by round to the first variant. \
                      Better and worse: Wilcoxon's signed-rank test on the logarithms of these ratios, two-sided, p &lt; 0.05; a \
                      difference that small comes of chance once in twenty comparisons, and a page has many.";
    match (record.settings.rounds, record.machine.is_simulated()) {
        (rounds, true) => format!(", in {rounds} rounds with a seed each. {simulated} {statistics}"),
        (rounds, false) => {
            format!(", in {rounds} alternating rounds, each starting with the next variant. {statistics}")
        }
    }
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
        let page = page(&synthetic::record(&options(4, 8, false)));
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not there"));
        assert!(at("<h1>What huge pages cost") < at("Does managed promotion"));
        assert!(at("Does managed promotion") < at("Against base: operations/s 1.3"));
        assert!(at("Against base") < at("<table"));
        assert!(at("<table") < at("<svg"));
        assert!(at("the paper and here") < at("over time"));
        assert!(at("over time") < at("latency: fault"));
        assert!(at("latency: fault") < at("<summary>Reproduce</summary>"));
        assert!(at("mega bench redis-bloat --rounds 8") < at("Every run"));
        assert!(
            page.contains("this is a virtual machine with two."),
            "what differs from the paper"
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
