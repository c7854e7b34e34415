//! The command line: every option once, with its help.

mod mosaic;
mod record;
mod sim;

pub use mosaic::{ExploreArgs, MosaicAction, MosaicArgs, Reserve};
pub use record::{RecordArgs, ReplayArgs};
pub use sim::{
    SimAccuracyArgs, SimArgs, SimCalibrateArgs, SimCommand, SimListArgs, SimMachine, SimPaperArgs, SimRunArgs,
    SimSweepArgs,
};

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mega_core::units::{parse_duration, show_duration, Bytes, Share};
use mega_lab::contiguity::{Amount, FragKind, How, ProbeFlags};
use mega_linux::compact::Way;

/// MEGA makes huge pages safe to leave on.
///
/// It watches which 2 MB regions of a program are really mapped and really used, promotes those and only those, gives
/// back what huge pages waste, and checks each of its actions by looking again. On an unmodified kernel, per process,
/// reversibly.
#[derive(Debug, Parser)]
#[command(name = "mega", version, max_term_width = 80, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what this machine offers, who owns its THP settings, and what is missing
    Doctor(DoctorArgs),
    /// Run a command and manage it and its children; exits with its status
    Run(RunArgs),
    /// Manage what already runs
    Manage(ManageArgs),
    /// Look once: mapped, huge, wasted, by mapping and in total; changes nothing
    Show(ShowArgs),
    /// Draw physical memory, or a process's regions, as a heat map
    Map(MapArgs),
    /// Put everything back: end managers, restore settings
    Off(OffArgs),
    /// List the policies and their parameters
    Policies(PoliciesArgs),
    /// Record what is seen of processes, or what a program accesses, as a trace
    Record(RecordArgs),
    /// Decide again from a full journal and compare
    Replay(ReplayArgs),
    /// A store of a few GB on base pages, on stock huge pages and managed, side by side
    Demo(DemoArgs),
    /// Experiments: what huge pages do to a program, under which policy, at what price
    Bench(BenchArgs),
    /// Simulate: any system on any machine, the same figures each time
    Sim(SimArgs),
    /// Fragment memory on purpose, and keep it so until Ctrl-C
    Frag(FragArgs),
    /// Take huge pages until none is left, time each, and free them
    Hog(HogArgs),
    /// Make free 2 MB blocks now, or keep making them
    Compact(CompactArgs),
    /// Run a command with its memory on a chosen mixture of page sizes
    Mosaic(MosaicArgs),
    /// Run one of the lab's workloads (used by the demonstration, tests and benchmarks)
    #[command(hide = true)]
    Workload(WorkloadArgs),
}

/// What a page fault maps while the policy decides about 2 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FaultSize {
    /// Base pages.
    #[value(name = "4K")]
    Base,
    /// 64 KB folios: most of the gain at fault time at little cost.
    #[value(name = "64K")]
    Medium,
    /// Huge pages.
    #[value(name = "2M")]
    Huge,
}

/// How free blocks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    /// Chosen ones where mega.ko is loaded, by the kernel's choice where not.
    Auto,
    /// In this way or not at all.
    Only(Way),
}

/// How to look at page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScannerChoice {
    /// The best that works here.
    Auto,
    /// The eBPF page-table walk.
    Ebpf,
    /// The PAGEMAP_SCAN ioctl (6.7): no accessed pages.
    PagemapScan,
    /// Reading /proc/PID/pagemap: no accessed pages.
    Pagemap,
    /// mega.ko, which also clears accessed bits without side effects.
    Module,
}

/// Options that `run` and `manage` share.
#[derive(Debug, Clone, Args)]
pub struct ManageOptions {
    /// Policy: mega, ingens, trim, khugepaged or base (see `mega policies`)
    #[arg(long, value_name = "NAME", default_value = "mega")]
    pub policy: String,

