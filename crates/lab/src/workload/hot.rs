//! A thread that keeps pages hot: each sweep touches every page and checks a word of it. It pauses for full checks and
//! forks.

use crate::memory::content::{self, mix};
use crate::memory::Mapping;
use crate::timing::clock::now_ns;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A page: index of its area, index of the page in it.
pub type PageAt = (u32, u32);

/// The seed of a page's content.
pub fn page_seed(seed: u64, (area, page): PageAt) -> u64 {
    mix(seed ^ (u64::from(area) << 40) ^ u64::from(page))
}

/// Writes a page's content.
pub fn write_page(areas: &[Mapping], seed: u64, at: PageAt) {
    content::fill(areas[at.0 as usize].page_words(at.1 as usize), page_seed(seed, at));
}

/// Checks a page. Its last word must be `mark` if there is one: the number of the sweep that wrote it.
pub fn check_page(areas: &[Mapping], seed: u64, at: PageAt, mark: Option<u64>) -> Result<(), String> {
    let words = areas[at.0 as usize].page_words(at.1 as usize);
    let say = |index: usize, found: u64, expected: u64| {
        let address = std::ptr::from_ref(&words[index]) as usize;
        format!(
            "area {} page {} word at {address:#x} is {found:#x}, not {expected:#x}",
            at.0, at.1
        )
    };
    let last = words.len() - 1;
    let body = if mark.is_some() { &words[..last] } else { words };
    content::verify(body, page_seed(seed, at)).map_err(|m| say(m.index, m.found, m.expected))?;
    match (mark, words[last].load(Relaxed)) {
        (Some(expected), found) if found != expected => Err(say(last, found, expected)),
        _ => Ok(()),
    }
}

#[derive(Debug, Default)]
struct Control {
    paused: bool,
    standing: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    control: Mutex<Control>,
    changed: Condvar,
    sweeps: AtomicU64,
    longest_gap_ns: AtomicU64,
    corrupt: Mutex<Option<String>>,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running thread.
#[derive(Debug)]
pub struct HotLoop {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    writes: bool,
}

impl HotLoop {
    /// Starts to touch `pages` of `areas` every `every`. With `writes` it stores the sweep's number in each page's last word.
    pub fn start(areas: Arc<Vec<Mapping>>, pages: Vec<PageAt>, seed: u64, writes: bool, every: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        let thread = std::thread::spawn(move || sweep_for_ever(&mine, &areas, &pages, seed, writes, every));
        Self {
            shared,
            thread: Some(thread),
            writes,
        }
    }

    /// Stops the thread between two sweeps until the returned value is dropped.
    pub fn pause(&self) -> Pause<'_> {
        let mut control = self.shared.control();
        control.paused = true;
        self.shared.changed.notify_all();
        while !control.standing && !self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished) {
            let timeout = Duration::from_millis(100);
            control = self
                .shared
                .changed
                .wait_timeout(control, timeout)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Pause(self)
    }

    /// The last word expected in each page while paused; `None` for its content.
    pub fn mark(&self) -> Option<u64> {
        let sweeps = self.sweeps();
        (self.writes && sweeps > 0).then_some(sweeps)
    }

    /// Whole sweeps so far.
    pub fn sweeps(&self) -> u64 {
        self.shared.sweeps.load(Relaxed)
    }

    /// The longest time between two touches of a page so far, pauses not counted.
    pub fn longest_gap_ns(&self) -> u64 {
        self.shared.longest_gap_ns.load(Relaxed)
    }

