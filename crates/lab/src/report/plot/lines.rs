//! Frame and line names, which never overlap, of figures with lines.

use super::axis::Axis;
use super::WIDTH;
use mega_cli::draw::svg::{fitted, Anchor, Svg};

/// Where the plot begins, right of the labels of its vertical axis.
pub const LEFT: f64 = 50.0;

/// Where it ends, left of the names of its lines.
pub const RIGHT: f64 = WIDTH - 106.0;

/// Where it begins at the top.
pub const TOP: f64 = 8.0;

/// Where it ends at the bottom.
pub const BOTTOM: f64 = 204.0;

/// Height of a figure with lines.
pub const HEIGHT: f64 = BOTTOM + 24.0;

/// Minimum distance of names.
const SPACING: f64 = 13.5;

/// Draws grid, axes and ticks.
pub fn frame(svg: &mut Svg, x: &Axis, y: &Axis) {
    for (at, label) in y.ticks() {
        svg.line((LEFT, at), (RIGHT, at), "grid");
        svg.text((LEFT - 5.0, at + 4.0), Anchor::End, "tick", label);
    }
    for (at, label) in x.ticks() {
        svg.line((at, BOTTOM), (at, BOTTOM + 4.0), "axis");
        svg.text((at, BOTTOM + 17.0), Anchor::Middle, "tick", label);
    }
    svg.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "axis");
}

/// The end of a line, with its name.
pub struct End {
    /// Where the line ends.
    pub at: (f64, f64),
    /// Class of its colour.
    pub class: String,
    /// Its name.
    pub name: String,
}

/// Writes the names beside the plot, as close to the ends of their lines as possible without overlap.
pub fn names(svg: &mut Svg, ends: &[End]) {
    let wanted: Vec<f64> = ends.iter().map(|end| end.at.1).collect();
    for (end, y) in ends.iter().zip(spread_out(&wanted, (TOP, BOTTOM))) {
        svg.group(&end.class, &end.name, |svg| {
            svg.line(end.at, (RIGHT + 9.0, y), "leader");
            let text = fitted(&end.name, WIDTH - RIGHT - 13.0);
            svg.text((RIGHT + 12.0, y + 4.0), Anchor::Start, "name", &text);
        });
    }
}

/// Places in order of `wanted`, at least [`SPACING`] apart while there is room, within `low` to `high`.
fn spread_out(wanted: &[f64], (low, high): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let spacing = SPACING.min((high - low) / wanted.len().max(1) as f64);
    let mut placed = vec![0.0; wanted.len()];
    let mut least = low;
    for index in &order {
        placed[*index] = wanted[*index].max(least);
        least = placed[*index] + spacing;
    }
    // What was pushed out at the bottom pushes back.
    let mut most = high;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(most);
        most = placed[*index] - spacing;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_have_room_stay_at_the_ends_of_their_lines() {
        assert_eq!(spread_out(&[20.0, 100.0, 60.0], (8.0, 204.0)), [20.0, 100.0, 60.0]);
    }

    proptest! {
        #[test]
        fn nine_names_never_touch_and_stay_in_the_figure(wanted in prop::collection::vec(8.0..204.0f64, 1..=9)) {
            let placed = spread_out(&wanted, (TOP, BOTTOM));
            let mut sorted = placed.clone();
            sorted.sort_by(f64::total_cmp);
            prop_assert!(sorted.windows(2).all(|w| w[1] - w[0] >= SPACING - 1e-9), "{placed:?}");
            prop_assert!(sorted[0] >= TOP - 1e-9 && sorted[sorted.len() - 1] <= BOTTOM + 1e-9);
        }
    }
}
