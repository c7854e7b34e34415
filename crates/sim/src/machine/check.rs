//! The invariants of the whole machine.

use std::collections::BTreeMap;

use mega_core::observe::Region;
use mega_core::units::REGION_PAGES;

use super::Machine;
use crate::physical::GIANT_BLOCKS;
use crate::space::{Backing, Entry, Space};
use crate::unit::{Frame, Owner, Page};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckError(pub String);

macro_rules! must {
    ($cond:expr, $($text:tt)+) => {
        if !$cond {
            return Err(CheckError(format!($($text)+)));
        }
    };
}

/// What the page tables say about frames.
#[derive(Default)]
struct FrameUse {
    /// Frames accounted for: mapped, kept whole, or reserved.
    frames: u64,
    /// By key: the frame, and how many mappers were found.
    shared: BTreeMap<u32, (Frame, usize)>,
    /// By place in swap: how many entries name it.
    slots: BTreeMap<u32, u32>,
}

impl Machine {
    /// Checks all invariants: each mapped frame is allocated to its mapper, none is mapped twice unless shared, counts agree, and memory holds what
    /// the programs stored (where that is tracked).
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), CheckError> {
        self.physical.check().map_err(CheckError)?;
        let mut seen = FrameUse::default();
        for space in self.spaces.iter() {
            self.check_space(space, &mut seen)?;
        }
        for (key, (frame, found)) in &seen.shared {
            let mappers = self.sharing.mappers(*key);
            must!(
                mappers.len() == *found && *found > 1,
                "frame {frame:?}: {found} map it, {mappers:?} should"
            );
        }
        must!(
            seen.shared.len() == self.sharing.len(),
            "{} keys, {} in use",
            self.sharing.len(),
            seen.shared.len()
        );
        for (slot, users) in &seen.slots {
            must!(
                self.swap.users(*slot) == *users,
                "swap {slot}: {users} name it, not {}",
                self.swap.users(*slot)
            );
        }
        must!(
            seen.slots.len() == self.swap.used(),
            "{} places in swap, {} named",
            self.swap.used(),
            seen.slots.len()
        );
        for (changed, id, region) in &self.reservations {
            let table = self.spaces.get(*id).and_then(|space| space.tables.table_of(*region));
            let fits = table.is_some_and(|t| t.changed_ns == *changed && matches!(t.backing, Backing::Reserved(_)));
            must!(fits, "{id:?} {region}: listed as a reservation and is none");
        }
        self.check_owned(seen.frames)?;
        self.check_contents()?;
        must!(self.counters.content_errors == 0, "{:?}", self.content_error());
        Ok(())
    }

    /// Processes own as many frames as their tables account for: none leaks.
    fn check_owned(&self, accounted: u64) -> Result<(), CheckError> {
        let end = self.physical.end().0;
        let of_processes =
            |owner: &Owner| matches!(owner, Owner::Anonymous(..) | Owner::Shared(_) | Owner::Reserved(..));
        let owned = (0..end)
            .filter_map(|frame| self.physical.owner(Frame(frame)))
            .filter(of_processes);
        let owned = owned.count() as u64;
        must!(
            owned == accounted,
            "processes own {owned} frames and account for {accounted}"
        );
        Ok(())
    }

    fn check_space(&self, space: &Space, seen: &mut FrameUse) -> Result<(), CheckError> {
        let (mut resident, mut zero, mut huge_pages, mut swapped) = (0u64, 0u64, 0u64, 0u64);
        let mut giant_parts = 0u64;
        for region in space.tables.all_used() {
            let name = format!("{:?} {region}", space.id);
            let first = Page::first_of(region).0;
            match space.tables.get(region) {
                Entry::None => {}
                Entry::Huge(at) => {
                    let huge = space.tables.huge(at);
                    huge_pages += 1;
                    resident += u64::from(REGION_PAGES);
                    must!(space.covers(region), "{name}: huge outside of its mapping");
                    self.check_block(space, region, huge.frame(0), seen)?;
                    let shared = matches!(self.physical.owner(huge.frame(0)), Some(Owner::Shared(_)));
                    must!(!shared || huge.protected, "{name}: shared and writable");
                    must!(huge.dirty || huge.held() == 0, "{name}: clean and not zero");
                    if huge.giant {
                        giant_parts += 1;
                        let nth = (region.0 % u64::from(GIANT_BLOCKS)) as u32;
                        must!(
                            huge.block.0 % GIANT_BLOCKS == nth && !shared,
                            "{name}: part {nth} of a page of 1 GB is block {}",
                            huge.block.0
                        );
                    }
                }
                Entry::Table(at) => {
                    let table = space.tables.table(at);
                    let counts = table.counts();
                    must!(
                        counts.mapped == u32::from(table.mapped),
                        "{name}: mapped {} counted {}",
                        table.mapped,
                        counts.mapped
                    );
                    must!(
                        counts.mapped - counts.zero == u32::from(table.frames),
                        "{name}: frames {}",
                        table.frames
                    );
                    must!(!table.is_empty(), "{name}: an empty table");
                    resident += u64::from(table.frames);
                    zero += u64::from(counts.zero);
                    let mut slots = 0;
                    for (i, pte) in table.ptes.iter().enumerate() {
                        let page = Page(first + i as u64);
                        must!(
                            pte.is_none() || space.vmas.find(page.0).is_some(),
                            "{name}: {i} outside of any mapping"
                        );
                        if let Some(slot) = pte.slot() {
                            slots += 1;
                            *seen.slots.entry(slot).or_default() += 1;
                        }
                        if let Some(frame) = pte.frame() {
                            let protected = pte.has(crate::space::Pte::PROTECTED);
                            self.check_frame(space, page, frame, protected, seen)?;
                        }
                    }
                    must!(
                        slots == table.swapped,
                        "{name}: swapped {} counted {slots}",
                        table.swapped
                    );
                    swapped += u64::from(slots);
                    self.check_backing(space, region, seen)?;
                }
            }
        }
        let giants = space.tables.giants();
        must!(
            giant_parts == giants * u64::from(GIANT_BLOCKS),
            "{:?}: {giant_parts} parts of {giants} pages of 1 GB",
            space.id
        );
        let c = &space.counts;
        let counted = (resident, zero, huge_pages, swapped);
        let kept = (c.resident_pages, c.zero_pages, c.huge, c.swapped);
        must!(
            counted == kept,
            "{:?}: resident, zero, huge, swapped are {counted:?}, counted as {kept:?}",
            space.id
        );
        Ok(())
    }

    fn check_frame(
        &self,
        space: &Space,
        page: Page,
        frame: Frame,
        protected: bool,
        seen: &mut FrameUse,
    ) -> Result<(), CheckError> {
        match self.physical.owner(frame) {
            Some(Owner::Anonymous(id, at)) if id == space.id && at == page => seen.frames += 1,
            Some(Owner::Shared(key)) => {
                let mapper = self.sharing.mappers(key).contains(&(space.id, page));
                must!(
                    mapper && protected,
                    "{:?} {page:?}: {frame:?} shared as {key}, which it should not be",
                    space.id
                );
                let entry = seen.shared.entry(key).or_insert_with(|| {
                    seen.frames += 1;
                    (frame, 0)
                });
                must!(entry.0 == frame, "key {key} is {:?} and {frame:?}", entry.0);
                entry.1 += 1;
            }
            other => must!(false, "{:?} {page:?}: maps {frame:?}, which is {other:?}", space.id),
        }
        Ok(())
    }

    /// All frames of a huge page's block belong to it.
    fn check_block(&self, space: &Space, region: Region, first: Frame, seen: &mut FrameUse) -> Result<(), CheckError> {
        let first_page = Page::first_of(region);
        let shared = match self.physical.owner(first) {
            Some(Owner::Shared(key)) => {
                must!(
                    self.sharing.mappers(key).contains(&(space.id, first_page)),
                    "{:?} {region}: not a sharer",
                    space.id
                );
                let entry = seen.shared.entry(key).or_insert_with(|| {
                    seen.frames += u64::from(REGION_PAGES);
                    (first, 0)
                });
                must!(entry.0 == first, "key {key} is two huge pages");
                entry.1 += 1;
                Some(key)
            }
            _ => {
                seen.frames += u64::from(REGION_PAGES);
                None
            }
        };
        for i in 0..REGION_PAGES {
            let owner = self.physical.owner(Frame(first.0 + i));
            let wanted = shared.map_or(
                Owner::Anonymous(space.id, Page(first_page.0 + u64::from(i))),
                Owner::Shared,
            );
            must!(
                owner == Some(wanted),
                "{:?} {region}: page {i} of its huge page is {owner:?}",
                space.id
            );
        }
        Ok(())
    }

    /// What a table keeps whole or reserved, beyond what it maps, is allocated to it.
    fn check_backing(&self, space: &Space, region: Region, seen: &mut FrameUse) -> Result<(), CheckError> {
        let Some(table) = space.tables.table_of(region) else {
            return Ok(());
        };
        let Some(block) = table.backing.block() else {
            return Ok(());
        };
        let first = Frame::first_of(block).0;
        for i in 0..REGION_PAGES {
            let frame = Frame(first + i);
            if table.ptes[i as usize].frame() == Some(frame) {
                continue;
            }
            let page = Page(Page::first_of(region).0 + u64::from(i));
            let wanted = match table.backing {
                Backing::Reserved(_) => Owner::Reserved(space.id, region),
                _ => Owner::Anonymous(space.id, page),
            };
            let owner = self.physical.owner(frame);
            must!(
                owner == Some(wanted),
                "{:?} {region}: page {i} of its block is {owner:?}",
                space.id
            );
            seen.frames += 1;
        }
        if let Backing::Reserved(_) = table.backing {
            let listed = self.reservations.contains(&(table.changed_ns, space.id, region));
            must!(listed, "{:?} {region}: its reservation is not listed", space.id);
        }
        Ok(())
    }

    /// Every page with an expected content holds it.
    fn check_contents(&self) -> Result<(), CheckError> {
        let Some(content) = &self.content else { return Ok(()) };
        for (id, page) in content.pages() {
            let Some(space) = self.spaces.get(id) else { continue };
            let found = match space.tables.get(page.region()) {
                Entry::None => 0,
                Entry::Huge(at) => {
                    let huge = space.tables.huge(at);
                    let found = content.of(huge.frame(page.index()));
                    must!(
                        found == 0 || huge.holds(page.index()) || content.is_lazy(id, page),
                        "{id:?} {page:?}: holds {found}, taken for zero"
                    );
                    found
                }
                Entry::Table(at) => {
                    let pte = space.tables.table(at).ptes[page.index()];
                    let in_frame = pte.frame().map(|frame| content.of(frame));
                    in_frame.or(pte.slot().map(|slot| self.swap.version(slot))).unwrap_or(0)
                }
            };
            must!(
                content.agrees(id, page, found),
                "{id:?} {page:?}: holds {found}, which was never stored there"
            );
        }
        Ok(())
    }
}
