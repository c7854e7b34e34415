//! The machine: physical memory, processes, TLB and costs together, with time.
//!
//! Each process has one processor and a clock of its own, which every access advances by its cost. The kernel's background work runs when the clock
//! of any process passes the moment at which it is due, and is charged separately. Nothing here is concurrent: holding a lock is a moment until
//! which others wait.
//!
//! | file | subject |
//! | --- | --- |
//! | this one | the machine, and the access |
//! | `config` | what it is made of |
//! | `prices` | the costs as the machine charges them |
//! | `batch` | many accesses at once |
//! | `calls`, `remap`, `fork` | mmap, munmap, madvise; mremap; fork and exit |
//! | `kernel_work` | what a process has the kernel take for itself: blocks for a driver, page cache, compaction by hand |
//! | `memory` | a process as programs see it |
//! | `zap` | what unmapping does to page tables |
//! | `promote` | base pages to a huge page and back |
//! | `reserve` | reservations |
//! | `frames` | allocating frames and blocks; telling page tables when one moves |
//! | `reclaim` | what happens when memory is short |
//! | `background` | khugepaged, kcompactd, the fault policy's chores |
//! | `look` | queries |
//! | `counters`, `content`, `check` | event counts; contents of memory; invariants |

mod background;
mod batch;
#[cfg(test)]
mod batch_tests;
mod calls;
mod check;
mod config;
mod content;
mod counters;
mod fault;
mod fork;
mod frames;
mod kernel_work;
mod look;
mod memory;
mod prices;
mod promote;
mod reclaim;
mod remap;
mod reserve;
#[cfg(test)]
mod tests;
mod zap;

pub use calls::Madvise;
pub use check::CheckError;
pub use config::{Config, ConfigError};
pub use counters::{BackgroundTime, Counters};
pub use promote::Refusal;

use std::collections::{BTreeSet, VecDeque};

use mega_core::fault::FaultPolicy;
use mega_core::observe::Region;
use mega_core::units::REGION_PAGES;

use crate::cost::Costs;
use crate::physical::Physical;
use crate::space::{Entry, Sharing, Space};
use crate::tlb::{self, Tlb};
use crate::unit::{Page, SpaceId};
use crate::workload::Latency;
use content::Content;
use prices::Prices;

/// Why an access or a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// There is no such process, or it was killed.
    #[error("no such process")]
    NoProcess,
    /// Nothing is mapped at this address.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(u64),
    /// The range is empty, not page-aligned, or outside the address space.
    #[error("bad range of {bytes} bytes at {address:#x}")]
    BadRange {
        /// First address.
        address: u64,
        /// Its length.
        bytes: u64,
    },
    /// No memory, even after reclaim; or no address space.
    #[error("no memory")]
    NoMemory,
}

/// The processes by number.
#[derive(Debug, Default)]
pub(crate) struct Spaces(Vec<Option<Box<Space>>>);

