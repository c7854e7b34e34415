//! Figures over time: a line per variant, the median of its rounds, in a light band from minimum to maximum.

use std::collections::BTreeSet;

use super::axis::Axis;
use super::lines::{frame, names, End, BOTTOM, HEIGHT, LEFT, RIGHT, TOP};
use super::{colour, shown};
use crate::result::{Outcome, Record, Run, Unit};
use crate::stats::median;

/// Maximum number of points of a line.
const POINTS_MAX: usize = 120;

/// One point of a line: time, and minimum, median and maximum of the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    seconds: f64,
    low: f64,
    middle: f64,
    high: f64,
}

/// The columns that the runs of a case have.
#[must_use]
pub fn columns(record: &Record, case: usize) -> BTreeSet<&str> {
    let runs = done(record, case);
    runs.flat_map(|run| run.series.columns.keys().map(String::as_str))
        .collect()
}

/// Unit of a column, by the suffix of its name.
#[must_use]
pub fn unit_of(column: &str) -> Unit {
    match () {
        () if column.ends_with("_bytes") => Unit::Bytes,
        () if column.ends_with("_ns") => Unit::Ns,
        () if column.ends_with("_per_s") => Unit::PerSecond,
        () if column.ends_with("_share") => Unit::Share,
        () => Unit::Count,
    }
}

/// Draws a column of a case. `None` when there is nothing to draw.
#[must_use]
pub fn series(record: &Record, case: usize, column: &str) -> Option<String> {
    let lines: Vec<(usize, Vec<Vec<Point>>)> = (0..record.variants.len())
        .map(|variant| (variant, line(&runs_of(record, case, variant), column)))
        .filter(|(_, parts)| !parts.is_empty())
        .collect();
    let points = || lines.iter().flat_map(|(_, parts)| parts.iter().flatten());
    let latest = points().map(|p| p.seconds).fold(0.0, f64::max);
    let largest = points().map(|p| p.high).fold(0.0, f64::max);
    points().next()?;
    let unit = unit_of(column);
    let x = Axis::linear(Unit::Ns, latest * 1e9, (LEFT, RIGHT), 4);
    let y = Axis::linear(unit, largest, (BOTTOM, TOP), 4);
    let mut svg = super::figure(HEIGHT, &format!("{column} over time"));
    frame(&mut svg, &x, &y);
    let place = |p: &Point, value: f64| (x.at(p.seconds * 1e9), y.at(value));
    for (variant, parts) in &lines {
        svg.group(&colour(*variant), &record.variants[*variant].name, |svg| {
            for part in parts.iter().filter(|part| part.len() > 1) {
                let there = part.iter().map(|p| place(p, p.high));
                let back = part.iter().rev().map(|p| place(p, p.low));
                let outline: Vec<_> = there.chain(back).collect();
                svg.area(&outline, "band");
            }
        });
    }
    let mut ends = Vec::new();
    for (variant, parts) in &lines {
        let name = &record.variants[*variant].name;
        let last = parts.last().and_then(|part| part.last())?;
        let end = shown(unit, last.middle);
        svg.group(&colour(*variant), &format!("{name}: {end} at the end"), |svg| {
            let drawn: Vec<Vec<_>> = parts
                .iter()
                .map(|part| part.iter().map(|p| place(p, p.middle)).collect())
                .collect();
            svg.path(&drawn, "line");
        });
        for (seconds, phase) in phases(&runs_of(record, case, *variant)) {
            if let Some(point) = parts.iter().flatten().min_by(|a, b| {
                let far = |p: &Point| (p.seconds - seconds).abs();
                far(a).total_cmp(&far(b))
            }) {
                let title = format!("{name}: {phase} begins at {seconds:.1} s");
                svg.group(&colour(*variant), &title, |svg| {
                    svg.dot(place(point, point.middle), "dot", &title)
                });
            }
        }
        ends.push(End {
            at: place(last, last.middle),
            class: colour(*variant),
            name: name.clone(),
        });
    }
    names(&mut svg, &ends);
    Some(svg.finish())
}

/// Names of the phases that begin after the start, in any run of a case.
#[must_use]
pub fn phase_names(record: &Record, case: usize) -> BTreeSet<&str> {
    let phases = done(record, case).flat_map(|run| &run.phases);
    phases
        .filter(|(s, _)| *s > 0.0)
        .map(|(_, name)| name.as_str())
        .collect()
}

/// Median start of each phase after the first.
fn phases(runs: &[&Run]) -> Vec<(f64, String)> {
    let all = || runs.iter().flat_map(|run| &run.phases).filter(|(s, _)| *s > 0.0);
    let names: BTreeSet<&String> = all().map(|(_, name)| name).collect();
    let begin = |name: &String| {
        let times: Vec<f64> = all().filter(|(_, n)| n == name).map(|(s, _)| *s).collect();
        Some((median(&times)?, name.clone()))
    };
    names.into_iter().filter_map(begin).collect()
}

