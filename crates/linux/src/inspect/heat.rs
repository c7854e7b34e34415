//! How many different base pages a process touches in a moment: the part of its accesses for which the processor has to look a translation up
//! anew, as far as accessed bits show it.
//!
//! The accessed bits of a sample of base-mapped regions are cleared (MADV_COLD, which also empties the TLB of them), and read again after a short
//! window. A page that is touched twice within the window counts once; touches at random are made up for ([`touches`]).

use std::time::{Duration, Instant};

use mega_core::units::{HUGE_PAGE_BYTES, REGION_PAGES};

use crate::deadline;
use crate::process::Process;
use crate::scan::{ScanError, ScanRange, Scanner};
use crate::sys::{process_madvise_ranges, Madvise};

/// Regions in one sample.
pub const SAMPLE: usize = 64;

/// What one window showed, of the sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Window {
    /// From the clearing to the look.
    pub length: Duration,
    /// Regions in the sample.
    pub regions: usize,
    /// Those of them that were touched.
    pub touched_regions: usize,
    /// Different base pages touched.
    pub pages: u64,
    /// Touches of base pages per second, repeated ones made up for.
    pub touches_per_second: f64,
    /// Touched share of the base pages mapped in the middle one of the touched regions.
    pub filled: f64,
}

/// Touches of a region's `mapped` base pages, of which `seen` were found touched.
///
/// If they came at random, `m` touches leave `mapped × e^(-m / mapped)` pages untouched. From nine tenths on that says little, and a pass from
/// end to end looks the same: then each counts once.
pub fn touches(seen: u64, mapped: u64) -> f64 {
    let (seen, mapped) = (seen.min(mapped) as f64, mapped.max(1) as f64);
    let share = seen / mapped;
    if share < 0.9 {
        -(1.0 - share).ln() * mapped
    } else {
        seen
    }
}

/// Looks at the regions with these addresses (at most [`SAMPLE`] of them, base-mapped, in rising order) for a window.
///
/// # Errors
/// The process is gone, or the kernel refuses.
pub fn window(
    scanner: &mut dyn Scanner,
    process: &Process,
    sample: &[u64],
    length: Duration,
) -> Result<Window, ScanError> {
    let sample = &sample[..sample.len().min(SAMPLE)];
    let ranges: Vec<_> = sample.iter().map(|&start| start..start + HUGE_PAGE_BYTES).collect();
    let looked: Vec<ScanRange> = sample
        .iter()
        .map(|&start| ScanRange {
            start,
            end: start + HUGE_PAGE_BYTES,
            young: true,
        })
        .collect();
    let pid = process.pid() as i32;
    let mut before = Vec::new();
    scanner.scan(pid, &looked, &mut before)?;
    let began = Instant::now();
    let pidfd = process.shared_pidfd();
    let cleared = deadline::within(process.pid(), deadline::CALL, move || {
        process_madvise_ranges(std::os::fd::AsFd::as_fd(&pidfd), &ranges, Madvise::Cold)
    })?;
    cleared.map_err(|errno| ScanError::Io {
        doing: "clearing accessed bits",
        source: errno.into(),
    })?;
    let clearing = began.elapsed();
    std::thread::sleep(length);
    let mut after = Vec::new();
    let looking = Instant::now();
    scanner.scan(pid, &looked, &mut after)?;
    // A region's window is from the middle of the clearing to the middle of the look.
    let length = (began.elapsed() - looking.elapsed() / 2).saturating_sub(clearing / 2);
    let mut seen = Window {
        length,
        regions: sample.len(),
        ..Window::default()
    };
    let mut shares = Vec::new();
    let mut sum = 0.0;
    for region in after.iter().filter(|region| !region.is_huge()) {
        let mapped_before = before
            .binary_search_by_key(&region.address, |region| region.address)
            .map_or(0, |i| before[i].mapped);
        // Pages that came meanwhile were touched by a fault, which is another matter.
        let new = region.mapped.saturating_sub(mapped_before);
        let accessed = u64::from(region.accessed.saturating_sub(new));
        let mapped = u64::from(region.mapped - new).clamp(1, u64::from(REGION_PAGES));
        if accessed > 0 {
            seen.touched_regions += 1;
            seen.pages += accessed;
            sum += touches(accessed, mapped);
            shares.push(accessed as f64 / mapped as f64);
        }
    }
    shares.sort_by(f64::total_cmp);
    seen.filled = shares.get(shares.len() / 2).copied().unwrap_or(0.0);
    seen.touches_per_second = sum / length.as_secs_f64().max(1e-6);
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_at_random_are_made_up_for_and_a_pass_counts_each_page_once() {
        assert_eq!(touches(0, 512), 0.0);
        // 512 touches at random reach 1 - 1/e of 512 pages.
        assert!((touches(324, 512) - 512.0).abs() < 3.0);
        assert_eq!(touches(512, 512), 512.0);
        // Few touches are hardly ever repeated.
        assert!((touches(5, 512) - 5.0).abs() < 0.1);
        // What cannot be is harmless.
        assert_eq!(touches(9, 0), 0.0);
    }
}
