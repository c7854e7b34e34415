//! `mega replay`: decide again from what was recorded, and compare.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use anyhow::{bail, Context, Result};
use comfy_table::{presets, CellAlignment, Table};
use mega_core::journal::{decide, Line};
use mega_core::policy::Policy;
use mega_core::replay::{contrast, policy_of, replay, Contrast, Replayed, Tally};
use mega_trace::{Reader, Scans};
use serde_json::{json, Value};

use crate::args::ReplayArgs;
use crate::manage::policy_from;
use mega_cli::exit::Failure;

/// A line of the journal is never longer.
const LINE_MAX: u64 = 64 << 10;

/// Replays a journal, which fails when a decision differs; or lets another policy decide on what a journal or a trace has seen.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let other = args
        .policy
        .as_ref()
        .map(|name| policy_from(name, &args.set))
        .transpose()?;
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot read {name}"))?;
    let mut file = BufReader::new(file);
    // A pipe can be read once only: the first bytes stay in the buffer. What cannot be read says so when it is.
    let is_trace = file.fill_buf().is_ok_and(|bytes| bytes.starts_with(b"MEGATRACE"));
    match (is_trace, other) {
        (true, Some(policy)) => trace(args, file, policy),
        (true, None) => {
            let error = format!("{name} is a trace, which names no policy: say which is to decide (--policy NAME)");
            Err(Failure::usage(error))
        }
        (false, Some(policy)) => another(args, file, policy),
        (false, None) => again(args, file),
    }
}

/// The journal's lines and its policy.
fn journal(args: &ReplayArgs, file: BufReader<File>) -> Result<(Vec<Line>, Box<dyn Policy>)> {
    let lines = read(&args.file, file)?;
    let policy = lines.iter().find_map(|line| policy_of(&line.event));
    let policy = policy.context("the journal has no start line, so its policy is not known")??;
    Ok((lines, policy))
}

const NOT_FULL: &str = "the journal holds no observations: write it with --journal-full";

/// The journal's own policy and settings, in the same loop.
fn again(args: &ReplayArgs, file: BufReader<File>) -> Result<()> {
    let (lines, mut policy) = journal(args, file)?;
    let name = policy.name();
    let found = replay(&lines, policy.as_mut())?;
    if found.scans == 0 {
        bail!(NOT_FULL);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", again_json(name, &found))?;
    } else {
        write!(out, "{}", again_text(name, &found))?;
    }
    let decisions = &found.decisions;
    match decisions.missing.iter().chain(&decisions.extra).next() {
        None if decisions.moved == 0 => Ok(()),
        None => bail!("decisions come in another order"),
        Some(first) => bail!("decisions differ, the first: {first}"),
    }
}

fn sorts(found: &Replayed) -> [(&'static str, &Tally); 4] {
    [
        ("decisions", &found.decisions),
        ("outcomes", &found.outcomes),
        ("deferrals", &found.deferrals),
        ("rest", &found.rest),
    ]
}

fn again_json(policy: &str, found: &Replayed) -> Value {
    let mut object = json!({"schema": 1, "kind": "replay", "policy": policy, "scans": found.scans});
    for (name, tally) in sorts(found) {
        object[name] = json!({
            "same": tally.same, "moved": tally.moved, "missing": tally.missing.len(), "extra": tally.extra.len()
        });
    }
    object
}

fn again_text(policy: &str, found: &Replayed) -> String {
    let mut table = new_table(["lines", "the same", "moved", "only live", "only again"]);
    for (name, tally) in sorts(found) {
        let numbers = [tally.same, tally.moved, tally.missing.len(), tally.extra.len()];
        let mut row = vec![name.to_string()];
        row.extend(numbers.map(|n| n.to_string()));
        table.add_row(row);
    }
    format!(
        "policy {policy}: {} scans decided again\n{}",
        found.scans,
        lines_of(&table)
    )
}

/// Another policy on what was seen then.
fn another(args: &ReplayArgs, file: BufReader<File>, mut policy: Box<dyn Policy>) -> Result<()> {
    let (lines, live) = journal(args, file)?;
    let scans = contrast(&lines, policy.as_mut())?;
    if scans.is_empty() {
        bail!(NOT_FULL);
    }
    let (live, other) = (live.name(), policy.name());
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", another_json(live, other, &scans))?;
    } else {
        write!(out, "{}", another_text(live, other, &scans))?;
    }
    Ok(())
}

