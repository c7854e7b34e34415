//! `mega bench scale`: what looking costs as there is more to look at.

use std::io::Write;

use anyhow::Result;
use mega_lab::scale::whole::{self, Whole};
use mega_lab::scale::{measure, subjects, Cost, Subject};
use serde_json::json;

use crate::args::BenchOptions;
use crate::bench::stop;

/// Measures each subject and prints a line for it.
pub fn run(args: &BenchOptions) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut costs = Vec::new();
    if !args.json {
        writeln!(
            out,
            "{:<26} {:>6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9}",
            "", "seen", "first look", "look", "worst", "processor", "in 5 s", "memory", "stop"
        )?;
    }
    for subject in subjects(args.scale.unwrap_or(1.0)) {
        if stop::asked() {
            break;
        }
        let cost = measure(subject)?;
        if !args.json {
            line(&mut out, &cost)?;
        }
        costs.push(cost);
    }
    let mut loops = Vec::new();
    for policy in ["auto", "mega"] {
        if stop::asked() {
            break;
        }
        let whole = whole::measure(policy, args.scale.unwrap_or(1.0))?;
        if !args.json {
            line_of_loop(&mut out, &whole)?;
        }
        loops.push(whole);
    }
    if args.json {
        let value = json!({"schema": 1, "kind": "scale", "costs": costs, "loops": loops});
        writeln!(out, "{value}")?;
    }
    Ok(())
}

fn line_of_loop(out: &mut impl Write, whole: &Whole) -> std::io::Result<()> {
    writeln!(
        out,
        "{}, {} processes, {} GB, simulated: {} scans, {} promotions; first scan {:.1} ms, settled {:.1} ms, looking {:.1} ms of it, {:.1} MB",
        whole.policy,
        whole.processes,
        whole.bytes >> 30,
        whole.scans,
        whole.promoted,
        whole.first_ns as f64 / 1e6,
        whole.scan_ns as f64 / 1e6,
        whole.look_ns as f64 / 1e6,
        whole.memory_bytes as f64 / 1e6,
    )
}

fn line(out: &mut impl Write, cost: &Cost) -> std::io::Result<()> {
    let what = match cost.subject {
        Subject::Processes(count) => format!("{count} processes"),
        Subject::ProcessesByProc(count) => format!("{count} processes, by /proc"),
        Subject::ChildrenAMinute(count) => format!("{count} children a minute"),
        Subject::Mappings(count) => format!("{count} mappings"),
        Subject::SparseBytes(bytes) => format!("{} GB, a page a GB", bytes >> 30),
        Subject::ResidentBytes(bytes) => format!("{} MB resident", bytes >> 20),
    };
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    writeln!(
        out,
        "{what:<26} {:>6} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9}",
        cost.seen,
        ms(cost.first_ns),
        ms(cost.look_ns),
        ms(cost.worst_ns),
        ms(cost.look_cpu_ns),
        format!("{:.2} %", cost.look_cpu_ns as f64 / 5e7),
        format!("{:.1} MB", cost.memory_bytes as f64 / 1e6),
        ms(cost.stop_ns),
    )
}
