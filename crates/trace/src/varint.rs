//! Numbers of variable length (LEB128: seven bits a byte, the low ones first), signed ones folded so that small ones are short.

use super::{TraceError, What};

pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub(super) fn fold(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

pub(super) fn unfold(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Reads fields from a piece of memory; knows where it is, for errors.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    /// Offset in the file of the frame; the number of the record.
    pub offset: u64,
    pub record: u64,
}

impl Fields<'_> {
    pub(super) fn wrong(&self, field: &'static str, what: What) -> TraceError {
        TraceError::Binary {
            offset: self.offset,
            record: self.record,
            field,
            what,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, TraceError> {
        let Some(byte) = self.bytes.get(self.at) else {
            return Err(self.wrong(field, What::Truncated));
        };
        self.at += 1;
        Ok(*byte)
    }

    #[inline]
    pub(super) fn number(&mut self, field: &'static str) -> Result<u64, TraceError> {
        let mut n = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte(field)?;
            if shift == 63 && byte > 1 {
                return Err(self.wrong(field, What::Overlong));
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(self.wrong(field, What::Overlong))
    }

    pub(super) fn at_most(&mut self, field: &'static str, most: u64) -> Result<u64, TraceError> {
        match self.number(field)? {
            value if value > most => Err(self.wrong(field, What::TooLarge { value, most })),
            value => Ok(value),
        }
    }

    pub(super) fn text(&mut self, field: &'static str, most: u64) -> Result<String, TraceError> {
        let length = self.at_most(field, most)? as usize;
        let bytes = self.bytes.get(self.at..self.at + length);
        let bytes = bytes.ok_or_else(|| self.wrong(field, What::Truncated))?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.wrong(field, What::NotUtf8))?;
        self.at += length;
        Ok(text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Fields<'_> {
        Fields {
            bytes,
            at: 0,
            offset: 0,
            record: 0,
        }
    }

    proptest::proptest! {
        #[test]
        fn any_number_reads_back(n: u64, shift in 0u32..64) {
            let mut out = Vec::new();
            put(&mut out, n >> shift);
            proptest::prop_assert!(out.len() <= 10);
            let mut f = fields(&out);
            proptest::prop_assert_eq!(f.number("n"), Ok(n >> shift));
            proptest::prop_assert!(f.is_empty());
            proptest::prop_assert_eq!(unfold(fold(n as i64)), n as i64);
        }
    }

    #[test]
    fn numbers_too_long_and_texts_too_short_are_errors() {
        assert!(fields(&[0xff; 11]).number("n").is_err());
        assert!(fields(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2])
            .number("n")
            .is_err());
        assert!(fields(&[0x80]).number("n").is_err());
        assert!(fields(&[5, b'a']).text("t", 9).is_err());
        assert!(fields(&[5]).text("t", 4).is_err());
        assert!(fields(&[1, 0xff]).text("t", 4).is_err());
    }
}
