//! Waits for a point in time, for the exit of processes, or for a stop request: one epoll set over all pidfds, however many.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::Timespec;
use rustix::io::Errno;

use crate::sys::is_readable;

/// Exits reported at a time; further ones are reported by the next call.
const AT_ONCE: usize = 256;
/// Marks the stop request among the exits.
const STOP: u64 = u64::MAX;

/// The set. Where the kernel has no descriptor for it left, only the stop request is watched.
pub struct Watch {
    epoll: Option<OwnedFd>,
    stop: Option<OwnedFd>,
}

/// What a wait saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// Asked to stop.
    pub stop: bool,
    /// PIDs of processes that exited, or all of them: `None` says that any may have.
    pub exited: Option<Vec<u32>>,
}

impl Watch {
    /// Watches for `stop` to become readable.
    pub fn new(stop: Option<OwnedFd>) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).ok();
        if let (Some(epoll), Some(stop)) = (&epoll, &stop) {
            // ENOMEM and ENOSPC: `is_stopped` sees it all the same, at the next scan at the latest.
            let _ = epoll::add(epoll, stop, EventData::new_u64(STOP), EventFlags::IN);
        }
        Self { epoll, stop }
    }

    /// Watches for the exit of a process too. Closing the pidfd ends that.
    pub fn add(&self, pidfd: BorrowedFd<'_>, pid: u32) -> Result<(), Errno> {
        match &self.epoll {
            Some(epoll) => epoll::add(epoll, pidfd, EventData::new_u64(pid.into()), EventFlags::IN),
            None => Ok(()),
        }
    }

    /// Whether the stop request has come.
    pub fn is_stopped(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(|stop| is_readable(stop.as_fd(), Duration::ZERO))
    }

    /// Waits this long at most.
    pub fn wait(&self, most: Duration) -> Woken {
        let Some(epoll) = &self.epoll else {
            let stop = match &self.stop {
                Some(stop) => is_readable(stop.as_fd(), most.min(Duration::from_secs(1))),
                None => {
                    std::thread::sleep(most.min(Duration::from_secs(1)));
                    false
                }
            };
            return Woken { stop, exited: None };
        };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(AT_ONCE);
        let mut woken = Woken {
            stop: false,
            exited: Some(Vec::new()),
        };
        // A signal that is not ours to handle: the caller looks at the clock again.
        if epoll::wait(epoll, spare_capacity(&mut events), Some(&timespec(most))).is_err() {
            return woken;
        }
        for event in &events {
            match event.data.u64() {
                STOP => woken.stop = true,
                pid => woken.exited.get_or_insert_default().push(pid as u32),
            }
        }
        woken
    }
}

fn timespec(most: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: most.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn exits_and_a_stop_request_are_noticed_at_once() {
        let long = Duration::from_secs(30);
        let (read, write) = rustix::pipe::pipe().unwrap();
        let watch = Watch::new(Some(read));
        let mut children: Vec<_> = (0..300)
            .map(|i| {
                let time = if i == 299 { "0.1" } else { "30" };
                let child = std::process::Command::new("sleep").arg(time).spawn().unwrap();
                let pidfd = crate::sys::pidfd_open(child.id()).unwrap();
                watch.add(pidfd.as_fd(), child.id()).unwrap();
                (child, pidfd)
            })
            .collect();
        let began = Instant::now();
        let last = children[299].0.id();
        let woken = watch.wait(long);
        assert_eq!(
            (woken.stop, woken.exited),
            (false, Some(vec![last])),
            "beyond the first 256, too"
        );
        assert!(!watch.is_stopped());
        drop(children.pop().map(|(mut child, _)| child.wait()));
        rustix::io::write(&write, b"x").unwrap();
        assert!(watch.is_stopped() && watch.wait(long).stop);
        assert!(began.elapsed() < long);
        for (child, _) in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let none = Watch::new(None).wait(Duration::from_millis(1));
        assert_eq!((none.stop, none.exited), (false, Some(Vec::new())));
    }
}
