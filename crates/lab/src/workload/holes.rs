//! MEGA's Figure 2 and Table 7: memory is allocated and iterated over, half of it is freed in chunks of 1 MB, and the rest is
//! iterated over for two minutes. The freed chunks leave holes that compaction has to close.

use super::stage::{rate, Meter};
use super::{area_json, mebibytes, Common, Plan, Stage, Workload, WorkloadError, MIB};
use crate::memory::content::word;
use crate::memory::{base_page_bytes, rss_bytes, Mapping};
use crate::protocol::emit::event;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use mega_sim::workload::pattern::hole_goes;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

/// Options of `holes`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Frees half of its memory in chunks of 1 MB and iterates over the rest")]
pub struct Options {
    /// Size of all memory in MiB
    #[arg(long, default_value_t = 12_288)]
    pub mib: usize,
    /// Time to iterate over what is left
    #[arg(long, default_value_t = 120.0)]
    pub seconds: f64,
    /// Free random chunks instead of every second one
    #[arg(long)]
    pub random: bool,
    /// Free by MADV_DONTNEED instead of munmap, as allocators do that keep their address space
    #[arg(long)]
    pub dontneed: bool,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.mib, self.seconds)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// A run of mapped pages: its mapping, its first page there, its length, and the original number of its first page.
#[derive(Debug, Clone, Copy)]
struct Piece {
    area: usize,
    first: usize,
    pages: usize,
    number: usize,
}

/// The memory.
#[derive(Debug)]
pub struct Holes {
    areas: Vec<Mapping>,
    pieces: Vec<Piece>,
    seed: u64,
}

