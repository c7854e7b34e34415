//! What of a process's own memory is mapped, and what came and went between two looks.
//!
//! Of a look there is only the kernel's list: what was unmapped and mapped again in between stays unseen, and what was moved went and came.

use mega_linux::proc::maps::Mapping;
use mega_linux::vma::{MappingKind, Vma};

/// A range of addresses: the first, and the first after it.
pub type Span = (u64, u64);

/// The anonymous mappings (heaps, stacks, `mmap` without a file) of one process; neighbours count as one, as the kernel joins and parts them at will.
#[derive(Debug, Default)]
pub struct Mappings {
    spans: Vec<Span>,
}

/// What changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Went, by rising address.
    pub unmapped: Vec<Span>,
    /// Came, by rising address.
    pub mapped: Vec<Span>,
}

impl Mappings {
    /// Takes the kernel's list of now, by rising address; returns what changed.
    pub fn update(&mut self, now: &[Mapping]) -> Changes {
        let own = now
            .iter()
            .filter(|mapping| Vma::from(*mapping).kind == MappingKind::Anonymous);
        let mut spans: Vec<Span> = Vec::new();
        for mapping in own {
            match spans.last_mut() {
                Some(last) if last.1 >= mapping.start => last.1 = last.1.max(mapping.end),
                _ => spans.push((mapping.start, mapping.end)),
            }
        }
        let changes = Changes {
            unmapped: without(&self.spans, &spans),
            mapped: without(&spans, &self.spans),
        };
        self.spans = spans;
        changes
    }
}

/// The parts of `all` that are not in `others`. Both rise and do not overlap within themselves.
fn without(all: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    let mut first = 0;
    for &(mut start, end) in all {
        // Those before this one are before all that follow.
        while others.get(first).is_some_and(|other| other.1 <= start) {
            first += 1;
        }
        for other in others[first..].iter().take_while(|other| other.0 < end) {
            if start < other.0 {
                left.push((start, other.0));
            }
            start = start.max(other.1);
        }
        if start < end {
            left.push((start, end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn list(text: &str) -> Vec<Mapping> {
        mega_linux::proc::maps::parse(Path::new("maps"), text.as_bytes()).unwrap()
    }

    #[test]
    fn what_grows_shrinks_splits_and_joins_is_told_as_what_came_and_went() {
        let mut seen = Mappings::default();
        let first = "1000-5000 rw-p 0 00:00 0 [heap]\n8000-9000 rw-p 0 00:00 0\na000-b000 r--p 0 08:01 7 /lib/x\n";
        let changes = seen.update(&list(first));
        assert_eq!(changes.mapped, [(0x1000, 0x5000), (0x8000, 0x9000)]);
        assert_eq!(changes.unmapped, []);
        // The heap grew, another protection parts it, a hole was made, and the file went, which is not told.
        let second = "1000-2000 r--p 0 00:00 0 [heap]\n2000-3000 rw-p 0 00:00 0 [heap]\n4000-7000 rw-p 0 00:00 0 [heap]\n8000-9000 rw-p 0 00:00 0\n";
        let changes = seen.update(&list(second));
        assert_eq!(
            (changes.unmapped, changes.mapped),
            (vec![(0x3000, 0x4000)], vec![(0x5000, 0x7000)])
        );
        let changes = seen.update(&list("1000-a000 rw-p 0 00:00 0\n"));
        assert_eq!(changes.mapped, [(0x3000, 0x4000), (0x7000, 0x8000), (0x9000, 0xa000)]);
        assert_eq!(seen.update(&[]).unmapped, [(0x1000, 0xa000)]);
    }

    proptest! {
        #[test]
        fn taking_away_is_what_it_is_page_by_page(a in any::<u64>(), b in any::<u64>()) {
            let spans = |bits: u64| {
                let mut spans: Vec<Span> = Vec::new();
                for i in (0..64).filter(|i| bits >> i & 1 == 1) {
                    match spans.last_mut() {
                        Some(last) if last.1 == i => last.1 = i + 1,
                        _ => spans.push((i, i + 1)),
                    }
                }
                spans
            };
            prop_assert_eq!(without(&spans(a), &spans(b)), spans(a & !b));
        }
    }
}
