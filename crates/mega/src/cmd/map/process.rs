//! One process: its regions along virtual memory, by what is mapped, accessed, huge and wasted.
//!
//! Memory is shown in stretches: runs of regions with anything mapped. What lies between two stretches is left out and marked.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use mega_core::units::{BasePages, Bytes, HUGE_PAGE_BYTES, REGION_PAGES};
use mega_linux::inspect::regions::{region_map, MappedRegion, RegionMap};
use mega_linux::proc::ProcRoot;
use mega_linux::process::Process;
use mega_linux::scan::Scanner;
use serde_json::{json, Value};

use super::{Map, Subject};
use crate::args::ScannerChoice;
use crate::draw::terminal::{line, Cell, Style};
use crate::manage::scanner_for;
use mega_cli::draw::colour::{ramp, Rgb, Scale};
use mega_cli::draw::scene::{Scene, Size};
use mega_cli::exit::tell;
use mega_cli::text::{printable, wrapped};

/// Huge pages whose contents are read at most, evenly spaced.
const READ_MAX: usize = 8192;
/// Regions in a cell up to which the cells grow so that more stretches are shown: 8 GB.
const PER_CELL_MAX: u64 = 1 << 12;

/// A process, held by its handle.
pub struct OneProcess {
    pid: u32,
    process: Process,
    scanner: Box<dyn Scanner>,
}

impl OneProcess {
    pub fn open(pid: u32, choice: ScannerChoice) -> Result<Self> {
        let process = Process::open(&ProcRoot::default(), pid)?;
        let (scanner, refused) = scanner_for(choice)?;
        for reason in refused {
            tell(&format!("mega: {reason}; using {}", scanner.name()));
        }
        Ok(Self { pid, process, scanner })
    }
}

impl Subject for OneProcess {
    fn look(&mut self) -> Result<Box<dyn Map>> {
        let root = ProcRoot::default();
        let name = printable(&self.process.name(&root)).into_owned();
        let seen = region_map(&root, self.scanner.as_mut(), self.pid, READ_MAX)
            .with_context(|| format!("process {} ({name})", self.pid))?;
        Ok(Box::new(ProcessMap {
            pid: self.pid,
            name,
            seen,
        }))
    }
}

/// What a band shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Band {
    Mapped,
    Accessed,
    Huge,
    Waste,
}

impl Band {
    const ALL: [Self; 4] = [Self::Mapped, Self::Accessed, Self::Huge, Self::Waste];

    fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Accessed => "accessed",
            Self::Huge => "huge",
            Self::Waste => "waste",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Mapped => "share of base pages present",
            Self::Accessed => "share touched since the accessed bits were last cleared",
            Self::Huge => "share of regions mapped by a huge page",
            Self::Waste => "share of base pages zero-filled in huge pages",
        }
    }

    fn scale(self) -> Scale {
        const LOW: Rgb = Rgb(238, 238, 238);
        match self {
            Self::Mapped => Scale(LOW, Rgb(8, 69, 148)),
            Self::Accessed => Scale(LOW, Rgb(204, 94, 0)),
            Self::Huge => Scale(LOW, Rgb(35, 139, 69)),
            Self::Waste => Scale(LOW, Rgb(165, 15, 60)),
        }
    }

    fn of(self, region: &MappedRegion) -> Option<u32> {
        match self {
            Self::Mapped => Some(region.mapped.0),
            Self::Accessed => region.accessed.map(|pages| pages.0),
            Self::Huge => Some(if region.huge { REGION_PAGES } else { 0 }),
            Self::Waste => region.waste.map(|pages| pages.0),
        }
    }
}

/// Where nobody looked.
const UNKNOWN: Cell = Cell {
    colour: Rgb(200, 200, 215),
    character: '?',
};

/// A run of regions, as numbers of regions, and those of them with anything mapped.
struct Stretch<'a> {
    first: u64,
    end: u64,
    regions: &'a [MappedRegion],
}

