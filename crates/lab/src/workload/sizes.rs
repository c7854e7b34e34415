//! MEGA's Figure 1: the same amount of memory allocated and freed as objects of 8 KB, then of 16 KB, up to 128 MB. A pause after each size lets an
//! observer read the free blocks.
//!
//! The paper does not name the allocator; this is the C library's, as in a program that allocates objects of 8 KB.

use super::stage::rate;
use super::{mebibytes, Common, Plan, Stage, Workload, WorkloadError, MIB};
use crate::memory::base_page_bytes;
use crate::memory::content::word;
use crate::protocol::emit::event;
use crate::timing::clock::{now_ns, seconds_to_ns};
use mega_sim::workload::pattern::object_sizes;
use serde_json::json;
use std::hint::black_box;
use std::time::Duration;

/// Options of `sizes`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Allocates and frees the same memory as objects of doubling size")]
pub struct Options {
    /// Memory to allocate and free for each size in MiB
    #[arg(long, default_value_t = 10_240)]
    pub mib: usize,
    /// Size of the first objects in KiB
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub from_kib: u64,
    /// Size of the last objects in KiB
    #[arg(long, default_value_t = 128 << 10)]
    pub to_kib: u64,
    /// Pause after each size in seconds
    #[arg(long, default_value_t = 1.0)]
    pub pause: f64,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Options {
    /// The sizes of objects in bytes, ascending.
    fn object_bytes(&self) -> impl Iterator<Item = usize> {
        object_sizes(self.from_kib, self.to_kib).filter_map(|bytes| usize::try_from(bytes).ok())
    }
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        let sizes = self.object_bytes().count() as f64;
        let touching = Plan::touch_seconds(self.mib) * (sizes - 1.0).max(0.0);
        Plan::of(self.mib, touching + self.pause * sizes)
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        run(self, stage)
    }
}

/// Results of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Number of objects.
    pub objects: usize,
    /// Base pages touched.
    pub pages: u64,
    /// Time to allocate and touch them.
    pub allocate_ns: u64,
    /// Time to free them, in the order of their allocation.
    pub free_ns: u64,
}

/// Allocates `bytes` as objects of `object_bytes`, touches each of their pages, checks them and frees them.
///
/// # Errors
/// When a page does not contain what was written.
pub fn round(bytes: usize, object_bytes: usize, seed: u64) -> Result<Round, WorkloadError> {
    let count = bytes / object_bytes;
    let step = base_page_bytes() / 8;
    let mut objects: Vec<Vec<u64>> = Vec::with_capacity(count);
    let mut pages = 0;
    let start = now_ns();
    for _ in 0..count {
        // Allocating fresh zeroed memory does not touch it.
        let mut object = black_box(vec![0; object_bytes / 8]);
        for w in object.iter_mut().step_by(step) {
            *w = word(seed, pages);
            pages += 1;
        }
        objects.push(object);
    }
    let allocate_ns = now_ns() - start;
    let mut page = 0;
    for object in &objects {
        for w in black_box(object).iter().step_by(step) {
            if *w != word(seed, page) {
                let at = std::ptr::from_ref(w) as usize;
                let text = format!("word of an object of {object_bytes} bytes at {at:#x} is {w:#x}");
                return Err(WorkloadError::Corrupt(text));
            }
            page += 1;
        }
    }
    let start = now_ns();
    objects.drain(..).for_each(drop);
    let free_ns = now_ns() - start;
    Ok(Round {
        objects: count,
        pages,
        allocate_ns,
        free_ns,
    })
}

/// A size in short form: `8K`, `2M`.
fn size_name(bytes: usize) -> String {
    match bytes {
        b if b >= MIB && b % MIB == 0 => format!("{}M", b / MIB),
        b => format!("{}K", b / 1024),
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    o.common.must_not_advise("sizes")?;
    let bytes = mebibytes(o.mib)?;
    stage.start(&[], json!({"seed": o.common.seed, "bytes": bytes}));
    stage.ready(&[], json!({ "bytes": bytes }));
    let (mut pages, mut allocate_ns, mut free_ns) = (0, 0, 0);
    let start = now_ns();
    for object_bytes in o.object_bytes().take_while(|b| *b <= bytes) {
        let name = size_name(object_bytes);
        stage.phase(&name);
        let round = round(bytes, object_bytes, o.common.seed)?;
        stage.phase(&format!("{name} freed"));
        event(
            "report",
            json!({"object_bytes": object_bytes, "objects": round.objects, "allocate_ns": round.allocate_ns,
                "free_ns": round.free_ns, "ops_per_s": rate(round.pages, round.allocate_ns + round.free_ns)}),
        );
        pages += round.pages;
        allocate_ns += round.allocate_ns;
        free_ns += round.free_ns;
        let pause = Duration::from_nanos(seconds_to_ns(o.pause));
        if stage.commands().next_within(pause).as_deref() == Some("quit") {
            break;
        }
    }
    let elapsed_ns = now_ns() - start;
    stage.result(
        json!({"pages": pages, "elapsed_ns": elapsed_ns}),
        &[
            ("ops_per_s", rate(pages, allocate_ns + free_ns)),
            ("allocate_ns", allocate_ns as f64),
            ("free_ns", free_ns as f64),
            ("elapsed_ns", elapsed_ns as f64),
        ],
        &[],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn sizes_double_from_8_kb_to_128_mb() {
        let o = Options::parse_from(["sizes"]);
        let sizes: Vec<usize> = o.object_bytes().collect();
        assert_eq!((sizes[0], sizes.len(), sizes[14]), (8 << 10, 15, 128 << 20));
        let names: Vec<String> = sizes.iter().map(|b| size_name(*b)).collect();
        assert_eq!(
            (names[0].as_str(), names[7].as_str(), names[14].as_str()),
            ("8K", "1M", "128M")
        );
        let o = Options::parse_from([
            "sizes",
            "--from-kib",
            &u64::MAX.to_string(),
            "--to-kib",
            &u64::MAX.to_string(),
        ]);
        assert_eq!(o.object_bytes().count(), 0);
    }

    #[test]
    fn every_page_of_every_object_is_touched_whatever_the_size() {
        for object_bytes in [8 << 10, 1 << 20, 12 << 10] {
            let r = round(4 << 20, object_bytes, 3).unwrap();
            assert_eq!(r.objects, (4 << 20) / object_bytes);
            assert_eq!(r.pages as usize, r.objects * object_bytes / 4096);
            assert!(r.allocate_ns > 0 && r.free_ns > 0);
        }
    }
}
