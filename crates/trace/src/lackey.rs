//! What `valgrind --tool=lackey --trace-mem=yes` prints: every access of a program, as text.
//!
//! ```text
//!   I  0401ab70,3        an instruction
//!    L 1fff000758,8      a load        S: a store      M: one instruction that does both
//! ```
//!
//! Addresses are hexadecimal, sizes decimal. Lines of Valgrind itself begin with `==`, its warnings with `--`.

use super::lines::Lines;
use super::record::{Kind, Record};
use super::{Source, TraceError};
use mega_core::units::BASE_PAGE_BYTES;
use std::io::BufRead;

/// Reads a lackey trace. It has no mappings: to replay it, unknown places must be mapped as they are met.
#[derive(Debug)]
pub struct LackeyReader<R: BufRead> {
    lines: Lines<R>,
    instructions: bool,
    /// The second half of an access that crosses a page.
    second: Option<Record>,
    over: bool,
}

impl<R: BufRead> LackeyReader<R> {
    /// Of this input; `instructions`: with the fetches of instructions, as reads.
    pub fn new(from: R, instructions: bool) -> Self {
        Self {
            lines: Lines::new(from),
            instructions,
            second: None,
            over: false,
        }
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        if let Some(record) = self.second.take() {
            return Ok(Some(record));
        }
        loop {
            let number = self.lines.number + 1;
            let Some(line) = self.lines.next()? else {
                return Ok(None);
            };
            let Some((kind, address, size, is_instruction)) = parse(line, number)? else {
                continue;
            };
            if is_instruction && !self.instructions {
                continue;
            }
            let last = address.wrapping_add(size - 1);
            if last / BASE_PAGE_BYTES != address / BASE_PAGE_BYTES {
                self.second = Some(Record::Touch {
                    address: last / BASE_PAGE_BYTES * BASE_PAGE_BYTES,
                    kind,
                });
            }
            return Ok(Some(Record::Touch { address, kind }));
        }
    }
}

impl<R: BufRead> Source for LackeyReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        if self.over {
            return Ok(None);
        }
        let record = self.read();
        self.over = !matches!(record, Ok(Some(_)));
        record
    }
}

/// Kind, address, size, and whether it is an instruction; none of lines that are not accesses.
fn parse(line: &str, number: u64) -> Result<Option<(Kind, u64, u64, bool)>, TraceError> {
    if line.is_empty() || line.starts_with("==") || line.starts_with("--") {
        return Ok(None);
    }
    let wrong = |column, expected, found: &str| TraceError::text(number, column, expected, found);
    let (kind, is_instruction) = match line.get(..3) {
        Some("I  ") => (Kind::Read, true),
        Some(" L ") => (Kind::Read, false),
        Some(" S " | " M ") => (Kind::Write, false),
        _ => return Err(wrong(1, "'I  ', ' L ', ' S ' or ' M '", line)),
    };
    let rest = &line[3..];
    let (hex, decimal) = rest
        .split_once(',')
        .ok_or_else(|| wrong(line.len() + 1, "a comma and a size", ""))?;
    let address = u64::from_str_radix(hex, 16)
        .ok()
        .filter(|_| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let address = address.ok_or_else(|| wrong(4, "an address in hexadecimal", hex))?;
    // The widest there is: the state of all registers (XSAVE).
    let size = decimal
        .parse::<u64>()
        .ok()
        .filter(|n| (1..=4096).contains(n) && !decimal.starts_with('+'));
    let size = size.ok_or_else(|| wrong(5 + hex.len(), "a size from 1 to 4096", decimal))?;
    Ok(Some((kind, address, size, is_instruction)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, instructions: bool) -> Result<Vec<Record>, TraceError> {
        let mut reader = LackeyReader::new(text.as_bytes(), instructions);
        let mut all = Vec::new();
        while let Some(r) = reader.next_record()? {
            all.push(r);
        }
        Ok(all)
    }

    #[test]
    fn loads_stores_and_both_at_once_are_read_and_pages_are_crossed() {
        let text = "==1== Lackey\nI  0401ab70,3\n S 1fff000758,8\n L 04000ffe,4\n M 10,1\n==1== \n";
        let touch = |address, kind| Record::Touch { address, kind };
        let expected = vec![
            touch(0x1f_ff00_0758, Kind::Write),
            touch(0x400_0ffe, Kind::Read),
            touch(0x400_1000, Kind::Read),
            touch(0x10, Kind::Write),
        ];
        assert_eq!(read(text, false).unwrap(), expected);
        assert_eq!(read(text, true).unwrap().len(), 5);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, line, column) in [
            ("I  1,1\n X 1,1", 2, 1),
            (" L 1", 1, 5),
            (" L g,1", 1, 4),
            (" L 10,0", 1, 7),
            (" L 10,99999", 1, 7),
            ("é", 1, 1),
            (" L 11111111111111111,1", 1, 4),
        ] {
            let error = read(text, false).unwrap_err();
            assert!(
                matches!(&error, TraceError::Text { line: l, column: c, .. } if (*l, *c) == (line, column)),
                "{text}: {error}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ILSM ,0-9a-f=\né-]{0,60}") {
            let _ = read(&text, true);
        }
    }
}
