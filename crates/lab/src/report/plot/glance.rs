//! The answer at a glance: each variant's ratio to the first with its 95 % interval, on a logarithmic axis around 1. The better side is
//! shaded and named; a full mark is significant, a hollow one is not, so that nothing hangs on colour.

use super::{ratio, WIDTH};
use crate::report::compared::{Against, CaseComparison, Cell};
use crate::result::Better;
use crate::stats::Verdict;
use mega_cli::draw::svg::{fitted, width_of, Anchor, Svg};

/// Height of a row: its name, and its mark below.
const ROW: f64 = 34.0;
/// Height of a case's name above its rows.
const HEAD: f64 = 22.0;
/// Height of the words above the rows.
const TOP: f64 = 20.0;
/// The ends of the axis.
const ENDS: (f64, f64) = (12.0, WIDTH - 12.0);
/// Least distance of two ticks.
const APART: f64 = 44.0;
/// The axis reaches this far to both sides at least.
const LEAST: f64 = 1.05;

/// Draws a metric of all cases. `None` where no variant has a ratio.
#[must_use]
pub fn glance(cases: &[CaseComparison], metric: usize) -> Option<String> {
    let rows = |case: &CaseComparison| -> Vec<(Cell, Against)> {
        let cells = case
            .metrics
            .get(metric)
            .into_iter()
            .flat_map(|metric| metric.variants.clone());
        let with = cells.filter_map(|cell| Some((cell.clone(), cell.against_first?)));
        with.filter(|(_, against)| against.paired.ratio.is_some()).collect()
    };
    let all: Vec<(&CaseComparison, Vec<(Cell, Against)>)> = cases.iter().map(|case| (case, rows(case))).collect();
    let ratios = all
        .iter()
        .flat_map(|(_, rows)| rows)
        .flat_map(|(_, against)| ends(against));
    let (low, high) = ratios.fold((1.0 / LEAST, LEAST), |(low, high), r| (r.min(low), r.max(high)));
    if all.iter().all(|(_, rows)| rows.is_empty()) {
        return None;
    }
    let shown = cases.first()?.metrics.get(metric)?;
    let axis = Axis::of(low, high);
    let heads = cases.len() > 1;
    let height = |rows: &[(Cell, Against)]| ROW * rows.len() as f64 + if heads { HEAD } else { 0.0 };
    let bottom = TOP + all.iter().map(|(_, rows)| height(rows)).sum::<f64>();
    let mut svg = super::figure(bottom + 22.0, &format!("{}: ratio to the first variant", shown.label));
    better_side(&mut svg, &axis, shown.better, bottom);
    for value in axis.ticks() {
        let x = axis.at(value);
        svg.line((x, TOP), (x, bottom), if value == 1.0 { "axis" } else { "grid" });
        svg.text((x, bottom + 15.0), Anchor::Middle, "tick", &tick(value));
    }
    let mut top = TOP;
    for (case, rows) in &all {
        if heads {
            svg.text(
                (4.0, top + 16.0),
                Anchor::Start,
                "tick",
                &fitted(&case.case, WIDTH - 8.0),
            );
            top += HEAD;
        }
        for (cell, against) in rows {
            let index = shown
                .variants
                .iter()
                .position(|v| v.variant == cell.variant)
                .unwrap_or(0);
            svg.group(
                &super::colour(index),
                &super::bars::described(shown.unit, cell),
                |svg| {
                    row(svg, &axis, cell, against, top);
                },
            );
            top += ROW;
        }
    }
    Some(svg.finish())
}

/// What the axis has to reach.
fn ends(against: &Against) -> Vec<f64> {
    let interval = against.paired.ratio_interval;
    let ends = interval.map(|i| [i.low, i.high]).into_iter().flatten();
    let all = against.paired.ratio.into_iter().chain(ends);
    all.filter(|r| r.is_finite() && *r > 0.0).collect()
}

fn better_side(svg: &mut Svg, axis: &Axis, better: Better, bottom: f64) {
    let one = axis.at(1.0);
    let (from, to) = match better {
        Better::Higher => (one, ENDS.1),
        Better::Lower => (ENDS.0, one),
        Better::Neither => return,
    };
    svg.rect((from, TOP), (to - from, bottom - TOP), "good-side");
    let word = match better {
        Better::Lower => "← better",
        _ => "better →",
    };
    // On the better side where there is room, else where it ends.
    let (x, anchor) = match better {
        Better::Lower if one - 6.0 - width_of(word) > 0.0 => (one - 6.0, Anchor::End),
        Better::Lower => (2.0, Anchor::Start),
        _ if one + 6.0 + width_of(word) < WIDTH => (one + 6.0, Anchor::Start),
        _ => (WIDTH - 2.0, Anchor::End),
    };
    svg.text((x, TOP - 6.0), anchor, "tick", word);
}

