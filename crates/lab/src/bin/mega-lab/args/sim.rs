//! The command line of `mega sim`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use mega_core::units::{Bytes, Share};
use mega_lab::simulated::accuracy;
use mega_lab::simulated::sweep::shard::Shard;

use super::bench::{parse_rounds, parse_scale};
use super::BenchOptions;
use mega_cli::args::{parse_budget, parse_interval};

/// `mega sim`
#[derive(Debug, Args)]
#[command(
    after_help = "mega sim NAME... [--scale F] runs the papers' experiments at the papers' sizes (`mega sim all`: all of them).\n\n\
Nothing here needs root or changes a setting. The same command gives the same figures, on any number of\n\
threads. docs/simulator.md describes scenarios, systems and sweeps."
)]
pub struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// What `mega sim` does.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Say what can be simulated: workloads, systems, machines
    List(SimListArgs),
    /// Run a scenario, a workload or a trace under one or several systems
    Run(Box<SimRunArgs>),
    /// Run every combination of systems, workloads, machines and seeds
    Sweep(SimSweepArgs),
    /// Run a part of a sweep, on any machine, into a file
    Shard(SimShardArgs),
    /// Put the files of all parts together: what `sweep` would have given
    Merge(SimMergeArgs),
    /// Measure what things cost on this machine
    Calibrate(SimCalibrateArgs),
    /// Run workloads live and simulated, and say how far apart they are
    Accuracy(SimAccuracyArgs),
    /// A paper's experiment by its name: see [`SimPaperArgs`].
    #[command(external_subcommand)]
    Paper(Vec<OsString>),
}

/// `mega sim NAME…`: the papers' experiments in simulation
#[derive(Debug, Parser)]
#[command(
    name = "mega sim",
    bin_name = "mega sim",
    about = "The papers' tables and figures in simulation, at the papers' sizes, beside what was published"
)]
pub struct SimPaperArgs {
    /// An experiment, several, or all (`mega sim list` names them)
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,

    /// Size, 1 being the paper's
    #[arg(long, value_name = "F", value_parser = parse_scale, default_value = "1")]
    pub scale: f64,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Folder for results, each in one of its own
    #[arg(short, long, value_name = "FOLDER", default_value = "mega-results")]
    pub output: PathBuf,

    /// Run nothing: count what the newest results in this folder say, or NAME.json there
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["scale", "seed", "output", "threads"])]
    pub kept: Option<PathBuf>,

    /// Also keep a small record of each here, as NAME.json: what --kept needs, fit for a
    /// repository
    #[arg(long, value_name = "FOLDER", conflicts_with = "kept")]
    pub keep: Option<PathBuf>,

    /// Runs at once (default: as many as there are processors)
    #[arg(long = "threads", value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// All records and comparisons as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

impl SimPaperArgs {
    /// From the words after `mega sim`.
    pub fn of_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let program = OsString::from("mega sim");
        Self::try_parse_from(std::iter::once(&program).chain(words))
    }

    /// Runs at once.
    pub fn threads(&self) -> usize {
        let there = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.unwrap_or_else(there)
    }
}