impl Spaces {
    #[inline]
    pub fn get(&self, id: SpaceId) -> Option<&Space> {
        self.0.get(usize::from(id.0.get()) - 1)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: SpaceId) -> Option<&mut Space> {
        self.0.get_mut(usize::from(id.0.get()) - 1)?.as_deref_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Space> {
        self.0.iter().filter_map(Option::as_deref)
    }

    fn next_id(&self) -> Option<SpaceId> {
        let n = u16::try_from(self.0.len() + 1).ok()?;
        std::num::NonZeroU16::new(n).map(SpaceId)
    }

    fn push(&mut self, space: Space) {
        self.0.push(Some(Box::new(space)));
    }

    fn take(&mut self, id: SpaceId) -> Option<Box<Space>> {
        self.0.get_mut(usize::from(id.0.get()) - 1)?.take()
    }
}

/// Base pages in swap: their contents, and the free slots.
#[derive(Debug, Default)]
pub(crate) struct Swap {
    /// A slot's content, for the content model.
    versions: Vec<u32>,
    /// How many page tables name it.
    users: Vec<u32>,
    free: Vec<u32>,
    most: u32,
}

/// A machine with its processes.
pub struct Machine {
    pub(crate) physical: Physical,
    pub(crate) spaces: Spaces,
    pub(crate) sharing: Sharing,
    pub(crate) swap: Swap,
    pub(crate) content: Option<Content>,
    tlb: Option<Tlb>,
    /// The accesses of a batch as the TLB sees them.
    translated: Box<[tlb::Access; batch::BATCH]>,
    /// The last batch needed no fault.
    went_whole: bool,
    costs: Costs,
    pub(crate) prices: Prices,
    pub(crate) policy: Box<dyn FaultPolicy>,
    pub(crate) split_frees: bool,
    align_mappings: bool,
    /// The cost of the present operation so far, in ps; whoever began it takes and charges it.
    pub(crate) bill_ps: u64,
    /// Part of the present collapse's bill from before it took the mmap lock: until it had a block.
    unlocked_ps: u64,
    /// The latest moment that any process has reached, in ps.
    now_ps: u64,
    /// When background work is due, in ps.
    next_event_ps: u64,
    policy_due_ps: u64,
    kcompactd_due_ps: Option<u64>,
    proactiveness: u8,
    proactive_due_ps: u64,
    khugepaged_at: Option<(SpaceId, Region)>,
    /// Free memory that is prezeroed, in base pages.
    prezeroed: u64,
    /// Reservations by the moment of their last change, in ns.
    pub(crate) reservations: BTreeSet<(u64, SpaceId, Region)>,
    /// Regions with memory that stays whole until there is pressure, oldest first. Hints: checked again before use.
    deferred: VecDeque<(SpaceId, Region)>,
    /// Where the search for pages to swap out continues.
    swap_at: Option<(SpaceId, Region)>,
    /// Regions being changed: accesses are checked one by one.
    blocked: u32,
    careful: bool,
    counters: Counters,
    background: BackgroundTime,
    latency: Latency,
    /// The process whose accesses [`crate::workload::Memory`] makes.
    current: SpaceId,
    /// The time of programs whose process was killed, in ns.
    outlived_ns: u64,
    children: std::collections::BTreeMap<(SpaceId, u32), SpaceId>,
}

impl Machine {
    /// A machine without any process.
    #[must_use]
    pub fn new(config: &Config, policy: Box<dyn FaultPolicy>) -> Self {
        let tlb = config.tlb.as_ref().map(Tlb::new);
        let policy_due_ps = policy.period().map_or(u64::MAX, prices::ps_of);
        let proactive_due_ps = match config.proactiveness {
            0 => u64::MAX,
            _ => background::PROACTIVE_PERIOD_PS,
        };
        Self {
            physical: Physical::new(&config.layout, config.seed),
            spaces: Spaces::default(),
            sharing: Sharing::default(),
            swap: Swap {
                most: u32::try_from(config.swap_bytes >> crate::unit::BASE_PAGE_BITS)
                    .unwrap_or(u32::MAX)
                    .min(crate::unit::Frame::MAX),
                ..Swap::default()
            },
            content: config.check_contents.then(Content::default),
            prices: Prices::new(&config.costs, config.tlb.as_ref()),
            tlb,
            translated: Box::new([tlb::Access::default(); batch::BATCH]),
            went_whole: false,
            costs: config.costs.clone(),
            policy,
            split_frees: config.split_frees,
            align_mappings: config.align_mappings,
            bill_ps: 0,
            unlocked_ps: 0,
            now_ps: 0,
            next_event_ps: policy_due_ps.min(proactive_due_ps),
            policy_due_ps,
            kcompactd_due_ps: None,
            proactiveness: config.proactiveness,
            proactive_due_ps,
            khugepaged_at: None,
            prezeroed: 0,
            reservations: BTreeSet::new(),
            deferred: VecDeque::new(),
            swap_at: None,
            blocked: 0,
            careful: config.check_contents,
            counters: Counters::default(),
            background: BackgroundTime::default(),
            latency: Latency::new(),
            outlived_ns: 0,
            current: SpaceId(std::num::NonZeroU16::MIN),
            children: std::collections::BTreeMap::new(),
        }
    }

