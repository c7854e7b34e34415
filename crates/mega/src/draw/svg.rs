//! A scene as SVG.

use mega_cli::draw::scene::{Item, Scene, Size};
use mega_cli::draw::svg::Svg;

/// Space at the lower edge.
const MARGIN: i32 = 12;

/// The picture's text.
pub fn svg(scene: &Scene) -> String {
    let (width, height) = (f64::from(scene.width), f64::from(scene.height + MARGIN));
    let mut svg = Svg::document(
        width,
        height,
        r#"font-family="monospace" shape-rendering="crispEdges""#,
        "",
    );
    for item in &scene.items {
        match item {
            Item::Rect { x, y, w, h, fill } => {
                let [x, y, w, h] = [*x, *y, *w, *h].map(f64::from);
                svg.rect((x, y), (w, h), *fill);
            }
            Item::Text { x, y, size, fill, text } => {
                let (font, baseline) = match size {
                    Size::Small => ((10, "normal"), y + 8),
                    Size::Large => ((15, "bold"), y + 12),
                };
                let length = text.chars().count() as i32 * size.advance();
                let at = (f64::from(*x), f64::from(baseline));
                svg.text_of_length(at, font, length.into(), *fill, text);
            }
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_cli::draw::colour::Rgb;

    #[test]
    fn rectangles_and_texts_are_written_and_names_cannot_break_out() {
        let mut scene = Scene::new(100);
        scene.rect(1, 2, 3, 4, Rgb(255, 0, 16));
        scene.rect(4, 2, 3, 4, Rgb(255, 0, 16));
        scene.text(5, 20, Size::Small, Rgb::INK, "</text><script>'&\u{1b}");
        let text = svg(&scene);
        assert_eq!(text.matches("<rect").count(), 2, "the paper, and two that were joined");
        assert!(
            text.contains("<rect x=\"1\" y=\"2\" width=\"6\" height=\"4\" fill=\"#ff0010\"/>"),
            "{text}"
        );
        assert!(
            text.contains(">&lt;/text&gt;&lt;script&gt;&#39;&amp; </text>"),
            "{text}"
        );
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
    }
}
