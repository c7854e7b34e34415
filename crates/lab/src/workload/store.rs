//! The embedded store of `mega demo`: a dense part that benefits from huge pages (a full table under random reads and writes) and
//! a sparse part that must not get them (a scattered sixth of its base pages).

use super::sparse_area::SparseArea;
use super::table::ValueTable;
use super::Zipf;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::rss_bytes;
use crate::protocol::command::Commands;
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::{probe_step, touches_due};
use rand_core::RngCore;
use serde_json::{json, Value};

/// Options of `store`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "A key-value store with a dense hot and a scattered part. With --wait: go, check, quit on stdin")]
pub struct Options {
    /// Size of the dense part's values in MiB
    #[arg(long, default_value_t = 2048)]
    pub dense_mib: usize,
    /// Address space of the sparse part in MiB (0: none)
    #[arg(long, default_value_t = 6144)]
    pub sparse_mib: usize,
    /// Share of the sparse part's base pages to use
    #[arg(long, default_value_t = 1.0 / 6.0)]
    pub share: f64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1024)]
    pub value_bytes: usize,
    /// How long to serve
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Share of writes
    #[arg(long, default_value_t = 0.1)]
    pub writes: f64,
    /// Exponent of the Zipf distribution of keys (0 is uniform; must be below 1)
    #[arg(long, default_value_t = 0.0)]
    pub zipf: f64,
    /// Fixed rate in operations per second (latency from the intended start); 0: closed loop
    #[arg(long, default_value_t = 0)]
    pub rate: u64,
    /// Sparse pages faulted in per second while serving instead of in the fill
    #[arg(long, default_value_t = 0)]
    pub grow: u64,
    /// One operation in this many reads the sparse part
    #[arg(long, default_value_t = 1000)]
    pub sparse_every: u64,
    /// Words of a value that a read checks
    #[arg(long, default_value_t = 4)]
    pub probe: usize,
    /// Wait for `go` before the fill
    #[arg(long)]
    pub wait_fill: bool,
    /// Wait for `go` after the fill, and accept commands while serving
    #[arg(long)]
    pub wait: bool,
    /// Skip the final full check
    #[arg(long)]
    pub no_verify: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Both parts.
#[derive(Debug)]
pub struct Store {
    table: ValueTable,
    sparse: Option<SparseArea>,
}

/// Latencies of operations and of first touches, of the last second and of all.
#[derive(Debug, Default)]
struct ServeLatencies {
    operations: [Latency; 2],
    touches: [Latency; 2],
}

impl ServeLatencies {
    fn report(&mut self, ops_per_s: f64) -> Value {
        let v = json!({"ops_per_s": ops_per_s, "op": self.operations[0].summary(), "touch": self.touches[0].summary(),
            "rss_bytes": rss_bytes()});
        for [second, all] in [&mut self.operations, &mut self.touches] {
            all.add(second);
            second.clear();
        }
        v
    }
}

impl Store {
    /// Maps both parts according to `o`, untouched.
    ///
    /// # Errors
    /// Invalid options; memory.
    pub fn new(o: &Options) -> Result<Self, WorkloadError> {
        let table = ValueTable::new(mebibytes(o.dense_mib)?, o.value_bytes, &o.common)?;
        let sparse = match o.sparse_mib {
            0 => None,
            mib => Some(SparseArea::new(mebibytes(mib)?, o.share, &o.common)?),
        };
        Ok(Self { table, sparse })
    }

    fn areas(&self) -> Vec<Value> {
        let [index, slab] = self.table.mappings();
        let mut areas = vec![area_json("index", index), area_json("dense", slab)];
        areas.extend(self.sparse.as_ref().map(|s| area_json("sparse", s.memory())));
        areas
    }

    /// Fills the table, and the sparse part but for `reserve` pages; returns the latencies of the first touches.
    pub fn fill(&mut self, reserve: usize) -> Latency {
        let mut touches = Latency::new();
        self.table.fill(&mut touches);
        if let Some(s) = &mut self.sparse {
            for _ in 0..s.progress().1.saturating_sub(reserve) {
                s.touch_next().into_iter().for_each(|ns| touches.record(ns));
            }
        }
        touches
    }

    /// Checks everything; returns values and sparse pages checked.
    ///
    /// # Errors
    /// The first that is not what it must be.
    pub fn verify(&self) -> Result<(usize, usize), WorkloadError> {
        let values = self.table.verify()?;
        let pages = self.sparse.as_ref().map_or(Ok(0), SparseArea::verify)?;
        Ok((values, pages))
    }

    fn say_verified(&self) -> Result<(), WorkloadError> {
        let result = self.verify();
        let error = result.as_ref().err().map(ToString::to_string);
        let (values, pages) = *result.as_ref().unwrap_or(&(0, 0));
        event(
            "checked",
            json!({"ok": error.is_none(), "values": values, "sparse_pages": pages, "error": error}),
        );
        result.map(|_| ())
    }

