//! A fully associative store with true LRU: an open-addressed index over the tags and a linked list in the order of use.

/// No entry.
const NONE: u8 = u8::MAX;

/// A fully associative store of up to 128 tags.
#[derive(Debug, Clone)]
pub struct Full {
    /// Entry of a tag, by hash with linear probing; at most a quarter full, so a probe is nearly always the only one.
    index: Box<[u8]>,
    /// Shift that turns a hash into a place of the index.
    shift: u32,
    tags: Box<[u64]>,
    /// The entry used just before and just after this one.
    older: Box<[u8]>,
    newer: Box<[u8]>,
    newest: u8,
    oldest: u8,
}

impl Full {
    pub(super) fn new(entries: usize) -> Self {
        let places = (entries * 4).next_power_of_two();
        let mut full = Self {
            index: vec![NONE; places].into(),
            shift: 64 - places.trailing_zeros(),
            tags: vec![0; entries].into(),
            older: vec![NONE; entries].into(),
            newer: vec![NONE; entries].into(),
            newest: NONE,
            oldest: NONE,
        };
        for entry in 0..entries as u8 {
            full.link_newest(entry);
        }
        full
    }

    #[inline]
    fn place(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The place in the index of a tag that is there.
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut place = self.place(tag);
        loop {
            let entry = self.index[place];
            if entry == NONE {
                return None;
            }
            if self.tags[usize::from(entry)] == tag {
                return Some(place);
            }
            place = (place + 1) & mask;
        }
    }

    #[inline]
    fn unlink(&mut self, entry: u8) {
        let (older, newer) = (self.older[usize::from(entry)], self.newer[usize::from(entry)]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[usize::from(newer)] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[usize::from(older)] = newer,
        }
    }

    #[inline]
    fn link_newest(&mut self, entry: u8) {
        self.older[usize::from(entry)] = self.newest;
        self.newer[usize::from(entry)] = NONE;
        match self.newest {
            NONE => self.oldest = entry,
            newest => self.newer[usize::from(newest)] = entry,
        }
        self.newest = entry;
    }

    fn link_oldest(&mut self, entry: u8) {
        self.newer[usize::from(entry)] = self.oldest;
        self.older[usize::from(entry)] = NONE;
        match self.oldest {
            NONE => self.newest = entry,
            oldest => self.older[usize::from(oldest)] = entry,
        }
        self.oldest = entry;
    }

    #[inline]
    pub(super) fn access(&mut self, tag: u64) -> bool {
        if let Some(place) = self.find(tag) {
            let entry = self.index[place];
            if entry != self.newest {
                self.unlink(entry);
                self.link_newest(entry);
            }
            return true;
        }
        let entry = self.oldest;
        let old = self.tags[usize::from(entry)];
        if old != 0 {
            self.forget(old);
        }
        self.tags[usize::from(entry)] = tag;
        let mask = self.index.len() - 1;
        let mut place = self.place(tag);
        while self.index[place] != NONE {
            place = (place + 1) & mask;
        }
        self.index[place] = entry;
        self.unlink(entry);
        self.link_newest(entry);
        false
    }

    /// Takes a tag out of the index; what a later probe would not find any more moves up.
    fn forget(&mut self, tag: u64) {
        let Some(mut hole) = self.find(tag) else { return };
        let mask = self.index.len() - 1;
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
        if let Some(place) = self.find(tag) {
            let entry = self.index[place];
            self.forget(tag);
            self.tags[usize::from(entry)] = 0;
            self.unlink(entry);
            self.link_oldest(entry);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.tags.len());
    }
}
