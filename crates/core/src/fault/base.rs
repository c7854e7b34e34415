//! Base pages only: what every comparison starts from (`transparent_hugepage=never`).

use crate::fault::{Fault, FaultPolicy, Place, Rest, Unmapped};
use crate::policy::{Param, ParamError};

/// The policy. It remembers nothing.
#[derive(Debug, Default)]
pub struct BaseFault;

impl FaultPolicy for BaseFault {
    fn name(&self) -> &'static str {
        "base"
    }

    fn place(&mut self, _: &Fault) -> Place {
        Place::Base
    }

    /// Huge pages can still come from a scan-time policy; Linux treats them as ever.
    fn unmapped(&mut self, _: &Unmapped) -> Rest {
        Rest::Deferred
    }

    fn set(&mut self, name: &str, _: &str) -> Result<(), ParamError> {
        Err(ParamError::Unknown {
            policy: "base",
            name: name.chars().take(64).collect(),
            known: "none".to_string(),
        })
    }

    fn params(&self) -> Vec<Param> {
        Vec::new()
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
