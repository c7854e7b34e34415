//! A snapshot of physical memory during a run: base pages in use per 2 MB block, along physical addresses, by class.

use mega_core::units::{HUGE_PAGE_BYTES, REGION_PAGES};

use super::axis::Axis;
use super::WIDTH;
use crate::result::{Outcome, Picture, PictureCell, Record, Run, Unit};
use mega_cli::draw::svg::Anchor;

const LEFT: f64 = 34.0;
const RIGHT: f64 = WIDTH - 6.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 106.0;
const HEIGHT: f64 = BOTTOM + 22.0;

/// A class of pages: its name, and how many of them a cell has.
pub type PageClass = (&'static str, fn(&PictureCell) -> u16);

/// The classes, from the bottom: a page of each class `memory-…` in the style.
pub const PAGE_CLASSES: [PageClass; 3] = [
    ("unmovable", |cell| cell.unmovable),
    ("movable", |cell| cell.movable),
    ("huge", |cell| cell.huge),
];

/// The first run of a variant of a case that came to its end and has pictures.
#[must_use]
pub fn run_of(record: &Record, case: usize, variant: usize) -> Option<&Run> {
    record.runs.iter().find(|run| {
        run.case == case && run.variant == variant && run.outcome == Outcome::Done && !run.pictures.is_empty()
    })
}

/// Draws one.
#[must_use]
pub fn memory(picture: &Picture) -> String {
    let address = |cell: usize| {
        let block = picture.first_block + cell as u64 * picture.blocks_per_cell;
        (block * HUGE_PAGE_BYTES) as f64
    };
    let axis = Axis::linear(Unit::Bytes, address(picture.cells.len()), (LEFT, RIGHT), 4);
    let at = |cell: usize| axis.at(address(cell));
    let whole = f64::from(REGION_PAGES);
    let up = |pages: f64| BOTTOM - pages.min(whole) / whole * (BOTTOM - TOP);
    let mut svg = super::figure(HEIGHT, &format!("pages in use per block, {}", picture.moment));
    for pages in [0.0, 256.0, 512.0] {
        svg.line((LEFT, up(pages)), (RIGHT, up(pages)), "grid");
        svg.text(
            (LEFT - 5.0, up(pages) + 4.0),
            Anchor::End,
            "tick",
            &format!("{pages:.0}"),
        );
    }
    let mut base = vec![0.0; picture.cells.len()];
    for (name, pages) in PAGE_CLASSES {
        // Steps: along the top of each cell, and back along the class below.
        let mut outline: Vec<(f64, f64)> = Vec::new();
        let mut below: Vec<(f64, f64)> = Vec::new();
        let mut largest = 0.0f64;
        for (index, cell) in picture.cells.iter().enumerate() {
            let top = base[index] + f64::from(pages(cell));
            outline.extend([(at(index), up(top)), (at(index + 1), up(top))]);
            below.extend([(at(index), up(base[index])), (at(index + 1), up(base[index]))]);
            largest = largest.max(f64::from(pages(cell)));
            base[index] = top;
        }
        if largest > 0.0 {
            outline.extend(below.into_iter().rev());
            svg.area(&outline, &format!("memory-{name}"));
        }
    }
    for (x, label) in axis.ticks() {
        let anchor = if x > RIGHT - 20.0 { Anchor::End } else { Anchor::Middle };
        svg.line((x, BOTTOM), (x, BOTTOM + 4.0), "axis");
        svg.text((x, BOTTOM + 17.0), anchor, "tick", label);
    }
    svg.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_is_there_is_drawn_within_the_figure() {
        let cell = |huge, movable, unmovable| PictureCell {
            huge,
            movable,
            unmovable,
        };
        let picture = Picture {
            moment: "prepared".into(),
            blocks_per_cell: 64,
            first_block: 0,
            cells: vec![
                cell(0, 300, 10),
                cell(0, 0, 512),
                cell(0, 600, 100),
                PictureCell::default(),
            ],
        };
        let svg = memory(&picture);
        assert_eq!(svg.matches("<polygon").count(), 2, "nothing is huge");
        assert!(svg.contains("memory-movable") && !svg.contains("memory-huge"));
        for points in svg.split("points=\"").skip(1) {
            for point in points.split('"').next().unwrap().split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!(
                    (LEFT - 0.1..=RIGHT + 0.1).contains(&x) && (TOP - 0.1..=BOTTOM + 0.1).contains(&y),
                    "{point}"
                );
            }
        }
        assert!(svg.contains(">512<") && svg.contains("prepared"));
        let empty = memory(&Picture::default());
        assert!(!empty.contains("NaN") && !empty.contains("<polygon"));
    }
}
