//! The few elements of SVG that the figures are made of.

use std::fmt::Write;

use super::WIDTH;

/// Height of a character, in units of the viewBox.
pub const TEXT: f64 = 12.0;

/// Where a text stands to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// To its right.
    Start,
    /// Around it.
    Middle,
    /// To its left.
    End,
}

/// A figure in the making. Everything that is text in it is escaped here.
#[derive(Debug, Clone, PartialEq)]
pub struct Svg {
    height: f64,
    label: String,
    body: String,
}

impl Svg {
    /// An empty figure of [`WIDTH`] by `height`; `label` is read out by screen readers.
    #[must_use]
    pub fn new(height: f64, label: &str) -> Self {
        Self {
            height,
            label: label.to_string(),
            body: String::new(),
        }
    }

    /// A text.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}"{anchor}>{}</text>"#,
            escape(text)
        ));
    }

    /// A straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.put(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    /// A rectangle with its upper left corner.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        let (w, h) = (width.max(0.0), height.max(0.0));
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" rx="1.5" class="{class}"/>"#
        ));
    }

    /// A dot with what it says when pointed at.
    pub fn dot(&mut self, (x, y): (f64, f64), class: &str, title: &str) {
        let title = escape(title);
        self.put(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" class="{class}"><title>{title}</title></circle>"#
        ));
    }

    /// A line through points, broken between the parts.
    pub fn path(&mut self, parts: &[Vec<(f64, f64)>], class: &str) {
        let mut d = String::new();
        for part in parts {
            for (index, (x, y)) in part.iter().enumerate() {
                // A point alone would not be seen: it becomes a short dash.
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(d, "{letter}{x:.1} {y:.1}");
                if part.len() == 1 {
                    let _ = write!(d, "h2");
                }
            }
        }
        self.put(format_args!(r#"<path d="{d}" class="{class}"/>"#));
    }

    /// A filled shape.
    pub fn area(&mut self, points: &[(f64, f64)], class: &str) {
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.put(format_args!(
            r#"<polygon points="{}" class="{class}"/>"#,
            list.join(" ")
        ));
    }

    /// What is drawn in `draw` belongs together, and says `title` when pointed at.
    pub fn group(&mut self, class: &str, title: &str, draw: impl FnOnce(&mut Self)) {
        self.put(format_args!(r#"<g class="{class}"><title>{}</title>"#, escape(title)));
        draw(self);
        self.put(format_args!("</g>"));
    }

    /// The finished element.
    #[must_use]
    pub fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.height,
            escape(&self.label),
            self.body
        )
    }

    fn put(&mut self, element: std::fmt::Arguments) {
        let _ = writeln!(self.body, "{element}");
    }
}

/// `text` for HTML and SVG, in elements and in attributes. Control characters become spaces.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// About how wide `text` is in a plain sans-serif font of height [`TEXT`]; rather too much than too little.
#[must_use]
pub fn width_of(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' | '-' | '(' | ')' | '/' => {
            0.38
        }
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 1.0,
        'A'..='Z' => 0.74,
        '\0'..='\u{2ff}' => 0.62,
        _ => 1.05,
    };
    text.chars().map(width).sum::<f64>() * TEXT
}

/// `text`, its middle left out when it is wider than `room`.
#[must_use]
pub fn fitted(text: &str, room: f64) -> String {
    if width_of(text) <= room {
        return text.to_string();
    }
    let chars: Vec<char> = text.chars().collect();
    let cut = |kept: usize| -> String {
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let start = chars[..head].iter();
        let end = chars[chars.len() - tail..].iter();
        start.chain(['…'].iter()).chain(end).collect()
    };
    let longest = (0..chars.len()).rev().map(cut).find(|text| width_of(text) <= room);
    longest.unwrap_or_else(|| "…".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_text_can_become_an_element() {
        let mut svg = Svg::new(10.0, "\"><script>");
        svg.text((1.0, 2.0), Anchor::End, "name", "<b>&'");
        svg.group("v0", "</title><script>", |svg| svg.dot((0.0, 0.0), "dot", "<"));
        let text = svg.finish();
        assert!(!text.contains("<script>") && !text.contains("<b>"), "{text}");
        assert!(text.contains("&lt;b&gt;&amp;&#39;"), "{text}");
        assert!(text.starts_with("<svg viewBox=\"0 0 400 10\""), "{text}");
        assert_eq!(escape("a\u{1b}[2Jb"), "a [2Jb");
    }

    #[test]
    fn a_text_is_cut_in_its_middle_to_the_room_there_is() {
        assert_eq!(fitted("base", 90.0), "base");
        let cut = fitted("ethp:a-long-name,max=100%", 90.0);
        assert!(
            cut.starts_with("ethp") && cut.ends_with("00%") && cut.contains('…'),
            "{cut}"
        );
        assert!(width_of(&cut) <= 90.0);
        assert_eq!(fitted("長い名前です", 5.0), "…");
    }
}
