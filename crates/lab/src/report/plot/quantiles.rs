//! Latency distributions: the value at each quantile, the tail as wide as the bulk. Each further nine (p99, p99.9) takes the
//! same room, and the values have a logarithmic axis.

use std::collections::BTreeSet;

use super::axis::{nines, Axis};
use super::lines::{frame, names, End, BOTTOM, HEIGHT, LEFT, RIGHT, TOP};
use super::{colour, shown};
use crate::result::{Distribution, Outcome, Record, Run, Unit};
use crate::stats::median;

/// The names of the distributions that the runs of a case have.
#[must_use]
pub fn distributions(record: &Record, case: usize) -> BTreeSet<&str> {
    let done = record
        .runs
        .iter()
        .filter(|run| run.case == case && run.outcome == Outcome::Done);
    done.flat_map(|run| run.distributions.keys().map(String::as_str))
        .collect()
}

/// Draws a distribution of a case. `None` when there is nothing to draw.
#[must_use]
pub fn quantiles(record: &Record, case: usize, name: &str) -> Option<String> {
    let of = |variant: usize| -> Vec<&Distribution> {
        let mine = |run: &&Run| run.case == case && run.variant == variant && run.outcome == Outcome::Done;
        record
            .runs
            .iter()
            .filter(mine)
            .filter_map(|run| run.distributions.get(name))
            .collect()
    };
    let lines: Vec<(usize, Vec<(f64, f64)>)> = (0..record.variants.len())
        .map(|variant| (variant, line(&of(variant))))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|(n, _)| *n).fold(1.0, f64::max);
    let smallest = points().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
    let largest = points().map(|(_, ns)| *ns).fold(0.0, f64::max);
    points().next()?;
    let x = Axis::nines(most, (LEFT, RIGHT));
    let y = Axis::log(Unit::Ns, (smallest, largest), (BOTTOM, TOP));
    let mut svg = super::figure(HEIGHT, &format!("latency of {name} by quantile"));
    frame(&mut svg, &x, &y);
    let place = |(nines, ns): &(f64, f64)| (x.at(*nines), y.at(ns.log10()));
    let mut ends = Vec::new();
    for (variant, points) in &lines {
        let variant_name = &record.variants[*variant].name;
        let last = points.last()?;
        let title = format!("{variant_name}: {} at most", shown(Unit::Ns, last.1));
        let drawn: Vec<_> = points.iter().map(place).collect();
        svg.group(&colour(*variant), &title, |svg| svg.path(&[drawn], "line"));
        ends.push(End {
            at: place(last),
            class: colour(*variant),
            name: variant_name.clone(),
        });
    }
    names(&mut svg, &ends);
    Some(svg.finish())
}

/// Nines and ns: at each quantile the median of the rounds, as far as the number of values resolves; then the median of the
/// largest values, at as many nines as there are values.
fn line(rounds: &[&Distribution]) -> Vec<(f64, f64)> {
    let Some(first) = rounds.first() else {
        return vec![];
    };
    let counts: Vec<f64> = rounds.iter().map(|d| d.count.max(1) as f64).collect();
    let resolved = median(&counts).unwrap_or(1.0).log10();
    let at = |quantile: f64| {
        let same = |d: &&Distribution| {
            let found = d.quantiles.iter().find(|(q, _)| (q - quantile).abs() < 1e-12);
            found.map(|(_, ns)| ns.max(1.0))
        };
        let values: Vec<f64> = rounds.iter().filter_map(same).collect();
        median(&values)
    };
    let below = first
        .quantiles
        .iter()
        .map(|(q, _)| *q)
        .filter(|q| *q < 1.0 && nines(*q) < resolved);
    let mut points: Vec<(f64, f64)> = below.filter_map(|q| Some((nines(q), at(q)?))).collect();
    points.extend(at(1.0).map(|ns| (resolved, ns)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn the_line_ends_with_the_largest_value_where_the_count_puts_it() {
        let of = |count, top| Distribution {
            count,
            mean_ns: 1.0,
            quantiles: vec![(0.0, 0.0), (0.5, 10.0), (0.99, 20.0), (0.9999, 25.0), (1.0, top)],
        };
        let rounds = [of(1000, 30.0), of(1000, 40.0), of(1000, 90.0)];
        let points = line(&rounds.iter().collect::<Vec<_>>());
        let rounded: Vec<(f64, f64)> = points.iter().map(|(n, v)| ((n * 100.0).round() / 100.0, *v)).collect();
        // 0.9999 of a thousand values is the largest and no more; a value of 0 is shown as 1 ns.
        assert_eq!(rounded, [(0.0, 1.0), (0.3, 10.0), (2.0, 20.0), (3.0, 40.0)]);
        assert!(line(&[]).is_empty());
    }

    #[test]
    fn the_figure_has_nines_below_and_units_at_the_side() {
        let record = synthetic::record(&Options {
            variants: 9,
            ..Options::default()
        });
        let svg = quantiles(&record, 0, "fault").unwrap();
        for label in ["p50", "p90", "p99.99", "1 µs", "10 µs"] {
            assert!(svg.contains(&format!(">{label}<")), "{label} is not in {svg}");
        }
        assert_eq!(svg.matches(r#"class="line""#).count(), 9);
        assert_eq!(quantiles(&record, 0, "nothing"), None);
        assert_eq!(distributions(&record, 0).len(), 1);
    }
}