    /// Set a parameter of the policy; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Time between scans
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Share of time for which a program may be held up by our actions
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_budget)]
    pub stall_budget: Share,

    /// Share of one processor that managing may use
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_budget)]
    pub cpu_budget: Share,

    /// Do not promote while less than this share of memory is available
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub free_memory: Share,

    /// Do not promote while fewer 2 MB blocks than this are free
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub free_blocks: u64,

    /// Do not promote, and clear no accessed bits, while tasks wait for memory for
    /// more than this share of the time (PSI, last 10 s)
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub pressure: Share,

    /// Keep free 2 MB blocks in stock, so that no promotion has to compact: demand, mega
    /// or ingens, with parameters as in demand:reserve=64M,interval=1s; or off
    #[arg(long, value_name = "PLANNER|off", default_value = "demand")]
    pub compact: String,

    /// Who chooses the blocks that are emptied for the stock: chosen (the planner does,
    /// mega.ko empties them), node (the kernel does), or auto: chosen wherever mega.ko is
    /// loaded
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_stock_way)]
    pub compact_how: MadeBy,

    /// Stop managing after this time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// What a page fault maps: changes the machine's mTHP settings while we run and puts
    /// them back (default: no setting is touched)
    #[arg(long, value_name = "SIZE", ignore_case = true)]
    pub fault_size: Option<FaultSize>,

    /// Write every decision and outcome to this file, a line each (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Journal what was seen as well, so that `mega replay` can decide again
    #[arg(long, requires = "journal")]
    pub journal_full: bool,

    /// Journal and summary as JSON
    #[arg(long)]
    pub json: bool,

    /// Decide and journal, but act on nothing
    #[arg(long)]
    pub dry_run: bool,

    /// How to look at page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,

    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say what is decided and done as it happens
    #[arg(short, long)]
    pub verbose: bool,
}

/// `mega run`
#[derive(Debug, Args)]
#[command(
    after_help = "Manages until the last process that came of the command has ended, also those that \
daemonised.\nExits with the command's own status; 125: mega itself failed, 126: the command cannot be executed, 127: \
not found."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub options: ManageOptions,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// `mega manage`
#[derive(Debug, Args)]
pub struct ManageArgs {
    #[command(flatten)]
    pub options: ManageOptions,

    /// Processes to manage, with their children
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// Processes whose command name matches this regular expression
    #[arg(long, value_name = "RE")]
    pub comm: Option<String>,

    /// Processes of this control group and those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Processes of this systemd unit
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

/// `mega show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Processes to look at
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// Mappings to list, largest first (0: all)
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub top: usize,

    /// How to look at page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,
}

/// What `mega map` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapTarget {
    /// Physical memory.
    Phys,
    /// This process's.
    Process(u32),
}

/// `mega map`
#[derive(Debug, Args)]
#[command(
    after_help = "phys needs root: /proc/kpageflags says what every page is. It costs about 20 ms per GB; of more \
than 32 GB,\nevenly spaced blocks are read and the output says how many."
)]
pub struct MapArgs {
    /// `phys` for physical memory, or a process
    #[arg(value_name = "phys|PID", value_parser = parse_target)]
    pub target: MapTarget,

    /// Draw into this file: .svg or .png
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,

    /// Draw again and again, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// phys: read every n-th block (default: all of up to 32 GB)
    #[arg(long, value_name = "N")]
    pub every: Option<NonZeroU32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// PID: how to look at page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,
}

