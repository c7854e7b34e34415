//! Checks all invariants of physical memory: for tests, not for every step.

use mega_core::units::REGION_PAGES;

use super::cache::Cache;
use super::frames::{BlockInfo, Class, State};
use super::owner::{self, OwnerKind};
use super::zone::{Zone, ORDERS};
use super::{cache, MigrateType, Physical};
use crate::unit::{Frame, BLOCK_ORDER, MAX_ORDER};

/// The list in which each frame was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    No,
    Free,
    Listed,
}

impl Physical {
    /// Each frame has one state; the lists, their lengths and bits, and the counts of zones and blocks agree with the states; nothing is in two
    /// lists; nothing is left unmerged; watermarks rise; totals agree. The error says what is violated, and where.
    pub fn check(&self) -> Result<(), String> {
        let mut found = vec![Found::No; self.frames.end() as usize];
        for (index, zone) in self.zones.iter().enumerate() {
            self.check_zone(index, zone, &mut found)?;
        }
        let mut used = 0u64;
        for (index, info) in (0u32..).zip(&self.frames.blocks) {
            used += self.check_block(index, info, &found)?;
        }
        self.check_cache()?;
        let (free, total) = (self.free_bytes(), self.total_bytes());
        if free + used * 4096 != total {
            return Err(format!("{free} bytes free and {used} pages used are not {total}"));
        }
        Ok(())
    }

    fn check_zone(&self, index: usize, zone: &Zone, found: &mut [Found]) -> Result<(), String> {
        let mut free = 0u64;
        for order in 0..ORDERS {
            for migrate in MigrateType::ALL {
                let list = &zone.area[order][migrate as usize];
                let what = format!("zone {index}, order {order}, {migrate:?}");
                let mut length = 0;
                let mut before = None;
                let mut next = list.first();
                while let Some(run) = next {
                    if run % (1 << order) != 0 || run < zone.start || run + (1 << order) > zone.end {
                        return Err(format!("{what}: {run} is no run of this zone"));
                    }
                    if self.frames.state(run) != State::free(order as u8) {
                        return Err(format!("{what}: {run} is {:?}", self.frames.state(run)));
                    }
                    if self.frames.block_of(run).migrate != migrate {
                        return Err(format!("{what}: {run} is in a block of another type"));
                    }
                    if list.before(&self.frames, run) != before {
                        return Err(format!("{what}: the list is broken at {run}"));
                    }
                    self.mark(found, run, order as u8, Found::Free, State::FREE_TAIL)
                        .map_err(|e| format!("{what}: {e}"))?;
                    let buddy = run ^ (1 << order);
                    if (order as u8) < MAX_ORDER && self.frames.state(buddy) == State::free(order as u8) {
                        return Err(format!("{what}: {run} and {buddy} are apart"));
                    }
                    length += 1;
                    before = Some(run);
                    next = list.after(&self.frames, run);
                }
                if length != list.len || list.last() != before {
                    return Err(format!("{what}: {length} runs, {} counted", list.len));
                }
                if (zone.nonempty[migrate as usize] >> order & 1 == 1) != (length > 0) {
                    return Err(format!("{what}: the bit is wrong"));
                }
                free += u64::from(length) << order;
            }
        }
        if free != zone.free {
            return Err(format!(
                "zone {index}: {free} pages in the lists, {} counted",
                zone.free
            ));
        }
        let mut listed = 0u64;
        for (list, order) in zone.pcp.lists.iter().zip([0, 0, 0, BLOCK_ORDER]) {
            let mut next = list.first();
            while let Some(run) = next {
                if self.frames.state(run) != State::pcp(order) {
                    return Err(format!(
                        "zone {index}: {run} on the processor's list is {:?}",
                        self.frames.state(run)
                    ));
                }
                self.mark(found, run, order, Found::Listed, State::PCP_TAIL)?;
                listed += 1 << order;
                next = list.after(&self.frames, run);
            }
        }
        if listed != zone.pcp.pages {
            return Err(format!(
                "zone {index}: {listed} pages on the processor's lists, {} counted",
                zone.pcp.pages
            ));
        }
        let marks = &zone.marks;
        if !(marks.min <= marks.low && marks.low <= marks.high && marks.high <= zone.pages()) {
            return Err(format!("zone {index}: {marks:?} of {} pages", zone.pages()));
        }
        Ok(())
    }

    /// Records that these frames are in a list.
    fn mark(&self, found: &mut [Found], run: u32, order: u8, what: Found, tail: State) -> Result<(), String> {
        for frame in run..run + (1 << order) {
            if found[frame as usize] != Found::No {
                return Err(format!("{frame} is in two lists"));
            }
            if frame > run && self.frames.state(frame) != tail {
                return Err(format!("{frame} is {:?}, after {run}", self.frames.state(frame)));
            }
            found[frame as usize] = what;
        }
        Ok(())
    }

    /// Returns the number of pages in use.
    fn check_block(&self, index: u32, info: &BlockInfo, found: &[Found]) -> Result<u64, String> {
        let mut counted = BlockInfo {
            free: 0,
            movable: 0,
            cache: 0,
            unmovable: 0,
            huge: 0,
            ..*info
        };
        let first = index * REGION_PAGES;
        let mut used = 0;
        for frame in first..(first + REGION_PAGES).min(self.frames.end()) {
            let hole = info.zone == BlockInfo::NO_ZONE;
            let state = self.frames.state(frame);
            if hole != (state == State::HOLE) {
                return Err(format!("{frame} is {state:?} in zone {}", info.zone));
            }
            if state == State::ISOLATED {
                return Err(format!("{frame} was isolated and forgotten"));
            }
            let (head, state) = self.frames.head(frame);
            match found[frame as usize] {
                Found::Free => counted.free += 1,
                Found::Listed => {}
                Found::No if hole => {}
                Found::No if state.is_used() && frame - head < 1 << state.order() => {
                    if frame > head && self.frames.state(frame) != State::TAIL {
                        return Err(format!("{frame} is {:?} within {head}", self.frames.state(frame)));
                    }
                    let order = state.order();
                    let word = if state.is_mixed() {
                        self.frames.words[frame as usize]
                    } else {
                        self.frames.word(head, order)
                    };
                    counted.count(Class::of(owner::kind(word), order), 1);
                    used += 1;
                }
                Found::No => return Err(format!("{frame} is {state:?} and in no list")),
            }
            if self.owner(Frame(frame)).is_some() != state.is_used() {
                return Err(format!(
                    "{frame} is {state:?} and has the owner {:?}",
                    self.owner(Frame(frame))
                ));
            }
        }
        if counted != *info {
            return Err(format!("block {index}: {counted:?} found, {info:?} counted"));
        }
        Ok(used)
    }

    fn check_cache(&self) -> Result<(), String> {
        let mut pages = 0u64;
        let mut next = self.cache.oldest();
        while let Some(run) = next {
            let state = self.frames.state(run);
            if !state.is_used() || owner::kind(self.frames.word(run, state.order())) != OwnerKind::Cache {
                return Err(format!("{run} in the page cache is {state:?}"));
            }
            if self.frames.word(run, state.order()) == cache::UNLISTED {
                return Err(format!("{run} is in the page cache and says it is not"));
            }
            pages += 1 << state.order();
            if pages > self.cache.pages() {
                break;
            }
            next = Cache::after(&self.frames, run);
        }
        if pages != self.cache.pages() {
            return Err(format!(
                "{pages} pages in the page cache, {} counted",
                self.cache.pages()
            ));
        }
        Ok(())
    }
}
