//! Human-readable text: in eighty columns, and without what a terminal would obey.

use std::borrow::Cow;

/// Maximum width of human-readable output.
const WIDTH: usize = 80;

/// Text of others (names of processes and mappings, paths), as it may be shown on a terminal: without control characters, C1 included, which
/// would move its cursor or reprogram it, and without those that reverse the direction of what follows. They are shown as `\x1b`.
///
/// For everything that is printed and is not JSON.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_harmful(c) => shown.push(c),
            c if c.is_ascii() => shown.push_str(&format!("\\x{:02x}", c as u32)),
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// `head` and then `text`, broken between words; further lines begin under the first word of `text`.
pub fn wrapped(head: &str, text: &str) -> String {
    let indent = head.chars().count();
    let mut out = head.to_string();
    let mut column = indent;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > indent && column + 1 + width > WIDTH {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_not_sent() {
        assert_eq!(printable("redis-server ö %"), "redis-server ö %");
        assert_eq!(printable("\u{1b}]0;x\u{7}"), "\\x1b]0;x\\x07");
        assert_eq!(printable("a\nb\r\t\u{7f}"), "a\\x0ab\\x0d\\x09\\x7f");
        assert_eq!(printable("\u{9b}31m\u{202e}x"), "\\u{9b}31m\\u{202e}x");
        let all: String = (0..0x2070).filter_map(char::from_u32).collect();
        assert!(!printable(&all).chars().any(|c| c.is_control()));
    }

    #[test]
    fn lines_break_between_words_at_eighty_columns_under_the_first_word() {
        let nine = "123456789 ".repeat(8);
        assert_eq!(wrapped("", &nine).lines().count(), 1);
        let text = wrapped("  no ", &nine);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "  no 123456789 123456789 123456789 123456789 123456789 123456789 123456789",
                "     123456789"
            ]
        );
        assert_eq!(
            wrapped("x ", &"y".repeat(100)).lines().count(),
            1,
            "a word is never broken"
        );
    }
}
