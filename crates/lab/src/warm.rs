//! Warming guest memory. On a virtual machine a page that the host does not back costs 45 times a warm one on first
//! touch, and freed memory is taken back after about 2 s: warm right before each measured run.

use crate::clock::now_ns;
use crate::memory::{base_page_bytes, Mapping, MemoryError, HUGE_BYTES};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What warming did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Warmed {
    /// Memory touched and given back.
    pub bytes: u64,
    /// Time that took.
    pub elapsed_ns: u64,
    /// Median time for 2 MB: what a measured run will pay from now on, about.
    pub median_per_2mb_ns: u64,
    /// Share of 2 MB pieces that took over twice the median: what was cold.
    pub cold_share: f64,
}

/// Maps, touches and unmaps `bytes`.
///
/// # Errors
/// When the memory cannot be mapped.
pub fn warm(bytes: u64) -> Result<Warmed, MemoryError> {
    let start = now_ns();
    let mut area = Mapping::new(usize::try_from(bytes).unwrap_or(usize::MAX).max(1))?;
    // Huge pages where there are any: the host backs the memory either way, and it is done sooner.
    let _ = area.advise(0..area.len_bytes(), libc::MADV_HUGEPAGE);
    let words_per_page = base_page_bytes() / 8;
    let mut pieces: Vec<u64> = Vec::new();
    for piece in area.words().chunks(HUGE_BYTES / 8) {
        let t = now_ns();
        piece.iter().step_by(words_per_page).for_each(|w| w.store(1, Relaxed));
        pieces.push(now_ns() - t);
    }
    let bytes = area.len_bytes() as u64;
    drop(area);
    let elapsed_ns = now_ns() - start;
    let mut sorted = pieces.clone();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    let cold = pieces.iter().filter(|ns| **ns > 2 * median).count();
    let cold_share = cold as f64 / pieces.len().max(1) as f64;
    Ok(Warmed {
        bytes,
        elapsed_ns,
        median_per_2mb_ns: median,
        cold_share,
    })
}

/// Keeps part of the free memory warm for as long as it lives: a thread that maps, touches and unmaps `bytes` twice a second, so that
/// the host does not take the memory back from which a run's huge pages will come. It costs the machine about 45 µs per MB each
/// time; where variants are compared, all of them must have it.
#[derive(Debug)]
pub struct KeepWarm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeepWarm {
    /// Begins. Memory that cannot be had is left alone until it can.
    #[must_use]
    pub fn start(bytes: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !told.load(Relaxed) {
                let _ = warm(bytes);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for KeepWarm {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warming_touches_what_it_says_and_gives_it_back() {
        let w = warm(8 << 20).unwrap();
        assert_eq!(w.bytes, 8 << 20);
        assert!(w.elapsed_ns > 0 && w.median_per_2mb_ns > 0);
        assert!((0.0..=1.0).contains(&w.cold_share));
    }
}
