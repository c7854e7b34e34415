//! What children that have ended and been waited for took, getrusage(2).

use std::time::Duration;

/// Sums over children, and over theirs that they waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedChildren {
    /// Processor time.
    pub cpu: Duration,
    /// The part of it that the kernel took.
    pub system: Duration,
    /// Page faults without reading from a device.
    pub minor_faults: u64,
}

/// Of all children of ours so far.
pub fn ended_children() -> EndedChildren {
    // SAFETY: plain memory that the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to our own structure.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let time = |t: libc::timeval| {
        Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(t.tv_usec).unwrap_or(0))
    };
    let system = time(usage.ru_stime);
    EndedChildren {
        cpu: time(usage.ru_utime) + system,
        system,
        minor_faults: u64::try_from(usage.ru_minflt).unwrap_or(0),
    }
}

impl EndedChildren {
    /// What came since then.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            system: self.system.saturating_sub(before.system),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
        }
    }
}
