//! Units as types, so that pages, regions, blocks and bytes cannot be mixed.
//!
//! The two page sizes are defined here and nowhere else. They are those of x86-64 (and of arm64 with 4 KB pages); a host compares them with
//! its machine's before it does anything, and refuses to start if they differ.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Size of a base page in bytes.
pub const BASE_PAGE_BYTES: u64 = 4 << 10;
/// Size of a huge page, and so of a region and of a block, in bytes.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Base pages in a region (512).
pub const REGION_PAGES: u32 = (HUGE_PAGE_BYTES / BASE_PAGE_BYTES) as u32;

/// Why a text is not the expected quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct UnitError {
    text: String,
    expected: &'static str,
}

impl UnitError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.chars().take(64).collect(),
            expected,
        }
    }
}

/// A number of base pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BasePages(pub u32);

impl BasePages {
    /// No page.
    pub const ZERO: Self = Self(0);
    /// As many as a region has: 512.
    pub const REGION: Self = Self(REGION_PAGES);

    /// Their size in bytes.
    pub fn bytes(self) -> Bytes {
        Bytes(u64::from(self.0) * BASE_PAGE_BYTES)
    }

    /// The pages left after taking `other` away; never less than zero.
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for BasePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of 2 MB blocks of physical memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blocks(pub u64);

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl fmt::Display for Bytes {
    /// For people: about three digits and a binary unit (`6.1G`, `943M`, `12K`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
        for (size, name) in units {
            if self.0 >= size {
                let n = self.0 as f64 / size as f64;
                return if n < 10.0 {
                    write!(f, "{n:.1}{name}")
                } else {
                    write!(f, "{n:.0}{name}")
                };
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Reads `4K`, `2M`, `1G`, `1T` or plain bytes; binary units.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::new(text, "a size such as 4K, 2M or 1G");
        let (digits, shift) = match text.chars().last() {
            Some('K' | 'k') => (&text[..text.len() - 1], 10),
            Some('M' | 'm') => (&text[..text.len() - 1], 20),
            Some('G' | 'g') => (&text[..text.len() - 1], 30),
            Some('T' | 't') => (&text[..text.len() - 1], 40),
            _ => (text, 0),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let n: u64 = digits.parse().map_err(|_| bad())?;
        n.checked_mul(1 << shift).map(Self).ok_or_else(bad)
    }
}

/// A share between 0 and 1, kept in millionths so that thresholds are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(u32);

impl Share {
    const ONE: u32 = 1_000_000;
    /// 0 %.
    pub const ZERO: Self = Self(0);
    /// 100 %.
    pub const FULL: Self = Self(Self::ONE);

    /// `n` percent; more than 100 counts as 100.
    pub const fn percent(n: u32) -> Self {
        if n >= 100 {
            Self::FULL
        } else {
            Self(n * (Self::ONE / 100))
        }
    }

    /// From millionths; more than a million counts as a million.
    pub const fn millionths(n: u32) -> Self {
        if n > Self::ONE {
            Self::FULL
        } else {
            Self(n)
        }
    }

    /// The share of `whole` that `part` is, rounded down; 0 if `whole` is 0.
    pub fn of(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        let n = u128::from(part) * u128::from(Self::ONE) / u128::from(whole);
        Self(n.min(u128::from(Self::ONE)) as u32)
    }

    /// The share of a region that these base pages are.
    pub fn of_region(pages: BasePages) -> Self {
        Self::of(pages.0.into(), REGION_PAGES.into())
    }

    /// Whether `part` of `whole` is at least this share. Exact, without rounding.
    pub fn reached_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(Self::ONE) >= u128::from(self.0) * u128::from(whole)
    }

    /// Whether these base pages are at least this share of a region.
    pub fn reached_by_pages(self, pages: BasePages) -> bool {
        self.reached_by(pages.0.into(), REGION_PAGES.into())
    }

    /// As a fraction of 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE)
    }

    /// In millionths.
    pub fn as_millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    /// In percent with as many digits as needed (`90%`, `12.5%`), so that what is printed reads back unchanged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let digits = format!("{rest:04}");
        write!(f, "{whole}.{}%", digits.trim_end_matches('0'))
    }
}

