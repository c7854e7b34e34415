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
use mega_cli::draw::colour::{ramp, Rgb};
use mega_cli::draw::regions::{layout, Band, Layout, Stretch};
use mega_cli::draw::scene::{Scene, Size};
use mega_cli::exit::tell;
use mega_cli::text::{printable, wrapped};

/// Huge pages whose contents are read at most, evenly spaced.
const READ_MAX: usize = 8192;

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

/// Where nobody looked.
const UNKNOWN: Cell = Cell {
    colour: Rgb(200, 200, 215),
    character: '?',
};

/// A band's cells of a stretch.
fn row(stretch: &Stretch<'_>, band: Band, from: u64, to: u64, per_cell: u64) -> Vec<Cell> {
    (from..to)
        .map(|cell| match stretch.share(band, cell, per_cell) {
            Some(share) => Cell {
                colour: band.scale().at(share),
                character: ramp(share),
            },
            None => UNKNOWN,
        })
        .collect()
}

/// One look at a process.
struct ProcessMap {
    pid: u32,
    name: String,
    seen: RegionMap,
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
                    let row = line(style, &row(stretch, *band, from, to, layout.per_cell), None);
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
                    for (i, cell) in (0..).zip(row(stretch, *band, from, to, layout.per_cell)) {
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
