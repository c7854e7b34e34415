//! The `mega` command: one file per subcommand in `cmd/`.

mod args;
mod bench;
mod children;
mod cmd;
mod contiguity;
mod draw;
mod exit;
mod manage;
mod output;
mod status;
mod text;

use clap::Parser;

use args::{Cli, Command};
use exit::Failure;

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
        Command::Map(args) => cmd::map::run(&args),
        Command::Off(args) => cmd::off::run(&args),
        Command::Policies(args) => cmd::policies::run(&args),
        Command::Record(args) => return cmd::record::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Demo(args) => cmd::demo::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Mosaic(args) => return cmd::mosaic::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Workload(args) => return cmd::workload::run(&args),
        Command::Frag(args) => cmd::frag::run(&args),
        Command::Hog(args) => cmd::hog::run(&args),
        Command::Compact(args) => cmd::compact::run(&args),
    };
    Failure::status(result, Failure::FAILED)
}
