//! 1 GB pages wherever they fit, otherwise 2 MB: what a program has under Memomania's layout `1G` with enough pages reserved.
//!
//! Memomania reserves its pages in advance; here a GB is taken at its first touch from contiguous free memory, which is equivalent on
//! unfragmented memory.

use crate::fault::{Effort, Fault, FaultPolicy, HugeAdvice, Place};

/// The policy. It is stateless.
#[derive(Debug, Default)]
pub struct GiantFault;

impl FaultPolicy for GiantFault {
    fn name(&self) -> &'static str {
        "giant"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        match fault.advice {
            HugeAdvice::NoHuge => Place::Base,
            _ => Place::Giant(Effort::Direct),
        }
    }

    fn maps_giant(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::fault;

    #[test]
    fn what_asked_for_no_huge_pages_gets_none() {
        assert_eq!(GiantFault.place(&fault()), Place::Giant(Effort::Direct));
        let asked = Fault {
            advice: HugeAdvice::NoHuge,
            ..fault()
        };
        assert_eq!(GiantFault.place(&asked), Place::Base);
    }
}
