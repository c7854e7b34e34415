//! The command lines of `mega bench` and `mega demo`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use mega_cli::args::parse_interval;
use mega_core::units::Bytes;

/// `mega demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Use a real Redis instead of the embedded store
    #[arg(long)]
    pub redis: bool,

    #[command(flatten)]
    pub common: BenchOptions,
}

/// Options that `bench` and `demo` share.
#[derive(Debug, Clone, Args)]
pub struct BenchOptions {
    /// Rounds; each runs every variant once and begins with the next one (default: 3,
    /// for a first look; a verdict on four comparisons needs eight, on 24 ten)
    #[arg(long, value_name = "N", value_parser = parse_rounds)]
    pub rounds: Option<usize>,

    /// Size, 1 being the paper's (default: what fits this machine)
    #[arg(long, value_name = "F", value_parser = parse_scale)]
    pub scale: Option<f64>,

    /// Time between the managers' scans (default: theirs)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub interval: Option<Duration>,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Folder for results, each in one of its own
    #[arg(short, long, value_name = "FOLDER", default_value = "mega-results")]
    pub output: PathBuf,

    /// Also keep a small record here, as NAME.json, fit for a repository
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,

    /// Bind nothing to processors (default: the program has the first for itself)
    #[arg(long)]
    pub no_pin: bool,

    /// The whole record as JSON
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `mega bench`
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "mega bench list                 the experiments: source, needs, time\n\
mega bench NAME...              run them\n\
mega bench all --budget 20m     run what fits into the time\n\
mega bench run -- CMD ARGS      measure any command\n\
mega bench auto                 the proof of auto: every program, every condition; goes on\n\
                                where it was stopped. --only, --condition, --list\n\
mega bench programs             real programs: what huge pages do to each. The same options\n\
mega bench auto --table FILES   the document, with auto's gates, from such records\n\
mega bench scale                what looking costs as there is more to look at\n\
mega bench soak                 daemon, agent, storms and a Redis under load, for two hours\n\
                                (--scale 0.1: for a tenth): what grows, what is left behind\n\
mega bench compare A B          two results of the same experiment side by side\n\n\
Variants: base, thp-always, thp-madvise, thp-always-defrag, thp-none0, mthp-64k, a policy (mega, ingens, trim ...)\n\
or auto (agent and manager), auto:agent, auto:manager, preset:NAME,\n\
with parameters and on a backdrop: mega:uprom=30%, thp-always+trim, mthp-64k+mega. Or page sizes by\n\
libmemomania: mosaic:2M, mosaic:1G, mosaic:heap=1G@0/2M:anon=4K (as mega mosaic, / for its commas).\n\
Each setting that a variant makes is put back; after kill -9 by the next start or `mega off`."
)]
pub struct BenchArgs {
    /// An experiment, several, or: list, all, run, compare
    #[arg(required = true, value_name = "NAME")]
    pub what: Vec<String>,

    /// With `run`: the command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    /// With `run`: a regular expression with one group that finds the figure, the
    /// higher the better, in what the command prints (default: its run time)
    #[arg(long, value_name = "RE")]
    pub metric: Option<String>,

    /// With `run`: memory that the command takes. So much is prefaulted for it
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: Bytes,

    /// Variants to run instead of the experiment's own; the others are compared with
    /// the first
    #[arg(long, value_name = "V,V", value_delimiter = ',')]
    pub variants: Vec<String>,

    /// Run the first variant once more in each round (A/A): what the measurement does by itself
    #[arg(long)]
    pub aa: bool,

    /// State of the machine: unfragmented, fragmented=90% (fragmented=90%:KIND, of `mega frag`), limit=4G, neighbour, busy
    #[arg(long, value_name = "C")]
    pub condition: Option<String>,

    /// Measure page fault latency by the kernel's tracepoints, too (0.4 us a fault;
    /// experiments about faults do it anyway)
    #[arg(long)]
    pub faults: bool,

    /// Record each program's memory instead, in one run on base pages:
    /// FOLDER/PROGRAM.trace, for `mega sim run --trace --scans`
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["variants", "aa", "faults", "list", "table"])]
    pub record: Option<PathBuf>,

    /// With `all`: run what fits into this time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub budget: Option<Duration>,

    /// With `auto` and `programs`: these programs only
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// With `auto` and `programs`: what would be run, and how long it takes
    #[arg(long)]
    pub list: bool,

    /// With `auto` and `programs`: the document made from these records
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub table: Vec<PathBuf>,

    #[command(flatten)]
    pub common: BenchOptions,
}

pub(super) fn parse_rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err("expected 1 to 1000".to_string()),
    }
}

pub(super) fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Err(_) if text == "tiny" => Ok(0.01),
        Ok(scale) if (0.001..=100.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.001 to 100, or tiny".to_string()),
    }
}
