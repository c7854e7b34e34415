//! A pool as a list of intervals: `SIZE[@OFFSET][+LENGTH]`, separated by commas.
//!
//! - SIZE is `4K`, `2M`, `2M:thp` or `1G`.
//! - OFFSET counts from the pool's beginning. Left out, the interval begins where the one before ends (the first at 0).
//! - LENGTH left out means: up to the next interval's OFFSET if it has one; for the last interval up to the pool's end; else one page.
//! - What no interval covers has base pages.
//!
//! So `1G@0,2M` is one gigabyte on a 1 GB page and the rest on 2 MB pages; `2M@512M+64M` is a window of 64 MB.
//! Offsets and lengths are multiples of the interval's page size, written as `4096`, `64K`, `2M`, `1G`, `1T`.

use std::fmt;

use crate::page::{Kind, BASE, GIGANTIC};

/// The most intervals that a layout can have.
pub const MOST: usize = 64;
/// The largest pool.
pub const LARGEST_POOL: usize = 16 << 40;

/// A part of a pool with one kind of pages. Bytes from the pool's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// What backs it.
    pub kind: Kind,
    /// First byte.
    pub start: usize,
    /// Byte after its last; `usize::MAX` for the pool's end, whatever that is.
    pub end: usize,
}

impl Interval {
    /// It extends to the pool's end.
    pub const fn is_open(&self) -> bool {
        self.end == usize::MAX
    }
}

/// Which parts of a pool have which pages: intervals in ascending order that do not overlap. Gaps have base pages.
#[derive(Clone, Copy)]
pub struct Layout {
    intervals: [Interval; MOST],
    count: usize,
}

/// Why a layout makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutError<'a> {
    /// The interval as it was written.
    pub interval: &'a str,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nothing where an interval should be.
    Empty,
    /// Not a page size.
    Size,
    /// Not a number of bytes.
    Number,
    /// Not a multiple of the page size.
    Misaligned(Kind),
    /// A length of nothing.
    Nothing,
    /// It covers a part of the interval before, or comes before it.
    Overlap,
    /// It ends past any pool.
    TooLarge,
    /// There are more than [`MOST`].
    TooMany,
}

impl fmt::Display for LayoutError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a person typed may have anything in it; one line stays one line.
        write!(f, "interval '{}': ", self.interval.escape_debug())?;
        match self.why {
            Why::Empty => write!(f, "empty; expected SIZE[@OFFSET][+LENGTH] as in 1G@0,2M"),
            Why::Size => write!(f, "no page size that pools have: expected 4K, 2M, 2M:thp or 1G"),
            Why::Number => write!(f, "offset and length are bytes as in 4096, 64K, 2M, 1G"),
            Why::Misaligned(kind) => write!(
                f,
                "offset and length must be multiples of its page size, {}",
                Size(kind.bytes())
            ),
            Why::Nothing => write!(f, "has a length of 0"),
            Why::Overlap => write!(
                f,
                "overlaps the interval before it; intervals are given in ascending order"
            ),
            Why::TooLarge => write!(f, "ends past {}, the largest pool", Size(LARGEST_POOL)),
            Why::TooMany => write!(f, "one too many; a layout has {MOST} at most"),
        }
    }
}

impl std::error::Error for LayoutError<'_> {}

