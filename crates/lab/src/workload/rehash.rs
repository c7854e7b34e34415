//! A hash table that doubles: open addressing in one array; when it is half full, an array of twice the size takes its keys, in random
//! order, and the old one is freed. Then random lookups.

use super::stage::{rate, Meter};
use super::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::mix;
use crate::timing::clock::now_ns;
use serde_json::json;

/// Slots to begin with.
const FIRST: usize = 1 << 12;
/// Lookups between two looks at the clock.
const BATCH: u64 = 1024;

/// Options of `rehash`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Fills a hash table that doubles, looks keys up, checks that all are there")]
pub struct Options {
    /// Size of the last table in MiB, rounded down to a power of two
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Seconds of lookups
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        // While it doubles, the last but one is there, too. An insert takes about 50 ns, and each key is inserted twice on average.
        Plan::of(self.mib + self.mib / 2, self.seconds + self.mib as f64 * 0.01)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        self.common.must_not_advise("rehash")?;
        run(self, stage)
    }
}

/// Keys by their hash; 0 is no key.
struct Table {
    slots: Vec<u64>,
    used: usize,
}

/// The key of this number; never 0.
fn key(seed: u64, number: u64) -> u64 {
    mix(seed ^ number) | 1
}

impl Table {
    fn new(slots: usize) -> Self {
        Self {
            slots: vec![0; slots],
            used: 0,
        }
    }

    /// Where the key is, or the free slot where it would be.
    fn place(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key >> 7) as usize & mask;
        while self.slots[at] != 0 && self.slots[at] != key {
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, key: u64) {
        if 2 * self.used >= self.slots.len() {
            let mut twice = Self::new(2 * self.slots.len());
            self.slots
                .iter()
                .filter(|key| **key != 0)
                .for_each(|key| twice.put(*key));
            *self = twice;
        }
        self.put(key);
    }

    fn put(&mut self, key: u64) {
        let at = self.place(key);
        self.used += usize::from(self.slots[at] == 0);
        self.slots[at] = key;
    }

    fn has(&self, key: u64) -> bool {
        self.slots[self.place(key)] == key
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let slots = (mebibytes(o.mib)? / 8 + 1).next_power_of_two() / 2;
    // The last table is filled to 0.45, so that it does not double again.
    let (keys, seed) = ((slots as f64 * 0.45) as u64, o.common.seed);
    let mut table = Table::new(FIRST.min(slots));
    let start = now_ns();
    for number in 0..keys {
        table.insert(key(seed, number));
    }
    let load_ns = now_ns() - start;
    stage.ready(&[], json!({"load_ns": load_ns, "keys": keys}));
    let (mut meter, mut draw, mut missed) = (Meter::new(stage, o.seconds), seed, 0);
    loop {
        for _ in 0..BATCH {
            draw = mix(draw);
            missed += u64::from(!table.has(key(seed, draw % keys)));
        }
        if !meter.goes_on(BATCH) {
            break;
        }
    }
    stage.result(
        json!({ "keys": keys }),
        &[
            ("ops_per_s", meter.ops_per_s()),
            ("load_ns", load_ns as f64),
            ("inserts_per_s", rate(keys, load_ns)),
            ("elapsed_ns", (now_ns() - start) as f64),
        ],
        &[],
    );
    let lost = (0..keys).find(|number| !table.has(key(seed, *number)));
    match (missed, lost) {
        (0, None) => Ok(()),
        _ => Err(WorkloadError::corrupt(
            "rehash",
            format_args!("{missed} lookups missed; the first key lost is {lost:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_doubles_and_keeps_its_keys() {
        let mut table = Table::new(8);
        (0..1000).for_each(|number| table.insert(key(3, number)));
        assert_eq!(table.slots.len(), 2048);
        assert!((0..1000).all(|number| table.has(key(3, number))));
        assert!(!table.has(key(3, 1000)));
        let at = table.place(key(3, 7));
        table.slots[at] ^= 1 << 40;
        assert!(!table.has(key(3, 7)));
    }
}
