//! Numbers in the kernel's text files. Input is what the kernel wrote, and still nothing of it is believed.

/// Lines and words of a text.
#[derive(Clone, Copy)]
pub struct Text<'a>(pub &'a [u8]);

impl<'a> Text<'a> {
    /// Up to the next `end`, or all that is left; the text goes on behind it.
    pub fn until(&mut self, end: u8) -> &'a [u8] {
        let length = self.0.iter().position(|&byte| byte == end).unwrap_or(self.0.len());
        let word = self.0.get(..length).unwrap_or(&[]);
        self.0 = self.0.get(length.saturating_add(1)..).unwrap_or(&[]);
        word
    }

    /// The next word.
    pub fn word(&mut self) -> &'a [u8] {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        self.until(b' ')
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// A decimal number, and nothing but it.
pub fn decimal(word: &[u8]) -> Option<u64> {
    number(word, 10)
}

/// A hexadecimal number, and nothing but it.
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word, 16)
}

fn number(word: &[u8], base: u32) -> Option<u64> {
    let mut value = 0u64;
    for &byte in word {
        let digit = char::from(byte).to_digit(base)?;
        value = value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
    }
    (!word.is_empty()).then_some(value)
}

/// A number's decimal digits.
pub fn digits_of(mut number: u32, into: &mut [u8; 12]) -> &[u8] {
    let mut first = into.len();
    for (at, place) in into.iter_mut().enumerate().rev() {
        *place = b'0' + (number % 10) as u8;
        first = at;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.get(first..).unwrap_or(&[])
}

/// Whether the text has these bytes somewhere.
pub fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len().max(1)).any(|window| window == part)
}

/// A path put together, with a NUL at its end.
pub struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Path {
    /// Of these parts; none if it gets too long.
    pub fn of(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path {
            bytes: [0; 512],
            len: 0,
        };
        for &byte in parts.iter().copied().flatten() {
            *path.bytes.get_mut(path.len)? = byte;
            path.len += 1;
        }
        path.len += 1;
        (path.len <= path.bytes.len()).then_some(path)
    }

    /// With the NUL.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[0])
    }
}
