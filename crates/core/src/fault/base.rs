//! Base pages only: the baseline of every comparison (`transparent_hugepage=never`).

use crate::fault::{Fault, FaultPolicy, Place, Rest, Unmapped};

/// The policy. It is stateless.
#[derive(Debug, Default)]
pub struct BaseFault;

impl FaultPolicy for BaseFault {
    fn name(&self) -> &'static str {
        "base"
    }

    fn place(&mut self, _: &Fault) -> Place {
        Place::Base
    }

    /// Huge pages can still come from a scan-time policy; partial unmaps are handled as Linux does.
    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Deferred
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::testing::fault;

    #[test]
    fn no_fault_gets_a_huge_page() {
        assert_eq!(BaseFault.place(&fault()), Place::Base);
    }
}
