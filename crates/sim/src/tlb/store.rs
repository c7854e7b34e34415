//! One structure that holds translations: set-associative or fully associative, true LRU or tree pseudo-LRU.
//!
//! A look-up and the insertion after a miss are one operation, [`Store::access`]. No heap, no hashing of std and no division: sets are a power of
//! two, each way has a one-byte print, and all prints of a set are compared at once; the order of use of a set is one integer
//! ([`order`](super::order)). Hits and misses run the same instructions: the host cannot predict which it will be, and a misprediction costs more
//! than the whole look-up. More than 24 ways in one set is a fully associative store: a small open-addressed index and a linked list.

use super::full::Full;
use super::order::{touch_tree, tree_victim, Order};
use wide::{i8x16, CmpEq};

/// The replacement policy of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The entry whose last use is longest ago.
    Lru,
    /// A binary tree of "the other half" bits; for 2, 4, 8 or 16 ways, elsewhere true LRU.
    TreePlru,
}

/// Size and shape of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Entries in all; `entries / ways` must be a power of two.
    pub entries: u32,
    /// Entries per set; equal to `entries` where the store is fully associative.
    pub ways: u32,
    /// The replacement policy.
    pub replacement: Replacement,
    /// Whether the set is the low bits of the number folded with the next ones (Skylake's L2, by Gras et al., TLBleed, USENIX Security 2018) or
    /// the low bits alone.
    pub folded: bool,
}

/// Most ways of a set-associative store.
pub const MAX_WAYS: u32 = 24;
/// Most entries of a fully associative store.
pub const MAX_FULL: u32 = 128;
/// Most entries of any store.
pub const MAX_ENTRIES: u32 = 1 << 20;

impl Geometry {
    /// A true-LRU store indexed by the low bits.
    #[must_use]
    pub const fn new(entries: u32, ways: u32) -> Self {
        Self {
            entries,
            ways,
            replacement: Replacement::Lru,
            folded: false,
        }
    }

    /// The same, its set index folded.
    #[must_use]
    pub const fn folded(self) -> Self {
        Self { folded: true, ..self }
    }

    /// The same with tree pseudo-LRU.
    #[must_use]
    pub const fn plru(self) -> Self {
        Self {
            replacement: Replacement::TreePlru,
            ..self
        }
    }

    /// Checks whether the geometry is possible.
    ///
    /// # Errors
    ///
    /// A sentence that gives the figures.
    pub fn check(&self) -> Result<(), String> {
        let Self { entries, ways, .. } = *self;
        if ways == 0 || entries == 0 || entries > MAX_ENTRIES || entries % ways != 0 {
            return Err(format!("{entries} entries in sets of {ways}"));
        }
        if !(entries / ways).is_power_of_two() {
            return Err(format!("{} sets, not a power of two", entries / ways));
        }
        if ways > MAX_WAYS && (ways != entries || entries > MAX_FULL) {
            return Err(format!(
                "{ways} ways: more than {MAX_WAYS}, and not fully associative up to {MAX_FULL}"
            ));
        }
        Ok(())
    }

    /// Number of sets.
    #[must_use]
    pub const fn sets(&self) -> u32 {
        self.entries / self.ways
    }

    /// The set that a page of this number belongs to.
    #[inline]
    #[must_use]
    pub fn set_of(&self, number: u64) -> u32 {
        let mask = u64::from(self.sets() - 1);
        let shift = if self.folded { mask.count_ones() } else { 63 };
        ((number ^ (number >> shift)) & mask) as u32
    }
}

/// Any way.
pub const ALL_WAYS: u32 = u32::MAX;

/// A store of tags. A tag is never 0.
#[derive(Debug, Clone)]
pub enum Store {
    /// Up to 8 ways.
    Small(Sets<u64, 1, 8>),
    /// 9 to 16 ways.
    Narrow(Sets<u64, 1, 16>),
    /// 17 to 24 ways.
    Wide(Sets<u128, 2, 32>),
    /// Fully associative, more than 24 entries.
    Full(Full),
}

/// The queries of [`Store::access_all`], and the receiver of the answers.
pub(super) trait Questions {
    /// The number and the tag of the nth question.
    fn number_and_tag(&self, nth: usize) -> (u64, u64);
    /// Whether it was there.
    fn answer(&mut self, nth: usize, hit: bool);
}

impl Store {
    /// An empty store. The geometry has been checked.
    pub(super) fn new(geometry: &Geometry) -> Self {
        if geometry.ways > MAX_WAYS {
            Self::Full(Full::new(geometry.entries as usize))
        } else if geometry.ways > 16 {
            Self::Wide(Sets::new(geometry))
        } else if geometry.ways > 8 {
            Self::Narrow(Sets::new(geometry))
        } else {
            Self::Small(Sets::new(geometry))
        }
    }

