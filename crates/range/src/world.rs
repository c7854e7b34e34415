//! What is known when it is decided: memory, the machine, its settings.

use crate::density::Population;
use crate::span::{Span, REGION};
use crate::waste;

/// What can be asked about memory.
pub trait Memory {
    /// What is populated of the regions from `from` on, one for each element. False if that cannot be told.
    fn populations(&mut self, from: u64, of: &mut [Population]) -> bool;
    /// Whether pages sampled of a region that is mapped huge all hold anything ([`crate::filled`]). None where it is not
    /// mapped huge, or contents cannot be read.
    fn is_filled(&mut self, region: u64) -> Option<bool>;
    /// Whether the program has written to the region at this address.
    fn is_reached(&mut self, region: u64) -> bool;
    /// Whether another process has pages of the region, too, as after a fork: a collapse copies them.
    fn is_shared(&mut self, region: u64) -> bool;
    /// The first region in which anything is populated.
    fn first_populated(&mut self, of: Span) -> Option<u64>;
    /// Regions that are populated while both their neighbours are empty.
    fn isolated(&mut self, of: Span) -> u64;
    /// Whether there may be huge pages of which a part is unmapped.
    fn has_partly_unmapped(&mut self) -> bool;
}

/// What the setting `enabled` lets page faults map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// Base pages: the machine's owner wants no huge pages.
    Never,
    /// Huge pages where that was advised.
    #[default]
    Advised,
    /// Huge pages everywhere.
    Always,
}

/// The conditions under which is decided.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions {
    /// Now.
    pub now_ns: u64,
    /// For how long the program has run, on all processors together.
    pub program_ns: u64,
    /// The program's resident memory.
    pub resident_bytes: u64,
    /// What page faults may map.
    pub faults: Faults,
    /// Free blocks are so few that a fault would have to compact.
    pub is_short_of_blocks: bool,
    /// What control groups have left up to their limits; none without limits.
    pub left_bytes: Option<u64>,
    /// The program maps and unmaps just now.
    pub is_mapping: bool,
    /// The program is a forked child: others like it may each have a copy of their parent's memory.
    pub is_forked: bool,
    /// The program's own children are soon over, and with them their copies of its memory.
    pub has_short_children: bool,
    /// Whoever helps has to wait for a processor.
    pub is_busy: bool,
    /// There is more to run than there are processors: whoever helps takes one from somebody.
    pub is_crowded: bool,
}

impl Conditions {
    /// A control group's limit is near.
    pub fn is_near_limit(&self) -> bool {
        self.left_bytes.is_some_and(|left| left < waste::NEAR)
    }

    /// The bytes that huge pages may waste.
    pub fn allowance(&self) -> u64 {
        waste::allowance(self.resident_bytes, self.left_bytes)
    }

    /// The same in regions.
    pub fn allowed_regions(&self) -> u64 {
        self.allowance() / REGION
    }
}
