//! The command lines of `mega record` and `mega replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{parse_interval, ScannerChoice};

/// `mega record`
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("what").required(true).args(["pids", "command", "workload", "import", "export", "info"])),
    after_help = "mega record -o F PID...              what is seen of processes
mega record -o F -- CMD ARGS         of a command; exits with its status
mega record -o F --workload gups     what a built-in program accesses
mega record -o F --import lackey IN  what a text of Valgrind says
mega record --export T.parquet F     T.accesses.parquet, T.regions.parquet ...
mega record --info F                 what is in it

Of processes it writes at each interval: the mappings of their own memory that came and went, and
every 2 MB region's pages, mapped, accessed, written, zero-filled. Nothing of theirs is changed;
only with --age are accessed bits cleared, so that each scan tells about one interval.
docs/trace.md describes the format."
)]
pub struct RecordArgs {
    /// Processes to record, with their children
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// The command to run and record, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// Record the accesses of a built-in program (gups, touch, stride, kv, btree, graph,
    /// redis ...) that runs on simulated memory
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,

    /// Its options, as in {"mib": 64, "seed": 7}
    #[arg(long, value_name = "JSON", requires = "workload",
        conflicts_with_all = ["pids", "command", "import", "export", "info"])]
    pub options: Option<String>,

    /// Make a trace of a text: lackey (valgrind --tool=lackey --trace-mem=yes) or text
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"], action = clap::ArgAction::Set)]
    pub import: Option<Vec<PathBuf>>,

    /// Make Parquet tables of a trace, a file each: accesses, events, scans, regions
    #[arg(long, num_args = 2, value_names = ["TABLES", "TRACE"], action = clap::ArgAction::Set)]
    pub export: Option<Vec<PathBuf>>,

    /// Say what is in a trace
    #[arg(long, value_name = "TRACE")]
    pub info: Option<PathBuf>,

    /// The trace to write
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["export", "info"],
        conflicts_with_all = ["export", "info"])]
    pub output: Option<PathBuf>,

    /// Time between scans
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Stop recording after this time; of a built-in program, after this time of its own
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// Clear accessed bits after each scan (changes no memory, costs the program
    /// some time; not while tasks wait for memory)
    #[arg(long)]
    pub age: bool,

    /// How to look at page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,

    /// With --info: as JSON
    #[arg(long, requires = "info", conflicts_with_all = ["pids", "command", "workload", "import", "export"])]
    pub json: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega replay`
#[derive(Debug, Args)]
#[command(
    after_help = "A journal is decided again by the policy and the settings that wrote it, in the same loop; decisions
that differ make this fail. With --policy another one decides on what was seen then, and its
decisions are set against those of the journal. A trace with scans (mega record) needs --policy:
its decisions are printed, as lines of a journal."
)]
pub struct ReplayArgs {
    /// A journal written with --journal-full, or a trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Let this policy decide
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Set a parameter of that policy; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "policy")]
    pub set: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}
