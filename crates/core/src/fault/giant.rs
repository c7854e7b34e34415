//! Pages of 1 GB wherever they fit, else of 2 MB: what a program has under Memomania's layout `1G` with pages set aside for all of it.
//!
//! Memomania sets its pages aside beforehand; here a GB is taken when it is first touched, from what is free in one piece, which is the same on
//! memory that is not fragmented.

use crate::fault::{Advice, Effort, Fault, FaultPolicy, Place};

/// The policy. It remembers nothing.
#[derive(Debug, Default)]
pub struct GiantFault;

impl FaultPolicy for GiantFault {
    fn name(&self) -> &'static str {
        "giant"
    }

    fn place(&mut self, fault: &Fault) -> Place {
        match fault.advice {
            Advice::NoHuge => Place::Base,
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
            advice: Advice::NoHuge,
            ..fault()
        };
        assert_eq!(GiantFault.place(&asked), Place::Base);
    }
}
