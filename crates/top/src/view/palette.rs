//! Colours, or none.

use ratatui::style::{Color, Modifier, Style};

use mega_cli::draw::colour::{Rgb, Scale};

/// What the terminal and the user want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Palette {
    /// Of 256 colours.
    Colour,
    /// None (NO_COLOR).
    Plain,
}

impl Palette {
    /// Colour, unless NO_COLOR is set or the terminal has none.
    #[must_use]
    pub fn of_environment() -> Self {
        let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_mono = std::env::var("TERM").is_ok_and(|term| matches!(term.as_str(), "dumb" | "vt100" | "vt220"));
        if is_set || is_mono {
            Self::Plain
        } else {
            Self::Colour
        }
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        match self {
            Self::Colour => style.fg(colour),
            Self::Plain => style,
        }
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn warn(self) -> Style {
        self.coloured(self.strong(), Color::Yellow)
    }

    pub(super) fn head(self) -> Style {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A cell of a map: its character has the meaning, too.
    pub(super) fn cell(self, scale: Scale, share: f64) -> Style {
        if self == Self::Plain {
            return Style::new();
        }
        let colour = scale.at(share);
        let Rgb(r, g, b) = colour;
        let is_dark = u32::from(r) * 3 + u32::from(g) * 6 + u32::from(b) < 1280;
        let ink = if is_dark { Rgb::WHITE } else { Rgb::INK };
        Style::new()
            .bg(Color::Indexed(colour.terminal()))
            .fg(Color::Indexed(ink.terminal()))
    }
}
