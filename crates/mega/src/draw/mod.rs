//! Drawing: a picture as SVG, or by mega-lab as PNG, and heat maps on a terminal.

mod svg;
pub mod terminal;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use mega_cli::draw::scene::Scene;
use mega_cli::exit::Failure;
use mega_cli::hand_over;

/// The kind of file that a name asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Scalable.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// From the end of the name.
    pub fn of(path: &Path) -> Result<Self> {
        let end = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match end.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(Failure::usage(format!(
                "'{}': a picture is FILE.svg or FILE.png",
                path.display()
            ))),
        }
    }

    /// Fails where pictures of this kind cannot be written, before anything is sampled.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Svg => Ok(()),
            Self::Png => hand_over::lab("mega map with FILE.png").map(drop),
        }
    }
}

/// Writes a picture.
pub fn save(scene: &Scene, path: &Path) -> Result<()> {
    let cannot = || format!("cannot write the picture {}", path.display());
    match Format::of(path)? {
        Format::Svg => std::fs::write(path, svg::svg(scene)).with_context(cannot),
        Format::Png => save_png(scene, path).with_context(cannot),
    }
}

/// mega-lab paints and compresses it.
fn save_png(scene: &Scene, path: &Path) -> Result<()> {
    let program = hand_over::lab("mega map with FILE.png")?;
    let mut lab = Command::new(&program)
        .arg("png")
        .arg("--")
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot execute {}", program.display()))?;
    let sent = match lab.stdin.take() {
        Some(mut to) => serde_json::to_writer(&mut to, scene).and_then(|()| to.flush().map_err(serde_json::Error::io)),
        None => Ok(()),
    };
    let status = lab.wait().context("cannot wait for mega-lab")?;
    if !status.success() {
        // It has said why.
        return Err(Failure::said());
    }
    sent.context("cannot send the picture to mega-lab")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_s_kind_is_its_name_s_end() {
        assert_eq!(Format::of(Path::new("a.SVG")).ok(), Some(Format::Svg));
        assert_eq!(Format::of(Path::new("a.b.png")).ok(), Some(Format::Png));
        for bad in ["a", "a.jpg", ".png", "svg"] {
            assert!(Format::of(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