    /// One access of up to a cache line by a process.
    ///
    /// # Errors
    /// If there is no such process, nothing is mapped there, or memory is out; the program is not charged then.
    #[inline]
    pub fn access(&mut self, id: SpaceId, address: u64, write: bool) -> Result<(), MachineError> {
        self.access_by(id, address, write, false)
    }

    /// A load whose result the program waits for: neither memory nor translation latency is hidden behind others.
    ///
    /// # Errors
    /// As [`Machine::access`].
    pub fn access_waiting(&mut self, id: SpaceId, address: u64) -> Result<(), MachineError> {
        self.access_by(id, address, false, true)
    }

    #[inline(always)]
    fn access_by(&mut self, id: SpaceId, address: u64, write: bool, waits: bool) -> Result<(), MachineError> {
        let (miss, cycle) = match waits {
            false => (self.prices.miss, self.prices.cycle),
            true => (self.prices.miss_waited, self.prices.cycle_waited),
        };
        let page = Page::at(address);
        loop {
            let Some(space) = self.spaces.get_mut(id) else {
                return Err(MachineError::NoProcess);
            };
            let Some((size, is_first)) = space.tables.touch(page, write) else {
                self.fault(id, page, write)?;
                continue;
            };
            let same = std::mem::replace(&mut space.last_page, page) == page;
            let mut cost = if same { self.prices.hit } else { miss };
            let by_page = u64::from(is_first) * self.prices.set_accessed;
            space.paid_by_page_ps += by_page;
            cost += by_page;
            if let Some(tlb) = &mut self.tlb {
                cost += u64::from(tlb.access(id.0.get(), address, size)) * cycle;
            }
            space.clock_ps += cost;
            if self.careful || space.clock_ps >= self.next_event_ps {
                self.look_closely(id, page, write);
            }
            return Ok(());
        }
    }

    /// Background work due by the clock of a process.
    #[inline]
    fn run_due(&mut self, id: SpaceId) {
        if let Some(space) = self.spaces.get(id) {
            if space.clock_ps >= self.next_event_ps {
                self.run_events(space.clock_ps);
            }
        }
    }

    /// Waits where the region is being changed, checks contents, and runs what is due.
    #[cold]
    #[inline(never)]
    fn look_closely(&mut self, id: SpaceId, page: Page, write: bool) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        if let Some((region, from, until)) = space.blocked {
            if space.clock_ps >= until {
                space.blocked = None;
                self.blocked -= 1;
                self.careful = self.content.is_some() || self.blocked > 0;
            } else if region == page.region() && space.clock_ps >= from {
                space.counts.stall_ns += (until - space.clock_ps) / 1000;
                space.clock_ps = until;
            }
        }
        let frame = match space.tables.get(page.region()) {
            Entry::Table(at) => space.tables.table(at).ptes[page.index()].frame(),
            Entry::Huge(at) => Some(space.tables.huge(at).frame(page.index())),
            Entry::None => None,
        };
        if let Some(content) = &mut self.content {
            match (write, frame) {
                (true, Some(frame)) => content.store(id, page, frame),
                (true, None) => self.counters.content_errors += 1,
                (false, frame) => self.counters.content_errors += u64::from(!content.load(id, page, frame)),
            }
        }
        self.run_due(id);
    }

    /// A new process with nothing mapped, whose clock starts at the machine's. None after 65,535 of them.
    pub fn spawn(&mut self, name: &str) -> Option<SpaceId> {
        let id = self.spaces.next_id()?;
        self.spaces.push(Space::new(id, name, self.now_ps));
        Some(id)
    }

