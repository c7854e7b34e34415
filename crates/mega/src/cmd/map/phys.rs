//! Physical memory: how many pages of each block are used, and for what.
//!
//! A picture has two parts: the pages used per block along physical memory, as in the study of allocation latencies, and the blocks
//! themselves as a heat map. Both are coloured by what the pages are.

use std::fmt::Write;
use std::num::NonZeroU32;

use anyhow::Result;
use mega_core::compaction::block::{Block, BlockKind, PageKind};
use mega_core::compaction::history::BlockHistory;
use mega_core::units::{Bytes, Time, BASE_PAGE_BYTES, HUGE_PAGE_BYTES, REGION_PAGES};
use mega_linux::blocks::{read, Physical, Sampling};
use mega_linux::proc::ProcRoot;
use serde_json::{json, Value};

use super::axis::{grid, Axis, Grid, Row};
use super::{Map, Subject};
use crate::draw::terminal::{line, swatch, Cell, Style};
use mega_cli::draw::colour::{mean, ramp, Rgb, Scale};
use mega_cli::draw::scene::{Scene, Size};
use mega_cli::text::{printable, wrapped};

const HOLE: Rgb = Rgb(226, 226, 226);
const FREE: Rgb = Rgb(250, 243, 214);
const UNFLAGGED: Rgb = Rgb(190, 174, 212);
const HUGE: Rgb = Rgb(35, 139, 69);
const MOVABLE: Scale = Scale(Rgb(198, 219, 239), Rgb(8, 69, 148));
const UNMOVABLE: Scale = Scale(Rgb(253, 190, 133), Rgb(166, 54, 3));

/// Physical memory, to be looked at again and again.
pub struct Memory {
    sampling: Sampling,
    history: BlockHistory,
    began: std::time::Instant,
}

impl Memory {
    pub fn new(every: Option<NonZeroU32>) -> Self {
        Self {
            sampling: every.map_or(Sampling::Auto, Sampling::Every),
            history: BlockHistory::default(),
            began: std::time::Instant::now(),
        }
    }
}

impl Subject for Memory {
    fn look(&mut self) -> Result<Box<dyn Map>> {
        let mut seen = read(&ProcRoot::default(), self.sampling)?;
        let at = Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.history.update(at, &mut seen.blocks);
        Ok(Box::new(PhysMap(seen)))
    }
}

/// One look at it.
struct PhysMap(Physical);

fn used_share(block: &Block) -> f64 {
    f64::from(block.used_pages().0) / f64::from(REGION_PAGES)
}

/// A block's colour: what it is, and how full.
fn colour(block: &Block) -> Rgb {
    match block.kind() {
        BlockKind::Hole => HOLE,
        BlockKind::Free => FREE,
        BlockKind::Huge => HUGE,
        BlockKind::Unflagged => FREE.towards(UNFLAGGED, used_share(block)),
        BlockKind::Movable => MOVABLE.at(used_share(block)),
        BlockKind::Unmovable => UNMOVABLE.at(used_share(block)),
    }
}

/// A cell: the mean colour of its blocks; as a character, what most of them are.
fn cell(blocks: &[Block]) -> Option<Cell> {
    let colour = mean(blocks.iter().map(|b| (colour(b), 1.0)))?;
    let count = |kind| blocks.iter().filter(|b| b.kind() == kind).count();
    let most = BlockKind::ALL.into_iter().max_by_key(|kind| count(*kind))?;
    let mean_used = |kind| {
        let of: Vec<f64> = blocks.iter().filter(|b| b.kind() == kind).map(used_share).collect();
        of.iter().sum::<f64>() / of.len().max(1) as f64
    };
    let character = match most {
        BlockKind::Hole => '~',
        BlockKind::Free => ' ',
        BlockKind::Huge => 'H',
        BlockKind::Unflagged => '?',
        BlockKind::Movable => ramp(mean_used(most)),
        BlockKind::Unmovable if mean_used(most) < 0.5 => 'u',
        BlockKind::Unmovable => 'U',
    };
    Some(Cell { colour, character })
}

const EMPTY: Cell = Cell {
    colour: Rgb::WHITE,
    character: ' ',
};

