//! A process's regions laid out in cells: bands of what is mapped, accessed, huge and wasted, in stretches with anything mapped.

use std::cmp::Reverse;

use mega_core::units::{HUGE_PAGE_BYTES, REGION_PAGES};
use mega_linux::inspect::regions::MappedRegion;

use super::colour::{Rgb, Scale};

/// Regions in a cell up to which the cells grow so that more stretches are shown: 8 GB.
const PER_CELL_MAX: u64 = 1 << 12;

/// What a band shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    /// Base pages present.
    Mapped,
    /// Base pages touched.
    Accessed,
    /// Regions mapped by a huge page.
    Huge,
    /// Zero-filled base pages in huge pages.
    Waste,
}

impl Band {
    /// All, as they are drawn.
    pub const ALL: [Self; 4] = [Self::Mapped, Self::Accessed, Self::Huge, Self::Waste];

    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Accessed => "accessed",
            Self::Huge => "huge",
            Self::Waste => "waste",
        }
    }

    /// For a legend.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Mapped => "share of base pages present",
            Self::Accessed => "share touched since the accessed bits were last cleared",
            Self::Huge => "share of regions mapped by a huge page",
            Self::Waste => "share of base pages zero-filled in huge pages",
        }
    }

    /// Its colours.
    #[must_use]
    pub fn scale(self) -> Scale {
        const LOW: Rgb = Rgb(238, 238, 238);
        match self {
            Self::Mapped => Scale(LOW, Rgb(8, 69, 148)),
            Self::Accessed => Scale(LOW, Rgb(204, 94, 0)),
            Self::Huge => Scale(LOW, Rgb(35, 139, 69)),
            Self::Waste => Scale(LOW, Rgb(165, 15, 60)),
        }
    }

    /// Its base pages of a region; none where nobody looked.
    #[must_use]
    pub fn of(self, region: &MappedRegion) -> Option<u32> {
        match self {
            Self::Mapped => Some(region.mapped.0),
            Self::Accessed => region.accessed.map(|pages| pages.0),
            Self::Huge => Some(if region.huge { REGION_PAGES } else { 0 }),
            Self::Waste => region.waste.map(|pages| pages.0),
        }
    }
}

/// A run of regions, as numbers of regions, and those of them with anything mapped.
pub struct Stretch<'a> {
    /// The first region.
    pub first: u64,
    /// The one after the last.
    pub end: u64,
    /// Those with anything mapped.
    pub regions: &'a [MappedRegion],
}

impl Stretch<'_> {
    /// Cells that it takes.
    #[must_use]
    pub fn cells(&self, per_cell: u64) -> u64 {
        (self.end - self.first).div_ceil(per_cell)
    }

    /// The sum over its regions that have a value.
    pub fn sum(&self, of: impl Fn(&MappedRegion) -> Option<u32>) -> Option<u64> {
        self.regions
            .iter()
            .filter_map(of)
            .fold(None, |sum, n| Some(sum.unwrap_or(0) + u64::from(n)))
    }

    /// Its base pages present.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.sum(|r| Some(r.mapped.0)).unwrap_or(0)
    }

    /// The band's share of one cell: of regions that have a value; none if none has.
    #[must_use]
    pub fn share(&self, band: Band, cell: u64, per_cell: u64) -> Option<f64> {
        let first = self.first + cell * per_cell;
        let end = (first + per_cell).min(self.end);
        let number = |r: &MappedRegion| r.address / HUGE_PAGE_BYTES;
        let from = self.regions.partition_point(|r| number(r) < first);
        let to = self.regions.partition_point(|r| number(r) < end);
        let here = &self.regions[from..to];
        let known: Vec<u32> = here.iter().filter_map(|r| band.of(r)).collect();
        if known.is_empty() && !here.is_empty() {
            return None;
        }
        // Regions with nothing mapped have nothing of anything; those that nobody looked at stand for the others.
        let sum: f64 = known.iter().map(|&n| f64::from(n)).sum();
        let scaled = if known.is_empty() {
            0.0
        } else {
            sum * here.len() as f64 / known.len() as f64
        };
        Some(scaled / ((end - first) as f64 * f64::from(REGION_PAGES)))
    }
}

/// Stretches laid out in cells.
pub struct Layout<'a> {
    /// Regions in a cell.
    pub per_cell: u64,
    /// By rising address.
    pub stretches: Vec<Stretch<'a>>,
    /// Stretches left out, and their base pages.
    pub left_out: (usize, u64),
}

fn number(region: &MappedRegion) -> u64 {
    region.address / HUGE_PAGE_BYTES
}

/// Breaks the regions where more than `gap` of them have nothing mapped.
#[must_use]
pub fn stretches(regions: &[MappedRegion], gap: u64) -> Vec<Stretch<'_>> {
    let apart = |a: &MappedRegion, b: &MappedRegion| number(b) - number(a) > gap + 1;
    regions
        .chunk_by(|a, b| !apart(a, b))
        .filter_map(|regions| {
            let (first, last) = (regions.first()?, regions.last()?);
            Some(Stretch {
                first: number(first),
                end: number(last) + 1,
                regions,
            })
        })
        .collect()
}

/// The smallest cells with which at least 95 % of what is mapped takes at most `rows` rows of `columns` cells. Small stretches are left
/// out before memory that is far apart is drawn as one.
#[must_use]
pub fn layout(regions: &[MappedRegion], columns: u64, rows: u64) -> Layout<'_> {
    let total: u64 = regions.iter().map(|r| u64::from(r.mapped.0)).sum();
    let mut per_cell = 1;
    loop {
        let mut found = stretches(regions, 8 * per_cell);
        found.sort_by_key(|stretch| (Reverse(stretch.mapped()), stretch.first));
        let small = found.split_off(found.len().min(rows as usize));
        found.sort_by_key(|stretch| stretch.first);
        let left_out: u64 = small.iter().map(Stretch::mapped).sum();
        let taken: u64 = found
            .iter()
            .map(|stretch| stretch.cells(per_cell).div_ceil(columns))
            .sum();
        if taken <= rows && (left_out * 20 <= total || per_cell >= PER_CELL_MAX) {
            return Layout {
                per_cell,
                stretches: found,
                left_out: (small.len(), left_out),
            };
        }
        per_cell *= 2;
    }
}
