//! The command lines of what fragments and takes contiguous memory: `mega frag`, `mega hog`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mega_cli::args::parse_interval;
use mega_core::units::{Share, UnitError};
use mega_lab::contiguity::{Amount, FragKind, How, ProbeFlags};

/// `mega frag`
#[derive(Debug, Args)]
#[command(
    after_help = "Kinds: study takes base pages and frees 3/4 of the pages of each 2 MB (the allocation-latency
study); reserve takes huge pages and frees half of each (LRBHPS, Quicksilver); holes takes
base pages and frees every other 1 MB (MEGA). What is kept is filled with known content and
checked while it is held. kcompactd moves it together again within seconds unless --pin-pages
keeps it. Ctrl-C frees all at once. At least 1 GB and 5% of memory always stay available."
)]
pub struct FragArgs {
    /// How to fragment: study, reserve or holes
    #[arg(long, value_name = "KIND", default_value = "study")]
    pub kind: FragKind,

    /// Memory to allocate before parts of it are freed: a size, or a share of what is
    /// available (default: 7/8 of it, up to the limit; with --target, huge page by huge
    /// page)
    #[arg(long, value_name = "SIZE|SHARE")]
    pub amount: Option<Amount>,

    /// Share of it that is kept (default: study 25%, reserve and holes 50%)
    #[arg(long, value_name = "SHARE", value_parser = parse_keep)]
    pub keep: Option<Share>,

    /// Allocate huge pages one by one and free parts of each, until this share of free
    /// memory is unusable for huge pages
    #[arg(long, value_name = "SHARE")]
    pub target: Option<Share>,

    /// Pin the kept pages with pipes, so that compaction cannot move them
    #[arg(long)]
    pub pin_pages: bool,

    /// Which pages are kept, and what they hold
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Free all after this time (default: at Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub hold: Option<Duration>,

    /// Time between reports of free memory while holding
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval)]
    pub refresh: Duration,

    /// As JSON, a line for each event
    #[arg(long)]
    pub json: bool,

    /// Obey commands on standard input: `check`, `quit`; its end means `quit`
    #[arg(long, hide = true, requires = "json", conflicts_with = "hold")]
    pub commands: bool,
}

/// `mega hog`
#[derive(Debug, Args)]
#[command(
    after_help = "A page counts as obtained only if the kernel really mapped a huge page. With
fault, times include zeroing; with hugetlb and kernel they do not. In a virtual
machine the first touch of memory that the host does not back costs far more
than the rest. At least 1 GB and 5% of memory always stay available."
)]
pub struct HogArgs {
    /// How to allocate: fault (touch 2 MB of MADV_HUGEPAGE memory), hugetlb (raise
    /// nr_hugepages by one at a time, and put it back) or kernel (mega.ko allocates)
    #[arg(long, value_name = "HOW", default_value = "fault")]
    pub how: How,

    /// Same as --how kernel
    #[arg(long, conflicts_with = "how")]
    pub kernel: bool,

    /// kernel: chunks of 2^N base pages
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = parse_order)]
    pub order: u32,

    /// kernel: how hard each allocation tries, joined by commas: reclaim, kswapd, retry,
    /// movable, zero; or none. The default is what a huge fault does with defrag=always
    #[arg(long, value_name = "FLAGS", default_value = "reclaim,movable")]
    pub flags: ProbeFlags,

    /// How many (default: until allocation fails)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Fault in the same amount as base pages afterwards, for comparison
    #[arg(long)]
    pub base: bool,

    /// Draw the latencies into this file as well
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_keep(text: &str) -> Result<Share, String> {
    let share: Share = text.parse().map_err(|e: UnitError| e.to_string())?;
    if share == Share::ZERO || share == Share::FULL {
        return Err("--keep must be between 0% and 100%, exclusive".to_string());
    }
    Ok(share)
}

fn parse_order(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(order @ 0..=20) => Ok(order),
        _ => Err("expected an order: 0 for 4K, 9 for 2M".to_string()),
    }
}
