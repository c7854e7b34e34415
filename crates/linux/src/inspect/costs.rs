//! What base and huge pages cost on this machine, measured on memory of our own: first touches, and touches at random.

use std::time::{Duration, Instant};

use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use rustix::io::Errno;

use crate::sys::{thread_cpu_time, Scratch};

/// Regions whose first touch is timed.
const FAULTED: u64 = 8;
/// Touches at random in a row, and how often that is timed: the best counts, since others may want the processor.
const TOUCHES: u64 = 50_000;
const REPEATS: usize = 24;

/// Costs in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Touching a base page for the first time.
    pub base_fault_ns: f64,
    /// Touching a huge page for the first time.
    pub huge_fault_ns: f64,
    /// The longest of those.
    pub huge_fault_max_ns: f64,
    /// An update at a random place: of base pages, of huge pages.
    pub touch_ns: [f64; 2],
    /// The same where each depends on the one before.
    pub chained_ns: [f64; 2],
    /// Of how much memory.
    pub bytes: u64,
}

impl Costs {
    /// What a touch at random takes less on huge pages: at least and at most, by how much of a look-up the processor can hide.
    pub fn saved_touch_ns(&self) -> (f64, f64) {
        let saved = |[base, huge]: [f64; 2]| (base - huge).max(0.0);
        let (alone, chained) = (saved(self.touch_ns), saved(self.chained_ns));
        (alone.min(chained), alone.max(chained))
    }

    /// What the first touch of a base page's worth of memory takes less on huge pages.
    pub fn saved_fault_ns(&self) -> f64 {
        self.base_fault_ns - self.huge_fault_ns * BASE_PAGE_BYTES as f64 / HUGE_PAGE_BYTES as f64
    }
}

/// Measures with memory of this size, twice: once on base pages, once on huge ones. None where no huge pages can be had.
///
/// # Errors
/// ENOMEM.
pub fn measure(bytes: u64) -> Result<Option<Costs>, Errno> {
    let bytes = bytes.max(2 * FAULTED * HUGE_PAGE_BYTES) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    let (mut base_memory, base) = filled(bytes, libc::MADV_NOHUGEPAGE)?;
    let (mut huge_memory, huge) = filled(bytes, libc::MADV_HUGEPAGE)?;
    // Faults gave none: `enabled` is never, or no block is free.
    if !huge.is_huge {
        return Ok(None);
    }
    let (mut touch_ns, mut chained_ns) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
    // In turns, so that both meet the same machine.
    for _ in 0..REPEATS {
        for (which, memory) in [&mut base_memory, &mut huge_memory].into_iter().enumerate() {
            for (best, chained) in [(&mut touch_ns, false), (&mut chained_ns, true)] {
                let began = thread_cpu_time();
                memory.update_at_random(TOUCHES, chained);
                best[which] = best[which].min(nanoseconds(thread_cpu_time() - began) / TOUCHES as f64);
            }
        }
    }
    Ok(Some(Costs {
        base_fault_ns: base.fault_ns * BASE_PAGE_BYTES as f64 / HUGE_PAGE_BYTES as f64,
        huge_fault_ns: huge.fault_ns,
        huge_fault_max_ns: huge.fault_max_ns,
        touch_ns,
        chained_ns,
        bytes,
    }))
}

/// Times of first touches, by the region.
struct Filled {
    fault_ns: f64,
    fault_max_ns: f64,
    is_huge: bool,
}

fn filled(bytes: u64, advice: i32) -> Result<(Scratch, Filled), Errno> {
    let mut memory = Scratch::map((bytes + HUGE_PAGE_BYTES) as usize)?;
    memory.advise(advice)?;
    // Filled once before: what is measured is the kernel, and not a host that has yet to provide the memory.
    memory.touch(memory.range(), BASE_PAGE_BYTES as usize);
    memory.drop_pages(memory.range())?;
    let first = memory.range().start.next_multiple_of(HUGE_PAGE_BYTES);
    let (mut times, mut first_page) = (Vec::new(), Vec::new());
    for region in (first..first + bytes).step_by(HUGE_PAGE_BYTES as usize) {
        let began = Instant::now();
        memory.touch(region..region + 1, 1);
        first_page.push(nanoseconds(began.elapsed()));
        memory.touch(region..region + HUGE_PAGE_BYTES, BASE_PAGE_BYTES as usize);
        times.push(nanoseconds(began.elapsed()));
    }
    // A tenth of them: others may have met a busy processor.
    let low = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 10).copied().unwrap_or(0.0)
    };
    let fault_max_ns = first_page.iter().copied().fold(0.0, f64::max);
    let (whole, one) = (low(&mut times), low(&mut first_page));
    let filled = Filled {
        fault_ns: whole,
        fault_max_ns,
        // One fault took most of the region's time, or each its own.
        is_huge: one * 2.0 > whole,
    };
    Ok((memory, filled))
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_in_proportion() {
        let Some(costs) = measure(64 << 20).unwrap() else {
            eprintln!("SKIPPED: no huge pages to be had");
            return;
        };
        assert!(costs.base_fault_ns > 20.0 && costs.base_fault_ns < 1e6, "{costs:?}");
        assert!(costs.huge_fault_ns > 5.0 * costs.base_fault_ns, "{costs:?}");
        assert!(
            costs.touch_ns[1] > 0.3 && costs.chained_ns[1] > costs.touch_ns[1] / 2.0,
            "{costs:?}"
        );
    }
}
