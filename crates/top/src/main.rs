//! The program `mega-top`, which `mega top` runs.

mod screen;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::Parser;
use mega_cli::args::parse_interval;
use mega_cli::exit::{usage_status, Failure};
use mega_core::units::Bytes;
use mega_top::figures::Column;
use mega_top::look::{Looker, Subject};
use mega_top::once;
use mega_top::state::{Level, State};

/// Watch services, their processes and regions, live
///
/// Changes nothing. What only root may see is shown as '?'. Press ? for the keys.
#[derive(Debug, Parser)]
#[command(name = "mega-top", bin_name = "mega top", version, max_term_width = 80)]
struct Args {
    /// Show these processes; all services without
    pids: Vec<u32>,
    /// Time between looks; longer where looking would take more than a tenth of it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Of all processes, show those with so much resident, and those of the daemon
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    min_resident: Bytes,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN", default_value = "resident", value_parser = PossibleValuesParser::new(Column::ALL.map(Column::name)))]
    sort: String,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    /// Print once as JSON and exit
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => Failure::status(run(args), Failure::FAILED),
        Err(error) => {
            let _ = error.print();
            usage_status(&error, false)
        }
    }
}

fn run(args: Args) -> Result<()> {
    let level = if args.pids.is_empty() {
        Level::Services
    } else {
        Level::Processes(None)
    };
    let mut state = State::new(level, Column::named(&args.sort).unwrap_or(Column::Resident));
    let subject = Subject {
        pids: args.pids,
        min_resident: args.min_resident,
        interval: args.interval,
    };
    if args.once || args.json {
        let look = Looker::new(subject).look(None);
        let mut out = std::io::stdout().lock();
        if args.json {
            writeln!(out, "{}", once::json(&look))?;
        } else {
            state.take(look);
            write!(out, "{}", once::text(&state, 120))?;
        }
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "mega top needs a terminal; --once and --json print without",
        ));
    }
    screen::run(state, subject)
}
