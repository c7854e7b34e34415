//! Batched accesses, with the same effect as one after the other.
//!
//! What each structure of the model does depends only on its requests and their order. So it can be given the requests of the whole batch before the
//! next structure gets those that missed in it:
//!
//! ```text
//!   accesses ─► L1 TLB ─► misses ─► L2 TLB ─► walks ─► PDE cache ─► PDPTE cache ─► … ─► lines ─► L1 ─► L2 ─► L3
//! ```
//!
//! One by one, every access is some ten branches that the host's processor cannot predict, and each misprediction discards the work begun; and the
//! page table of one access is waited for before the next one's is fetched. In a batch each stage is one loop without such a branch: it writes
//! each candidate miss at the next free place, and advances that place if it was a miss.
//!
//! Where a structure serves two stages (AMD's PDEs are in the L2 TLB), those stages are asked in turn for each access.

use super::preset::{Preset, Slot};
use super::store::{Questions, ALL_WAYS};
use super::walk::{self, Later, MOST_LINES};
use super::{tag, Context, PageSize, Tlb, ADDRESS_MASK};

/// Accesses of a batch.
pub const BATCH: usize = 128;
/// Lines that are noted before they are read.
const LINES: usize = 1024;

/// An access: an address, and the size of the page that maps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access(u64);

impl Access {
    /// The bits that hold the size. No page is so small that they matter to the address.
    const SIZE: u64 = 3;

    /// To this address, in a page of this size.
    #[inline]
    #[must_use]
    pub const fn new(address: u64, size: PageSize) -> Self {
        Self((address & ADDRESS_MASK & !Self::SIZE) | size as u64)
    }

    /// The address, but for its lowest two bits.
    #[inline]
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & !Self::SIZE
    }

    /// The size of the page.
    #[inline]
    #[must_use]
    pub const fn size(self) -> PageSize {
        match self.0 & Self::SIZE {
            0 => PageSize::Base,
            1 => PageSize::Huge,
            _ => PageSize::Giant,
        }
    }
}

/// What is between the stages.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// No store serves two stages.
    apart: bool,
    /// What the first level did not have; then what the second did not have either.
    missed: [Access; BATCH],
    /// The level at which each walk starts.
    from: [u8; BATCH],
    /// Walks of which nothing has been found in the page-walk caches yet.
    open: [u8; BATCH],
    keys: [u64; LINES],
}

impl Batch {
    pub(super) fn new(preset: &Preset) -> Self {
        Self {
            apart: apart(preset),
            missed: [Access::default(); BATCH],
            from: [0; BATCH],
            open: [0; BATCH],
            keys: [0; LINES],
        }
    }
}

/// Whether the first level, the second, and each level of page-walk cache have stores of their own.
fn apart(preset: &Preset) -> bool {
    let bit = |store: u8| 1u64 << (store % 64);
    let first = preset.l1.iter().map(|slot| bit(slot.store));
    let second = preset.l2.iter().flatten().map(|slot| bit(slot.store));
    let walk = preset.walk[..usize::from(preset.levels) - 1].iter().flatten();
    let stages = [first.fold(0, |a, b| a | b), second.fold(0, |a, b| a | b)];
    let mut taken = 0;
    stages.into_iter().chain(walk.map(|store| bit(*store))).all(|stage| {
        let free = taken & stage == 0;
        taken |= stage;
        free
    })
}

/// Pages that are looked up in a level of TLB. Those that miss are left at the front of the list, in their order.
struct Pages<'a> {
    list: &'a mut [Access],
    missed: usize,
    shift: u32,
    /// What is before the number in each tag.
    tag: u64,
}

impl Questions for Pages<'_> {
    #[inline]
    fn number_and_tag(&self, nth: usize) -> (u64, u64) {
        let number = self.list[nth].address() >> self.shift;
        (number, self.tag | number)
    }

    #[inline]
    fn answer(&mut self, nth: usize, hit: bool) {
        self.list[self.missed] = self.list[nth];
        self.missed += usize::from(!hit);
    }
}

/// Walks that are looked up in the page-walk cache of a level. Those that miss are left at the front of `open`.
struct Starts<'a> {
    walks: &'a [Access; BATCH],
    from: &'a mut [u8; BATCH],
    open: &'a mut [u8],
    missed: usize,
    level: u32,
    context: u32,
}

impl Questions for Starts<'_> {
    #[inline]
    fn number_and_tag(&self, nth: usize) -> (u64, u64) {
        let walk = self.walks[usize::from(self.open[nth]) % BATCH];
        walk::entry(self.context, walk.address(), self.level)
    }

    #[inline]
    fn answer(&mut self, nth: usize, hit: bool) {
        let at = self.open[nth];
        let from = &mut self.from[usize::from(at) % BATCH];
        *from = if hit { self.level as u8 - 1 } else { *from };
        self.open[self.missed] = at;
        self.missed += usize::from(!hit);
    }
}

