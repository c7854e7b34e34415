//! Two plain programs that hold memory: `sparse` touches a scattered share of an area and sleeps, `dense` touches
//! all of one and keeps it hot.

use super::hot::{check_page, write_page, HotLoop, PageAt};
use super::sparse_area::SparseArea;
use super::stage::rate;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::{base_page_bytes, huge_bytes_within, rss_bytes};
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_to_ns};
use crate::timing::latency::Latency;
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
    /// Share of the base pages to touch
    #[arg(long, default_value_t = 1.0 / 6.0)]
    pub share: f64,
    /// How long to hold them; until `quit` when not given
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for SparseOptions {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::held(self.mib, self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        sparse(self, stage)
    }
}

/// A deadline, or none.
struct End(Option<u64>);

impl End {
    fn after(seconds: Option<f64>) -> Self {
        Self(seconds.map(|s| now_ns().saturating_add(seconds_to_ns(s))))
    }

    /// Time left; zero once it has passed, and long if there is none.
    fn left(&self) -> Duration {
        let never = Duration::from_secs(24 * 3600);
        self.0
            .map_or(never, |end_ns| Duration::from_nanos(end_ns.saturating_sub(now_ns())))
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

fn sparse(o: &SparseOptions, stage: &mut Stage) -> Result<(), WorkloadError> {
    let mut area = SparseArea::new(mebibytes(o.mib)?, o.share, &o.common)?;
    let mut touches = Latency::new();
    let start = now_ns();
    while let Some(ns) = area.touch_next() {
        touches.record(ns);
    }
    let fill_ns = now_ns() - start;
    let range = [area.memory().range()];
    let touched_bytes = area.progress().0 * base_page_bytes();
    stage.ready(
        &[area_json("sparse", area.memory())],
        json!({"touched_bytes": touched_bytes, "fill_ns": fill_ns, "touch": touches.summary(),
            "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
    );
    stage.listen(true);
    let (start, end) = (now_ns(), End::after(o.seconds));
    while !end.left().is_zero() {
        let Some(command) = stage.commands().next_within(end.left()) else {
            continue;
        };
        match command.as_str() {
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
            "quit" => break,
            other => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
    }
    let held_ns = now_ns() - start;
    stage.result(
        json!({"touched_bytes": touched_bytes, "elapsed_ns": held_ns, "rss_bytes": rss_bytes()}),
        &[
            ("first_touch_ns", fill_ns as f64),
            ("touched_bytes", touched_bytes as f64),
            ("elapsed_ns", held_ns as f64),
        ],
        &[("touch", &touches)],
    );
    if o.seconds.is_some() {
        let result = area.verify();
        event("checked", json!({"ok": result.is_ok(), "pages": result.as_ref().ok()}));
        result?;
    }
    Ok(())
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
    /// How long to keep it hot; until `quit` when not given
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for DenseOptions {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::held(self.mib, self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        dense(self, stage)
    }
}

/// Pages that the hot loop visited: all so far, and their rate since the last report.
struct Visits<'a> {
    hot: &'a HotLoop,
    pages: u64,
    reported: (u64, u64),
}

impl Visits<'_> {
    fn so_far(&self) -> u64 {
        self.hot.sweeps() * self.pages
    }

    /// Reports the rate once a second.
    fn report(&mut self) {
        let (now, visits) = (now_ns(), self.so_far());
        if now - self.reported.0 >= 1_000_000_000 {
            let ops_per_s = rate(visits - self.reported.1, now - self.reported.0);
            event(
                "report",
                json!({"sweeps": self.hot.sweeps(), "ops_per_s": ops_per_s, "rss_bytes": rss_bytes()}),
            );
            self.reported = (now, visits);
        }
    }
}

fn dense(o: &DenseOptions, stage: &mut Stage) -> Result<(), WorkloadError> {
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
    stage.ready(
        &[area_json("dense", &areas[0])],
        json!({"fill_ns": fill_ns, "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
    );
    stage.listen(true);
    let (start, end) = (now_ns(), End::after(o.seconds));
    let check = || {
        pages
            .iter()
            .try_for_each(|at| check_page(&areas, seed, *at, hot.mark()))
    };
    let mut visits = Visits {
        hot: &hot,
        pages: u64::from(page_count),
        reported: (start, 0),
    };
    while !end.left().is_zero() {
        if let Some(text) = hot.corrupt() {
            event("checked", json!({"ok": false, "error": text}));
            return Err(WorkloadError::Corrupt(text));
        }
        if o.seconds.is_some() {
            visits.report();
        }
        let Some(command) = stage.commands().next_within(LOOK_EVERY.min(end.left())) else {
            continue;
        };
        match command.as_str() {
            "check" => {
                let _pause = hot.pause();
                let result = check();
                event(
                    "checked",
                    json!({"ok": result.is_ok(), "pages": pages.len(), "error": result.as_ref().err(),
                        "sweeps": hot.sweeps(), "longest_gap_ns": hot.longest_gap_ns(),
                        "rss_bytes": rss_bytes(), "huge_bytes": huge_bytes_within(&range)}),
                );
                result.map_err(WorkloadError::Corrupt)?;
            }
            "quit" => break,
            other => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
    }
    let elapsed_ns = now_ns() - start;
    stage.result(
        json!({"sweeps": hot.sweeps(), "elapsed_ns": elapsed_ns, "longest_gap_ns": hot.longest_gap_ns(),
            "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate(visits.so_far(), elapsed_ns)),
            ("first_touch_ns", fill_ns as f64),
            ("longest_gap_ns", hot.longest_gap_ns() as f64),
            ("elapsed_ns", elapsed_ns as f64),
        ],
        &[],
    );
    if o.seconds.is_some() {
        let _pause = hot.pause();
        let result = check();
        event(
            "checked",
            json!({"ok": result.is_ok(), "pages": pages.len(), "error": result.as_ref().err()}),
        );
        result.map_err(WorkloadError::Corrupt)?;
    }
    Ok(())
}
