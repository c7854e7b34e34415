//! `mega sim`: the simulator from the command line.

mod accuracy;
mod calibrate;
mod input;
mod lines;
mod list;
mod paper;
mod run;
mod shard;
mod sweep;

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use mega_lab::report::terminal;
use mega_lab::result::{Outcome, Record};

use crate::args::{SimArgs, SimCommand, SimPaperArgs};
use mega_cli::exit::Failure;

/// Does what was asked for.
pub fn run(args: &SimArgs) -> Result<()> {
    match &args.command {
        SimCommand::List(args) => list::run(args),
        SimCommand::Run(args) => run::run(args),
        SimCommand::Sweep(args) => sweep::run(args),
        SimCommand::Shard(args) => shard::run(args),
        SimCommand::Merge(args) => shard::merge(args),
        SimCommand::Calibrate(args) => calibrate::run(args),
        SimCommand::Accuracy(args) => accuracy::run(args),
        SimCommand::Paper(words) => match SimPaperArgs::of_words(words) {
            Ok(args) => paper::run(&args),
            // Help is no error.
            Err(error) if !error.use_stderr() => Ok(error.print()?),
            Err(error) => Err(Failure::usage(
                error.to_string().trim_start_matches("error: ").trim_end(),
            )),
        },
    }
}

/// Seconds since 1970.
fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Commit that this program was built from, where that is known.
fn commit() -> Option<String> {
    option_env!("MEGA_COMMIT").map(str::to_string)
}

/// Shows a record as it was asked for, and says where its report is. Fails if no run completed.
fn present(record: &Record, report: &Path, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(record)?)?;
    } else {
        write!(out, "{}", terminal::text(record))?;
        writeln!(out, "report: {}", report.display())?;
    }
    out.flush()?;
    let failed = |run: &mega_lab::result::Run| match &run.outcome {
        Outcome::Done => None,
        Outcome::Failed(why) | Outcome::Skipped(why) => Some(why.clone()),
    };
    let nothing = record.runs.iter().all(|run| run.outcome != Outcome::Done);
    if let (true, Some(why)) = (nothing, record.runs.iter().find_map(failed)) {
        anyhow::bail!("no run completed; the first failure: {why}");
    }
    Ok(())
}