impl Tlb {
    /// Equivalent to [`Tlb::access`] for each of these accesses of a space in this order, and faster; returns the sum of their costs in cycles.
    pub fn access_all(&mut self, space: u16, accesses: &[Access]) -> u64 {
        let mut cycles = 0;
        let mut rest = accesses;
        if self.contexts[usize::from(space)].pages == 0 {
            let Some((first, others)) = accesses.split_first() else {
                return 0;
            };
            cycles += u64::from(self.access(space, first.address(), first.size()));
            rest = others;
        }
        for batch in rest.chunks(BATCH) {
            cycles += self.access_batch(space, batch);
        }
        cycles
    }

    /// Counts accesses to the page of the access before: they hit and change nothing.
    #[inline]
    pub fn access_again(&mut self, times: u64) {
        self.counts.accesses += times;
    }

    /// From 1 to [`BATCH`] accesses of a space that has its context.
    fn access_batch(&mut self, space: u16, accesses: &[Access]) -> u64 {
        let context = self.contexts[usize::from(space)];
        let n = accesses.len();
        self.batch.missed[..n].copy_from_slice(accesses);
        // The first level keeps each page whole.
        let first = PageSize::ALL.map(|size| {
            Some(Slot {
                covers: size,
                ..self.l1[size.level() as usize]
            })
        });
        let missed = self.level(context, n, first);
        let last = accesses[n - 1];
        let entry = last.size().min(self.host);
        self.last = tag(context.pages, entry.level(), last.address() >> entry.bits());
        self.counts.accesses += n as u64;
        self.counts.l1_misses += missed as u64;
        let mut cycles = missed as u64 * u64::from(self.l2_cycles);
        let walks = if self.batch.apart {
            let walks = self.level(context, missed, self.l2);
            self.start_walks(context, walks);
            walks
        } else {
            self.second_level_and_start(context, missed)
        };
        if walks > 0 {
            cycles += self.walk_all(space, walks);
        }
        self.counts.cycles += cycles;
        cycles
    }

    /// Looks up the first so many of `missed` in a level of TLB. Leaves the misses there, and returns their number.
    fn level(&mut self, context: Context, n: usize, slots: [Option<Slot>; 3]) -> usize {
        let missed = &mut self.batch.missed;
        let (mut at, mut left) = (0, 0);
        while at < n {
            // Neighbours of one size have one store: mostly all of them.
            let size = missed[at].size();
            let others = missed[at..n].iter().position(|access| access.size() != size);
            let run = others.unwrap_or(n - at);
            let mut not_here = run;
            if let Some(slot) = slots[size.min(self.host).level() as usize] {
                let mut pages = Pages {
                    list: &mut missed[at..at + run],
                    missed: 0,
                    shift: slot.covers.bits(),
                    tag: tag(context.pages, slot.covers.level(), 0),
                };
                self.stores[usize::from(slot.store)].access_all(run, slot.ways, &mut pages);
                not_here = pages.missed;
            }
            if left != at {
                missed.copy_within(at..at + not_here, left);
            }
            left += not_here;
            at += run;
        }
        left
    }

    /// Looks up in the page-walk caches, lowest level first, where so many walks start.
    fn start_walks(&mut self, context: Context, walks: usize) {
        let Batch { missed, from, open, .. } = &mut *self.batch;
        let top = self.walker.top();
        from[..walks].fill(top as u8);
        for (i, open) in open[..walks].iter_mut().enumerate() {
            *open = i as u8;
        }
        let levels = missed[..walks].iter().map(|access| access.size().level());
        let highest = levels.max().unwrap_or(0);
        let mut left = walks;
        for level in 1..=top {
            let Some(store) = self.walker.cache(level) else {
                continue;
            };
            let mut starts = Starts {
                walks: missed,
                from,
                open: &mut open[..left],
                missed: 0,
                level,
                context: context.walk,
            };
            let store = &mut self.stores[usize::from(store)];
            if level > highest {
                store.access_all(left, ALL_WAYS, &mut starts);
            } else {
                // An entry that maps the page itself is not a table's, and is not looked up.
                for nth in 0..left {
                    let size = missed[usize::from(starts.open[nth]) % BATCH].size();
                    let (number, tag) = starts.number_and_tag(nth);
                    let hit = size.level() < level && store.access(number, tag, ALL_WAYS);
                    starts.answer(nth, hit);
                }
            }
            left = starts.missed;
        }
    }

    /// Asks the second level and the page-walk caches for one access after the other.
    fn second_level_and_start(&mut self, context: Context, missed: usize) -> usize {
        let mut n = 0;
        for i in 0..missed {
            let access = self.batch.missed[i];
            let (address, size) = (access.address(), access.size());
            let slot = self.l2[size.min(self.host).level() as usize];
            let hit = slot.is_some_and(|slot| {
                let number = address >> slot.covers.bits();
                let wanted = tag(context.pages, slot.covers.level(), number);
                self.stores[usize::from(slot.store)].access(number, wanted, slot.ways)
            });
            if !hit {
                let from = self.walker.start(&mut self.stores, context.walk, address, size);
                self.batch.missed[n] = access;
                self.batch.from[n] = from as u8;
                n += 1;
            }
        }
        n
    }

