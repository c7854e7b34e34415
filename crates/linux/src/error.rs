//! Why a file of the kernel could not be read, or did not say what it should.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with one kernel file.
///
/// The text of /proc and of /sys is not trusted: whatever it is, the answer is a value or one of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened, read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: "read", "write", "list" ...
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file was read, and one of its fields is not what it should be.
    #[error("{}:{line}: {field}: expected {expected}, found '{found}'", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1; 0 when the file as a whole is meant.
        line: usize,
        /// The field, in the kernel's own word where it has one.
        field: String,
        /// What should have been there.
        expected: &'static str,
        /// What was there, cut to 64 characters.
        found: String,
    },
    /// The file is larger than anything that the kernel would write there.
    #[error("{}: larger than {limit_bytes} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How much was allowed.
        limit_bytes: u64,
    },
}

/// The result of reading a kernel file.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            action,
            source,
        }
    }

    pub(crate) fn format(path: &Path, line: usize, field: &str, expected: &'static str, found: &str) -> Self {
        Self::Format {
            path: path.to_owned(),
            line,
            field: shorten(field),
            expected,
            found: shorten(found),
        }
    }

    /// The file, or the process that it belongs to, is not there (any more).
    pub fn is_gone(&self) -> bool {
        self.errno()
            .is_some_and(|errno| errno == libc::ENOENT || errno == libc::ESRCH)
    }

    /// The kernel does not let us.
    pub fn is_refused(&self) -> bool {
        self.errno()
            .is_some_and(|errno| errno == libc::EACCES || errno == libc::EPERM)
    }

    /// What the kernel said, where it was the kernel that said no.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Format { .. } | Self::TooLarge { .. } => None,
        }
    }
}

/// At most 64 characters, none of which moves the cursor of whoever reads the message.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(64)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(64).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_path_line_field_and_what_was_expected() {
        let error = Error::format(Path::new("/proc/1/stat"), 1, "ppid", "a number", "x\ny");
        assert_eq!(
            error.to_string(),
            "/proc/1/stat:1: ppid: expected a number, found 'x\u{fffd}y'"
        );
    }

    #[test]
    fn a_long_finding_is_cut() {
        let error = Error::format(Path::new("f"), 1, "x", "y", &"ä".repeat(1000));
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn a_missing_file_counts_as_gone() {
        let missing = Error::io(Path::new("f"), "read", io::Error::from_raw_os_error(libc::ESRCH));
        assert!(missing.is_gone());
        assert!(!missing.is_refused());
    }
}