impl Stretch<'_> {
    fn cells(&self, per_cell: u64) -> u64 {
        (self.end - self.first).div_ceil(per_cell)
    }

    fn sum(&self, of: impl Fn(&MappedRegion) -> Option<u32>) -> Option<u64> {
        self.regions
            .iter()
            .filter_map(of)
            .fold(None, |sum, n| Some(sum.unwrap_or(0) + u64::from(n)))
    }

    fn mapped(&self) -> u64 {
        self.sum(|r| Some(r.mapped.0)).unwrap_or(0)
    }

    /// The band's share of one cell: of regions that have a value; none if none has.
    fn share(&self, band: Band, cell: u64, per_cell: u64) -> Option<f64> {
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

    fn row(&self, band: Band, from: u64, to: u64, per_cell: u64) -> Vec<Cell> {
        (from..to)
            .map(|cell| match self.share(band, cell, per_cell) {
                Some(share) => Cell {
                    colour: band.scale().at(share),
                    character: ramp(share),
                },
                None => UNKNOWN,
            })
            .collect()
    }
}

/// One look at a process.
struct ProcessMap {
    pid: u32,
    name: String,
    seen: RegionMap,
}

/// Stretches laid out in cells.
struct Layout<'a> {
    per_cell: u64,
    stretches: Vec<Stretch<'a>>,
    /// Stretches left out, and their base pages.
    left_out: (usize, u64),
}

fn number(region: &MappedRegion) -> u64 {
    region.address / HUGE_PAGE_BYTES
}

/// Breaks the regions where more than `gap` of them have nothing mapped.
fn stretches(regions: &[MappedRegion], gap: u64) -> Vec<Stretch<'_>> {
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
fn layout(regions: &[MappedRegion], columns: u64, rows: u64) -> Layout<'_> {
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

fn percent(share: Option<f64>) -> String {
    share.map_or("?".into(), |share| format!("{:.0}%", 100.0 * share))
}

impl ProcessMap {
    fn pages(&self, of: impl Fn(&MappedRegion) -> Option<BasePages>) -> Option<u64> {
        let regions = &self.seen.regions;
        if regions.is_empty() {
            return Some(0);
        }
        let known = regions.iter().filter_map(of);
        known.fold(None, |sum, n| Some(sum.unwrap_or(0) + u64::from(n.0)))
    }

    fn title(&self) -> String {
        let bytes = |pages: Option<u64>| pages.map_or("?".into(), |n| Bytes(n * u64::from(1u32 << 12)).to_string());
        let huge = self.pages(|r| Some(if r.huge { r.mapped } else { BasePages::ZERO }));
        format!(
            "{} {}: {} in regions, {} huge, {} wasted",
            self.pid,
            self.name,
            bytes(self.pages(|r| Some(r.mapped))),
            bytes(huge),
            bytes(self.waste()),
        )
    }

    /// Zero-filled base pages; of huge pages that were not read, as many as of those that were.
    fn waste(&self) -> Option<u64> {
        let sum = self.pages(|r| r.waste)?;
        let (read, all) = self.seen.read;
        match (read, all) {
            (0, 0) => Some(0),
            (0, _) => None,
            _ => Some((u128::from(sum) * all as u128 / read as u128) as u64),
        }
    }

    fn scale(&self, layout: &Layout<'_>) -> String {
        let mut text = match layout.per_cell {
            1 => "a cell is one region of 2 MB".to_string(),
            n => format!("a cell is {n} regions of 2 MB, {}", Bytes(n * HUGE_PAGE_BYTES)),
        };
        if self.seen.elsewhere_bytes > 0 {
            text += &format!(
                "; {} more in mappings without a whole region",
                Bytes(self.seen.elsewhere_bytes)
            );
        }
        if layout.left_out.0 > 0 {
            let bytes = Bytes(layout.left_out.1 * u64::from(1u32 << 12));
            text += &format!("; {} smaller stretches with {bytes} not shown", layout.left_out.0);
        }
        if self.seen.read.0 < self.seen.read.1 {
            text += &format!("; waste: {} of {} huge pages read", self.seen.read.0, self.seen.read.1);
        }
        text
    }

