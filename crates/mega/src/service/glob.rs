//! Patterns of rules: `*`, `?` and, where a text is a path, `**`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    /// One character, but no `/` of a path.
    One,
    /// Any number of characters, but no `/` of a path.
    Some,
    /// Any number of any characters.
    Any,
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
    is_path: bool,
}

impl Glob {
    /// Longer ones are refused.
    pub const MAX_BYTES: usize = 512;

    /// The pattern; in that of a path only `**` crosses a `/`.
    pub fn new(text: &str, is_path: bool) -> Self {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' if !is_path || chars.next_if_eq(&'*').is_some() => Token::Any,
                '*' => Token::Some,
                '?' => Token::One,
                c => Token::Char(c),
            });
        }
        Self {
            text: text.to_owned(),
            tokens,
            is_path,
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<Token> = text.chars().map(Token::Char).collect();
        self.takes(&text)
    }

    /// Whether it certainly matches whatever the other one matches.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_path == other.is_path && self.takes(&other.tokens)
    }

    /// What is reached of the pattern after each token: linear memory, and time by the product of both lengths.
    fn takes(&self, others: &[Token]) -> bool {
        let mut reached = vec![false; self.tokens.len() + 1];
        reached[0] = true;
        self.skip_empty(&mut reached);
        for other in others {
            let mut next = vec![false; self.tokens.len() + 1];
            for (at, token) in self.tokens.iter().enumerate().filter(|(at, _)| reached[*at]) {
                let no_slash = !self.is_path || *other != Token::Char('/');
                match token {
                    Token::Any => next[at] = true,
                    Token::Some => next[at] |= *other != Token::Any && no_slash,
                    Token::One => next[at + 1] |= matches!(other, Token::Char(_) | Token::One) && no_slash,
                    Token::Char(_) => next[at + 1] |= token == other,
                }
            }
            self.skip_empty(&mut next);
            reached = next;
        }
        reached.last() == Some(&true)
    }

    /// `*` may stand for nothing.
    fn skip_empty(&self, reached: &mut [bool]) {
        for (at, token) in self.tokens.iter().enumerate() {
            if reached[at] && matches!(token, Token::Any | Token::Some) {
                reached[at + 1] = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_stays_within_a_part_of_a_path_and_two_do_not() {
        let path = |pattern| Glob::new(pattern, true);
        assert!(path("/a/*/c").matches("/a/b/c") && !path("/a/*").matches("/a/b/c"));
        assert!(path("/a/**").matches("/a/b/c") && path("/?/b").matches("/a/b") && !path("/a?b").matches("/a/b"));
        assert!(Glob::new("a*", false).matches("a/b") && !Glob::new("a*", false).matches("ba"));
        assert!(Glob::new("", false).matches("") && Glob::new("***", false).matches(""));
    }

    #[test]
    fn a_wider_pattern_covers_a_narrower_one() {
        for (wide, narrow, covers) in [
            ("redis*", "redis-*.service", true),
            ("redis?", "redis*", false),
            ("*", "x", true),
            ("x", "*", false),
            ("/a/**", "/a/*/c", true),
            ("/a/*", "/a/**", false),
        ] {
            assert_eq!(
                Glob::new(wide, true).covers(&Glob::new(narrow, true)),
                covers,
                "{wide} {narrow}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_a_covered_pattern_matches_the_wider_one_matches(
            wide in "[ab/*?]{0,6}", narrow in "[ab/*?]{0,6}", text in "[ab/]{0,6}", is_path: bool
        ) {
            let (wide, narrow) = (Glob::new(&wide, is_path), Glob::new(&narrow, is_path));
            if wide.covers(&narrow) && narrow.matches(&text) {
                prop_assert!(wide.matches(&text));
            }
        }
    }
}
