//! Readers for the kernel's files, one file per subject.
//!
//! Every reader takes a [`ProcRoot`], so that tests run it over a made-up tree, and is a pair: `read` opens the file, `parse`
//! takes its text. Fields that some kernel, configuration or kind of process leaves out are `Option`. Amounts are in
//! bytes, whatever the kernel's unit is. Nothing here panics, whatever the text is; sizes are bounded.
//!
//! # Errors
//! `read` fails with [`Error::Io`] where the file cannot be opened or read (a process that is gone: ENOENT or ESRCH, see
//! [`Error::is_gone`]); both fail with [`Error::Format`], which has path, line, field and what was expected, for malformed text.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

pub mod buddyinfo;
pub mod cgroup;
pub mod cpuinfo;
pub mod extfrag;
pub mod iomem;
pub mod maps;
pub mod meminfo;
pub mod mountinfo;
pub mod node;
pub mod pressure;
pub mod smaps;
pub mod stat;
pub mod status;
pub mod task;
pub mod vm_flags;
pub mod vmstat;
pub mod zoneinfo;

/// Where the kernel's two file systems are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcRoot {
    /// procfs: "/proc".
    pub proc: PathBuf,
    /// sysfs: "/sys".
    pub sys: PathBuf,
}

impl Default for ProcRoot {
    fn default() -> Self {
        Self::under(Path::new("/"))
    }
}

impl ProcRoot {
    /// The folders `proc` and `sys` of this folder: a made-up tree, or the view of a container.
    pub fn under(folder: &Path) -> Self {
        Self {
            proc: folder.join("proc"),
            sys: folder.join("sys"),
        }
    }

    /// This is the running kernel's own view, not a made-up tree.
    pub fn is_live(&self) -> bool {
        self.proc == Path::new("/proc") && self.sys == Path::new("/sys")
    }

    /// /proc/PID/`name`.
    pub fn of_process(&self, pid: u32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }

    /// /proc/PID/task/TID/`name`.
    pub fn of_thread(&self, pid: u32, tid: u32, name: &str) -> PathBuf {
        self.of_process(pid, "task").join(tid.to_string()).join(name)
    }

    /// /sys/kernel/mm/transparent_hugepage/`name`.
    pub fn thp(&self, name: &str) -> PathBuf {
        self.sys.join("kernel/mm/transparent_hugepage").join(name)
    }
}

/// The most that one small file may have: everything but maps and smaps.
pub(crate) const SMALL_BYTES: u64 = 4 << 20;

/// Reads a file whole, unless it is larger than `limit_bytes`.
pub(crate) fn read_bounded(path: &Path, limit_bytes: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        // The kernel fills what it is given up to a page or more at a time; a small buffer costs a system call per line.
        let mut text = Vec::with_capacity(16 << 10);
        File::open(path)?.take(limit_bytes + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|e| Error::io(path, "read", e))?;
    if text.len() as u64 > limit_bytes {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            limit_bytes,
        });
    }
    Ok(text)
}

/// A file's lines, with what is needed to say where something is wrong.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub path: &'a Path,
    pub line: usize,
}

impl At<'_> {
    pub fn wrong(self, field: &str, expected: &'static str, found: &str) -> Error {
        Error::format(self.path, self.line, field, expected, found)
    }

    /// A decimal number.
    pub fn number<T: std::str::FromStr>(self, field: &str, text: Option<&str>) -> Result<T> {
        let text = text.unwrap_or("");
        text.parse().map_err(|_| self.wrong(field, "a number", text))
    }

    /// A hexadecimal number without a prefix.
    pub fn hex(self, field: &str, text: Option<&str>) -> Result<u64> {
        let text = text.unwrap_or("");
        // from_str_radix takes a sign, the kernel writes none.
        if !text.starts_with('+') {
            if let Ok(n) = u64::from_str_radix(text, 16) {
                return Ok(n);
            }
        }
        Err(self.wrong(field, "a hexadecimal number", text))
    }

    /// An amount such as "  12 kB", in bytes.
    pub fn kb(self, field: &str, text: &str) -> Result<u64> {
        text.trim()
            .strip_suffix("kB")
            .and_then(|n| n.trim_end().parse::<u64>().ok())
            .and_then(|n| n.checked_mul(1024))
            .ok_or_else(|| self.wrong(field, "an amount in kB", text.trim()))
    }
}

/// The lines of `text`, without the line ends, each with its place.
pub(crate) fn lines<'a>(path: &'a Path, text: &'a str) -> impl Iterator<Item = (At<'a>, &'a str)> {
    text.lines().enumerate().map(move |(i, line)| {
        let at = At { path, line: i + 1 };
        (at, line)
    })
}

/// Undoes the kernel's octal escapes (`\012`), but only for the bytes in `escaped`: it does not escape the backslash in
/// every file, so `\101` may be what the name really is.
pub(crate) fn unescape(text: &str, escaped: &[u8]) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let octal = bytes.get(i + 1..i + 4).filter(|_| byte == b'\\').and_then(|digits| {
            digits.iter().try_fold(0u32, |value, digit| {
                matches!(digit, b'0'..=b'7').then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        match octal.and_then(|value| u8::try_from(value).ok()) {
            Some(value) if escaped.contains(&value) => {
                out.push(value);
                i += 4;
            }
            _ => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Declares a struct of amounts that the kernel writes as "Name:   12 kB" lines, each of which may be absent.
macro_rules! kb_fields {
    ($(#[$attribute:meta])* $struct:ident { $($(#[$doc:meta])* $kernel:literal => $field:ident,)+ }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $struct {
            $($(#[$doc])* #[doc = concat!("The kernel's `", $kernel, "`, in bytes.")] pub $field: Option<u64>,)+
        }

        impl $struct {
            /// Takes the line's value if the field is one of ours.
            fn take(&mut self, at: $crate::proc::At<'_>, name: &str, value: &str) -> $crate::error::Result<bool> {
                match name {
                    $($kernel => self.$field = Some(at.kb(name, value)?),)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}
pub(crate) use kb_fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_bytes_are_unescaped() {
        assert_eq!(unescape(r"a\012b\040c\", b"\n"), "a\nb\\040c\\");
        assert_eq!(unescape(r"a\040b\134", b" \\"), "a b\\");
        assert_eq!(unescape(r"\9\01", b"\n"), r"\9\01");
        assert_eq!(unescape(r"\777\012", b"\n"), "\\777\n");
    }

    #[test]
    fn a_file_larger_than_the_limit_is_an_error() {
        let error = read_bounded(Path::new("/dev/zero"), 1000).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit_bytes: 1000, .. }));
    }

    #[test]
    fn amounts_do_not_overflow() {
        let at = At {
            path: Path::new("f"),
            line: 1,
        };
        assert_eq!(at.kb("x", "  12 kB").unwrap(), 12288);
        assert!(at.kb("x", "18446744073709551615 kB").is_err());
        assert!(at.kb("x", "12 MB").is_err());
    }
}
