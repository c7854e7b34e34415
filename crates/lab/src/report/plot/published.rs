//! The paper's figure beside ours, a pair of bars per system.

use super::axis::Axis;
use super::{colour, ratio, shown, WIDTH};
use crate::report::compared::MetricComparison;
use crate::result::{Published, Record, Unit};
use mega_cli::draw::svg::{fitted, Anchor};

/// Right end of the bars; values follow.
const BARS_END: f64 = 216.0;

/// Height of a system: its name and two bars.
const ROW: f64 = 47.0;

/// Height of a bar.
const BAR: f64 = 10.0;

/// If the machines differ by more than this factor, bars show ratios to the first system.
const APART: f64 = 4.0;

/// A system in the paper and here.
struct Pair<'a> {
    figure: &'a Published,
    variant: Option<usize>,
    here: Option<f64>,
}

/// What the paper published about a metric of a case, in its order.
#[must_use]
pub fn published_of<'a>(record: &'a Record, case: usize, metric: &str) -> Vec<&'a Published> {
    let name = record.cases.get(case).map(|c| &c.name);
    let of = |p: &&Published| p.metric == metric && (p.case.is_none() || p.case.as_ref() == name);
    record.published.iter().filter(of).collect()
}

/// Draws the pairs. `None` when the paper has nothing about this.
#[must_use]
pub fn published(record: &Record, case: usize, metric: &MetricComparison) -> Option<String> {
    let figures = published_of(record, case, &metric.metric);
    if figures.is_empty() {
        return None;
    }
    let mut pairs = Vec::new();
    for figure in figures {
        let variant = figure.variant.as_ref();
        let variant = variant.and_then(|name| metric.variants.iter().position(|v| v.variant == *name));
        pairs.push(Pair {
            figure,
            variant,
            here: variant.and_then(|index| metric.variants[index].median),
        });
    }
    let base = pairs.first().and_then(|p| Some((p.figure.value, p.here?)));
    let base = base.filter(|(paper, here)| *paper > 0.0 && *here > 0.0);
    let largest = |values: &dyn Fn(&Pair) -> Option<f64>| pairs.iter().filter_map(values).fold(0.0, f64::max);
    let (paper, here) = (largest(&|p| Some(p.figure.value)), largest(&|p| p.here));
    let apart = here > 0.0 && (paper / here > APART || here / paper > APART);
    let relative = base.filter(|_| apart);
    // The length of a bar: the value, or its ratio to the first when two machines are too far apart for one axis.
    let paper_length = |p: &Pair| p.figure.value / relative.map_or(1.0, |(paper, _)| paper);
    let here_length = |p: &Pair| Some(p.here? / relative.map_or(1.0, |(_, here)| here));
    let longest = largest(&|p| Some(paper_length(p).max(here_length(p).unwrap_or(0.0))));
    let unit = if relative.is_some() { Unit::Ratio } else { metric.unit };
    let axis = Axis::linear(unit, longest, (10.0, BARS_END), 3);

    let bottom = ROW * pairs.len() as f64;
    let mut svg = super::figure(bottom + 20.0, &format!("{}: the paper and here", metric.label));
    for (x, label) in axis.ticks() {
        svg.line((x, 0.0), (x, bottom), "grid");
        svg.text((x, bottom + 14.0), Anchor::Middle, "tick", label);
    }
    let said = |value: f64, first: Option<f64>| {
        let times = first.map_or(String::new(), |first| format!(" · {}", ratio(value / first)));
        format!("{}{times}", shown(metric.unit, value))
    };
    for (index, pair) in pairs.iter().enumerate() {
        let top = ROW * index as f64;
        let in_paper = said(pair.figure.value, base.map(|b| b.0));
        let here = pair
            .here
            .map_or("not measured".to_string(), |v| said(v, base.map(|b| b.1)));
        let name = match (&pair.figure.variant, pair.variant) {
            (Some(variant), Some(_)) if *variant != pair.figure.system => format!("{}: {variant}", pair.figure.system),
            _ => pair.figure.system.clone(),
        };
        let title = format!("{name}, {}: the paper {in_paper}; here {here}", pair.figure.place);
        let class = pair.variant.map_or("v0".to_string(), colour);
        svg.group(&class, &title, |svg| {
            let zero = axis.at(0.0);
            svg.text((12.0, top + 14.0), Anchor::Start, "name", &fitted(&name, WIDTH - 16.0));
            svg.bar((zero, top + 18.0), (axis.at(paper_length(pair)) - zero, BAR), "paper");
            svg.text(
                (WIDTH - 2.0, top + 27.0),
                Anchor::End,
                "tick",
                &format!("paper {in_paper}"),
            );
            if let Some(length) = here_length(pair) {
                svg.bar((zero, top + 31.0), (axis.at(length) - zero, BAR), "bar");
            }
            svg.text((WIDTH - 2.0, top + 40.0), Anchor::End, "value", &format!("here {here}"));
        });
    }
    svg.line((axis.at(0.0), 0.0), (axis.at(0.0), bottom), "axis");
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::compare_metric;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn a_system_of_ours_has_two_bars_and_one_that_is_the_papers_alone_has_one() {
        let record = synthetic::record(&Options::default());
        let metric = compare_metric(&record, 1, &record.metrics[1]);
        let svg = published(&record, 1, &metric).unwrap();
        assert_eq!(svg.matches(r#"class="paper""#).count(), 3);
        assert_eq!(svg.matches(r#"class="bar""#).count(), 2);
        assert!(
            svg.contains("here not measured") && svg.contains("paper 11.1 GB · 1.46×"),
            "{svg}"
        );
        assert!(
            svg.contains("0 GB") || svg.contains("GB</text>"),
            "one unit for both: {svg}"
        );
    }

    #[test]
    fn machines_too_far_apart_for_one_axis_are_shown_as_ratios() {
        let mut record = synthetic::record(&Options::default());
        record.published.iter_mut().for_each(|p| p.value *= 100.0);
        let metric = compare_metric(&record, 1, &record.metrics[1]);
        let svg = published(&record, 1, &metric).unwrap();
        assert!(svg.contains(">2×</text>"), "{svg}");
        assert!(
            svg.contains("paper 1.11 TB · 1.46×"),
            "the values are still said: {svg}"
        );
    }

    #[test]
    fn a_figure_of_one_case_is_not_shown_with_another() {
        let record = synthetic::record(&Options::default());
        assert_eq!(published_of(&record, 0, "fault_p99_ns").len(), 3);
        assert_eq!(published_of(&record, 1, "fault_p99_ns").len(), 0);
        let metric = compare_metric(&record, 1, &record.metrics[2]);
        assert_eq!(published(&record, 1, &metric), None);
    }
}
