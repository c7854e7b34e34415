//! Lines of a text, one at a time, in bounded memory.

use super::TraceError;
use std::io::BufRead;

/// The most bytes of a line.
const MOST: usize = 4096;

/// Reads lines and their numbers.
#[derive(Debug)]
pub(super) struct Lines<R: BufRead> {
    from: R,
    line: Vec<u8>,
    pub number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line without its end; none at the end. A line that is too long, or no UTF-8, is an error.
    pub(super) fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.line.clear();
        let number = self.number + 1;
        loop {
            let chunk = match self.from.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    return Err(TraceError::text(
                        number,
                        self.line.len() + 1,
                        "readable input",
                        &e.to_string(),
                    ))
                }
            };
            if chunk.is_empty() {
                if self.line.is_empty() {
                    return Ok(None);
                }
                break;
            }
            let end = chunk.iter().position(|b| *b == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + part.len() > MOST {
                return Err(TraceError::text(
                    number,
                    MOST + 1,
                    "the end of a line of 4096 bytes at most",
                    "",
                ));
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number = number;
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some(line)),
            Err(e) => Err(TraceError::text(number, e.valid_up_to() + 1, "UTF-8", "")),
        }
    }
}
