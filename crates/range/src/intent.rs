//! What matters for a program, in place of parameters.

/// What matters for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Intent {
    /// As fast as stock THP, in base pages' memory, with base pages' tails.
    #[default]
    Balanced,
    /// No fault of 2 MB in the program's way: memory is populated ahead and collapsed afterwards.
    Latency,
    /// No stall budget.
    Throughput,
    /// What base pages need, and not a page more.
    Memory,
}

impl Intent {
    /// All of them.
    pub const ALL: [Intent; 4] = [Intent::Balanced, Intent::Latency, Intent::Throughput, Intent::Memory];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Intent::Balanced => "balanced",
            Intent::Latency => "latency",
            Intent::Throughput => "throughput",
            Intent::Memory => "memory",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &[u8]) -> Option<Intent> {
        Intent::ALL.into_iter().find(|intent| intent.name().as_bytes() == name)
    }

    /// Whether the program's own faults may map 2 MB.
    pub fn allows_huge_faults(self) -> bool {
        matches!(self, Intent::Balanced | Intent::Throughput)
    }

    /// Whether memory may be populated before the program touches it.
    pub fn allows_ahead(self) -> bool {
        self != Intent::Memory
    }

    /// The share of time, in thousandths, for which collapses may stall the program; none for no limit.
    pub fn stall_permille(self) -> Option<u32> {
        match self {
            Intent::Balanced | Intent::Memory => Some(50),
            Intent::Latency => Some(20),
            Intent::Throughput => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_intent_is_found_by_its_name_and_no_other_is() {
        for intent in Intent::ALL {
            assert_eq!(Intent::by_name(intent.name().as_bytes()), Some(intent));
        }
        for other in [&b""[..], b"Balanced", b"speed", b"latency "] {
            assert_eq!(Intent::by_name(other), None);
        }
    }
}