impl Holes {
    /// Maps `bytes`, untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        let area = common.map(bytes)?;
        let per_chunk = MIB / base_page_bytes();
        let chunk = |number| Piece {
            area: 0,
            first: number,
            pages: per_chunk,
            number,
        };
        let pages = area.len_bytes() / base_page_bytes();
        Ok(Self {
            areas: vec![area],
            pieces: (0..pages).step_by(per_chunk).map(chunk).collect(),
            seed: common.seed,
        })
    }

    /// Writes every page for the first time; returns the latencies.
    #[must_use]
    pub fn fill(&self) -> Latency {
        let mut touches = Latency::new();
        let words_per_page = base_page_bytes() / 8;
        for p in &self.pieces {
            let words = self.areas[p.area].words();
            for i in 0..p.pages {
                let w = &words[(p.first + i) * words_per_page];
                let value = word(self.seed, (p.number + i) as u64);
                let start = now_ns();
                w.store(value, Relaxed);
                touches.record(now_ns() - start);
            }
        }
        touches
    }

    /// Number of 1 MB chunks left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Reads, checks and writes back a word of each page of chunk `at`; returns the number of pages.
    ///
    /// # Errors
    /// The first corrupt word.
    pub fn visit(&self, at: usize) -> Result<u64, WorkloadError> {
        let p = self.pieces[at];
        let words_per_page = base_page_bytes() / 8;
        let words = self.areas[p.area].words();
        for i in 0..p.pages {
            let w = &words[(p.first + i) * words_per_page];
            let (found, expected) = (w.load(Relaxed), word(self.seed, (p.number + i) as u64));
            if found != expected {
                let address = std::ptr::from_ref(w) as usize;
                let text = format!("holes word at {address:#x} is {found:#x}, not {expected:#x}");
                return Err(WorkloadError::Corrupt(text));
            }
            w.store(found, Relaxed);
        }
        Ok(p.pages as u64)
    }

    /// Checks a word of every page left; returns the number of pages.
    ///
    /// # Errors
    /// The first corrupt word.
    pub fn verify(&self) -> Result<u64, WorkloadError> {
        (0..self.len()).map(|at| self.visit(at)).sum()
    }

    /// Frees every second chunk, or half of them drawn by seed: once, before anything is freed. Returns the bytes freed.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn free_half(&mut self, random: bool, dontneed: bool) -> Result<usize, WorkloadError> {
        let seed = self.seed;
        let goes = |p: &Piece| hole_goes(seed, (p.number / p.pages) as u64, random);
        let (gone, mut kept): (Vec<Piece>, Vec<Piece>) = self.pieces.iter().partition(|p| goes(p));
        let page = base_page_bytes();
        if dontneed {
            for p in &gone {
                self.areas[p.area].advise(p.first * page..(p.first + p.pages) * page, libc::MADV_DONTNEED)?;
            }
        } else {
            let mut rest = self.areas.pop();
            let mut rest_first = 0;
            // First page of each mapping that is left, ascending.
            let mut firsts = Vec::new();
            for p in &gone {
                let Some(area) = rest.take() else { break };
                let from = (p.first - rest_first) * page;
                let (left, right) = area.unmap_part(from..from + p.pages * page);
                if let Some(left) = left {
                    firsts.push(rest_first);
                    self.areas.push(left);
                }
                rest = right;
                rest_first = p.first + p.pages;
            }
            if let Some(rest) = rest {
                firsts.push(rest_first);
                self.areas.push(rest);
            }
            for p in &mut kept {
                p.area = firsts.partition_point(|first| *first <= p.first) - 1;
                p.first -= firsts[p.area];
            }
        }
        self.pieces = kept;
        Ok(gone.iter().map(|p| p.pages * page).sum())
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let mut holes = Holes::new(mebibytes(o.mib)?, &o.common)?;
    let areas = [area_json("area", &holes.areas[0])];
    stage.start(&areas, json!({"seed": o.common.seed}));
    let start = now_ns();
    let touches = holes.fill();
    let fill_ns = now_ns() - start;
    holes.verify()?;
    stage.phase("free");
    let start = now_ns();
    let freed_bytes = holes.free_half(o.random, o.dontneed)?;
    let free_ns = now_ns() - start;
    stage.ready(
        &areas,
        json!({"fill_ns": fill_ns, "free_ns": free_ns, "freed_bytes": freed_bytes, "touch": touches.summary(),
            "rss_bytes": rss_bytes()}),
    );
    let mut meter = Meter::new(stage, o.seconds);
    for at in (0..holes.len()).cycle() {
        let visits = holes.visit(at)?;
        if !meter.goes_on(visits) {
            break;
        }
    }
    stage.result(
        json!({"ops": meter.operations(), "freed_bytes": freed_bytes, "rss_bytes": rss_bytes()}),
        &[
            ("ops_per_s", rate(meter.operations(), meter.elapsed_ns())),
            ("elapsed_ns", meter.elapsed_ns() as f64),
            ("first_touch_ns", fill_ns as f64),
            ("free_ns", free_ns as f64),
            ("freed_bytes", freed_bytes as f64),
        ],
        &[("touch", &touches)],
    );
    let result = holes.verify();
    event("checked", json!({"ok": result.is_ok(), "pages": result.as_ref().ok()}));
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mib: usize) -> Holes {
        let holes = Holes::new(mib * MIB, &Common::of_seed(2)).unwrap();
        assert_eq!(holes.fill().count() as usize, mib * 256);
        assert_eq!(holes.verify().unwrap() as usize, mib * 256);
        holes
    }

    #[test]
    fn every_second_chunk_goes_and_the_others_are_as_they_were() {
        for mib in [1, 2, 7, 16] {
            let mut h = filled(mib);
            assert_eq!(h.free_half(false, false).unwrap(), mib / 2 * MIB);
            assert_eq!(h.len(), mib.div_ceil(2));
            assert_eq!(h.areas.len(), mib.div_ceil(2), "each is a mapping of its own");
            assert_eq!(h.verify().unwrap() as usize, mib.div_ceil(2) * 256);
        }
    }

    #[test]
    fn chunks_drawn_at_random_are_about_half_and_stay_right() {
        let mut h = filled(64);
        let freed = h.free_half(true, false).unwrap() / MIB;
        assert!((20..44).contains(&freed), "{freed}");
        assert_eq!(h.len(), 64 - freed);
        assert_eq!(h.verify().unwrap() as usize, (64 - freed) * 256);
    }

    #[test]
    fn memory_freed_by_advice_stays_one_mapping_and_is_zero() {
        let mut h = filled(4);
        assert_eq!(h.free_half(false, true).unwrap(), 2 * MIB);
        assert_eq!(h.areas.len(), 1);
        assert_eq!(h.areas[0].page_words(256)[0].load(Relaxed), 0);
        assert_eq!(h.verify().unwrap(), 512);
        h.areas[0].page_words(0)[0].store(7, Relaxed);
        assert_eq!(h.verify().unwrap_err().exit_code(), 3);
    }
}