    /// There is something, and nobody can see whether it was accessed.
    fn accessed_unseen(&self) -> bool {
        self.seen.regions.first().is_some_and(|r| r.accessed.is_none())
    }

    /// The bands that can be shown at all.
    fn bands(&self) -> Vec<Band> {
        let known = |band: &Band| self.seen.regions.iter().any(|r| band.of(r).is_some());
        Band::ALL.into_iter().filter(known).collect()
    }

    /// The names of the mappings in a stretch, by what they hold there, largest first.
    fn names(&self, stretch: &Stretch<'_>, most: usize) -> String {
        let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
        let vmas = &self.seen.vmas;
        for region in stretch.regions {
            let i = vmas.partition_point(|vma| vma.end <= region.address);
            let name = vmas.get(i).and_then(|vma| vma.name.as_deref()).unwrap_or("anonymous");
            let short = name.rsplit_once('/').map_or(name, |(_, file)| file);
            *sizes.entry(short).or_default() += u64::from(region.mapped.0);
        }
        let mut names: Vec<_> = sizes.into_iter().collect();
        names.sort_by_key(|(name, size)| (Reverse(*size), *name));
        let mut text: Vec<String> = names
            .iter()
            .take(2)
            .map(|(name, _)| printable(name).into_owned())
            .collect();
        if names.len() > 2 {
            text.push(format!("+{}", names.len() - 2));
        }
        text.join(", ").chars().take(most).collect()
    }

    /// A stretch in a line: where, what (in at most so many characters), how much.
    fn heading(&self, stretch: &Stretch<'_>, names_max: usize) -> String {
        let bytes = Bytes((stretch.end - stretch.first) * HUGE_PAGE_BYTES);
        let whole = (stretch.end - stretch.first) as f64 * f64::from(REGION_PAGES);
        let share = |band: Band| percent(stretch.sum(|r| band.of(r)).map(|n| n as f64 / whole));
        let shares: Vec<String> = self
            .bands()
            .into_iter()
            .map(|band| format!("{} {}", band.name(), share(band)))
            .collect();
        format!(
            "{:#x} {} {bytes}: {}",
            stretch.first * HUGE_PAGE_BYTES,
            self.names(stretch, names_max),
            shares.join(" ")
        )
    }

    fn gap(before: Option<&Stretch<'_>>, next: &Stretch<'_>) -> Option<String> {
        let gap = next.first - before?.end;
        Some(format!("... {} ...", Bytes(gap * HUGE_PAGE_BYTES)))
    }
}

impl Map for ProcessMap {
    fn text(&self, style: Style, lines: usize) -> String {
        const COLUMNS: u64 = 64;
        // A row takes a line for each band and two for a gap and a heading.
        let layout = layout(
            &self.seen.regions,
            COLUMNS,
            (lines.saturating_sub(6) / 6).clamp(2, 10) as u64,
        );
        let bands = self.bands();
        let mut out: String = self.title().chars().take(80).collect();
        out.push('\n');
        out += &wrapped("  ", &self.scale(&layout));
        out.push('\n');
        let mut before = None;
        for stretch in &layout.stretches {
            if let Some(gap) = Self::gap(before, stretch) {
                let _ = writeln!(out, "{gap:^80}", gap = gap);
                out.truncate(out.trim_end().len());
            }
            before = Some(stretch);
            let heading: String = self.heading(stretch, 11).chars().take(80).collect();
            let _ = writeln!(out, "\n{heading}");
            let cells = stretch.cells(layout.per_cell);
            for from in (0..cells).step_by(COLUMNS as usize) {
                let to = (from + COLUMNS).min(cells);
                for band in &bands {
                    let row = line(style, &stretch.row(*band, from, to, layout.per_cell), None);
                    let edge = if style == Style::Ascii { "|" } else { "" };
                    let pad = " ".repeat(match style {
                        Style::Ascii => (to - from) as usize - row.chars().count(),
                        Style::Colour => 0,
                    });
                    let _ = writeln!(out, "  {:<9}{edge}{row}{pad}{edge}", band.name());
                }
            }
        }
        if style == Style::Ascii {
            out += "\n  ' ' nothing, '.' little to '@' all\n";
        }
        if self.accessed_unseen() {
            out += "  (accessed pages: only the eBPF scanner can see them)\n";
        }
        out
    }