fn row(svg: &mut Svg, axis: &Axis, cell: &Cell, against: &Against, top: f64) {
    let text = value(against);
    let room = WIDTH - 14.0 - width_of(&text);
    svg.text((4.0, top + 14.0), Anchor::Start, "name", &fitted(&cell.variant, room));
    svg.text((WIDTH - 4.0, top + 14.0), Anchor::End, "value", &text);
    let y = top + 25.0;
    if let Some(i) = against.paired.ratio_interval {
        let (low, high) = (axis.at(i.low), axis.at(i.high));
        svg.line((low, y), (high, y), "range");
        for x in [low, high] {
            svg.line((x, y - 3.5), (x, y + 3.5), "range");
        }
    }
    let Some(times) = against.paired.ratio else {
        return;
    };
    let told = against.exact || matches!(against.verdict, Some(Verdict::Better | Verdict::Worse));
    let class = if told && !against.a_a { "told" } else { "untold" };
    let x = axis.at(times);
    // A diamond: its middle is the ratio.
    svg.area(&[(x - 5.0, y), (x, y - 5.0), (x + 5.0, y), (x, y + 5.0)], class);
}

/// `1.30× better`.
fn value(against: &Against) -> String {
    let times = against.paired.ratio.map_or(String::new(), ratio);
    match against.word() {
        "" | "too few rounds" => times,
        word => format!("{times} {word}"),
    }
}

/// `1.5×`, `0.8×`.
fn tick(value: f64) -> String {
    format!("{}×", (value * 1e6).round() / 1e6)
}

/// A logarithmic axis of ratios.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// A little beyond both ends.
    fn of(low: f64, high: f64) -> Self {
        let margin = (high / low).powf(0.06);
        Self {
            low: low / margin,
            high: high * margin,
        }
    }

    fn at(self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        ENDS.0 + share.clamp(0.0, 1.0) * (ENDS.1 - ENDS.0)
    }

    /// Round ratios around 1, far enough apart, the coarsest steps first.
    fn ticks(self) -> Vec<f64> {
        let decades = (-12..=12).map(|decade| 10f64.powi(decade));
        let coarse: Vec<f64> = decades.clone().filter(|v| *v != 1.0).collect();
        let of = |leads: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|d| leads.iter().map(move |lead| lead * d).collect::<Vec<_>>())
                .collect()
        };
        let near = vec![0.8, 1.2, 0.9, 1.1, 0.95, 1.05, 0.98, 1.02];
        let steps = [vec![1.0], of(&[2.0, 5.0]), coarse, of(&[1.5, 3.0, 7.0]), near];
        let mut ticks: Vec<f64> = Vec::new();
        for value in steps.into_iter().flatten() {
            let inside = (self.low..=self.high).contains(&value);
            let x = self.at(value);
            let far = ticks.iter().all(|other| (self.at(*other) - x).abs() >= APART);
            // A label is centred on its tick.
            if inside && far && (ENDS.0 + 8.0..=ENDS.1 - 8.0).contains(&x) {
                ticks.push(value);
            }
        }
        ticks
    }
}

/// What the marks mean, for the text beside the figures.
#[must_use]
pub fn legend(exact: bool) -> &'static str {
    match exact {
        true => "Ratio to the first variant, logarithmic; the shaded side is better.",
        false => {
            "Median of the ratios to the first variant, round by round, with its 95 % interval, logarithmic; the shaded side is \
             better. ◆ significant, ◇ not."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::comparison;
    use crate::report::synthetic::{self, Options};

    fn of(rounds: usize, alike: bool) -> Vec<CaseComparison> {
        let record = synthetic::record(&Options {
            rounds,
            alike,
            ..Options::default()
        });
        comparison(&record).cases
    }

    #[test]
    fn each_variant_of_each_case_has_a_mark_an_interval_and_its_verdict_in_words() {
        let svg = glance(&of(10, false), 0).unwrap();
        assert_eq!(svg.matches(r#"class="told""#).count(), 6, "{svg}");
        assert_eq!(svg.matches(r#"class="range""#).count(), 6 * 3);
        assert!(svg.contains("× better</text>") && svg.contains("better →"), "{svg}");
        assert!(svg.contains("redis-del-50-fragmented"), "the case's name");
        let memory = glance(&of(10, false), 1).unwrap();
        assert!(
            memory.contains("← better") && memory.contains("× worse</text>"),
            "{memory}"
        );
    }

    #[test]
    fn what_is_not_significant_has_a_hollow_mark() {
        for cases in [of(10, true), of(3, false)] {
            let svg = glance(&cases, 0).unwrap();
            assert_eq!(
                (svg.matches(r#""untold""#).count(), svg.matches(r#""told""#).count()),
                (6, 0),
                "{svg}"
            );
        }
    }

    #[test]
    fn without_a_ratio_there_is_no_figure() {
        assert_eq!(glance(&[], 0), None);
        let mut record = synthetic::record(&Options::default());
        record.runs.clear();
        assert_eq!(glance(&comparison(&record).cases, 0), None);
    }

    #[test]
    fn ticks_are_round_keep_their_distance_and_always_have_one() {
        for (low, high) in [
            (0.95, 1.05),
            (0.8, 1.4),
            (0.9, 30.0),
            (1e-4, 1e4),
            (1.0, 2.6),
            (0.02, 1.0),
        ] {
            let axis = Axis::of(low, high);
            let mut ticks = axis.ticks();
            assert!(ticks.contains(&1.0) && ticks.len() >= 2, "{low} to {high}: {ticks:?}");
            ticks.sort_by(f64::total_cmp);
            assert!(
                ticks.windows(2).all(|w| axis.at(w[1]) - axis.at(w[0]) >= APART - 1e-6),
                "{ticks:?}"
            );
        }
        assert_eq!(
            [1.0, 1.5, 0.05, 20.0, 100.0].map(tick),
            ["1×", "1.5×", "0.05×", "20×", "100×"]
        );
    }
}
