//! What a process has the kernel do for itself: memory for a driver, compaction by hand.

use mega_core::fault::Effort;

use super::{Machine, MachineError};
use crate::physical::Compact;
use crate::unit::{Owner, SpaceId};

impl Machine {
    /// Takes a block for the kernel, as hard as `alloc_pages(GFP_KERNEL)` tries, and keeps it; nothing is zeroed. The caller waits for it. False: there
    /// is none.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn take_for_kernel(&mut self, id: SpaceId) -> Result<bool, MachineError> {
        self.enter(id)?;
        let taken = self.free_block(Effort::Hard, Owner::Kernel).is_some();
        self.leave(id);
        Ok(taken)
    }

    /// Compacts all memory once, as a write to `/proc/sys/vm/compact_memory` does. The caller waits for it.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn compact_by_hand(&mut self, id: SpaceId) -> Result<(), MachineError> {
        self.enter(id)?;
        self.physical.drain();
        Machine::compact(self, Compact::Whole);
        self.leave(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mega_core::fault::BaseFault;

    use crate::machine::{Config, Machine};
    use crate::physical::Fragmenter;
    use crate::unit::SpaceId;
    use crate::workload::{Hog, HogOptions, Memory, Program, Progress, Results};

    const BYTES: u64 = 1 << 30;

    fn fragmented() -> (Machine, SpaceId) {
        let mut machine = Machine::new(&Config::of_bytes(BYTES), Box::<BaseFault>::default());
        machine.physical_mut().fragment(&Fragmenter::study(BYTES));
        let id = machine.spawn("hog").unwrap();
        machine.run_as(id);
        (machine, id)
    }

    fn hog(options: HogOptions) -> (Machine, Results) {
        let (mut machine, _) = fragmented();
        let mut hog = Hog::new(options).unwrap();
        while hog.step(&mut machine, u64::MAX).unwrap() != Progress::Done {}
        assert_eq!(machine.check(), Ok(()));
        let results = Program::<Machine>::results(&hog).clone();
        (machine, results)
    }

    #[test]
    fn a_driver_gets_most_of_what_is_free_and_waits_less_after_compaction_by_hand() {
        let (_, on_demand) = hog(HogOptions::default());
        let (machine, by_hand) = hog(HogOptions {
            compact: true,
            ..HogOptions::default()
        });
        let free = fragmented().0.physical().free_bytes() >> 21;
        for results in [&on_demand, &by_hand] {
            assert!(results.operations * 10 > free * 8, "{} of {free}", results.operations);
        }
        let mean = |results: &Results| results.latency("alloc").map_or(0, |l| l.mean_ns());
        assert!(mean(&on_demand) > 10 * mean(&by_hand));
        assert!(by_hand.measure("compact_ns") > 0 && machine.physical().free_blocks() < free / 5);
    }

    #[test]
    fn a_count_ends_it() {
        let (_, results) = hog(HogOptions {
            count: Some(3),
            ..HogOptions::default()
        });
        assert_eq!(results.operations, 3);
        let (mut machine, _) = fragmented();
        assert!(Memory::take_block(&mut machine).unwrap());
    }
}
