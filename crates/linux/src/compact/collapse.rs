//! Collapses memory of our own and frees it: a collapse compacts directly when blocks are short, in our context.
//!
//! As with the pool, it first takes the blocks that are free; zeroing each costs more than allocating it.

use std::time::Duration;

use mega_core::compaction::target::Ended;
use mega_core::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::{Actuator, CompactError, Task, Way, Work};
use crate::proc::buddyinfo;
use crate::sys::{self, Madvise, Scratch};

/// Failures in a row after which it gives up.
const GIVE_UP_AFTER: u32 = 8;

/// Stateless.
pub struct Collapse;

impl Actuator for Collapse {
    fn way(&self) -> Way {
        Way::Collapse
    }

    fn make(&mut self, task: &Task<'_>) -> Result<Work, CompactError> {
        super::check_room(Way::Collapse, task)?;
        let failed = |what: &str| {
            let what = what.to_string();
            move |errno| CompactError::Failed {
                way: Way::Collapse,
                what,
                errno,
            }
        };
        let us = sys::pidfd_open(std::process::id()).map_err(failed("opening ourselves"))?;
        let free = buddyinfo::read(task.root)?.free_blocks().0;
        // A margin of a quarter for what others free meanwhile.
        let regions = task.target.0.max(free).saturating_mul(5) / 4 + 64;
        let bytes = usize::try_from((regions + 1).saturating_mul(HUGE_PAGE_BYTES)).unwrap_or(usize::MAX);
        let mut area = Scratch::map(bytes).map_err(failed("mapping memory"))?;
        let first = area.range().start.next_multiple_of(HUGE_PAGE_BYTES);
        let (mut held, mut refused) = (0, 0);
        for region in 0..regions {
            if let Some(ended) = task.over(held)? {
                return Ok(work(ended));
            }
            let address = first + region * HUGE_PAGE_BYTES;
            area.touch(address..address + BASE_PAGE_BYTES, BASE_PAGE_BYTES as usize);
            match sys::process_madvise(us.as_fd(), address, HUGE_PAGE_BYTES, Madvise::Collapse) {
                Ok(_) => (held, refused) = (held + 1, 0),
                Err(Errno::NOMEM | Errno::BUSY | Errno::AGAIN) => refused += 1,
                Err(errno) => return Err(failed("MADV_COLLAPSE")(errno)),
            }
            if refused == GIVE_UP_AFTER {
                break;
            }
        }
        Ok(work(Ended::Through))
    }
}

fn work(ended: Ended) -> Work {
    Work::unchosen(ended, Duration::ZERO)
}