    /// Makes so many walks, whose starts are known, and counts them. Returns their cycles.
    fn walk_all(&mut self, space: u16, walks: usize) -> u64 {
        let Batch { missed, from, keys, .. } = &mut *self.batch;
        let mut cycles = walks as u64 * u64::from(self.walker.cycles());
        let mut references = 0;
        let mut reader = Later { keys, noted: 0 };
        for (access, from) in missed[..walks].iter().zip(&from[..walks]) {
            if reader.noted + MOST_LINES > LINES {
                cycles += self.lines.read_all(&mut reader.keys[..reader.noted]);
                reader.noted = 0;
            }
            let size = access.size();
            references += self
                .walker
                .walk(&mut reader, space, access.address(), size, u32::from(*from));
            self.counts.walks[size.level() as usize] += 1;
        }
        cycles += self.lines.read_all(&mut reader.keys[..reader.noted]);
        self.counts.references += u64::from(references);
        self.counts.walk_cycles += cycles;
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb::tests::next_place;
    use crate::tlb::{Nested, PRESETS};
    use proptest::prelude::*;

    /// All state that later accesses depend on, and the counts.
    fn state(tlb: &Tlb) -> String {
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            tlb.last, tlb.stores, tlb.walker, tlb.lines, tlb.counts
        )
    }

    #[test]
    fn stages_have_stores_of_their_own_on_intel_and_not_on_amd() {
        let apart: Vec<bool> = PRESETS.iter().map(apart).collect();
        let amd: Vec<bool> = PRESETS.iter().map(|preset| !preset.name.starts_with("zen")).collect();
        assert_eq!(apart, amd);
        // Both of the highest levels' entries are in one cache.
        assert!(!super::apart(&PRESETS[1].with_levels(5)));
    }

    #[test]
    fn an_access_is_an_address_and_a_size() {
        for size in PageSize::ALL {
            let access = Access::new(0x7fff_ffff_f123, size);
            assert_eq!((access.address(), access.size()), (0x7fff_ffff_f120, size));
        }
        assert_eq!(Access::new(u64::MAX, PageSize::Base).address(), ADDRESS_MASK & !3);
    }

    #[test]
    fn batches_of_many_walks_are_what_single_accesses_are_on_every_processor() {
        let nested = Nested {
            levels: 5,
            ..Nested::uncached(PageSize::Base)
        };
        let scattered = Nested {
            scatter_bits: 34,
            ..nested
        };
        let others = [
            PRESETS[1].with_levels(5),
            PRESETS[1].with_levels(5).with_nested(Some(nested)),
            PRESETS[6].with_nested(Some(scattered)),
        ];
        for preset in PRESETS.iter().chain(&others) {
            // Much memory, so that nearly all accesses walk; then less.
            for bits in [44, 36, 31, 24] {
                let (mut one, mut many) = (Tlb::new(preset), Tlb::new(preset));
                let mut place = bits;
                let accesses: Vec<Access> = (0..5000)
                    .map(|n| {
                        place = next_place(place);
                        let size = match n % 100 {
                            0 => PageSize::Giant,
                            n if n < 30 => PageSize::Huge,
                            _ => PageSize::Base,
                        };
                        Access::new(place >> 16 & ((1 << bits) - 1), size)
                    })
                    .collect();
                let cycles: u64 = accesses
                    .iter()
                    .map(|access| u64::from(one.access(1, access.address(), access.size())))
                    .sum();
                assert_eq!(many.access_all(1, &accesses), cycles, "{}, {bits}", preset.name);
                assert_eq!(state(&many), state(&one), "{}, {bits}", preset.name);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn batches_are_what_single_accesses_are_whatever_is_flushed_between(
            which in 0..PRESETS.len(),
            parts in prop::collection::vec(
                (1u16..4, 0u8..6, prop::collection::vec((0u64..900, 0u8..10, 0u64..2), 0..300)),
                1..12,
            ),
        ) {
            let (mut one, mut many) = (Tlb::new(&PRESETS[which]), Tlb::new(&PRESETS[which]));
            for (space, flush, pages) in parts {
                let accesses: Vec<Access> = pages
                    .iter()
                    .map(|&(page, size, far)| {
                        let size = match size { 0 => PageSize::Giant, 1..=3 => PageSize::Huge, _ => PageSize::Base };
                        Access::new(page * size.bytes() + far * (3 << 40), size)
                    })
                    .collect();
                let cycles: u64 = accesses
                    .iter()
                    .map(|access| u64::from(one.access(space, access.address(), access.size())))
                    .sum();
                prop_assert_eq!(many.access_all(space, &accesses), cycles);
                for tlb in [&mut one, &mut many] {
                    match flush {
                        0 => tlb.flush_space(space),
                        1 => tlb.flush_pages(space, 5 * PageSize::Base.bytes(), 1),
                        2 => tlb.flush_pages(space, 0, 512),
                        3 => tlb.flush_all(),
                        _ => {}
                    }
                }
                prop_assert_eq!(state(&many), state(&one));
            }
        }
    }
}
