//! Services or processes, a row each; below, why the selected one is treated as it is.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use ratatui::Frame;

use super::{wrap, Palette};
use crate::figures::Column;
use crate::state::{Level, Row, State};

/// Lines of the box below, with its border.
const WHY_LINES: u16 = 6;

/// Widths: of the name, and of what is done; all others are fixed.
fn widths(total: usize) -> [usize; 9] {
    let fixed = [7, 8, 6, 6, 6, 6, 6];
    let between = fixed.len() + 1;
    let free = total.saturating_sub(fixed.iter().sum::<usize>() + between);
    let name = free * 3 / 5;
    let [count, resident, huge, cover, waste, gain, stall] = fixed;
    [name, count, resident, huge, cover, waste, gain, stall, free - name]
}

fn fit(text: &str, width: usize, left: bool) -> String {
    use ratatui::prelude::Text;
    let mut cut = String::new();
    // By columns on the screen, not characters.
    for c in text.chars() {
        cut.push(c);
        if Text::raw(cut.as_str()).width() > width {
            cut.pop();
            // What is cut says so.
            if let Some(last) = cut.pop() {
                cut.push(if last.is_ascii() { '~' } else { last });
            }
            break;
        }
    }
    let pad = " ".repeat(width.saturating_sub(Text::raw(cut.as_str()).width()));
    if left {
        cut + &pad
    } else {
        pad + &cut
    }
}

/// A line of texts in their columns.
fn line(texts: &[String; 9], width: usize) -> String {
    let widths = widths(width);
    let mut parts = Vec::new();
    for (i, column) in Column::ALL.iter().enumerate() {
        parts.push(fit(&texts[i], widths[i], column.is_text()));
    }
    parts.join(" ")
}

/// The heads of the columns; an arrow at the one that rows are sorted by.
fn head(state: &State) -> [String; 9] {
    let is_services = state.level == Level::Services;
    Column::ALL.map(|column| {
        let name = match column {
            Column::Name if is_services => "SERVICE",
            Column::Name => "PROCESS",
            Column::Count if is_services => "PROCS",
            Column::Count => "PID",
            Column::Resident => "RES",
            Column::Huge => "HUGE",
            Column::Coverage => "COVER",
            Column::Waste => "WASTE",
            Column::Gain => "GAIN",
            Column::Stall => "STALL",
            Column::Doing => "DOING",
        };
        match (column == state.sort, state.reverse) {
            (false, _) => name.to_string(),
            (true, false) => format!("{name}*"),
            (true, true) => format!("{name}^"),
        }
    })
}

fn texts(row: &Row) -> [String; 9] {
    Column::ALL.map(|column| match column {
        Column::Name => row.name.clone(),
        Column::Count => row.count.to_string(),
        Column::Doing => row.doing.clone(),
        column => column.text(&row.figures),
    })
}

/// All rows as lines of text, the heads first.
pub fn lines(state: &State, width: usize) -> Vec<String> {
    let rows = state.rows();
    let all = std::iter::once(head(state)).chain(rows.iter().map(texts));
    all.map(|texts| line(&texts, width).trim_end().to_string()).collect()
}

/// Draws them.
pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &mut State, palette: Palette) {
    let [top, list, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(WHY_LINES)]).areas(area);
    let width = usize::from(area.width);
    let rows = state.rows();
    let selected = state.selected(&rows);
    let page = usize::from(list.height);
    state.set_page(page);
    frame.render_widget(
        Paragraph::new(Span::styled(line(&head(state), width), palette.head())),
        top,
    );
    // The selected row stays in sight: in the middle, unless at an end.
    let first = selected.saturating_sub(page / 2).min(rows.len().saturating_sub(page));
    let shown = rows.iter().enumerate().skip(first).take(page).map(|(at, row)| {
        let mut text = line(&texts(row), width);
        if at != selected {
            return Line::from(text);
        }
        // Seen without reverse video, too.
        if text.ends_with(' ') {
            text.pop();
            text.push('<');
        }
        Line::from(Span::styled(text, palette.selected()))
    });
    let lines: Vec<Line<'_>> = if rows.is_empty() {
        let why = if state.filter.is_empty() {
            "nothing to show"
        } else {
            "nothing passes the filter"
        };
        vec![Line::from(format!("({why})"))]
    } else {
        shown.collect()
    };
    frame.render_widget(Paragraph::new(lines), list);
    let place = if rows.is_empty() {
        String::new()
    } else {
        format!(" {} of {} ", selected + 1, rows.len())
    };
    let block = Block::new().borders(Borders::TOP).title(place);
    let why = rows.get(selected).map(why).unwrap_or_default();
    let lines: Vec<Line<'_>> = why.iter().flat_map(|text| wrap(text, width)).map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(block), below);
}

/// What is done with it in full, and why.
fn why(row: &Row) -> Vec<String> {
    let mut text = format!("{}: {}", row.name, row.doing);
    let count = |n: Option<u64>, what: &str| n.map_or_else(String::new, |n| format!(", {n} {what}"));
    text += &count(row.figures.promotions, "promotions");
    text += &count(row.figures.demotions, "demotions");
    let mut lines = vec![text];
    lines.extend(row.why.iter().cloned());
    lines
}
