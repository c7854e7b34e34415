//! `mega replay`: decide again from a full journal, and compare.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use anyhow::{bail, Context, Result};
use mega_core::journal::{Event, Line};
use mega_core::replay::replay;
use serde_json::json;

use crate::args::ReplayArgs;
use crate::manage::policy_from;

/// A line of the journal is never longer.
const LINE_MAX: usize = 64 << 10;

/// Replays the journal; fails when a decision differs.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let lines = read(args)?;
    let start = lines.iter().find_map(|line| match &line.event {
        Event::Start { policy, params, .. } => Some((policy.clone(), params.clone())),
        _ => None,
    });
    let (name, params) = start.context("the journal has no start line, so its policy is not known")?;
    let sets: Vec<String> = params.split(',').filter(|set| !set.is_empty()).map(str::to_string).collect();
    let mut policy = policy_from(&name, &sets)?;
    let found = replay(lines.iter(), policy.as_mut())?;
    if found.scans == 0 {
        bail!("the journal holds no observations: write it with --journal-full");
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "policy": name, "scans": found.scans, "same": found.same, "different": found.missing.len()})
        )?;
    } else {
        writeln!(out, "policy {name}: {} scans, {} decisions made again, {} not", found.scans, found.same, found.missing.len())?;
    }
    match found.missing.first() {
        None => Ok(()),
        Some(first) => bail!("{} decisions differ, the first: {first}", found.missing.len()),
    }
}

fn read(args: &ReplayArgs) -> Result<Vec<Line>> {
    let name = args.journal.display();
    let file = File::open(&args.journal).with_context(|| format!("cannot read {name}"))?;
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| format!("{name}, line {}", number + 1))?;
        if line.len() > LINE_MAX {
            bail!("{name}, line {}: too long to be a journal's", number + 1);
        }
        lines.push(Line::parse(&line).with_context(|| format!("{name}, line {}", number + 1))?);
    }
    Ok(lines)
}
