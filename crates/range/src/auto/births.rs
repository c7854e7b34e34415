//! What is advised at birth.

use super::Auto;
use crate::birth::{Birth, Births, EARLIER, LEAST_DENSE};
use crate::span::PAGE;
use crate::table::{Advice, Range};
use crate::world::{Conditions, Faults};

impl Auto {
    /// Takes in what became of a new mapping at this address.
    pub fn born(&mut self, address: u64, birth: Birth) {
        let of = |range: &&mut Range| range.span.start <= address && address < range.span.end;
        let Some(range) = self.table.ranges_mut().iter_mut().find(of) else {
            return;
        };
        let mapping = range.mapping;
        match birth {
            Birth::Probe if range.advice == Advice::None => range.advice = Advice::Probe,
            Birth::Advised => self.mark(mapping, |range| {
                if matches!(range.advice, Advice::None | Advice::Probe) {
                    range.advice = Advice::Asked;
                }
            }),
            _ => {}
        }
    }

    /// What may be advised at birth under these conditions.
    pub fn births(&self, conditions: &Conditions) -> Births {
        let seen = self.births_seen(conditions);
        // As long as this run does not say otherwise.
        let is_dense = self.prior.is_dense(LEAST_DENSE) && self.history.is_dense(LEAST_DENSE);
        let earlier = if is_dense && self.may_be_born(conditions) {
            EARLIER
        } else {
            0
        };
        Births {
            resident_bytes: seen.resident_bytes.max(earlier),
            is_seen: seen.is_seen,
            is_filled: self.is_filled,
        }
    }

    /// The same by what this run has shown alone.
    pub(super) fn births_seen(&self, conditions: &Conditions) -> Births {
        let may = self.seen().dense >= LEAST_DENSE && self.may_be_born(conditions);
        Births {
            resident_bytes: if may { conditions.resident_bytes } else { 0 },
            is_seen: may,
            is_filled: false,
        }
    }

    fn may_be_born(&self, conditions: &Conditions) -> bool {
        let resident = conditions.resident_bytes;
        let waste = self.history.waste(resident) + self.table.bloat_pages() * PAGE;
        conditions.faults == Faults::Advised
            && !self.off.advise
            && self.intent.allows_huge_faults()
            && !conditions.is_short_of_blocks
            && !conditions.is_near_limit()
            && conditions.now_ns >= self.back_off_until_ns
            && waste <= conditions.allowance()
    }
}
