//! `mega replay`: decide again from a full journal, and compare.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{bail, Context, Result};
use mega_core::journal::Line;
use mega_core::replay::{policy_of, replay};
use serde_json::json;

use crate::args::ReplayArgs;

/// A line of the journal is never longer.
const LINE_MAX: u64 = 64 << 10;

/// Replays the journal; fails when a decision differs.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let lines = read(args)?;
    let policy = lines.iter().find_map(|line| policy_of(&line.event));
    let mut policy = policy.context("the journal has no start line, so its policy is not known")??;
    let name = policy.name();
    let found = replay(lines.iter(), policy.as_mut())?;
    if found.scans == 0 {
        bail!("the journal holds no observations: write it with --journal-full");
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "policy": name, "scans": found.scans, "same": found.same, "missing": found.missing.len(), "extra": found.extra.len()})
        )?;
    } else {
        writeln!(
            out,
            "policy {name}: {} scans, {} decisions made again, {} not made, {} made anew",
            found.scans,
            found.same,
            found.missing.len(),
            found.extra.len()
        )?;
    }
    match found.missing.iter().chain(&found.extra).next() {
        None => Ok(()),
        Some(first) => bail!("decisions differ, the first: {first}"),
    }
}

fn read(args: &ReplayArgs) -> Result<Vec<Line>> {
    let name = args.journal.display();
    let file = File::open(&args.journal).with_context(|| format!("cannot read {name}"))?;
    let mut file = BufReader::new(file);
    let mut lines = Vec::new();
    loop {
        let at = || format!("{name}, line {}", lines.len() + 1);
        let mut line = Vec::new();
        // One more than allowed is enough to know; a file without an end of line must not fill memory.
        let read = (&mut file)
            .take(LINE_MAX + 1)
            .read_until(b'\n', &mut line)
            .with_context(at)?;
        if read == 0 {
            return Ok(lines);
        }
        if read as u64 > LINE_MAX {
            bail!("{}: too long to be a journal's", at());
        }
        let text = std::str::from_utf8(&line).with_context(at)?;
        let parsed = Line::parse(text.trim_end_matches(['\n', '\r'])).with_context(at)?;
        lines.push(parsed);
    }
}
