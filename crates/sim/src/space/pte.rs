//! One page table entry: 28 bits of frame number and 4 of state.

use crate::unit::Frame;

/// An entry: empty, a base page, the shared zero page, or a swap slot.
///
/// A present entry that is not dirty maps memory that holds zeroes or was given up with MADV_FREE: it can be dropped without a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pte(u32);

impl Pte {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The shared zero page; its frame number is beyond the largest machine (1 TB).
    pub const ZERO_PAGE: Self = Self((Frame::MAX << Self::SHIFT) | Self::PRESENT | Self::PROTECTED | Self::ACCESSED);
    /// Accessed since the bit was last cleared.
    pub const ACCESSED: u32 = 1;
    /// Written.
    pub const DIRTY: u32 = 2;
    /// A store must fault first: shared after a fork, or the zero page.
    pub const PROTECTED: u32 = 4;
    /// Something is mapped.
    pub const PRESENT: u32 = 8;
    const SHIFT: u32 = 4;

    /// Maps a frame; accessed, and dirty if asked.
    #[must_use]
    pub fn of(frame: Frame, dirty: bool) -> Self {
        let dirty = if dirty { Self::DIRTY } else { 0 };
        Self((frame.0 << Self::SHIFT) | Self::PRESENT | Self::ACCESSED | dirty)
    }

    /// In swap, in this slot.
    #[must_use]
    pub fn swapped(slot: u32) -> Self {
        Self((slot << Self::SHIFT) | Self::PROTECTED)
    }

    /// The swap slot.
    #[must_use]
    pub fn slot(self) -> Option<u32> {
        (self.0 & (Self::PRESENT | Self::PROTECTED) == Self::PROTECTED).then_some(self.0 >> Self::SHIFT)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether a page is mapped, the zero page included.
    #[must_use]
    pub fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// The zero page is mapped.
    #[must_use]
    pub fn is_zero_page(self) -> bool {
        self.is_present() && self.0 >> Self::SHIFT == Frame::MAX
    }

    /// The frame, unless it is the zero page.
    #[must_use]
    pub fn frame(self) -> Option<Frame> {
        let frame = self.0 >> Self::SHIFT;
        (self.is_present() && frame != Frame::MAX).then_some(Frame(frame))
    }

    /// Whether all these bits are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// All bits.
    #[must_use]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// With these bits set.
    #[must_use]
    pub fn with(self, bits: u32) -> Self {
        Self(self.0 | bits)
    }

    /// Without these bits.
    #[must_use]
    pub fn without(self, bits: u32) -> Self {
        Self(self.0 & !bits)
    }

    /// The same state on another frame.
    #[must_use]
    pub fn moved_to(self, frame: Frame) -> Self {
        Self((frame.0 << Self::SHIFT) | (self.0 & ((1 << Self::SHIFT) - 1)))
    }

    /// The hot path: sets the accessed bit (and the dirty one for a store) if the access needs no fault. Some(true): the accessed bit was clear.
    #[inline]
    pub fn touch(&mut self, write: bool) -> Option<bool> {
        let write = u32::from(write);
        let ok = self.0 & (Self::PRESENT | (write << 2)) == Self::PRESENT;
        ok.then(|| {
            let is_first = self.0 & Self::ACCESSED == 0;
            self.0 |= Self::ACCESSED | (write << 1);
            is_first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_of_four_things() {
        let page = Pte::of(Frame(5), true);
        assert!(page.is_present() && page.frame() == Some(Frame(5)) && page.slot().is_none());
        assert!(Pte::NONE.is_none() && !Pte::NONE.is_present() && Pte::NONE.slot().is_none());
        assert!(Pte::ZERO_PAGE.is_zero_page() && Pte::ZERO_PAGE.frame().is_none());
        let swapped = Pte::swapped(0);
        assert!(!swapped.is_present() && swapped.slot() == Some(0) && !swapped.is_none());
        assert_eq!(page.moved_to(Frame(9)).frame(), Some(Frame(9)));
    }

    #[test]
    fn a_store_to_a_protected_entry_needs_a_fault_and_a_load_does_not() {
        let mut pte = Pte::of(Frame(5), false).with(Pte::PROTECTED).without(Pte::ACCESSED);
        assert!(pte.touch(true).is_none() && !pte.has(Pte::ACCESSED));
        assert!(pte.touch(false) == Some(true) && pte.has(Pte::ACCESSED) && !pte.has(Pte::DIRTY));
        assert_eq!(pte.touch(false), Some(false));
        let mut pte = Pte::of(Frame(5), false);
        assert!(pte.touch(true).is_some() && pte.has(Pte::DIRTY));
        assert!(Pte::NONE.clone().touch(false).is_none() && Pte::swapped(3).clone().touch(false).is_none());
    }
}
