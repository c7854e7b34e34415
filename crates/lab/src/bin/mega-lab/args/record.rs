//! The command line of `mega record`, as far as it is the lab's: `mega record` hands these over.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mega_cli::args::parse_interval;

/// `mega record --workload` and `mega record --export`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["workload", "export"])))]
pub struct RecordArgs {
    /// Record the accesses of a built-in program that runs on simulated memory
    #[arg(long, value_name = "NAME", requires = "output")]
    pub workload: Option<String>,

    /// Its options, as in {"mib": 64, "seed": 7}
    #[arg(long, value_name = "JSON", requires = "workload")]
    pub options: Option<String>,

    /// Make Parquet tables of a trace, a file each: accesses, events, scans, regions
    #[arg(long, num_args = 2, value_names = ["TABLES", "TRACE"], action = clap::ArgAction::Set)]
    pub export: Option<Vec<PathBuf>>,

    /// The trace to write
    #[arg(short, long, value_name = "FILE", conflicts_with = "export")]
    pub output: Option<PathBuf>,

    /// Stop recording after this time of the program's own
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}
