//! The picture beside a family's tables: each program's speed and memory relative to base pages, who gains and who loses at a glance.

use mega_cli::draw::colour::Rgb;
use mega_cli::draw::svg::{Anchor, Svg};

use super::gates::Seen;

/// Width of the whole, and where its columns are.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 250.0;
const PANELS: [(f64, f64); 2] = [(270.0, 570.0), (640.0, 910.0)];
const TOP: f64 = 62.0;
const BAR: f64 = 13.0;
const GAP: f64 = 14.0;
/// The scale is logarithmic: half and double are equally far from 1.
const TICKS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
/// Changes up to this share are drawn as none.
const SAME: f64 = 0.02;

const BETTER: Rgb = Rgb(0, 114, 148);
const WORSE: Rgb = Rgb(190, 80, 30);

const STYLE: &str =
    "text{font:12px sans-serif}.h{font-weight:bold}.g{fill:#6e6e6e}line{stroke:#d6d6d6}.one{stroke:#222}";

/// A figure of a program under a variant.
type Figure = fn(&Seen<'_>, &str) -> Option<Bar>;

/// One bar.
struct Bar {
    ratio: f64,
    is_good: bool,
}

fn speed(seen: &Seen<'_>, variant: &str) -> Option<Bar> {
    let ratio = seen.relative(variant, "base")?;
    Some(Bar {
        ratio,
        is_good: ratio >= 1.0,
    })
}

fn memory(seen: &Seen<'_>, variant: &str) -> Option<Bar> {
    let metric = seen.memory("mean");
    let ratio = seen.median(variant, &metric)? / seen.median("base", &metric)?;
    Some(Bar {
        ratio,
        is_good: ratio <= 1.0,
    })
}

/// The panels: title and figure.
const FIGURES: [(&str, Figure); 2] = [
    ("speed, base pages = 1: to the right is faster", speed),
    ("memory, base pages = 1: to the left is less", memory),
];

/// The SVG. Each bar begins at 1, what base pages do; blue is better, orange worse, and the figure stands beside it.
pub(in crate::experiment) fn picture(seen: &[&Seen<'_>], variants: &[&str]) -> String {
    let is_there = |variant: &&&str| seen.iter().any(|seen| speed(seen, variant).is_some());
    let variants: Vec<&str> = variants.iter().filter(is_there).copied().collect();
    let row = variants.len() as f64 * BAR + GAP;
    let height = TOP + seen.len() as f64 * row + 10.0;
    let label = "Speed and mean memory of each program under each variant, relative to base pages";
    let mut svg = Svg::document(WIDTH, height, &format!("role=\"img\" aria-label=\"{label}\""), STYLE);
    for ((from, to), (title, figure)) in PANELS.into_iter().zip(FIGURES) {
        let scale = Scale::of(
            (from, to),
            seen.iter()
                .flat_map(|seen| variants.iter().filter_map(|variant| Some(figure(seen, variant)?.ratio))),
        );
        svg.text((from, 20.0), Anchor::Start, "h", title);
        for tick in TICKS.into_iter().filter(|tick| scale.holds(*tick)) {
            let x = scale.at(tick);
            let class = if tick == 1.0 { "one" } else { "t" };
            svg.line((x, TOP - 14.0), (x, height - 10.0), class);
            svg.text((x, TOP - 20.0), Anchor::Middle, "g", &format!("{tick}"));
        }
        for (index, seen) in seen.iter().enumerate() {
            for (place, variant) in variants.iter().enumerate() {
                let Some(bar) = figure(seen, variant) else { continue };
                let y = TOP + index as f64 * row + place as f64 * BAR;
                draw(&mut svg, &scale, y, &bar);
            }
        }
    }
    for (index, seen) in seen.iter().enumerate() {
        let y = TOP + index as f64 * row;
        svg.text((10.0, y + BAR - 3.0), Anchor::Start, "h", seen.case_name());
        for (place, variant) in variants.iter().enumerate() {
            let y = y + (place + 1) as f64 * BAR - 3.0;
            svg.text((NAMES, y), Anchor::End, "g", variant);
        }
    }
    svg.finish()
}

fn draw(svg: &mut Svg, scale: &Scale, y: f64, bar: &Bar) {
    let (one, end) = (scale.at(1.0), scale.at(bar.ratio));
    let fill = match (bar.ratio - 1.0).abs() <= SAME {
        true => Rgb::GREY,
        false if bar.is_good => BETTER,
        false => WORSE,
    };
    svg.rect((one.min(end), y + 1.0), ((end - one).abs().max(1.0), BAR - 2.0), fill);
    let (at, anchor) = match bar.ratio < 1.0 {
        true => (end - 4.0, Anchor::End),
        false => (end + 4.0, Anchor::Start),
    };
    svg.text((at, y + BAR - 3.0), anchor, "t", &format!("{:.2}", bar.ratio));
}

/// From a ratio to a place.
struct Scale {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
}

impl Scale {
    /// The smallest that has room for all ratios, with half and double in any case.
    fn of((from, to): (f64, f64), ratios: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ratios.fold((0.5, 2.0), |(low, high): (f64, f64), ratio| {
            (low.min(ratio), high.max(ratio))
        });
        Self {
            from,
            to,
            low: low.max(TICKS[0]).log2(),
            high: high.min(TICKS[TICKS.len() - 1]).log2(),
        }
    }

    fn holds(&self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio.log2())
    }

    fn at(&self, ratio: f64) -> f64 {
        let share = (ratio.log2().clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::auto::table::tests::touch;

    #[test]
    fn a_bar_goes_from_one_to_the_ratio_and_its_figure_stands_beside_it() {
        let record = touch("unfragmented", &[("base", 20.0), ("thp-always", 4.0), ("auto", 40.0)]);
        let seen = Seen {
            record: &record,
            case: 0,
        };
        let svg = picture(&[&seen], &["thp-always", "auto", "auto:agent"]);
        assert!(svg.contains(">5.00<") && svg.contains(">0.50<"), "{svg}");
        assert!(svg.contains(&BETTER.hex()) && svg.contains(&WORSE.hex()) && svg.contains(&Rgb::GREY.hex()));
        assert!(
            svg.contains(">thp-always<") && !svg.contains("auto:agent"),
            "what was not run is left out"
        );
    }

    #[test]
    fn half_and_double_are_equally_far_from_one_and_what_is_beyond_the_scale_ends_at_its_edge() {
        let scale = Scale::of((0.0, 100.0), [1.0].into_iter());
        assert_eq!(
            [0.5, 1.0, 2.0, 99.0].map(|ratio| scale.at(ratio)),
            [0.0, 50.0, 100.0, 100.0]
        );
        let wide = Scale::of((0.0, 100.0), [0.01, 1000.0].into_iter());
        assert!(wide.holds(0.25) && wide.holds(16.0) && !wide.holds(0.2));
    }
}