    /// Moves a process to a processor of this NUMA node: new memory comes from there first. Existing memory stays.
    pub fn run_on(&mut self, id: SpaceId, node: u8) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.node = node;
        }
    }

    /// The physical memory, to fragment it or fill it with page cache before a run. Memory mapped by processes must not be changed.
    pub fn physical_mut(&mut self) -> &mut Physical {
        &mut self.physical
    }

    /// A process computes without memory accesses for so many ns.
    pub fn compute(&mut self, id: SpaceId, ns: u64) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.clock_ps = space.clock_ps.saturating_add(ns.saturating_mul(1000));
        }
        self.run_due(id);
    }

    /// A process sleeps until this moment, unless it has passed.
    pub fn sleep_until(&mut self, id: SpaceId, ns: u64) {
        if let Some(space) = self.spaces.get_mut(id) {
            space.clock_ps = space.clock_ps.max(ns.saturating_mul(1000));
        }
        self.run_due(id);
    }

    /// Advances the machine's own time to this moment: background work runs up to it even if no process does.
    pub fn pass_until(&mut self, ns: u64) {
        let at = ns.saturating_mul(1000);
        self.run_events(at);
        self.now_ps = self.now_ps.max(at);
    }

    /// A process has reached this moment, in ps.
    pub(crate) fn reach(&mut self, ps: u64) {
        self.now_ps = self.now_ps.max(ps);
    }

    pub(crate) fn count(&mut self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters);
    }

    pub(crate) fn count_fault(&mut self, took_ns: u64) {
        self.counters.pgfault += 1;
        self.latency.record(took_ns);
    }

    /// Takes the present operation's bill, leaving it empty.
    pub(crate) fn take_bill(&mut self) -> u64 {
        std::mem::take(&mut self.bill_ps)
    }

    pub(crate) fn charge(&mut self, ps: u64) {
        self.bill_ps = self.bill_ps.saturating_add(ps);
    }

    /// The process's region is under a collapse that cost so much from `from_ps` on: it is blocked, and its mmap lock is held, from when there was a
    /// block (`collapse_huge_page` drops the lock while it allocates).
    pub(crate) fn block_collapse(&mut self, id: SpaceId, region: Region, from_ps: u64, bill_ps: u64) {
        let unlocked = std::mem::take(&mut self.unlocked_ps).min(bill_ps);
        self.block(id, Some(region), from_ps.saturating_add(unlocked), bill_ps - unlocked);
    }

    /// The process's region is being changed for so long from `from_ps` on, with its mmap lock held.
    pub(crate) fn block(&mut self, id: SpaceId, region: Option<Region>, from_ps: u64, for_ps: u64) {
        let Some(space) = self.spaces.get_mut(id) else { return };
        let until = from_ps.saturating_add(for_ps);
        // A present holder keeps holding it.
        if space.locked_until_ps <= from_ps {
            space.locked_from_ps = from_ps;
        }
        space.locked_until_ps = space.locked_until_ps.max(until);
        if let Some(region) = region {
            if space.blocked.replace((region, from_ps, until)).is_none() {
                self.blocked += 1;
            }
            self.careful = true;
        }
    }

    /// Forgets a process: nothing may wait for it.
    fn unblock(&mut self, space: &Space) {
        if space.blocked.is_some() {
            self.blocked -= 1;
            self.careful = self.content.is_some() || self.blocked > 0;
        }
    }

    /// Flushes so many pages from this one on from the TLB.
    pub(crate) fn flush_pages(&mut self, id: SpaceId, page: Page, pages: u64) {
        if let Some(tlb) = &mut self.tlb {
            tlb.flush_pages(id.0.get(), page.address(), pages);
        }
    }

    pub(crate) fn flush_region(&mut self, id: SpaceId, region: Region) {
        self.flush_pages(id, Page::first_of(region), u64::from(REGION_PAGES));
    }

    /// A process whose memory calls this one's are, for [`crate::workload::Memory`].
    pub fn run_as(&mut self, id: SpaceId) {
        self.current = id;
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("policy", &self.policy.name())
            .field("now_ns", &self.now_ns())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
