//! Laying numbered things out in rows of cells, or along a line, with gaps left out.

use mega_core::compaction::block::Hpfn;

/// A row of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// Cells from this number on.
    Cells {
        /// The first cell's first number.
        first: u64,
    },
    /// So many numbers with nothing there.
    Gap {
        /// How many.
        blocks: u64,
    },
}

/// Rows of cells, of equally many numbers each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Numbers in a cell: a power of two.
    pub blocks_per_cell: u64,
    /// Cells in a row.
    pub columns: u64,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Grid {
    /// Numbers in a row.
    pub fn blocks_per_row(&self) -> u64 {
        self.blocks_per_cell * self.columns
    }
}

/// The grid of at most `rows` rows that shows these runs (first number, end; by rising number) with the smallest cells; no cell is
/// smaller than `least` numbers. Rows in which there is nothing become one gap.
pub fn grid(runs: &[(u64, u64)], columns: u64, rows: u64, least: u64) -> Grid {
    let mut blocks_per_cell = least.max(1).next_power_of_two();
    loop {
        let grid = rows_of(runs, columns, blocks_per_cell);
        if grid.rows.len() as u64 <= rows || blocks_per_cell > 1 << 40 {
            return grid;
        }
        blocks_per_cell *= 2;
    }
}

fn rows_of(runs: &[(u64, u64)], columns: u64, blocks_per_cell: u64) -> Grid {
    let per_row = columns * blocks_per_cell;
    let mut rows: Vec<Row> = Vec::new();
    let mut next = None;
    for &(start, end) in runs {
        let first = start / per_row * per_row;
        let from = match next {
            Some(next) if first > next => {
                rows.push(Row::Gap { blocks: first - next });
                first
            }
            Some(next) => next,
            None => first,
        };
        rows.extend((from..end).step_by(per_row as usize).map(|first| Row::Cells { first }));
        next = Some(end.div_ceil(per_row) * per_row).max(next);
    }
    Grid {
        blocks_per_cell,
        columns,
        rows,
    }
}

/// Physical memory along a line of pixels, what lies between runs of blocks left out.
pub struct Axis {
    runs: Vec<(u64, u64)>,
    blocks: u64,
    width: i32,
}

impl Axis {
    /// These runs (first number, end) on so many pixels.
    pub fn new(runs: &[(u64, u64)], width: i32) -> Self {
        Self {
            runs: runs.to_vec(),
            blocks: runs.iter().map(|run| run.1 - run.0).sum::<u64>().max(1),
            width,
        }
    }

    /// The block at this place counted over all runs.
    fn nth(&self, mut n: u64) -> Option<u64> {
        for run in &self.runs {
            let length = run.1 - run.0;
            if n < length {
                return Some(run.0 + n);
            }
            n -= length;
        }
        None
    }

    /// The blocks of one pixel, at least one.
    pub fn blocks_at(&self, column: i32) -> Option<(u64, u64)> {
        let at = |column: i32| column as u64 * self.blocks / self.width as u64;
        let first = self.nth(at(column))?;
        Some((first, first + (at(column + 1) - at(column)).max(1)))
    }

    /// The pixel of a block, or of the next that there is.
    pub fn column_of(&self, number: u64) -> Option<i32> {
        let mut before = 0;
        for run in &self.runs {
            if number < run.1 {
                let n = before + number.saturating_sub(run.0);
                return Some((n * self.width as u64 / self.blocks) as i32);
            }
            before += run.1 - run.0;
        }
        None
    }

    /// Pixels with round addresses, about eight to sixteen of them.
    pub fn ticks(&self) -> Vec<(i32, u64)> {
        let step = (self.blocks / 8).next_power_of_two() / 2;
        let step = step.max(1);
        let mut ticks = Vec::new();
        for run in &self.runs {
            let mut number = run.0.next_multiple_of(step);
            while number < run.1 {
                ticks.extend(self.column_of(number).map(|c| (c, Hpfn(number as u32).address())));
                number += step;
            }
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_memory_has_a_cell_a_block_and_a_large_one_whole_powers_of_two() {
        assert_eq!(grid(&[(0, 256)], 64, 24, 1).blocks_per_cell, 1);
        let large = grid(&[(0, 1 << 19)], 64, 24, 32);
        assert_eq!((large.blocks_per_cell, large.rows.len()), (512, 16));
        assert_eq!(
            grid(&[(0, 10)], 64, 24, 100).blocks_per_cell,
            128,
            "no smaller than what was sampled"
        );
    }

    #[test]
    fn rows_without_anything_become_one_gap() {
        let rows = grid(&[(0, 10), (1000, 1010)], 10, 100, 1).rows;
        assert_eq!(
            rows,
            [
                Row::Cells { first: 0 },
                Row::Gap { blocks: 990 },
                Row::Cells { first: 1000 }
            ]
        );
        let rows = grid(&[(3, 5), (7, 12), (15, 16)], 10, 100, 1).rows;
        assert_eq!(
            rows,
            [Row::Cells { first: 0 }, Row::Cells { first: 10 }],
            "runs may share a row"
        );
        assert!(grid(&[], 10, 10, 1).rows.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn every_run_is_shown_and_the_rows_are_never_too_many(
            lengths in proptest::collection::vec((1u64..5000, 1u64..5000), 1..40),
        ) {
            let mut at = 0;
            let runs: Vec<_> = lengths.iter().map(|(gap, length)| { let first = at + gap; at = first + length; (first, at) }).collect();
            let grid = grid(&runs, 64, 24, 1);
            proptest::prop_assert!(grid.rows.len() <= 24);
            for (first, end) in runs {
                for number in [first, end - 1] {
                    let shown = grid.rows.iter().filter(|row| matches!(row, Row::Cells { first } if (*first..first + grid.blocks_per_row()).contains(&number)));
                    proptest::prop_assert_eq!(shown.count(), 1);
                }
            }
        }
    }
}
