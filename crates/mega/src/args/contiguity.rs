//! The command lines of what shows and makes contiguous memory: `mega map`, `mega compact`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mega_cli::args::parse_interval;
use mega_core::compaction::planner::PLANNERS;
use mega_core::units::Bytes;
use mega_linux::compact::Way;

use super::{listed, ScannerChoice};

/// How memory is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    /// Chosen blocks where mega.ko is loaded, else the kernel's choice.
    Auto,
    /// In this way or not at all.
    Only(Way),
}

/// What `mega map` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapTarget {
    /// Physical memory.
    Phys,
    /// This process's.
    Process(u32),
}

/// `mega map`
#[derive(Debug, Args)]
#[command(
    after_help = "phys needs root: it reads /proc/kpageflags, at about 20 ms per GB. Above 32 GB it\n\
samples evenly spaced blocks and says how many."
)]
pub struct MapArgs {
    /// `phys` for physical memory, or a process
    #[arg(value_name = "phys|PID", value_parser = parse_target)]
    pub target: MapTarget,

    /// Draw into this file: .svg, or .png (needs mega-lab)
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,

    /// Redraw at this interval, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// phys: read every n-th block (default: all of up to 32 GB)
    #[arg(long, value_name = "N")]
    pub every: Option<NonZeroU32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// PID: how to read page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,
}

/// `mega compact`
#[derive(Debug, Args)]
#[command(after_help = "Planners set how many blocks: mega 200 MB per pass, ingens 100 MB per
fragmented zone, demand (with --watch) as many as huge page faults asked for.
Ways of compacting:
  chosen     mega.ko evacuates the blocks that the planner ranks highest
  node       the kernel's own compaction, stopped at the target
  proactive  vm.compaction_proactiveness raised for a moment; kcompactd compacts
  pool       nr_hugepages raised step by step, and lowered again
  offline    128 MB of memory taken offline and online again
  collapse   our own memory collapsed and freed
docs/compaction.md compares them. Settings that a way changes are restored, also
at Ctrl-C; after kill -9 by the next start or `mega off`. Pages on per-CPU free
lists (Linux 6.7 and later) become blocks within about ten seconds.")]
pub struct CompactArgs {
    /// Maximum size of the blocks to free in each pass (default: the planner's)
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,

    #[arg(long, value_name = "PLANNER", default_value = "mega", help = planner_help())]
    pub planner: String,

    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_way, help = way_help())]
    pub how: MadeBy,

    /// Time limit of one pass
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval)]
    pub time: Duration,

    /// Repeat every 5 s, or this often, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// Print the plan only
    #[arg(long)]
    pub dry_run: bool,

    /// As JSON, a line for each pass
    #[arg(long)]
    pub json: bool,
}

fn parse_target(text: &str) -> Result<MapTarget, String> {
    match (text, text.parse::<u32>()) {
        ("phys", _) => Ok(MapTarget::Phys),
        (_, Ok(pid)) if (1..=i32::MAX as u32).contains(&pid) => Ok(MapTarget::Process(pid)),
        _ => Err("neither 'phys' nor a PID".to_string()),
    }
}

fn made_by(text: &str, ways: &[Way]) -> Result<MadeBy, String> {
    if text == "auto" {
        return Ok(MadeBy::Auto);
    }
    let found = ways.iter().find(|way| way.word() == text);
    found.map(|way| MadeBy::Only(*way)).ok_or_else(|| {
        let words: Vec<_> = ways.iter().map(|way| way.word()).collect();
        format!("expected one of auto, {}", words.join(", "))
    })
}

fn parse_way(text: &str) -> Result<MadeBy, String> {
    made_by(text, &Way::ALL)
}

/// For the free-block target of a manager: the other ways change settings, or take free memory.
pub(super) fn parse_target_way(text: &str) -> Result<MadeBy, String> {
    made_by(text, &[Way::Chosen, Way::Node])
}

fn planner_help() -> String {
    let names: Vec<_> = PLANNERS.iter().map(|(name, _)| *name).collect();
    format!(
        "What sets how many: {}, with parameters as in ingens:fragmentation=80%",
        listed(&names)
    )
}

fn way_help() -> String {
    let words: Vec<_> = Way::ALL.iter().map(|way| way.word()).collect();
    format!(
        "How to compact: auto (chosen if mega.ko is loaded, else node), {}",
        listed(&words)
    )
}