/// `mega sim list`
#[derive(Debug, Args)]
pub struct SimListArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega sim run`
#[derive(Debug, Args)]
#[command(
    after_help = "A scenario is JSON: machine, system, programs, state of memory (docs/simulator.md). Options given here \
come before\nwhat it says. Systems, the first being what the others are compared with:\n  \
base, thp-always, lrbhps:t=256       deciding at page faults\n  \
mega, ingens, mega:uprom=30%         scanning, on base pages\n  \
thp-always+mega:compact=off          scanning on another's faults\n\n\
mega sim run --workload gups --set mib=4G --system base,thp-always,lrbhps:t=64\n\
mega sim run --workload redis --set keys=1000000 --fragment 90% --machine lrbhps"
)]
pub struct SimRunArgs {
    /// A scenario as JSON (`-`: standard input)
    #[arg(value_name = "FILE.json", required_unless_present_any = ["workload", "trace"])]
    pub scenario: Option<PathBuf>,

    /// Run this workload instead (`mega sim list` names them)
    #[arg(long, value_name = "NAME", conflicts_with = "scenario")]
    pub workload: Option<String>,

    /// Set an option of the workload, as in mib=4G or time_ns=20s; may be given more
    /// than once
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "workload", conflicts_with_all = ["scenario", "trace"])]
    pub set: Vec<String>,

    /// Replay this recording instead: binary, text or Valgrind's (docs/trace.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "workload"])]
    pub trace: Option<PathBuf>,

    /// With --trace: the process to replay (default: the first in it)
    #[arg(long, value_name = "PID", requires = "trace", conflicts_with_all = ["scenario", "workload"])]
    pub process: Option<u32>,

    /// With --trace: keep its times, sleeping where it did (default: one access follows
    /// the other)
    #[arg(long, requires = "trace", conflicts_with_all = ["scenario", "workload"])]
    pub keep_times: bool,

    /// With --trace: a recording of a process, which has scans and no accesses. New pages
    /// are written, gone ones given back, accessed ones read, each at its time: memory and
    /// huge pages follow from it, run times do not
    #[arg(long, requires = "trace", conflicts_with_all = ["scenario", "workload"])]
    pub scans: bool,

    /// Systems to run side by side (default: the scenario's, or base,thp-always,mega)
    #[arg(long, value_name = "S,S", value_delimiter = ',')]
    pub system: Vec<String>,

    #[command(flatten)]
    pub machine: SimMachine,

    /// Time between the manager's scans (default: 5s)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub interval: Option<Duration>,

    /// Maximum share of time a program is stalled by the manager (default: 5%)
    #[arg(long, value_name = "SHARE", value_parser = parse_budget)]
    pub stall_budget: Option<Share>,

    /// Share of one processor that managing may use
    #[arg(long, value_name = "SHARE", value_parser = parse_budget)]
    pub cpu_budget: Option<Share>,

    /// End after this much simulated time, even if programs still run
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// Rounds; each runs every system once with the next seed
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_rounds)]
    pub rounds: usize,

    /// Seed of everything random (default: the scenario's, or 1)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Write every decision and outcome of the manager to this file, a line each
    /// (`-`: standard output); for one system and one round
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Journal what was seen as well, so that `mega replay` can decide again
    #[arg(long, requires = "journal")]
    pub journal_full: bool,

    /// Folder for results, each in one of its own
    #[arg(short, long, value_name = "FOLDER", default_value = "mega-results")]
    pub output: PathBuf,

    /// Also keep a small record here, as NAME.json, fit for a repository
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,

    /// Runs at once (default: as many as there are processors)
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,

    /// The whole record as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The simulated machine, where the command line says something about it.
#[derive(Debug, Clone, Args)]
pub struct SimMachine {
    /// Main memory (default: 16G)
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Costs and TLB of this machine: development, mega, mega-server, ingens, lrbhps or
    /// study (`mega sim list` says what is behind them)
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// TLB of this processor, or none: translating costs nothing then. Figures may follow (`zen4:host=2M:memory=400`), as `mega sim
    /// calibrate --tlb` finds them
    #[arg(long, value_name = "NAME|none")]
    pub tlb: Option<String>,

    /// Costs that `mega sim calibrate` measured
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,

    /// Room for swapping (default: none)
    #[arg(long, value_name = "SIZE")]
    pub swap: Option<Bytes>,

    /// State of memory: 90% (of free memory of no use for huge pages), 90%/3% (and 3% of
    /// the fragmented blocks unmovable), study, lrbhps=50%, or none
    #[arg(long, value_name = "STATE")]
    pub fragment: Option<String>,
}

/// `mega sim sweep`
#[derive(Debug, Args)]
#[command(
    after_help = "After Ctrl-C the points under way are finished and the table has the points done so far.\ndocs/simulator.md describes the file."
)]
pub struct SimSweepArgs {
    /// The sweep as JSON (`-`: standard input, with --output)
    #[arg(value_name = "FILE.json")]
    pub sweep: PathBuf,

    /// Folder for results (default: mega-results/sweep-FILE)
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// List the points, run none
    #[arg(long)]
    pub dry_run: bool,

    /// Points at once (default: as many as there are processors)
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,

    /// What was done as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega sim shard`
#[derive(Debug, Args)]
#[command(
    after_help = "The file is written whole or not at all. Where it has this part already, nothing is done: a task runner may repeat it.\n\
docs/sweeps.md has recipes for HyperQueue, Slurm and GNU parallel."
)]
pub struct SimShardArgs {
    /// The sweep as JSON
    #[arg(value_name = "FILE.json")]
    pub sweep: PathBuf,

    /// Which part, from 1, of how many: 3/10
    #[arg(value_name = "I/N")]
    pub shard: Shard,

    /// The file for its results
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Points at once (default: as many as there are processors)
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega sim merge`
#[derive(Debug, Args)]
pub struct SimMergeArgs {
    /// The files of all parts, in any order
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Folder for results
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,

    /// What was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega sim calibrate`
#[derive(Debug, Args)]
#[command(
    after_help = "Takes fifteen seconds and 1.1 GB, changes no setting and leaves nothing behind. On a machine that is \
not quiet the\nfigures are too high: the spread of the samples shows it. `mega sim run --costs FILE` uses them."
)]
pub struct SimCalibrateArgs {
    /// Keep the costs in this file
    #[arg(short, long, value_name = "FILE", default_value = "mega-costs.json")]
    pub output: PathBuf,

    /// Find out about the TLB, too: two minutes, and 4 GB
    #[arg(long)]
    pub tlb: bool,