fn samples() -> [(BlockKind, Cell, &'static str); 6] {
    let sample = |colour, character| Cell { colour, character };
    [
        (BlockKind::Free, sample(FREE, ' '), "free"),
        (BlockKind::Movable, sample(MOVABLE.at(0.7), '#'), "movable"),
        (BlockKind::Huge, sample(HUGE, 'H'), "huge"),
        (BlockKind::Unmovable, sample(UNMOVABLE.at(0.6), 'U'), "unmovable"),
        (BlockKind::Unflagged, sample(UNFLAGGED, '?'), "unflagged"),
        (BlockKind::Hole, sample(HOLE, '~'), "no memory"),
    ]
}

/// An address in a few characters: `3.5G`.
fn short_address(address: u64) -> String {
    match address {
        0 => "0".into(),
        a if a % (1 << 40) == 0 => format!("{}T", a >> 40),
        a if a % (1 << 30) == 0 => format!("{}G", a >> 30),
        a if a < 1 << 30 => format!("{}M", a >> 20),
        a => format!("{:.2}G", a as f64 / f64::from(1 << 30)),
    }
}

impl PhysMap {
    fn bytes_of(&self, kind: BlockKind) -> Bytes {
        Bytes(self.0.blocks_of(kind).0 * u64::from(self.0.every) * HUGE_PAGE_BYTES)
    }

    fn page_bytes(&self, kind: PageKind) -> Bytes {
        Bytes(self.0.pages(kind) * u64::from(self.0.every) * BASE_PAGE_BYTES)
    }

    /// What there is in a line.
    fn title(&self) -> String {
        let present: u64 = PageKind::ALL
            .iter()
            .filter(|kind| **kind != PageKind::Offline)
            .map(|kind| self.page_bytes(*kind).0)
            .sum();
        format!(
            "Physical memory: {}, {} free, of which {} in free 2 MB blocks",
            Bytes(present),
            self.page_bytes(PageKind::Free),
            self.bytes_of(BlockKind::Free)
        )
    }

    fn scale(&self, grid: &Grid) -> String {
        let size = Bytes(grid.blocks_per_cell * HUGE_PAGE_BYTES);
        let of = if grid.blocks_per_cell == 1 {
            "a cell is one block of 2 MB".to_string()
        } else {
            format!("a cell is {} blocks of 2 MB, {size}", grid.blocks_per_cell)
        };
        let took = mega_core::units::show_duration(self.0.took);
        let notes = self.0.notes();
        let rest: String = notes.iter().map(|note| format!("; {note}")).collect();
        format!("{of}; read in {took}{rest}")
    }

    fn grid(&self, columns: u64, rows: u64) -> Grid {
        let spans: Vec<(u64, u64)> = runs(&self.0.blocks, u64::from(self.0.every));
        grid(&spans, columns, rows, u64::from(self.0.every))
    }

    /// The blocks of one cell.
    fn blocks_in(&self, first: u64, count: u64) -> &[Block] {
        let blocks = &self.0.blocks;
        let from = blocks.partition_point(|b| u64::from(b.hpfn.0) < first);
        let to = blocks.partition_point(|b| u64::from(b.hpfn.0) < first + count);
        &blocks[from..to]
    }

    fn cells(&self, grid: &Grid, first: u64) -> Vec<Option<Cell>> {
        (0..grid.columns)
            .map(|i| cell(self.blocks_in(first + i * grid.blocks_per_cell, grid.blocks_per_cell)))
            .collect()
    }

    /// Each zone with its name and first block.
    fn zone_borders(&self) -> Vec<(u64, String)> {
        let nodes = self.0.zones.iter().any(|zone| zone.node > 0);
        self.0
            .zones
            .iter()
            .map(|zone| {
                let name = if nodes {
                    format!("{} (node {})", zone.name, zone.node)
                } else {
                    zone.name.clone()
                };
                (
                    zone.start_frame / u64::from(REGION_PAGES),
                    printable(&name).into_owned(),
                )
            })
            .collect()
    }
}

/// Runs of blocks with memory, as first number and end; holes in between are left out.
fn runs(blocks: &[Block], every: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks.iter().filter(|b| b.kind() != BlockKind::Hole) {
        let number = u64::from(block.hpfn.0);
        match runs.last_mut() {
            Some(last) if number <= last.1 => last.1 = number + every,
            _ => runs.push((number, number + every)),
        }
    }
    runs
}

impl Map for PhysMap {
    fn text(&self, style: Style, lines: usize) -> String {
        // The rest is for title, scale and legend. In colour a line has two rows.
        let lines = lines.saturating_sub(15).clamp(4, 24) as u64;
        let grid = self.grid(64, if style == Style::Colour { 2 * lines } else { lines });
        let mut out = format!("{}\n", self.title());
        out += &wrapped("  ", &self.scale(&grid));
        let borders = self.zone_borders();
        let begins = |(at, name): &(u64, String)| format!("{name} from {}", short_address(at * HUGE_PAGE_BYTES));
        let zones: Vec<String> = borders.iter().map(begins).collect();
        out.push('\n');
        out += &wrapped("  zones: ", &zones.join(", "));
        out += "\n\n";
        let mut rows = grid.rows.iter().peekable();
        while let Some(row) = rows.next() {
            match row {
                Row::Gap { blocks } => {
                    let _ = writeln!(out, "         ... {} without memory", Bytes(blocks * HUGE_PAGE_BYTES));
                }
                Row::Cells { first } => {
                    let whole =
                        |cells: Vec<Option<Cell>>| cells.into_iter().map(|c| c.unwrap_or(EMPTY)).collect::<Vec<_>>();
                    let upper = whole(self.cells(&grid, *first));
                    let mut end = first + grid.blocks_per_row();
                    let lower = match rows.peek() {
                        Some(Row::Cells { first }) if style == Style::Colour => {
                            end = first + grid.blocks_per_row();
                            let cells = whole(self.cells(&grid, *first));
                            rows.next();
                            Some(cells)
                        }
                        _ => None,
                    };
                    let text = line(style, &upper, lower.as_deref());
                    let zones: Vec<&str> = borders
                        .iter()
                        .filter(|(at, _)| (*first..end).contains(at))
                        .map(|(_, name)| name.as_str())
                        .collect();
                    let pad = " ".repeat(if style == Style::Ascii && !zones.is_empty() {
                        64usize.saturating_sub(text.chars().count())
                    } else {
                        0
                    });
                    // Where more begin in a row than fit, the last one goes on below.
                    let all = zones.join("+");
                    let label = if all.chars().count() <= 7 {
                        &all
                    } else {
                        *zones.last().unwrap_or(&"")
                    };
                    let label: String = label.chars().take(7).collect();
                    let address = short_address(first * HUGE_PAGE_BYTES);
                    let _ = writeln!(out, "{}", format!("{address:>7} {text}{pad} {label}").trim_end());
                }
            }
        }
        out.push('\n');
        for (kind, sample, name) in samples() {
            let (blocks, bytes) = (self.0.blocks_of(kind).0 * u64::from(self.0.every), self.bytes_of(kind));
            if blocks > 0 {
                let meaning = meaning(kind, style);
                let sample = swatch(style, sample);
                let row = format!(
                    "  {sample} {name:<10} {blocks:>7} blocks {:>6}  {meaning}",
                    bytes.to_string()
                );
                let _ = writeln!(out, "{}", row.trim_end());
            }
        }
        out
    }

    fn scene(&self) -> Scene {
        const LEFT: i32 = 64;
        const COLUMNS: i32 = 128;
        const CELL: i32 = 7;
        let grid = self.grid(COLUMNS as u64, 112);
        let mut scene = Scene::new(LEFT + COLUMNS * CELL + 60);
        scene.text(LEFT, 12, Size::Large, Rgb::INK, self.title());
        scene.text(LEFT, 32, Size::Small, Rgb::GREY, self.scale(&grid));
        let y = self.legend(&mut scene, LEFT, 52);
        scene.text(
            LEFT,
            y + 10,
            Size::Small,
            Rgb::INK,
            "Pages used in each block, along physical memory",
        );
        let y = self.profile(&mut scene, LEFT, y + 40, COLUMNS * CELL);
        scene.text(
            LEFT,
            y + 16,
            Size::Small,
            Rgb::INK,
            "The blocks, from the lowest address (top left) row by row",
        );
        self.heat(&mut scene, &grid, LEFT, y + 34, CELL);
        scene
    }

    fn json(&self) -> Value {
        let seen = &self.0;
        let blocks = &seen.blocks;
        let kinds: serde_json::Map<String, Value> = BlockKind::ALL
            .iter()
            .map(|kind| (kind.word().to_string(), seen.blocks_of(*kind).0.into()))
            .collect();
        let mut columns = serde_json::Map::new();
        columns.insert("hpfn".into(), blocks.iter().map(|b| b.hpfn.0).collect());
        columns.insert(
            "zone".into(),
            blocks
                .iter()
                .map(|b| (b.zone != Block::NO_ZONE).then_some(b.zone))
                .collect(),
        );
        for kind in PageKind::ALL {
            columns.insert(
                format!("{}_pages", kind.word()),
                blocks.iter().map(|b| b.pages(kind).0).collect(),
            );
        }
        columns.insert(
            "mapped_pages".into(),
            blocks.iter().map(|b| b.mapped_pages().0).collect(),
        );
        let ages = blocks.iter().map(|b| b.age().map(|age| age.as_nanos() as u64));
        columns.insert("age_ns".into(), ages.collect());
        json!({
            "schema": 1,
            "kind": "map-phys",
            "block_bytes": HUGE_PAGE_BYTES,
            "every": seen.every,
            "spanned_blocks": seen.spanned.0,
            "read_blocks": blocks.len(),
            "took_ns": seen.took.as_nanos() as u64,
            "zones": seen.zones,
            "buddy": seen.buddy,
            "notes": seen.notes(),
            "block_kinds": kinds,
            "accessed": Value::Null,
            "blocks": columns,
        })
    }
}

fn meaning(kind: BlockKind, style: Style) -> &'static str {
    match (kind, style) {
        (BlockKind::Movable, Style::Ascii) => "'.' to '@': pages used, can be moved",
        (BlockKind::Movable, Style::Colour) => "light to dark: pages used",
        (BlockKind::Unmovable, Style::Ascii) => "'u' under half used; some page is fixed",
        (BlockKind::Unmovable, Style::Colour) => "some page is fixed",
        (BlockKind::Unflagged, _) => "on a CPU's list, or the kernel's",
        (BlockKind::Huge, _) => "one huge page",
        _ => "",
    }
}

