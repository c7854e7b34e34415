//! The four kinds of 2 MB regions that a policy must distinguish: `full-hot` should become huge; `full-cold` and
//! `tenth-hot` (51 of 512 pages mapped) should stay as they are; `huge-waste` is a huge page of which only 10 of 512 base pages
//! have content, and those are hot: its waste should be recovered.
//!
//! Base pages are made with THP disabled for this process during the touching only, so that no VMA carries advice. Huge
//! pages are touched first and then collapsed by MADV_COLLAPSE.

use super::hot::{check_page, write_page, HotLoop, PageAt};
use super::{area_json, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::{self, below, mix};
use crate::memory::{self, base_page_bytes, fork_child, Child, Exit, Mapping, HUGE_BYTES, MADV_COLLAPSE};
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use serde_json::{json, Value};
use std::sync::Arc;
use std::time::Duration;

/// Options of `kinds`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Regions of four kinds. stdin: check, check-all, where, fork SECONDS, pause, go, quit")]
pub struct Options {
    /// Regions of each kind
    #[arg(long, default_value_t = 16)]
    pub regions: usize,
    /// VMAs to spread the regions over
    #[arg(long, default_value_t = 4)]
    pub vmas: usize,
    /// Alternate the kinds within each VMA instead of laying them out kind by kind
    #[arg(long)]
    pub mix: bool,
    /// The hot loop writes to each page, not only reads
    #[arg(long)]
    pub write: bool,
    /// Time between sweeps of the hot loop in ms (200 at most)
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=200))]
    pub hot_ms: u64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

/// The kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// Every page written and continually touched.
    FullHot,
    /// Every page written, then idle.
    FullCold,
    /// 51 of 512 pages written and continually touched; the others never touched.
    TenthHot,
    /// Huge; 10 of 512 pages written and continually touched; the others zero.
    HugeWaste,
}

const KINDS: [(RegionKind, &str); 4] = [
    (RegionKind::FullHot, "full-hot"),
    (RegionKind::FullCold, "full-cold"),
    (RegionKind::TenthHot, "tenth-hot"),
    (RegionKind::HugeWaste, "huge-waste"),
];

impl RegionKind {
    fn pages_written(self, all: usize) -> usize {
        match self {
            Self::FullHot | Self::FullCold => all,
            Self::TenthHot => all / 10,
            Self::HugeWaste => 10,
        }
    }

    fn name(self) -> &'static str {
        KINDS.iter().find(|(k, _)| *k == self).map_or("", |(_, n)| n)
    }
}

#[derive(Debug)]
struct Region {
    kind: RegionKind,
    area: u32,
    first_page: u32,
    /// Pages written, ascending, relative to the area.
    written: Vec<u32>,
}

/// The regions and their memory.
#[derive(Debug)]
pub struct Layout {
    areas: Arc<Vec<Mapping>>,
    regions: Vec<Region>,
    seed: u64,
    /// Number of failed MADV_COLLAPSE calls, with the last error.
    not_huge: (usize, Option<String>),
}

impl Layout {
    /// Maps and fills `regions` of each kind over `vmas` VMAs.
    ///
    /// # Errors
    /// More VMAs than regions; memory.
    pub fn new(regions: usize, vmas: usize, mixed: bool, seed: u64) -> Result<Self, WorkloadError> {
        let total = regions.saturating_mul(4);
        if vmas == 0 || vmas > total {
            return Err(WorkloadError::Usage(format!(
                "{total} regions cannot be spread over {vmas} VMAs"
            )));
        }
        let per_region = HUGE_BYTES / base_page_bytes();
        let bound = |v: usize| v * total / vmas;
        let mut areas = (0..vmas)
            .map(|v| Mapping::new((bound(v + 1) - bound(v)) * HUGE_BYTES))
            .collect::<Result<Vec<_>, _>>()?;
        let mut list = Vec::with_capacity(total);
        for v in 0..vmas {
            for g in bound(v)..bound(v + 1) {
                let kind = KINDS[if mixed { g % 4 } else { g / regions }].0;
                let first = (g - bound(v)) * per_region;
                let written = draw(per_region, kind.pages_written(per_region), mix(seed ^ g as u64));
                let written = written.into_iter().map(|p| (first + p) as u32).collect();
                list.push(Region {
                    kind,
                    area: v as u32,
                    first_page: first as u32,
                    written,
                });
            }
        }
        memory::base_pages_only(|| {
            for r in &list {
                r.written.iter().for_each(|p| write_page(&areas, seed, (r.area, *p)));
            }
        })
        .map_err(WorkloadError::system("disable THP while touching"))?;
        let mut not_huge = (0, None);
        for r in list.iter().filter(|r| r.kind == RegionKind::HugeWaste) {
            let from = r.first_page as usize * base_page_bytes();
            if let Err(e) = areas[r.area as usize].advise(from..from + HUGE_BYTES, MADV_COLLAPSE) {
                not_huge = (not_huge.0 + 1, Some(e.to_string()));
            }
        }
        Ok(Self {
            areas: Arc::new(areas),
            regions: list,
            seed,
            not_huge,
        })
    }

