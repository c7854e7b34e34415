//! What was learned of a program in earlier runs, as it is kept in a file: a first line that says what it is, then lines
//! of a word and its value.
//!
//! An agent takes how densely the program filled its memory from it. A file that is damaged in any way is none.

use crate::density::Density;
use crate::span::PAGES;

/// The first line.
pub const HEADER: &[u8] = b"mega-profile 1";
/// A file that is longer is none.
pub const MOST_BYTES: usize = 512;

/// The lines behind the first: words and their values.
pub fn lines(file: &[u8]) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
    let rest = file.strip_prefix(HEADER)?.strip_prefix(b"\n")?;
    let rest = rest.strip_suffix(b"\n")?;
    (file.len() <= MOST_BYTES).then(|| rest.split(|&byte| byte == b'\n').map(word_and_value))
}

fn word_and_value(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(end).unwrap_or((line, &[]));
    (word, rest.get(1..).unwrap_or(&[]))
}

/// A decimal number, and nothing but it.
pub fn number(value: &[u8]) -> Option<u64> {
    core::str::from_utf8(value).ok()?.parse().ok()
}

/// How densely the program filled its memory, of a file that says it once and makes sense.
pub fn density(file: &[u8]) -> Option<Density> {
    let (mut dense, mut sparse, mut holes) = (None, None, None);
    for (word, value) in lines(file)? {
        let place = match word {
            b"dense" => &mut dense,
            b"sparse" => &mut sparse,
            b"holes" => &mut holes,
            _ => continue,
        };
        let count = u32::try_from(number(value)?).ok()?;
        if place.replace(count).is_some() {
            return None;
        }
    }
    let density = Density {
        dense: dense?,
        sparse: sparse?,
        holes: holes?,
    };
    let pages = (u64::from(density.dense) + u64::from(density.sparse)) * u64::from(PAGES);
    (u64::from(density.holes) <= pages).then_some(density)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_how_densely_memory_was_filled() {
        let file = b"mega-profile 1\nname a b\ndense 30\nsparse 2\nholes 900\nruns 4\n";
        let expected = Density {
            dense: 30,
            sparse: 2,
            holes: 900,
        };
        assert_eq!(density(file), Some(expected));
        let name = lines(file).and_then(|mut lines| lines.next());
        assert_eq!(name, Some((&b"name"[..], &b"a b"[..])));
    }

    #[test]
    fn a_damaged_file_is_none() {
        let damaged: [&[u8]; 10] = [
            b"",
            b"mega-profile 1",
            b"mega-profile 1\n",
            b"mega-profile 2\ndense 1\nsparse 0\nholes 0\n",
            b"mega-profile 1\ndense 1\nsparse 0\n",
            b"mega-profile 1\ndense 1\nsparse 0\nholes 0",
            b"mega-profile 1\ndense 1\nsparse 0\nholes 513\n",
            b"mega-profile 1\ndense 1\ndense 1\nsparse 0\nholes 0\n",
            b"mega-profile 1\ndense -1\nsparse 0\nholes 0\n",
            b"mega-profile 1\ndense 4294967296\nsparse 0\nholes 0\n",
        ];
        for file in damaged {
            assert_eq!(density(file), None, "{:?}", core::str::from_utf8(file));
        }
        let mut long = [b'x'; MOST_BYTES + 1];
        let head = b"mega-profile 1\ndense 1\nsparse 0\nholes 0\nname ";
        long[..head.len()].copy_from_slice(head);
        long[MOST_BYTES] = b'\n';
        assert_eq!(density(&long), None);
        long[MOST_BYTES - 1] = b'\n';
        assert!(density(&long[..MOST_BYTES]).is_some());
    }
}
