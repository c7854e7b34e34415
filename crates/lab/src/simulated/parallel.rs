//! Independent pieces of work on several threads, reported in the order in which they begin and end.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

/// What happens to a piece of work.
#[derive(Debug)]
pub enum Told<R> {
    /// It begins.
    Begins(usize),
    /// It has ended; the error is what it panicked with.
    Ended(usize, Result<R, String>),
}

/// One thread for each processor that this process may use.
#[must_use]
pub fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_string()
}

/// Does `work` for each number, on so many threads, and tells the caller's thread in the order in which it happens. When `stop` is set, or
/// `told` fails, no more begins; what is under way is ended.
///
/// # Errors
/// What `told` says first.
pub fn each<R: Send, E>(
    numbers: impl Iterator<Item = usize> + Send,
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(usize) -> R + Sync,
    mut told: impl FnMut(Told<R>) -> Result<(), E>,
) -> Result<(), E> {
    let numbers = Mutex::new(numbers);
    let over = AtomicBool::new(false);
    // Bounded: a worker waits until its report is taken.
    let (send, receive) = sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let send = send.clone();
            let (numbers, over, work) = (&numbers, &over, &work);
            scope.spawn(move || {
                while !stop.load(Relaxed) && !over.load(Relaxed) {
                    let next = numbers.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(number) = next else { return };
                    let _ = send.send(Told::Begins(number));
                    let result = catch_unwind(AssertUnwindSafe(|| work(number))).map_err(|panic| words(&*panic));
                    let _ = send.send(Told::Ended(number, result));
                }
            });
        }
        drop(send);
        let mut result = Ok(());
        for event in receive {
            if result.is_ok() {
                result = told(event);
                over.store(result.is_err(), Relaxed);
            }
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn everything_is_done_once_on_any_number_of_threads() {
        for threads in [0, 1, 3, 50] {
            let mut done = vec![0; 40];
            let stop = AtomicBool::new(false);
            let told = |event| {
                if let Told::Ended(i, Ok(result)) = event {
                    assert_eq!(result, i * i);
                    done[i] += 1;
                }
                Ok::<(), Infallible>(())
            };
            each(0..40, threads, &stop, |i| i * i, told).unwrap();
            assert!(done.iter().all(|n| *n == 1), "{threads} threads: {done:?}");
        }
    }

    #[test]
    fn no_more_begins_after_a_stop_or_a_failure_and_a_panic_is_an_error_of_its_own() {
        let stop = AtomicBool::new(false);
        let mut begun = 0;
        let told = |event| {
            match event {
                Told::Begins(_) => begun += 1,
                Told::Ended(2, result) => assert_eq!(result, Err("two".to_string())),
                Told::Ended(..) => stop.store(begun >= 5, Relaxed),
            }
            Ok::<(), Infallible>(())
        };
        let work = |i| {
            if i == 2 {
                panic!("two")
            }
        };
        each(0..1_000_000, 2, &stop, work, told).unwrap();
        assert!((5..2000).contains(&begun), "{begun}");
        let never = AtomicBool::new(false);
        let failed = each(0..1_000_000, 2, &never, |i| i, |_| Err("full"));
        assert_eq!(failed, Err("full"));
    }
}
