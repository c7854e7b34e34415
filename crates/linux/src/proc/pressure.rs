//! /proc/pressure/memory and a cgroup's memory.pressure: for which share of the time programs waited for memory (PSI).

use std::path::Path;

use super::{lines, read_bounded, At, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// One line: "some" or "full".
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Line {
    /// Share of the last 10 s, in percent.
    pub avg10_percent: f64,
    /// Share of the last 60 s, in percent.
    pub avg60_percent: f64,
    /// Share of the last 300 s, in percent.
    pub avg300_percent: f64,
    /// All of it since boot, in microseconds.
    pub total_us: u64,
}

/// Pressure on memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Line,
    /// All of them did; absent for CPU pressure on kernels before 5.13.
    pub full: Option<Line>,
}

/// The machine's pressure on memory; none when the kernel has no PSI or it is off (`psi=1` on the kernel's command line
/// switches it on where it is off by default).
pub fn read(root: &ProcRoot) -> Result<Option<Pressure>> {
    read_file(&root.proc.join("pressure/memory"))
}

/// The same for one cgroup (v2), by its folder.
pub fn read_cgroup(folder: &Path) -> Result<Option<Pressure>> {
    read_file(&folder.join("memory.pressure"))
}

fn read_file(path: &Path) -> Result<Option<Pressure>> {
    match read_bounded(path, SMALL_BYTES) {
        Ok(text) => parse(path, &text).map(Some),
        // A file that is there while PSI is off answers EOPNOTSUPP.
        Err(error) if error.is_gone() || error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the text of a pressure file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"; `path` is for messages only.
pub fn parse(path: &Path, text: &[u8]) -> Result<Pressure> {
    let text = String::from_utf8_lossy(text);
    let (mut some, mut full) = (None, None);
    for (at, line) in lines(path, &text) {
        match line.split_once(' ') {
            Some(("some", rest)) => some = Some(one(at, rest)?),
            Some(("full", rest)) => full = Some(one(at, rest)?),
            _ => return Err(at.wrong("pressure", "'some ...' or 'full ...'", line)),
        }
    }
    match some {
        Some(some) => Ok(Pressure { some, full }),
        None => Err(At { path, line: 0 }.wrong("some", "a line that begins with it", "")),
    }
}

fn one(at: At<'_>, rest: &str) -> Result<Line> {
    let value = |name: &str| {
        rest.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(name).and_then(|word| word.strip_prefix('=')))
    };
    let percent = |name: &str| {
        let text = value(name).unwrap_or("");
        match text.parse::<f64>() {
            Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
            _ => Err(at.wrong(name, "a share in percent", text)),
        }
    };
    Ok(Line {
        avg10_percent: percent("avg10")?,
        avg60_percent: percent("avg60")?,
        avg300_percent: percent("avg300")?,
        total_us: at.number("total", value("total"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read() {
        let text =
            b"some avg10=1.50 avg60=0.25 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=100.00 total=3\n";
        let pressure = parse(Path::new("p"), text).unwrap();
        assert_eq!((pressure.some.avg10_percent, pressure.some.total_us), (1.5, 12));
        assert_eq!(pressure.full.unwrap().avg300_percent, 100.0);
    }

    #[test]
    fn absurd_shares_and_missing_lines_are_errors() {
        for text in [
            "",
            "some avg10=NaN avg60=0 avg300=0 total=1",
            "some avg10=-1 avg60=0 avg300=0 total=1",
            "some",
        ] {
            assert!(parse(Path::new("p"), text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_kernel_without_psi_is_not_an_error() {
        assert_eq!(read(&ProcRoot::under(Path::new("/nonexistent"))).unwrap(), None);
    }
}
