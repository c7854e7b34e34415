//! Text for people, in eighty columns.

/// Human output is no wider.
const WIDTH: usize = 80;

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
