//! The command line of `mega mosaic`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mega_cli::mosaic::{parse_reserve, Reserve};
use memomania_layout::settings::{Fallback, Fork};

/// What happens when pages of the wanted size are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MosaicFallback {
    /// The program is told that it is out of memory.
    Fail,
    /// The next smaller size, and a note.
    Smaller,
}

impl From<MosaicFallback> for Fallback {
    fn from(fallback: MosaicFallback) -> Self {
        match fallback {
            MosaicFallback::Fail => Self::Fail,
            MosaicFallback::Smaller => Self::Smaller,
        }
    }
}

/// What happens to hugetlb pages at a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MosaicFork {
    /// Copied; shared instead where that is many pages and three times as many are free.
    Auto,
    /// The child has a copy on base pages.
    Copy,
    /// Shared; a child may be killed when pages are short.
    Share,
}

impl From<MosaicFork> for Fork {
    fn from(fork: MosaicFork) -> Self {
        match fork {
            MosaicFork::Auto => Self::Auto,
            MosaicFork::Copy => Self::Copy,
            MosaicFork::Share => Self::Share,
        }
    }
}

/// `mega mosaic`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "A LAYOUT is a list of SIZE[@OFFSET][+LENGTH] with SIZE 4K, 2M, 2M:thp or 1G:
1G@0,2M is the first gigabyte on a 1 GB page and the rest on 2 MB pages; what
no interval covers has base pages. 2M and 1G come from hugetlb; 2M:thp is
aligned memory with advice. Options come before the environment
(MEGA_MOSAIC_HEAP, _ANON, _HEAP_SIZE, _ANON_SIZE, _FALLBACK, _FORK, _DEMOTE,
_INHERIT, _REPORT), and that before the file. See docs/memomania.md for details.
Exits with the command's own status; 125: mega itself failed, 126: the command
cannot be executed, 127: not found."
)]
pub struct MosaicArgs {
    /// A subcommand instead of running a command once
    #[command(subcommand)]
    pub action: Option<MosaicAction>,

    /// Pages of malloc and brk
    #[arg(long, value_name = "LAYOUT")]
    pub heap: Option<String>,

    /// Pages of anonymous private mappings
    #[arg(long, value_name = "LAYOUT")]
    pub anon: Option<String>,

    /// Address space of the heap (default: twice the memory)
    #[arg(long, value_name = "SIZE")]
    pub heap_size: Option<String>,

    /// Address space of anonymous mappings (default: twice the memory)
    #[arg(long, value_name = "SIZE")]
    pub anon_size: Option<String>,

    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// When pages are short (default: smaller)
    #[arg(long, value_name = "HOW")]
    pub fallback: Option<MosaicFallback>,

    /// What a forked child does with hugetlb pages (default: auto)
    #[arg(long, value_name = "HOW")]
    pub fork: Option<MosaicFork>,

    /// Never replace a hugetlb page by base pages while the program uses it: for memory
    /// that is pinned (io_uring buffers, RDMA, VFIO). What needs it fails with ENOMEM
    #[arg(long)]
    pub no_demote: bool,

    /// Leave programs alone that the command executes
    #[arg(long)]
    pub no_inherit: bool,

    /// Reserve hugetlb pages for the run, and put that back: as many as the layouts
    /// state, or so many, as in --reserve=2M=512M,1G=2G
    #[arg(long, value_name = "SIZE=AMOUNT", num_args = 0..=1, require_equals = true, default_missing_value = "",
        value_parser = parse_reserve)]
    pub reserve: Option<Reserve>,

    /// Say in the end what each process had
    #[arg(long)]
    pub report: bool,

    /// Have each process append a line of JSON to this file when it ends (`-`: standard
    /// error)
    #[arg(long, value_name = "FILE")]
    pub report_file: Option<PathBuf>,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// What `mega mosaic` can do besides.
#[derive(Debug, Subcommand)]
pub enum MosaicAction {
    /// Find out which part of a command's memory gains from large pages (needs mega-lab)
    #[command(disable_help_flag = true)]
    Explore {
        /// For mega-lab.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}
