//! A key-value store in this process: a hash table in mapped memory under reads, inserts and deletes of Zipf-distributed
//! keys. Deleting a share after the load and returning whole free pages, as allocators do, leaves regions sparsely used:
//! promoting them is bloat.

use super::stage::Meter;
use super::table::ValueTable;
use super::Zipf;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::rss_bytes;
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::{is_in_share, probe_step, KV_DELETED};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::collections::VecDeque;

/// Options of `kv`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "A hash table under reads, inserts and deletes of popular keys")]
pub struct Options {
    /// Size of all values in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 4096)]
    pub value_bytes: usize,
    /// How long to serve
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Share of reads; the rest are deletes and re-inserts
    #[arg(long, default_value_t = 0.9)]
    pub reads: f64,
    /// Exponent of the Zipf distribution of keys (0 is uniform; must be below 1)
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Share of the keys deleted at random after the load
    #[arg(long, default_value_t = 0.0)]
    pub delete_share: f64,
    /// Do not return pages whose values were deleted after the load
    #[arg(long)]
    pub keep_pages: bool,
    /// Words of a value that an operation checks
    #[arg(long, default_value_t = 4)]
    pub probe: usize,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        // Values, and two slots of 16 bytes for each rounded up to a power of two.
        let values = self.mib.saturating_mul(super::MIB) / self.value_bytes.max(32);
        let slots = (values * 2).checked_next_power_of_two().unwrap_or(usize::MAX);
        let index_mib = slots / super::MIB * 16;
        Plan::of(self.mib.saturating_add(index_mib), self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// Operations between clock reads.
const BATCH: u64 = 64;
/// One operation in this many is timed.
const TIMED: u64 = 16;

/// The store, and which keys must be in it.
#[derive(Debug)]
pub struct Kv {
    table: ValueTable,
    /// A bit for each rank.
    present: Vec<u64>,
    /// Ranks that are not there, the first to come back in front. Never grows beyond its capacity.
    away: VecDeque<u64>,
    /// A check looks at one word in this many.
    step: usize,
}

/// Latencies by operation.
#[derive(Debug, Default)]
pub struct Served {
    /// Of reads, including those of deleted keys.
    pub read: Latency,
    /// Of inserts.
    pub insert: Latency,
    /// Of deletes.
    pub delete: Latency,
}

impl Kv {
    /// Maps a store according to `o`, untouched.
    ///
    /// # Errors
    /// Invalid options; memory.
    pub fn new(o: &Options) -> Result<Self, WorkloadError> {
        for (name, share) in [("reads", o.reads), ("delete-share", o.delete_share)] {
            if !(0.0..=1.0).contains(&share) {
                let text = format!("--{name} {share}: a share lies between 0 and 1");
                return Err(WorkloadError::Usage(text));
            }
        }
        let table = ValueTable::new(mebibytes(o.mib)?, o.value_bytes, &o.common)?;
        let count = table.count();
        Ok(Self {
            table,
            present: vec![0; count.div_ceil(64)],
            away: VecDeque::new(),
            step: probe_step(o.value_bytes as u64, o.probe as u64) as usize,
        })
    }

    fn is_present(&self, rank: u64) -> bool {
        self.present[(rank / 64) as usize] >> (rank % 64) & 1 == 1
    }

    fn flip(&mut self, rank: u64) {
        self.present[(rank / 64) as usize] ^= 1 << (rank % 64);
    }

    /// Inserts all keys; returns the latencies of first touches.
    pub fn load(&mut self) -> Latency {
        let mut touches = Latency::new();
        self.table.fill(&mut touches);
        (0..self.table.count() as u64).for_each(|rank| self.flip(rank));
        touches
    }

    /// Reads the value of a key, or verifies that it is absent.
    ///
    /// # Errors
    /// When it is not.
    pub fn read(&self, rank: u64) -> Result<(), WorkloadError> {
        let key = self.table.key(rank);
        if self.is_present(rank) {
            return self.table.get(key, self.step);
        }
        match self.table.contains(key)? {
            false => Ok(()),
            true => Err(WorkloadError::Corrupt(format!(
                "key {key:#x} was deleted but is present"
            ))),
        }
    }

    /// Deletes a key that is there.
    fn delete(&mut self, rank: u64) -> Result<(), WorkloadError> {
        self.table.remove(self.table.key(rank), self.step)?;
        self.flip(rank);
        self.away.push_back(rank);
        Ok(())
    }

    /// Re-inserts the key deleted longest ago, if there is one.
    fn insert(&mut self) -> Result<(), WorkloadError> {
        let Some(rank) = self.away.pop_front() else {
            return Ok(());
        };
        if !self.table.add(self.table.key(rank)) {
            let text = format!("{} keys are deleted but no slot is free", self.away.len() + 1);
            return Err(WorkloadError::Corrupt(text));
        }
        self.flip(rank);
        Ok(())
    }

    /// Deletes `share` of the keys, drawn by `seed`; returns how many.
    ///
    /// # Errors
    /// When one is not there or its value is wrong.
    pub fn delete_share(&mut self, share: f64, seed: u64) -> Result<usize, WorkloadError> {
        for rank in 0..self.table.count() as u64 {
            if is_in_share(seed, rank, share) {
                self.delete(rank)?;
            }
        }
        Ok(self.away.len())
    }

    /// Serves until the meter's time is over.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn serve(&mut self, o: &Options, rng: &mut Pcg64Mcg, meter: &mut Meter) -> Result<Served, WorkloadError> {
        let zipf = Zipf::new(self.table.count() as u64, o.zipf);
        let read_limit = (o.reads * 1024.0) as u64;
        let away = self.away.len().max((KV_DELETED as usize).min(self.table.count() / 2));
        let mut served = Served::default();
        loop {
            for i in 0..BATCH {
                let random = rng.next_u64();
                let rank = zipf.rank(random);
                let start = if i % TIMED == 0 { now_ns() } else { 0 };
                let latency = if random & 1023 < read_limit {
                    self.read(rank)?;
                    &mut served.read
                } else if self.away.len() > away {
                    self.insert()?;
                    &mut served.insert
                } else if self.is_present(rank) {
                    self.delete(rank)?;
                    &mut served.delete
                } else {
                    self.read(rank)?;
                    &mut served.read
                };
                if i % TIMED == 0 {
                    latency.record(now_ns() - start);
                }
            }
            if !meter.goes_on(BATCH) {
                return Ok(served);
            }
        }
    }

    /// Looks up every key and checks every word of the values; returns the number of keys that are there.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn verify(&self) -> Result<usize, WorkloadError> {
        for rank in 0..self.table.count() as u64 {
            match self.is_present(rank) {
                true => self.table.get(self.table.key(rank), 1)?,
                false => self.read(rank)?,
            }
        }
        Ok(self.table.count() - self.away.len())
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let mut kv = Kv::new(o)?;
    let [index, slab] = kv.table.mappings();
    let areas = [area_json("index", index), area_json("values", slab)];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let start = now_ns();
    let touches = kv.load();
    let load_ns = now_ns() - start;
    let (mut deleted, mut given_back_bytes, mut delete_ns) = (0, 0, 0);
    if o.delete_share > 0.0 {
        stage.phase("delete");
        let start = now_ns();
        deleted = kv.delete_share(o.delete_share, o.common.seed)?;
        if !o.keep_pages {
            given_back_bytes = kv.table.give_back()?;
        }
        delete_ns = now_ns() - start;
    }
    stage.ready(
        &areas,
        json!({"load_ns": load_ns, "touch": touches.summary(), "keys": kv.table.count(), "deleted": deleted,
            "given_back_bytes": given_back_bytes, "rss_bytes": rss_bytes()}),
    );
    let mut meter = Meter::new(stage, o.seconds);
    let served = kv.serve(o, &mut o.common.rng(), &mut meter)?;
    stage.result(
        json!({"ops": meter.operations(), "keys": kv.table.count() - kv.away.len(), "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", meter.ops_per_s()),
            ("elapsed_ns", meter.elapsed_ns() as f64),
            ("first_touch_ns", load_ns as f64),
            ("delete_ns", delete_ns as f64),
            ("given_back_bytes", given_back_bytes as f64),
        ],
        &[
            ("read", &served.read),
            ("insert", &served.insert),
            ("delete", &served.delete),
            ("touch", &touches),
        ],
    );
    let result = kv.verify();
    event("checked", json!({"ok": result.is_ok(), "keys": result.as_ref().ok()}));
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(text: &str) -> Options {
        Options::parse_from(std::iter::once("kv").chain(text.split_whitespace()))
    }

    #[test]
    fn a_served_store_keeps_its_number_of_keys_and_verifies() {
        let o = options("--mib 8 --value-bytes 512 --seconds 0.2 --reads 0.5");
        let mut kv = Kv::new(&o).unwrap();
        assert_eq!(kv.load().count(), 2048);
        let stage = Stage::alone("kv");
        let mut meter = Meter::new(&stage, o.seconds);
        let served = kv.serve(&o, &mut o.common.rng(), &mut meter).unwrap();
        for latency in [&served.read, &served.insert, &served.delete] {
            assert!(latency.count() > 10, "{served:?}");
        }
        let timed = served.read.count() + served.insert.count() + served.delete.count();
        assert_eq!(timed, meter.operations() / TIMED);
        let keys = kv.verify().unwrap();
        assert!((16_384 - 1024 - 1..=16_384 - 1024).contains(&keys), "{keys}");
    }

    #[test]
    fn deleting_seven_tenths_gives_most_of_their_pages_back_and_the_rest_stays_right() {
        let o = options("--mib 16 --value-bytes 4096 --seconds 0.1");
        let mut kv = Kv::new(&o).unwrap();
        let _ = kv.load();
        let deleted = kv.delete_share(0.7, 1).unwrap();
        assert!((2700..3030).contains(&deleted), "{deleted} of 4096");
        assert_eq!(kv.table.give_back().unwrap(), deleted * 4096);
        assert_eq!(kv.verify().unwrap(), 4096 - deleted);
        let stage = Stage::alone("kv");
        kv.serve(&o, &mut o.common.rng(), &mut Meter::new(&stage, 0.1)).unwrap();
        let keys = kv.verify().unwrap();
        assert!(
            keys.abs_diff(4096 - deleted) <= 1,
            "as many are away as before, not {keys}"
        );
    }

    #[test]
    fn a_deleted_key_that_is_still_there_is_corruption() {
        let o = options("--mib 1");
        let mut kv = Kv::new(&o).unwrap();
        let _ = kv.load();
        kv.flip(3);
        assert_eq!(kv.read(3).unwrap_err().exit_code(), 3);
        kv.flip(3);
        kv.delete(3).unwrap();
        kv.read(3).unwrap();
        kv.flip(3);
        assert_eq!(kv.read(3).unwrap_err().exit_code(), 3, "a lost key is one too");
    }

    #[test]
    fn shares_that_are_none_are_wrong_usage() {
        for bad in ["--reads 1.5", "--delete-share -0.1", "--delete-share nan"] {
            let words: Vec<&str> = bad.split(' ').collect();
            let o = Options::parse_from(["kv", "--mib", "1", &format!("{}={}", words[0], words[1])]);
            assert_eq!(Kv::new(&o).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
