//! `mega-lab png`: a scene as PNG. Our own pixels, letters by embedded-graphics, compression by png.

use std::io::Read;

use anyhow::{Context, Result};
use embedded_graphics::mono_font::ascii::{FONT_6X10, FONT_9X15_BOLD};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{DrawTarget, Drawable, OriginDimensions, Pixel, Point, RgbColor};
use embedded_graphics::text::{Baseline, Text};

use mega_cli::draw::colour::Rgb;
use mega_cli::draw::scene::{Item, Scene, Size};

use crate::args::PngArgs;

/// Space at the lower edge.
const MARGIN: i32 = 12;

/// Pixels, three bytes each, row by row.
struct Pixels {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            bytes: vec![255; width * height * 3],
        }
    }

    /// Fills a rectangle; what lies outside of the picture is cut off.
    fn fill(&mut self, x: i32, y: i32, w: i32, h: i32, Rgb(r, g, b): Rgb) {
        let within = |n: i32, most: usize| usize::try_from(n).unwrap_or(0).min(most);
        let (left, right) = (within(x, self.width), within(x.saturating_add(w), self.width));
        for row in within(y, self.height)..within(y.saturating_add(h), self.height) {
            let from = (row * self.width + left) * 3;
            let to = (row * self.width + right.max(left)) * 3;
            for pixel in self.bytes[from..to].chunks_exact_mut(3) {
                pixel.copy_from_slice(&[r, g, b]);
            }
        }
    }
}

impl OriginDimensions for Pixels {
    fn size(&self) -> embedded_graphics::geometry::Size {
        embedded_graphics::geometry::Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Pixels {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Self::Error> {
        for Pixel(at, colour) in pixels {
            self.fill(at.x, at.y, 1, 1, Rgb(colour.r(), colour.g(), colour.b()));
        }
        Ok(())
    }
}

fn paint(scene: &Scene) -> Pixels {
    let mut pixels = Pixels::new(scene.width.max(1) as usize, (scene.height + MARGIN) as usize);
    for item in &scene.items {
        match item {
            Item::Rect { x, y, w, h, fill } => pixels.fill(*x, *y, *w, *h, *fill),
            Item::Text { x, y, size, fill, text } => {
                let font = match size {
                    Size::Small => &FONT_6X10,
                    Size::Large => &FONT_9X15_BOLD,
                };
                let style = MonoTextStyle::new(font, Rgb888::new(fill.0, fill.1, fill.2));
                let Ok(_) = Text::with_baseline(text, Point::new(*x, *y), style, Baseline::Top).draw(&mut pixels);
            }
        }
    }
    pixels
}

/// Reads a scene as JSON from standard input, and writes the file.
pub fn run(args: &PngArgs) -> Result<()> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the picture")?;
    let scene: Scene = serde_json::from_str(&text).context("standard input holds no picture")?;
    let path = &args.output;
    std::fs::write(path, png(&scene)?).with_context(|| format!("cannot write {}", path.display()))
}

/// The picture's bytes.
fn png(scene: &Scene) -> Result<Vec<u8>> {
    let pixels = paint(scene);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, pixels.width as u32, pixels.height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().context("cannot begin the picture")?;
    writer
        .write_image_data(&pixels.bytes)
        .context("cannot compress the picture")?;
    writer.finish().context("cannot end the picture")?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_pixel_by_pixel() {
        let mut scene = Scene::new(40);
        scene.rect(-5, 1, 10, 2, Rgb(9, 8, 7));
        scene.rect(30, 3, 100, 1, Rgb(1, 2, 3));
        scene.text(2, 8, Size::Small, Rgb(200, 0, 0), "I\u{e9}");
        let mut reader = png::Decoder::new(std::io::Cursor::new(png(&scene).unwrap()))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.width, info.height), (40, 18 + 12));
        let at = |x: usize, y: usize| {
            Rgb(
                bytes[(y * 40 + x) * 3],
                bytes[(y * 40 + x) * 3 + 1],
                bytes[(y * 40 + x) * 3 + 2],
            )
        };
        assert_eq!(
            (at(0, 0), at(0, 1), at(4, 2), at(5, 2)),
            (Rgb::WHITE, Rgb(9, 8, 7), Rgb(9, 8, 7), Rgb::WHITE)
        );
        assert_eq!(
            (at(29, 3), at(30, 3), at(39, 3)),
            (Rgb::WHITE, Rgb(1, 2, 3), Rgb(1, 2, 3))
        );
        let red = (0..40 * 30).filter(|i| at(i % 40, i / 40) == Rgb(200, 0, 0)).count();
        assert!(red > 10, "letters leave pixels: {red}");
    }
}
