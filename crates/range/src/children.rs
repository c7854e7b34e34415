//! Which forked children get a helper at once.
//!
//! A helper costs each fork a quarter of a millisecond, most of it once the child ends and has to wait for it. Servers that
//! fork for each request, and shells, have children that are over before there is anything to be helped with: they get
//! one only once they map much.

/// What is over, or has executed another program, within this time is short.
pub const SHORT_NS: u64 = 10_000_000;
/// So many short children in a row, and the next ones are taken to be short, too.
pub const IN_A_ROW: u32 = 8;
/// Every so many-th gets a helper all the same, to see whether it is short.
pub const SEEN: u32 = 16;
/// Bytes that a child without a helper has to map at a time to get one.
pub const MUCH: u64 = 8 << 20;

/// Whether children are short of whose last ones so many in a row were.
pub fn are_short(short: u32) -> bool {
    short >= IN_A_ROW
}

/// Whether the `nth` child of a program gets a helper at once, of whose last ones so many in a row were short.
pub fn is_helped(nth: u32, short: u32) -> bool {
    !are_short(short) || nth % SEEN == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_helped_until_eight_in_a_row_were_short_and_one_in_sixteen_after_that() {
        assert!((0..100).all(|nth| is_helped(nth, IN_A_ROW - 1)));
        let helped = (0..160).filter(|&nth| is_helped(nth, IN_A_ROW)).count();
        assert_eq!(helped, 10);
    }
}
