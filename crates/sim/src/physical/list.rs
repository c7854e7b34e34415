//! Doubly linked lists of runs of frames. The links are the runs' own words, so a list takes no memory except its two ends.

use super::frames::Frames;

/// No frame.
pub(super) const NONE: u32 = u32::MAX;

/// A list of runs of one order. A run is in one list at most: it has one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct List {
    head: u32,
    tail: u32,
    /// Number of runs.
    pub len: u32,
    order: u8,
}

/// A word as links: the next run in the low half, the one before in the high half.
fn pack(next: u32, prev: u32) -> u64 {
    u64::from(prev) << 32 | u64::from(next)
}

fn next_of(word: u64) -> u32 {
    word as u32
}

fn prev_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl List {
    pub const fn new(order: u8) -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
            order,
        }
    }

    /// The first run.
    pub fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The last run.
    pub fn last(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// The run after this one.
    pub fn after(&self, frames: &Frames, frame: u32) -> Option<u32> {
        let next = next_of(frames.word(frame, self.order));
        (next != NONE).then_some(next)
    }

    /// The run before this one.
    pub fn before(&self, frames: &Frames, frame: u32) -> Option<u32> {
        let prev = prev_of(frames.word(frame, self.order));
        (prev != NONE).then_some(prev)
    }

    pub fn push_front(&mut self, frames: &mut Frames, frame: u32) {
        let (words, shift) = frames.links(self.order);
        let at = |f: u32| (f >> shift) as usize;
        words[at(frame)] = pack(self.head, NONE);
        if self.head == NONE {
            self.tail = frame;
        } else {
            let old = &mut words[at(self.head)];
            *old = pack(next_of(*old), frame);
        }
        self.head = frame;
        self.len += 1;
    }

    pub fn push_back(&mut self, frames: &mut Frames, frame: u32) {
        let (words, shift) = frames.links(self.order);
        let at = |f: u32| (f >> shift) as usize;
        words[at(frame)] = pack(NONE, self.tail);
        if self.tail == NONE {
            self.head = frame;
        } else {
            let old = &mut words[at(self.tail)];
            *old = pack(frame, prev_of(*old));
        }
        self.tail = frame;
        self.len += 1;
    }

    /// Takes a run off this list.
    pub fn remove(&mut self, frames: &mut Frames, frame: u32) {
        let (words, shift) = frames.links(self.order);
        let at = |f: u32| (f >> shift) as usize;
        let word = words[at(frame)];
        let (next, prev) = (next_of(word), prev_of(word));
        if prev == NONE {
            self.head = next;
        } else {
            let before = &mut words[at(prev)];
            *before = pack(next, prev_of(*before));
        }
        if next == NONE {
            self.tail = prev;
        } else {
            let after = &mut words[at(next)];
            *after = pack(next_of(*after), prev);
        }
        self.len -= 1;
    }

    pub fn pop_front(&mut self, frames: &mut Frames) -> Option<u32> {
        let first = self.first()?;
        self.remove(frames, first);
        Some(first)
    }

    pub fn pop_back(&mut self, frames: &mut Frames) -> Option<u32> {
        let last = self.last()?;
        self.remove(frames, last);
        Some(last)
    }

    /// Moves everything before this run to the end, so that it becomes the first (mm/compaction.c, `move_freelist_head`).
    pub fn rotate_to_front(&mut self, frames: &mut Frames, frame: u32) {
        if self.head == frame || self.tail == frame {
            return;
        }
        let before = prev_of(frames.word(frame, self.order));
        self.cut_and_join(frames, before, frame);
    }

    /// Moves everything up to this run to the end, so that it becomes the last (`move_freelist_tail`).
    pub fn rotate_to_back(&mut self, frames: &mut Frames, frame: u32) {
        if self.head == frame || self.tail == frame {
            return;
        }
        let after = next_of(frames.word(frame, self.order));
        self.cut_and_join(frames, frame, after);
    }

    /// Makes `first` the head and `last`, which is before it, the tail.
    fn cut_and_join(&mut self, frames: &mut Frames, last: u32, first: u32) {
        let (words, shift) = frames.links(self.order);
        let at = |f: u32| (f >> shift) as usize;
        let (head, tail) = (self.head, self.tail);
        words[at(tail)] = pack(head, prev_of(words[at(tail)]));
        words[at(head)] = pack(next_of(words[at(head)]), tail);
        words[at(last)] = pack(NONE, prev_of(words[at(last)]));
        words[at(first)] = pack(next_of(words[at(first)]), NONE);
        (self.head, self.tail) = (first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(list: &List, frames: &Frames) -> Vec<u32> {
        let forth: Vec<u32> = std::iter::successors(list.first(), |&f| list.after(frames, f)).collect();
        let mut back: Vec<u32> = std::iter::successors(list.last(), |&f| list.before(frames, f)).collect();
        back.reverse();
        assert_eq!(forth, back);
        assert_eq!(forth.len(), list.len as usize);
        forth
    }

    #[test]
    fn a_list_is_what_was_pushed_and_not_taken() {
        for (order, step) in [(0, 1), (9, 512)] {
            let mut frames = Frames::new(512 * 64);
            let mut list = List::new(order);
            let f = |i: u32| i * step;
            (1..4).for_each(|i| list.push_back(&mut frames, f(i)));
            list.push_front(&mut frames, f(0));
            assert_eq!(content(&list, &frames), [f(0), f(1), f(2), f(3)]);
            list.remove(&mut frames, f(2));
            assert_eq!(content(&list, &frames), [f(0), f(1), f(3)]);
            assert_eq!(list.pop_back(&mut frames), Some(f(3)));
            assert_eq!(list.pop_front(&mut frames), Some(f(0)));
            assert_eq!(list.pop_front(&mut frames), Some(f(1)));
            assert_eq!((list.pop_front(&mut frames), list), (None, List::new(order)));
        }
    }

    #[test]
    fn rotating_keeps_the_order_around_the_cut() {
        let mut frames = Frames::new(1024);
        let mut list = List::new(0);
        (0..5).for_each(|f| list.push_back(&mut frames, f));
        list.rotate_to_front(&mut frames, 2);
        assert_eq!(content(&list, &frames), [2, 3, 4, 0, 1]);
        list.rotate_to_back(&mut frames, 4);
        assert_eq!(content(&list, &frames), [0, 1, 2, 3, 4]);
        list.rotate_to_front(&mut frames, 4);
        list.rotate_to_back(&mut frames, 0);
        assert_eq!(
            content(&list, &frames),
            [0, 1, 2, 3, 4],
            "as in the kernel, the last and the first stay"
        );
    }
}
