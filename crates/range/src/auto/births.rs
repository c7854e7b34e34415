//! What is advised at birth.

use super::Auto;
use crate::birth::{Births, LEAST_DENSE};
use crate::span::PAGE;
use crate::table::{Advice, Range};
use crate::waste;
use crate::world::{Conditions, Faults};

impl Auto {
    /// Takes in that the mapping at this address was advised at birth.
    pub fn born(&mut self, address: u64) {
        let of = |range: &&Range| range.mapping.start <= address && address < range.mapping.end;
        let Some(mapping) = self.table.ranges().iter().find(of).map(|range| range.mapping) else {
            return;
        };
        self.mark(mapping, |range| {
            if matches!(range.advice, Advice::None | Advice::Probe) {
                range.advice = Advice::Asked;
            }
        });
    }

    /// What may be advised at birth under these conditions.
    pub fn births(&self, conditions: &Conditions) -> Births {
        let resident = conditions.resident_bytes;
        let waste = self.history.waste(resident) + self.table.bloat_pages() * PAGE;
        let may = conditions.faults == Faults::Advised
            && !self.off.advise
            && self.intent.allows_huge_faults()
            && !conditions.is_short_of_blocks
            && !conditions.is_near_limit
            && conditions.now_ns >= self.back_off_until_ns
            && self.history.dense >= LEAST_DENSE
            && waste <= waste::allowance(resident, false);
        Births {
            most_bytes: if may { resident } else { 0 },
        }
    }
}
