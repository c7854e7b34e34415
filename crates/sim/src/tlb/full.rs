//! A fully associative store with true LRU: an open-addressed index over the tags and a linked list in the order of use.

/// No entry.
const NONE: u8 = u8::MAX;
/// Places of the index for each entry: so many that two tags seldom collide, for a branch misprediction costs the host far more than a few KB.
const SPARSE: usize = 32;

/// A fully associative store of up to 128 tags.
#[derive(Debug, Clone)]
pub struct Full {
    /// Entry of a tag, by hash with linear probing.
    index: Box<[u8]>,
    /// Shift that turns a hash into a place of the index.
    shift: u32,
    tags: Box<[u64]>,
    /// The entry used just before and just after this one: a ring, closed by one more that is no entry, between the newest and the oldest.
    older: Box<[u8]>,
    newer: Box<[u8]>,
}

impl Full {
    pub(super) fn new(entries: usize) -> Self {
        let places = (entries * SPARSE).next_power_of_two();
        let mut full = Self {
            index: vec![NONE; places].into(),
            shift: 64 - places.trailing_zeros(),
            tags: vec![0; entries].into(),
            older: vec![entries as u8; entries + 1].into(),
            newer: vec![entries as u8; entries + 1].into(),
        };
        for entry in 0..entries as u8 {
            full.link_newest(entry);
        }
        full
    }

    /// What closes the ring: older than the oldest and newer than the newest.
    #[inline]
    fn end(&self) -> u8 {
        self.tags.len() as u8
    }

    #[inline]
    fn place(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The place in the index of a tag, or where it would go; and whether it is present.
    #[inline]
    fn find(&self, tag: u64) -> (usize, bool) {
        let mask = self.index.len() - 1;
        let mut place = self.place(tag);
        loop {
            let entry = self.index[place];
            if entry == NONE {
                return (place, false);
            }
            if self.tags[usize::from(entry)] == tag {
                return (place, true);
            }
            place = (place + 1) & mask;
        }
    }

    #[inline]
    fn unlink(&mut self, entry: u8) {
        let (older, newer) = (self.older[usize::from(entry)], self.newer[usize::from(entry)]);
        self.older[usize::from(newer)] = older;
        self.newer[usize::from(older)] = newer;
    }

    /// Links an entry in between `newer` and the one before it.
    #[inline]
    fn link_below(&mut self, entry: u8, newer: u8) {
        let older = self.older[usize::from(newer)];
        self.older[usize::from(entry)] = older;
        self.newer[usize::from(entry)] = newer;
        self.newer[usize::from(older)] = entry;
        self.older[usize::from(newer)] = entry;
    }

    #[inline]
    fn link_newest(&mut self, entry: u8) {
        self.link_below(entry, self.end());
    }

    fn link_oldest(&mut self, entry: u8) {
        self.link_below(entry, self.newer[usize::from(self.end())]);
    }

    #[inline]
    pub(super) fn access(&mut self, tag: u64) -> bool {
        let (place, hit) = self.find(tag);
        let entry = if hit {
            self.index[place]
        } else {
            self.replace_oldest(tag)
        };
        self.unlink(entry);
        self.link_newest(entry);
        hit
    }

    /// Replaces the least recently used tag by this one; returns its entry.
    #[inline]
    fn replace_oldest(&mut self, tag: u64) -> u8 {
        let entry = self.newer[usize::from(self.end())];
        let old = std::mem::replace(&mut self.tags[usize::from(entry)], 0);
        if old != 0 {
            self.forget(old, entry);
        }
        // Removing may have moved the place where it would have gone.
        let (place, _) = self.find(tag);
        self.index[place] = entry;
        self.tags[usize::from(entry)] = tag;
        entry
    }

    /// Takes a tag, which was this entry's, out of the index; what a later probe would not find any more moves up.
    #[inline]
    fn forget(&mut self, tag: u64, entry: u8) {
        let mask = self.index.len() - 1;
        let mut hole = self.place(tag);
        while self.index[hole] != entry {
            hole = (hole + 1) & mask;
        }
        let mut next = (hole + 1) & mask;
        loop {
            let entry = self.index[next];
            if entry == NONE {
                break;
            }
            let home = self.place(self.tags[usize::from(entry)]);
            // It may move to the hole if its home is not between the hole (exclusive) and its place.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.index[hole] = entry;
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.index[hole] = NONE;
    }

    pub(super) fn remove(&mut self, tag: u64) {
        let (place, there) = self.find(tag);
        if there {
            let entry = self.index[place];
            self.forget(tag, entry);
            self.tags[usize::from(entry)] = 0;
            self.unlink(entry);
            self.link_oldest(entry);
        }
    }

    /// Number of tags that it can hold.
    pub(super) fn room(&self) -> u64 {
        self.tags.len() as u64
    }

    /// Removes those of the `n` tags from `tag` on that are present.
    pub(super) fn remove_between(&mut self, tag: u64, n: u64) {
        for entry in 0..self.tags.len() {
            if self.tags[entry].wrapping_sub(tag) < n {
                self.remove(self.tags[entry]);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.tags.len());
    }
}
