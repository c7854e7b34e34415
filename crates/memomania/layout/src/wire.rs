//! Settings as one environment variable, written by the command and read by the library before the program's allocator works.
//!
//! ```text
//! MEMOMANIA=1;sai;0;g0+40000m40000;0;t0;/path/of/report
//!           │ │   │ │              │ │  └ report: a path, "-" for standard error, or nothing
//!           │ │   │ │              │ └ anonymous pool's intervals
//!           │ │   │ │              └ its pages of 4 KB at least, hexadecimal; 0 for the library's choice
//!           │ │   └─┴ the same of the heap
//!           │ └ f or s: fail or smaller; a, c or x: fork auto, copy or share; i or n: inherit or not; p: pages are never replaced
//!           └ version
//! ```
//!
//! An interval is a letter for its kind (`k` base, `t` THP, `m` 2 MB, `g` 1 GB), its first page and, after `+`, its length, both in pages of
//! 4 KB from the pool's beginning and hexadecimal; without a length it extends to the pool's end. There are no addresses in it and
//! nothing that depends on where anything is loaded. Reading it allocates nothing and refuses whatever [`encode`] would not write, but for
//! the order of flags.

use std::fmt;

use crate::layout::{Interval, Layout, LARGEST_POOL};
use crate::page::{Kind, BASE};
use crate::settings::{Fallback, Fork, PoolSettings, Settings};

/// The variable's name.
pub const VARIABLE: &str = "MEMOMANIA";
/// The most bytes that its value can have.
pub const LONGEST: usize = 8 << 10;
/// What its value begins with; changes with every change that old readers would misread.
pub const VERSION: &str = "1";

const KINDS: [(char, Kind); 4] = [
    ('k', Kind::Base),
    ('t', Kind::Thp),
    ('m', Kind::Huge),
    ('g', Kind::Gigantic),
];

/// Why a value is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The command's and the library's versions differ, or it is no such value at all.
    Version,
    /// The field with this number, from 1 (the version), makes no sense.
    Field(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => write!(
                f,
                "{VARIABLE} is not of version {VERSION}: command and library do not belong together"
            ),
            Self::Field(number) => write!(
                f,
                "field {number} of {VARIABLE} makes no sense; use mega mosaic to set it"
            ),
        }
    }
}

impl std::error::Error for WireError {}

/// The variable's value. Allocates: for the command.
pub fn encode(settings: &Settings<'_>) -> String {
    let flags: String = [
        match settings.fallback {
            Fallback::Fail => 'f',
            Fallback::Smaller => 's',
        },
        match settings.fork {
            Fork::Auto => 'a',
            Fork::Copy => 'c',
            Fork::Share => 'x',
        },
        if settings.inherit { 'i' } else { 'n' },
    ]
    .into_iter()
    .chain((!settings.demote).then_some('p'))
    .collect();
    let pool = |pool: &PoolSettings| {
        let intervals = pool.layout.intervals().iter().map(|interval| {
            let letter = KINDS
                .iter()
                .find(|(_, kind)| *kind == interval.kind)
                .map_or('k', |(letter, _)| *letter);
            let start = interval.start / BASE;
            match interval.is_open() {
                true => format!("{letter}{start:x}"),
                false => format!("{letter}{start:x}+{:x}", (interval.end - interval.start) / BASE),
            }
        });
        format!("{:x};{}", pool.bytes.div_ceil(BASE), intervals.collect::<String>())
    };
    let (heap, anon) = (pool(&settings.heap), pool(&settings.anon));
    format!("{VERSION};{flags};{heap};{anon};{}", settings.report)
}

/// Reads the variable's value.
pub fn decode(value: &str) -> Result<Settings<'_>, WireError> {
    // The last field is a path and may have anything in it.
    let mut fields = value.splitn(7, ';');
    if fields.next() != Some(VERSION) {
        return Err(WireError::Version);
    }
    let mut settings = Settings::default();
    let flags = fields.next().ok_or(WireError::Field(2))?;
    for flag in flags.chars() {
        match flag {
            'f' => settings.fallback = Fallback::Fail,
            's' => settings.fallback = Fallback::Smaller,
            'a' => settings.fork = Fork::Auto,
            'c' => settings.fork = Fork::Copy,
            'x' => settings.fork = Fork::Share,
            'i' => settings.inherit = true,
            'n' => settings.inherit = false,
            'p' => settings.demote = false,
            _ => return Err(WireError::Field(2)),
        }
    }
    let mut pool = |number: u8| -> Result<PoolSettings, WireError> {
        let pages = fields.next().and_then(hexadecimal).ok_or(WireError::Field(number))?;
        let bytes = pages.checked_mul(BASE).filter(|bytes| *bytes <= LARGEST_POOL);
        let layout = fields.next().and_then(intervals).ok_or(WireError::Field(number + 1))?;
        Ok(PoolSettings {
            layout,
            bytes: bytes.ok_or(WireError::Field(number))?,
        })
    };
    settings.heap = pool(3)?;
    settings.anon = pool(5)?;
    settings.report = fields.next().ok_or(WireError::Field(7))?;
    Ok(settings)
}