impl PhysMap {
    fn legend(&self, scene: &mut Scene, x: i32, mut y: i32) -> i32 {
        for (kind, sample, name) in samples() {
            let blocks = self.0.blocks_of(kind).0 * u64::from(self.0.every);
            if blocks == 0 {
                continue;
            }
            let scale = match kind {
                BlockKind::Movable => Some(MOVABLE),
                BlockKind::Unmovable => Some(UNMOVABLE),
                _ => None,
            };
            match scale {
                Some(scale) => (0..24).for_each(|i| scene.rect(x + i, y, 1, 10, scale.at(f64::from(i) / 23.0))),
                None => scene.rect(x, y, 24, 10, sample.colour),
            }
            let note = match kind {
                BlockKind::Movable => "light to dark by pages used: can be emptied",
                BlockKind::Unmovable => "holds a page that cannot be moved: can never be a huge page as it is",
                BlockKind::Unflagged => "free on a processor's list, or the kernel's own without a flag",
                BlockKind::Huge => "one huge page",
                BlockKind::Free => "free: a huge page at once",
                BlockKind::Hole => "inside a zone's span, but no memory",
            };
            let text = format!(
                "{name:<10} {blocks:>8} blocks {:>6}   {note}",
                self.bytes_of(kind).to_string()
            );
            scene.text(x + 32, y, Size::Small, Rgb::INK, text);
            y += 14;
        }
        y
    }

