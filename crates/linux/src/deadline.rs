//! Calls that wait for another process's `mmap_lock`, with a deadline.
//!
//! A process can hold that lock for as long as it likes (a munmap that waits for a slow FUSE server, for example), and neither a read of
//! `/proc/PID/smaps` nor `process_madvise` can be given a time limit: a manager that made such a call itself would stand still, and with it
//! everything that it manages. So these calls are made by worker threads. One that does not return in time keeps its worker until it does;
//! meanwhile nothing else is asked about that process, so that a process costs one deadline and one thread, however long it holds its lock.
//!
//! The workers are one set for the whole program, and bounded: [`LATE_MAX`] calls may be late. Deadlines get shorter the more there are, so that
//! many such processes cannot take turns at holding us up.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, sync_channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For one call about one mapping, or the list of a process's mappings.
pub const CALL: Duration = Duration::from_secs(1);
/// For a walk of all of a process's page tables by text (`smaps`), which takes 10 ms a GB.
pub const WALK: Duration = Duration::from_secs(10);
/// Calls that may be late at a time.
pub const LATE_MAX: usize = 128;
/// No deadline is shorter.
const LEAST: Duration = Duration::from_millis(100);
/// Workers that are kept where there is nothing to do.
const IDLE_MAX: usize = 2;
/// A worker calls the kernel and parses a little: the default of 2 MB would be a waste.
const STACK_BYTES: usize = 256 << 10;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Late {
    /// The call did not return in time.
    #[error("its address space is locked (mmap_lock): a call did not return within {} ms", .0.as_millis())]
    Now(Duration),
    /// An earlier call about this process has still not returned.
    #[error("its address space is locked (mmap_lock): an earlier call has not returned")]
    Still,
    /// Too many processes hold their locks.
    #[error("{LATE_MAX} processes hold their address spaces locked (mmap_lock): no worker is left to ask others")]
    Full,
    /// The worker failed.
    #[error("a worker failed, or no thread can be started")]
    Failed,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    idle: Vec<Sender<Job>>,
    /// The processes that late calls are about, by the call's number.
    late: BTreeMap<u64, u32>,
    calls: u64,
}

impl State {
    /// The time for a call that would have `limit` if none were late.
    fn limit(&self, limit: Duration) -> Duration {
        let share = limit / u32::try_from(self.late.len() + 1).unwrap_or(u32::MAX);
        share.max(LEAST.min(limit))
    }
}

/// A set of workers.
#[derive(Clone, Default)]
struct Workers(Arc<Mutex<State>>);

impl Workers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn within<T: Send + 'static>(
        &self,
        pid: u32,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Late> {
        let (call, limit, worker) = {
            let mut state = self.state();
            if state.late.values().any(|late| *late == pid) {
                return Err(Late::Still);
            }
            if state.late.len() >= LATE_MAX {
                return Err(Late::Full);
            }
            state.calls += 1;
            (state.calls, state.limit(limit), state.idle.pop())
        };
        let worker = worker.map_or_else(|| self.start(), Ok)?;
        let (answer, answered) = sync_channel(1);
        let (workers, back) = (self.clone(), worker.clone());
        let job: Job = Box::new(move || {
            // Whoever waits for it learns of a panic by the channel's end.
            if let Ok(done) = catch_unwind(AssertUnwindSafe(work)) {
                let _ = answer.send(done);
            }
            drop(answer);
            workers.finished(call, back);
        });
        worker.send(job).map_err(|_| Late::Failed)?;
        match answered.recv_timeout(limit) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Disconnected) => return Err(Late::Failed),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // A worker answers before it takes the lock: either the answer is there now, or the worker will find the call among the late ones.
        let mut state = self.state();
        match answered.try_recv() {
            Ok(done) => Ok(done),
            Err(_) => {
                state.late.insert(call, pid);
                Err(Late::Now(limit))
            }
        }
    }

    /// A worker has done its call.
    fn finished(&self, call: u64, worker: Sender<Job>) {
        let mut state = self.state();
        state.late.remove(&call);
        // Else it ends: nobody can send it anything any more.
        if state.idle.len() < IDLE_MAX {
            state.idle.push(worker);
        }
    }

    fn start(&self) -> Result<Sender<Job>, Late> {
        let (worker, jobs) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("mega-call".into())
            .stack_size(STACK_BYTES);
        // Never joined: one whose call does not return ends with the program.
        let started = thread.spawn(move || jobs.into_iter().for_each(|job| job()));
        started.map(|_| worker).map_err(|_| Late::Failed)
    }
}

/// The program's own.
fn workers() -> &'static Workers {
    static WORKERS: std::sync::OnceLock<Workers> = std::sync::OnceLock::new();
    WORKERS.get_or_init(Workers::default)
}

/// Does `work`, which may wait for the lock of process `pid`'s address space, in a worker, and waits for it at most for `limit`.
///
/// # Errors
/// It takes longer, or an earlier call about this process still does. What `work` does then, it may yet do.
pub fn within<T: Send + 'static>(
    pid: u32,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Late> {
    workers().within(pid, limit, work)
}

/// How many calls are late now.
pub fn late() -> usize {
    workers().state().late.len()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    /// Calls that do not return until this is dropped.
    struct Stuck(Option<Sender<()>>, Arc<Mutex<std::sync::mpsc::Receiver<()>>>);

    impl Stuck {
        fn new() -> Self {
            let (end, ended) = channel();
            Self(Some(end), Arc::new(Mutex::new(ended)))
        }

        fn call(&self) -> impl FnOnce() + Send + 'static {
            let ended = Arc::clone(&self.1);
            move || {
                let _ = ended.lock().unwrap().recv();
            }
        }
    }

    fn eventually(mut so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !so() {
            assert!(began.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_that_holds_its_lock_costs_one_deadline_and_others_are_asked_meanwhile() {
        let (workers, mut stuck) = (Workers::default(), Stuck::new());
        assert_eq!(workers.within(1, LONG, || 7), Ok(7));
        assert_eq!(workers.within(1, SHORT, stuck.call()), Err(Late::Now(SHORT)));
        let began = Instant::now();
        assert_eq!(workers.within(1, LONG, || ()), Err(Late::Still));
        assert_eq!(workers.within(2, LONG, || 8), Ok(8));
        assert!(began.elapsed() < LONG / 2);
        stuck.0 = None;
        eventually(|| workers.within(1, LONG, || 9) == Ok(9));
        assert!(workers.state().late.is_empty());
    }

    #[test]
    fn late_calls_are_bounded_and_shorten_the_deadlines_of_others() {
        let (workers, stuck) = (Workers::default(), Stuck::new());
        let began = Instant::now();
        for pid in 0..LATE_MAX as u32 {
            assert!(matches!(workers.within(pid, SHORT, stuck.call()), Err(Late::Now(_))));
        }
        assert!(began.elapsed() < LONG);
        assert_eq!(workers.within(1000, LONG, || ()), Err(Late::Full));
        assert_eq!(workers.state().limit(CALL), LEAST);
        assert_eq!(workers.state().limit(SHORT), SHORT);
        drop(stuck);
        eventually(|| workers.within(1000, LONG, || ()) == Ok(()));
        eventually(|| workers.state().limit(CALL) == CALL);
        assert!(workers.state().idle.len() <= IDLE_MAX);
    }

    #[test]
    fn a_worker_that_panics_answers_and_works_on() {
        let workers = Workers::default();
        let panics = || -> u8 { std::panic::panic_any(()) };
        assert_eq!(workers.within(1, LONG, panics), Err(Late::Failed));
        eventually(|| workers.within(1, LONG, || 1) == Ok(1));
    }
}