    fn scene(&self) -> Scene {
        const LEFT: i32 = 76;
        const COLUMNS: i32 = 140;
        const CELL: i32 = 6;
        const BAND: i32 = 10;
        let layout = layout(&self.seen.regions, COLUMNS as u64, 24);
        let bands = self.bands();
        let mut scene = Scene::new(LEFT + COLUMNS * CELL + 24);
        let most = (scene.width - 24) as usize;
        let cut = |text: String, size: Size| text.chars().take(most / size.advance() as usize).collect::<String>();
        scene.text(16, 12, Size::Large, Rgb::INK, cut(self.title(), Size::Large));
        scene.text(16, 32, Size::Small, Rgb::GREY, cut(self.scale(&layout), Size::Small));
        let mut y = 50;
        for band in &bands {
            scene.text(16, y, Size::Small, Rgb::INK, band.name());
            let x = scene.scale_bar(LEFT, y, band.scale(), "0", "100%");
            scene.text(x + 12, y, Size::Small, Rgb::GREY, band.meaning());
            y += 14;
        }
        if self.accessed_unseen() {
            scene.text(
                16,
                y,
                Size::Small,
                Rgb::GREY,
                "accessed: only the eBPF scanner can see it",
            );
            y += 14;
        }
        let mut before = None;
        for stretch in &layout.stretches {
            y += 8;
            if let Some(gap) = Self::gap(before, stretch) {
                let width = (gap.chars().count() as i32 + 2) * Size::Small.advance();
                let middle = LEFT + (COLUMNS * CELL - width) / 2;
                scene.rect(LEFT, y + 5, COLUMNS * CELL, 1, Rgb::FAINT);
                scene.rect(middle, y, width, 10, Rgb::WHITE);
                scene.text(middle + Size::Small.advance(), y, Size::Small, Rgb::GREY, gap);
                y += 16;
            }
            before = Some(stretch);
            scene.text(
                LEFT,
                y,
                Size::Small,
                Rgb::INK,
                cut(self.heading(stretch, 60), Size::Small),
            );
            y += 14;
            let cells = stretch.cells(layout.per_cell);
            for from in (0..cells).step_by(COLUMNS as usize) {
                let to = (from + COLUMNS as u64).min(cells);
                for band in &bands {
                    scene.text_left_of(LEFT - 6, y, Rgb::GREY, band.name());
                    for (i, cell) in (0..).zip(stretch.row(*band, from, to, layout.per_cell)) {
                        scene.rect(LEFT + i * CELL, y, CELL, BAND, cell.colour);
                    }
                    y += BAND + 1;
                }
                y += 5;
            }
        }
        scene
    }

    fn json(&self) -> Value {
        let vmas: Vec<Value> = self
            .seen
            .vmas
            .iter()
            .map(|vma| {
                json!({
                    "start": format!("{:#x}", vma.start),
                    "end": format!("{:#x}", vma.end),
                    "name": vma.name,
                })
            })
            .collect();
        let regions: Vec<Value> = self
            .seen
            .regions
            .iter()
            .map(|r| {
                json!({
                    "address": format!("{:#x}", r.address),
                    "mapped_pages": r.mapped.0,
                    "accessed_pages": r.accessed.map(|n| n.0),
                    "waste_pages": r.waste.map(|n| n.0),
                    "huge": r.huge,
                })
            })
            .collect();
        json!({
            "schema": 1,
            "kind": "map-process",
            "pid": self.pid,
            "name": self.name,
            "elsewhere_bytes": self.seen.elsewhere_bytes,
            "huge_pages_read": self.seen.read.0,
            "huge_pages": self.seen.read.1,
            "mappings": vmas,
            "regions": regions,
        })
    }
}

#[cfg(test)]
mod tests;
