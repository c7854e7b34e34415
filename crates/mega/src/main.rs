//! The `mega` command: one file per subcommand in `cmd/`.

mod advise;
mod agent;
mod args;
mod children;
mod cmd;
mod draw;
mod manage;
mod output;
mod reserve;
mod service;
mod status;

use std::ffi::{OsStr, OsString};

use clap::Parser;
use mega_cli::exit::{self, Failure};
use mega_cli::hand_over;

use args::{Cli, Command};

fn main() -> std::process::ExitCode {
    // `mega run` and `mega mosaic` keep 1 and 2 for the program's own use, as coreutils' timeout and env do.
    let word = |index| std::env::args_os().nth(index).unwrap_or_default();
    let is_run = word(1) == "run" || word(1) == "mosaic" && word(2) != "explore";
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return exit::usage_status(&error, is_run);
        }
    };
    let result = match cli.command {
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Run(args) => return cmd::run::run(args),
        Command::Manage(args) => cmd::manage::run(args),
        Command::Show(args) => cmd::show::run(&args),
        Command::Advise(args) => cmd::advise::run(&args),
        Command::Map(args) => cmd::map::run(&args),
        Command::Off(args) => cmd::off::run(&args),
        Command::Policies(args) => cmd::policies::run(&args),
        Command::Profile(args) => cmd::profile::run(&args),
        Command::Record(args) => return cmd::record::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Mosaic(args) => return cmd::mosaic::run(&args),
        Command::Other(words) => {
            return hand_over::run_command(words.first().map_or(OsStr::new(""), OsString::as_os_str))
        }
        Command::Daemon(args) => cmd::daemon::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Journal(args) => cmd::journal::run(&args),
        Command::Config(args) => cmd::config::run(&args),
        Command::Compact(args) => cmd::compact::run(&args),
    };
    Failure::status(result, Failure::FAILED)
}
