//! Time, and faults so far.

use std::fs;

use rustix::time::{clock_gettime, ClockId};

pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds that it takes.
pub(super) fn time(work: impl FnOnce()) -> f64 {
    let start = now_ns();
    work();
    (now_ns() - start) as f64
}

/// Minor faults of this process so far; 0 where /proc cannot be read.
pub(super) fn minor_faults() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the command's name in parentheses, which may have spaces: state is field 3, minor faults field 10.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after
        .split_whitespace()
        .nth(7)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::area::Area;
    use super::super::{PAGE, REGION};
    use super::minor_faults;
    use rustix::mm::Advice;

    #[test]
    fn minor_faults_are_counted() {
        let area = Area::new(REGION).unwrap();
        area.advise(0, REGION, Advice::LinuxNoHugepage).unwrap();
        let before = minor_faults();
        area.touch_every(0, REGION, PAGE);
        assert!(minor_faults() - before >= 512);
    }
}
