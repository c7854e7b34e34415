//! Finds one variable in `/proc/self/environ`, which is read piece by piece into a small buffer: it may be megabytes long.

/// Looks for a variable while the text goes by.
#[derive(Debug)]
pub struct Finder<'a> {
    name: &'a [u8],
    /// Bytes of the current entry seen so far that match "NAME="; `usize::MAX` when they do not.
    matched: usize,
    length: usize,
    done: bool,
}

/// What a value did that it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl<'a> Finder<'a> {
    /// For the variable of this name.
    pub const fn new(name: &'a str) -> Self {
        Self {
            name: name.as_bytes(),
            matched: 0,
            length: 0,
            done: false,
        }
    }

    /// Takes the next piece, and puts what it has of the value into `value`.
    pub fn feed(&mut self, piece: &[u8], value: &mut [u8]) -> Result<(), TooLong> {
        for &byte in piece {
            if self.done {
                return Ok(());
            }
            let in_value = self.matched == self.name.len() + 1;
            match (byte, in_value) {
                (0, true) => self.done = true,
                (0, false) => self.matched = 0,
                (_, true) => {
                    *value.get_mut(self.length).ok_or(TooLong)? = byte;
                    self.length += 1;
                }
                (_, false) if self.matched != usize::MAX => {
                    let expected = self.name.get(self.matched).copied().unwrap_or(b'=');
                    self.matched = if byte == expected { self.matched + 1 } else { usize::MAX };
                }
                (_, false) => {}
            }
        }
        Ok(())
    }

    /// There is no need for more.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Bytes of the value, once all pieces were given; `None` if the variable is not there.
    pub const fn finish(&self) -> Option<usize> {
        // The last entry may lack its NUL.
        match self.done || self.matched == self.name.len() + 1 {
            true => Some(self.length),
            false => None,
        }
    }
}

/// Takes one path out of a list as LD_PRELOAD has it (separated by colons or spaces), in place. `is_mine` says which. Answers the new length.
pub fn remove_from_list(list: &mut [u8], is_mine: impl Fn(&[u8]) -> bool) -> usize {
    let is_separator = |byte: u8| byte == b':' || byte == b' ';
    let (mut read, mut write) = (0, 0);
    while read < list.len() {
        let rest = &list[read..];
        let end = read + rest.iter().position(|b| is_separator(*b)).unwrap_or(rest.len());
        if !is_mine(&list[read..end]) && end > read {
            if write > 0 {
                list[write] = b':';
                write += 1;
            }
            list.copy_within(read..end, write);
            write += end - read;
        }
        read = end + 1;
    }
    write
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str, text: &[u8], piece: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let mut value = [0; 8];
        let mut finder = Finder::new(name);
        for piece in text.chunks(piece) {
            finder.feed(piece, &mut value)?;
        }
        Ok(finder.finish().map(|length| value[..length].to_vec()))
    }

    #[test]
    fn the_variable_is_found_whatever_the_pieces() {
        let text = b"A=1\0XMEMO=no\0MEMOX=no\0MEMO\0MEMO=yes=1\0MEMO=two\0";
        for piece in 1..text.len() + 1 {
            assert_eq!(find("MEMO", text, piece), Ok(Some(b"yes=1".to_vec())));
            assert_eq!(find("MEM", text, piece), Ok(None));
            assert_eq!(find("A", text, piece), Ok(Some(b"1".to_vec())));
        }
        assert_eq!(find("A", b"A=", 1), Ok(Some(vec![])));
        assert_eq!(find("A", b"", 1), Ok(None));
        assert_eq!(find("A", b"B=0\0A=12345678", 3), Ok(Some(b"12345678".to_vec())));
        assert_eq!(find("A", b"A=123456789\0", 3), Err(TooLong));
    }

    #[test]
    fn one_path_is_taken_out_of_a_list() {
        let removed = |list: &str| {
            let mut bytes = list.as_bytes().to_vec();
            let length = remove_from_list(&mut bytes, |path| path.ends_with(b"libmemomania.so"));
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        assert_eq!(removed("/x/libmemomania.so"), "");
        assert_eq!(removed("/x/libmemomania.so:/y/other.so"), "/y/other.so");
        assert_eq!(removed("/y/other.so /x/libmemomania.so"), "/y/other.so");
        assert_eq!(removed("a.so::libmemomania.so b.so "), "a.so:b.so");
        assert_eq!(removed(""), "");
    }
}