    /// Stacked bars: for each pixel along physical memory, the mean pages of each kind in the blocks there.
    fn profile(&self, scene: &mut Scene, x: i32, y: i32, width: i32) -> i32 {
        const HEIGHT: i32 = 128;
        let order: [(PageKind, Rgb); 5] = [
            (PageKind::Offline, HOLE),
            (PageKind::Unmovable, UNMOVABLE.at(0.6)),
            (PageKind::Huge, HUGE),
            (PageKind::Movable, MOVABLE.at(0.7)),
            (PageKind::Unflagged, UNFLAGGED),
        ];
        let axis = Axis::new(&runs(&self.0.blocks, u64::from(self.0.every)), width);
        scene.rect(x, y, width, HEIGHT, Rgb(253, 251, 243));
        for pages in [0, 128, 256, 384, 512] {
            let at = y + HEIGHT - pages * HEIGHT / 512;
            scene.rect(x - 4, at, width + 4, 1, Rgb::FAINT);
            scene.text_left_of(x - 8, at - 5, Rgb::GREY, pages.to_string());
        }
        for column in 0..width {
            let Some((first, end)) = axis.blocks_at(column) else {
                continue;
            };
            let blocks = self.blocks_in(first, end - first);
            if blocks.is_empty() {
                continue;
            }
            let mut below = 0.0;
            for (kind, fill) in order {
                let sum: u64 = blocks.iter().map(|b| u64::from(b.pages(kind).0)).sum();
                let from = below;
                below += sum as f64 / blocks.len() as f64 * f64::from(HEIGHT) / 512.0;
                let (low, high) = (from.round() as i32, below.round() as i32);
                scene.rect(x + column, y + HEIGHT - high, 1, high - low, fill);
            }
        }
        let mut free_from = i32::MIN;
        for (at, name) in self.zone_borders() {
            let Some(column) = axis.column_of(at) else { continue };
            scene.dashes_down(x + column, y - 12, HEIGHT + 12, Rgb::INK);
            let from = (x + column + 3).max(free_from);
            free_from = from + (name.chars().count() as i32 + 2) * Size::Small.advance();
            scene.text(from, y - 13, Size::Small, Rgb::INK, name);
        }
        let mut free_from = i32::MIN;
        for (column, address) in axis.ticks() {
            let label = short_address(address);
            let half = label.chars().count() as i32 * Size::Small.advance() / 2;
            if x + column - half >= free_from {
                scene.rect(x + column, y + HEIGHT, 1, 4, Rgb::GREY);
                scene.text(x + column - half, y + HEIGHT + 6, Size::Small, Rgb::GREY, label);
                free_from = x + column + half + 8;
            }
        }
        y + HEIGHT + 16
    }

