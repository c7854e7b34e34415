//! Backdrops: the machine's THP settings during a run.

/// The setting of 64 KB folios.
pub(super) const MTHP_64K: &str = "hugepages-64kB/enabled";

/// The machine's THP settings during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backdrop {
    /// Base pages, whatever the program requests; with a manager, at faults where it requests nothing.
    Base,
    /// Stock THP wherever it fits, as most distributions ship it.
    ThpAlways,
    /// Stock THP where the program requests it.
    ThpMadvise,
    /// Stock THP with direct compaction in every fault: the baseline of the LRBHPS evaluation (section 4).
    ThpAlwaysDefrag,
    /// Stock THP wherever it fits, where khugepaged collapses only regions without a hole. Some systems ship it; it bounds waste.
    ThpNone0,
    /// 64 KB folios at faults, larger ones where the program requests them.
    Mthp64k,
}

impl Backdrop {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Base, "base"),
        (Self::ThpAlways, "thp-always"),
        (Self::ThpMadvise, "thp-madvise"),
        (Self::ThpAlwaysDefrag, "thp-always-defrag"),
        (Self::ThpNone0, "thp-none0"),
        (Self::Mthp64k, "mthp-64k"),
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(b, _)| *b == self).map_or("", |(_, name)| name)
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Base => "base pages only",
            Self::ThpAlways => "stock THP, always",
            Self::ThpMadvise => "stock THP where the program requests it",
            Self::ThpAlwaysDefrag => "stock THP, always, with direct compaction in the fault",
            Self::ThpNone0 => "stock THP, always, with khugepaged's max_ptes_none 0",
            Self::Mthp64k => "64 KB folios at faults",
        }
    }

    /// Settings below /sys/kernel/mm/transparent_hugepage. They leave huge pages to who asks, in every one: the prefaulted pool's memory is then
    /// of the same kind in all of them, and so is what faults take from it. Base pages are the program's own setting (`Own`). khugepaged runs in the THP ones only, with its defaults but for
    /// max_ptes_none, of which MADV_COLLAPSE takes no notice.
    pub(super) fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Base | Self::ThpMadvise => &[("enabled", "madvise"), ("defrag", "madvise")],
            Self::ThpAlways => &[("enabled", "always"), ("defrag", "madvise")],
            Self::ThpAlwaysDefrag => &[("enabled", "always"), ("defrag", "always")],
            Self::ThpNone0 => &[
                ("enabled", "always"),
                ("defrag", "madvise"),
                ("khugepaged/max_ptes_none", "0"),
            ],
            Self::Mthp64k => &[("enabled", "madvise"), ("defrag", "madvise"), (MTHP_64K, "always")],
        }
    }
}
