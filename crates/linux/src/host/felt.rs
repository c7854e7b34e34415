//! What a program felt of a collapse.
//!
//! The kernel allocates and charges the new page without a lock; only then do the faults of the mapping, and whatever maps or unmaps, wait for
//! mmap_lock. [`Waits`] measures how long. Where that is not to be had: a program that took no page fault during the whole call waited for
//! none. Each fault that waited is counted when it ends. Calls that wait for the lock are not seen by this. What neither sees (a flush of
//! the TLB, caches that are cold) is small, so a part of the time is charged in any case.

use std::time::Duration;

use crate::proc::{stat, ProcRoot};
use crate::waits::{Waits, WAKES_WITHIN};

/// Divisor: the part of a call's duration that is charged where nobody waited.
const UNSEEN_PART: u32 = 16;

/// Tells what is felt of each call.
pub struct Felt {
    root: ProcRoot,
    waits: Option<Waits>,
}

/// What is known before a call.
pub struct Before {
    /// Page faults of the process so far, where they are what tells.
    faults: Option<u64>,
}

impl Felt {
    /// By waits where `measured` and possible, else by faults.
    pub fn new(root: ProcRoot, measured: bool) -> Self {
        let waits = measured.then(Waits::new).and_then(Result::ok);
        Self { root, waits }
    }

    /// A call on this process begins.
    pub fn begin(&mut self, pid: u32) -> Before {
        match &mut self.waits {
            Some(waits) => {
                waits.begin(pid);
                Before { faults: None }
            }
            None => Before {
                faults: faults(&self.root, pid),
            },
        }
    }

    /// It took so long. How long the program was stalled by it; none if that is not known to be less.
    pub fn end(&mut self, pid: u32, before: &Before, took: Duration) -> Option<Duration> {
        let least = took / UNSEEN_PART;
        match &mut self.waits {
            // Several threads that wait at the same time stall the program once.
            Some(waits) => waits.end().map(|waited| waited.clamp(least, took)),
            None => (!has_faulted(&self.root, pid, before.faults?)).then_some(least),
        }
    }
}

/// Page faults of a process so far; none if it cannot be told.
fn faults(root: &ProcRoot, pid: u32) -> Option<u64> {
    let stat = stat::read(root, pid).ok()?;
    Some(stat.minor_faults.saturating_add(stat.major_faults))
}

/// Whether it has faulted since it had so many, or may have.
fn has_faulted(root: &ProcRoot, pid: u32, before: u64) -> bool {
    let has = || faults(root, pid) != Some(before);
    if has() {
        return true;
    }
    std::thread::sleep(WAKES_WITHIN);
    has()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_faults_a_program_that_faults_is_charged_in_full_and_one_that_does_not_in_part() {
        let mut felt = Felt::new(ProcRoot::default(), false);
        // It does nothing at all.
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let took = Duration::from_millis(16);
        let mut charged = None;
        // Until it has begun to sleep, it faults.
        for _ in 0..1000 {
            let before = felt.begin(child.id());
            std::thread::sleep(Duration::from_millis(5));
            charged = felt.end(child.id(), &before, took);
            if charged.is_some() {
                break;
            }
        }
        assert_eq!(charged, Some(Duration::from_millis(1)));
        let mut before = felt.begin(child.id());
        before.faults = before.faults.map(|faults| faults - 1);
        assert_eq!(felt.end(child.id(), &before, took), None);
        assert_eq!(felt.end(child.id(), &Before { faults: None }, took), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            felt.end(child.id(), &Before { faults: Some(1) }, took),
            None,
            "it is gone"
        );
    }

    #[test]
    fn by_waits_a_program_that_faults_and_waits_for_nothing_is_charged_in_part() {
        let mut felt = Felt::new(ProcRoot::default(), true);
        if felt.waits.is_none() {
            eprintln!("SKIPPED: waits cannot be measured here");
            return;
        }
        // Each fork has it copy pages that it writes. By faults it would be charged in full.
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do (:); done"])
            .spawn()
            .unwrap();
        let root = ProcRoot::default();
        let had = faults(&root, child.id());
        let before = felt.begin(child.id());
        while faults(&root, child.id()) == had {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(
            felt.end(child.id(), &before, Duration::from_millis(16)),
            Some(Duration::from_millis(1))
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
