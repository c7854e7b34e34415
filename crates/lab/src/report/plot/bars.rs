//! Medians with their 95 % intervals, a bar for each variant.

use super::axis::Axis;
use super::{colour, ratio, shown, WIDTH};
use crate::report::compared::{Cell, MetricComparison};
use crate::result::Unit;
use mega_cli::draw::svg::{fitted, width_of, Anchor, Svg};

/// Height of a variant: its name and its bar.
const ROW: f64 = 33.0;

/// Height of a bar.
const BAR: f64 = 11.0;

/// Draws a metric of a case. `None` when no variant has a value.
#[must_use]
pub fn bars(metric: &MetricComparison) -> Option<String> {
    let high = |cell: &Cell| Some(cell.interval.map_or(cell.median?, |i| i.high.max(i.low)));
    metric.variants.iter().find_map(|cell| cell.median)?;
    let largest = metric.variants.iter().filter_map(high).fold(0.0, f64::max);
    // The last tick's label is centred on its tick: it needs space on both sides.
    let axis = Axis::linear(metric.unit, largest, (10.0, WIDTH - 36.0), 4);
    let bottom = ROW * metric.variants.len() as f64 + 2.0;
    let mut svg = super::figure(bottom + 22.0, &format!("{} by variant", metric.label));
    for (x, label) in axis.ticks() {
        svg.line((x, 0.0), (x, bottom), "grid");
        svg.text((x, bottom + 15.0), Anchor::Middle, "tick", label);
    }
    for (index, cell) in metric.variants.iter().enumerate() {
        let top = ROW * index as f64;
        svg.group(&colour(index), &described(metric.unit, cell), |svg| {
            row(svg, &axis, metric.unit, cell, top)
        });
    }
    svg.line((axis.at(0.0), 0.0), (axis.at(0.0), bottom), "axis");
    Some(svg.finish())
}

fn row(svg: &mut Svg, axis: &Axis, unit: Unit, cell: &Cell, top: f64) {
    let value = value_line(unit, cell);
    let room = WIDTH - 20.0 - width_of(&value);
    svg.text((12.0, top + 14.0), Anchor::Start, "name", &fitted(&cell.variant, room));
    svg.text((WIDTH - 2.0, top + 14.0), Anchor::End, "value", &value);
    let Some(median) = cell.median else {
        return;
    };
    let zero = axis.at(0.0);
    svg.bar((zero, top + 18.0), (axis.at(median) - zero, BAR), "bar");
    if let Some(interval) = cell.interval {
        let (low, high, y) = (axis.at(interval.low), axis.at(interval.high), top + 18.0 + BAR / 2.0);
        svg.line((low, y), (high, y), "whisker");
        for x in [low, high] {
            svg.line((x, y - 3.5), (x, y + 3.5), "whisker");
        }
    }
}

/// The text at the end of a variant's bar: `1.30 M/s · 1.30×`.
fn value_line(unit: Unit, cell: &Cell) -> String {
    let Some(median) = cell.median else {
        return "not measured".to_string();
    };
    let mark = if cell.doubtful > 0 { "*" } else { "" };
    let times = cell.against_first.as_ref().and_then(|a| a.paired.ratio);
    let times = times.map_or(String::new(), |r| format!(" · {}", ratio(r)));
    format!("{}{mark}{times}", shown(unit, median))
}

/// All figures of a bar, in a sentence.
#[must_use]
pub fn described(unit: Unit, cell: &Cell) -> String {
    let Some(median) = cell.median else {
        return format!("{}: not measured", cell.variant);
    };
    let mut text = format!("{}: {}", cell.variant, shown(unit, median));
    if let Some(i) = cell.interval {
        text.push_str(&format!(", 95 % {} to {}", shown(unit, i.low), shown(unit, i.high)));
    }
    let rounds = if cell.rounds == 1 { "round" } else { "rounds" };
    text.push_str(&format!(", {} {rounds}", cell.rounds));
    if cell.doubtful > 0 {
        text.push_str(&format!(", {} doubtful", cell.doubtful));
    }
    if let Some(against) = &cell.against_first {
        if let Some(times) = against.paired.ratio {
            text.push_str(&format!("; {} of the first", ratio(times)));
        }
        if let Some(i) = against.paired.ratio_interval {
            text.push_str(&format!(", 95 % {} to {}", ratio(i.low), ratio(i.high)));
        }
        match against.word() {
            // Said once, below the page's verdict.
            "" | "too few rounds" => {}
            word => text.push_str(&format!("; {word}")),
        }
        if let Some(p) = against.p_holm {
            text.push_str(&format!(", p = {p:.3} after Holm's correction"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::{compare_metric, comparison};
    use crate::report::synthetic::{self, Options};

    #[test]
    fn each_variant_has_a_bar_its_interval_and_its_value() {
        let record = synthetic::record(&Options {
            rounds: 12,
            variants: 9,
            ..Options::default()
        });
        let svg = bars(&comparison(&record).cases[0].metrics[0]).unwrap();
        assert_eq!(svg.matches(r#"class="bar""#).count(), 9);
        assert_eq!(svg.matches(r#"class="whisker""#).count(), 27);
        assert!(svg.contains("M/s · 1.3"), "{svg}");
        assert!(svg.contains("12 rounds") && svg.contains("better, p = 0.02"), "{svg}");
        assert!(
            !svg.contains("<script>") && svg.contains("&lt;script&gt;"),
            "names are escaped"
        );
    }

    #[test]
    fn zeros_and_missing_values_have_a_row_as_well() {
        let mut record = synthetic::record(&Options {
            troubled: true,
            ..Options::default()
        });
        let svg = bars(&compare_metric(&record, 0, &record.metrics[3])).unwrap();
        assert!(svg.contains("not measured"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        record.runs.clear();
        assert_eq!(bars(&compare_metric(&record, 0, &record.metrics[0])), None);
    }
}
