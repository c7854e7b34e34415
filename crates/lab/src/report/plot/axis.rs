//! Axes: ticks at round numbers, linear, logarithmic, and by nines.

use super::shown;
use crate::report::scale::Scale;
use crate::result::Unit;

/// An axis: a range of values on a range of the figure, and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    /// Values, already transformed, with their labels.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a round number above `largest`, drawn from `start` to `end`, with about `count` ticks in one unit; the last
    /// tick names the unit.
    #[must_use]
    pub fn linear(unit: Unit, largest: f64, (start, end): (f64, f64), count: usize) -> Self {
        let largest = if largest.is_finite() && largest > 0.0 {
            largest
        } else {
            1.0
        };
        let steps_in = |scale: &Scale| {
            let top = scale.of_base(largest);
            let step = round_step(top / count.max(1) as f64);
            (top, step, (top / step - 1e-9).ceil().max(1.0))
        };
        let mut scale = Scale::of(unit, largest);
        let (top, step, steps) = steps_in(&scale);
        // Up to 1 M/s rather than up to 1000 k/s.
        scale = Scale::of(unit, steps * step * (largest / top));
        let (top, step, steps) = steps_in(&scale);
        let base = largest / top;
        let name = match (unit, scale.name()) {
            (_, "") => String::new(),
            (Unit::Ratio, _) => "×".to_string(),
            (_, "us") => " µs".to_string(),
            (_, name) => format!(" {name}"),
        };
        let decimals = (-step.log10() - 1e-9).ceil().max(0.0) as usize;
        let ticks = (0..=steps as usize).map(|i| {
            let at = i as f64 * step;
            let unit = if i == steps as usize { name.as_str() } else { "" };
            (at * base, format!("{at:.decimals$}{unit}"))
        });
        Self {
            from: 0.0,
            to: steps * step * base,
            start,
            end,
            ticks: ticks.collect(),
        }
    }

    /// Decades around `smallest` to `largest` (both above zero), ticks at 1, 2 and 5 when there are few of them.
    #[must_use]
    pub fn log(unit: Unit, (smallest, largest): (f64, f64), (start, end): (f64, f64)) -> Self {
        let low = rounded_125(smallest.max(f64::MIN_POSITIVE), f64::floor);
        let high = rounded_125(largest.max(smallest * 1.01).max(f64::MIN_POSITIVE), f64::ceil);
        let decades = (high / low).log10();
        let leading: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        // Seven decades and more: every second or third of them has a label.
        let every = (decades / 6.0).ceil().max(1.0) as i32;
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let ticks = (first..=last)
            .filter(|decade| (decade - first) % every == 0)
            .flat_map(|decade| leading.iter().map(move |lead| lead * 10f64.powi(decade)))
            .filter(|value| (low * 0.999..=high * 1.001).contains(value))
            .map(|value| (value.log10(), round_text(unit, value)));
        Self {
            from: low.log10(),
            to: high.log10(),
            start,
            end,
            ticks: ticks.collect(),
        }
    }

    /// Quantiles by nines: p90, p99, p99.9 at equal distances, up to `most` nines.
    #[must_use]
    pub fn nines(most: f64, (start, end): (f64, f64)) -> Self {
        let most = most.clamp(1.0, 15.0);
        let room_per_nine = (end - start).abs() / most;
        let every = (42.0 / room_per_nine).ceil().max(1.0) as usize;
        let mut ticks = Vec::new();
        if room_per_nine * 0.69 > 26.0 {
            ticks.push((nines(0.5), "p50".to_string()));
        }
        for whole in (1..=most.floor() as usize).step_by(every) {
            let label = match whole {
                1 => "p90".to_string(),
                2 => "p99".to_string(),
                n => format!("p99.{}", "9".repeat(n - 2)),
            };
            ticks.push((whole as f64, label));
        }
        Self {
            from: 0.0,
            to: most,
            start,
            end,
            ticks,
        }
    }

    /// Position of `value`; on a logarithmic axis, of its logarithm.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + share * (self.end - self.start)
    }

    /// Place and label of each tick.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks
            .iter()
            .map(|(value, label)| (self.at(*value), label.as_str()))
    }
}

