//! The command lines of `mega record` and `mega replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mega_cli::args::parse_interval;

use super::ScannerChoice;

/// `mega record`
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("what").required(true).args(["pids", "command", "workload", "import", "export", "info"])),
    after_help = "mega record -o F PID...              scans of processes
mega record -o F -- CMD ARGS         scans of a command; exits with its status
mega record -o F --workload gups     a built-in program's accesses (needs mega-lab)
mega record -o F --import lackey IN  a Valgrind trace as text
mega record --export T.parquet F     Parquet tables (needs mega-lab)
mega record --info F                 what a trace holds

A scan holds the mappings that came and went since the last one, and for every
2 MB region how many pages are mapped, accessed, written and zero-filled.
Nothing is changed but accessed bits, with --age, so that each scan is about one
interval.
docs/trace.md describes the format."
)]
pub struct RecordArgs {
    /// Processes to record, with their descendants
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// The command to run and record, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Record the accesses of a built-in program on simulated memory (`mega sim list`
    /// names them)
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,

    /// Its options, as in {"mib": 64, "seed": 7}
    #[arg(long, value_name = "JSON", requires = "workload",
        conflicts_with_all = ["pids", "command", "import", "export", "info"])]
    pub options: Option<String>,

    /// Convert a text: lackey (valgrind --tool=lackey --trace-mem=yes) or text
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"], action = clap::ArgAction::Set)]
    pub import: Option<Vec<PathBuf>>,

    /// Write a trace as Parquet tables: accesses, events, scans, regions
    #[arg(long, num_args = 2, value_names = ["TABLES", "TRACE"], action = clap::ArgAction::Set)]
    pub export: Option<Vec<PathBuf>>,

    /// Summarize a trace
    #[arg(long, value_name = "TRACE")]
    pub info: Option<PathBuf>,

    /// The trace to write
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["export", "info"],
        conflicts_with_all = ["export", "info"])]
    pub output: Option<PathBuf>,

    /// Time between scans
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Stop after this time; of a built-in program, of its own time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// Clear accessed bits after each scan (costs the program some time; paused under
    /// memory pressure)
    #[arg(long)]
    pub age: bool,

    /// How to read page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,

    /// With --info: as JSON
    #[arg(long, requires = "info", conflicts_with_all = ["pids", "command", "workload", "import", "export"])]
    pub json: bool,

    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega replay`
#[derive(Debug, Args)]
#[command(
    after_help = "Runs the policy and settings of a journal on its observations again; fails if
any decision differs. With --policy another policy decides, and its decisions
are compared with those of the journal. A trace with scans (mega record) needs
--policy: the decisions are printed as journal lines."
)]
pub struct ReplayArgs {
    /// A journal written with --journal-full, or a trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Decide by this policy
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Set a parameter of that policy; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "policy")]
    pub set: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
