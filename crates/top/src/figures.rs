//! Figures of a process or a service, and the columns that show them.

use std::cmp::Ordering;

use mega_core::units::Bytes;
use serde::Serialize;

/// The figures; none where nobody looked, or nobody can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Resident memory.
    pub resident_bytes: u64,
    /// Of it in huge pages.
    pub huge_bytes: Option<u64>,
    /// Zero-filled base pages in huge pages.
    pub waste_bytes: Option<u64>,
    /// Resident in base pages of regions populated enough to be promoted.
    pub qualifies_bytes: Option<u64>,
    /// Gain by huge pages as the daemon estimates it: share of the process's time.
    pub gain: Option<f64>,
    /// Felt stall: share of time.
    pub stall: Option<f64>,
    /// Promotions and demotions.
    pub promotions: Option<u64>,
    /// Demotions.
    pub demotions: Option<u64>,
}

impl Figures {
    /// Share of resident memory in huge pages.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        let huge = self.huge_bytes?;
        (self.resident_bytes > 0).then(|| huge as f64 / self.resident_bytes as f64)
    }

    /// Figures of several processes together: what is known of some stands for those. Shares of time are the largest: who feels most.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let most = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Self {
            resident_bytes: self.resident_bytes.saturating_add(other.resident_bytes),
            huge_bytes: sum(self.huge_bytes, other.huge_bytes),
            waste_bytes: sum(self.waste_bytes, other.waste_bytes),
            qualifies_bytes: sum(self.qualifies_bytes, other.qualifies_bytes),
            gain: most(self.gain, other.gain),
            stall: most(self.stall, other.stall),
            promotions: sum(self.promotions, other.promotions),
            demotions: sum(self.demotions, other.demotions),
        }
    }
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Name.
    Name,
    /// The process's number, or how many there are.
    Count,
    /// Resident memory.
    Resident,
    /// In huge pages.
    Huge,
    /// Share in huge pages.
    Coverage,
    /// Zero-filled in huge pages.
    Waste,
    /// Gain by huge pages.
    Gain,
    /// Felt stall.
    Stall,
    /// What is being done.
    Doing,
}

impl Column {
    /// From left to right.
    pub const ALL: [Self; 9] = [
        Self::Name,
        Self::Count,
        Self::Resident,
        Self::Huge,
        Self::Coverage,
        Self::Waste,
        Self::Gain,
        Self::Stall,
        Self::Doing,
    ];

    /// As in the option --sort.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Count => "pid",
            Self::Resident => "resident",
            Self::Huge => "huge",
            Self::Coverage => "coverage",
            Self::Waste => "waste",
            Self::Gain => "gain",
            Self::Stall => "stall",
            Self::Doing => "doing",
        }
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// The next to the right, or to the left, around.
    #[must_use]
    pub fn beside(self, right: bool) -> Self {
        let count = Self::ALL.len();
        let at = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(at + if right { 1 } else { count - 1 }) % count]
    }

    /// Texts go from A to Z, figures from most to least.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Doing)
    }

    /// Most first; what is not known comes last.
    #[must_use]
    pub fn compare(self, a: &Figures, b: &Figures) -> Ordering {
        let of = |figures: &Figures| match self {
            Self::Resident => Some(figures.resident_bytes as f64),
            Self::Huge => figures.huge_bytes.map(|n| n as f64),
            Self::Coverage => figures.coverage(),
            Self::Waste => figures.waste_bytes.map(|n| n as f64),
            Self::Gain => figures.gain,
            Self::Stall => figures.stall,
            Self::Name | Self::Count | Self::Doing => None,
        };
        match (of(a), of(b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }

    /// The figure's text; `?` where it is not known, `-` where nobody measures it.
    #[must_use]
    pub fn text(self, figures: &Figures) -> String {
        let bytes = |n: Option<u64>| n.map_or_else(|| "?".to_string(), |n| Bytes(n).to_string());
        let share = |n: Option<f64>, none: &str| n.map_or_else(|| none.to_string(), percent);
        match self {
            Self::Resident => bytes(Some(figures.resident_bytes)),
            Self::Huge => bytes(figures.huge_bytes),
            Self::Coverage => share(figures.coverage(), "?"),
            Self::Waste => bytes(figures.waste_bytes),
            Self::Gain => share(figures.gain, "-"),
            Self::Stall => share(figures.stall, "-"),
            Self::Name | Self::Count | Self::Doing => String::new(),
        }
    }
}

/// A share in at most five characters.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 9.95 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resident_bytes: u64, huge_bytes: Option<u64>) -> Figures {
        Figures {
            resident_bytes,
            huge_bytes,
            ..Figures::default()
        }
    }

    #[test]
    fn figures_that_nobody_knows_are_unknown_and_come_last() {
        let (none, some) = (of(100, None), of(100, Some(0)));
        assert_eq!(Column::Huge.text(&none), "?");
        assert_eq!(Column::Coverage.text(&none), "?");
        assert_eq!(Column::Coverage.text(&some), "0%");
        assert_eq!(Column::Stall.text(&some), "-");
        assert_eq!(Column::Huge.compare(&none, &some), Ordering::Greater);
        assert_eq!(Column::Huge.compare(&none, &none), Ordering::Equal);
        assert_eq!(none.and(&none).huge_bytes, None);
        assert_eq!(none.and(&of(1, Some(5))).huge_bytes, Some(5));
        assert_eq!(Column::Coverage.text(&of(0, Some(0))), "?");
    }

    #[test]
    fn columns_go_around_and_have_names() {
        let mut column = Column::Name;
        for _ in Column::ALL {
            assert_eq!(Column::named(column.name()), Some(column));
            assert_eq!(column.beside(true).beside(false), column);
            column = column.beside(true);
        }
        assert_eq!(column, Column::Name);
    }

    #[test]
    fn shares_take_five_characters_at_most() {
        for (share, text) in [
            (0.0, "0%"),
            (0.0123, "1.2%"),
            (0.0996, "10%"),
            (1.0, "100%"),
            (12.0, "1200%"),
        ] {
            assert_eq!(percent(share), text);
        }
    }
}