    fn heat(&self, scene: &mut Scene, grid: &Grid, x: i32, mut y: i32, side: i32) {
        let borders = self.zone_borders();
        let labelled = (grid.rows.len() / 28 + 1).next_power_of_two();
        let mut since = 0;
        for row in &grid.rows {
            match row {
                Row::Gap { blocks } => {
                    let text = format!("... {} without memory ...", Bytes(blocks * HUGE_PAGE_BYTES));
                    scene.rect(x, y + 7, grid.columns as i32 * side, 1, Rgb::FAINT);
                    let width = (text.chars().count() as i32 + 2) * Size::Small.advance();
                    let middle = x + (grid.columns as i32 * side - width) / 2;
                    scene.rect(middle, y + 2, width, 10, Rgb::WHITE);
                    scene.text(middle + Size::Small.advance(), y + 2, Size::Small, Rgb::GREY, text);
                    y += 15;
                    since = 0;
                }
                Row::Cells { first } => {
                    if since % labelled == 0 {
                        scene.text_left_of(x - 6, y - 1, Rgb::GREY, short_address(first * HUGE_PAGE_BYTES));
                    }
                    since += 1;
                    for (i, cell) in self.cells(grid, *first).into_iter().enumerate() {
                        if let Some(cell) = cell {
                            scene.rect(x + i as i32 * side, y, side, side, cell.colour);
                        }
                    }
                    let here = |(at, _): &&(u64, String)| (*first..first + grid.blocks_per_row()).contains(at);
                    let last = borders.iter().filter(here).map(|(at, _)| *at).next_back();
                    for (at, name) in borders.iter().filter(here) {
                        let column = ((at - first) / grid.blocks_per_cell) as i32;
                        scene.rect(x + column * side, y, 2, side, Rgb::INK);
                        scene.rect(
                            x + column * side,
                            y,
                            (grid.columns as i32 - column) * side + 4,
                            1,
                            Rgb::INK,
                        );
                        scene.rect(x, y + side, column * side, 1, Rgb::INK);
                        // Zones that begin in one row would lie over each other: the last one goes on below.
                        if last == Some(*at) {
                            let right = x + grid.columns as i32 * side + 6;
                            scene.text(
                                right,
                                y - 4,
                                Size::Small,
                                Rgb::INK,
                                name.chars().take(8).collect::<String>(),
                            );
                        }
                    }
                    y += side;
                }
            }
        }
        scene.height = scene.height.max(y);
    }
}

#[cfg(test)]
mod tests;