fn done(record: &Record, case: usize) -> impl Iterator<Item = &Run> {
    let of = move |run: &&Run| run.case == case && run.outcome == Outcome::Done;
    record.runs.iter().filter(of)
}

fn runs_of(record: &Record, case: usize, variant: usize) -> Vec<&Run> {
    done(record, case).filter(|run| run.variant == variant).collect()
}

/// Samples of one run in a span of time.
#[derive(Clone, Copy, PartialEq)]
enum Bin {
    /// No sample fell into it.
    Empty,
    /// Only samples that could not be read.
    Unread,
    /// The mean of those that could.
    Mean(f64),
}

/// The parts of a variant's line: it breaks where nothing could be read. A point needs half of the rounds, so that the line
/// does not jump where one round lasted longer.
fn line(runs: &[&Run], column: &str) -> Vec<Vec<Point>> {
    let runs: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|r| r.series.columns.contains_key(column))
        .collect();
    let latest = runs
        .iter()
        .filter_map(|r| r.series.seconds.last())
        .copied()
        .fold(0.0, f64::max);
    let samples = runs.iter().map(|r| r.series.seconds.len()).max().unwrap_or(0);
    let count = samples.clamp(1, POINTS_MAX);
    let width = (latest / count as f64).max(f64::MIN_POSITIVE);
    let binned: Vec<Vec<Bin>> = runs.iter().map(|run| bins(run, column, count, width)).collect();
    let mut parts: Vec<Vec<Point>> = vec![vec![]];
    for bin in 0..count {
        let here = || binned.iter().map(|run| run[bin]);
        let mut values: Vec<f64> = here()
            .filter_map(|b| if let Bin::Mean(v) = b { Some(v) } else { None })
            .collect();
        if values.is_empty() && here().any(|b| b == Bin::Unread) {
            parts.push(vec![]);
        }
        if values.is_empty() || values.len() * 2 < runs.len() {
            continue;
        }
        values.sort_by(f64::total_cmp);
        if let (Some(middle), Some(part)) = (median(&values), parts.last_mut()) {
            part.push(Point {
                seconds: (bin as f64 + 0.5) * width,
                low: values[0],
                middle,
                high: values[values.len() - 1],
            });
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn bins(run: &Run, column: &str, count: usize, width: f64) -> Vec<Bin> {
    let mut sums = vec![(0.0, 0u32); count];
    let mut bins = vec![Bin::Empty; count];
    let values = run.series.columns.get(column).map_or(&[][..], Vec::as_slice);
    for (seconds, value) in run.series.seconds.iter().zip(values) {
        let bin = ((seconds / width) as usize).min(count - 1);
        match value.filter(|v| v.is_finite()) {
            Some(value) => {
                sums[bin].0 += value;
                sums[bin].1 += 1;
                bins[bin] = Bin::Mean(sums[bin].0 / f64::from(sums[bin].1));
            }
            None if bins[bin] == Bin::Empty => bins[bin] = Bin::Unread,
            None => {}
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn the_line_is_the_median_of_the_rounds_and_breaks_where_nothing_could_be_read() {
        let mut record = synthetic::record(&Options {
            rounds: 3,
            variants: 1,
            ..Options::default()
        });
        for run in &mut record.runs {
            run.series.seconds = (0..10).map(f64::from).collect();
            let value = run.round as f64 + 1.0;
            let column = (0..10).map(|i| (i != 4).then_some(value)).collect();
            run.series.columns = [("x".to_string(), column)].into();
        }
        let parts = line(&runs_of(&record, 0, 0), "x");
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4, 5]);
        assert!(
            parts
                .iter()
                .flatten()
                .all(|p| (p.low, p.middle, p.high) == (1.0, 2.0, 3.0)),
            "{parts:?}"
        );
    }

    #[test]
    fn a_round_that_lasts_longer_than_the_others_does_not_make_a_tail() {
        let mut record = synthetic::record(&Options {
            rounds: 3,
            variants: 1,
            ..Options::default()
        });
        for run in record.runs.iter_mut().filter(|r| r.round > 0) {
            run.series.seconds.truncate(20);
            run.series.columns.values_mut().for_each(|c| c.truncate(20));
        }
        let parts = line(&runs_of(&record, 0, 0), "rss_bytes");
        let last = parts.last().and_then(|p| p.last()).unwrap();
        assert!(last.seconds < 10.5, "{last:?}");
    }

    #[test]
    fn every_variant_has_a_line_and_its_name_and_there_is_nothing_without_samples() {
        let record = synthetic::record(&Options {
            variants: 9,
            ..Options::default()
        });
        let svg = series(&record, 0, "rss_bytes").unwrap();
        assert_eq!(svg.matches(r#"class="line""#).count(), 9);
        assert_eq!(svg.matches(r#"class="name""#).count(), 9);
        assert!(svg.contains("serve begins at 12.0 s"));
        assert_eq!(series(&record, 0, "nothing"), None);
        assert_eq!(columns(&record, 0).len(), 2);
    }
}
