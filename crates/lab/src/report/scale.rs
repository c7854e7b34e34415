//! Human-readable values: three digits and a fitting unit.

use crate::result::Unit;

/// A unit to show values in, and how many base units it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    unit: Unit,
    factor: f64,
    name: &'static str,
}

/// The units to choose from, largest first.
fn ladder(unit: Unit) -> &'static [(f64, &'static str)] {
    match unit {
        Unit::Ns => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
        Unit::Bytes => &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        Unit::PerSecond => &[(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        Unit::Count => &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")],
        Unit::Share => &[(0.01, "%")],
        Unit::Ratio => &[(1.0, "x")],
    }
}

impl Scale {
    /// The scale in which `largest` reads best.
    #[must_use]
    pub fn of(unit: Unit, largest: f64) -> Self {
        let ladder = ladder(unit);
        let fits = |(factor, _): &&(f64, &str)| largest.abs() >= *factor;
        let (factor, name) = ladder.iter().find(fits).unwrap_or(&ladder[ladder.len() - 1]);
        Self {
            unit,
            factor: *factor,
            name,
        }
    }

    /// The unit's name: `M/s`; empty for plain numbers.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `value` in this unit.
    #[must_use]
    pub fn of_base(&self, value: f64) -> f64 {
        value / self.factor
    }

    /// `value` with three digits and no unit. A value that would round to zero keeps its own unit instead.
    #[must_use]
    pub fn number(&self, value: f64) -> String {
        let scaled = self.of_base(value);
        if scaled != 0.0 && scaled.abs() < 0.01 && self.factor > ladder(self.unit)[ladder(self.unit).len() - 1].0 {
            return value_text(self.unit, value);
        }
        digits(scaled)
    }
}

/// `value` in a fitting unit: `1.23 M/s`, `950 us`, `6.15 GB`, `12.5 %`.
#[must_use]
pub fn value_text(unit: Unit, value: f64) -> String {
    let scale = Scale::of(unit, value);
    let number = digits(scale.of_base(value));
    match unit {
        Unit::Ratio => format!("{number}x"),
        _ if scale.name.is_empty() => number,
        _ => format!("{number} {}", scale.name),
    }
}

/// A ratio to another variant: `1.23x`.
#[must_use]
pub fn ratio_text(ratio: f64) -> String {
    value_text(Unit::Ratio, ratio)
}

/// Three significant digits: `1234`, `123`, `12.3`, `1.23`, `0.123`.
#[must_use]
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_string();
    }
    match () {
        () if value == 0.0 => "0".to_string(),
        () if !(1e-3..1e6).contains(&size) => format!("{value:.2e}"),
        () if size >= 99.95 => format!("{value:.0}"),
        () if size >= 9.995 => format!("{value:.1}"),
        () if size >= 0.9995 => format!("{value:.2}"),
        () => format!("{value:.3}"),
    }
}

/// Seconds as a duration: `0.5 s`, `42 s`, `3 min 20 s`, `2 h 5 min`.
#[must_use]
pub fn duration_text(seconds: f64) -> String {
    if !(0.0..1e12).contains(&seconds) {
        return "-".to_string();
    }
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        0..=119 => format!("{whole} s"),
        120..=7199 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

/// The date of a time in seconds since 1970, UTC: year, month, day, hour, minute, second. By the day count of the Gregorian
/// calendar, which repeats every 400 years of 146,097 days.
#[must_use]
pub fn civil(unix_s: u64) -> [u64; 6] {
    let (day, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 1 March of the year 0: a leap day is then the last of its year.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (era * 400 + year, month + 3)
    } else {
        (era * 400 + year + 1, month - 9)
    };
    [year, month, day, second / 3600, second / 60 % 60, second % 60]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_three_digits_in_a_unit_that_suits_them() {
        for (unit, value, text) in [
            (Unit::PerSecond, 1_234_567.0, "1.23 M/s"),
            (Unit::PerSecond, 12.0, "12.0 /s"),
            (Unit::Ns, 950_000.0, "950 us"),
            (Unit::Ns, 999.96e3, "1000 us"),
            (Unit::Ns, 2.5e9, "2.50 s"),
            (Unit::Ns, 4e12, "4000 s"),
            (Unit::Bytes, 6.15e9, "6.15 GB"),
            (Unit::Bytes, 0.0, "0 B"),
            (Unit::Count, 512.0, "512"),
            (Unit::Count, 2_447.0, "2.45 k"),
            (Unit::Share, 0.125, "12.5 %"),
            (Unit::Ratio, 1.0, "1.00x"),
            (Unit::Ratio, 123.4, "123x"),
        ] {
            assert_eq!(value_text(unit, value), text);
        }
    }

    #[test]
    fn a_column_has_one_unit_unless_a_value_would_vanish_in_it() {
        let scale = Scale::of(Unit::Ns, 3e9);
        assert_eq!(scale.name(), "s");
        assert_eq!(scale.number(2.5e8), "0.250");
        assert_eq!(scale.number(1e6), "1.00 ms");
        assert_eq!(scale.number(0.0), "0");
        assert_eq!(Scale::of(Unit::Share, 0.001).number(0.00005), "0.005");
    }

    #[test]
    fn durations_are_read_at_a_glance() {
        let texts = [0.5, 42.0, 200.4, 7_500.0, f64::NAN].map(duration_text);
        assert_eq!(texts, ["0.5 s", "42 s", "3 min 20 s", "2 h 5 min", "-"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Known from `date -u -d @N`.
        for (unix_s, date) in [
            (0, [1970, 1, 1, 0, 0, 0]),
            (951_782_399, [2000, 2, 28, 23, 59, 59]),
            (951_782_400, [2000, 2, 29, 0, 0, 0]),
            (951_868_800, [2000, 3, 1, 0, 0, 0]),
            (1_795_260_498, [2026, 11, 21, 11, 28, 18]),
            (4_107_542_400, [2100, 3, 1, 0, 0, 0]),
        ] {
            assert_eq!(civil(unix_s), date);
        }
    }
}
