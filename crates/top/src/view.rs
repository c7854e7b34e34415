//! The screen, drawn from the state. Nothing is said by colour alone.

mod map;
mod palette;
mod table;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::Frame;

use mega_cli::text::printable;
use mega_core::units::{show_duration, Bytes};

use crate::state::{Level, State};

pub use palette::Palette;
pub use table::lines;

/// The least that there is room on.
pub const LEAST: (u16, u16) = (80, 16);

const HELP: [(&str, &str); 12] = [
    ("up down, j k", "select; scroll a map"),
    ("PgUp PgDn Home End", "by pages, to the first, to the last"),
    ("Enter", "a service's processes; a process's map of regions"),
    ("Esc", "back; first the filter goes"),
    ("Tab", "services, or all processes"),
    ("< >, s S", "sort by the next column"),
    ("1 to 9", "sort by this column; again: the other way around"),
    ("r", "the other way around"),
    ("/", "filter by name, number or what is done; Esc drops it"),
    ("p, Space", "pause"),
    ("? h", "this help"),
    ("q, Ctrl-C", "leave"),
];

const MEANING: [&str; 7] = [
    "RESIDENT memory; HUGE of it in huge pages; COVER the share.",
    "WASTE: zero-filled base pages in huge pages.",
    "GAIN by huge pages and felt STALL: shares of time, by the daemon; a service",
    "has its processes' largest.",
    "DOING: what the daemon does; below, why, and why not more.",
    "?: nobody could look (yet). -: nobody measures it.",
    "Map: ' ' nothing, '.' little to '@' all, '?' unknown.",
];

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, palette: Palette) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!(
            "{} x {} is too small: {} x {} at least (q leaves)",
            area.width, area.height, LEAST.0, LEAST.1
        );
        let lines: Vec<Line<'_>> = wrap(&text, area.width.into()).into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(Paragraph::new(vec![title(state, palette), machine(state)]), head);
    match state.level {
        Level::Map(_) => map::draw(frame, body, state, palette),
        _ => table::draw(frame, body, state, palette),
    }
    frame.render_widget(Paragraph::new(footer(state, palette)), foot);
    if state.help {
        help(frame, area, palette);
    }
}

fn title(state: &State, palette: Palette) -> Line<'static> {
    let what = match &state.level {
        Level::Services => "services".to_string(),
        Level::Processes(None) => "all processes".to_string(),
        Level::Processes(Some(service)) => format!("processes of {service}"),
        Level::Map(pid) => {
            let name = state.process().map_or("", |process| process.name.as_str());
            format!("regions of {pid} {name}")
        }
    };
    let mut spans = vec![
        Span::styled("mega top", palette.strong()),
        Span::raw(format!("  {what}")),
    ];
    if state.paused {
        spans.push(Span::styled("  [paused]", palette.warn()));
    }
    if !state.filter.is_empty() || state.editing {
        let cursor = if state.editing { "_" } else { "" };
        spans.push(Span::raw(format!("  filter: {}{cursor}", printable(&state.filter))));
    }
    Line::from(spans)
}

/// The machine, and the daemon or why there is none.
fn machine(state: &State) -> Line<'static> {
    let look = &state.look;
    let mut parts = Vec::new();
    if let Some([total, available, huge]) = look.memory {
        parts.push(format!(
            "memory {}, {} available, {} huge",
            Bytes(total),
            Bytes(available),
            Bytes(huge)
        ));
    }
    parts.push(match &look.daemon {
        Ok(daemon) => {
            let dry = if daemon.dry_run { ", dry run" } else { "" };
            let refused = if daemon.refused.is_empty() {
                ""
            } else {
                ", last reload refused"
            };
            format!("daemon {}: {} rules{dry}{refused}", daemon.pid, daemon.rules)
        }
        Err(why) => printable(why).into_owned(),
    });
    if look.scanner.is_err() {
        parts.push("waste unknown: page tables are not ours to read".to_string());
    }
    Line::from(parts.join(" | "))
}

fn footer(state: &State, palette: Palette) -> Line<'static> {
    let keys: &[(&str, &str)] = match (&state.level, state.editing) {
        (_, true) => &[("Enter", "keep"), ("Esc", "drop")],
        (Level::Map(_), _) => &[
            ("up down", "scroll"),
            ("Esc", "back"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
        _ => &[
            ("Enter", "open"),
            ("Esc", "back"),
            ("Tab", "view"),
            ("<>", "sort"),
            ("r", "reverse"),
            ("/", "filter"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled((*key).to_string(), palette.strong()));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    spans.push(Span::raw(format!("({})", show_duration(state.look.took))));
    Line::from(spans)
}

fn help(frame: &mut Frame<'_>, area: Rect, palette: Palette) {
    let mut lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<19}"), palette.strong()),
                Span::raw(*what),
            ])
        })
        .collect();
    lines.extend(MEANING.iter().map(|line| Line::from(format!(" {line}"))));
    let height = (lines.len() as u16 + 2).min(area.height);
    let width = area.width.min(80);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" keys and columns; any key closes ");
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

/// Lines of at most so many characters, broken between words.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests;
