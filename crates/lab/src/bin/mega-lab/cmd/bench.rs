//! `mega bench`: experiments by name, with a report.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_lab::experiment::{self, family, Experiment};
use mega_lab::report::comparison::Printed;
use mega_lab::report::{compare, folder};
use serde_json::json;

use crate::args::{BenchArgs, BenchOptions};
use crate::bench::{self, finish, memory_bytes, minutes, Asked};
use mega_cli::exit::Failure;

/// Runs what was asked for.
pub fn run(args: &BenchArgs) -> Result<()> {
    let (name, rest) = args
        .what
        .split_first()
        .ok_or_else(|| Failure::usage("which experiment? `mega bench list` names them"))?;
    let no_command = || match args.command.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "'{name}' takes no command; `mega bench run -- CMD` measures one"
        ))),
    };
    let has_family_options = args.list || !args.only.is_empty() || !args.table.is_empty();
    if has_family_options && family::find(name).is_none() {
        return Err(Failure::usage(format!(
            "'{name}' takes no --list, --only and --table: they are for auto and programs; `mega bench list` names and times all experiments"
        )));
    }
    match name.as_str() {
        "list" => {
            no_command()?;
            list(args)
        }
        "compare" => {
            no_command()?;
            compare_two(rest, args)
        }
        "scale" => {
            no_command()?;
            super::scale::run(&args.common)
        }
        "soak" => {
            no_command()?;
            super::soak::run(&args.common)
        }
        "all" => {
            no_command()?;
            all(args)
        }
        "run" => {
            if args.command.is_empty() {
                return Err(Failure::usage("mega bench run -- CMD ARGS: which command?"));
            }
            one(&bench::command(args)?, &args.common, rounds(args)).map(drop)
        }
        name if family::find(name).is_some() => {
            no_command()?;
            family::find(name).map_or(Ok(()), |family| super::family::run(family, args))
        }
        _ => {
            no_command()?;
            let asked: Vec<Asked> = args
                .what
                .iter()
                .map(|name| bench::named(name, &args.common)?.adjusted(args))
                .collect::<Result<_>>()?;
            several(&asked, args)
        }
    }
}

fn rounds(args: &BenchArgs) -> usize {
    match args.record {
        Some(_) => 1,
        None => args.common.rounds.unwrap_or(3),
    }
}

fn list(args: &BenchArgs) -> Result<()> {
    let memory_bytes = memory_bytes()?;
    let mut out = std::io::stdout().lock();
    if args.common.json {
        let all: Vec<_> = experiment::all()
            .map(|e| describe(e, memory_bytes, rounds(args)))
            .collect();
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "kind": "experiments", "experiments": all})
        )?;
        return Ok(());
    }
    for e in experiment::all() {
        let about = describe(e, memory_bytes, rounds(args));
        writeln!(out, "{}: {}", e.name, e.title)?;
        if let Some(source) = e.source {
            writeln!(out, "    {source}")?;
        }
        writeln!(
            out,
            "    about {}, up to {:.1} GB at scale {}; variants {}",
            minutes(about["seconds"].as_f64().unwrap_or(0.0)),
            about["memory_bytes"].as_f64().unwrap_or(0.0) / 1e9,
            about["scale"],
            about["variants"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        )?;
        if let Some(elsewhere) = e.elsewhere {
            writeln!(out, "    not here: {elsewhere}")?;
        }
        for why in about["missing"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str())
        {
            writeln!(out, "    {why}")?;
        }
    }
    Ok(())
}

fn describe(e: &Experiment, memory_bytes: u64, rounds: usize) -> serde_json::Value {
    let scale = e.fitting_scale(memory_bytes);
    let plan = e.setup(scale).plan;
    let needs = plan.cases.iter().map(|case| case.program.needs().memory_bytes).max();
    let mut missing: Vec<String> = plan
        .cases
        .iter()
        .filter_map(|case| Some(case.program.ready().err()?.to_string()))
        .collect();
    missing.dedup();
    json!({
        "name": e.name, "title": e.title, "question": e.question, "source": e.source, "elsewhere": e.elsewhere,
        "scale": scale, "memory_bytes": needs, "seconds": plan.seconds(rounds),
        "variants": plan.variants.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "cases": plan.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(),
        "missing": missing,
    })
}

fn compare_two(paths: &[String], args: &BenchArgs) -> Result<()> {
    let [a, b] = paths else {
        return Err(Failure::usage("mega bench compare A B: two results folders"));
    };
    let read = |path: &String| folder::read(Path::new(path)).context("cannot compare");
    let agreement = compare::compare(&read(a)?, &read(b)?)?;
    let mut out = std::io::stdout().lock();
    if args.common.json {
        writeln!(out, "{}", serde_json::to_string(&agreement)?)?;
    } else {
        write!(out, "{}", agreement.text())?;
    }
    Ok(())
}

/// Runs what fits into the time: the papers' experiments first, one round less rather than none.
fn all(args: &BenchArgs) -> Result<()> {
    let memory_bytes = memory_bytes()?;
    let budget = args.budget.unwrap_or(Duration::from_secs(20 * 60));
    let end = Instant::now() + budget;
    let mut failed = Vec::new();
    let mut left_out = Vec::new();
    for e in experiment::all() {
        let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
        let plan = e
            .setup(args.common.scale.unwrap_or_else(|| e.fitting_scale(memory_bytes)))
            .plan;
        if plan.seconds(rounds(args)) > left || bench::stop::asked() {
            left_out.push(e.name);
            continue;
        }
        if let Err(error) =
            bench::named(e.name, &args.common).and_then(|asked| one(&asked.adjusted(args)?, &args.common, rounds(args)))
        {
            eprintln!("mega: {}: {error:#}", e.name);
            failed.push(e.name);
        }
    }
    if !left_out.is_empty() {
        eprintln!(
            "mega: did not fit into {}: {}",
            minutes(budget.as_secs_f64()),
            left_out.join(", ")
        );
    }
    finish(&failed)
}

fn several(asked: &[Asked], args: &BenchArgs) -> Result<()> {
    if let [only] = asked {
        return one(only, &args.common, rounds(args)).map(drop);
    }
    let mut failed = Vec::new();
    for asked in asked {
        if bench::stop::asked() {
            break;
        }
        if let Err(error) = one(asked, &args.common, rounds(args)) {
            eprintln!("mega: {}: {error:#}", asked.name());
            failed.push(asked.name());
        }
    }
    finish(&failed)
}

/// Runs one, shows its table, and says where its report is.
pub fn one(asked: &Asked, args: &BenchOptions, rounds: usize) -> Result<PathBuf> {
    let ran = bench::run(asked, args, rounds)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&Printed::of(&ran.record))?)?;
    } else {
        write!(out, "{}", mega_lab::report::terminal::text(&ran.record))?;
        writeln!(out, "report: {}", ran.report.display())?;
    }
    out.flush()?;
    ran.whole()?;
    let nothing = ran
        .record
        .runs
        .iter()
        .all(|run| run.outcome != mega_lab::result::Outcome::Done);
    anyhow::ensure!(
        !nothing,
        "no run completed; the reasons are in {}",
        ran.report.display()
    );
    Ok(ran.report)
}