/// `mega doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega off`
#[derive(Debug, Args)]
pub struct OffArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega policies`
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Only this one
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

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
    /// for a first look; six are enough for a verdict)
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
#[derive(Debug, Args)]
#[command(
    after_help = "mega bench list                 the experiments: source, needs, time\n\
mega bench NAME...              run them\n\
mega bench all --budget 20m     run what fits into the time\n\
mega bench run -- CMD ARGS      measure any command\n\
mega bench compare A B          two results of the same experiment side by side\n\n\
Variants: base, thp-always, thp-madvise, thp-always-defrag, mthp-64k, or a policy (mega, ingens, trim ...)\n\
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

    /// Variants to run instead of the experiment's own; the others are compared with
    /// the first
    #[arg(long, value_name = "V,V", value_delimiter = ',')]
    pub variants: Vec<String>,

    /// State of the machine: unfragmented, fragmented=90%, limit=4G, neighbour
    #[arg(long, value_name = "C")]
    pub condition: Option<String>,

    /// Measure page fault latency by the kernel's tracepoints, too (0.4 us a fault;
    /// experiments about faults do it anyway)
    #[arg(long)]
    pub faults: bool,

    /// With `all`: run what fits into this time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub budget: Option<Duration>,

    #[command(flatten)]
    pub common: BenchOptions,
}

/// `mega frag`
#[derive(Debug, Args)]
#[command(
    after_help = "Kinds: study takes base pages and frees 3/4 of the pages of each 2 MB (the allocation-latency
study); reserve takes huge pages and frees half of each (LRBHPS, Quicksilver); holes takes
base pages and frees every other 1 MB (MEGA). What is kept is filled with known content and
checked while it is held. kcompactd moves it together again within seconds unless --pin-pages
keeps it. Ctrl-C frees all at once. At least 1 GB and 5% of memory always stay available."
)]
pub struct FragArgs {
    /// How to fragment: study, reserve or holes
    #[arg(long, value_name = "KIND", default_value = "study")]
    pub kind: FragKind,

    /// Memory to take before parts of it are freed: a size, or a share of what is
    /// available (default: 7/8 of it, or what may be taken; with --target, all of
    /// it one after the other)
    #[arg(long, value_name = "SIZE|SHARE")]
    pub amount: Option<Amount>,

    /// Share of it that is kept (default: study 25%, reserve and holes 50%)
    #[arg(long, value_name = "SHARE", value_parser = parse_keep)]
    pub keep: Option<Share>,

    /// Take huge pages one by one, and free parts of each, until this share of free
    /// memory is of no use for huge pages
    #[arg(long, value_name = "SHARE")]
    pub target: Option<Share>,

    /// Have pipes hold what is kept, so that compaction cannot move it
    #[arg(long)]
    pub pin_pages: bool,

    /// Which pages are kept, and what they hold
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Free all after this time (default: at Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub hold: Option<Duration>,

    /// Time between looks at free memory while holding
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    pub refresh: Duration,

    /// As JSON, a line for each event
    #[arg(long)]
    pub json: bool,

    /// Obey commands on standard input: `check`, `quit`; its end means `quit`
    #[arg(long, hide = true, requires = "json", conflicts_with = "hold")]
    pub commands: bool,
}

/// `mega hog`
#[derive(Debug, Args)]
#[command(
    after_help = "A huge page that the kernel did not give counts as not obtained, whatever the call said. With
fault, times include zeroing; with hugetlb and kernel they do not. On a virtual machine the first touch
of memory that the host does not back costs much more than the rest. At least 1 GB and 5% of
memory always stay available."
)]
pub struct HogArgs {
    /// How to take them: fault (touch 2 MB of MADV_HUGEPAGE memory), hugetlb (raise
    /// nr_hugepages by one at a time, and put it back) or kernel (mega.ko allocates)
    #[arg(long, value_name = "HOW", default_value = "fault")]
    pub how: How,

    /// The same as --how kernel
    #[arg(long, conflicts_with = "how")]
    pub kernel: bool,

    /// kernel: chunks of 2^N base pages
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = parse_order)]
    pub order: u32,

    /// kernel: how hard each allocation tries, joined by commas: reclaim, kswapd, retry,
    /// movable, zero; or none. The default is what a huge fault does with defrag=always
    #[arg(long, value_name = "FLAGS", default_value = "reclaim,movable")]
    pub flags: ProbeFlags,

    /// How many (default: until there are none)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Touch the same amount as base pages afterwards, for comparison
    #[arg(long)]
    pub base: bool,

    /// Draw the latencies into this file as well
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega compact`
#[derive(Debug, Args)]
#[command(
    after_help = "Planners say how many: mega 200 MB a pass, ingens 100 MB of each fragmented zone, demand (with --watch)