    /// Costs, samples and notes as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega sim accuracy`
#[derive(Debug, Args)]
#[command(
    after_help = "The live part is an experiment as `mega bench` runs it: it needs root, changes settings of THP and puts them \
back, and\ntakes about 45 minutes at scale 1."
)]
pub struct SimAccuracyArgs {
    /// Workloads (default: all)
    #[arg(value_name = "WORKLOAD", value_parser = PossibleValuesParser::new(accuracy_workloads()))]
    pub workloads: Vec<String>,

    /// Those that nothing in the simulator was fitted to: other workloads, Redis among them,
    /// other systems, fragmented memory
    #[arg(long)]
    pub held_out: bool,

    /// Size and length; 1 is 2 to 8 GB
    #[arg(long, value_name = "F", value_parser = parse_scale, default_value = "1")]
    pub scale: f64,

    /// Live rounds
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_rounds)]
    pub rounds: usize,

    /// Costs that `mega sim calibrate` measured (default: measured before, between and
    /// after the live parts; medians)
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,

    /// TLB that `mega sim calibrate --tlb` found (default: as the costs)
    #[arg(long, value_name = "NAME")]
    pub tlb: Option<String>,

    /// Run and measure nothing: simulate again, and compare with the newest live runs, costs
    /// and TLB in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["rounds", "workloads"])]
    pub kept: Option<PathBuf>,

    /// Also keep small records of what was compared here: live, with faults counted,
    /// simulated; fit for a repository
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Folder for results, each in one of its own
    #[arg(short, long, value_name = "FOLDER", default_value = "mega-results")]
    pub output: PathBuf,

    /// What was compared as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

fn accuracy_workloads() -> Vec<&'static str> {
    let halves = [accuracy::Half::Seen, accuracy::Half::HeldOut];
    halves.into_iter().flat_map(accuracy::Half::workloads).collect()
}

impl SimAccuracyArgs {
    /// What is asked for.
    pub fn half(&self) -> accuracy::Half {
        match self.held_out {
            true => accuracy::Half::HeldOut,
            false => accuracy::Half::Seen,
        }
    }

    /// For the live part.
    pub fn bench(&self) -> BenchOptions {
        BenchOptions {
            rounds: Some(self.rounds),
            scale: Some(self.scale),
            interval: None,
            seed: self.seed,
            output: self.output.clone(),
            keep: None,
            no_pin: false,
            json: self.json,
            quiet: self.quiet,
        }
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected 1 to 1024".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;

    fn sim(args: &[&str]) -> Result<SimCommand, clap::Error> {
        match Cli::try_parse_from([&["mega", "sim"], args].concat())?.command {
            Command::Sim(args) => Ok(args.command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn any_other_word_is_a_papers_experiment() {
        let SimCommand::Paper(words) = sim(&["mega-table3", "--scale", "0.1"]).unwrap() else {
            panic!()
        };
        let args = SimPaperArgs::of_words(&words).unwrap();
        assert_eq!((args.names[0].as_str(), args.scale, args.seed), ("mega-table3", 0.1, 1));
        for bad in [
            &["mega-table3", "--scale", "0"][..],
            &["a", "--no"],
            &["a", "--threads", "0"],
        ] {
            let words: Vec<OsString> = bad.iter().map(OsString::from).collect();
            assert!(SimPaperArgs::of_words(&words).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn systems_are_divided_by_commas_and_what_runs_is_one_thing() {
        let run = sim(&["run", "--workload", "gups", "--system", "base,lrbhps:t=64,mega"]).unwrap();
        let SimCommand::Run(run) = run else { panic!() };
        assert_eq!(run.system, ["base", "lrbhps:t=64", "mega"]);
        assert_eq!((run.rounds, run.threads, run.seed), (1, None, None));
        for bad in [
            &["run"][..],
            &["run", "a.json", "--workload", "gups"],
            &["run", "--workload", "gups", "--trace", "t"],
            &["run", "a.json", "--set", "mib=1"],
            &["run", "a.json", "--keep-times"],
            &["run", "a.json", "--rounds", "0"],
            &["run", "a.json", "--threads", "0"],
            &["run", "a.json", "--interval", "1ms"],
            &["run", "a.json", "--cpu-budget", "0%"],
            &["run", "a.json", "--memory", "much"],
            &["run", "a.json", "--journal-full"],
            &["sweep"],
            &["sweep", "a.json", "--threads", "0"],
            &["shard", "a.json", "1/2"],
            &["shard", "a.json", "0/2", "-o", "f"],
            &["shard", "a.json", "3/2", "-o", "f"],
            &["shard", "a.json", "1", "-o", "f"],
            &["shard", "a.json", "1/200000", "-o", "f"],
            &["merge", "-o", "f"],
            &["merge", "f"],
            &["calibrate", "a"],
            &[],
        ] {
            assert!(sim(bad).is_err(), "{bad:?}");
        }
    }
}
