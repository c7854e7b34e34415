//! A scene as SVG.

use std::fmt::Write;

use super::scene::{Item, Scene, Size};

/// Space at the lower edge.
const MARGIN: i32 = 12;

/// The picture's text.
pub fn svg(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height + MARGIN);
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' \
         font-family='monospace' shape-rendering='crispEdges'>\n<rect width='{width}' height='{height}' fill='#ffffff'/>\n"
    );
    for item in &scene.items {
        let _ = match item {
            Item::Rect { x, y, w, h, fill } => {
                writeln!(
                    out,
                    "<rect x='{x}' y='{y}' width='{w}' height='{h}' fill='{}'/>",
                    fill.hex()
                )
            }
            Item::Text { x, y, size, fill, text } => {
                let (px, weight, baseline) = match size {
                    Size::Small => (10, "normal", y + 8),
                    Size::Large => (15, "bold", y + 12),
                };
                let length = text.chars().count() as i32 * size.advance();
                writeln!(
                    out,
                    "<text x='{x}' y='{baseline}' font-size='{px}' font-weight='{weight}' textLength='{length}' \
                     lengthAdjust='spacingAndGlyphs' xml:space='preserve' fill='{}'>{}</text>",
                    fill.hex(),
                    escaped(text)
                )
            }
        };
    }
    out += "</svg>\n";
    out
}

/// Names come from other programs: nothing in them may end the text, and nothing may be what XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\'' => out += "&apos;",
            '"' => out += "&quot;",
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::colour::Rgb;

    #[test]
    fn rectangles_and_texts_are_written_and_names_cannot_break_out() {
        let mut scene = Scene::new(100);
        scene.rect(1, 2, 3, 4, Rgb(255, 0, 16));
        scene.rect(4, 2, 3, 4, Rgb(255, 0, 16));
        scene.text(5, 20, Size::Small, Rgb::INK, "</text><script>'&\u{1b}");
        let text = svg(&scene);
        assert_eq!(text.matches("<rect").count(), 2, "the paper, and two that were joined");
        assert!(
            text.contains("<rect x='1' y='2' width='6' height='4' fill='#ff0010'/>"),
            "{text}"
        );
        assert!(
            text.contains(">&lt;/text&gt;&lt;script&gt;&apos;&amp;?</text>"),
            "{text}"
        );
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
    }
}
