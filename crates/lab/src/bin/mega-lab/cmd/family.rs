//! `mega bench auto` and `mega bench programs`: a family of experiments, program by program and condition by condition. Each leaves a record,
//! `PROGRAM@CONDITION.json`; what has one already is not run again, so that a run that was stopped goes on where it was.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mega_core::units::{Bytes, Share};
use mega_lab::contiguity::FragKind;
use mega_lab::experiment::family::Family;
use mega_lab::experiment::Experiment;
use mega_lab::prepare::condition::Condition;
use mega_lab::result::{Outcome, Record};

use crate::args::{BenchArgs, BenchOptions};
use crate::bench::{self, finish, memory_bytes, minutes, Asked};
use mega_cli::exit::Failure;

/// Rounds that a verdict needs.
const ROUNDS: usize = 6;
/// The limit, as a share of what base pages needed at their peak.
const LIMIT: f64 = 1.1;

/// The state of the machine around a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Around {
    Is(Condition),
    /// In a control group with [`LIMIT`] of what base pages need, which is measured first.
    Limited,
}

impl Around {
    fn all() -> Vec<Self> {
        vec![
            Self::Is(Condition::Unfragmented),
            Self::Is(Condition::Fragmented(Share::percent(90), FragKind::Study)),
            Self::Limited,
            Self::Is(Condition::Busy),
        ]
    }

    fn named(name: &str) -> Result<Self> {
        match name {
            "limited" => Ok(Self::Limited),
            _ => Ok(Self::Is(name.parse().map_err(Failure::usage)?)),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Is(condition) => condition.to_string(),
            Self::Limited => "limited".to_string(),
        }
    }
}

/// Runs, lists, or writes the document.
pub fn run(family: Family, args: &BenchArgs) -> Result<()> {
    if args.what.len() > 1 {
        let name = family.name;
        return Err(Failure::usage(format!(
            "mega bench {name} takes no further name; --only selects programs"
        )));
    }
    if !args.table.is_empty() {
        let records: Vec<Record> = args.table.iter().map(|path| read(path)).collect::<Result<_>>()?;
        return Ok(write!(std::io::stdout().lock(), "{}", (family.document)(&records))?);
    }
    let chosen = chosen(family, &args.only)?;
    let around = match &args.condition {
        None if family.all_conditions => Around::all(),
        None => vec![Around::Is(Condition::Unfragmented)],
        Some(name) => vec![Around::named(name)?],
    };
    let rounds = args.common.rounds.unwrap_or(ROUNDS);
    if args.list {
        return list(family, &chosen, &around, rounds, args);
    }
    if args.record.is_some() {
        return record(&chosen, args);
    }
    let folder = args.common.output.join(family.name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut failed = Vec::new();
    for around in around {
        for member in &chosen {
            let path = record_of(&folder, family.own_name(member), around);
            if bench::stop::asked() {
                anyhow::bail!("stopped; the same command goes on");
            }
            if read(&path).is_ok_and(|record| record.settings.rounds >= rounds) {
                say(&args.common, &format!("{}: there already", path.display()));
                continue;
            }
            if let Err(error) = one(member, around, rounds, args, &path) {
                eprintln!("mega: {} ({}): {error:#}", member.name, around.name());
                failed.push(member.name);
            }
        }
    }
    finish(&failed)
}

/// Records the programs' memory, one after another.
fn record(chosen: &[&'static Experiment], args: &BenchArgs) -> Result<()> {
    for member in chosen {
        let asked = bench::named(member.name, &args.common)?.adjusted(args)?;
        bench::run(&asked, &args.common, 1)?.whole()?;
    }
    Ok(())
}

fn say(options: &BenchOptions, text: &str) {
    if !options.quiet {
        eprintln!("{text}");
    }
}

fn chosen(family: Family, only: &[String]) -> Result<Vec<&'static Experiment>> {
    let is = |member: &'static Experiment, name: &str| member.name == name || family.own_name(member) == name;
    for name in only {
        if !family.members.iter().any(|member| is(member, name)) {
            let names: Vec<&str> = family.members.iter().map(|member| family.own_name(member)).collect();
            let names = names.join(", ");
            return Err(Failure::usage(format!("--only {name}: the programs are {names}")));
        }
    }
    let wanted = |member: &&'static Experiment| only.is_empty() || only.iter().any(|name| is(member, name));
    Ok(family.members.iter().filter(wanted).collect())
}

fn record_of(folder: &Path, program: &str, around: Around) -> PathBuf {
    folder.join(format!("{program}@{}.json", around.name()))
}

fn read(path: &Path) -> Result<Record> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no record", path.display()))
}