/// How many nines a quantile has: 0.9 one, 0.99 two, 0.5 0.3.
#[must_use]
pub fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-15).log10()
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    rounded_125(least, f64::ceil)
}

/// `value` moved to 1, 2 or 5 times a power of ten: up with `ceil`, down with `floor`.
fn rounded_125(value: f64, direction: fn(f64) -> f64) -> f64 {
    let up = direction(0.5) > 0.5;
    let decade = 10f64.powf(value.log10().floor());
    let leads = [1.0, 2.0, 5.0, 10.0];
    // With tolerance: 2.0000000001 is 2.
    let fits = |lead: &&f64| **lead * decade >= value * (1.0 - 1e-9);
    let below = |lead: &&f64| **lead * decade <= value * (1.0 + 1e-9);
    let lead = if up {
        leads.iter().find(fits)
    } else {
        leads.iter().rev().find(below)
    };
    lead.copied().unwrap_or(1.0) * decade
}

/// A round value without trailing zeros: `1 µs`, `500 ns`.
fn round_text(unit: Unit, value: f64) -> String {
    let text = shown(unit, value);
    let (number, rest) = match text.split_once(' ') {
        Some((number, rest)) => (number, format!(" {rest}")),
        None => (text.as_str(), String::new()),
    };
    let number = if number.contains('.') && !number.contains('e') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_stand_at_round_numbers_and_the_last_has_the_unit() {
        let axis = Axis::linear(Unit::PerSecond, 1.34e6, (0.0, 300.0), 4);
        assert_eq!(labels(&axis), ["0.0", "0.5", "1.0", "1.5 M/s"]);
        for (value, place) in [(0.0, 0.0), (1.5e6, 300.0), (0.75e6, 150.0), (9e9, 300.0)] {
            assert!((axis.at(value) - place).abs() < 1e-6, "{value}");
        }
        let axis = Axis::linear(Unit::Ns, 4e9, (0.0, 300.0), 4);
        assert_eq!(labels(&axis), ["0", "1", "2", "3", "4 s"]);
        assert_eq!(
            labels(&Axis::linear(Unit::Share, 0.12, (0.0, 300.0), 3)),
            ["0", "5", "10", "15 %"]
        );
        assert_eq!(
            labels(&Axis::linear(Unit::Bytes, 0.0, (0.0, 300.0), 2)),
            ["0.0", "0.5", "1.0 B"]
        );
    }

    #[test]
    fn a_logarithmic_axis_has_decades_and_between_them_only_when_there_are_few() {
        let few = Axis::log(Unit::Ns, (900.0, 8_000.0), (0.0, 100.0));
        assert_eq!(labels(&few), ["500 ns", "1 µs", "2 µs", "5 µs", "10 µs"]);
        let many = Axis::log(Unit::Ns, (900.0, 2.0e7), (0.0, 100.0));
        assert_eq!(labels(&many), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        let one = Axis::log(Unit::Ns, (1000.0, 1000.0), (0.0, 100.0));
        assert!(labels(&one).len() >= 2, "{one:?}");
    }

    #[test]
    fn each_nine_is_as_far_as_the_one_before() {
        let axis = Axis::nines(5.0, (0.0, 300.0));
        assert_eq!(labels(&axis), ["p50", "p90", "p99", "p99.9", "p99.99", "p99.999"]);
        assert!((axis.at(nines(0.99)) - axis.at(nines(0.9)) - 60.0).abs() < 1e-6);
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
        assert!(nines(1.0).is_finite());
    }

    proptest! {
        #[test]
        fn the_axis_reaches_over_the_largest_value_and_not_far(largest in 1e-3..1e13f64, count in 2..6usize) {
            let axis = Axis::linear(Unit::Count, largest, (0.0, 1.0), count);
            prop_assert!(axis.to >= largest * (1.0 - 1e-6) && axis.to <= largest * 2.5, "{axis:?}");
            prop_assert!((2..=count + 2).contains(&axis.ticks.len()), "{axis:?}");
        }
    }
}
