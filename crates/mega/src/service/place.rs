//! Where in a configuration something is, and what is wrong there.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file; lines and columns count from 1, columns in characters. Line 0 is the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Its line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Place {
    /// The place of a byte of the text.
    pub fn of(file: &Path, text: &str, byte: usize) -> Self {
        let mut at = byte.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = text.get(..at).unwrap_or("");
        let line = before.rsplit('\n').next().unwrap_or("");
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }

    /// A file as a whole.
    pub fn whole(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}:{}", self.file.display(), self.column),
        }
    }
}

/// An error or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What, and what was expected.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
