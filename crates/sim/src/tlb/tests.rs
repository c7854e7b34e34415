//! Exact counts for access patterns made by hand, walks against their formula, and random traces against a naive model.

use proptest::prelude::*;

use super::preset::{CacheLevel, Slot};
use super::store::{Geometry, ALL_WAYS};
use super::{find, Counts, Nested, PageSize, Preset, Tlb};
use PageSize::{Base, Giant, Huge};

const PAGE: u64 = 4096;
const REGION: u64 = 2 << 20;

/// The next of a sequence of places that looks random: Knuth's MMIX generator.
pub(super) fn next_place(place: u64) -> u64 {
    place
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

/// 16 base, 8 huge and 4 giant entries; 64 in the second level; walk caches of 4, 2 and 2.
const SMALL: Preset = Preset {
    name: "small",
    about: "for tests",
    mhz: 1000,
    levels: 4,
    stores: &[
        Geometry::new(16, 4),
        Geometry::new(8, 4),
        Geometry::new(4, 4),
        Geometry::new(64, 4),
        Geometry::new(4, 4),
        Geometry::new(2, 2),
        Geometry::new(2, 2),
    ],
    l1: [Slot::of(0, Base), Slot::of(1, Huge), Slot::of(2, Giant)],
    l2: [Some(Slot::of(3, Base)), Some(Slot::of(3, Huge)), None],
    walk: [Some(4), Some(5), Some(6), None],
    l2_cycles: 7,
    walk_cycles: 3,
    caches: [
        CacheLevel {
            bytes: 32 << 10,
            cycles: 4,
        },
        CacheLevel {
            bytes: 256 << 10,
            cycles: 14,
        },
        CacheLevel {
            bytes: 8 << 20,
            cycles: 50,
        },
    ],
    memory_cycles: 200,
    share_percent: 50,
    overlap_percent: 100,
    nested: None,
    sources: &[],
};

/// No page-walk caches at all.
const NO_WALK_CACHES: Preset = Preset {
    walk: [None; 4],
    ..SMALL
};

fn touch_all(tlb: &mut Tlb, pages: impl Iterator<Item = u64>, size: PageSize) -> Counts {
    let before = tlb.counts();
    for page in pages {
        tlb.access(1, page * size.bytes(), size);
    }
    tlb.counts().since(&before)
}

#[test]
fn a_working_set_as_large_as_the_first_level_always_hits() {
    let mut tlb = Tlb::new(&SMALL);
    let cold = touch_all(&mut tlb, 0..16, Base);
    assert_eq!((cold.l1_misses, cold.l2_misses()), (16, 16));
    for _ in 0..10 {
        assert_eq!(touch_all(&mut tlb, 0..16, Base).l1_misses, 0);
    }
}

#[test]
fn one_more_page_in_a_set_makes_lru_miss_all_of_that_set() {
    let mut tlb = Tlb::new(&SMALL);
    // Pages 0, 4, 8, 12, 16 share set 0 of 4; the second level has them after the first round.
    touch_all(&mut tlb, 0..17, Base);
    let round = touch_all(&mut tlb, 0..17, Base);
    assert_eq!((round.l1_misses, round.l2_misses()), (5, 0));
    assert_eq!(round.cycles, 5 * 7);
}

#[test]
fn one_more_page_than_the_second_level_in_a_set_walks_for_all_of_that_set() {
    let mut tlb = Tlb::new(&SMALL);
    touch_all(&mut tlb, 0..64, Base);
    assert_eq!(touch_all(&mut tlb, 0..64, Base).l2_misses(), 0);
    touch_all(&mut tlb, 0..65, Base);
    assert_eq!(touch_all(&mut tlb, 0..65, Base).l2_misses(), 5);
}

#[test]
fn huge_pages_reach_512_times_as_far() {
    for name in ["sapphire-rapids", "skylake-sp", "zen2", "zen4"] {
        let preset = find(name).unwrap();
        // Where base and huge pages may take all ways, as many pages one after the other hit as there are entries, and no more.
        let l2 = preset.l2[0].unwrap();
        let entries = u64::from(preset.stores[usize::from(l2.store)].entries);
        let shared = Preset {
            l2: [Some(l2), Some(Slot { covers: Huge, ..l2 }), None],
            walk: [None; 4],
            ..*preset
        };
        for size in [Base, Huge] {
            for (pages, all_hit) in [(entries, true), (entries + 1, false)] {
                let mut tlb = Tlb::new(&shared);
                touch_all(&mut tlb, 0..pages, size);
                assert_eq!(
                    touch_all(&mut tlb, 0..pages, size).l2_misses() == 0,
                    all_hit,
                    "{name} {size:?} {pages}"
                );
            }
        }
        assert_eq!(entries * Huge.bytes(), 512 * entries * PAGE);
    }
}

#[test]
fn the_same_page_again_costs_nothing_and_changes_nothing() {
    let mut tlb = Tlb::new(&SMALL);
    assert!(tlb.access(1, 0x1234, Base) > 0);
    for address in [0x1000, 0x1FFF, 0x1234] {
        assert_eq!(tlb.access(1, address, Base), 0);
    }
    assert_eq!(tlb.counts().accesses, 4);
    assert_eq!(tlb.counts().l1_misses, 1);
}

#[test]
fn a_cold_walk_reads_every_level_from_memory_and_a_warm_one_what_the_walk_caches_lack() {
    for (size, levels) in [(Base, 4), (Huge, 3), (Giant, 2)] {
        let mut tlb = Tlb::new(&SMALL);
        assert_eq!(tlb.access(1, 0, size), 7 + 3 + levels * 200, "{size:?}");
        assert_eq!(tlb.counts().references, u64::from(levels));
        // The next page's entry is in the same line, now in L1, and every table above is in a walk cache.
        assert_eq!(tlb.access(1, size.bytes(), size), 7 + 3 + 4, "{size:?}");
        // Eight pages on is another line.
        assert_eq!(tlb.access(1, 8 * size.bytes(), size), 7 + 3 + 200, "{size:?}");
    }
}

#[test]
fn each_walk_cache_saves_the_levels_above_it() {
    let mut tlb = Tlb::new(&SMALL);
    let mut references = |address: u64| {
        let before = tlb.counts().references;
        tlb.access(1, address, Base);
        tlb.counts().references - before
    };
    assert_eq!(references(0), 4);
    assert_eq!(references(PAGE), 1); // PDE cached
    assert_eq!(references(REGION), 2); // PDPTE cached
    assert_eq!(references(1 << 30), 3); // PML4E cached
    assert_eq!(references(1 << 39), 4);
    // Two PDPTEs are cached, of four PDEs region 0's is the oldest: the first gigabyte's PDPTE was given up, its PML4E was not.
    assert_eq!(references(2 * REGION), 3);
    // That was a fifth PDE: region 0's is gone.
    assert_eq!(references(2 * PAGE), 2);
    assert_eq!(references(3 * PAGE), 1);
}

#[test]
fn five_levels_read_one_entry_more() {
    let mut tlb = Tlb::new(&NO_WALK_CACHES.with_levels(5));
    tlb.access(1, 0, Base);
    assert_eq!(tlb.counts().references, 5);
    tlb.access(1, 1 << 55, Huge);
    assert_eq!(tlb.counts().references, 9);
}

#[test]
fn a_nested_walk_reads_up_to_24_entries() {
    for (guest, g) in [(Base, 4), (Huge, 3), (Giant, 2)] {
        for (host, h) in [(Base, 4), (Huge, 3), (Giant, 2)] {
            let mut tlb = Tlb::new(&NO_WALK_CACHES.with_nested(Some(Nested::uncached(host))));
            tlb.access(1, 0x7654_3210_9000, guest);
            assert_eq!(tlb.counts().references, g * (h + 1) + h, "{guest:?} on {host:?}");
        }
    }
    let mut tlb = Tlb::new(&NO_WALK_CACHES.with_nested(Some(Nested::uncached(Base))));
    tlb.access(1, 0, Base);
    assert_eq!(tlb.counts().references, 24);
}

#[test]
fn nested_caches_save_what_they_hold() {
    let nested = Nested {
        tlb: Some(Geometry::new(16, 16)),
        walk: [Some(Geometry::new(4, 4)); 4],
        ..Nested::uncached(Huge)
    };
    let mut tlb = Tlb::new(&SMALL.with_nested(Some(nested)));
    tlb.access(1, 0, Base);
    let cold = tlb.counts().references;
    // PDE cached on the guest's side, and both the table's and the page's 2 MB translated already: one entry.
    tlb.access(1, PAGE, Base);
    assert_eq!(tlb.counts().references, cold + 1);
    // The next region: the guest's PDE and PTE, and the host's entry for that 2 MB.
    tlb.access(1, REGION, Base);
    assert_eq!(tlb.counts().references, cold + 1 + 3);
}

#[test]
fn scattered_base_pages_share_no_line_of_the_hosts_table() {
    let cycles = |scatter_bits| {
        let nested = Nested {
            scatter_bits,
            ..Nested::uncached(Base)
        };
        let mut tlb = Tlb::new(&SMALL.with_nested(Some(nested)));
        let counts = touch_all(&mut tlb, 0..2000, Base);
        (counts.references, counts.walk_cycles)
    };
    let (in_order, scattered) = (cycles(0), cycles(34));
    assert_eq!(in_order.0, scattered.0);
    assert!(scattered.1 > in_order.1 * 3 / 2, "{in_order:?} {scattered:?}");
}

#[test]
fn a_tlb_entry_covers_the_smaller_of_guest_and_host_page() {
    let mut tlb = Tlb::new(&SMALL.with_nested(Some(Nested::uncached(Base))));
    let before = touch_all(&mut tlb, 0..4, Huge);
    assert_eq!(before.walks, [0, 4, 0]);
    // Other base pages of the same huge pages are not covered.
    tlb.access(1, PAGE, Huge);
    assert_eq!(tlb.counts().walks, [0, 5, 0]);
}

#[test]
fn a_flushed_page_walks_again_and_its_neighbour_does_not() {
    let mut tlb = Tlb::new(&SMALL);
    touch_all(&mut tlb, 0..2, Base);
    tlb.access(1, 4 * REGION, Huge);
    tlb.flush_pages(1, 0, 1);
    assert_eq!(touch_all(&mut tlb, 1..2, Base).l1_misses, 0);
    let again = touch_all(&mut tlb, 0..1, Base);
    assert_eq!((again.l2_misses(), again.references), (1, 4));
    tlb.flush_pages(1, 4 * REGION + 5 * PAGE, 1);
    assert_eq!(touch_all(&mut tlb, 4..5, Huge).l2_misses(), 1);
    tlb.flush_pages(9, 0, 1);
}

#[test]
fn a_flushed_region_loses_its_base_pages_and_its_huge_page() {
    let mut tlb = Tlb::new(&SMALL);
    touch_all(&mut tlb, [510, 511, 512].into_iter(), Base);
    tlb.access(1, 0, Huge);
    tlb.flush_pages(1, 0, 512);
    assert_eq!(touch_all(&mut tlb, [512].into_iter(), Base).l1_misses, 0);
    assert_eq!(touch_all(&mut tlb, [510, 511].into_iter(), Base).l2_misses(), 2);
    assert_eq!(touch_all(&mut tlb, 0..1, Huge).l2_misses(), 1);
}

#[test]
fn spaces_do_not_see_each_other_and_are_flushed_apart() {
    let mut tlb = Tlb::new(&SMALL);
    for space in [1, 2] {
        assert!(tlb.access(space, 0, Base) > 0);
    }
    for space in [1, 2, 1, 2] {
        assert_eq!(tlb.access(space, 0, Base), 0);
    }
    tlb.flush_space(1);
    assert_eq!(tlb.access(2, 0, Base), 0);
    assert!(tlb.access(1, 0, Base) > 0);
    tlb.flush_all();
    assert!(tlb.access(2, 0, Base) > 0);
}

#[test]
fn flushes_beyond_all_numbers_lose_entries_but_never_keep_one() {
    let mut tlb = Tlb::new(&SMALL);
    for round in 0..300_000u32 {
        assert!(tlb.access(7, 0, Base) > 0, "{round}");
        tlb.flush_space(7);
    }
    for _ in 0..300_000 {
        tlb.access(1, PAGE, Base);
        tlb.flush_pages(1, PAGE, 1);
    }
    assert!(tlb.access(1, PAGE, Base) > 0);
}

#[test]
fn smashed_giant_pages_take_an_entry_per_2_mb_in_the_second_level() {
    let mut tlb = Tlb::new(find("zen2").unwrap());
    let all = |tlb: &mut Tlb| {
        let before = tlb.counts();
        for gigabyte in 0..65 {
            tlb.access(1, gigabyte << 30, Giant);
        }
        tlb.counts().since(&before)
    };
    all(&mut tlb);
    // 65 in a first level of 64: every one misses there, and finds its smashed entry.
    let round = all(&mut tlb);
    assert_eq!(round.l1_misses, 65);
    // All 65 fall into set 0 of the second level, as the low bits of a 2 MB number are zero: 16 ways do not hold them.
    assert_eq!(round.l2_misses(), 65);
}

#[test]
fn every_preset_is_deterministic() {
    for preset in super::PRESETS {
        let run = || {
            let mut tlb = Tlb::new(&preset);
            let mut place = 7;
            let mut sum = 0u64;
            for n in 0..30_000u64 {
                place = next_place(place);
                let size = [Base, Huge, Base][(n % 3) as usize];
                sum += u64::from(tlb.access((n % 5) as u16, (place >> 20) & ((1 << 32) - 1) & !63, size));
                if n % 1000 == 0 {
                    tlb.flush_space((n % 4) as u16);
                }
            }
            (sum, tlb.counts())
        };
        assert_eq!(run(), run());
    }
}

/// A naive set-associative LRU of any key.
struct NaiveStore {
    geometry: Geometry,
    sets: Vec<Vec<(u32, u64, u64)>>,
}

impl NaiveStore {
    fn access(&mut self, kind: u32, context: u64, number: u64) -> bool {
        let set = &mut self.sets[self.geometry.set_of(number) as usize];
        let key = (kind, context, number);
        let at = set.iter().position(|k| *k == key);
        if let Some(at) = at {
            set.remove(at);
        } else if set.len() == self.geometry.ways as usize {
            set.remove(0);
        }
        set.push(key);
        at.is_some()
    }
}

/// The whole model without its caches of lines, as one would write it first.
struct Naive {
    preset: Preset,
    stores: Vec<NaiveStore>,
    generation: [u64; 4],
    counts: (u64, u64, u64),
}

impl Naive {
    fn new(preset: &Preset) -> Self {
        let stores = preset.stores.iter().map(|geometry| NaiveStore {
            geometry: *geometry,
            sets: vec![vec![]; geometry.sets() as usize],
        });
        Self {
            preset: *preset,
            stores: stores.collect(),
            generation: [0; 4],
            counts: (0, 0, 0),
        }
    }

    fn access(&mut self, space: u16, address: u64, size: PageSize) {
        let context = self.generation[usize::from(space)] << 16 | u64::from(space);
        let level = size.level() as usize;
        let slot = self.preset.l1[level];
        if self.stores[usize::from(slot.store)].access(size.level(), context, address >> size.bits()) {
            return;
        }
        self.counts.0 += 1;
        if let Some(slot) = self.preset.l2[level] {
            let number = address >> slot.covers.bits();
            if self.stores[usize::from(slot.store)].access(slot.covers.level(), context, number) {
                return;
            }
        }
        self.counts.1 += 1;
        let mut references = u64::from(self.preset.levels) - u64::from(size.level());
        for above in size.level() + 1..u32::from(self.preset.levels) {
            let Some(store) = self.preset.walk[above as usize - 1] else {
                continue;
            };
            let number = u64::from(above) << 40 | address >> (12 + 9 * above);
            let geometry = self.stores[usize::from(store)].geometry;
            // The level is part of the tag, not of the set.
            assert_eq!(
                geometry.set_of(number & ((1 << 40) - 1)),
                geometry.set_of(address >> (12 + 9 * above))
            );
            let hit = {
                let set = geometry.set_of(address >> (12 + 9 * above)) as usize;
                let store = &mut self.stores[usize::from(store)];
                let key = (3, context, number);
                let at = store.sets[set].iter().position(|k| *k == key);
                if let Some(at) = at {
                    store.sets[set].remove(at);
                } else if store.sets[set].len() == geometry.ways as usize {
                    store.sets[set].remove(0);
                }
                store.sets[set].push(key);
                at.is_some()
            };
            if hit {
                references = u64::from(above - size.level());
                break;
            }
        }
        self.counts.2 += references;
    }
}

/// Skylake's stores with true LRU.
const SKYLAKE_LRU: &[Geometry] = &[
    Geometry::new(64, 4),
    Geometry::new(32, 4),
    Geometry::new(4, 4),
    Geometry::new(1536, 12).folded(),
    Geometry::new(16, 4),
    Geometry::new(32, 4),
    Geometry::new(4, 4),
    Geometry::new(4, 4),
];

/// True LRU everywhere, any way for any size: what the naive model is.
fn plain(preset: &Preset, stores: &'static [Geometry]) -> Preset {
    Preset {
        stores,
        l2: preset.l2.map(|slot| slot.map(|slot| Slot { ways: ALL_WAYS, ..slot })),
        ..*preset
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn misses_and_references_are_those_of_a_naive_model(
        which in 0usize..5,
        trace in prop::collection::vec((0u16..3, 0u64..600, 0u64..3, 0u8..20), 1..3000),
    ) {
        let zen2 = find("zen2").unwrap();
        let skylake = find("skylake-sp").unwrap();
        let presets = [
            SMALL,
            NO_WALK_CACHES,
            SMALL.with_levels(5),
            plain(zen2, zen2.stores),
            plain(skylake, SKYLAKE_LRU),
        ];
        let preset = presets[which];
        let (mut tlb, mut naive) = (Tlb::new(&preset), Naive::new(&preset));
        for (space, page, far, what) in trace {
            if what == 0 {
                tlb.flush_space(space);
                naive.generation[usize::from(space)] += 1;
                continue;
            }
            let size = match what { 1..=4 => Huge, 5 => Giant, _ => Base };
            let address = far * (3 << 38) + page * size.bytes();
            tlb.access(space, address, size);
            naive.access(space, address, size);
        }
        let counts = tlb.counts();
        prop_assert_eq!((counts.l1_misses, counts.l2_misses(), counts.references), naive.counts);
    }

    #[test]
    fn a_walk_costs_between_its_references_in_l1_and_in_memory(
        trace in prop::collection::vec((0u64..5000, 0u8..4), 1..500),
        nested: bool,
    ) {
        let preset = if nested { SMALL.with_nested(Some(Nested::uncached(Huge))) } else { SMALL };
        let mut tlb = Tlb::new(&preset);
        for (page, kind) in trace {
            let size = if kind == 0 { Huge } else { Base };
            let before = tlb.counts();
            let cycles = u64::from(tlb.access(1, page * size.bytes(), size));
            let counts = tlb.counts().since(&before);
            prop_assert_eq!(cycles, counts.cycles);
            prop_assert_eq!(cycles, counts.l1_misses * 7 + counts.walk_cycles);
            let walks = counts.l2_misses();
            prop_assert!(counts.walk_cycles >= walks * 3 + counts.references * 4);
            prop_assert!(counts.walk_cycles <= walks * 3 + counts.references * 200);
        }
    }
}
