//! The latencies of a hog's run drawn as a document: each allocation in order, and their distribution.

use super::HogResult;
use mega_cli::draw::svg::{Anchor, Svg};
use std::collections::BTreeSet;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 620.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 220.0;
const FIRST_TOP: f64 = 60.0;
const SECOND_TOP: f64 = 350.0;

/// Classes: of all drawings of huge pages and of base pages, `huge` and `base`.
const STYLE: &str = "text{fill:#444}.title{font-size:14px;font-weight:bold;fill:#222}.tick{font-size:10px;fill:#666}\
                     .grid{stroke:#e4e4e4}.frame{fill:none;stroke:#bbb}path{fill:none;stroke-width:1.5}\
                     path.dots{stroke-width:2;stroke-linecap:round}path.huge{stroke:#2f7fc1}path.base{stroke:#8c8c8c}\
                     rect.huge{fill:#2f7fc1}rect.base{fill:#8c8c8c}";

/// A logarithmic axis from a power of ten to another.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn of(values: impl Iterator<Item = u64> + Clone) -> Self {
        let exponent = |ns: u64| (ns.max(1) as f64).log10();
        let low = values.clone().map(exponent).fold(f64::INFINITY, f64::min);
        let high = values.map(exponent).fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self { low: 3, high: 4 };
        }
        let low = low.floor() as i32;
        Self {
            low,
            high: (high.ceil() as i32).max(low + 1),
        }
    }

    /// 0 at the low end, 1 at the high one.
    fn at(&self, ns: u64) -> f64 {
        ((ns.max(1) as f64).log10() - f64::from(self.low)) / f64::from(self.high - self.low)
    }

    fn ticks(&self) -> impl Iterator<Item = (u64, String)> + '_ {
        (self.low..=self.high).map(|exponent| {
            let ns = 10u64.saturating_pow(exponent.max(0) as u32);
            let text = match exponent {
                ..3 => format!("{ns} ns"),
                3..6 => format!("{} µs", ns / 1000),
                6..9 => format!("{} ms", ns / 1_000_000),
                _ => format!("{} s", ns / 1_000_000_000),
            };
            (ns, text)
        })
    }
}

