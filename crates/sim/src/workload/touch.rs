//! First touch: the time of every page fault of an area, as the program sees it.

use super::pattern::PageOrder;
use super::program::{describe, map_area};
use super::{pace, Memory, Program, ProgramError, Progress, Results, MIB, PAGE};
use serde::{Deserialize, Serialize};

/// Options of [`Touch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TouchOptions {
    /// Size of the area in MiB.
    pub mib: u64,
    /// Touch the pages in scattered order instead of ascending.
    pub scattered: bool,
    /// MADV_HUGEPAGE on the area.
    pub advise: bool,
}

impl Default for TouchOptions {
    fn default() -> Self {
        Self {
            mib: 1024,
            scattered: false,
            advise: false,
        }
    }
}

/// The program.
#[derive(Debug)]
pub struct Touch {
    options: TouchOptions,
    /// The area and what is left of it, once it is mapped.
    area: Option<(u64, PageOrder)>,
    results: Results,
}

impl Touch {
    /// Creates the program with these options.
    ///
    /// # Errors
    /// An area larger than an address space.
    pub fn new(options: TouchOptions) -> Result<Self, ProgramError> {
        super::program::check_mib(options.mib)?;
        Ok(Self {
            options,
            area: None,
            results: Results::default(),
        })
    }
}

impl<M: Memory> Program<M> for Touch {
    describe!("touch");

    fn step(&mut self, memory: &mut M, until_ns: u64) -> Result<Progress, ProgramError> {
        let o = self.options;
        let (base, order) = match &mut self.area {
            Some(area) => area,
            none => {
                let bytes = o.mib.max(1) * MIB;
                let base = map_area(memory, bytes, o.advise)?;
                self.results.begin("touch", memory.now_ns());
                none.insert((base, PageOrder::new((bytes / PAGE) as usize, o.scattered)))
            }
        };
        for page in order {
            let start = memory.now_ns();
            memory.touch(*base + page as u64 * PAGE, true);
            memory.work(pace::CLOCK);
            let now = memory.now_ns();
            self.results.record("touch", now - start);
            self.results.operations += 1;
            self.results.mark(now, 1);
            if now >= until_ns {
                return Ok(Progress::Ran);
            }
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::program::tests::{run, steps_do_not_matter};

    #[test]
    fn each_page_is_written_once_in_either_order() {
        for scattered in [false, true] {
            let (m, _) = run(Touch::new(TouchOptions {
                mib: 2,
                scattered,
                advise: true,
            })
            .unwrap());
            assert_eq!((m.reads, m.writes, m.written_pages(), m.calls[3]), (0, 512, 512, 1));
        }
        let o = TouchOptions {
            mib: 1,
            ..TouchOptions::default()
        };
        let results = steps_do_not_matter(|| Touch::new(o).unwrap());
        assert_eq!(
            results.latency("touch").map(|l| (l.count(), l.max_ns())),
            Some((256, pace::CLOCK + 3))
        );
    }
}
