//! Figures as inline SVG: small, without a library, and in the colours of the page around them.
//!
//! ```text
//!   glance      ratios to the first variant with their intervals: the answer at a glance
//!   bars        medians with their intervals        published   the paper's figure beside ours
//!   series      figures over time                   quantiles   latency distributions, to the last nine
//!   memory      a snapshot of physical memory
//!   axis        ticks at round numbers              lines       frame and names of figures with lines
//! ```
//!
//! Every figure is [`WIDTH`] units wide, so that text is readable on a phone at 320 pixels. A variant has the
//! same colour everywhere: class `v0` to `v8`, whose colours the page sets for light and dark.

pub mod axis;
pub mod bars;
pub mod glance;
pub mod lines;
pub mod memory;
pub mod published;
pub mod quantiles;
pub mod series;

use super::scale::{ratio_text, value_text};
use crate::result::Unit;
use mega_cli::draw::svg::Svg;

/// Width of every figure, in units of its viewBox.
pub const WIDTH: f64 = 400.0;

/// An empty figure of [`WIDTH`] by `height`.
#[must_use]
pub fn figure(height: f64, label: &str) -> Svg {
    Svg::figure(WIDTH, height, label)
}

/// Number of colours; further variants start over.
pub const COLOURS: usize = 9;

/// The class of a variant's colour.
#[must_use]
pub fn colour(variant: usize) -> String {
    format!("v{}", variant % COLOURS)
}

/// A value as a page shows it: `950 µs`, `1.30×`.
#[must_use]
pub fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ns => value_text(unit, value).replace(" us", " µs"),
        Unit::Ratio => ratio(value),
        _ => value_text(unit, value),
    }
}

/// A ratio as a page shows it: `1.30×`.
#[must_use]
pub fn ratio(value: f64) -> String {
    ratio_text(value).replace('x', "×")
}
