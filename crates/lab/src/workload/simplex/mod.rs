//! A network simplex over a large instance: stands for 429.mcf of SPEC CPU2006, whose table entry in *Memomania* gains most.
//!
//! MCF (A. Löbel, ZIB; SPEC's page on 429.mcf) schedules vehicles by a network simplex: its time goes into pricing arcs, each far from
//! the one before and with a look at the potentials at both ends, and into walking a spanning tree from node to node. It asks malloc for
//! one large array of arcs and one of nodes, some 1.7 GB in all. This workload does the same ([`tree`]).
//!
//! What differs: random instances made from a seed instead of timetables, so heads of arcs are spread evenly; no column generation, no
//! capacities; indices of 8 bytes instead of pointers; 64 arcs for each node unless the options say otherwise.

mod instance;
mod tree;

use self::instance::InstanceSize;
use self::tree::Simplex;
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::workload::stage::Meter;
use crate::workload::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use serde_json::json;

/// Options of `simplex`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "A network simplex over a generated instance, in memory of the C library's allocator")]
pub struct Options {
    /// Memory of arcs and nodes in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Arcs for each node
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub arcs_per_node: u32,
    /// How long to run; less if the optimum is reached
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of arc and node visits, instead of a duration
    #[arg(long, conflicts_with = "seconds")]
    pub visits: Option<u64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Visits in a second, and arcs made per second (approximate; for plans only).
const VISITS_PER_SECOND: f64 = 15e6;
const ARCS_PER_SECOND: f64 = 20e6;

/// Minimum visits between clock reads.
const BATCH: u64 = 20_000;

impl Options {
    fn size(&self) -> Result<InstanceSize, WorkloadError> {
        Ok(Simplex::size_fitting(mebibytes(self.mib)?, self.arcs_per_node as usize))
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let arcs = self.size().map_or(0, |size| size.arcs);
        let work = self.visits.map_or(self.seconds, |n| n as f64 / VISITS_PER_SECOND);
        Plan::of(self.mib, work + arcs as f64 / ARCS_PER_SECOND)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    o.common.must_not_advise("simplex")?;
    let size = o.size()?;
    stage.start(
        &[],
        json!({"seed": o.common.seed, "nodes": size.nodes, "arcs": size.arcs}),
    );
    let start = now_ns();
    let mut simplex = Simplex::new(size, o.common.seed)?;
    let load_ns = now_ns() - start;
    stage.ready(&[], json!({"load_ns": load_ns, "rss_bytes": rss_bytes()}));
    let seconds = o.visits.map_or(o.seconds, |_| f64::INFINITY);
    let most = o.visits.unwrap_or(u64::MAX);
    let mut meter = Meter::new(stage, seconds);
    let (mut counted, mut is_optimal) = (0, false);
    loop {
        let until = (counted + BATCH).min(most);
        while simplex.visits < until && !is_optimal {
            is_optimal = !simplex.pivot()?;
        }
        let done = simplex.visits - counted;
        counted = simplex.visits;
        if !meter.goes_on(done) || is_optimal || counted >= most {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    simplex.settle();
    stage.result(
        json!({"visits": simplex.visits, "pivots": simplex.pivots, "optimal": is_optimal, "rss_bytes": rss_bytes()}),
        &[
            ("elapsed_ns", elapsed_ns as f64),
            ("ops_per_s", meter.ops_per_s()),
            ("load_ns", load_ns as f64),
        ],
        &[],
    );
    let result = simplex.verify();
    event(
        "checked",
        json!({"ok": result.is_ok(), "checksum": result.as_ref().ok()}),
    );
    result.map(drop)
}