fn hexadecimal(digits: &str) -> Option<usize> {
    // `from_str_radix` takes a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| usize::from_str_radix(digits, 16).ok()).flatten()
}

fn intervals(mut text: &str) -> Option<Layout> {
    let mut layout = Layout::BASE;
    while let Some(letter) = text.chars().next() {
        let (_, kind) = *KINDS.iter().find(|(own, _)| *own == letter)?;
        let rest = &text[1..];
        let end = rest
            .find(|c: char| !c.is_ascii_hexdigit() && c != '+')
            .unwrap_or(rest.len());
        let (numbers, next) = rest.split_at(end);
        text = next;
        let (start, length) = match numbers.split_once('+') {
            Some((start, length)) => (start, Some(length)),
            None => (numbers, None),
        };
        let bytes = |digits| hexadecimal(digits).and_then(|pages| pages.checked_mul(BASE));
        let start = bytes(start)?;
        let end = match length {
            Some(length) => start.checked_add(bytes(length)?)?,
            None => usize::MAX,
        };
        layout.push(Interval { kind, start, end }).ok()?;
    }
    Some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_is_what_it_says() {
        let settings = Settings {
            heap: PoolSettings {
                layout: Layout::parse("1G@0,2M").unwrap(),
                bytes: 0,
            },
            anon: PoolSettings {
                layout: Layout::parse("2M:thp").unwrap(),
                bytes: 0,
            },
            report: "/path/of/report",
            ..Settings::default()
        };
        let value = "1;sai;0;g0+40000m40000;0;t0;/path/of/report";
        assert_eq!(encode(&settings), value);
        assert_eq!(decode(value), Ok(settings));
        let kept = Settings {
            demote: false,
            ..settings
        };
        assert_eq!(encode(&kept), value.replace("sai", "saip"));
        assert_eq!(decode(&encode(&kept)), Ok(kept));
    }

    #[test]
    fn what_the_command_would_not_write_is_refused() {
        for (value, error) in [
            ("", WireError::Version),
            ("2;sai;0;;0;;", WireError::Version),
            ("1", WireError::Field(2)),
            ("1;q;0;;0;;", WireError::Field(2)),
            ("1;s;", WireError::Field(3)),
            ("1;s;+1;;0;;", WireError::Field(3)),
            ("1;s;ffffffffffffffff;;0;;", WireError::Field(3)),
            ("1;s;0", WireError::Field(4)),
            ("1;s;0;m", WireError::Field(4)),
            ("1;s;0;m1;0;;", WireError::Field(4)),
            ("1;s;0;m0+200m0+200;0;;", WireError::Field(4)),
            ("1;s;0;m0+200+200;0;;", WireError::Field(4)),
            ("1;s;0;é0;0;;", WireError::Field(4)),
            ("1;s;0;mé;0;;", WireError::Field(4)),
            ("1;s;0;;0;x;", WireError::Field(6)),
            ("1;s;0;;0;", WireError::Field(7)),
        ] {
            assert_eq!(decode(value), Err(error), "{value}");
        }
    }

    #[test]
    fn the_largest_value_fits() {
        let mut layout = Layout::BASE;
        for n in 0..crate::layout::MOST {
            let start = (8 << 40) + n * (4 << 20);
            let interval = Interval {
                kind: Kind::Huge,
                start,
                end: start + (2 << 20),
            };
            layout.push(interval).unwrap();
        }
        let bytes = LARGEST_POOL;
        let pool = PoolSettings { layout, bytes };
        let report = "r".repeat(4096);
        let settings = Settings {
            heap: pool,
            anon: pool,
            report: &report,
            ..Settings::default()
        };
        let value = encode(&settings);
        assert!(value.len() <= LONGEST, "{}", value.len());
        assert_eq!(decode(&value), Ok(settings));
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_or_refused(value in "1;[fsacxinp]{0,4};[0-9a-f]{0,3};[ktmg0-9a-f+]{0,20};0;[tm0+200]{0,9};.{0,9}|.{0,30}") {
            if let Ok(settings) = decode(&value) {
                assert_eq!(decode(&encode(&settings)), Ok(settings));
            }
        }
    }
}
