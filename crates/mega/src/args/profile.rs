//! Options of `mega profile`.

use clap::{Args, Subcommand};

/// `mega profile`
#[derive(Debug, Args)]
#[command(
    after_help = "`mega run` keeps how densely a program filled its memory, by the program's build ID, and the agent \
begins its next run with that. Profiles are in /var/lib/mega/profiles (root), or in mega/profiles below \
$XDG_STATE_HOME or ~/.local/state; MEGA_PROFILES names another folder."
)]
pub struct ProfileArgs {
    /// What to do with them
    #[command(subcommand)]
    pub action: ProfileAction,
}

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileAction {
    /// List them, those that ran last first
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a program's, and what its next run makes of it
    Show {
        /// A name, or the beginning of a build ID
        #[arg(value_name = "PROGRAM")]
        program: String,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove programs', or all
    Forget {
        /// Names, or beginnings of build IDs
        #[arg(value_name = "PROGRAM", required_unless_present = "all", conflicts_with = "all")]
        programs: Vec<String>,

        /// All of them
        #[arg(long)]
        all: bool,
    },
}
