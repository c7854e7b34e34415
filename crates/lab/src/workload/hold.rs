//! Two plain programs that hold memory: `sparse` touches a scattered share of an area and goes to sleep, `dense` touches
//! all of one and keeps it hot.

use super::hot::{check_page, write_page, HotLoop, PageAt};
use super::sparse_area::SparseArea;
use super::{area_json, mebibytes, Common, WorkloadError};
use crate::clock::now_ns;
use crate::command::Commands;
use crate::emit::event;
use crate::latency::Latency;
use crate::memory::{base_page_bytes, huge_bytes_within, rss_bytes};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Options of `sparse`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Touches a scattered share of base pages and holds them. stdin: check, quit")]
pub struct SparseOptions {
    /// Size of the area in MiB
    #[arg(long, default_value_t = 6144)]
    pub mib: usize,
    /// Share of the base pages that is touched
    #[arg(long, default_value_t = 1.0 / 6.0)]
    pub share: f64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Runs `sparse`.
///
/// # Errors
/// As every workload.
pub fn sparse(o: &SparseOptions) -> Result<(), WorkloadError> {
    o.common.apply()?;
    let mut area = SparseArea::new(mebibytes(o.mib)?, o.share, &o.common)?;
    let mut touches = Latency::new();
    let start = now_ns();
    while let Some(ns) = area.touch_next() {
        touches.record(ns);
    }
    let fill_ns = now_ns() - start;
    let range = [area.memory().range()];
    let touched_bytes = area.progress().0 * base_page_bytes();
    event(
        "ready",
        json!({"workload": "sparse", "pid": std::process::id(), "areas": [area_json("sparse", area.memory())],
            "touched_bytes": touched_bytes, "fill_ns": fill_ns, "touch": touches.summary(),
            "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
    );
    let commands = Commands::from_stdin();
    loop {
        match commands.next().as_str() {
            "check" => {
                let result = area.verify();
                event(
                    "checked",
                    json!({"ok": result.is_ok(), "pages": result.as_ref().ok(),
                        "error": result.as_ref().err().map(ToString::to_string),
                        "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
                );
                result?;
            }
            "quit" => return Ok(()),
            other => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
    }
}

/// Options of `dense`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Touches all of an area and keeps it hot. stdin: check, quit")]
pub struct DenseOptions {
    /// Size of the area in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Time between sweeps in ms
    #[arg(long, default_value_t = 100)]
    pub hot_ms: u64,
    /// Write to each page in every sweep, not only read
    #[arg(long)]
    pub write: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Runs `dense`.
///
/// # Errors
/// As every workload.
pub fn dense(o: &DenseOptions) -> Result<(), WorkloadError> {
    o.common.apply()?;
    let seed = o.common.seed;
    let areas = Arc::new(vec![o.common.map(mebibytes(o.mib)?)?]);
    let page_count = u32::try_from(areas[0].len_bytes() / base_page_bytes())
        .map_err(|_| WorkloadError::Usage(format!("{} MiB are too many pages", o.mib)))?;
    let pages: Vec<PageAt> = (0..page_count).map(|p| (0, p)).collect();
    let start = now_ns();
    pages.iter().for_each(|at| write_page(&areas, seed, *at));
    let fill_ns = now_ns() - start;
    let range = [areas[0].range()];
    let hot = HotLoop::start(
        Arc::clone(&areas),
        pages.clone(),
        seed,
        o.write,
        Duration::from_millis(o.hot_ms),
    );
    event(
        "ready",
        json!({"workload": "dense", "pid": std::process::id(), "areas": [area_json("dense", &areas[0])],
            "fill_ns": fill_ns, "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
    );
    let commands = Commands::from_stdin();
    loop {
        if let Some(text) = hot.corrupt() {
            event("checked", json!({"ok": false, "error": text}));
            return Err(WorkloadError::Corrupt(text));
        }
        let Some(command) = commands.next_within(Duration::from_millis(50)) else {
            continue;
        };
        match command.as_str() {
            "check" => {
                let _pause = hot.pause();
                let result = pages
                    .iter()
                    .try_for_each(|at| check_page(&areas, seed, *at, hot.mark()));
                event(
                    "checked",
                    json!({"ok": result.is_ok(), "pages": pages.len(), "error": result.as_ref().err(),
                        "sweeps": hot.sweeps(), "longest_gap_ns": hot.longest_gap_ns(),
                        "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
                );
                result.map_err(WorkloadError::Corrupt)?;
            }
            "quit" => return Ok(()),
            other => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
    }
}
