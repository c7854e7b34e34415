//! Work that a process has the kernel do: blocks for a driver, page cache, compaction by hand.

use mega_core::fault::Effort;

use super::{Machine, MachineError};
use crate::physical::Compact;
use crate::unit::{Owner, SpaceId};

impl Machine {
    /// Allocates a block for the kernel, as hard as `alloc_pages(GFP_KERNEL)` tries, and keeps it; nothing is zeroed. The caller waits for it. False:
    /// no block.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn take_for_kernel(&mut self, id: SpaceId) -> Result<bool, MachineError> {
        self.enter(id)?;
        let taken = self.free_block(Effort::Hard, Owner::Kernel).is_some();
        self.leave(id);
        Ok(taken)
    }

    /// Puts so many base pages into the page cache, as reading a file does, dropping the oldest there where memory is short. The caller is charged for
    /// finding memory, not for reading.
    ///
    /// # Errors
    /// If there is no such process, or no memory can be found.
    pub fn fill_cache(&mut self, id: SpaceId, pages: u64) -> Result<(), MachineError> {
        self.enter(id)?;
        let mut left = pages;
        while left > 0 && self.frame(Owner::Cache, false).is_some() {
            left -= 1;
        }
        self.leave(id);
        if left > 0 {
            return Err(MachineError::NoMemory);
        }
        Ok(())
    }

    /// Compacts all memory once, as a write to `/proc/sys/vm/compact_memory` does. The caller waits for it.
    ///
    /// # Errors
    /// If there is no such process.
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

    #[test]
    fn files_read_fill_what_is_free_and_make_room_for_themselves() {
        let mut machine = Machine::new(&Config::of_bytes(64 << 20), Box::<BaseFault>::default());
        let id = machine.spawn("reader").unwrap();
        machine.run_as(id);
        Memory::read_file(&mut machine, 2 * (64 << 20) / 4096).unwrap();
        assert!(machine.counters().cache_dropped >= (64 << 20) / 4096);
        assert!(
            machine.physical().free_bytes() < 8 << 20,
            "{}",
            machine.physical().free_bytes()
        );
        assert_eq!(machine.check(), Ok(()));
        let area = Memory::map(&mut machine, 32 << 20).unwrap();
        (0..32 << 8).for_each(|page| machine.touch(area + page * 4096, true));
        assert_eq!(
            machine.space(id).unwrap().counts.resident_pages,
            32 << 8,
            "what is read gives way to programs"
        );
        machine.exit(id).unwrap();
        assert!(machine.fill_cache(id, 1).is_err());
    }
}
