//! The `mega-lab` command: one file or folder per subcommand in `cmd/`.

mod args;
mod bench;
mod cmd;
mod contiguity;

use clap::Parser;
use mega_cli::exit::{self, Failure};

use args::{Cli, Command, MosaicAction};

fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return exit::usage_status(&error, false);
        }
    };
    let result = match cli.command {
        Command::Demo(args) => cmd::demo::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Frag(args) => cmd::frag::run(&args),
        Command::Hog(args) => cmd::hog::run(&args),
        Command::Mosaic(args) => match &args.action {
            MosaicAction::Explore(args) => cmd::explore::run(args),
        },
        Command::Record(args) => cmd::record::run(&args),
        Command::Workload(args) => return cmd::workload::run(&args),
        Command::Png(args) => cmd::png::run(&args),
    };
    Failure::status(result, Failure::FAILED)
}
