//! The clock of all time stamps: CLOCK_MONOTONIC in nanoseconds, which tracepoints and journals can use too.

use rustix::time::{clock_gettime, ClockId};

/// Nanoseconds of CLOCK_MONOTONIC. About 30 ns per call through the vDSO.
#[must_use]
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Seconds from `start_ns` to `end_ns`, never zero, so that it can be a divisor.
#[must_use]
pub fn seconds_between(start_ns: u64, end_ns: u64) -> f64 {
    end_ns.saturating_sub(start_ns).max(1) as f64 / 1e9
}

/// Nanoseconds of a span given in seconds.
#[must_use]
pub fn seconds_to_ns(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let a = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now_ns() - a >= 2_000_000);
    }

    #[test]
    fn an_empty_span_can_still_divide() {
        assert!(seconds_between(5, 5) > 0.0);
    }
}
