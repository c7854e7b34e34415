//! A fork server: a parent with much memory forks a child per request, which reads some pages of it and writes some, each a copy on
//! write, and exits. A copy of a huge page is 512 times as large.

use super::stage::rate;
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::{mix, word};
use crate::memory::{base_page_bytes, fork_child, Exit, Mapping};
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

/// Options of `forks`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Fills an area, then forks children that read it and write some of it")]
pub struct Options {
    /// Size of the area in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Number of children, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub times: u32,
    /// Pages that each writes; it reads ten times as many
    #[arg(long, default_value_t = 200)]
    pub pages: u32,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        // A fork copies page tables: about 10 ms a GB. A child's copies are huge at worst.
        let fork_s = 0.005 + self.mib as f64 * 1e-5;
        let copied_mib = (self.pages as usize * 2).min(self.mib);
        Plan::of(self.mib + copied_mib, f64::from(self.times) * fork_s)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// The first word of a page.
fn first(memory: &Mapping, page: u64) -> &std::sync::atomic::AtomicU64 {
    &memory.page_words(page as usize)[0]
}

/// What a child does; whether it found what its parent had written.
fn request(memory: &Mapping, pages: u32, seed: u64, child: u64) -> bool {
    let all = (memory.len_bytes() / base_page_bytes()) as u64;
    let mut draw = mix(seed ^ child);
    for i in 0..pages.saturating_mul(11) {
        draw = mix(draw);
        let page = draw % all;
        let found = first(memory, page).load(Relaxed);
        // A page that it has written itself before.
        if found != word(seed, page) && found != child {
            return false;
        }
        if i % 11 == 0 {
            first(memory, page).store(child, Relaxed);
        }
    }
    true
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let memory = o.common.map(mebibytes(o.mib)?)?;
    let (seed, all) = (o.common.seed, (memory.len_bytes() / base_page_bytes()) as u64);
    let areas = [area_json("area", &memory)];
    stage.start(&areas, json!({}));
    let start = now_ns();
    for page in 0..all {
        first(&memory, page).store(word(seed, page), Relaxed);
    }
    let first_touch_ns = now_ns() - start;
    stage.ready(&areas, json!({ "first_touch_ns": first_touch_ns }));
    let mut latency = Latency::new();
    let begun = now_ns();
    for child in 1..=u64::from(o.times) {
        let at = now_ns();
        let right = || u8::from(!request(&memory, o.pages, seed, child));
        let ended = fork_child(right)
            .and_then(|mut child| child.wait())
            .map_err(WorkloadError::system("fork a child"))?;
        if ended != Exit::Code(0) {
            return Err(WorkloadError::corrupt(
                "forks",
                format_args!("child {child}: {ended:?}"),
            ));
        }
        latency.record(now_ns() - at);
        if stage.is_over() {
            break;
        }
    }
    let served_ns = now_ns() - begun;
    stage.result(
        json!({"children": latency.count()}),
        &[
            ("ops_per_s", rate(latency.count(), served_ns)),
            ("first_touch_ns", first_touch_ns as f64),
            ("elapsed_ns", (now_ns() - start) as f64),
        ],
        &[("request", &latency)],
    );
    match (0..all).find(|page| first(&memory, *page).load(Relaxed) != word(seed, *page)) {
        None => Ok(()),
        Some(page) => Err(WorkloadError::corrupt("forks", format_args!("page {page} has changed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_finds_what_is_there_and_sees_a_changed_page() {
        let memory = Mapping::new(1 << 20).unwrap();
        let fill = || (0..256).for_each(|page| first(&memory, page).store(word(4, page), Relaxed));
        fill();
        assert!(request(&memory, 50, 4, 1));
        fill();
        (0..256).for_each(|page| first(&memory, page).store(!word(4, page), Relaxed));
        assert!(!request(&memory, 50, 4, 1));
    }
}
