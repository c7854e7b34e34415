//! Regions that base pages populate sparsely. Where one of them is huge at a later look, somebody has filled its holes with zeroes: the
//! kernel's khugepaged does that from one populated page on (`max_ptes_none` is 511), 1.6 MB a second.

use crate::span::REGION;

/// Regions remembered at most: 16 GB in a row.
const SLOTS: usize = 8192;

/// The regions; where two fall into the same slot the later one stays.
#[derive(Debug, Clone)]
pub struct Sparse {
    /// The slot's region, counted in runs of all slots from 1 on; 0 is none.
    slots: [u32; SLOTS],
    is_used: bool,
}

impl Sparse {
    /// None.
    pub const fn new() -> Self {
        Sparse {
            slots: [0; SLOTS],
            is_used: false,
        }
    }

    /// Forgets all. Touches no memory where there are none.
    pub fn clear(&mut self) {
        if self.is_used {
            *self = Sparse::new();
        }
    }

    /// Where a region belongs, and what its slot says then. Exact for addresses of 57 bits.
    fn slot(region: u64) -> (usize, u32) {
        let (number, slots) = (region / REGION, SLOTS as u64);
        ((number % slots) as usize, (number / slots) as u32 + 1)
    }

    /// Whether the region at this address is one.
    pub fn has(&self, region: u64) -> bool {
        let (slot, says) = Self::slot(region);
        self.is_used && self.slots.get(slot) == Some(&says)
    }

    /// Remembers whether it is.
    pub fn note(&mut self, region: u64, is_sparse: bool) {
        if is_sparse == self.has(region) {
            return;
        }
        let (slot, says) = Self::slot(region);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = if is_sparse { says } else { 0 };
            self.is_used = true;
        }
    }
}

impl Default for Sparse {
    fn default() -> Self {
        Sparse::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_known_until_it_is_forgotten_or_another_takes_its_slot() {
        let mut sparse = Sparse::new();
        let (one, beside, far) = (1000 * REGION, 1001 * REGION, (1000 + SLOTS as u64) * REGION);
        assert!(!sparse.has(one) && !sparse.has(0));
        sparse.note(one, true);
        assert!(sparse.has(one) && !sparse.has(beside) && !sparse.has(far));
        sparse.note(far, false);
        assert!(sparse.has(one), "the slot is not the other's");
        sparse.note(far, true);
        assert!(sparse.has(far) && !sparse.has(one));
        sparse.note(far, false);
        assert!(!sparse.has(far) && !sparse.has(one));
        let last = (1 << 57) - REGION;
        sparse.note(last, true);
        assert!(sparse.has(last));
        sparse.clear();
        assert!(!sparse.has(last));
    }
}
