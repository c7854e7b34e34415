//! Which processor measures, and which one disturbs it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

use super::{failed, CalibrateError};

/// Pins the calling thread. On failure it stays unpinned, which only widens the spread.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// Runs it in a thread pinned to the first CPU that this one may use, and passes it the second.
pub(super) fn on_one_cpu(
    work: impl FnOnce(Option<usize>) -> Result<(), CalibrateError> + Send,
) -> Result<(), CalibrateError> {
    let allowed = sched_getaffinity(None).map_err(failed("sched_getaffinity"))?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (first, second) = (cpus.next(), cpus.next());
    thread::scope(|scope| {
        let measuring = scope.spawn(move || {
            if let Some(cpu) = first {
                pin(cpu);
            }
            work(second)
        });
        measuring.join().map_err(|_| CalibrateError::Thread)?
    })
}

/// Runs `measure` while a thread on another CPU, if there is one, repeats `work`.
pub(super) fn beside<T>(second_cpu: Option<usize>, mut work: impl FnMut() + Send, measure: impl FnOnce() -> T) -> T {
    let Some(second_cpu) = second_cpu else { return measure() };
    let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(second_cpu);
            started.store(true, Ordering::Release);
            while !stop.load(Ordering::Acquire) {
                work();
            }
        });
        while !started.load(Ordering::Acquire) {
            spin_loop();
        }
        let _stop = Stop(&stop);
        measure()
    })
}

/// Ends the other thread's work when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
