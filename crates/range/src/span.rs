//! Addresses, regions and spans of addresses.

/// Bytes of a base page on the machines that MEGA runs on.
pub const PAGE: u64 = 4 << 10;
/// Bytes of a region: what one huge page maps.
pub const REGION: u64 = 2 << 20;
/// Base pages of a region.
pub const PAGES: u32 = (REGION / PAGE) as u32;

/// Addresses from `start` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
}

impl Span {
    /// The span of these addresses; an empty one where they are in the wrong order.
    pub fn new(start: u64, end: u64) -> Self {
        Span {
            start,
            end: end.max(start),
        }
    }

    /// The region at this address.
    pub fn region(start: u64) -> Self {
        Span::new(start, start.saturating_add(REGION))
    }

    /// How many bytes it has.
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is no address in it.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// What both have.
    pub fn intersection(self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether all of `other` is in this span.
    pub fn contains(self, other: Span) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The whole regions in it.
    pub fn regions(self) -> Span {
        Span::new(up(self.start), down(self.end))
    }

    /// How many whole regions are in it.
    pub fn region_count(self) -> u64 {
        self.regions().bytes() / REGION
    }
}

/// The first region's start at or after this address.
pub fn up(address: u64) -> u64 {
    down(address.saturating_add(REGION - 1))
}

/// The start of the region that this address is in.
pub fn down(address: u64) -> u64 {
    address & !(REGION - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_regions_of_a_span_lie_within_it() {
        let span = Span::new(REGION + 1, 4 * REGION + 5);
        assert_eq!(span.regions(), Span::new(2 * REGION, 4 * REGION));
        assert_eq!(span.region_count(), 2);
        assert_eq!(Span::new(1, REGION).region_count(), 0);
        assert_eq!(Span::new(5, 1).bytes(), 0);
        assert!(Span::new(u64::MAX - 1, u64::MAX).regions().is_empty());
    }
}
