//! A snapshot of physical memory, in as many cells as a figure is wide.

use mega_core::compaction::block::{Block, BlockKind, PageKind};
use mega_linux::blocks::{read, Sampling};
use mega_linux::proc::ProcRoot;

use crate::result::{Picture, PictureCell};

/// Maximum number of cells.
const CELLS: u64 = 200;

/// A snapshot of physical memory now; none if it cannot be read.
#[must_use]
pub fn take(moment: &str, root: &ProcRoot) -> Option<Picture> {
    let seen = read(root, Sampling::Auto).ok()?;
    Some(of(moment, &seen.blocks))
}

/// The picture of these blocks, which are in order of their addresses.
#[must_use]
pub fn of(moment: &str, blocks: &[Block]) -> Picture {
    let number = |block: Option<&Block>| block.map_or(0, |b| u64::from(b.hpfn.0));
    let (first, last) = (number(blocks.first()), number(blocks.last()));
    let blocks_per_cell = (last - first + 1).div_ceil(CELLS).max(1);
    let mut cells = Vec::new();
    let mut rest = blocks;
    while !rest.is_empty() {
        let end = first + (cells.len() as u64 + 1) * blocks_per_cell;
        let within = rest.partition_point(|b| u64::from(b.hpfn.0) < end);
        cells.push(cell(&rest[..within]));
        rest = &rest[within..];
    }
    Picture {
        moment: moment.to_string(),
        blocks_per_cell,
        first_block: first,
        cells,
    }
}

fn cell(blocks: &[Block]) -> PictureCell {
    let there = || blocks.iter().filter(|b| b.kind() != BlockKind::Hole);
    let count = there().count().max(1) as u64;
    let mean = |kinds: &[PageKind]| {
        let pages = |b: &Block| kinds.iter().map(|kind| u64::from(b.pages(*kind).0)).sum::<u64>();
        (there().map(pages).sum::<u64>() / count) as u16
    };
    PictureCell {
        huge: mean(&[PageKind::Huge]),
        movable: mean(&[PageKind::Movable, PageKind::Unflagged]),
        unmovable: mean(&[PageKind::Unmovable]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::compaction::block::Hpfn;

    fn block(number: u32, free: u32, movable: u32, unmovable: u32, huge: u32) -> Block {
        let mut pages = [0; PageKind::COUNT];
        for (kind, count) in [
            (PageKind::Free, free),
            (PageKind::Movable, movable),
            (PageKind::Unmovable, unmovable),
            (PageKind::Huge, huge),
        ] {
            pages[kind as usize] = count;
        }
        Block::new(Hpfn(number), 0).with_pages(pages)
    }

    #[test]
    fn a_cell_is_the_mean_of_its_blocks_and_a_hole_is_an_empty_one() {
        let blocks: Vec<Block> = (0..400)
            .map(|n| match n {
                0..200 => block(n, 512, 0, 0, 0),
                200..400 if n % 2 == 0 => block(n, 0, 0, 0, 512),
                _ => block(n, 112, 300, 100, 0),
            })
            .chain((1000..1010).map(|n| block(n, 12, 500, 0, 0)))
            .collect();
        let picture = of("before", &blocks);
        assert_eq!((picture.blocks_per_cell, picture.first_block), (6, 0));
        assert_eq!(picture.cells.len(), 169);
        assert_eq!(picture.cells[0], PictureCell::default());
        let mixed = PictureCell {
            huge: 256,
            movable: 150,
            unmovable: 50,
        };
        assert_eq!(picture.cells[40], mixed);
        assert_eq!(picture.cells[100], PictureCell::default(), "nothing is there");
        assert_eq!(picture.cells[168].movable, 500);
        assert!(of("none", &[]).cells.is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        let root = ProcRoot::default();
        match take("now", &root) {
            Some(picture) => {
                assert!((1..=CELLS as usize).contains(&picture.cells.len()));
                let used = |c: &PictureCell| u32::from(c.huge) + u32::from(c.movable) + u32::from(c.unmovable);
                assert!(picture.cells.iter().all(|c| used(c) <= 512));
                assert!(picture.cells.iter().any(|c| used(c) > 0));
            }
            None => eprintln!("SKIPPED: {}", read(&root, Sampling::Auto).unwrap_err()),
        }
    }
}
