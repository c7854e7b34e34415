//! The one writer of SVG: its few elements, escaping, and fitting text. Figures in a page take their colours from its style sheet, documents
//! have their own.

use std::fmt::Write;

use super::colour::Rgb;

/// Height of a character, in units of the viewBox.
pub const TEXT: f64 = 12.0;

/// How an element is painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint<'a> {
    /// By a class of the style sheet.
    Class(&'a str),
    /// Filled with a colour.
    Fill(Rgb),
}

impl<'a> From<&'a str> for Paint<'a> {
    fn from(class: &'a str) -> Self {
        Self::Class(class)
    }
}

impl<'a> From<&'a String> for Paint<'a> {
    fn from(class: &'a String) -> Self {
        Self::Class(class)
    }
}

impl From<Rgb> for Paint<'_> {
    fn from(colour: Rgb) -> Self {
        Self::Fill(colour)
    }
}

impl std::fmt::Display for Paint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Class(class) => write!(f, "class=\"{}\"", escape(class)),
            Self::Fill(colour) => write!(f, "fill=\"{}\"", colour.hex()),
        }
    }
}

/// A coordinate, with a digit after the point where it needs one.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

/// Position of a text relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// To its right.
    Start,
    /// Around it.
    Middle,
    /// To its left.
    End,
}

/// A picture in the making. All text in it is escaped here.
#[derive(Debug, Clone, PartialEq)]
pub struct Svg {
    head: String,
    body: String,
}

impl Svg {
    /// An empty figure for a page of HTML, as wide as its place; `label` is read out by screen readers.
    #[must_use]
    pub fn figure(width: f64, height: f64, label: &str) -> Self {
        let (width, height) = (number(width), number(height));
        Self {
            head: format!(
                "viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\"",
                escape(label)
            ),
            body: String::new(),
        }
    }

    /// An empty document on white paper with this style sheet and further attributes of its root (`font-family="monospace"`).
    #[must_use]
    pub fn document(width: f64, height: f64, attributes: &str, style: &str) -> Self {
        let (w, h) = (number(width), number(height));
        let mut svg = Self {
            head: format!(
                "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" {attributes}"
            ),
            body: String::new(),
        };
        if !style.is_empty() {
            svg.put(format_args!("<style>{style}</style>"));
        }
        svg.rect((0.0, 0.0), (width, height), Rgb::WHITE);
        svg
    }

    /// A text.
    pub fn text<'a>(&mut self, at: (f64, f64), anchor: Anchor, paint: impl Into<Paint<'a>>, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.text_with(at, paint, anchor, text);
    }

    /// A text of fixed length, whatever the font: as wide as its pixels are in a raster picture.
    pub fn text_of_length(
        &mut self,
        at: (f64, f64),
        (height, weight): (u32, &str),
        length: f64,
        fill: Rgb,
        text: &str,
    ) {
        let attributes = format!(
            " font-size=\"{height}\" font-weight=\"{weight}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" \
             xml:space=\"preserve\"",
            number(length)
        );
        self.text_with(at, fill, &attributes, text);
    }

    fn text_with<'a>(&mut self, (x, y): (f64, f64), paint: impl Into<Paint<'a>>, attributes: &str, text: &str) {
        let (x, y, paint, text) = (number(x), number(y), paint.into(), escape(text));
        self.put(format_args!(
            r#"<text x="{x}" y="{y}" {paint}{attributes}>{text}</text>"#
        ));
    }

    /// A straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(number);
        self.put(format_args!(
            r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#
        ));
    }

    /// A rectangle by its upper left corner.
    pub fn rect<'a>(&mut self, at: (f64, f64), size: (f64, f64), paint: impl Into<Paint<'a>>) {
        self.rect_with(at, size, "", paint.into());
    }

    /// A rectangle with rounded corners.
    pub fn bar<'a>(&mut self, at: (f64, f64), size: (f64, f64), paint: impl Into<Paint<'a>>) {
        self.rect_with(at, size, r#" rx="1.5""#, paint.into());
    }

    fn rect_with(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), corners: &str, paint: Paint<'_>) {
        let [x, y, w, h] = [x, y, width.max(0.0), height.max(0.0)].map(number);
        self.put(format_args!(
            r#"<rect x="{x}" y="{y}" width="{w}" height="{h}"{corners} {paint}/>"#
        ));
    }

    /// A dot with a tooltip.
    pub fn dot(&mut self, (x, y): (f64, f64), class: &str, title: &str) {
        let (x, y, title) = (number(x), number(y), escape(title));
        self.put(format_args!(
            r#"<circle cx="{x}" cy="{y}" r="3" class="{class}"><title>{title}</title></circle>"#
        ));
    }

    /// Many dots as one element: the class gives width, cap and colour of the stroke.
    pub fn dots(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str) {
        let mut d = String::new();
        for (x, y) in points {
            let _ = write!(d, "M{} {}h0", number(x), number(y));
        }
        self.put(format_args!(r#"<path d="{d}" class="{class}"/>"#));
    }

    /// A line through points, broken between the parts.
    pub fn path(&mut self, parts: &[Vec<(f64, f64)>], class: &str) {
        let mut d = String::new();
        for part in parts {
            for (index, (x, y)) in part.iter().enumerate() {
                // A single point would be invisible: it becomes a short dash.
                let letter = if index == 0 { 'M' } else { 'L' };
                let _ = write!(d, "{letter}{} {}", number(*x), number(*y));
                if part.len() == 1 {
                    let _ = write!(d, "h2");
                }
            }
        }
        self.put(format_args!(r#"<path d="{d}" class="{class}"/>"#));
    }

    /// A filled shape.
    pub fn area(&mut self, points: &[(f64, f64)], class: &str) {
        let list: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{},{}", number(*x), number(*y)))
            .collect();
        self.put(format_args!(
            r#"<polygon points="{}" class="{class}"/>"#,
            list.join(" ")
        ));
    }

    /// A group of what `draw` draws, with a tooltip.
    pub fn group(&mut self, class: &str, title: &str, draw: impl FnOnce(&mut Self)) {
        self.put(format_args!(r#"<g class="{class}"><title>{}</title>"#, escape(title)));
        draw(self);
        self.put(format_args!("</g>"));
    }

    /// The finished element.
    #[must_use]
    pub fn finish(self) -> String {
        format!("<svg {}>\n{}</svg>\n", self.head, self.body)
    }

    fn put(&mut self, element: std::fmt::Arguments) {
        let _ = writeln!(self.body, "{element}");
    }
}

/// `text` for HTML and SVG, in elements and in attributes. Control characters and what XML does not allow become spaces.
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
            c if (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Estimated width of `text` in a plain sans-serif font of height [`TEXT`], an upper bound.
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

/// `text`, with its middle replaced by … when it is wider than `room`.
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
        let mut svg = Svg::figure(400.0, 10.0, "\"><script>");
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
