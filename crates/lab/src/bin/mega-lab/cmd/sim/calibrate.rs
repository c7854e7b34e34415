//! `mega sim calibrate`: what things cost on this machine, for the simulator.

use std::io::Write;

use anyhow::{Context, Result};
use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;
use mega_lab::calibrate::fit::{fit, Fit};
use mega_lab::calibrate::{self, Calibration, Reach};
use mega_lab::measure::machine;
use mega_lab::report::folder::write_whole;
use mega_lab::report::scale::civil;
use mega_linux::proc::{cpuinfo, ProcRoot};
use mega_sim::cost::Costs;
use mega_sim::tlb::of_processor;
use serde_json::json;

use super::lines::Lines;
use crate::args::SimCalibrateArgs;
use mega_cli::text::wrapped;

/// Costs that are measured, and the samples that they follow from. All others are the default's.
const MEASURED: &[(&str, &[&str])] = &[
    ("fault_entry_ns", &["base fault", "huge fault"]),
    ("zero_base_ns", &["base fault", "huge fault"]),
    ("zero_huge_ns", &["base fault", "huge fault"]),
    ("zero_huge_bulk_ns", &["base fault", "huge fault"]),
    ("copy_base_ns", &["copy-on-write fault"]),
    (
        "collapse_overhead_ns",
        &["collapse, 512 pages mapped", "collapse, 10 pages mapped"],
    ),
    (
        "collapse_page_ns",
        &["collapse, 512 pages mapped", "collapse, 10 pages mapped"],
    ),
    ("split_ns", &["split"]),
    ("shootdown_ns", &["giving back one page, another CPU in this process"]),
    ("syscall_ns", &["system call"]),
    ("mmap_ns", &["mmap and munmap"]),
    ("unmap_page_ns", &["giving back a base page"]),
    ("unmap_huge_ns", &["giving back a huge page"]),
    ("clear_page_ns", &["clearing a base page's accessed bit"]),
    (
        "set_accessed_ns",
        &["touching a base page whose accessed bit was cleared"],
    ),
    ("set_accessed_believed_ns", &["the same on 4 MB in order"]),
    ("madvise_page_ns", &["clearing a base page's accessed bit"]),
    ("memory_hit_ns", &["load from 512 KB"]),
    ("memory_miss_ns", &["load from 512 MB, one after the other"]),
    ("memory_overlapped_ns", &["update in 512 MB, independent"]),
];

/// Measures, shows, keeps.
pub fn run(args: &SimCalibrateArgs) -> Result<()> {
    let mut lines = Lines::new(args.quiet);
    let found = measure(&mut lines)?;
    let fit = args.tlb.then(|| tlb(&mut lines)).transpose()?;
    let text = found.costs.to_json() + "\n";
    write_whole(&args.output, text.as_bytes()).context("cannot keep the costs")?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(&found, fit.as_ref()))?;
    } else {
        write!(out, "{}", as_text(&found))?;
        if let Some(fit) = &fit {
            writeln!(
                out,
                "TLB: --tlb {}\n  of random accesses over 8 MB to 4 GB {:.0} % off in the mean, {:.0} % at most",
                fit.text,
                100.0 * fit.error,
                100.0 * fit.worst
            )?;
        }
        writeln!(out, "kept in {}", args.output.display())?;
    }
    out.flush()?;
    Ok(())
}

/// What this machine takes, with its name and today's date.
pub(super) fn measure(lines: &mut Lines) -> Result<Calibration> {
    let here = machine::describe(&ProcRoot::default());
    let kind = if here.virtual_machine { ", virtual" } else { "" };
    let memory = Bytes(here.memory_bytes);
    let name = format!("{} × {}, {memory}{kind}", here.processors, here.processor);
    let [year, month, day, ..] = civil(super::now_unix_s());
    lines.now("measuring what faults, copies, promotions, calls and loads cost: fifteen seconds");
    let found = calibrate::run(&name, &here.kernel, &format!("{year:04}-{month:02}-{day:02}"));
    lines.clear();
    Ok(found?)
}

/// Memory that the pointer chase goes over.
const REACH_BYTES: u64 = 4 << 30;

/// This machine's TLB.
fn tlb(lines: &mut Lines) -> Result<Fit> {
    let rows = chase(lines)?;
    fitted(&rows, lines)
}

/// The pointer chase that shows this machine's TLB.
pub(super) fn chase(lines: &mut Lines) -> Result<Vec<Reach>> {
    lines.now("measuring random accesses over 16 KB to 4 GB: a minute");
    let rows = calibrate::reach(REACH_BYTES);
    lines.clear();
    Ok(rows?)
}

