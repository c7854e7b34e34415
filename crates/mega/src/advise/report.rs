//! The answer on one page, and as JSON.

use std::time::Duration;

use mega_cli::text::{printable, wrapped};
use mega_core::units::{show_duration, Bytes, BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use mega_linux::inspect::costs::Costs;
use serde_json::{json, Value};

use super::compare::{Compared, Run};
use super::settings::Setting;
use super::verdict::{Answer, Confidence, Evidence, Verdict};
use super::watch::{Seen, LONGEST};

/// Ranges that are listed.
const RANGES: usize = 4;
/// Head of a paragraph.
const INDENT: &str = "  ";

/// What is reported.
pub struct Report<'a> {
    /// What was looked at: a command, or a process.
    pub of: &'a str,
    /// For how long.
    pub watched: Duration,
    /// The scanner.
    pub scanner: &'a str,
    /// What is known.
    pub evidence: &'a Evidence,
    /// What it comes to.
    pub answer: &'a Answer,
    /// What to set.
    pub settings: &'a [Setting],
    /// What could not be done, and why.
    pub notes: &'a [String],
}

fn percent(share: f64) -> String {
    // No "-0%".
    format!("{:.0}%", (100.0 * share).round() + 0.0)
}

fn part(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

fn ns(ns: f64) -> String {
    match ns < 100.0 {
        true => format!("{ns:.1}ns"),
        false => show_duration(Duration::from_nanos(ns.max(0.0) as u64)),
    }
}

/// The verdict in a sentence.
fn sentence(answer: &Answer) -> String {
    let (least, most) = answer.saved_range;
    let gain = match (answer.measured.is_some(), least.max(0.0) == most) {
        (_, true) => String::new(),
        (true, _) => format!(
            " Huge pages saved {} of the processor time ({} to {}).",
            percent(answer.saved),
            percent(least),
            percent(most)
        ),
        (false, _) => format!(
            " They would save about {} of the processor time ({} to {}).",
            percent(answer.saved),
            percent(least),
            percent(most)
        ),
    };
    let what = match answer.verdict {
        Verdict::WorthIt => "worth it.",
        Verdict::WorthItWhereDense => {
            return format!(
                "worth it where memory is dense, and only there.{gain} Everywhere they would add {} of memory.",
                Bytes(answer.bloat_bytes)
            )
        }
        Verdict::DoNotBother => "do not bother.",
        Verdict::WouldHurt => {
            return format!(
                "they would hurt: they would add {} of memory.{gain}",
                Bytes(answer.bloat_bytes)
            )
        }
        Verdict::HasThem => {
            return format!(
                "it has them: {} in huge pages, {} of that zero-filled.",
                Bytes(answer.huge_bytes),
                answer
                    .waste_bytes
                    .map_or_else(|| "an unknown part".to_owned(), |bytes| Bytes(bytes).to_string())
            )
        }
        Verdict::Unknown => return "unknown: too little could be seen.".to_owned(),
    };
    format!("{what}{gain}")
}

/// How sure, and by what.
fn sureness(answer: &Answer) -> String {
    let how = match answer.sure {
        Confidence::Sure => "sure",
        Confidence::Likely => "likely",
        Confidence::Unsure => "unsure",
    };
    let by = match answer.measured {
        Some((_, spread)) => format!("by whole runs (those of one kind differ by {})", percent(spread)),
        None if answer.possible_bytes < 16 << 20 => "by its memory: hardly any can be huge".to_owned(),
        None => "by an estimate from accesses and faults; --compare measures whole runs of a command".to_owned(),
    };
    format!("{how}, {by}")
}

/// A page of text under construction.
struct Page(String);

impl Page {
    fn heading(&mut self, text: &str) {
        self.0 += text;
        self.0.push('\n');
    }

    fn paragraph(&mut self, head: &str, text: &str) {
        self.0 += &wrapped(&format!("{INDENT}{head:<10}"), text);
        self.0.push('\n');
    }
}

/// For people, in eighty columns.
pub fn text(report: &Report<'_>) -> String {
    let Report { answer, evidence, .. } = report;
    let mut page = Page(format!(
        "{}\n{INDENT}watched for {}, processor time {}, scanner {}\n",
        printable(report.of),
        show_duration(report.watched),
        show_duration(evidence.cpu),
        report.scanner
    ));
    page.paragraph("verdict", &sentence(answer));
    page.paragraph("how sure", &sureness(answer));
    for note in report.notes {
        page.paragraph("note", note);
    }
    page.heading("why");
    for seen in evidence.processes.iter().take(2) {
        process(seen, &mut page);
    }
    if let Some(costs) = &evidence.costs {
        page.paragraph(
            "estimate",
            &format!(
                "{} of the time for translations, {} for page faults",
                percent(answer.estimate.translation),
                percent(answer.estimate.faults)
            ),
        );
        page.paragraph(
            "machine",
            &format!(
                "a touch at random of {} takes {} on base pages, {} on huge ones ({} and {} where it waits for the one before)",
                Bytes(costs.bytes),
                ns(costs.touch_ns[0]),
                ns(costs.touch_ns[1]),
                ns(costs.chained_ns[0]),
                ns(costs.chained_ns[1])
            ),
        );
    }
    if let Some(compared) = &evidence.compared {
        runs(compared, &mut page);
    }
    page.heading("what they cost");
    page.paragraph(
        "memory",
        &match answer.bloat_bytes {
            0 => "nothing: what is touched is touched densely".to_owned(),
            bloat => format!(
                "{} more if every touched region is huge; under MEGA, which promotes dense ones, at most 3% or 64M",
                Bytes(bloat)
            ),
        },
    );
    if let Some(costs) = &evidence.costs {
        page.paragraph(
            "latency",
            &format!(
                "a first touch that maps 2 MB takes {} (here at most {}) in place of {}",
                ns(costs.huge_fault_ns),
                ns(costs.huge_fault_max_ns),
                ns(costs.base_fault_ns)
            ),
        );
    }
    page.heading("what to set");
    match answer.verdict {
        Verdict::WorthIt | Verdict::WorthItWhereDense => {
            page.paragraph("MEGA", "mega run -- CMD, or a rule of the daemon")
        }
        Verdict::WouldHurt => page.paragraph("MEGA", "nothing: policy auto promotes dense regions only"),
        Verdict::DoNotBother | Verdict::HasThem | Verdict::Unknown => page.paragraph("", "nothing"),
    }
    for setting in report.settings {
        page.paragraph("", &format!("{}: {} – {}", setting.place, setting.set, setting.effect));
    }
    page.0
}

fn process(seen: &Seen, page: &mut Page) {
    let layout = &seen.layout;
    page.paragraph(
        "process",
        &format!(
            "{} ({}): resident {}, huge pages possible in {}, {} of that in dense regions; {} huge",
            printable(&seen.name),
            seen.pid,
            Bytes(layout.resident_bytes),
            Bytes(layout.possible_bytes),
            part(layout.dense_bytes, layout.possible_bytes),
            Bytes(layout.huge_bytes)
        ),
    );
    for range in layout.ranges.iter().take(RANGES).filter(|range| range.regions > 1) {
        let whole = range.regions * HUGE_PAGE_BYTES;
        page.paragraph(
            "  range",
            &format!(
                "{:#x}: {} regions, {} populated, {} in dense ones",
                range.start,
                range.regions,
                part(range.resident_bytes, whole),
                part(range.dense_bytes + range.huge_bytes, range.resident_bytes)
            ),
        );
    }
    if seen.windows > 1 {
        let rate = seen.touches / seen.cpu.as_secs_f64().max(0.01);
        page.paragraph(
            "  heat",
            &format!(
                "{:.1} million touches of base pages a second of its time, {} in use within {} ({} looks)",
                rate / 1e6,
                Bytes(seen.in_use * BASE_PAGE_BYTES),
                show_duration(LONGEST),
                seen.windows
            ),
        );
    } else if let Some(why) = &seen.unseen {
        page.paragraph("  heat", why);
    }
    page.paragraph("  faults", &format!("{}", seen.faults));
}

fn runs(compared: &Compared, page: &mut Page) {
    for (head, list) in [("base pages", &compared.base), ("huge pages", &compared.huge)] {
        let texts: Vec<_> = list.iter().map(run).collect();
        let by = if head == "huge pages" {
            compared.by.name()
        } else {
            "THP disabled"
        };
        page.paragraph("run", &format!("{head} ({by}): {}", texts.join("; ")));
    }
}

fn run(run: &Run) -> String {
    format!(
        "{:.2} s, processor time {:.2} s, {} faults, peak {}",
        run.elapsed_s,
        run.cpu_s,
        run.faults,
        Bytes(run.peak_bytes)
    )
}

/// For machines.
pub fn to_json(report: &Report<'_>) -> Value {
    let Report { answer, evidence, .. } = report;
    let processes: Vec<_> = evidence
        .processes
        .iter()
        .take(8)
        .map(|seen| {
            let mut layout = serde_json::to_value(&seen.layout).unwrap_or_default();
            if let Some(ranges) = layout["ranges"].as_array_mut() {
                ranges.truncate(64);
            }
            json!({
                "pid": seen.pid,
                "name": seen.name,
                "cpu_s": seen.cpu.as_secs_f64(),
                "system_s": seen.system.as_secs_f64(),
                "faults": seen.faults,
                "touches": seen.touches,
                "pages_in_use": seen.in_use,
                "looks": seen.windows,
                "unseen": seen.unseen,
                "layout": layout,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "kind": "advise",
        "of": report.of,
        "watched_s": report.watched.as_secs_f64(),
        "cpu_s": evidence.cpu.as_secs_f64(),
        "scanner": report.scanner,
        "answer": answer,
        "costs": evidence.costs.as_ref().map(costs),
        "processes": processes,
        "compared": evidence.compared,
        "settings": report.settings,
        "notes": report.notes,
    })
}

fn costs(costs: &Costs) -> Value {
    json!({
        "base_fault_ns": costs.base_fault_ns,
        "huge_fault_ns": costs.huge_fault_ns,
        "huge_fault_max_ns": costs.huge_fault_max_ns,
        "base_touch_ns": costs.touch_ns[0],
        "huge_touch_ns": costs.touch_ns[1],
        "base_chained_touch_ns": costs.chained_ns[0],
        "huge_chained_touch_ns": costs.chained_ns[1],
        "touched_bytes": costs.bytes,
    })
}