    /// Whether `tag` is present; if not, it is inserted, replacing the least recently used entry among the ways that `ways` allows.
    #[inline]
    pub(super) fn access(&mut self, number: u64, tag: u64, ways: u32) -> bool {
        match self {
            Self::Small(sets) => sets.access(number, tag, ways),
            Self::Narrow(sets) => sets.access(number, tag, ways),
            Self::Wide(sets) => sets.access(number, tag, ways),
            Self::Full(full) => full.access(tag),
        }
    }

    /// The same for many tags in their order. The kind of the store is dispatched on only once.
    #[inline]
    pub(super) fn access_all(&mut self, n: usize, ways: u32, questions: &mut impl Questions) {
        match self {
            Self::Small(sets) => sets.access_all(n, ways, questions),
            Self::Narrow(sets) => sets.access_all(n, ways, questions),
            Self::Wide(sets) => sets.access_all(n, ways, questions),
            Self::Full(full) => ask_all(n, questions, |_, tag| full.access(tag)),
        }
    }

    /// Removes `tag`, if it is present.
    pub(super) fn remove(&mut self, number: u64, tag: u64) {
        match self {
            Self::Small(sets) => sets.remove(number, tag),
            Self::Narrow(sets) => sets.remove(number, tag),
            Self::Wide(sets) => sets.remove(number, tag),
            Self::Full(full) => full.remove(tag),
        }
    }

    /// Removes those present of `n` consecutive tags, of consecutive pages: the first page's number and tag.
    pub(super) fn remove_all(&mut self, number: u64, tag: u64, n: u64) {
        // Scanning all entries is much quicker than looking up each tag.
        if n * 8 < self.room() {
            return (0..n).for_each(|k| self.remove(number + k, tag + k));
        }
        match self {
            Self::Small(sets) => sets.remove_between(tag, n),
            Self::Narrow(sets) => sets.remove_between(tag, n),
            Self::Wide(sets) => sets.remove_between(tag, n),
            Self::Full(full) => full.remove_between(tag, n),
        }
    }

    /// Number of tags that it can hold.
    fn room(&self) -> u64 {
        match self {
            Self::Small(sets) => sets.geometry.entries.into(),
            Self::Narrow(sets) => sets.geometry.entries.into(),
            Self::Wide(sets) => sets.geometry.entries.into(),
            Self::Full(full) => full.room(),
        }
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Small(sets) => sets.clear(),
            Self::Narrow(sets) => sets.clear(),
            Self::Wide(sets) => sets.clear(),
            Self::Full(full) => full.clear(),
        }
    }
}

/// Looks up one tag after the other. The tag looked up just before is present and most recent: looking it up again changes nothing.
#[inline]
fn ask_all(n: usize, questions: &mut impl Questions, mut access: impl FnMut(u64, u64) -> bool) {
    let mut before = 0;
    for nth in 0..n {
        let (number, tag) = questions.number_and_tag(nth);
        let hit = tag == before || access(number, tag);
        before = tag;
        questions.answer(nth, hit);
    }
}

/// One set, all in one piece: prints, order and tags. `WAYS`: a power of two from its ways on.
#[derive(Debug, Clone, Copy)]
struct Set<O, const VECTORS: usize, const WAYS: usize> {
    /// A byte per way, sixteen to a vector.
    prints: [i8x16; VECTORS],
    order: O,
    tags: [u64; WAYS],
}

/// A set-associative store of up to `WAYS` ways, with a vector of prints for each 16.
#[derive(Debug, Clone)]
pub struct Sets<O, const VECTORS: usize, const WAYS: usize> {
    geometry: Geometry,
    mask: u64,
    fold: u32,
    /// A bit for each way.
    all: u32,
    plru: bool,
    sets: Box<[Set<O, VECTORS, WAYS>]>,
}

/// Prints in a vector.
const LANES: usize = 16;

/// All bits of one lane, for each of them.
const LANE: [i8x16; LANES] = {
    let mut all = [i8x16::new([0; LANES]); LANES];
    let mut at = 0;
    while at < LANES {
        let mut one = [0; LANES];
        one[at] = -1;
        all[at] = i8x16::new(one);
        at += 1;
    }
    all
};