/// The picture.
#[must_use]
pub fn svg(result: &HogResult) -> String {
    let huge = &result.latencies_ns[..];
    let base = result.base.as_ref().map_or(&[][..], |base| &base.latencies_ns[..]);
    let axis = Axis::of(huge.iter().chain(base).copied());
    let mut svg = Svg::document(WIDTH, HEIGHT, r#"font-family="sans-serif" font-size="12""#, STYLE);
    let title = format!(
        "{} huge pages by {}; {:.0}% of free memory, of which {:.0}% was unusable at order 9",
        result.obtained,
        result.how,
        100.0 * result.share_of_free,
        100.0 * result.before.unusable_share,
    );
    svg.text((16.0, 24.0), Anchor::Start, "title", &title);
    in_order(&mut svg, huge, base, &axis);
    distribution(&mut svg, huge, base, &axis);
    let mut x = LEFT;
    for (name, class) in [("huge pages", "huge"), ("base pages, per 2 MB", "base")] {
        if class == "huge" || !base.is_empty() {
            svg.rect((x, 602.0), (10.0, 10.0), class);
            svg.text((x + 15.0, 611.0), Anchor::Start, "name", name);
            x += 120.0;
        }
    }
    svg.finish()
}

fn across() -> f64 {
    WIDTH - LEFT - RIGHT
}

fn frame(svg: &mut Svg, top: f64, title: &str) {
    svg.text((LEFT, top - 8.0), Anchor::Start, "name", title);
    svg.rect((LEFT, top), (across(), PANEL), "frame");
}

/// A dot for each allocation: its number across, its latency upwards.
fn in_order(svg: &mut Svg, huge: &[u64], base: &[u64], axis: &Axis) {
    frame(svg, FIRST_TOP, "latency of each allocation, in order");
    let bottom = FIRST_TOP + PANEL;
    for (ns, text) in axis.ticks() {
        let y = bottom - axis.at(ns) * PANEL;
        svg.line((LEFT, y), (LEFT + across(), y), "grid");
        svg.text((LEFT - 5.0, y + 3.0), Anchor::End, "tick", &text);
    }
    let most = huge.len().max(base.len()).max(1);
    for (values, class) in [(base, "dots base"), (huge, "dots huge")] {
        // Dots that would cover each other are drawn once.
        let dots: BTreeSet<(u32, u32)> = values
            .iter()
            .enumerate()
            .map(|(i, ns)| {
                let x = LEFT + (i as f64 + 0.5) / most as f64 * across();
                let y = bottom - axis.at(*ns) * PANEL;
                ((x * 2.0) as u32, (y * 2.0) as u32)
            })
            .collect();
        let half = |(x, y): (u32, u32)| (f64::from(x) / 2.0, f64::from(y) / 2.0);
        svg.dots(dots.into_iter().map(half), class);
    }
    svg.text((LEFT, bottom + 14.0), Anchor::Start, "tick", "1");
    svg.text((WIDTH - RIGHT, bottom + 14.0), Anchor::End, "tick", &most.to_string());
}

/// For each latency across, the share of allocations that took no longer upwards.
fn distribution(svg: &mut Svg, huge: &[u64], base: &[u64], axis: &Axis) {
    frame(svg, SECOND_TOP, "share of allocations that took no longer");
    let bottom = SECOND_TOP + PANEL;
    for (ns, text) in axis.ticks() {
        let x = LEFT + axis.at(ns) * across();
        svg.line((x, SECOND_TOP), (x, bottom), "grid");
        svg.text((x, bottom + 14.0), Anchor::Middle, "tick", &text);
    }
    for percent in [0u32, 25, 50, 75, 100] {
        let y = bottom - f64::from(percent) / 100.0 * PANEL;
        svg.text((LEFT - 5.0, y + 3.0), Anchor::End, "tick", &format!("{percent}%"));
    }
    for (values, class) in [(base, "base"), (huge, "huge")] {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let mut points = Vec::new();
        let mut drawn = f64::NEG_INFINITY;
        for (i, ns) in sorted.iter().enumerate() {
            let x = LEFT + axis.at(*ns) * across();
            // A step for each half a pixel, and always the last.
            if x - drawn >= 0.5 || i + 1 == sorted.len() {
                points.push((x, bottom - (i + 1) as f64 / sorted.len() as f64 * PANEL));
                drawn = x;
            }
        }
        svg.path(&[points], class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contiguity::{BaseCase, How, Latencies, Stopped};
    use mega_linux::blocks::fragmentation::{of, Fragmentation};

    fn empty() -> Fragmentation {
        of(&mega_linux::proc::buddyinfo::Buddyinfo::default(), None)
    }

    fn result(huge: Vec<u64>, base: Option<Vec<u64>>) -> HogResult {
        HogResult {
            schema: 1,
            how: How::Fault,
            checked_by: "pagemap_scan".to_string(),
            probe: None,
            wanted: None,
            obtained: huge.len() as u64,
            fell_back: 0,
            stopped: Stopped::NoneLeft,
            share_of_free: 0.9,
            latency: Latencies::of(&huge),
            latencies_ns: huge,
            fell_back_latency: Latencies::default(),
            counters: std::collections::BTreeMap::new(),
            base: base.map(|ns| BaseCase {
                bytes: 0,
                per_2mb: Latencies::of(&ns),
                latencies_ns: ns,
            }),
            before: empty(),
            held: None,
            after: empty(),
        }
    }

    #[test]
    fn every_dot_is_inside_and_none_is_drawn_twice() {
        let huge: Vec<u64> = (0..20_000).map(|i| 80_000 + i % 7 * 1000).collect();
        let text = svg(&result(huge, Some(vec![500_000; 100])));
        let dots = text.matches("h0").count();
        assert!((1000..15_000).contains(&dots), "{dots}");
        for dot in text.split('M').filter(|part| part.contains("h0")) {
            let (x, y) = dot.split_once("h0").unwrap().0.split_once(' ').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (FIRST_TOP..=FIRST_TOP + PANEL).contains(&y));
        }
        assert!(text.contains("100 µs") && text.contains("base pages"));
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_obtained_is_still_a_picture() {
        let text = svg(&result(Vec::new(), None));
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("base pages"));
        assert!(text.contains("0 huge pages by fault"));
    }
}
