//! `mega sim sweep`: every combination of a sweep's lists.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, Result};
use mega_lab::report::folder::Folder;
use mega_lab::report::scale::duration_text;
use mega_lab::simulated::parallel;
use mega_lab::simulated::sweep::{self, Done, Options, Progress, Sweep};
use serde_json::json;

use super::input;
use super::lines::Lines;
use crate::args::SimSweepArgs;
use crate::bench::{command_line, stop};
use mega_cli::exit::Failure;

/// Runs all points.
pub fn run(args: &SimSweepArgs) -> Result<()> {
    let text = input::read(&args.sweep)?;
    let name = args.sweep.display();
    let sweep = Sweep::from_json(&text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    if args.dry_run {
        return list(&sweep, args);
    }
    let options = Options {
        folder: folder(args)?,
        threads: args.threads.unwrap_or_else(parallel::all_threads),
        command: command_line(),
    };
    let stop = stop::flag()?;
    let (began_unix_s, began) = (super::now_unix_s(), Instant::now());
    let mut lines = Lines::new(args.quiet);
    lines.say(&format!(
        "{} points, {} at once; results in {}",
        sweep.len(),
        options.threads,
        options.folder.display()
    ));
    let done = sweep::run(&sweep, &options, &stop, |progress| tell(&mut lines, progress));
    lines.clear();
    let mut done = done?;
    if let Some(record) = &mut done.record {
        record.settings.began_unix_s = began_unix_s;
        record.settings.seconds = began.elapsed().as_secs_f64();
    }
    keep(done, &options.folder, args.json)
}

/// Keeps record and report, and says what was done; fails where that is not all.
pub fn keep(mut done: Done, folder: &Path, json: bool) -> Result<()> {
    let mut report = None;
    if let Some(record) = &mut done.record {
        record.settings.commit = super::commit();
        let folder = Folder::at(folder);
        folder.save(record)?;
        report = Some(folder.save_report(record)?);
    }
    show(&done, report.as_deref(), json)?;
    finish(&done)
}

/// The folder that was asked for, or one that is named for the file.
fn folder(args: &SimSweepArgs) -> Result<PathBuf> {
    if let Some(folder) = &args.output {
        return Ok(folder.clone());
    }
    let stem = args.sweep.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match stem.as_deref() {
        None | Some("-") => Err(Failure::usage("a sweep from standard input needs --output FOLDER")),
        Some(stem) => Ok(Path::new("mega-results").join(format!("sweep-{stem}"))),
    }
}

fn list(sweep: &Sweep, args: &SimSweepArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let points: Vec<_> = (0..sweep.len())
            .map(|index| json!({"point": index, "label": sweep.label(sweep.point(index))}))
            .collect();
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "kind": "sweep-points", "of": sweep.len(), "points": points})
        )?;
        return Ok(());
    }
    for index in 0..sweep.len() {
        writeln!(out, "{index}: {}", sweep.label(sweep.point(index)))?;
    }
    Ok(())
}

/// Shows progress.
pub fn tell(lines: &mut Lines, progress: &Progress<'_>) {
    match progress {
        Progress::Begins { label } => lines.now(label),
        Progress::Ended {
            done,
            of,
            label,
            failed,
            left,
        } => {
            if let Some(why) = failed {
                lines.say(&format!("{label}: FAILED: {why}"));
            }
            let left = duration_text(left.as_secs_f64());
            lines.now(&format!("{done} of {of} points, about {left} left: {label}"));
        }
    }
}

fn show(done: &Done, report: Option<&Path>, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let broken: Vec<_> = done.broken.iter().map(|(why, _)| why).collect();
        let summary = json!({
            "schema": 1, "kind": "sweep", "done": done.done, "of": done.of, "stopped": done.stopped, "broken": broken,
            "csv": done.csv, "report": report,
        });
        writeln!(out, "{summary}")?;
    } else {
        writeln!(out, "{} of {} points: {}", done.done, done.of, done.csv.display())?;
        if let Some(report) = report {
            writeln!(out, "report: {}", report.display())?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Whether it is all done.
fn finish(done: &Done) -> Result<()> {
    unbroken(&done.broken)?;
    if done.stopped {
        bail!("stopped after {} of {} points", done.done, done.of);
    }
    Ok(())
}

/// Fails where the simulator itself failed.
pub fn unbroken(broken: &[(String, PathBuf)]) -> Result<()> {
    if let Some((why, path)) = broken.first() {
        bail!(
            "the simulator failed at {} points, first: {why}; reproduce with `mega sim run {}`",
            broken.len(),
            path.display()
        );
    }
    Ok(())
}