/// A byte that differs between most tags, in every lane.
#[inline]
fn print_of(tag: u64) -> i8x16 {
    i8x16::splat((tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as i8)
}

impl<O: Order, const VECTORS: usize, const WAYS: usize> Set<O, VECTORS, WAYS> {
    #[inline]
    fn tag(&self, way: u32) -> u64 {
        // Ways come from `find` and from the order, so they are fewer; the remainder costs nothing.
        self.tags[way as usize % WAYS]
    }

    /// The way that has this tag, and true; or any way, and false.
    #[inline]
    fn find(&self, tag: u64, print: i8x16) -> (u32, bool) {
        let mut marks = 0;
        for (n, prints) in self.prints.iter().enumerate() {
            marks |= (prints.cmp_eq(print).move_mask() as u32) << (n * LANES);
        }
        // Nearly always the first mark is right, or there is none: no branch depends on which. Without any, some tag, which is not the one
        // wanted, is compared in vain.
        let others = marks & marks.wrapping_sub(1);
        if others != 0 {
            return self.find_among(tag, marks);
        }
        let way = (marks | 1 << 31).trailing_zeros();
        (way, self.tag(way) == tag)
    }

    /// The same among these marks.
    #[cold]
    #[inline(never)]
    fn find_among(&self, tag: u64, mut marks: u32) -> (u32, bool) {
        while marks != 0 {
            let way = marks.trailing_zeros();
            if self.tag(way) == tag {
                return (way, true);
            }
            marks &= marks - 1;
        }
        (0, false)
    }

    #[inline]
    fn put(&mut self, way: u32, tag: u64, print: i8x16) {
        let prints = &mut self.prints[way as usize / LANES % VECTORS];
        *prints ^= (*prints ^ print) & LANE[way as usize % LANES];
        self.tags[way as usize % WAYS] = tag;
    }

    #[inline]
    fn empty(&mut self, way: u32) {
        self.put(way, 0, i8x16::splat(0));
    }

    /// The way to give up, by the tree or among those that a mask allows. With a mask that allows none, way 0 (a preset's masks are checked).
    #[inline(never)]
    fn victim(&self, plru: bool, ways: u32, allowed: u32) -> u32 {
        if plru {
            return tree_victim(self.order.tree(), ways);
        }
        let mut longest_ago = (0..ways).rev().map(|place| self.order.at(place));
        longest_ago.find(|way| allowed >> way & 1 != 0).unwrap_or(0)
    }
}

impl<O: Order, const VECTORS: usize, const WAYS: usize> Sets<O, VECTORS, WAYS> {
    fn new(geometry: &Geometry) -> Self {
        let mask = u64::from(geometry.sets() - 1);
        let plru =
            geometry.replacement == Replacement::TreePlru && geometry.ways.is_power_of_two() && geometry.ways > 1;
        let empty = Set {
            prints: [i8x16::splat(0); VECTORS],
            order: if plru {
                O::from_tree(0)
            } else {
                O::identity(geometry.ways)
            },
            tags: [0; WAYS],
        };
        Self {
            geometry: *geometry,
            mask,
            fold: if geometry.folded { mask.count_ones() } else { 63 },
            all: (1 << geometry.ways) - 1,
            plru,
            sets: vec![empty; geometry.sets() as usize].into(),
        }
    }

    #[inline]
    fn set_of(&self, number: u64) -> usize {
        ((number ^ (number >> self.fold)) & self.mask) as usize
    }

    /// Whether the way to give up is always that whose last use is longest ago.
    #[inline]
    fn is_plain(&self, ways: u32) -> bool {
        !self.plru && ways & self.all == self.all
    }

    #[inline]
    fn access(&mut self, number: u64, tag: u64, ways: u32) -> bool {
        self.access_if::<false>(number, tag, ways)
    }

    #[inline]
    fn access_all(&mut self, n: usize, ways: u32, questions: &mut impl Questions) {
        if self.is_plain(ways) {
            ask_all(n, questions, |number, tag| self.access_if::<true>(number, tag, ways));
        } else {
            ask_all(n, questions, |number, tag| self.access_if::<false>(number, tag, ways));
        }
    }

    /// `PLAIN`: it is known to be [`Sets::is_plain`].
    #[inline(always)]
    fn access_if<const PLAIN: bool>(&mut self, number: u64, tag: u64, ways: u32) -> bool {
        let (plain, plru, ways_of_set) = (PLAIN || self.is_plain(ways), !PLAIN && self.plru, self.geometry.ways);
        let at = self.set_of(number);
        let set = &mut self.sets[at];
        let print = print_of(tag);
        let (found, hit) = set.find(tag, print);
        let victim = if plain {
            set.order.at(ways_of_set - 1)
        } else {
            set.victim(plru, ways_of_set, ways)
        };
        let way = if hit { found } else { victim };
        // Of a hit, this writes what is there already.
        set.put(way, tag, print);
        set.order = if plru {
            O::from_tree(touch_tree(set.order.tree(), way, ways_of_set))
        } else {
            set.order.touch(way)
        };
        hit
    }

    fn remove(&mut self, number: u64, tag: u64) {
        let (plru, ways) = (self.plru, self.geometry.ways);
        let set = self.set_of(number);
        let set = &mut self.sets[set];
        let (way, there) = set.find(tag, print_of(tag));
        if there {
            set.empty(way);
            if !plru {
                set.order = set.order.drop_to_end(way, ways);
            }
        }
    }

    /// Removes those of the `n` tags from `tag` on that are present.
    fn remove_between(&mut self, tag: u64, n: u64) {
        let (plru, ways) = (self.plru, self.geometry.ways);
        for set in &mut self.sets {
            if !set.tags.iter().fold(false, |any, t| any | (t.wrapping_sub(tag) < n)) {
                continue;
            }
            for way in 0..ways {
                if set.tag(way).wrapping_sub(tag) < n {
                    set.empty(way);
                    if !plru {
                        set.order = set.order.drop_to_end(way, ways);
                    }
                }
            }
        }
    }

    fn clear(&mut self) {
        *self = Self::new(&self.geometry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A set-associative store as one would write it first: a vector per set, most recent at the end.
    fn reference(geometry: &Geometry, numbers: &[(u64, u64)]) -> Vec<bool> {
        let mut sets = vec![Vec::<u64>::new(); geometry.sets() as usize];
        let mut hits = Vec::new();
        for &(number, removed) in numbers {
            if removed > 0 {
                for set in &mut sets {
                    set.retain(|n| !(number..number + removed).contains(n));
                }
                continue;
            }
            let set = &mut sets[geometry.set_of(number) as usize];
            let at = set.iter().position(|n| *n == number);
            if let Some(at) = at {
                set.remove(at);
            }
            hits.push(at.is_some());
            if set.len() == geometry.ways as usize {
                set.remove(0);
            }
            set.push(number);
        }
        hits
    }

    proptest! {
        #[test]
        fn a_store_hits_when_the_naive_one_does(
            shape in prop::sample::select(vec![(4, 4), (64, 4), (96, 6), (48, 12), (128, 16), (1, 1), (48, 24), (23, 23), (64, 64), (72, 72), (128, 128)]),
            folded: bool,
            // 0: the number is looked for; else so many from it on are taken out.
            numbers in prop::collection::vec((0u64..200, prop_oneof![38 => Just(0u64), 1 => Just(1), 1 => 2u64..40]), 0..2000),
        ) {
            let mut geometry = Geometry::new(shape.0, shape.1);
            geometry.folded = folded;
            prop_assert!(geometry.check().is_ok());
            let mut store = Store::new(&geometry);
            let mut hits = Vec::new();
            for &(number, removed) in &numbers {
                if removed > 0 {
                    store.remove_all(number, number + 1, removed);
                } else {
                    hits.push(store.access(number, number + 1, ALL_WAYS));
                }
            }
            prop_assert_eq!(hits, reference(&geometry, &numbers));
        }
    }

    #[test]
    fn pseudo_lru_of_two_ways_is_lru() {
        let mut store = Store::new(&Geometry::new(2, 2).plru());
        let hits: Vec<bool> = [1, 2, 1, 3, 1, 2, 3]
            .iter()
            .map(|n| store.access(0, *n, ALL_WAYS))
            .collect();
        assert_eq!(hits, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn pseudo_lru_gives_up_the_way_that_its_tree_points_to() {
        let mut store = Store::new(&Geometry::new(4, 4).plru());
        for tag in 1..=4 {
            assert!(!store.access(0, tag, ALL_WAYS));
        }
        // Filled in the order 0, 2, 1, 3; a use of the first points root and right node elsewhere: 5 replaces the older of the other half.
        assert!(store.access(0, 1, ALL_WAYS));
        assert!(!store.access(0, 5, ALL_WAYS));
        assert!(store.access(0, 1, ALL_WAYS));
        let left = [2, 3, 4]
            .iter()
            .filter(|tag| store.clone().access(0, **tag, ALL_WAYS))
            .count();
        assert_eq!(left, 2);
    }

    #[test]
    fn a_mask_keeps_an_insertion_to_its_ways() {
        let mut store = Store::new(&Geometry::new(4, 4));
        for tag in 1..=4 {
            store.access(0, tag, ALL_WAYS);
        }
        for tag in 10..20 {
            assert!(!store.access(0, tag, 0b0001));
        }
        let kept = (1..=4).filter(|tag| store.clone().access(0, *tag, ALL_WAYS)).count();
        assert_eq!(kept, 3);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for (entries, ways) in [(0, 0), (10, 4), (12, 4), (64, 32), (256, 256), (8, 0)] {
            assert!(Geometry::new(entries, ways).check().is_err(), "{entries}/{ways}");
        }
    }
}
