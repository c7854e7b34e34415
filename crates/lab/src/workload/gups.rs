//! GUPS: giga-updates per second. A table of 64-bit words, updated by XOR at random places: nearly every update is a TLB
//! miss on base pages. XOR with the same sequence again undoes the updates, which is how the table checks itself.

use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::clock::{now_ns, seconds_between, seconds_to_ns};
use crate::content;
use crate::emit::event;
use crate::memory::{base_page_bytes, rss_bytes, Mapping};
use mega_sim::workload::pattern::updates;
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

/// Options of `gups`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Random updates of a table of 64-bit integers. With --wait: go, quit on stdin")]
pub struct Options {
    /// Size of the table in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Size of the table in GiB, instead
    #[arg(long, conflicts_with = "mib")]
    pub gib: Option<usize>,
    /// Time to update for
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Updates to do, instead of a time
    #[arg(long, conflicts_with = "seconds")]
    pub updates: Option<u64>,
    /// Seconds between reports (a trailing s is fine)
    #[arg(long, default_value = "1s", value_parser = report_seconds)]
    pub report: f64,
    /// Undo all updates at the end and check every word
    #[arg(long)]
    pub check: bool,
    /// Wait for `go` after the initialisation; `quit` ends early
    #[arg(long)]
    pub wait: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// Reads `1`, `0.5` or `1s`; more than zero.
fn report_seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a number of seconds above zero".into()),
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    memory: Mapping,
    seed: u64,
}

impl Table {
    /// Maps a table of `bytes`, untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        Ok(Self {
            memory: common.map(bytes)?,
            seed: common.seed,
        })
    }

    /// Fills it in order and returns how long that took: the time of first touch.
    #[must_use]
    pub fn initialise(&self) -> u64 {
        let start = now_ns();
        content::fill(self.memory.words(), self.seed);
        now_ns() - start
    }

    /// The next `count` updates that `rng` gives. The same again undoes them.
    pub fn update(&self, rng: &mut Pcg64Mcg, count: u64) {
        let words = self.memory.words();
        for (index, random) in updates(rng, words.len() as u64).take(count as usize) {
            let w = &words[index as usize];
            w.store(w.load(Relaxed) ^ random, Relaxed);
        }
    }

    /// Checks that every word is as it was initialised.
    ///
    /// # Errors
    /// The first word that is not.
    pub fn verify(&self) -> Result<(), WorkloadError> {
        content::verify(self.memory.words(), self.seed).map_err(|m| {
            let at = self.memory.start() + 8 * m.index;
            WorkloadError::Corrupt(format!("gups word at {at:#x} is {:#x}, not {:#x}", m.found, m.expected))
        })
    }
}

const CHUNK: u64 = 16_384;

impl Options {
    fn size_mib(&self) -> usize {
        self.gib.map_or(self.mib, |g| g.saturating_mul(1024))
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.size_mib(), self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let bytes = mebibytes(o.size_mib())?;
    let table = Table::new(bytes, &o.common)?;
    let areas = [area_json("table", &table.memory)];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let init_ns = table.initialise();
    let pages = (bytes / base_page_bytes()) as u64;
    let per_page_ns = init_ns as f64 / pages as f64;
    stage.ready(
        &areas,
        json!({"first_touch_ns": init_ns, "first_touch_per_page_ns": per_page_ns, "rss_bytes": rss_bytes()}),
    );
    if !stage.go(o.wait) {
        return Ok(());
    }
    let mut rng = o.common.rng();
    let start = now_ns();
    let end = start.saturating_add(seconds_to_ns(o.seconds));
    let (mut done, mut reported, mut last) = (0, 0, start);
    loop {
        let left = o.updates.map_or(CHUNK, |n| n.saturating_sub(done).min(CHUNK));
        table.update(&mut rng, left);
        done += left;
        let now = now_ns();
        if seconds_between(last, now) >= o.report {
            let rate = (done - reported) as f64 / seconds_between(last, now);
            event(
                "report",
                json!({"updates": done, "updates_per_s": rate, "ops_per_s": rate, "rss_bytes": rss_bytes()}),
            );
            (last, reported) = (now, done);
        }
        let finished = o.updates.map_or(now >= end, |n| done >= n);
        if finished || stage.is_over() {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    let rate = done as f64 / seconds_between(0, elapsed_ns);
    let ns_each = elapsed_ns as f64 / done.max(1) as f64;
    stage.result(
        json!({"updates": done, "elapsed_ns": elapsed_ns, "updates_per_s": rate, "ns_per_update": ns_each,
            "first_touch_ns": init_ns, "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate),
            ("op_ns", ns_each),
            ("elapsed_ns", elapsed_ns as f64),
            ("first_touch_ns", init_ns as f64),
        ],
        &[],
    );
    if o.check {
        let mut again = o.common.rng();
        table.update(&mut again, done);
        let result = table.verify();
        event(
            "checked",
            json!({"ok": result.is_ok(), "words": table.memory.words().len()}),
        );
        result?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_change_the_table_and_the_same_updates_undo_them() {
        let common = Common::of_seed(4);
        let table = Table::new(1 << 20, &Common::of_seed(4)).unwrap();
        assert!(table.initialise() > 0);
        table.verify().unwrap();
        table.update(&mut common.rng(), 1000);
        assert!(table.verify().is_err());
        table.update(&mut common.rng(), 1000);
        table.verify().unwrap();
    }

    #[test]
    fn one_changed_bit_is_corruption_with_its_address() {
        let table = Table::new(1 << 20, &Common::of_seed(4)).unwrap();
        let _ = table.initialise();
        table.memory.words()[77].fetch_xor(1, Relaxed);
        let e = table.verify().unwrap_err();
        assert_eq!(e.exit_code(), 3);
        assert!(e.to_string().contains(&format!("{:#x}", table.memory.start() + 77 * 8)));
    }

    #[test]
    fn a_report_interval_may_carry_its_unit() {
        assert_eq!(report_seconds("0.5s"), Ok(0.5));
        assert!(report_seconds("0").is_err());
        assert!(report_seconds("x").is_err());
    }
}