as many as huge faults asked for. Ways to make them:
  chosen     mega.ko empties the blocks that the planner ranks highest
  node       the kernel's own compaction, ended once there are enough
  proactive  vm.compaction_proactiveness raised for a moment; kcompactd does it
  pool       nr_hugepages raised step by step, and lowered again
  offline    128 MB of memory taken offline and online again
  collapse   memory of our own collapsed and freed
docs/compaction.md compares them. What a way changes is put back, also at Ctrl-C; after kill -9
by the next start or `mega off`. What is on the processors' own free lists (Linux 6.7 and later)
becomes blocks within about ten seconds."
)]
pub struct CompactArgs {
    /// Size of the blocks to make at most, in each pass (default: the planner's)
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,

    /// Who says how many: mega, ingens or demand, with parameters as in
    /// ingens:fragmentation=80%
    #[arg(long, value_name = "PLANNER", default_value = "mega")]
    pub planner: String,

    /// How to make them: auto (chosen if mega.ko is loaded, else node), chosen, node,
    /// proactive, pool, offline or collapse
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_way)]
    pub how: MadeBy,

    /// Time that one pass may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval)]
    pub time: Duration,

    /// Again and again, every 5 s or this often, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// As JSON, a line for each pass
    #[arg(long)]
    pub json: bool,
}

/// `mega workload`
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// Name and options
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

fn parse_rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err("expected 1 to 1000".to_string()),
    }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=100.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.001 to 100".to_string()),
    }
}

fn parse_keep(text: &str) -> Result<Share, String> {
    let share: Share = text.parse().map_err(|e: mega_core::units::UnitError| e.to_string())?;
    if share == Share::ZERO || share == Share::FULL {
        return Err("keeping all or nothing fragments nothing".to_string());
    }
    Ok(share)
}

fn made_by(text: &str, ways: &[Way]) -> Result<MadeBy, String> {
    if text == "auto" {
        return Ok(MadeBy::Auto);
    }
    let found = ways.iter().find(|way| way.word() == text);
    found.map(|way| MadeBy::Only(*way)).ok_or_else(|| {
        let words: Vec<_> = ways.iter().map(|way| way.word()).collect();
        format!("expected one of auto, {}", words.join(", "))
    })
}

fn parse_way(text: &str) -> Result<MadeBy, String> {
    made_by(text, &Way::ALL)
}

/// Others change settings, or take what is free.
fn parse_stock_way(text: &str) -> Result<MadeBy, String> {
    made_by(text, &[Way::Chosen, Way::Node])
}

fn parse_order(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(order @ 0..=20) => Ok(order),
        _ => Err("expected an order: 0 for 4K, 9 for 2M".to_string()),
    }
}

