//! What a program felt of a collapse.
//!
//! The kernel allocates and charges the new page without a lock; only then do the faults of the mapping wait. A program that took no page
//! fault during the whole call waited for none: it neither touched the region nor any memory that was not there. Each fault that waited is
//! counted when it ends. Calls that wait for mmap_lock (mmap, munmap) are not seen by this, so a part of the time is charged in any case.

use std::time::Duration;

use crate::proc::{stat, ProcRoot};

/// Divisor: the part of a call's duration that is charged where no fault waited.
const UNSEEN_PART: u32 = 16;
/// A fault that waited is counted this much later, when its thread runs again.
const WAKES_WITHIN: Duration = Duration::from_micros(60);

/// Page faults of a process so far; none if it cannot be told.
pub fn faults(root: &ProcRoot, pid: u32) -> Option<u64> {
    let stat = stat::read(root, pid).ok()?;
    Some(stat.minor_faults.saturating_add(stat.major_faults))
}

/// How long the program was stalled by a call that took so long, by its faults before and now; none if not known to be less.
pub fn stall(root: &ProcRoot, pid: u32, before: Option<u64>, took: Duration) -> Option<Duration> {
    let before = before?;
    if faults(root, pid)? != before {
        return None;
    }
    std::thread::sleep(WAKES_WITHIN);
    (faults(root, pid)? == before).then_some(took / UNSEEN_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_faults_is_charged_in_full_and_one_that_does_not_in_part() {
        let root = ProcRoot::default();
        // It does nothing at all.
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let took = Duration::from_millis(16);
        let mut charged = None;
        // Until it has begun to sleep, it faults.
        for _ in 0..1000 {
            let before = faults(&root, child.id());
            std::thread::sleep(Duration::from_millis(5));
            charged = stall(&root, child.id(), before, took);
            if charged.is_some() {
                break;
            }
        }
        assert_eq!(charged, Some(Duration::from_millis(1)));
        let before = faults(&root, child.id()).map(|faults| faults - 1);
        assert_eq!(stall(&root, child.id(), before, took), None);
        assert_eq!(stall(&root, child.id(), None, took), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stall(&root, child.id(), Some(1), took), None, "it is gone");
    }
}
