//! Kinds of pages that a part of a pool can have.

use std::fmt;

/// Bytes of a base page. The library works only where the kernel's pages have this size.
pub const BASE: usize = 4 << 10;
/// Bytes of a huge page; also the unit in which a pool's kinds are kept.
pub const HUGE: usize = 2 << 20;
/// Bytes of a gigantic page.
pub const GIGANTIC: usize = 1 << 30;

/// What backs a part of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Kind {
    /// Base pages, and advice against huge ones.
    #[default]
    Base = 0,
    /// Transparent huge pages: aligned memory with advice.
    Thp = 1,
    /// 2 MB pages of hugetlb.
    Huge = 2,
    /// 1 GB pages of hugetlb.
    Gigantic = 3,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Base, Self::Thp, Self::Huge, Self::Gigantic];

    /// How it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Base => "4K",
            Self::Thp => "2M:thp",
            Self::Huge => "2M",
            Self::Gigantic => "1G",
        }
    }

    /// The kind that is written so; letters may be small.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.word().eq_ignore_ascii_case(text))
    }

    /// Bytes of one page: intervals of this kind are made of these.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Base => BASE,
            Self::Thp | Self::Huge => HUGE,
            Self::Gigantic => GIGANTIC,
        }
    }

    /// From hugetlb: the kernel does nothing to a part of such a page.
    pub const fn is_hugetlb(self) -> bool {
        matches!(self, Self::Huge | Self::Gigantic)
    }

    /// What is taken instead when pages of this kind are short, and may be replaced.
    pub const fn smaller(self) -> Option<Self> {
        match self {
            Self::Base => None,
            Self::Thp | Self::Huge => Some(Self::Base),
            Self::Gigantic => Some(Self::Huge),
        }
    }

    /// As its number says; a number that is none means base pages.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Thp,
            2 => Self::Huge,
            3 => Self::Gigantic,
            _ => Self::Base,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.word()), Some(kind));
            assert_eq!(Kind::parse(&kind.word().to_lowercase()), Some(kind));
            assert_eq!(Kind::from_number(kind as u8), kind);
        }
        for bad in ["", "4", "4KB", "64K", "2MB", "2M:", "2M:tlb", "1G:thp", "512G"] {
            assert_eq!(Kind::parse(bad), None, "{bad}");
        }
    }
}