/// A number of bytes, shown in the largest unit that divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS
            .into_iter()
            .find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match unit {
            Some((letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Size {
    /// Reads digits with a unit of K, M, G or T, or none for bytes.
    pub fn parse(text: &str) -> Option<usize> {
        let last = text.chars().last()?.to_ascii_uppercase();
        let unit = UNITS.into_iter().find(|(letter, _)| *letter == last);
        let (digits, shift) = match unit {
            Some((_, shift)) => (&text[..text.len() - 1], shift),
            None => (text, 0),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        digits.parse::<usize>().ok()?.checked_mul(1 << shift)
    }
}

/// One interval as it is written.
struct Written<'a> {
    text: &'a str,
    kind: Kind,
    offset: Option<usize>,
    length: Option<usize>,
}

impl<'a> Written<'a> {
    fn parse(text: &'a str) -> Result<Self, LayoutError<'a>> {
        let text = text.trim();
        let error = |why| LayoutError { interval: text, why };
        if text.is_empty() {
            return Err(error(Why::Empty));
        }
        let (rest, length) = match text.split_once('+') {
            Some((rest, length)) => (rest, Some(length)),
            None => (text, None),
        };
        let (size, offset) = match rest.split_once('@') {
            Some((size, offset)) => (size, Some(offset)),
            None => (rest, None),
        };
        let kind = Kind::parse(size).ok_or(error(Why::Size))?;
        let bytes = |number: Option<&str>| match number.map(Size::parse) {
            Some(None) => Err(error(Why::Number)),
            Some(Some(bytes)) if bytes % kind.bytes() != 0 => Err(error(Why::Misaligned(kind))),
            Some(Some(bytes)) => Ok(Some(bytes)),
            None => Ok(None),
        };
        let written = Self {
            text,
            kind,
            offset: bytes(offset)?,
            length: bytes(length)?,
        };
        match written.length {
            Some(0) => Err(error(Why::Nothing)),
            _ => Ok(written),
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self::BASE
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.intervals() == other.intervals()
    }
}

impl Eq for Layout {}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// As it can be read again.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, interval) in self.intervals().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}@{}", interval.kind, Size(interval.start))?;
            if !interval.is_open() {
                write!(f, "+{}", Size(interval.end - interval.start))?;
            }
        }
        if self.count == 0 {
            write!(f, "{}", Kind::Base)?;
        }
        Ok(())
    }
}

impl Layout {
    /// Base pages everywhere.
    pub const BASE: Self = Self {
        intervals: [Interval {
            kind: Kind::Base,
            start: 0,
            end: 0,
        }; MOST],
        count: 0,
    };

    /// Reads what a person wrote.
    pub fn parse(text: &str) -> Result<Self, LayoutError<'_>> {
        let mut layout = Self::BASE;
        let mut parts = text.split(',').map(Written::parse).peekable();
        let mut end = 0usize;
        while let Some(written) = parts.next() {
            let written = written?;
            let error = |why| LayoutError {
                interval: written.text,
                why,
            };
            let start = written.offset.unwrap_or(end);
            // Where the one before ends may be no multiple of this one's page size.
            if start % written.kind.bytes() != 0 {
                return Err(error(Why::Misaligned(written.kind)));
            }
            if start < end {
                return Err(error(Why::Overlap));
            }
            let next = match parts.peek() {
                Some(Ok(next)) => Some(next.offset),
                Some(Err(error)) => return Err(*error),
                None => None,
            };
            end = match (written.length, next) {
                (Some(length), _) => start.checked_add(length).ok_or(error(Why::TooLarge))?,
                (None, None) => usize::MAX,
                (None, Some(None)) => start.checked_add(written.kind.bytes()).ok_or(error(Why::TooLarge))?,
                // The next one's offset need not be a multiple of this one's page size.
                (None, Some(Some(next))) => next - next % written.kind.bytes(),
            };
            if end <= start {
                return Err(error(Why::Overlap));
            }
            let interval = Interval {
                kind: written.kind,
                start,
                end,
            };
            layout.push(interval).map_err(error)?;
        }
        Ok(layout)
    }

    /// Adds an interval after all that there are.
    pub fn push(&mut self, interval: Interval) -> Result<(), Why> {
        let page = interval.kind.bytes();
        if interval.start % page != 0 || (!interval.is_open() && interval.end % page != 0) {
            return Err(Why::Misaligned(interval.kind));
        }
        if interval.end <= interval.start {
            return Err(Why::Nothing);
        }
        let largest = if interval.is_open() {
            interval.start
        } else {
            interval.end
        };
        if largest > LARGEST_POOL {
            return Err(Why::TooLarge);
        }
        if self.intervals().last().is_some_and(|last| last.end > interval.start) {
            return Err(Why::Overlap);
        }
        *self.intervals.get_mut(self.count).ok_or(Why::TooMany)? = interval;
        self.count += 1;
        Ok(())
    }

    /// The intervals, in ascending order.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals[..self.count.min(MOST)]
    }

    /// What is at this byte of the pool.
    pub fn kind_at(&self, offset: usize) -> Kind {
        let interval = self.intervals().iter().find(|i| (i.start..i.end).contains(&offset));
        interval.map_or(Kind::Base, |i| i.kind)
    }

    /// Some part of it has pages of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Base => true,
            _ => self.intervals().iter().any(|i| i.kind == kind),
        }
    }

    /// The end of the last interval that says where it ends.
    pub fn stated_end(&self) -> usize {
        let ends = self
            .intervals()
            .iter()
            .map(|i| if i.is_open() { i.start } else { i.end });
        ends.max().unwrap_or(0)
    }

    /// Bytes of this kind that the intervals state, and whether there is one without an end besides.
    pub fn demand(&self, kind: Kind) -> (usize, bool) {
        let mine = self.intervals().iter().filter(|i| i.kind == kind);
        mine.fold((0, false), |(bytes, open), i| match i.is_open() {
            true => (bytes, true),
            false => (bytes + (i.end - i.start), open),
        })
    }
}

/// A pool's size: a whole number of gigabytes that holds the layout's intervals, and at least `wanted`.
pub fn pool_bytes(layout: &Layout, wanted: usize) -> usize {
    let least = layout.stated_end().max(wanted).clamp(BASE, LARGEST_POOL);
    // An open interval needs at least one page.
    let least = match layout.intervals().last() {
        Some(last) if last.is_open() => least.max(last.start + last.kind.bytes()),
        _ => least,
    };
    least.div_ceil(GIGANTIC) * GIGANTIC
}

#[cfg(test)]
mod tests;
