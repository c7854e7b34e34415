//! Options of `mega daemon`, `mega config` and `mega status`.

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
    /// Print what each key means: docs/configuration.md
    Describe,
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
