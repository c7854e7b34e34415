//! The demonstration as a picture: three panels of bars, one bar per variant. Plain SVG, readable on light and dark pages.

use std::fmt::Write;

use mega_core::units::Bytes;

use super::report::micros;
use super::{Measured, Variant};

const WIDTH: f64 = 760.0;
const PANEL: f64 = 230.0;
const GAP: f64 = 22.0;
const TOP: f64 = 64.0;
const ROW: f64 = 34.0;

fn colour(variant: Variant) -> &'static str {
    match variant {
        Variant::Base => "#8c8c8c",
        Variant::Stock => "#d08a2c",
        Variant::Mega => "#2f7fc1",
        Variant::Trim => "#3a9a62",
    }
}

/// One panel: its title and, per variant, the length of the bar, the part of it that is hatched, and the label.
struct Panel {
    title: &'static str,
    bars: Vec<(Variant, f64, f64, String)>,
}

fn panels(measured: &[Measured]) -> [Panel; 3] {
    let bars = |f: &dyn Fn(&Measured) -> (f64, f64, String)| {
        measured
            .iter()
            .map(|m| {
                let (length, hatched, label) = f(m);
                (m.variant, length, hatched, label)
            })
            .collect()
    };
    let latency = match measured.first().map_or("", |m| m.latency_of) {
        "page fault" => "page fault p99.9 (log scale)",
        _ => "request p99.9 (log scale)",
    };
    [
        Panel {
            title: "operations per second, settled",
            bars: bars(&|m| (m.ops_per_s, 0.0, format!("{:.2} M", m.ops_per_s / 1e6))),
        },
        Panel {
            title: "resident memory (light: wasted)",
            bars: bars(&|m| (m.rss_bytes as f64, m.waste_bytes as f64, Bytes(m.rss_bytes).to_string())),
        },
        Panel {
            title: latency,
            bars: bars(&|m| {
                (
                    (m.latency_ns[2].max(1) as f64).log10() - 2.0,
                    0.0,
                    micros(m.latency_ns[2]),
                )
            }),
        },
    ]
}

/// The picture.
pub fn svg(measured: &[Measured], sizes: &str) -> String {
    let height = TOP + ROW * measured.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' font-family='sans-serif' font-size='12'>\n\
         <rect width='{WIDTH}' height='{height}' fill='#ffffff'/>\n\
         <text x='16' y='22' font-size='14' font-weight='bold' fill='#222'>mega demo: {sizes}</text>\n"
    );
    for (i, panel) in panels(measured).iter().enumerate() {
        let x = 16.0 + i as f64 * (PANEL + GAP);
        let longest = panel.bars.iter().map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
        let _ = writeln!(out, "<text x='{x:.0}' y='50' fill='#444'>{}</text>", panel.title);
        for (row, (variant, length, hatched, label)) in panel.bars.iter().enumerate() {
            let y = TOP + row as f64 * ROW;
            let scale = (PANEL - 70.0) / longest;
            let (width, light) = ((length * scale).max(1.0), hatched * scale);
            let fill = colour(*variant);
            let _ = writeln!(
                out,
                "<text x='{x:.0}' y='{:.0}' fill='#666' font-size='10'>{}</text>\
                 <rect x='{x:.0}' y='{:.0}' width='{width:.1}' height='14' fill='{fill}'/>\
                 <rect x='{:.1}' y='{:.0}' width='{light:.1}' height='14' fill='#ffffff' fill-opacity='0.6'/>\
                 <text x='{:.1}' y='{:.0}' fill='#222'>{label}</text>",
                y + 8.0,
                variant.name(),
                y + 11.0,
                x + width - light,
                y + 11.0,
                x + width + 5.0,
                y + 22.0,
            );
        }
    }
    out += "</svg>\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_a_bar_in_every_panel_and_all_stay_inside() {
        let one = |variant, n: u64| Measured {
            variant,
            ops_per_s: n as f64 * 1e6,
            latency_of: "page fault",
            latency_ns: [1, 2, n * 1000],
            fill_ns: 1,
            rss_bytes: n << 30,
            huge_bytes: 0,
            waste_bytes: (n << 30) / 2,
            verified: true,
        };
        let all: Vec<_> = Variant::ALL.iter().zip(1..).map(|(v, n)| one(*v, n)).collect();
        let text = svg(&all, "2 GB");
        assert_eq!(text.matches("height='14' fill='#").count(), 3 * 4 * 2);
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for variant in Variant::ALL {
            assert_eq!(text.matches(&format!(">{}</text>", variant.name())).count(), 3);
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
