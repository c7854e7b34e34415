//! The mappers of frames and huge pages shared by forked processes.

use crate::unit::{Page, SpaceId};

/// One mapping: its space, and its page (for a huge page the first).
pub type Mapper = (SpaceId, Page);

/// The lists of mappers, by key.
#[derive(Debug, Default)]
pub struct Sharing {
    lists: Vec<Vec<Mapper>>,
    free: Vec<u32>,
}

impl Sharing {
    /// A new key for these two mappers.
    pub fn add(&mut self, one: Mapper, other: Mapper) -> u32 {
        let list = vec![one, other];
        match self.free.pop() {
            Some(key) => {
                self.lists[key as usize] = list;
                key
            }
            None => {
                self.lists.push(list);
                (self.lists.len() - 1) as u32
            }
        }
    }

    /// Adds a mapper.
    pub fn join(&mut self, key: u32, mapper: Mapper) {
        self.lists[key as usize].push(mapper);
    }

    /// The mappers. Empty for an unused key.
    #[must_use]
    pub fn mappers(&self, key: u32) -> &[Mapper] {
        self.lists.get(key as usize).map_or(&[], Vec::as_slice)
    }

    /// Removes a mapper. Returns the last one left, if only one is: the key is then free, and the frame is that one's own.
    pub fn leave(&mut self, key: u32, mapper: Mapper) -> Option<Mapper> {
        let list = &mut self.lists[key as usize];
        list.retain(|other| *other != mapper);
        if list.len() > 1 {
            return None;
        }
        let last = list.pop();
        self.forget(key);
        last
    }

    /// Moves a mapper to another page.
    pub fn move_to(&mut self, key: u32, from: Mapper, to: Mapper) {
        if let Some(mapper) = self.lists[key as usize].iter_mut().find(|mapper| **mapper == from) {
            *mapper = to;
        }
    }

    /// Frees the key.
    pub fn forget(&mut self, key: u32) {
        self.lists[key as usize] = Vec::new();
        self.free.push(key);
    }

    /// Number of keys in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lists.len() - self.free.len()
    }

    /// Whether none is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;

    #[test]
    fn the_last_one_left_owns_it_and_the_key_is_used_again() {
        let mapper = |n: u16| (SpaceId(NonZeroU16::new(n).unwrap()), Page(7));
        let mut sharing = Sharing::default();
        let key = sharing.add(mapper(1), mapper(2));
        sharing.join(key, mapper(3));
        assert_eq!(sharing.leave(key, mapper(1)), None);
        assert_eq!(sharing.leave(key, mapper(3)), Some(mapper(2)));
        assert!(sharing.is_empty());
        assert_eq!(sharing.add(mapper(4), mapper(5)), key);
    }
}
