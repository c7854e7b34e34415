//! Traces as text: a line for each record, so that a trace from anywhere can be written by a script.
//!
//! ```text
//!   # a comment
//!   process 1234            what follows is about this process (a second number: when it was started)
//!   time 5000               nanoseconds
//!   map 0x7f0000000000 2097152        unmap ADDRESS BYTES
//!   remap ADDRESS BYTES TO BYTES
//!   advise ADDRESS BYTES huge|nohuge|dontneed|free|cold|collapse
//!   fork CHILD              exit CHILD
//!   r ADDRESS               w ADDRESS      u ADDRESS       a load; a store; a load and then a store
//!   r ADDRESS STRIDE COUNT  the same, COUNT times, STRIDE bytes apart
//!   work 300                nanoseconds of computing
//! ```
//!
//! Numbers are decimal, or hexadecimal after `0x`. What scanners see has no text form.

use super::lines::Lines;
use super::record::{Kind, Record, MOST_RUN};
use super::Advice;
use super::{Source, TraceError};
use mega_core::observe::ProcessId;
use std::io::{BufRead, Write};

/// Reads a text trace.
#[derive(Debug)]
pub struct TextReader<R: BufRead> {
    lines: Lines<R>,
    over: bool,
}

impl<R: BufRead> TextReader<R> {
    /// Of this input.
    pub fn new(from: R) -> Self {
        Self {
            lines: Lines::new(from),
            over: false,
        }
    }
}

impl<R: BufRead> Source for TextReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while !self.over {
            let number = self.lines.number + 1;
            let parsed = match self.lines.next() {
                Ok(Some(line)) => parse(line, number),
                Ok(None) => {
                    self.over = true;
                    continue;
                }
                Err(e) => Err(e),
            };
            self.over = parsed.is_err();
            if let Some(record) = parsed? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// The words of a line, with their columns.
struct Words<'a> {
    line: &'a str,
    at: usize,
    number: u64,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.line[self.at..];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let word = self.line[start..].split_whitespace().next()?;
        self.at = start + word.len();
        Some((start + 1, word))
    }

    fn wrong(&self, column: usize, expected: &'static str, found: &str) -> TraceError {
        TraceError::text(self.number, column, expected, found)
    }

    fn word(&mut self, expected: &'static str) -> Result<(usize, &'a str), TraceError> {
        let end = self.line.len() + 1;
        self.next().ok_or_else(|| self.wrong(end, expected, ""))
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, TraceError> {
        let (column, word) = self.word(expected)?;
        parse_number(word).ok_or_else(|| self.wrong(column, expected, word))
    }

    fn small(&mut self, expected: &'static str) -> Result<u32, TraceError> {
        let (column, word) = self.word(expected)?;
        let number = parse_number(word).and_then(|n| u32::try_from(n).ok());
        number.ok_or_else(|| self.wrong(column, expected, word))
    }

    fn range(&mut self) -> Result<(u64, u64), TraceError> {
        Ok((self.number("an address")?, self.number("a number of bytes")?))
    }
}

fn parse_number(word: &str) -> Option<u64> {
    let (digits, radix) = word.strip_prefix("0x").map_or((word, 10), |hex| (hex, 16));
    // `from_str_radix` takes a sign.
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix).ok().filter(|_| plain)
}

/// The record of a line; none of an empty one or a comment.
fn parse(line: &str, number: u64) -> Result<Option<Record>, TraceError> {
    let mut words = Words { line, at: 0, number };
    let Some((column, name)) = words.next() else {
        return Ok(None);
    };
    let record = match name {
        _ if name.starts_with('#') => return Ok(None),
        "r" => access(&mut words, Kind::Read)?,
        "w" => access(&mut words, Kind::Write)?,
        "u" => access(&mut words, Kind::Update)?,
        "time" => Record::Time(words.number("nanoseconds")?),
        "work" => Record::Work(words.number("nanoseconds")?),
        "process" => {
            let pid = words.small("a process's number")?;
            let started = match words.next() {
                None => 0,
                Some((column, word)) => {
                    parse_number(word).ok_or_else(|| words.wrong(column, "when it was started", word))?
                }
            };
            Record::Process(ProcessId { pid, started })
        }
        "map" => {
            let (address, bytes) = words.range()?;
            Record::Map { address, bytes }
        }
        "unmap" => {
            let (address, bytes) = words.range()?;
            Record::Unmap { address, bytes }
        }
        "remap" => {
            let ((address, bytes), (to, to_bytes)) = (words.range()?, words.range()?);
            Record::Remap {
                address,
                bytes,
                to,
                to_bytes,
            }
        }
        "advise" => {
            let (address, bytes) = words.range()?;
            let expected = "huge, nohuge, dontneed, free, cold or collapse";
            let (column, word) = words.word(expected)?;
            let advice = Advice::ALL.into_iter().find(|a| a.word() == word);
            let advice = advice.ok_or_else(|| words.wrong(column, expected, word))?;
            Record::Advise { address, bytes, advice }
        }
        "fork" => Record::Fork(words.small("a child's number")?),
        "exit" => Record::Exit(words.small("a child's number")?),
        other => {
            let expected = "r, w, u, map, unmap, remap, advise, fork, exit, process, time or work";
            return Err(words.wrong(column, expected, other));
        }
    };
    match words.next() {
        None => Ok(Some(record)),
        Some((column, word)) => Err(words.wrong(column, "the end of the line", word)),
    }
}