    /// Serves for `o.seconds`; returns the number of operations and their latencies.
    fn serve(&mut self, o: &Options, commands: &Commands) -> Result<(u64, ServeLatencies), WorkloadError> {
        let zipf = Zipf::new(self.table.count() as u64, o.zipf);
        let step = probe_step(o.value_bytes as u64, o.probe as u64) as usize;
        let write_limit = (o.writes.clamp(0.0, 1.0) * 1024.0) as u64;
        let interval_ns = 1_000_000_000u64.checked_div(o.rate).unwrap_or(0);
        let (mut rng, mut seen, mut ops, mut grown) = (o.common.rng(), ServeLatencies::default(), 0u64, 0u64);
        let start = now_ns();
        let end = start + seconds_to_ns(o.seconds);
        let (mut last, mut reported) = (start, 0);
        let mut now = start;
        while now < end {
            let mut began = now;
            if interval_ns > 0 {
                began = start + ops * interval_ns;
                while now < began {
                    std::hint::spin_loop();
                    now = now_ns();
                }
            }
            let random = rng.next_u64();
            let key = self.table.key(zipf.rank(random));
            if random & 1023 < write_limit {
                self.table.put(key)?;
            } else {
                self.table.get(key, step)?;
            }
            ops += 1;
            if let Some(s) = &self.sparse {
                if o.sparse_every > 0 && ops % o.sparse_every == 0 {
                    s.visit(rng.next_u64())?;
                }
            }
            now = now_ns();
            seen.operations[0].record(now.saturating_sub(began));
            if o.grow > 0 && grown < touches_due(now - start, o.grow) {
                if let Some(ns) = self.sparse.as_mut().and_then(SparseArea::touch_next) {
                    seen.touches[0].record(ns);
                }
                grown += 1;
                now = now_ns();
            }
            if now - last >= 1_000_000_000 {
                event(
                    "report",
                    seen.report((ops - reported) as f64 / seconds_between(last, now)),
                );
                match commands.poll().as_deref() {
                    Some("check") => self.say_verified()?,
                    Some("quit") => break,
                    _ => {}
                }
                (last, reported) = (now, ops);
                now = now_ns();
            }
        }
        let ops_per_s = ops as f64 / seconds_between(start, now);
        let _ = seen.report(ops_per_s);
        Ok((ops, seen))
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.dense_mib.saturating_add(self.sparse_mib), self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let mut store = Store::new(o)?;
    stage.listen(o.wait || o.wait_fill);
    let commands = stage.commands();
    stage.start(&store.areas(), json!({"seed": o.common.seed}));
    if o.wait_fill && !commands.wait_for_go() {
        return Ok(());
    }
    let start = now_ns();
    let reserve = touches_due(seconds_to_ns(o.seconds), o.grow) as usize;
    let fill = store.fill(reserve);
    let sparse_pages = store.sparse.as_ref().map_or((0, 0), SparseArea::progress);
    let fill_ns = now_ns() - start;
    stage.ready(
        &store.areas(),
        json!({"fill_ns": fill_ns,
            "values": store.table.count(), "sparse_pages_touched": sparse_pages.0, "sparse_pages_planned": sparse_pages.1,
            "touch": fill.summary(), "rss_bytes": rss_bytes()}),
    );
    if o.wait && !commands.wait_for_go() {
        return Ok(());
    }
    let start = now_ns();
    let (ops, seen) = store.serve(o, commands)?;
    let elapsed_ns = now_ns() - start;
    let ops_per_s = ops as f64 / seconds_between(0, elapsed_ns);
    let mut touches = fill;
    touches.add(&seen.touches[1]);
    stage.result(
        json!({"ops": ops, "elapsed_ns": elapsed_ns, "ops_per_s": ops_per_s,
            "op": seen.operations[1].summary(), "touch": seen.touches[1].summary(), "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", ops_per_s),
            ("elapsed_ns", elapsed_ns as f64),
            ("first_touch_ns", fill_ns as f64),
        ],
        &[("op", &seen.operations[1]), ("touch", &touches)],
    );
    if o.no_verify {
        return Ok(());
    }
    store.say_verified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(text: &str) -> Options {
        Options::parse_from(std::iter::once("store").chain(text.split_whitespace()))
    }

    #[test]
    fn a_small_store_fills_serves_grows_and_verifies() {
        let o =
            options("--dense-mib 4 --sparse-mib 16 --seconds 0.3 --grow 500 --writes 0.5 --zipf 0.9 --sparse-every 10");
        let mut s = Store::new(&o).unwrap();
        let fill = s.fill(150);
        let planned = s.sparse.as_ref().unwrap().progress().1;
        assert_eq!(fill.count() as usize, 1024 + planned - 150);
        let (ops, seen) = s.serve(&o, &Commands::none()).unwrap();
        assert!(ops > 1000);
        assert_eq!(seen.operations[1].count(), ops);
        assert!(
            (100..=150).contains(&seen.touches[1].count()),
            "{}",
            seen.touches[1].count()
        );
        let (values, pages) = s.verify().unwrap();
        assert_eq!(values, 4096);
        assert_eq!(pages, planned - 150 + seen.touches[1].count() as usize);
    }

    #[test]
    fn a_fixed_rate_is_kept() {
        let o = options("--dense-mib 1 --sparse-mib 0 --seconds 0.3 --rate 10000");
        let mut s = Store::new(&o).unwrap();
        let _ = s.fill(0);
        let (ops, _) = s.serve(&o, &Commands::none()).unwrap();
        assert!((2500..=3001).contains(&ops), "{ops}");
    }
}
