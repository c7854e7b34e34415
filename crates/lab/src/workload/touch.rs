//! First touch: the time of every page fault of an area, as the program sees it.

use super::stage::rate;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::{verify_zero, word};
use crate::memory::{base_page_bytes, rss_bytes, Mapping};
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::PageOrder;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

/// Options of `touch`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Times each first touch of an area, page by page, then checks it")]
pub struct Options {
    /// Size of the area in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Time one touch in this many (a clock read takes about 25 ns)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// Touch the pages in scattered order instead of ascending
    #[arg(long)]
    pub scattered: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.mib, 0.0)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// Writes the first word of each page and returns the time of all of it and the latencies of the touches that were timed, one
/// look at the clock included. Where all are timed, each begins when the one before it ends.
pub fn touch(memory: &Mapping, scattered: bool, every: u32, seed: u64) -> (u64, Latency) {
    let words_per_page = base_page_bytes() / 8;
    let words = memory.words();
    let pages = words.len() / words_per_page;
    let mut latency = Latency::new();
    let mut until_timed = 1;
    let start = now_ns();
    let mut last = start;
    for page in PageOrder::new(pages, scattered) {
        let w = &words[page * words_per_page];
        let value = word(seed, page as u64);
        until_timed -= 1;
        if until_timed == 0 {
            until_timed = every;
            if every > 1 {
                last = now_ns();
            }
            w.store(value, Relaxed);
            let now = now_ns();
            latency.record(now - last);
            last = now;
        } else {
            w.store(value, Relaxed);
        }
    }
    (now_ns() - start, latency)
}

/// Checks that each page has its first word and is zero otherwise. Returns the number of pages.
///
/// # Errors
/// The first page that is not so.
pub fn verify(memory: &Mapping, seed: u64) -> Result<usize, WorkloadError> {
    let pages = memory.len_bytes() / base_page_bytes();
    for page in 0..pages {
        let words = memory.page_words(page);
        let (found, expected) = (words[0].load(Relaxed), word(seed, page as u64));
        let wrong = if found == expected {
            verify_zero(&words[1..]).err().map(|m| (m.index + 1, m.found, 0))
        } else {
            Some((0, found, expected))
        };
        if let Some((index, found, expected)) = wrong {
            let at = memory.start() + page * base_page_bytes() + 8 * index;
            let text = format!("touch word at {at:#x} is {found:#x}, not {expected:#x}");
            return Err(WorkloadError::Corrupt(text));
        }
    }
    Ok(pages)
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let memory = o.common.map(mebibytes(o.mib)?)?;
    let areas = [area_json("area", &memory)];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let (first_touch_ns, latency) = touch(&memory, o.scattered, o.every, o.common.seed);
    let pages = (memory.len_bytes() / base_page_bytes()) as u64;
    stage.ready(
        &areas,
        json!({"first_touch_ns": first_touch_ns, "touch": latency.summary(), "rss_bytes": rss_bytes()}),
    );
    stage.result(
        json!({"pages": pages, "first_touch_ns": first_touch_ns, "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate(pages, first_touch_ns)),
            ("first_touch_ns", first_touch_ns as f64),
            ("op_ns", first_touch_ns as f64 / pages as f64),
        ],
        &[("touch", &latency)],
    );
    let result = verify(&memory, o.common.seed);
    event("checked", json!({"ok": result.is_ok(), "pages": result.as_ref().ok()}));
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_touched_once_in_any_order_and_timed_as_often_as_asked() {
        for (scattered, every, timed) in [(false, 1, 1024), (true, 1, 1024), (true, 16, 64), (false, 1000, 2)] {
            let memory = Mapping::new(4 << 20).unwrap();
            let (ns, latency) = touch(&memory, scattered, every, 5);
            assert_eq!(latency.count(), timed);
            assert!(ns > 0);
            assert_eq!(verify(&memory, 5).unwrap(), 1024);
        }
    }

    #[test]
    fn a_word_beside_the_touched_one_is_checked_too() {
        let memory = Mapping::new(1 << 20).unwrap();
        let _ = touch(&memory, false, 1, 5);
        memory.page_words(7)[100].store(1, Relaxed);
        let e = verify(&memory, 5).unwrap_err();
        assert_eq!(e.exit_code(), 3);
        assert!(
            e.to_string()
                .contains(&format!("{:#x}", memory.start() + 7 * 4096 + 800)),
            "{e}"
        );
        memory.page_words(7)[100].store(0, Relaxed);
        memory.page_words(9)[0].store(0, Relaxed);
        assert!(verify(&memory, 5).is_err());
    }
}
