//! What was done to an area, as the source of a test: where its content is wrong, what led to that is pasted into `area.rs`.

use std::fmt::{self, Write};
use std::ops::Range;

use crate::memory::Protection;

/// The most operations that are kept; older ones are left out, and that is said.
const MOST: usize = 10_000;

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// Made with so many pages.
    New(usize),
    Write(Range<usize>, u64),
    Protect(Range<usize>, Protection),
    /// Advice by its place among [`super::area::HARMLESS`].
    Advise(Range<usize>, usize),
    DontNeed(Range<usize>),
    Free(Range<usize>),
    Lock(bool),
    Grow(usize),
    Relocate,
    /// A part was unmapped, and this is what is before it, or what is behind it.
    Before(Range<usize>),
    Behind(Range<usize>),
    /// A child by fork had it, too, looked at it and wrote to its copy.
    Forked,
}

/// Operations in order.
#[derive(Debug, Clone, Default)]
pub struct History {
    done: Vec<Done>,
    left_out: usize,
}

impl History {
    /// Adds one.
    pub fn add(&mut self, done: Done) {
        if self.done.len() >= MOST {
            self.done.drain(..MOST / 2);
            self.left_out += MOST / 2;
        }
        self.done.push(done);
    }

    /// The same for a part of the area.
    pub fn with(&self, done: Done) -> Self {
        let mut part = self.clone();
        part.add(done);
        part
    }

    /// A test of this name that does the same again.
    pub fn source(&self, name: &str) -> String {
        let mut text = format!("    #[test]\n    #[allow(unused_mut)]\n    fn {name}() {{\n");
        if self.left_out > 0 {
            let _ = writeln!(
                text,
                "        // {} operations before these are not kept.",
                self.left_out
            );
        }
        for done in &self.done {
            let _ = writeln!(text, "        {done}");
        }
        text + "        a.verify(0..a.len()).unwrap();\n    }\n"
    }
}

impl fmt::Display for Done {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(pages) => write!(to, "let mut a = StormArea::new({pages}).unwrap();"),
            Self::Write(range, seed) => write!(to, "a.write({range:?}, {seed:#x});"),
            Self::Protect(range, protection) => write!(to, "let _ = a.protect({range:?}, Protection::{protection:?});"),
            Self::Advise(range, which) => write!(to, "let _ = a.advise({range:?}, {which});"),
            Self::DontNeed(range) => write!(to, "let _ = a.dontneed({range:?});"),
            Self::Free(range) => write!(to, "let _ = a.free({range:?});"),
            Self::Lock(locked) => write!(to, "let _ = a.lock({locked});"),
            Self::Grow(pages) => write!(to, "a.grow({pages}).unwrap();"),
            Self::Relocate => write!(to, "let _ = a.relocate();"),
            Self::Before(range) => write!(to, "let mut a = a.unmap({range:?}).next().unwrap();"),
            Self::Behind(range) => write!(to, "let mut a = a.unmap({range:?}).last().unwrap();"),
            Self::Forked => write!(to, "// A child by fork looks at it, and writes to its copy."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_history_the_last_operations_are_kept_and_the_others_are_counted() {
        let mut history = History::default();
        (0..MOST + 1).for_each(|pages| history.add(Done::Grow(pages)));
        let source = history.source("again");
        assert!(source.contains("// 5000 operations before these"), "{}", &source[..200]);
        assert!(source.contains("a.grow(10000)") && !source.contains("a.grow(4999)"));
    }
}
