//! `mega sim shard` and `mega sim merge`: a sweep in parts, on any number of machines.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{bail, Result};
use mega_cli::exit::{tell, Failure};
use mega_lab::simulated::parallel;
use mega_lab::simulated::sweep::{self, shard, Options, Points, Sweep};

use super::input;
use super::lines::Lines;
use super::sweep::{keep, tell as progress, unbroken};
use crate::args::{SimMergeArgs, SimShardArgs};
use crate::bench::{command_line, stop};

/// Runs a part, unless its file is there.
pub fn run(args: &SimShardArgs) -> Result<()> {
    let text = input::read(&args.sweep)?;
    let name = args.sweep.display();
    let sweep = Sweep::from_json(&text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    let said = |what: &str| {
        if !args.quiet {
            tell(&format!("mega sim: {what}"));
        }
    };
    if shard::is_done(&args.output, &text, args.shard) {
        said(&format!("{}: done already", args.output.display()));
        return Ok(());
    }
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let options = Options {
        folder: folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf),
        threads: args.threads.unwrap_or_else(parallel::all_threads),
        command: command_line(),
    };
    let stop = stop::flag()?;
    let mut lines = Lines::new(args.quiet);
    let which = args.shard.points(&sweep);
    let wanted = which.clone().count();
    let points = sweep::points(&sweep, which, &options, &stop, |now| progress(&mut lines, now));
    lines.clear();
    let Points { rows, broken } = points?;
    unbroken(&broken)?;
    if rows.len() < wanted && stop.load(Relaxed) {
        bail!("stopped after {} of {wanted} points; nothing is kept", rows.len());
    }
    shard::save(&args.output, &text, args.shard, &rows)?;
    said(&format!("{}: {} points", args.output.display(), rows.len()));
    Ok(())
}

/// Puts all parts together.
pub fn merge(args: &SimMergeArgs) -> Result<()> {
    let (sweep, rows) = shard::merge(args.files.iter().map(PathBuf::as_path))?;
    let options = Options {
        folder: args.output.clone(),
        threads: 1,
        command: command_line(),
    };
    let points = Points {
        rows,
        broken: Vec::new(),
    };
    let done = sweep::all_of(&sweep, points, &options)?;
    keep(done, &options.folder, args.json)
}
