//! Waiting for a moment, for the end of a process, or for being told to stop.

use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;

/// Pidfds watched at a time: more ended processes are noticed at the next scan.
const WATCHED_MAX: usize = 256;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The time is over.
    Time,
    /// A process ended.
    ProcessEnded,
    /// Asked to stop.
    Stop,
}

/// Waits this long at most.
pub fn wait<'a>(
    stop: Option<BorrowedFd<'a>>,
    processes: impl Iterator<Item = BorrowedFd<'a>>,
    most: Duration,
) -> Woken {
    let mut fds: Vec<PollFd<'a>> = Vec::new();
    let stops = usize::from(stop.is_some());
    fds.extend(stop.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    fds.extend(
        processes
            .take(WATCHED_MAX)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
    );
    let timeout = Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        // A signal that is not ours to handle: the caller looks at the clock again.
        Err(_) | Ok(0) => Woken::Time,
        Ok(_) if fds[..stops].iter().any(|fd| !fd.revents().is_empty()) => Woken::Stop,
        Ok(_) => Woken::ProcessEnded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_end_of_a_process_and_a_stop_are_noticed_at_once() {
        let long = Duration::from_secs(30);
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut child = std::process::Command::new("sleep").arg("0.1").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        use rustix::fd::AsFd;
        let began = Instant::now();
        let woken = wait(Some(read.as_fd()), [pidfd.as_fd()].into_iter(), long);
        assert_eq!(woken, Woken::ProcessEnded);
        rustix::io::write(&write, b"x").unwrap();
        assert_eq!(wait(Some(read.as_fd()), [pidfd.as_fd()].into_iter(), long), Woken::Stop);
        assert!(began.elapsed() < long);
        child.wait().unwrap();
        assert_eq!(wait(None, std::iter::empty(), Duration::from_millis(1)), Woken::Time);
    }
}
