//! Cost of the first access to a base page after its accessed bit was cleared, measured on memory of our own.

use std::time::{Duration, Instant};

use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// Memory measured on: two regions' worth, so that its page tables stay in the caches. Larger memory costs up to a half more.
const BYTES: usize = 4 << 20;
/// Page by page.
const PAGE: usize = 4096;
/// Plausible range: setting the bit takes a processor well over the lower limit, virtual machines well under the upper.
const LIMITS: (Duration, Duration) = (Duration::from_nanos(20), Duration::from_micros(5));
/// Used where it cannot be measured: the development machine's (docs/results.md).
const GUESS: Duration = Duration::from_nanos(600);

/// The cost, clamped to the plausible range.
pub fn cost() -> Duration {
    measure().unwrap_or(GUESS).clamp(LIMITS.0, LIMITS.1)
}

fn measure() -> Option<Duration> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, given back below, and used by nobody else.
    let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) }.ok()?;
    let touch = || {
        let began = Instant::now();
        for offset in (0..BYTES).step_by(PAGE) {
            // SAFETY: within the mapping above.
            unsafe { memory.cast::<u8>().add(offset).write_volatile(1) };
        }
        began.elapsed()
    };
    // SAFETY: advice on the mapping above, of which nothing is needed.
    let advise = |advice| unsafe { madvise(memory, BYTES, advice) };
    let _ = advise(Advice::LinuxNoHugepage);
    touch();
    // The minimum of each over a few runs: any disturbance makes one longer, and the difference wrong.
    let (mut set, mut cold) = (Duration::MAX, None);
    for _ in 0..5 {
        set = set.min(touch());
        if advise(Advice::LinuxCold).is_err() {
            break;
        }
        let took = touch();
        cold = Some(cold.map_or(took, |least: Duration| least.min(took)));
    }
    // SAFETY: the mapping above, which nobody uses any more.
    let _ = unsafe { munmap(memory, BYTES) };
    cold.map(|cold| cold.saturating_sub(set) / (BYTES / PAGE) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_cold_pages_costs_something_that_can_be_measured() {
        let cost = measure().unwrap();
        assert!(cost > Duration::ZERO && cost < Duration::from_micros(50), "{cost:?}");
    }
}