fn sums(scans: &[Contrast]) -> [usize; 3] {
    let count = |of: fn(&Contrast) -> usize| scans.iter().map(of).sum();
    [
        count(|s| s.both),
        count(|s| s.only_live.len()),
        count(|s| s.only_other.len()),
    ]
}

fn another_json(live: &str, other: &str, scans: &[Contrast]) -> Value {
    let [both, only_live, only_other] = sums(scans);
    let list: Vec<_> = scans
        .iter()
        .map(|s| json!({"at_ns": s.at.0, "both": s.both, "only_live": s.only_live, "only_other": s.only_other}))
        .collect();
    json!({
        "schema": 1, "kind": "contrast", "live": live, "policy": other,
        "both": both, "only_live": only_live, "only_other": only_other, "scans": list,
    })
}

/// Scans in which nothing was decided by either are left out.
fn another_text(live: &str, other: &str, scans: &[Contrast]) -> String {
    let mut table = new_table(["scan at (s)", "both", "only live", "only now"]);
    let row = |name: String, numbers: [usize; 3]| [name].into_iter().chain(numbers.map(|n| n.to_string()));
    for scan in scans {
        let numbers = sums(std::slice::from_ref(scan));
        if numbers != [0; 3] {
            table.add_row(row(scan.at.to_string(), numbers));
        }
    }
    table.add_row(row("all".to_string(), sums(scans)));
    format!(
        "policy {other} on what was seen under {live}: {} scans\n{}",
        scans.len(),
        lines_of(&table)
    )
}

fn new_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn lines_of(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

/// A policy on the scans of a trace: its decisions, as lines of a journal.
fn trace(args: &ReplayArgs, file: BufReader<File>, mut policy: Box<dyn Policy>) -> Result<()> {
    let name = || args.file.display().to_string();
    let mut scans = Scans::new(Reader::new(file).with_context(name)?);
    let mut out = std::io::stdout().lock();
    let (mut count, mut decisions) = (0u64, 0u64);
    let mut list = Vec::new();
    while let Some(seen) = scans.next_scan().with_context(name)? {
        let decided = policy.decide(&seen).actions;
        count += 1;
        decisions += decided.len() as u64;
        let at = seen.at;
        let lines = decided.iter().map(|action| Line {
            at,
            event: decide(action),
        });
        if args.json {
            list.push(json!({"at_ns": at.0, "decisions": lines.map(|line| line.to_text()).collect::<Vec<_>>()}));
        } else {
            for line in lines {
                writeln!(out, "{}", line.to_text())?;
            }
        }
    }
    if count == 0 {
        bail!("{} holds no scans, on which a policy could decide", name());
    }
    if args.json {
        let all = json!({
            "schema": 1, "kind": "decisions", "policy": policy.name(), "decisions": decisions, "scans": list
        });
        writeln!(out, "{all}")?;
    } else {
        writeln!(out, "policy {}: {decisions} decisions in {count} scans", policy.name())?;
    }
    Ok(())
}

fn read(path: &Path, mut file: BufReader<File>) -> Result<Vec<Line>> {
    let name = path.display();
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
        // Half a number is a number, too: only the end of the line says that the line is whole.
        let Some(line) = line.strip_suffix(b"\n") else {
            bail!("{}: cut short, it has no end of line", at());
        };
        let text = std::str::from_utf8(line).with_context(at)?;
        let parsed = Line::parse(text).with_context(at)?;
        lines.push(parsed);
    }
}
