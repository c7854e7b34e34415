//! Page rank on a generated scale-free graph: random reads of an array by edge, as graph programs do (GraphChi in LRBHPS).

mod csr;

use self::csr::{Graph, Rmat};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use crate::workload::stage::rate;
use crate::workload::{range_json, Common, Plan, Stage, Workload, WorkloadError, MIB};
use serde_json::{json, Value};

/// Options of `graph`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Page rank on a generated scale-free graph")]
pub struct Options {
    /// The graph has 2 to this power vertices
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u32).range(1..=31))]
    pub scale: u32,
    /// Edges for each vertex
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub edge_factor: u32,
    /// Take the memory from the C library's allocator instead of mapping it
    #[arg(long)]
    pub heap: bool,
    /// Iterations of page rank
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Options {
    fn rmat(&self) -> Rmat {
        Rmat {
            scale: self.scale,
            edges: u64::from(self.edge_factor) << self.scale,
            seed: self.common.seed,
        }
    }
}

/// Edges per second, drawn and iterated over (approximate; for plans only).
const DRAWN_PER_SECOND: f64 = 6e6;
const RANKED_PER_SECOND: f64 = 60e6;

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let Rmat { scale, edges, .. } = self.rmat();
        let seconds = edges as f64 * (2.0 / DRAWN_PER_SECOND + f64::from(self.iterations) / RANKED_PER_SECOND);
        let mib = Graph::bytes(scale, edges).div_ceil(MIB as u64);
        Plan::of(usize::try_from(mib).unwrap_or(usize::MAX), seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let rmat = o.rmat();
    let mut graph = Graph::new(&rmat, o.heap, &o.common)?;
    let areas: Vec<Value> = graph
        .areas()
        .iter()
        .map(|(name, area)| range_json(name, area.range()))
        .collect();
    stage.start(&areas, json!({"seed": o.common.seed}));
    let start = now_ns();
    graph.build(&rmat);
    let build_ns = now_ns() - start;
    stage.ready(
        &areas,
        json!({"build_ns": build_ns, "vertices": 1u64 << rmat.scale, "edges": rmat.edges, "rss_bytes": rss_bytes()}),
    );
    let mut iterations = Latency::new();
    let start = now_ns();
    while iterations.count() < u64::from(o.iterations) {
        let t = now_ns();
        graph.iterate()?;
        let ns = now_ns() - t;
        iterations.record(ns);
        event(
            "report",
            json!({"iteration": iterations.count(), "elapsed_ns": ns, "ops_per_s": rate(rmat.edges, ns)}),
        );
        if stage.is_over() {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    let edges = rmat.edges * iterations.count();
    stage.result(
        json!({"iterations": iterations.count(), "edges": rmat.edges, "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate(edges, elapsed_ns)),
            ("op_ns", elapsed_ns as f64 / edges as f64),
            ("elapsed_ns", elapsed_ns as f64),
            ("build_ns", build_ns as f64),
        ],
        &[("iteration", &iterations)],
    );
    let result = graph.verify();
    let checksum = result.as_ref().ok().map(|sum| format!("{sum:#018x}"));
    event("checked", json!({"ok": result.is_ok(), "checksum": checksum}));
    result.map(|_| ())
}
