//! The command line: every option once, with its help.
//!
//! Uses nothing else of this crate: `crates/pages` compiles this folder, too, for man pages and completions.

mod advise;
mod agent;
mod contiguity;
mod mosaic;
mod profile;
mod record;
mod service;

pub use advise::AdviseArgs;
pub use agent::{AgentOptions, For};
pub use contiguity::{CompactArgs, MadeBy, MapArgs, MapTarget};
pub use mosaic::{MosaicAction, MosaicArgs};
pub use profile::{ProfileAction, ProfileArgs};
pub use record::{RecordArgs, ReplayArgs};
pub use service::{ConfigAction, ConfigArgs, DaemonArgs, JournalArgs, SourceArgs, StatusArgs};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use contiguity::parse_target_way;
use mega_cli::args::{parse_budget, parse_interval};
use mega_cli::hand_over::others_help;
use mega_core::compaction::planner::PLANNERS;
use mega_core::policy::POLICIES;
use mega_core::units::Share;

/// MEGA makes huge pages safe to leave on.
///
/// It watches which 2 MB regions of a program are really mapped and really used, promotes those and only those, gives
/// back what huge pages waste, and checks each of its actions by looking again. On an unmodified kernel, per process,
/// reversibly.
#[derive(Debug, Parser)]
#[command(name = "mega", version, max_term_width = 80, disable_help_subcommand = true, after_help = others_help())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report what this machine supports, who owns its THP settings, and what is missing
    Doctor(DoctorArgs),
    /// Run a command and manage it and its descendants; exit with its status
    Run(RunArgs),
    /// Attach to running processes
    Manage(ManageArgs),
    /// Show memory once: mapped, huge, wasted, by mapping and in total; changes nothing
    Show(ShowArgs),
    /// Say what huge pages are worth to a command or a running process, and what to set
    Advise(AdviseArgs),
    /// Draw physical memory, or a process's regions, as a heat map
    Map(MapArgs),
    /// Stop all managers and restore all settings
    Off(OffArgs),
    /// List the policies and their parameters
    Policies(PoliciesArgs),
    /// What was learned of programs in earlier runs
    Profile(ProfileArgs),
    /// Record scans of processes, or a program's accesses, as a trace
    Record(RecordArgs),
    /// Repeat the decisions of a full journal and compare
    Replay(ReplayArgs),
    /// Compact memory into free 2 MB blocks, once or continuously
    Compact(CompactArgs),
    /// Run a command with its memory on a chosen mix of page sizes
    Mosaic(MosaicArgs),
    /// Manage the machine's processes by rules
    Daemon(DaemonArgs),
    /// What the daemon does: rules, processes, the last reload
    Status(StatusArgs),
    /// What the daemon decided and did, and why not
    Journal(JournalArgs),
    /// Check, show or describe the configuration of the daemon
    Config(ConfigArgs),
    /// A command of mega-lab, or a program mega-NAME.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
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

/// How to read page tables.
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
    #[arg(long, value_name = "NAME", default_value = "auto", help = policy_help())]
    pub policy: String,

    /// Set a parameter of the policy; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Time between scans
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Maximum share of time that a program may be stalled by our actions (default: the
    /// policy's, 5%)
    #[arg(long, value_name = "SHARE", value_parser = parse_budget)]
    pub stall_budget: Option<Share>,

    /// Maximum share of one processor for scanning and acting
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_budget)]
    pub cpu_budget: Share,

    /// Do not promote while less than this share of memory is available, on the
    /// machine or on the NUMA node it would come from
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub free_memory: Share,

    /// Do not promote while fewer 2 MB blocks than this are free; each NUMA node
    /// keeps its part of them
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub free_blocks: u64,

    /// Neither promote nor clear accessed bits while memory pressure exceeds this (PSI
    /// some, last 10 s)
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    pub pressure: Share,

    #[arg(long, value_name = "PLANNER|off", default_value = "demand", help = planner_help())]
    pub compact: String,

    /// What selects the blocks to evacuate: chosen (the planner; mega.ko moves the
    /// pages), node (the kernel), or auto: chosen where mega.ko is loaded
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_target_way)]
    pub compact_how: MadeBy,

    /// Stop managing after this time
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub duration: Option<Duration>,

    /// What a page fault maps: changes the machine's mTHP settings while managing, then
    /// restores them (default: unchanged)
    #[arg(long, value_name = "SIZE", ignore_case = true)]
    pub fault_size: Option<FaultSize>,

    /// Write every decision and outcome to this file, a line each (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Journal observations as well, so that `mega replay` can repeat the decisions
    #[arg(long, requires = "journal")]
    pub journal_full: bool,

    /// Journal and summary as JSON
    #[arg(long)]
    pub json: bool,

    /// Log decisions only: no action, no setting changed
    #[arg(long)]
    pub dry_run: bool,

    /// Never read the contents of huge pages: nothing that they waste is found or given back
    #[arg(long)]
    pub no_contents: bool,

    /// How to read page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,

    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Print decisions and actions as they happen
    #[arg(short, long)]
    pub verbose: bool,
}

/// `mega run`
#[derive(Debug, Args)]
#[command(
    after_help = "Manages until the last descendant of the command has exited, daemons included.\n\
Exits with the command's own status; 125: mega itself failed, 126: the command cannot be\n\
executed, 127: not found."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub options: ManageOptions,

    /// Run the command as this user (name or number), with its groups, HOME, USER and LOGNAME; mega itself stays root
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,

    #[command(flatten)]
    pub agent: AgentOptions,

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

    #[command(flatten)]
    pub intent: For,

    /// Processes to manage, with their descendants
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// Processes whose command name matches this regular expression
    #[arg(long, value_name = "RE")]
    pub comm: Option<String>,

    /// Processes of this control group and its descendants
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Processes of this systemd unit
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
}

/// `mega show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Processes to show
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// Mappings to list, largest first (0: all)
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub top: usize,

    /// How to read page tables
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

/// The policies as the code has them.
fn policy_help() -> String {
    let names: Vec<_> = POLICIES.iter().map(|(name, _)| *name).collect();
    format!("Policy: {} (see `mega policies`)", listed(&names))
}

/// The planners as the code has them.
fn planner_help() -> String {
    let names: Vec<_> = PLANNERS.iter().map(|(name, _)| *name).collect();
    format!(
        "Compact proactively, so that promotions avoid direct compaction: planner {}, with parameters as in \
         demand:reserve=64M,interval=1s; or off",
        listed(&names)
    )
}

/// `a, b or c`
fn listed(names: &[&str]) -> String {
    match names {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        _ => names.concat(),
    }
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
            ["compact", "--how", "guessed"],
            ["manage", "--compact-how=pool", "1"],
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