    /// The corruption that the thread found, if any; it stops at the first.
    pub fn corrupt(&self) -> Option<String> {
        self.shared
            .corrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for HotLoop {
    fn drop(&mut self) {
        self.shared.control().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Keeps a [`HotLoop`] paused.
#[derive(Debug)]
pub struct Pause<'a>(&'a HotLoop);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.shared.control().paused = false;
        self.0.shared.changed.notify_all();
    }
}

/// Waits until `until_ns`, through pauses. `None` to stop, else whether there was a pause.
fn rest(shared: &Shared, until_ns: u64) -> Option<bool> {
    let mut paused = false;
    let mut control = shared.control();
    loop {
        if control.stop {
            return None;
        }
        let left = until_ns.saturating_sub(now_ns());
        if control.paused {
            paused = true;
            control.standing = true;
            shared.changed.notify_all();
            control = shared.changed.wait(control).unwrap_or_else(PoisonError::into_inner);
        } else if left > 0 {
            control.standing = false;
            let timeout = Duration::from_nanos(left);
            control = shared
                .changed
                .wait_timeout(control, timeout)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        } else {
            control.standing = false;
            return Some(paused);
        }
    }
}

fn sweep_for_ever(shared: &Shared, areas: &[Mapping], pages: &[PageAt], seed: u64, writes: bool, every: Duration) {
    let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
    let mut last_end = now_ns();
    let mut next = last_end;
    while let Some(paused) = rest(shared, next) {
        if paused {
            last_end = now_ns();
        }
        next = now_ns().saturating_add(every_ns);
        let sweep = shared.sweeps.load(Relaxed);
        for &at in pages {
            let words = areas[at.0 as usize].page_words(at.1 as usize);
            let last = words.len() - 1;
            let index = (sweep as usize * 67) % last;
            let mut wrong = words[index].load(Relaxed) != content::word(page_seed(seed, at), index as u64);
            if writes {
                wrong |= sweep > 0 && words[last].load(Relaxed) != sweep;
                words[last].store(sweep + 1, Relaxed);
            }
            if wrong {
                let text = check_page(areas, seed, at, writes.then_some(sweep + 1)).err();
                let text = text
                    .unwrap_or_else(|| format!("area {} page {}: a word was wrong and reads right now", at.0, at.1));
                *shared.corrupt.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                return;
            }
        }
        shared.sweeps.store(sweep + 1, Relaxed);
        let end = now_ns();
        shared.longest_gap_ns.fetch_max(end - last_end, Relaxed);
        last_end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> Arc<Vec<Mapping>> {
        let areas = vec![Mapping::new(1 << 20).unwrap()];
        (0..256).for_each(|p| write_page(&areas, 1, (0, p)));
        Arc::new(areas)
    }

    fn wait_for(what: impl Fn() -> bool) {
        let end = now_ns() + 10_000_000_000;
        while !what() && now_ns() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(what());
    }

    #[test]
    fn a_pause_stands_between_sweeps_and_every_page_carries_the_last_one() {
        let areas = areas();
        let pages: Vec<PageAt> = (0..256).map(|p| (0, p)).collect();
        let hot = HotLoop::start(Arc::clone(&areas), pages.clone(), 1, true, Duration::from_millis(1));
        wait_for(|| hot.sweeps() > 3);
        for _ in 0..20 {
            let pause = hot.pause();
            let before = hot.sweeps();
            pages
                .iter()
                .for_each(|at| check_page(&areas, 1, *at, hot.mark()).unwrap());
            assert_eq!(hot.sweeps(), before);
            drop(pause);
            wait_for(|| hot.sweeps() > before);
        }
        assert_eq!(hot.corrupt(), None);
        assert!(hot.longest_gap_ns() > 0);
    }

    #[test]
    fn a_lost_write_is_found_by_the_next_sweep() {
        let areas = areas();
        let hot = HotLoop::start(Arc::clone(&areas), vec![(0, 9)], 1, true, Duration::from_millis(1));
        wait_for(|| hot.sweeps() > 1);
        {
            let _pause = hot.pause();
            areas[0].page_words(9)[511].store(1, Relaxed);
        }
        wait_for(|| hot.corrupt().is_some());
        let _no_deadlock_after_its_end = hot.pause();
    }
}
