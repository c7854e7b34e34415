//! Options of `mega daemon`, `mega config`, `mega status` and `mega journal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Which configuration.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// Read this file alone instead of /etc/mega, /run/mega and /usr/lib/mega
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub config: Option<PathBuf>,

    /// Look for those folders below this one
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}

/// `mega config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What `mega config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Name every mistake, with file, line and column; exit with 1 if there is any
    Check {
        /// This file alone
        #[arg(value_name = "FILE", conflicts_with_all = ["config", "root"])]
        file: Option<PathBuf>,
        #[command(flatten)]
        source: SourceArgs,
    },
    /// Print what is in force and which file each value comes from
    Show {
        #[command(flatten)]
        source: SourceArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the presets: what each sets, and why
    Presets {
        /// Only this one
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what each key means: docs/configuration.md
    Describe {
        /// The presets instead: the end of docs/presets.md
        #[arg(long)]
        presets: bool,
    },
}

/// `mega daemon`
#[derive(Debug, Args)]
#[command(
    after_help = "SIGHUP reads the configuration again; a wrong one is refused and the old one stays in force.\n\
SIGTERM ends it: processes go on, unmanaged."
)]
pub struct DaemonArgs {
    #[command(flatten)]
    pub source: SourceArgs,
}

/// `mega status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega journal`
#[derive(Debug, Args)]
pub struct JournalArgs {
    /// Go on with new lines as they come
    #[arg(short, long)]
    pub follow: bool,

    /// Only the last so many lines (default: all; with --follow 10)
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,

    /// Lines of this rule
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,

    /// Lines of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Lines of this event (outcome, defer, found, reload, …); may be given more than once
    #[arg(long = "event", value_name = "EVENT")]
    pub events: Vec<String>,

    /// As JSON, a line each
    #[arg(long)]
    pub json: bool,

    /// The journal's file (default: what the configuration says)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "root"])]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub source: SourceArgs,
}