fn parse_target(text: &str) -> Result<MapTarget, String> {
    match (text, text.parse::<u32>()) {
        ("phys", _) => Ok(MapTarget::Phys),
        (_, Ok(pid)) if (1..=i32::MAX as u32).contains(&pid) => Ok(MapTarget::Process(pid)),
        _ => Err("neither 'phys' nor a PID".to_string()),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(10);
    let time = parse_duration(text).map_err(|e| e.to_string())?;
    if time < least {
        return Err(format!("'{text}' is too short: at least {}", show_duration(least)));
    }
    Ok(time)
}

fn parse_budget(text: &str) -> Result<Share, String> {
    let share: Share = text.parse().map_err(|e: mega_core::units::UnitError| e.to_string())?;
    if share == Share::ZERO {
        return Err("a budget of nothing allows nothing (--dry-run acts on nothing)".to_string());
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_after_the_dashes_is_left_alone() {
        let cli = Cli::try_parse_from(["mega", "run", "--interval", "1s", "--", "sh", "-c", "x", "--policy"]).unwrap();
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.command, ["sh", "-c", "x", "--policy"]);
        assert_eq!(run.options.interval, Duration::from_secs(1));
    }

    #[test]
    fn a_recording_is_of_one_thing() {
        let parses = |args: &[&str]| Cli::try_parse_from([&["mega", "record"], args].concat()).is_ok();
        for good in [
            &["-o", "f", "1", "2"][..],
            &["-o", "f", "--", "sh", "-c", "x"],
            &["-o", "f", "--workload", "gups", "--options", "{}"],
            &["-o", "f", "--import", "lackey", "in"],
            &["--export", "f.parquet", "f"],
            &["--info", "f", "--json"],
        ] {
            assert!(parses(good), "{good:?}");
        }
        for bad in [
            &[][..],
            &["-o", "f"],
            &["1"],
            &["-o", "f", "0"],
            &["-o", "f", "1", "--", "true"],
            &["-o", "f", "1", "--workload", "gups"],
            &["-o", "f", "1", "--options", "{}"],
            &["-o", "f", "--import", "lackey"],
            &["-o", "f", "--info", "f"],
            &["--export", "f"],
            &["--info", "f", "1"],
            &["-o", "f", "1", "--interval", "1ms"],
            &["-o", "f", "1", "--json"],
        ] {
            assert!(!parses(bad), "{bad:?}");
        }
        assert!(Cli::try_parse_from(["mega", "replay", "f", "--set", "n=1"]).is_err());
    }

    #[test]
    fn a_map_is_of_physical_memory_or_of_a_process_and_watches_every_two_seconds() {
        let map = |args: &[&str]| match Cli::try_parse_from([&["mega", "map"], args].concat()).unwrap().command {
            Command::Map(args) => args,
            other => panic!("{other:?}"),
        };
        assert_eq!(map(&["phys"]).target, MapTarget::Phys);
        assert_eq!(
            (map(&["42"]).target, map(&["42"]).watch),
            (MapTarget::Process(42), None)
        );
        assert_eq!(map(&["--watch", "phys"]).watch, Some(Duration::from_secs(2)));
        assert_eq!(map(&["phys", "--watch=500ms"]).watch, Some(Duration::from_millis(500)));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [
            ["--interval", "0"],
            ["--interval", "0s"],
            ["--interval", "1ms"],
            ["--stall-budget", "0%"],
            ["--stall-budget", "101%"],
            ["--cpu-budget", "x"],
            ["--free-blocks", "-1"],
            ["--free-blocks", "99999999999999999999"],
            ["--duration", "9e99s"],
            ["--fault-size", "8K"],
            ["--scanner", "guess"],
        ] {
            let args = ["mega", "manage", bad[0], bad[1], "1"];
            assert!(Cli::try_parse_from(args).is_err(), "{bad:?}");
        }
        for bad in [
            ["frag", "--kind", "dust"],
            ["frag", "--amount", "-1G"],
            ["frag", "--keep", "0%"],
            ["frag", "--keep", "100%"],
            ["frag", "--target", "101%"],
            ["frag", "--hold", "0s"],
            ["hog", "--how", "magic"],
            ["hog", "--count", "0"],
            ["compact", "--how", "guessed"],
            ["manage", "--compact-how=pool", "1"],
            ["hog", "--order", "-1"],
            ["hog", "--flags", "hard"],
            ["hog", "--kernel", "--how=fault"],
            ["compact", "--budget", "-1"],
            ["compact", "--time", "0s"],
            ["compact", "--watch=0s", "--json"],
        ] {
            assert!(
                Cli::try_parse_from(["mega", bad[0], bad[1], bad[2]]).is_err(),
                "{bad:?}"
            );
        }
        for target in ["0", "-1", "Phys", "99999999999", ""] {
            assert!(Cli::try_parse_from(["mega", "map", "--", target]).is_err(), "{target}");
        }
        assert!(Cli::try_parse_from(["mega", "map", "phys", "--every", "0"]).is_err());
        assert!(Cli::try_parse_from(["mega", "map", "phys", "--watch=0s"]).is_err());
        assert!(Cli::try_parse_from(["mega", "manage", "0"]).is_err());
        assert!(Cli::try_parse_from(["mega", "manage", "-1"]).is_err());
        assert!(Cli::try_parse_from(["mega", "run"]).is_err());
    }
}