impl FromStr for Share {
    type Err = UnitError;

    /// Reads `90%`, `12.5%`, or a fraction such as `0.9`; from 0 to 100 %.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::new(text, "a share from 0% to 100%");
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, f64::from(Self::ONE) / 100.0),
            None => (text, f64::from(Self::ONE)),
        };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(bad());
        }
        let n = (number.parse::<f64>().map_err(|_| bad())? * scale).round();
        if !(0.0..=f64::from(Self::ONE)).contains(&n) {
            return Err(bad());
        }
        Ok(Self(n as u32))
    }
}

/// A moment, in nanoseconds since the host's own epoch. Only hosts make them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment this much later.
    pub fn after(self, wait: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Time {
    /// In seconds with six decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1000;
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::new(text, "a time in seconds with six decimals");
        let (seconds, micros) = text.split_once('.').ok_or_else(bad)?;
        if micros.len() != 6 || !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(bad());
        }
        let seconds: u64 = seconds.parse().map_err(|_| bad())?;
        let micros: u64 = micros.parse().map_err(|_| bad())?;
        seconds
            .checked_mul(1_000_000)
            .and_then(|us| us.checked_add(micros))
            .and_then(|us| us.checked_mul(1000))
            .map(Self)
            .ok_or_else(bad)
    }
}

/// Reads a duration with its unit: `500us`, `250ms`, `5s`, `2m`, `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::new(text, "a time such as 500ms, 5s or 2m");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    // A year is longer than anyone waits; beyond it sums could overflow.
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|d| *d <= Duration::from_secs(366 * 86_400))
        .ok_or_else(bad)
}

/// A duration for people: `430us`, `9.2ms`, `5s`.
pub fn show_duration(d: Duration) -> String {
    let ns = d.as_nanos() as f64;
    let (value, unit) = match ns {
        n if n < 1e3 => return format!("{n:.0}ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value < 10.0 && value.fract() > 0.005 {
        format!("{value:.2}{unit}")
    } else if value < 100.0 && value.fract() > 0.05 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_exact_at_just_under_and_just_over() {
        let ninety = Share::percent(90); // 460.8 of 512
        assert!(!ninety.reached_by_pages(BasePages(460)));
        assert!(ninety.reached_by_pages(BasePages(461)));
        let half = Share::percent(50);
        assert!(!half.reached_by_pages(BasePages(255)));
        assert!(half.reached_by_pages(BasePages(256)));
        assert!(Share::ZERO.reached_by(0, 512));
    }

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!("2M".parse(), Ok(Bytes(2 << 20)));
        assert_eq!("1G".parse(), Ok(Bytes(1 << 30)));
        assert_eq!("90%".parse(), Ok(Share::percent(90)));
        assert_eq!("0.9".parse(), Ok(Share::percent(90)));
        assert_eq!("12.5%".parse::<Share>().map(|s| s.to_string()), Ok("12.5%".to_string()));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
    }

    #[test]
    fn nonsense_and_overflow_are_errors() {
        for text in ["", "K", "2X", "-1M", "99999999999T", "18446744073709551615K", "é", "2é"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in ["", "%", "101%", "1.1", "-1%", "nan%", "inf", "1e9%", "5.5.5%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["", "5", "s", "5 s", "-5s", "1e99s", "5x", "99999999999999h", "é"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_share_reads_back_as_it_was_written(n in 0u32..=1_000_000) {
            let share = Share::millionths(n);
            proptest::prop_assert_eq!(share.to_string().parse::<Share>().unwrap(), share);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Share>();
            let _ = text.parse::<Time>();
            let _ = parse_duration(&text);
        }
    }
}
