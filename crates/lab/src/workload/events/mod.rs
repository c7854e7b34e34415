//! A discrete event simulation of a network with very many small objects: stands for 471.omnetpp of SPEC CPU2006.
//!
//! OMNeT++ (A. Varga; SPEC's page on 471.omnetpp) simulates an Ethernet of some 8,000 hosts and 900 switches and hubs, with traffic of
//! requests and responses. Its messages are objects, made and deleted all the time; the set of future events is a heap of pointers to
//! them; so memory is accessed in no particular order. This workload does the same ([`network`]).
//!
//! What differs: full duplex switches only, without collisions; more hosts, so that the objects fill gigabytes; messages
//! carry data, a quarter of a kilobyte at most, that is checked when they arrive; Rust's collections instead of C++'s.

mod message;
mod network;

use self::network::{hosts_fitting, Network};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::workload::stage::Meter;
use crate::workload::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use serde_json::json;

/// Options of `events`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "A discrete event simulation of a network, in small objects of the C library's allocator")]
pub struct Options {
    /// Approximate memory of hosts and messages in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Requests that each host keeps in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub window: u32,
    /// How long to run
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of events, instead of a duration
    #[arg(long, conflicts_with = "seconds")]
    pub events: Option<u64>,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Events in a second, and messages made per second (approximate; for plans only).
const EVENTS_PER_SECOND: f64 = 120e3;
const MADE_PER_SECOND: f64 = 3e6;

/// Events between clock reads.
const BATCH: u64 = 1000;

impl Options {
    fn hosts(&self) -> Result<usize, WorkloadError> {
        Ok(hosts_fitting(mebibytes(self.mib)?, self.window as usize))
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let messages = self.hosts().unwrap_or(0) as f64 * f64::from(self.window);
        let work = self.events.map_or(self.seconds, |n| n as f64 / EVENTS_PER_SECOND);
        // The allocator's overhead is unknown; an eighth is assumed.
        Plan {
            seconds: Plan::of(self.mib, work + messages / MADE_PER_SECOND).seconds,
            ..Plan::of(self.mib.saturating_add(self.mib / 8), 0.0)
        }
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    o.common.must_not_advise("events")?;
    let hosts = o.hosts()?;
    stage.start(&[], json!({"seed": o.common.seed, "hosts": hosts}));
    let start = now_ns();
    let mut network = Network::new(hosts, o.window as usize, o.common.seed);
    let load_ns = now_ns() - start;
    stage.ready(
        &[],
        json!({"load_ns": load_ns, "messages": network.messages(), "rss_bytes": rss_bytes()}),
    );
    let mut meter = Meter::new(stage, o.events.map_or(o.seconds, |_| f64::INFINITY));
    let mut left = o.events.unwrap_or(u64::MAX);
    loop {
        let batch = left.min(BATCH);
        for _ in 0..batch {
            network.step()?;
        }
        left -= batch;
        if !meter.goes_on(batch) || left == 0 {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    stage.result(
        json!({"events": meter.operations(), "simulated_ns": network.now_ns(), "rss_bytes": rss_bytes()}),
        &[
            ("elapsed_ns", elapsed_ns as f64),
            ("ops_per_s", meter.ops_per_s()),
            ("load_ns", load_ns as f64),
        ],
        &[],
    );
    let result = network.verify();
    let checksum = format!("{:#018x}", network.checksum());
    event(
        "checked",
        json!({"ok": result.is_ok(), "answers": result.as_ref().ok(), "checksum": checksum}),
    );
    result.map(drop)
}