    fn hot_pages(&self) -> Vec<PageAt> {
        let hot = self.regions.iter().filter(|r| r.kind != RegionKind::FullCold);
        hot.flat_map(|r| r.written.iter().map(|p| (r.area, *p))).collect()
    }

    fn start_of(&self, r: &Region) -> usize {
        self.areas[r.area as usize].start() + r.first_page as usize * base_page_bytes()
    }

    /// Checks every page written, and every page of the `huge-waste` kind; with `all` also that the untouched pages of
    /// `tenth-hot` are zero, which maps the zero page there. `mark` is the last word of hot pages.
    ///
    /// # Errors
    /// The first corrupt page.
    pub fn check(&self, mark: Option<u64>, all: bool) -> Result<usize, String> {
        let mut pages = 0;
        let per_region = (HUGE_BYTES / base_page_bytes()) as u32;
        for r in &self.regions {
            let mark = mark.filter(|_| r.kind != RegionKind::FullCold);
            let blame = |text: String| format!("{} region at {:#x}: {text}", r.kind.name(), self.start_of(r));
            for page in r.first_page..r.first_page + per_region {
                let at = (r.area, page);
                if r.written.binary_search(&page).is_ok() {
                    check_page(&self.areas, self.seed, at, mark).map_err(blame)?;
                } else if all || r.kind == RegionKind::HugeWaste {
                    let words = self.areas[r.area as usize].page_words(page as usize);
                    content::verify_zero(words)
                        .map_err(|m| blame(format!("page {page} word {} is {:#x}, not 0", m.index, m.found)))?;
                } else {
                    continue;
                }
                pages += 1;
            }
        }
        Ok(pages)
    }

    fn describe(&self) -> Value {
        let mut kinds = serde_json::Map::new();
        for (kind, name) in KINDS {
            let starts: Vec<usize> = self
                .regions
                .iter()
                .filter(|r| r.kind == kind)
                .map(|r| self.start_of(r))
                .collect();
            kinds.insert(name.to_string(), json!(starts));
        }
        Value::Object(kinds)
    }
}

/// `count` of `0..n`, ascending, drawn by `seed`.
fn draw(n: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut pages: Vec<usize> = (0..n).collect();
    for i in 0..count.min(n) {
        let j = i + below(mix(seed.wrapping_add(i as u64)), (n - i) as u64) as usize;
        pages.swap(i, j);
    }
    pages.truncate(count);
    pages.sort_unstable();
    pages
}

