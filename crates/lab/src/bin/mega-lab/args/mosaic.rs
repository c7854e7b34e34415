//! The command line of `mega mosaic explore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mega_cli::mosaic::{parse_reserve, Reserve};
use memomania_layout::page::Kind;

/// `mega mosaic`, as far as it is the lab's
#[derive(Debug, Args)]
pub struct MosaicArgs {
    #[command(subcommand)]
    pub action: MosaicAction,
}

/// The lab's subcommand of `mega mosaic`.
#[derive(Debug, Subcommand)]
pub enum MosaicAction {
    /// Find out which part of a command's memory gains from large pages
    Explore(ExploreArgs),
}

/// Large pages to explore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplorePages {
    /// Transparent huge pages.
    #[value(name = "2M:thp")]
    Thp,
    /// 2 MB pages of hugetlb.
    #[value(name = "2M")]
    Huge,
    /// 1 GB pages of hugetlb.
    #[value(name = "1G")]
    Gigantic,
}

impl From<ExplorePages> for Kind {
    fn from(pages: ExplorePages) -> Self {
        match pages {
            ExplorePages::Thp => Self::Thp,
            ExplorePages::Huge => Self::Huge,
            ExplorePages::Gigantic => Self::Gigantic,
        }
    }
}

/// `mega mosaic explore`
#[derive(Debug, Args)]
#[command(
    after_help = "Runs the command under each layout of a plan, with input and output discarded,
and fits a model of its run time. Each run must do the same work. See
docs/memomania.md for details."
)]
pub struct ExploreArgs {
    /// The large pages; 2M and 1G are reserved for the time (root)
    #[arg(long, value_name = "SIZE", default_value = "2M:thp")]
    pub pages: ExplorePages,

    /// Windows that memory is cut into (1 to 16)
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = at_least_one)]
    pub windows: usize,

    /// Runs of each layout
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub rounds: usize,

    /// Reserve so many hugetlb pages, as in --reserve=2M=4G (default: a quarter more than the
    /// largest process used)
    #[arg(long, value_name = "SIZE=AMOUNT", require_equals = true, value_parser = parse_reserve)]
    pub reserve: Option<Reserve>,

    /// Leave programs alone that the command executes
    #[arg(long)]
    pub no_inherit: bool,

    /// Show the command's output
    #[arg(long)]
    pub show_output: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write a page with plots, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1000) => Ok(number),
        _ => Err("expected a number from 1 to 1000".to_owned()),
    }
}
