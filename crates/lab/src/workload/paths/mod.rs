//! Path finding by A* on a large map of cells: stands for 473.astar of SPEC CPU2006.
//!
//! That is a library of path finding for games (SPEC's page on 473.astar): A* on maps of passable and impassable ground, on maps of ground
//! of several speeds, and over regions that are objects with pointers to their neighbours. Its time goes into examining neighbours, whose
//! state lies far apart in memory. This workload does the second, with an object for each cell that a search sees ([`search`]),
//! allocated when first seen and freed at the end.
//!
//! What differs: generated maps of lakes and obstacles instead of drawn ones, large enough to fill gigabytes; one algorithm instead of
//! three; a search that would see half of the map is abandoned.

mod search;

use self::search::{Searches, Terrain, CELL_BYTES, NODE_BYTES, SEEN_PART};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::workload::stage::Meter;
use crate::workload::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use serde_json::json;

/// Options of `paths`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Path finding by A* on a map, in small objects of the C library's allocator")]
pub struct Options {
    /// Memory of the map and of the largest search in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// How long to run
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of cells to expand, instead of a duration
    #[arg(long, conflicts_with = "seconds")]
    pub cells: Option<u64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Cells expanded, and drawn, per second (approximate; for plans only).
const CELLS_PER_SECOND: f64 = 800e3;
const DRAWN_PER_SECOND: f64 = 60e6;

/// Cells between clock reads.
const BATCH: u64 = 1000;

/// Bytes of a cell on average when half of them are seen: that, its entry in the list of those seen (which may have twice the room), and
/// entries of the open ones.
const BYTES_PER_CELL: usize = CELL_BYTES + (NODE_BYTES + 8 + 8) / SEEN_PART;

impl Options {
    /// Cells along each side of the map.
    fn side(&self) -> Result<usize, WorkloadError> {
        Ok((mebibytes(self.mib)? / BYTES_PER_CELL).isqrt().max(32))
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let cells = self.side().map_or(0.0, |side| (side * side) as f64);
        let work = self.cells.map_or(self.seconds, |n| n as f64 / CELLS_PER_SECOND);
        Plan::of(self.mib, work + cells / DRAWN_PER_SECOND)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    o.common.must_not_advise("paths")?;
    let side = o.side()?;
    stage.start(&[], json!({"seed": o.common.seed, "side": side}));
    let start = now_ns();
    let mut searches = Searches::new(Terrain::new(side, o.common.seed)?)?;
    let load_ns = now_ns() - start;
    stage.ready(&[], json!({"load_ns": load_ns, "rss_bytes": rss_bytes()}));
    let mut meter = Meter::new(stage, o.cells.map_or(o.seconds, |_| f64::INFINITY));
    let mut left = o.cells.unwrap_or(u64::MAX);
    loop {
        let batch = left.min(BATCH);
        for _ in 0..batch {
            searches.step()?;
        }
        left -= batch;
        if !meter.goes_on(batch) || left == 0 {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    stage.result(
        json!({"cells": meter.operations(), "searches": searches.ended, "ways": searches.ways, "rss_bytes": rss_bytes()}),
        &[
            ("elapsed_ns", elapsed_ns as f64),
            ("ops_per_s", meter.ops_per_s()),
            ("load_ns", load_ns as f64),
        ],
        &[],
    );
    let result = searches.verify();
    let checksum = format!("{:#018x}", searches.checksum);
    event(
        "checked",
        json!({"ok": result.is_ok(), "nodes": result.as_ref().ok(), "checksum": checksum}),
    );
    result.map(drop)
}
