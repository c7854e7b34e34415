//! Rows of cells as text: two rows of coloured cells a line on a terminal, a character a cell elsewhere.

use std::fmt::Write;
use std::io::IsTerminal;

use mega_cli::draw::colour::Rgb;

/// How to write cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One of 256 colours a cell.
    Colour,
    /// One ASCII character a cell.
    Ascii,
}

impl Style {
    /// Colour on a terminal that has it, unless the user wants none (NO_COLOR).
    pub fn of_stdout() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if std::io::stdout().is_terminal() && !dumb && !set("NO_COLOR") {
            Self::Colour
        } else {
            Self::Ascii
        }
    }
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Its colour.
    pub colour: Rgb,
    /// Its character in plain text.
    pub character: char,
}

/// A row of cells as one line's text. In colour, the row under it may share the line: half a character each.
pub fn line(style: Style, upper: &[Cell], lower: Option<&[Cell]>) -> String {
    match style {
        Style::Ascii => {
            let text: String = upper.iter().map(|cell| cell.character).collect();
            text.trim_end().to_string()
        }
        Style::Colour => coloured(upper, lower),
    }
}

fn coloured(upper: &[Cell], lower: Option<&[Cell]>) -> String {
    let mut out = String::new();
    let mut last = (None, None);
    for (i, cell) in upper.iter().enumerate() {
        let top = cell.colour.terminal();
        let bottom = lower.map(|row| row.get(i).map(|cell| cell.colour.terminal()));
        let (colours, character) = match bottom {
            // Without a lower row the upper one has the whole character.
            None => ((Some(top), None), '█'),
            Some(None) => ((Some(top), None), '▀'),
            Some(Some(bottom)) => ((Some(top), Some(bottom)), '▀'),
        };
        if colours != last {
            if colours.0 != last.0 {
                let _ = write!(out, "\x1b[38;5;{top}m");
            }
            if colours.1 != last.1 {
                let _ = match colours.1 {
                    Some(bottom) => write!(out, "\x1b[48;5;{bottom}m"),
                    None => write!(out, "\x1b[49m"),
                };
            }
            last = colours;
        }
        out.push(character);
    }
    if !upper.is_empty() {
        out += "\x1b[0m";
    }
    out
}

/// A legend's sample of a colour and its character.
pub fn swatch(style: Style, cell: Cell) -> String {
    match style {
        Style::Ascii => format!("'{}'", cell.character),
        Style::Colour => coloured(&[cell, cell], None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Cell = Cell {
        colour: Rgb(0, 0, 0),
        character: '#',
    };
    const B: Cell = Cell {
        colour: Rgb(255, 255, 255),
        character: ' ',
    };

    #[test]
    fn plain_text_has_no_escapes_and_no_trailing_blanks() {
        assert_eq!(line(Style::Ascii, &[A, B, A, B, B], Some(&[A])), "# #");
        assert_eq!(swatch(Style::Ascii, A), "'#'");
    }

    #[test]
    fn two_rows_share_a_line_in_colour_and_colours_are_written_only_where_they_change() {
        assert_eq!(line(Style::Colour, &[A, A], None), "\x1b[38;5;16m██\x1b[0m");
        assert_eq!(
            line(Style::Colour, &[A, A, B], Some(&[B, B])),
            "\x1b[38;5;16m\x1b[48;5;231m▀▀\x1b[38;5;231m\x1b[49m▀\x1b[0m"
        );
    }
}