/// Forks a child that holds and checks its view of the memory for `seconds`.
fn fork_holder(layout: &Layout, mark: Option<u64>, seconds: f64) -> Result<Child, WorkloadError> {
    fork_child(|| {
        let end = now_ns() + crate::timing::clock::seconds_to_ns(seconds);
        loop {
            if let Err(text) = layout.check(mark, false) {
                eprintln!("kinds: the forked child's view is corrupt: {text}");
                return 3;
            }
            if now_ns() >= end {
                return 0;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    })
    .map_err(WorkloadError::system("fork"))
}

fn reap(children: &mut Vec<Child>) -> Result<(), WorkloadError> {
    let mut bad = None;
    children.retain_mut(|c| match c.try_wait() {
        Ok(None) => true,
        Ok(Some(exit)) => {
            let ok = exit == Exit::Code(0);
            event(
                "child-exited",
                json!({"pid": c.pid(), "ok": ok, "exit": format!("{exit:?}")}),
            );
            bad = bad.or((!ok).then_some(c.pid()));
            false
        }
        Err(_) => false,
    });
    match bad {
        Some(pid) => Err(WorkloadError::Corrupt(format!(
            "forked child {pid} failed, see its message"
        ))),
        None => Ok(()),
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::held(self.regions.saturating_mul(4 * HUGE_BYTES / super::MIB), None)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let layout = Layout::new(o.regions, o.vmas, o.mix, o.common.seed)?;
    let every = Duration::from_millis(o.hot_ms);
    let hot = HotLoop::start(
        Arc::clone(&layout.areas),
        layout.hot_pages(),
        o.common.seed,
        o.write,
        every,
    );
    stage.listen(true);
    let commands = stage.commands();
    let areas: Vec<Value> = layout.areas.iter().map(|m| area_json("regions", m)).collect();
    let ranges: Vec<_> = layout.areas.iter().map(Mapping::range).collect();
    stage.ready(
        &areas,
        json!({"regions": o.regions, "kinds": layout.describe(), "huge_bytes": memory::huge_bytes_within(&ranges),
            "rss_bytes": memory::rss_bytes(), "collapse_failed": layout.not_huge.0, "collapse_error": layout.not_huge.1}),
    );
    let mut children = Vec::new();
    let mut held = None;
    loop {
        reap(&mut children)?;
        if let Some(text) = hot.corrupt() {
            event("checked", json!({"ok": false, "error": text}));
            return Err(WorkloadError::Corrupt(text));
        }
        let Some(command) = commands.next_within(Duration::from_millis(50)) else {
            continue;
        };
        let mut words = command.split_whitespace();
        match words.next().unwrap_or_default() {
            name @ ("check" | "check-all") => {
                let _pause = hot.pause();
                let result = layout.check(hot.mark(), name == "check-all");
                event(
                    "checked",
                    json!({"ok": result.is_ok(), "pages": result.as_ref().ok(), "error": result.as_ref().err(),
                        "sweeps": hot.sweeps(), "longest_gap_ns": hot.longest_gap_ns(),
                        "rss_bytes": memory::rss_bytes()}),
                );
                result.map_err(WorkloadError::Corrupt)?;
            }
            "where" => event("where", json!({"areas": areas, "kinds": layout.describe()})),
            "fork" => {
                let seconds = words.next().and_then(|s| s.parse().ok()).unwrap_or(5.0);
                let _pause = hot.pause();
                let child = fork_holder(&layout, hot.mark(), seconds)?;
                event("forked", json!({"pid": child.pid(), "seconds": seconds}));
                children.push(child);
            }
            "pause" => held = Some(hot.pause()),
            "go" => held = None,
            "quit" => break,
            other => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
    }
    drop(held);
    {
        let _pause = hot.pause();
        layout.check(hot.mark(), false).map_err(WorkloadError::Corrupt)?;
    }
    event(
        "result",
        json!({"sweeps": hot.sweeps(), "longest_gap_ns": hot.longest_gap_ns()}),
    );
    stage.hold();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_kind_has_its_number_of_pages_in_every_layout() {
        for (vmas, mixed) in [(1, false), (4, false), (3, true), (8, true)] {
            let l = Layout::new(2, vmas, mixed, 5).unwrap();
            assert_eq!(l.areas.len(), vmas);
            for (kind, written) in [
                (RegionKind::FullHot, 512),
                (RegionKind::FullCold, 512),
                (RegionKind::TenthHot, 51),
                (RegionKind::HugeWaste, 10),
            ] {
                let of_kind: Vec<_> = l.regions.iter().filter(|r| r.kind == kind).collect();
                assert_eq!(of_kind.len(), 2);
                assert!(of_kind.iter().all(|r| r.written.len() == written), "{kind:?}");
                assert!(of_kind.iter().all(|r| l.start_of(r) % HUGE_BYTES == 0));
            }
            assert_eq!(l.check(None, false), Ok(2 * (512 + 512 + 51 + 512)));
            assert_eq!(l.check(None, true), Ok(2 * 2048));
        }
    }

    #[test]
    fn a_word_changed_in_the_waste_is_found_with_kind_and_address() {
        let l = Layout::new(1, 4, false, 5).unwrap();
        let r = l.regions.iter().find(|r| r.kind == RegionKind::HugeWaste).unwrap();
        let free = (0..512).find(|p| !r.written.contains(p)).unwrap();
        l.areas[3].page_words(free as usize)[3].store(1, Relaxed);
        let text = l.check(None, false).unwrap_err();
        assert!(text.contains("huge-waste region at 0x"), "{text}");
    }

    #[test]
    fn a_forked_child_checks_its_own_view() {
        let l = Layout::new(1, 2, true, 6).unwrap();
        assert_eq!(fork_holder(&l, None, 0.0).unwrap().wait().unwrap(), Exit::Code(0));
        l.areas[0].page_words(0)[3].fetch_xor(1, Relaxed);
        assert_eq!(fork_holder(&l, None, 0.0).unwrap().wait().unwrap(), Exit::Code(3));
    }

    #[test]
    fn more_vmas_than_regions_is_wrong_usage() {
        assert_eq!(Layout::new(1, 5, false, 1).unwrap_err().exit_code(), 2);
        assert_eq!(Layout::new(0, 1, false, 1).unwrap_err().exit_code(), 2);
    }
}
