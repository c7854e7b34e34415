//! Pictures: as SVG, and as rectangles and texts that `mega` writes as SVG and `mega-lab` as PNG.

pub mod colour;
pub mod regions;
pub mod scene;
pub mod svg;
