//! Sampling of long steady work: one simulated piece represents several, and its time counts as many times. It is for steady rates only; first
//! touches of memory are never skipped.

use super::Memory;

/// Simulates a piece of work that represents `weight` of them: its time is charged `weight` times, except for what is paid once per page
/// ([`Memory::paid_by_page_ns`]).
///
/// A piece is stalled by others as often as any other, so the share of stalled time stays right.
#[inline]
pub(super) fn weighed<M: Memory>(memory: &mut M, weight: u64, piece: impl FnOnce(&mut M)) {
    if weight <= 1 {
        return piece(memory);
    }
    let (start, paid) = (memory.now_ns(), memory.paid_by_page_ns());
    piece(memory);
    let by_page = memory.paid_by_page_ns().saturating_sub(paid);
    let took = memory.now_ns().saturating_sub(start).saturating_sub(by_page);
    memory.work(took.saturating_mul(weight - 1));
}

/// Sampled shifts of a pass: of `weight` in a row the first counts once, since it may touch pages for the first time, and the second
/// represents itself and the rest.
///
/// Yields each simulated shift and its weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampledShifts {
    next: u64,
    end: u64,
    weight: u64,
}

impl SampledShifts {
    pub(super) fn new(shifts: u64, weight: u64) -> Self {
        Self {
            next: 0,
            end: shifts,
            weight: weight.max(1),
        }
    }
}

impl Iterator for SampledShifts {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let shift = self.next;
        if shift >= self.end {
            return None;
        }
        let place = shift % self.weight;
        if place == 0 {
            self.next = shift + 1;
            return Some((shift, 1));
        }
        let until = (shift - place + self.weight).min(self.end);
        self.next = until;
        Some((shift, until - shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Config, Machine};
    use crate::workload::{Advice, CountingMemory};
    use mega_core::fault::by_name;

    #[test]
    fn a_piece_takes_as_long_as_what_it_stands_for() {
        for (weight, ns) in [(0, 3), (1, 3), (10, 30)] {
            let mut memory = CountingMemory::with_touch_ns(1);
            let at = memory.map(4096).unwrap();
            weighed(&mut memory, weight, |m| (0..3).for_each(|_| m.touch(at, true)));
            assert_eq!((memory.now_ns(), memory.writes), (ns, 3), "{weight}");
        }
    }

    #[test]
    fn a_page_pays_for_its_accessed_bit_once_and_not_for_each_visit_that_is_stood_for() {
        let config = Config::of_bytes(64 << 20);
        let mut machine = Machine::new(&config, by_name("base").unwrap());
        let id = machine.spawn("program").unwrap();
        machine.run_as(id);
        let pages = 512;
        let at = machine.map(pages * 4096).unwrap();
        let piece = |machine: &mut Machine| (0..pages).for_each(|page| machine.touch(at + page * 4096, true));
        let mut took = |weight, cleared: bool| {
            if cleared {
                machine.advise(at, pages * 4096, Advice::Cold).unwrap();
            }
            let start = Memory::now_ns(&machine);
            weighed(&mut machine, weight, piece);
            Memory::now_ns(&machine) - start
        };
        took(1, false);
        let visits = took(1, false);
        let by_page = pages * config.costs.set_accessed_ns;
        assert!(visits > 0 && by_page > 0);
        assert_eq!((took(1, true), took(8, true)), (visits + by_page, 8 * visits + by_page));
    }

    proptest::proptest! {
        #[test]
        fn the_shifts_that_are_done_stand_for_all(shifts in 0u64..300, weight in 0u64..70) {
            let done: Vec<(u64, u64)> = SampledShifts::new(shifts, weight).collect();
            proptest::prop_assert_eq!(done.iter().map(|(_, n)| n).sum::<u64>(), shifts);
            proptest::prop_assert!(done.iter().all(|(shift, _)| *shift < shifts));
            if weight <= 1 {
                proptest::prop_assert!(done.iter().all(|(_, n)| *n == 1));
            }
        }
    }
}