fn access(words: &mut Words<'_>, kind: Kind) -> Result<Record, TraceError> {
    let address = words.number("an address")?;
    let Some((column, word)) = words.next() else {
        return Ok(Record::Touch { address, kind });
    };
    let expected = "a distance in bytes";
    let stride = match word.strip_prefix('-') {
        Some(digits) => parse_number(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        None => parse_number(word).and_then(|n| i64::try_from(n).ok()),
    };
    let stride = stride.ok_or_else(|| words.wrong(column, expected, word))?;
    let expected = "a number of accesses, 1048576 at most";
    let (column, word) = words.word(expected)?;
    let count = parse_number(word).filter(|n| (1..=MOST_RUN).contains(n));
    let count = count.ok_or_else(|| words.wrong(column, expected, word))?;
    Ok(Record::Run {
        address,
        stride,
        count,
        kind,
    })
}

/// Writes a record as a line; what has no text form is left out as a comment.
///
/// # Errors
/// When writing fails.
pub fn write_text(out: &mut impl Write, record: &Record) -> std::io::Result<()> {
    let letter = |kind| match kind {
        Kind::Read => 'r',
        Kind::Write => 'w',
        Kind::Update => 'u',
    };
    match *record {
        Record::Time(ns) => writeln!(out, "time {ns}"),
        Record::Work(ns) => writeln!(out, "work {ns}"),
        Record::Process(id) => writeln!(out, "process {} {}", id.pid, id.started),
        Record::Map { address, bytes } => writeln!(out, "map {address:#x} {bytes}"),
        Record::Unmap { address, bytes } => writeln!(out, "unmap {address:#x} {bytes}"),
        Record::Remap {
            address,
            bytes,
            to,
            to_bytes,
        } => {
            writeln!(out, "remap {address:#x} {bytes} {to:#x} {to_bytes}")
        }
        Record::Advise { address, bytes, advice } => writeln!(out, "advise {address:#x} {bytes} {}", advice.word()),
        Record::Fork(child) => writeln!(out, "fork {child}"),
        Record::Exit(child) => writeln!(out, "exit {child}"),
        Record::Touch { address, kind } => writeln!(out, "{} {address:#x}", letter(kind)),
        Record::Run {
            address,
            stride,
            count,
            kind,
        } => {
            writeln!(out, "{} {address:#x} {stride} {count}", letter(kind))
        }
        Record::Scan(_) => writeln!(out, "# scan"),
        Record::Region(o) => writeln!(out, "# region {}", o.region),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_record;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Result<Vec<Record>, TraceError> {
        let mut reader = TextReader::new(text);
        let mut all = Vec::new();
        while let Some(r) = reader.next_record()? {
            all.push(r);
        }
        Ok(all)
    }

    #[test]
    fn the_example_reads_as_it_is_meant() {
        let text = "# x\n\nprocess 7\n  time 0x10\r\nmap 0x1000 8192\nw 4096\nr 0x1000 -64 3\nwork 5";
        let touch = Record::Touch {
            address: 4096,
            kind: Kind::Write,
        };
        let run = Record::Run {
            address: 4096,
            stride: -64,
            count: 3,
            kind: Kind::Read,
        };
        let expected = [
            Record::Process(ProcessId { pid: 7, started: 0 }),
            Record::Time(16),
            Record::Map {
                address: 4096,
                bytes: 8192,
            },
            touch,
            run,
            Record::Work(5),
        ];
        assert_eq!(read(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, line, column, expected) in [
            ("r 1\nx 2", 2, 1, "r, w, u"),
            ("map 1", 1, 6, "a number of bytes"),
            ("map 1 -2", 1, 7, "a number of bytes"),
            ("r +5", 1, 3, "an address"),
            ("w 1 2 0", 1, 7, "a number of accesses"),
            ("w 1 2 1048577", 1, 7, "a number of accesses"),
            ("  advise 1 2 hug", 1, 14, "huge, nohuge"),
            ("time 1 2", 1, 8, "the end of the line"),
            ("fork 4294967296", 1, 6, "a child's number"),
            ("r 18446744073709551616", 1, 3, "an address"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            let TraceError::Text {
                line: l,
                column: c,
                expected: e,
                ..
            } = &error
            else {
                panic!("{error}")
            };
            assert!((*l, *c) == (line, column) && e.starts_with(expected), "{text}: {error}");
        }
        assert!(read(&[b'r', b' ', 0xff])
            .unwrap_err()
            .to_string()
            .contains("column 3: expected UTF-8"));
        let long = vec![b' '; 5000];
        assert!(read(&long).is_err());
    }

    #[test]
    fn an_endless_line_is_refused_in_bounded_memory() {
        let endless = std::io::BufReader::new(std::io::repeat(b'1'));
        assert!(TextReader::new(endless).next_record().is_err());
    }

    proptest! {
        #[test]
        fn what_has_a_text_form_reads_back(records in proptest::collection::vec(any_record(), 0..50)) {
            let mut text = Vec::new();
            records.iter().for_each(|r| write_text(&mut text, r).unwrap());
            let kept: Vec<Record> =
                records.into_iter().filter(|r| !matches!(r, Record::Scan(_) | Record::Region(_))).collect();
            prop_assert_eq!(read(&text).unwrap(), kept);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[rwu #x0-9a-f\\-\n\tmapé]{0,80}") {
            let _ = read(text.as_bytes());
        }
    }
}