/// The TLB of this machine that explains the chase.
pub(super) fn fitted(rows: &[Reach], lines: &mut Lines) -> Result<Fit> {
    let cpu = cpuinfo::read(&ProcRoot::default()).context("cannot see which processor this is")?;
    let (vendor, family, model) = cpu
        .identity
        .clone()
        .context("/proc/cpuinfo does not say which processor this is")?;
    // Whose sizes are not known has those of the development machine.
    let name = of_processor(&vendor, family, model).unwrap_or("sapphire-rapids");
    lines.now("finding the TLB that explains them: a minute");
    let fit = fit(name, calibrate::mhz(), cpu.has("hypervisor"), rows);
    lines.clear();
    fit.map_err(anyhow::Error::msg)
}

/// The samples that a cost follows from, if they were all taken.
fn measured(found: &Calibration, cost: &str) -> Option<&'static [&'static str]> {
    let (_, samples) = MEASURED.iter().find(|(name, _)| *name == cost)?;
    let taken = |what: &&str| found.samples.iter().any(|sample| sample.what == *what);
    samples.iter().all(taken).then_some(*samples)
}

fn as_json(found: &Calibration, fit: Option<&Fit>) -> String {
    let (defaults, sources) = (Costs::default().values(), Costs::sources());
    let costs: Vec<_> = found
        .costs
        .values()
        .into_iter()
        .zip(defaults)
        .zip(sources)
        .map(|(((name, ns), (_, default_ns)), (_, source))| {
            json!({"name": name, "ns": ns, "default_ns": default_ns, "measured": measured(found, name), "default_source": source})
        })
        .collect();
    json!({
        "schema": 1, "kind": "calibration", "machine": found.costs.machine, "kernel": found.costs.kernel,
        "date": found.costs.date, "costs": costs, "samples": found.samples, "notes": found.notes,
        "tlb": fit.map(|fit| json!({"text": fit.text, "error": fit.error, "worst": fit.worst})),
    })
    .to_string()
}

fn as_text(found: &Calibration) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["cost", "here ns", "default ns", "from"]);
    let (defaults, mut sources) = (Costs::default().values(), Vec::new());
    for ((name, ns), (_, default_ns)) in found.costs.values().into_iter().zip(defaults) {
        let from = match measured(found, name) {
            Some([first, ..]) => (*first).to_string(),
            _ => "the default".to_string(),
        };
        table.add_row([
            name.trim_end_matches("_ns").to_string(),
            ns.to_string(),
            default_ns.to_string(),
            from,
        ]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("{}, Linux {}\n", found.costs.machine, found.costs.kernel);
    text += &table
        .lines()
        .map(|line| line.trim_end().to_string() + "\n")
        .collect::<String>();
    for sample in &found.samples {
        let (low, high) = (sample.p25, sample.p75);
        if high > 1.5 * low {
            sources.push(format!(
                "{}: from {low:.0} to {high:.0} in the middle half",
                sample.what
            ));
        }
    }
    if !sources.is_empty() {
        text += "Samples that lie far apart; was the machine quiet?\n";
    }
    for line in sources.iter().chain(&found.notes) {
        text += &wrapped("  ", line);
        text += "\n";
    }
    text += "Where each default is from: mega sim list --json\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_lab::calibrate::Sample;

    fn calibration(whats: &[&'static str]) -> Calibration {
        let sample = |what: &&'static str| Sample {
            what,
            samples: 9,
            p25: 10.0,
            median: 11.0,
            p75: 40.0,
        };
        Calibration {
            costs: Costs::default(),
            samples: whats.iter().map(sample).collect(),
            notes: vec!["one CPU only".into()],
        }
    }

    #[test]
    fn each_cost_is_shown_beside_the_default_with_what_it_follows_from() {
        let text = as_text(&calibration(&["base fault", "huge fault", "split"]));
        let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(row("fault_entry ").contains("1120") && row("fault_entry ").contains("base fault"));
        assert!(row("split ").ends_with("split") && row("migrate_page").ends_with("the default"));
        assert!(row("syscall").ends_with("the default"), "it was not measured here");
        assert!(
            text.contains("split: from 10 to 40") && text.contains("one CPU only"),
            "{text}"
        );
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= 80 || line.contains("Linux")),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&as_json(&calibration(&["split"]), None)).unwrap();
        let costs = json["costs"].as_array().unwrap();
        assert_eq!(costs.len(), Costs::default().values().len());
        let split = costs.iter().find(|cost| cost["name"] == "split_ns").unwrap();
        assert_eq!(split["measured"][0], "split");
        assert!(split["default_source"].as_str().unwrap().contains("docs/linux.md"));
    }

    #[test]
    fn what_is_said_to_be_measured_is_a_cost() {
        for (name, _) in MEASURED {
            assert!(
                Costs::default().values().iter().any(|(known, _)| known == name),
                "{name}"
            );
        }
    }
}
