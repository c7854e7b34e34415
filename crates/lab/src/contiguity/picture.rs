//! The latencies of a hog's run drawn: each allocation in order, and how they are distributed. Plain SVG, readable on light and
//! dark pages.

use super::hog::HogResult;
use std::collections::BTreeSet;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 620.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 220.0;
const FIRST_TOP: f64 = 60.0;
const SECOND_TOP: f64 = 350.0;

const HUGE_COLOUR: &str = "#2f7fc1";
const BASE_COLOUR: &str = "#8c8c8c";

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
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif' font-size='12'>\n\
         <rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>\n\
         <text x='16' y='24' font-size='14' font-weight='bold' fill='#222'>{} huge pages by {}; {:.0}% of free memory, of \
         which {:.0}% was unusable at order 9</text>\n",
        result.obtained,
        result.how,
        100.0 * result.share_of_free,
        100.0 * result.before.unusable_share,
    );
    in_order(&mut out, huge, base, &axis);
    distribution(&mut out, huge, base, &axis);
    let mut x = LEFT;
    for (name, colour) in [("huge pages", HUGE_COLOUR), ("base pages, per 2 MB", BASE_COLOUR)] {
        if colour == HUGE_COLOUR || !base.is_empty() {
            let _ = writeln!(
                out,
                "<rect x='{x}' y='602' width='10' height='10' fill='{colour}'/><text x='{}' y='611' fill='#444'>{name}</text>",
                x + 15.0
            );
            x += 120.0;
        }
    }
    out += "</svg>\n";
    out
}

fn across() -> f64 {
    WIDTH - LEFT - RIGHT
}

fn frame(out: &mut String, top: f64, title: &str) {
    let _ = writeln!(
        out,
        "<text x='{LEFT}' y='{}' fill='#444'>{title}</text>\
         <rect x='{LEFT}' y='{top}' width='{}' height='{PANEL}' fill='none' stroke='#bbb'/>",
        top - 8.0,
        across()
    );
}

/// A dot for each allocation: its number across, its latency upwards.
fn in_order(out: &mut String, huge: &[u64], base: &[u64], axis: &Axis) {
    frame(out, FIRST_TOP, "latency of each allocation, in order");
    let bottom = FIRST_TOP + PANEL;
    for (ns, text) in axis.ticks() {
        let y = bottom - axis.at(ns) * PANEL;
        let _ = writeln!(
            out,
            "<path d='M{LEFT} {y:.1}h{}' stroke='#e4e4e4'/><text x='{}' y='{:.1}' fill='#666' font-size='10' \
             text-anchor='end'>{text}</text>",
            across(),
            LEFT - 5.0,
            y + 3.0
        );
    }
    let most = huge.len().max(base.len()).max(1);
    for (values, colour) in [(base, BASE_COLOUR), (huge, HUGE_COLOUR)] {
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
        let mut path = String::new();
        for (x, y) in dots {
            let _ = write!(path, "M{} {}h0", f64::from(x) / 2.0, f64::from(y) / 2.0);
        }
        let _ = writeln!(
            out,
            "<path d='{path}' stroke='{colour}' stroke-width='2' stroke-linecap='round' fill='none'/>"
        );
    }
    let _ = writeln!(
        out,
        "<text x='{LEFT}' y='{0}' fill='#666' font-size='10'>1</text>\
         <text x='{1}' y='{0}' fill='#666' font-size='10' text-anchor='end'>{most}</text>",
        bottom + 14.0,
        WIDTH - RIGHT
    );
}

/// For each latency across, the share of allocations that took no longer upwards.
fn distribution(out: &mut String, huge: &[u64], base: &[u64], axis: &Axis) {
    frame(out, SECOND_TOP, "share of allocations that took no longer");
    let bottom = SECOND_TOP + PANEL;
    for (ns, text) in axis.ticks() {
        let x = LEFT + axis.at(ns) * across();
        let _ = writeln!(
            out,
            "<path d='M{x:.1} {SECOND_TOP}v{PANEL}' stroke='#e4e4e4'/><text x='{x:.1}' y='{}' fill='#666' font-size='10' \
             text-anchor='middle'>{text}</text>",
            bottom + 14.0
        );
    }
    for percent in [0u32, 25, 50, 75, 100] {
        let y = bottom - f64::from(percent) / 100.0 * PANEL;
        let _ = writeln!(
            out,
            "<text x='{}' y='{:.1}' fill='#666' font-size='10' text-anchor='end'>{percent}%</text>",
            LEFT - 5.0,
            y + 3.0
        );
    }
    for (values, colour) in [(base, BASE_COLOUR), (huge, HUGE_COLOUR)] {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let mut points = String::new();
        let mut drawn = f64::NEG_INFINITY;
        for (i, ns) in sorted.iter().enumerate() {
            let x = LEFT + axis.at(*ns) * across();
            // A step for each half a pixel, and always the last.
            if x - drawn >= 0.5 || i + 1 == sorted.len() {
                let y = bottom - (i + 1) as f64 / sorted.len() as f64 * PANEL;
                let _ = write!(points, "{x:.1},{y:.1} ");
                drawn = x;
            }
        }
        let _ = writeln!(
            out,
            "<polyline points='{}' stroke='{colour}' stroke-width='1.5' fill='none'/>",
            points.trim_end()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contiguity::{BaseCase, How, Latencies, Stopped};
    use mega_linux::contiguity::{of, Contiguity};

    fn empty() -> Contiguity {
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
