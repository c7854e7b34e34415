//! Drawing: the same picture as SVG and as PNG, and heat maps on a terminal.
//!
//! | file | subject |
//! | --- | --- |
//! | `colour` | colours and scales |
//! | `scene` | a picture as rectangles and texts |
//! | `svg`, `png` | a scene as a file |
//! | `terminal` | rows of cells as text, in colour or in plain ASCII |

pub mod colour;
mod png;
pub mod scene;
mod svg;
pub mod terminal;

use std::path::Path;

use anyhow::{Context, Result};

use crate::exit::Failure;
use scene::Scene;

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
}

/// Writes a picture.
pub fn save(scene: &Scene, path: &Path) -> Result<()> {
    let bytes = match Format::of(path)? {
        Format::Svg => svg::svg(scene).into_bytes(),
        Format::Png => png::png(scene)?,
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write the picture {}", path.display()))
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
