//! Options of `mega advise`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use mega_cli::args::parse_interval;

use super::ScannerChoice;

/// `mega advise`
#[derive(Debug, Args)]
#[command(after_help = "A command's standard output goes to standard error: standard output has the report.")]
pub struct AdviseArgs {
    /// A running process, watched with its descendants
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)), required_unless_present = "command", conflicts_with = "command")]
    pub pid: Option<u32>,

    /// How long to watch (default: a process 10s, a command to its end); a command that still runs
    /// is then ended by SIGTERM
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub time: Option<Duration>,

    /// Run the command again, in turns on base and on huge pages, so many times each, and compare
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "2", require_equals = true, requires = "command", conflicts_with = "pid",
        value_parser = clap::value_parser!(u32).range(1..=20))]
    pub compare: Option<u32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// How to read page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,

    /// A command and its arguments, run on base pages while it is watched
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
