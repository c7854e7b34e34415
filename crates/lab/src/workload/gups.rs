//! GUPS: giga-updates per second. A table of 64-bit words, updated by XOR at random places: nearly every update is a TLB
//! miss on base pages. A word of each base page is checked against the updates applied to it.

use super::{mebibytes, range_json, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content;
use crate::memory::{base_page_bytes, rss_bytes, Area};
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_between, seconds_to_ns};
use mega_sim::workload::pattern::{updates, GUPS_UPDATES};
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
    /// Take the table from the C library's allocator instead of mapping it
    #[arg(long)]
    pub heap: bool,
    /// How long to update
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Number of updates, instead of a duration
    #[arg(long, conflicts_with = "seconds")]
    pub updates: Option<u64>,
    /// Seconds between reports (a trailing s is fine)
    #[arg(long, default_value = "1s", value_parser = report_seconds)]
    pub report: f64,
    /// At the end, check a word of each base page against all updates to it
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
pub struct UpdateTable {
    memory: Area,
    seed: u64,
}

impl UpdateTable {
    /// Maps a table of `bytes`, or takes it from the allocator; untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, on_heap: bool, common: &Common) -> Result<Self, WorkloadError> {
        Ok(Self {
            memory: common.area(bytes, on_heap)?,
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

    /// The next `count` updates that `rng` gives.
    pub fn update(&self, rng: &mut Pcg64Mcg, count: u64) {
        let words = self.memory.words();
        for (index, random) in updates(rng, words.len() as u64).take(count as usize) {
            let w = &words[index as usize];
            w.store(w.load(Relaxed) ^ random, Relaxed);
        }
    }

    /// Checks a word of each base page: its initial value combined with the first `count` updates of `rng`.
    /// Returns how many words were checked.
    ///
    /// # Errors
    /// The first word that differs.
    pub fn verify(&self, rng: &mut Pcg64Mcg, count: u64) -> Result<usize, WorkloadError> {
        let words = self.memory.words();
        let per_page = (base_page_bytes() / 8) as u64;
        // A different word from page to page.
        let place = |page: u64| page * per_page + content::mix(self.seed ^ page) % per_page;
        let pages = words.len() as u64 / per_page;
        let mut expected: Vec<u64> = (0..pages).map(|page| content::word(self.seed, place(page))).collect();
        for (index, random) in updates(rng, words.len() as u64).take(count as usize) {
            let page = index / per_page;
            if page < pages && place(page) == index {
                expected[page as usize] ^= random;
            }
        }
        for (page, expected) in (0..).zip(&expected) {
            let found = words[place(page) as usize].load(Relaxed);
            if found != *expected {
                let at = self.memory.range().start + 8 * place(page) as usize;
                let text = format!("gups word at {at:#x} is {found:#x}, not {expected:#x}");
                return Err(WorkloadError::Corrupt(text));
            }
        }
        Ok(expected.len())
    }
}

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
        // About 25 million updates in a second on base pages.
        Plan::of(self.size_mib(), self.updates.map_or(self.seconds, |n| n as f64 / 25e6))
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let bytes = mebibytes(o.size_mib())?;
    let table = UpdateTable::new(bytes, o.heap, &o.common)?;
    let areas = [range_json("table", table.memory.range())];
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
        let left = o
            .updates
            .map_or(GUPS_UPDATES, |n| n.saturating_sub(done).min(GUPS_UPDATES));
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
        let result = table.verify(&mut o.common.rng(), done);
        let words = result.as_ref().copied().unwrap_or(0);
        event("checked", json!({"ok": result.is_ok(), "words": words}));
        result?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_each_page_must_have_had_all_of_its_updates() {
        let common = Common::of_seed(4);
        let table = UpdateTable::new(1 << 20, true, &Common::of_seed(4)).unwrap();
        assert!(table.initialise() > 0);
        assert_eq!(table.verify(&mut common.rng(), 0).unwrap(), 256);
        // So many that each of the words checked had some.
        table.update(&mut common.rng(), 2_000_000);
        assert_eq!(table.verify(&mut common.rng(), 2_000_000).unwrap(), 256);
        assert!(table.verify(&mut common.rng(), 1_000_000).is_err());
    }

    #[test]
    fn a_page_that_lost_its_content_is_corruption_with_its_address() {
        let common = Common::of_seed(4);
        let table = UpdateTable::new(1 << 20, false, &common).unwrap();
        let _ = table.initialise();
        let page = 77 * 512..78 * 512;
        table.memory.words()[page.clone()]
            .iter()
            .for_each(|w| w.store(0, Relaxed));
        let e = table.verify(&mut common.rng(), 0).unwrap_err();
        assert_eq!(e.exit_code(), 3);
        let addresses = page.map(|word| format!("{:#x} ", table.memory.range().start + word * 8));
        assert!(addresses.into_iter().any(|at| e.to_string().contains(&at)), "{e}");
    }

    #[test]
    fn a_report_interval_may_carry_its_unit() {
        assert_eq!(report_seconds("0.5s"), Ok(0.5));
        assert!(report_seconds("0").is_err());
        assert!(report_seconds("x").is_err());
    }
}
