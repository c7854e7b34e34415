//! The command line of the lab: every option once, with its help.
//!
//! Uses nothing else of this command: `crates/pages` compiles this folder, too, for man pages and completions.

mod bench;
mod contiguity;
mod mosaic;
mod record;
mod sim;

pub use bench::{BenchArgs, BenchOptions, DemoArgs};
pub use contiguity::{FragArgs, HogArgs};
pub use mosaic::{ExploreArgs, MosaicAction, MosaicArgs};
pub use record::RecordArgs;
pub use sim::{
    SimAccuracyArgs, SimArgs, SimCalibrateArgs, SimCommand, SimListArgs, SimMachine, SimMergeArgs, SimPaperArgs,
    SimRunArgs, SimShardArgs, SimSweepArgs,
};

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// MEGA's laboratory: experiments with huge pages, live and simulated.
///
/// `mega bench` runs `mega-lab bench` where mega-lab is beside mega or in PATH, and so for every command here.
#[derive(Debug, Parser)]
#[command(name = "mega-lab", version, max_term_width = 80, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare a store of a few GB on base pages, under THP, and managed
    Demo(DemoArgs),
    /// Run experiments: what huge pages do to a program, under which policy, at what cost
    Bench(BenchArgs),
    /// Simulate any policy on any machine; the same figures each time
    Sim(SimArgs),
    /// Fragment free memory on purpose, until Ctrl-C
    Frag(FragArgs),
    /// Allocate huge pages to exhaustion; report latencies
    Hog(HogArgs),
    /// Explore mixtures of page sizes
    Mosaic(MosaicArgs),
    /// Record a built-in program, or export a trace (`mega record` hands these over)
    #[command(hide = true)]
    Record(RecordArgs),
    /// Run one of the lab's workloads (used by the demonstration, tests and benchmarks)
    #[command(hide = true)]
    Workload(WorkloadArgs),
    /// Write the picture on standard input as PNG (used by `mega map -o FILE.png`)
    #[command(hide = true)]
    Png(PngArgs),
}

/// `mega-lab workload`
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// Name and options
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// `mega-lab png`
#[derive(Debug, Args)]
pub struct PngArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub output: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use mega_cli::hand_over::{is_of_lab, LAB_COMMANDS};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mega_lists_exactly_what_there_is_here() {
        let mut here = Vec::new();
        for command in Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
            match command.get_name() {
                "mosaic" => here.extend(
                    command
                        .get_subcommands()
                        .map(|part| (format!("mosaic {}", part.get_name()), about(part))),
                ),
                name => here.push((name.to_string(), about(command))),
            }
        }
        let listed = LAB_COMMANDS.map(|(name, about)| (name.to_string(), about.to_string()));
        assert_eq!(here, listed);
        assert!(Cli::command().find_subcommand("workload").is_some() && is_of_lab("workload"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [
            ["frag", "--kind", "dust"],
            ["frag", "--amount", "-1G"],
            ["frag", "--keep", "0%"],
            ["frag", "--keep", "100%"],
            ["frag", "--target", "101%"],
            ["frag", "--hold", "0s"],
            ["hog", "--how", "magic"],
            ["hog", "--count", "0"],
            ["hog", "--order", "-1"],
            ["hog", "--flags", "hard"],
            ["hog", "--kernel", "--how=fault"],
        ] {
            assert!(
                Cli::try_parse_from(["mega-lab", bad[0], bad[1], bad[2]]).is_err(),
                "{bad:?}"
            );
        }
    }
}
