//! The command lines of what shows, makes and takes contiguous memory: `mega map`, `mega frag`, `mega hog`, `mega compact`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mega_core::units::{Bytes, Share};
use mega_lab::contiguity::{Amount, FragKind, How, ProbeFlags};
use mega_linux::compact::Way;

use super::{parse_interval, ScannerChoice};

/// How free blocks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    /// Chosen ones where mega.ko is loaded, by the kernel's choice where not.
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
    after_help = "phys needs root: /proc/kpageflags says what every page is. It costs about 20 ms per GB; of more \
than 32 GB,\nevenly spaced blocks are read and the output says how many."
)]
pub struct MapArgs {
    /// `phys` for physical memory, or a process
    #[arg(value_name = "phys|PID", value_parser = parse_target)]
    pub target: MapTarget,

    /// Draw into this file: .svg or .png
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,

    /// Draw again and again, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// phys: read every n-th block (default: all of up to 32 GB)
    #[arg(long, value_name = "N")]
    pub every: Option<NonZeroU32>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// PID: how to look at page tables
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub scanner: ScannerChoice,
}

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

    /// Memory to take before parts of it are freed: a size, or a share of what is
    /// available (default: 7/8 of it, or what may be taken; with --target, all of
    /// it one after the other)
    #[arg(long, value_name = "SIZE|SHARE")]
    pub amount: Option<Amount>,

    /// Share of it that is kept (default: study 25%, reserve and holes 50%)
    #[arg(long, value_name = "SHARE", value_parser = parse_keep)]
    pub keep: Option<Share>,

    /// Take huge pages one by one, and free parts of each, until this share of free
    /// memory is of no use for huge pages
    #[arg(long, value_name = "SHARE")]
    pub target: Option<Share>,

    /// Have pipes hold what is kept, so that compaction cannot move it
    #[arg(long)]
    pub pin_pages: bool,

    /// Which pages are kept, and what they hold
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Free all after this time (default: at Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub hold: Option<Duration>,

    /// Time between looks at free memory while holding
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
    after_help = "A huge page that the kernel did not give counts as not obtained, whatever the call said. With
fault, times include zeroing; with hugetlb and kernel they do not. On a virtual machine the first touch
of memory that the host does not back costs much more than the rest. At least 1 GB and 5% of
memory always stay available."
)]
pub struct HogArgs {
    /// How to take them: fault (touch 2 MB of MADV_HUGEPAGE memory), hugetlb (raise
    /// nr_hugepages by one at a time, and put it back) or kernel (mega.ko allocates)
    #[arg(long, value_name = "HOW", default_value = "fault")]
    pub how: How,

    /// The same as --how kernel
    #[arg(long, conflicts_with = "how")]
    pub kernel: bool,

    /// kernel: chunks of 2^N base pages
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = parse_order)]
    pub order: u32,

    /// kernel: how hard each allocation tries, joined by commas: reclaim, kswapd, retry,
    /// movable, zero; or none. The default is what a huge fault does with defrag=always
    #[arg(long, value_name = "FLAGS", default_value = "reclaim,movable")]
    pub flags: ProbeFlags,

    /// How many (default: until there are none)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Touch the same amount as base pages afterwards, for comparison
    #[arg(long)]
    pub base: bool,

    /// Draw the latencies into this file as well
    #[arg(short, long, value_name = "FILE.svg")]
    pub output: Option<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `mega compact`
#[derive(Debug, Args)]
#[command(
    after_help = "Planners say how many: mega 200 MB a pass, ingens 100 MB of each fragmented zone, demand (with --watch)
as many as huge faults asked for. Ways to make them:
  chosen     mega.ko empties the blocks that the planner ranks highest
  node       the kernel's own compaction, ended once there are enough
  proactive  vm.compaction_proactiveness raised for a moment; kcompactd does it
  pool       nr_hugepages raised step by step, and lowered again
  offline    128 MB of memory taken offline and online again
  collapse   memory of our own collapsed and freed
docs/compaction.md compares them. What a way changes is put back, also at Ctrl-C; after kill -9
by the next start or `mega off`. What is on the processors' own free lists (Linux 6.7 and later)
becomes blocks within about ten seconds."
)]
pub struct CompactArgs {
    /// Size of the blocks to make at most, in each pass (default: the planner's)
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,

    /// Who says how many: mega, ingens or demand, with parameters as in
    /// ingens:fragmentation=80%
    #[arg(long, value_name = "PLANNER", default_value = "mega")]
    pub planner: String,

    /// How to make them: auto (chosen if mega.ko is loaded, else node), chosen, node,
    /// proactive, pool, offline or collapse
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = parse_way)]
    pub how: MadeBy,

    /// Time that one pass may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval)]
    pub time: Duration,

    /// Again and again, every 5 s or this often, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s",
        value_parser = parse_interval)]
    pub watch: Option<Duration>,

    /// Say what would be done, and do nothing
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

fn parse_keep(text: &str) -> Result<Share, String> {
    let share: Share = text.parse().map_err(|e: mega_core::units::UnitError| e.to_string())?;
    if share == Share::ZERO || share == Share::FULL {
        return Err("keeping all or nothing fragments nothing".to_string());
    }
    Ok(share)
}

fn parse_order(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(order @ 0..=20) => Ok(order),
        _ => Err("expected an order: 0 for 4K, 9 for 2M".to_string()),
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

/// Others change settings, or take what is free.
pub(super) fn parse_stock_way(text: &str) -> Result<MadeBy, String> {
    made_by(text, &[Way::Chosen, Way::Node])
}
