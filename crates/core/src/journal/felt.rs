//! How long a program felt each action: a histogram, added up from outcomes.

use std::collections::BTreeMap;

use super::Event;

/// Actions on a program by how long it was stalled by each, in powers of two of a microsecond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Felt {
    /// Actions that took any time.
    pub actions: u64,
    /// All stalls together.
    pub stall_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// How many, by the power; at most 64.
    counts: BTreeMap<u32, u64>,
}

impl Felt {
    /// Takes an outcome into account; of other events there is nothing to take.
    pub fn note(&mut self, event: &Event) {
        let Event::Outcome { took_ns, stall_ns, .. } = event else {
            return;
        };
        // A look made the call needless.
        if *took_ns == 0 {
            return;
        }
        let stall = stall_ns.unwrap_or(*took_ns).min(*took_ns);
        self.actions += 1;
        self.stall_ns = self.stall_ns.saturating_add(stall);
        self.longest_ns = self.longest_ns.max(stall);
        let power = (stall / 1000).checked_ilog2().map_or(0, |power| power + 1);
        *self.counts.entry(power).or_default() += 1;
    }

    /// Adds another's actions.
    pub fn add(&mut self, other: &Self) {
        self.actions += other.actions;
        self.stall_ns = self.stall_ns.saturating_add(other.stall_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (power, count) in &other.counts {
            *self.counts.entry(*power).or_default() += count;
        }
    }

    /// For each bound in microseconds, rising: how many actions stalled the program for less, and for at least the bound before.
    pub fn under_us(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(|(power, count)| (1u64 << power, *count))
    }

    /// Its line of the journal.
    pub fn event(&self, pid: u32) -> Event {
        let under: Vec<String> = self.under_us().map(|(us, count)| format!("{us}:{count}")).collect();
        Event::Felt {
            pid,
            actions: self.actions,
            stall_ns: self.stall_ns,
            longest_ns: self.longest_ns,
            under_us: under.join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionKind, Outcome};
    use crate::observe::Region;

    fn outcome(took_ns: u64, stall_ns: Option<u64>) -> Event {
        Event::Outcome {
            pid: 1,
            region: Region(1),
            action: ActionKind::Promote,
            outcome: Outcome::Done,
            took_ns,
            stall_ns,
            returned_pages: 0,
            cpu_ns: 0,
        }
    }

    #[test]
    fn stalls_are_counted_below_the_next_power_of_two() {
        let mut felt = Felt::default();
        for stall in [0, 999, 1_000, 1_999, 2_000, 63_999, 64_000] {
            felt.note(&outcome(100_000, Some(stall)));
        }
        felt.note(&outcome(0, None));
        let counts: Vec<_> = felt.under_us().collect();
        assert_eq!(counts, [(1, 2), (2, 2), (4, 1), (64, 1), (128, 1)]);
        assert_eq!((felt.actions, felt.longest_ns), (7, 64_000));
    }

    #[test]
    fn where_nothing_else_is_known_all_of_the_call_was_felt_and_never_more() {
        let mut felt = Felt::default();
        felt.note(&outcome(500_000, None));
        felt.note(&outcome(500_000, Some(600_000)));
        let mut both = Felt::default();
        both.add(&felt);
        both.add(&felt);
        let Event::Felt { stall_ns, under_us, .. } = both.event(7) else {
            panic!("{both:?}")
        };
        assert_eq!((stall_ns, under_us.as_str()), (2_000_000, "512:4"));
        both.note(&outcome(u64::MAX, None));
        assert_eq!(both.longest_ns, u64::MAX);
        assert!(both.under_us().last().unwrap().0 > 1 << 50);
    }
}
