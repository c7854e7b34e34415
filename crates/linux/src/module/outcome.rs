//! What becomes of each block that mega.ko is asked to empty, by name.

use super::uapi::CompactBlock;

/// What became of a block that was to be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockOutcome {
    /// Not looked at.
    Undone,
    /// Emptied, and given back as a whole.
    Freed,
    /// Was free.
    Already,
    /// Holds pages of the kernel.
    Unmovable,
    /// Holds pages that somebody holds on to.
    Pinned,
    /// Tried in vain.
    Busy,
    /// In a zone that is left alone.
    Zone,
    /// CMA, an atomic reserve, or isolated by another.
    Type,
    /// Holds huge pages.
    Huge,
    /// Has memory errors.
    Poisoned,
    /// No memory there, or not all of it.
    Absent,
    /// No room to move its pages to.
    NoRoom,
    /// Its turn did not come.
    Budget,
    /// A signal came first.
    Interrupted,
    /// A number that this program does not know.
    Unknown,
}

impl BlockOutcome {
    /// In the order of their numbers (enum mega_outcome).
    const ALL: [Self; 14] = [
        Self::Undone,
        Self::Freed,
        Self::Already,
        Self::Unmovable,
        Self::Pinned,
        Self::Busy,
        Self::Zone,
        Self::Type,
        Self::Huge,
        Self::Poisoned,
        Self::Absent,
        Self::NoRoom,
        Self::Budget,
        Self::Interrupted,
    ];

    /// Of the kernel's number.
    pub fn of(number: u32) -> Self {
        *Self::ALL.get(number as usize).unwrap_or(&Self::Unknown)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Undone => "undone",
            Self::Freed => "freed",
            Self::Already => "already-free",
            Self::Unmovable => "unmovable",
            Self::Pinned => "pinned",
            Self::Busy => "busy",
            Self::Zone => "refused-zone",
            Self::Type => "refused-type",
            Self::Huge => "huge",
            Self::Poisoned => "poisoned",
            Self::Absent => "no-memory",
            Self::NoRoom => "no-room",
            Self::Budget => "out-of-budget",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

impl CompactBlock {
    /// An entry of a list that is to be emptied.
    pub fn asked(block: u64) -> Self {
        Self {
            block,
            ..Self::default()
        }
    }

    /// What became of it.
    pub fn outcome(&self) -> BlockOutcome {
        BlockOutcome::of(self.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = (0..15).map(|number| BlockOutcome::of(number).word()).collect();
        assert_eq!(words.len(), 15);
        assert_eq!(BlockOutcome::of(u32::MAX), BlockOutcome::Unknown);
    }
}
