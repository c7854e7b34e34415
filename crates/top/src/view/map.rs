//! One process's regions: bands of what is mapped, accessed, huge and wasted.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::Frame;

use mega_cli::draw::colour::ramp;
use mega_cli::draw::regions::{layout, Band, Layout, Stretch};
use mega_cli::text::printable;
use mega_core::units::{Bytes, BASE_PAGE_BYTES, HUGE_PAGE_BYTES, REGION_PAGES};
use mega_linux::inspect::regions::RegionMap;

use super::{wrap, Palette};
use crate::figures::{percent, Column, Figures};
use crate::state::State;

/// Before and after the cells of a row: a band's name and the edges.
const BESIDE: u64 = 11;

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &mut State, palette: Palette) {
    let width = usize::from(area.width);
    let mut lines: Vec<Line<'_>> = summary(state)
        .iter()
        .flat_map(|text| wrap(text, width))
        .map(Line::from)
        .collect();
    match state.map().map(|map| &map.regions) {
        Some(Ok(regions)) => lines.extend(body(regions, area, palette)),
        Some(Err(why)) => lines.extend(wrap(&printable(why), width).into_iter().map(Line::from)),
        None => lines.push(Line::from("(looking)")),
    }
    let page = usize::from(area.height);
    state.scroll = state.scroll.min(lines.len().saturating_sub(page));
    let last = state.scroll + page;
    if lines.len() > last {
        // There is more: the last line says so.
        let more = lines.len() - last + 1;
        lines.truncate(last - 1);
        lines.push(Line::from(format!("... {more} lines more")));
    }
    state.set_page(page);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(state.scroll).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

fn summary(state: &State) -> Vec<String> {
    let Some(process) = state.process() else {
        let why = if state.look.processes.is_empty() {
            "(looking)"
        } else {
            "(it has ended, or is smaller than what is shown)"
        };
        return vec![why.to_string()];
    };
    let figure = |column: Column, figures: &Figures| format!("{} {}", column.name(), column.text(figures));
    let columns = [
        Column::Resident,
        Column::Huge,
        Column::Coverage,
        Column::Waste,
        Column::Gain,
        Column::Stall,
    ];
    let figures = columns.map(|column| figure(column, &process.figures)).join("  ");
    let mut lines = vec![figures, format!("{}; {}", process.doing, process.why.join("; "))];
    lines
        .iter_mut()
        .for_each(|line| line.truncate(line.trim_end_matches("; ").len()));
    lines
}

fn body(seen: &RegionMap, area: Rect, palette: Palette) -> Vec<Line<'static>> {
    let bands: Vec<Band> = Band::ALL
        .into_iter()
        .filter(|band| seen.regions.iter().any(|region| band.of(region).is_some()))
        .collect();
    let columns = u64::from(area.width).saturating_sub(BESIDE).max(1);
    // A row of cells takes a line for each band, and one for its heading.
    let rows = (u64::from(area.height).saturating_sub(4) / (bands.len() as u64 + 1)).max(2);
    let laid = layout(&seen.regions, columns, rows);
    let mut lines: Vec<Line<'static>> = wrap(&scale(seen, &laid), area.width.into())
        .into_iter()
        .map(Line::from)
        .collect();
    for stretch in &laid.stretches {
        let heading: String = heading(seen, stretch, &bands).chars().take(area.width.into()).collect();
        lines.push(Line::from(Span::styled(heading, palette.strong())));
        let cells = stretch.cells(laid.per_cell);
        for from in (0..cells).step_by(columns as usize) {
            let to = (from + columns).min(cells);
            lines.extend(
                bands
                    .iter()
                    .map(|band| row(stretch, *band, from..to, laid.per_cell, palette)),
            );
        }
    }
    lines
}

fn scale(seen: &RegionMap, laid: &Layout<'_>) -> String {
    let mut text = match laid.per_cell {
        1 => "a cell is a region of 2 MB".to_string(),
        n => format!("a cell is {n} regions of 2 MB, {}", Bytes(n * HUGE_PAGE_BYTES)),
    };
    if seen.elsewhere_bytes > 0 {
        text += &format!(
            "; {} more in mappings without a whole region",
            Bytes(seen.elsewhere_bytes)
        );
    }
    if laid.left_out.0 > 0 {
        let bytes = Bytes(laid.left_out.1 * BASE_PAGE_BYTES);
        text += &format!("; {} smaller stretches with {bytes} not shown", laid.left_out.0);
    }
    if seen.read.0 < seen.read.1 {
        text += &format!("; waste: {} of {} huge pages read", seen.read.0, seen.read.1);
    }
    text
}

fn heading(seen: &RegionMap, stretch: &Stretch<'_>, bands: &[Band]) -> String {
    let regions = stretch.end - stretch.first;
    let whole = regions as f64 * f64::from(REGION_PAGES);
    let shares: Vec<String> = bands
        .iter()
        .filter_map(|band| {
            let sum = stretch.sum(|region| band.of(region))?;
            Some(format!("{} {}", band.name(), percent(sum as f64 / whole)))
        })
        .collect();
    let first = stretch.regions.first().map_or(0, |region| region.address);
    let vma = seen.vmas.get(seen.vmas.partition_point(|vma| vma.end <= first));
    let name = vma.and_then(|vma| vma.name.as_deref()).unwrap_or("anonymous");
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let short: String = printable(file).chars().take(16).collect();
    format!(
        "{:#x} {short} {}: {}",
        stretch.first * HUGE_PAGE_BYTES,
        Bytes(regions * HUGE_PAGE_BYTES),
        shares.join(" ")
    )
}

fn row(
    stretch: &Stretch<'_>,
    band: Band,
    cells: std::ops::Range<u64>,
    per_cell: u64,
    palette: Palette,
) -> Line<'static> {
    let mut spans = vec![Span::raw(format!("{:>9}|", band.name()))];
    for cell in cells {
        spans.push(match stretch.share(band, cell, per_cell) {
            Some(share) => Span::styled(ramp(share).to_string(), palette.cell(band.scale(), share)),
            None => Span::raw("?"),
        });
    }
    spans.push(Span::raw("|"));
    Line::from(spans)
}