fn list(
    family: Family,
    chosen: &[&'static Experiment],
    around: &[Around],
    rounds: usize,
    args: &BenchArgs,
) -> Result<()> {
    let memory = memory_bytes()?;
    let mut out = std::io::stdout().lock();
    let (mut all, mut n) = (0.0, 0);
    for member in chosen {
        let scale = args.common.scale.unwrap_or_else(|| member.fitting_scale(memory));
        let plan = member.setup(scale).plan;
        let seconds = plan.seconds(rounds);
        let ready = plan.cases.iter().find_map(|case| case.program.ready().err());
        let missing = ready.map_or(String::new(), |why| format!("; {why}"));
        let name = family.own_name(member);
        writeln!(out, "{name:<14} {:>8}  {}{missing}", minutes(seconds), member.title)?;
        all += seconds;
        n += 1;
    }
    let conditions: Vec<String> = around.iter().map(|around| around.name()).collect();
    writeln!(
        out,
        "{n} programs, {rounds} rounds, under {}: {}",
        conditions.join(", "),
        minutes(all * around.len() as f64)
    )?;
    Ok(())
}

/// Runs one under one condition and keeps its record.
fn one(member: &Experiment, around: Around, rounds: usize, args: &BenchArgs, path: &Path) -> Result<()> {
    // The agent's helper and the program's threads must be free to use a spare processor.
    let options = BenchOptions {
        no_pin: true,
        ..args.common.clone()
    };
    let asked = || -> Result<Asked> {
        let plain = BenchArgs {
            condition: None,
            ..args.clone()
        };
        bench::named(member.name, &options)?.adjusted(&plain)
    };
    let condition = match around {
        Around::Is(condition) => condition,
        Around::Limited => {
            let base = bench::run(&asked()?.baseline(), &options, 1)?.record;
            let limit = limit(&base).context("what it needs on base pages could not be measured")?;
            Condition::Limit(limit)
        }
    };
    let ran = bench::run(&asked()?.under(condition), &options, rounds)?;
    ran.whole()?;
    let done = ran
        .record
        .runs
        .iter()
        .filter(|run| run.outcome == Outcome::Done)
        .count();
    anyhow::ensure!(
        done > 0,
        "no run completed; the reasons are in {}",
        ran.report.display()
    );
    let text = serde_json::to_string(&ran.record.small())?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    say(&options, &format!("record: {}", path.display()));
    Ok(())
}

/// [`LIMIT`] of the peak on base pages, in whole megabytes.
fn limit(base: &Record) -> Option<Bytes> {
    // A run too short for the sampler has what was looked at in its end.
    let of = |name: &'static str| base.runs.iter().filter_map(move |run| run.values.get(name));
    let peaks = of("peak_rss_bytes").chain(of("rss_bytes"));
    let peak = peaks.copied().reduce(f64::max)?;
    Some(Bytes(((peak * LIMIT) as u64).next_multiple_of(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use mega_lab::experiment::family;

    #[test]
    fn programs_are_chosen_by_name_and_an_unknown_one_is_answered_with_those_there_are() {
        let family = family::find("auto").unwrap();
        assert_eq!(chosen(family, &[]).unwrap().len(), family.members.len());
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            chosen(family, &only).map(|all| all.iter().map(|member| member.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["gups", "auto-touch"]).unwrap(), ["auto-gups", "auto-touch"]);
        assert!(names(&["gusp"]).unwrap_err().to_string().contains("gups, touch"));
    }

    #[test]
    fn every_condition_has_a_name_that_a_file_can_have_and_is_read_back() {
        for around in Around::all() {
            assert_eq!(Around::named(&around.name()).unwrap(), around);
            let path = record_of(Path::new("/x"), "touch", around);
            assert_eq!(path.parent(), Some(Path::new("/x")));
        }
    }

    #[test]
    fn a_program_a_condition_and_a_tiny_size_are_read_from_the_command_line() {
        let words = [
            "mega",
            "bench",
            "auto",
            "--only=touch",
            "--scale=tiny",
            "--condition=busy",
        ];
        let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("not bench");
        };
        assert_eq!(
            (args.only.as_slice(), args.common.scale),
            (&["touch".to_string()][..], Some(0.01))
        );
        assert_eq!(Around::named("busy").unwrap(), Around::Is(Condition::Busy));
    }
}
