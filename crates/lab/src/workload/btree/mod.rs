//! A B-tree in mapped memory under random lookups and inserts: dependent loads all over the tree, as in a database's index.

mod nodes;

use self::nodes::Tree;
use crate::memory::content::{below, mix};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use crate::workload::stage::Meter;
use crate::workload::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use mega_sim::workload::pattern::BTREE_ABSENT;
use rand_core::RngCore;
use serde_json::json;

/// Options of `btree`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "A B-tree under random lookups and inserts")]
pub struct Options {
    /// Capacity of the tree in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Share of the capacity filled before it serves
    #[arg(long, default_value_t = 0.75)]
    pub load: f64,
    /// How long to serve
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Share of inserts, until the tree is full
    #[arg(long, default_value_t = 0.05)]
    pub inserts: f64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        // About 21 keys in a node of 512 bytes, and 750,000 inserts in a second.
        let load_seconds = self.mib as f64 * self.load.clamp(0.0, 1.0) * 43_000.0 / 750e3;
        Plan::of(self.mib, self.seconds + load_seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// Operations between clock reads.
const BATCH: u64 = 64;
/// One operation in this many is timed.
const TIMED: u64 = 16;

/// The tree; its keys are those of the numbers below `tree.len()`.
#[derive(Debug)]
pub struct Index {
    tree: Tree,
    seed: u64,
}

impl Index {
    /// Maps an empty one of `bytes`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        Ok(Self {
            tree: Tree::new(bytes, common)?,
            seed: mix(common.seed),
        })
    }

    fn key(&self, number: u64) -> u64 {
        mix(number ^ self.seed)
    }

    /// Inserts the next key. False when there is no space.
    fn insert(&mut self) -> Result<bool, WorkloadError> {
        self.tree.insert(self.key(self.tree.len()))
    }

    /// Inserts until `share` of the capacity is used.
    ///
    /// # Errors
    /// When the tree is corrupt.
    pub fn load(&mut self, share: f64) -> Result<(), WorkloadError> {
        while self.tree.used() < share && self.insert()? {}
        Ok(())
    }

    /// Looks up the key of a number, and checks whether it should be present.
    ///
    /// # Errors
    /// When the check fails.
    pub fn lookup(&self, number: u64) -> Result<(), WorkloadError> {
        let expected = number < self.tree.len();
        let found = self.tree.contains(self.key(number))?;
        if found != expected {
            let what = if found {
                "was never inserted but is present"
            } else {
                "is gone"
            };
            let text = format!("B-tree: key {:#x} {what}", self.key(number));
            return Err(WorkloadError::Corrupt(text));
        }
        Ok(())
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let mut index = Index::new(mebibytes(o.mib)?, &o.common)?;
    let areas = [area_json("tree", index.tree.memory())];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let start = now_ns();
    index.load(o.load)?;
    let load_ns = now_ns() - start;
    stage.ready(
        &areas,
        json!({"load_ns": load_ns, "keys": index.tree.len(), "height": index.tree.height(), "rss_bytes": rss_bytes()}),
    );
    let insert_limit = (o.inserts.clamp(0.0, 1.0) * 1024.0) as u64;
    let mut rng = o.common.rng();
    let (mut lookups, mut inserts) = (Latency::new(), Latency::new());
    let mut meter = Meter::new(stage, o.seconds);
    loop {
        for i in 0..BATCH {
            let random = rng.next_u64();
            let start = if i % TIMED == 0 { now_ns() } else { 0 };
            let latency = if random & 1023 < insert_limit && index.insert()? {
                &mut inserts
            } else {
                let len = index.tree.len();
                let absent = (random >> 10) % BTREE_ABSENT == 0;
                index.lookup(below(random, len.max(1)) + if absent { len } else { 0 })?;
                &mut lookups
            };
            if i % TIMED == 0 {
                latency.record(now_ns() - start);
            }
        }
        if !meter.goes_on(BATCH) {
            break;
        }
    }
    stage.result(
        json!({"ops": meter.operations(), "keys": index.tree.len(), "height": index.tree.height(),
            "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", meter.ops_per_s()),
            ("elapsed_ns", meter.elapsed_ns() as f64),
            ("load_ns", load_ns as f64),
        ],
        &[("lookup", &lookups), ("insert", &inserts)],
    );
    let result = index.tree.verify();
    event("checked", json!({"ok": result.is_ok(), "keys": result.as_ref().ok()}));
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_index_finds_its_keys_and_no_others() {
        let mut index = Index::new(1 << 20, &Common::of_seed(6)).unwrap();
        index.load(0.5).unwrap();
        assert!((0.5..0.51).contains(&index.tree.used()));
        let len = index.tree.len();
        assert!(len > 10_000);
        (0..len + 1000).for_each(|n| index.lookup(n).unwrap());
        assert_eq!(index.tree.verify().unwrap(), len);
    }

    #[test]
    fn a_lost_node_is_corruption() {
        let mut index = Index::new(1 << 20, &Common::of_seed(6)).unwrap();
        index.load(0.5).unwrap();
        let words = index.tree.memory().words();
        words[..512]
            .iter()
            .for_each(|w| w.store(0, std::sync::atomic::Ordering::Relaxed));
        assert_eq!(index.tree.verify().unwrap_err().exit_code(), 3);
        let lost = (0..index.tree.len()).find_map(|n| index.lookup(n).err());
        assert_eq!(lost.unwrap().exit_code(), 3);
    }
}
