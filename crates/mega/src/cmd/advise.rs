//! `mega advise`: what huge pages are worth to a program.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use mega_cli::exit::tell;
use mega_cli::signals::{stop_on_signals, stopped};
use mega_linux::inspect::costs::{self, Costs};
use mega_linux::proc::{meminfo, ProcRoot};
use mega_linux::process::family::Family;
use mega_linux::process::Process;
use mega_linux::scan::Scanner;

use crate::advise::compare::{self, huge_pages, Compared, How};
use crate::advise::report::{self, Report};
use crate::advise::settings::settings;
use crate::advise::verdict::{answer, Evidence};
use crate::advise::watch::{watch, Seen};
use crate::agent::start;
use crate::args::AdviseArgs;
use crate::manage::scanner_for;

/// How long a running process is watched.
const WATCHED: Duration = Duration::from_secs(10);
/// Memory that this machine's costs are measured with, and the part of the available memory that it may be.
const COSTS_BYTES: u64 = 256 << 20;
const COSTS_PART: u64 = 16;

/// Watches, or runs; then reports.
pub fn run(args: &AdviseArgs) -> Result<()> {
    let stop = stop_on_signals()?;
    let (mut scanner, refused) = scanner_for(args.scanner)?;
    for reason in refused {
        tell(&format!("mega: {reason}; using {}", scanner.name()));
    }
    let mut notes = Vec::new();
    let began = Instant::now();
    let (of, evidence) = match args.pid {
        Some(pid) => process(pid, args.time.unwrap_or(WATCHED), scanner.as_mut(), &stop)?,
        None => command(args, scanner.as_mut(), &stop, &mut notes)?,
    };
    let watched = began.elapsed();
    let mut evidence = evidence;
    evidence.costs = measure_costs(&mut notes);
    let answer = answer(&evidence);
    let largest = evidence.processes.iter().max_by_key(|seen| seen.layout.resident_bytes);
    let command = args.command.first().and_then(|name| name.to_str());
    let command = command.and_then(|name| name.rsplit('/').next());
    let settings = largest.map_or_else(Vec::new, |seen| {
        settings(answer.verdict, &seen.name, command, &seen.files)
    });
    let report = Report {
        of: &of,
        watched,
        scanner: scanner.name(),
        evidence: &evidence,
        answer: &answer,
        settings: &settings,
        notes: &notes,
    };
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", report::to_json(&report))?,
        false => write!(out, "{}", report::text(&report))?,
    }
    Ok(())
}

fn measure_costs(notes: &mut Vec<String>) -> Option<Costs> {
    let available = meminfo::read(&ProcRoot::default()).ok()?.available_bytes.unwrap_or(0);
    match costs::measure(COSTS_BYTES.min(available / COSTS_PART)) {
        Ok(Some(costs)) => Some(costs),
        Ok(None) => {
            notes.push(
                "this machine gives no huge page here: what one costs and saves could not be measured".to_owned(),
            );
            None
        }
        Err(errno) => {
            notes.push(format!(
                "what huge pages cost and save here could not be measured: {errno}"
            ));
            None
        }
    }
}

/// A running process.
fn process(pid: u32, time: Duration, scanner: &mut dyn Scanner, stop: &OwnedFd) -> Result<(String, Evidence)> {
    let root = ProcRoot::default();
    let process = Process::open(&root, pid)?;
    let name = process.name(&root);
    let mut family = Family::of([pid]);
    let is_over = |elapsed: Duration| elapsed >= time || !process.is_alive();
    let (processes, _) = watch(&root, Some(scanner), &mut family, stop, is_over);
    let only = processes.iter().find(|seen| seen.pid == pid);
    if let Some(why) = only
        .filter(|seen| seen.layout.resident_bytes == 0)
        .and_then(|seen| seen.unseen.as_ref())
    {
        anyhow::bail!("process {pid} ({name}): {why}");
    }
    let cpu = processes.iter().map(|seen| seen.cpu).sum();
    Ok((format!("{pid} {name}"), evidence(processes, cpu)))
}

fn evidence(processes: Vec<Seen>, cpu: Duration) -> Evidence {
    Evidence {
        processes,
        cpu,
        costs: None,
        compared: None,
    }
}

/// A command: once watched, on base pages; then as often as asked for in turns.
fn command(
    args: &AdviseArgs,
    scanner: &mut dyn Scanner,
    stop: &OwnedFd,
    notes: &mut Vec<String>,
) -> Result<(String, Evidence)> {
    let with = |on_base_pages, environment| How {
        command: &args.command,
        on_base_pages,
        environment,
        with_input: args.compare.is_none(),
        most: args.time,
    };
    let (first, seen) = compare::run(with(true, start::without()), Some(scanner), stop)?;
    if first.status != Some(0) && args.time.is_none() {
        notes.push(match first.status {
            Some(status) => format!("the command ended with status {status}"),
            None => "the command was ended by a signal".to_owned(),
        });
    }
    let text: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let mut evidence = evidence(seen, Duration::from_secs_f64(first.cpu_s));
    let rounds = args.compare.unwrap_or(0);
    match huge_pages(&args.command) {
        _ if rounds == 0 => {}
        Err(error) => notes.push(format!("no comparison: {error:#}")),
        Ok((by, environment)) => {
            let mut compared = Compared {
                by,
                base: Vec::new(),
                huge: Vec::new(),
            };
            // Base, huge, huge, base: what drifts is in both.
            for round in 0..rounds {
                for is_huge in [round % 2 == 1, round % 2 == 0] {
                    if stopped(stop, Duration::ZERO) {
                        break;
                    }
                    let how = match is_huge {
                        true => with(false, environment.clone()),
                        false => with(true, start::without()),
                    };
                    let (run, _) = compare::run(how, None, stop)?;
                    match is_huge {
                        true => compared.huge.push(run),
                        false => compared.base.push(run),
                    }
                }
            }
            let failed = |runs: &[compare::Run]| runs.iter().any(|run| run.status != first.status);
            if failed(&compared.base) || failed(&compared.huge) {
                notes.push("no comparison: not all runs ended with the same status".to_owned());
            } else {
                evidence.compared = Some(compared);
            }
        }
    }
    Ok((text.join(" "), evidence))
}
