//! `mega sim NAME…`: the papers' tables and figures in simulation, and which of their comparisons come out the same.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use mega_lab::report::folder::{self, Folder};
use mega_lab::result::Record;
use mega_lab::simulated::magnitudes::{magnitudes, table};
use mega_lab::simulated::{self, Experiment, Progress};

use super::lines::Lines;
use crate::args::SimPaperArgs;
use crate::bench::command_line;
use mega_cli::exit::Failure;

/// The comparisons of all experiments of a run, beside their folders.
const ORDERINGS: &str = "orderings.md";

/// Runs what was named.
pub fn run(args: &SimPaperArgs) -> Result<()> {
    let wanted = wanted(&args.names)?;
    let mut records = Vec::with_capacity(wanted.len());
    for experiment in &wanted {
        records.push(match &args.kept {
            Some(folder) => kept(experiment, folder, args.json)?,
            None => one(experiment, args)?,
        });
    }
    let orderings = simulated::count(&records);
    if args.kept.is_none() {
        let text = format!("# Comparisons reproduced\n\n{}\n", orderings.text());
        folder::write_whole(&args.output.join(ORDERINGS), text.as_bytes())?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let mut counts = orderings.by_paper();
        counts.push(orderings.of(&["MEGA", "LRBHPS"]));
        let magnitudes = magnitudes(&records);
        let all = serde_json::json!({
            "schema": 1, "kind": "simulated", "records": records, "orderings": orderings, "counts": counts,
            "magnitudes": magnitudes,
        });
        writeln!(out, "{all}")?;
    } else {
        writeln!(out, "{}\n{}", orderings.text(), table(&magnitudes(&records)))?;
    }
    out.flush()?;
    Ok(())
}

fn wanted(names: &[String]) -> Result<Vec<&'static Experiment>> {
    if names.iter().any(|name| name == "all") {
        return Ok(simulated::all().collect());
    }
    let find = |name: &String| {
        simulated::find(name).ok_or_else(|| {
            let known: Vec<&str> = simulated::all().map(|e| e.name).collect();
            Failure::usage(format!(
                "no experiment '{name}' in simulation; there are all, {}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

/// The newest result of an experiment below this folder. The table is shown as it would have been.
fn kept(experiment: &Experiment, parent: &Path, json: bool) -> Result<Record> {
    let small = parent.join(format!("{}.json", experiment.name));
    if small.is_file() {
        return shown(folder::read(&small)?, json);
    }
    let newest = folder::newest(parent, &folder_name(experiment)).with_context(|| parent.display().to_string())?;
    let newest = newest.with_context(|| format!("{}: no result of {}", parent.display(), experiment.name))?;
    shown(folder::read(&newest)?, json)
}

/// The record, after its table.
fn shown(record: Record, json: bool) -> Result<Record> {
    if !json {
        writeln!(std::io::stdout().lock(), "{}", simulated::side_by_side(&record)).context("cannot write the table")?;
    }
    Ok(record)
}

fn folder_name(experiment: &Experiment) -> String {
    format!("sim-{}", experiment.name)
}

/// Keeps a small record, with the command that makes it again.
fn keep(experiment: &Experiment, record: &Record, folder: &Path, args: &SimPaperArgs) -> Result<()> {
    let mut small = simulated::kept(record);
    small.settings.command = format!(
        "mega sim {} --scale {} --seed {}",
        experiment.name, args.scale, args.seed
    );
    folder::keep(folder, experiment.name, &small)?;
    Ok(())
}

/// Runs one, shows its table beside the paper's, and keeps its record and report.
fn one(experiment: &Experiment, args: &SimPaperArgs) -> Result<Record> {
    let began_unix_s = super::now_unix_s();
    let began = Instant::now();
    let threads = args.threads();
    let lines = Mutex::new(Lines::new(args.quiet));
    let say = |text: &str| {
        if let Ok(mut lines) = lines.lock() {
            lines.now(text);
        }
    };
    let tell = |progress: &Progress<'_>| match progress {
        Progress::Begins {
            case,
            system,
            number,
            of,
        } => say(&format!("{} [{}/{of}] {case}, {system}", experiment.name, number + 1)),
        Progress::Ended { .. } => {}
    };
    let mut record = experiment.run(args.scale, args.seed, threads, &tell);
    record.settings.command = command_line();
    record.settings.commit = super::commit();
    record.settings.began_unix_s = began_unix_s;
    record.settings.seconds = began.elapsed().as_secs_f64();
    let folder = Folder::create(&args.output, &folder_name(experiment), began_unix_s)?;
    folder.save(&record)?;
    let report = folder.save_report(&record)?;
    let table = simulated::side_by_side(&record);
    folder.save_table(&table)?;
    if let Some(folder) = &args.keep {
        keep(experiment, &record, folder, args)?;
    }
    if let Ok(lines) = lines.lock() {
        lines.clear();
        lines.say(&format!(
            "{}: {:.0} s; report: {}",
            experiment.name,
            record.settings.seconds,
            report.display()
        ));
    }
    if !args.json {
        writeln!(std::io::stdout().lock(), "{table}").context("cannot write the table")?;
    }
    Ok(record)
}
