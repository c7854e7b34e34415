//! What programs advise about their memory.

/// What `madvise` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// MADV_HUGEPAGE: huge pages are welcome.
    Huge,
    /// MADV_NOHUGEPAGE: none, please.
    NoHuge,
    /// MADV_DONTNEED: the pages go at once; they read as zero afterwards.
    DontNeed,
    /// MADV_FREE: the pages may go as long as they are not written again.
    Free,
    /// MADV_COLD: the pages are not used soon.
    Cold,
    /// MADV_COLLAPSE: make it huge now.
    Collapse,
}

impl Advice {
    /// All of them; the place in this list is the number in a trace.
    pub const ALL: [Self; 6] = [
        Self::Huge,
        Self::NoHuge,
        Self::DontNeed,
        Self::Free,
        Self::Cold,
        Self::Collapse,
    ];

    /// The word for it in text traces.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::NoHuge => "nohuge",
            Self::DontNeed => "dontneed",
            Self::Free => "free",
            Self::Cold => "cold",
            Self::Collapse => "collapse",
        }
    }
}
