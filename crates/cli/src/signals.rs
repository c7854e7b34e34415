//! Being asked to stop: by signals, and by `mega off`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use mega_linux::sys::is_ignored;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What `mega off` sends: stop managing, the managed programs go on. A real-time signal, which no program could mean for another one.
#[must_use]
pub fn off_signal() -> Signal {
    mega_linux::sys::first_realtime_signal()
}

/// Has a signal write to a pipe.
///
/// # Errors
/// The signal cannot be caught.
pub fn stop_on(signal: i32, write: &OwnedFd) -> Result<()> {
    let write = write.try_clone().context("cannot watch signals")?;
    signal_hook::low_level::pipe::register(signal, write).context("cannot watch signals")?;
    Ok(())
}

/// A pipe that becomes readable when mega is asked to end (SIGTERM, SIGINT, SIGHUP, or [`off_signal`]).
///
/// # Errors
/// Signals cannot be caught.
pub fn stop_on_signals() -> Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    stop_on(off_signal().as_raw(), &write)?;
    // `nohup` ignores SIGHUP, a shell without job control SIGINT of what it runs in the background: that stays so.
    let heeded = [SIGTERM, SIGINT, SIGHUP]
        .into_iter()
        .filter(|signal| !is_ignored(*signal));
    for signal in heeded {
        // A second Ctrl-C ends the program at once; `mega off` then puts back what is left. Others come twice by themselves: when a terminal
        // closes, its shell and the kernel both send SIGHUP.
        if signal == SIGINT {
            let second = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&second))
                .context("cannot watch signals")?;
            signal_hook::flag::register(signal, second).context("cannot watch signals")?;
        }
        stop_on(signal, &write)?;
    }
    Ok(read)
}

/// Whether mega has been asked to stop (see [`stop_on_signals`]); waits for that at most `wait`.
#[must_use]
pub fn stopped(stop: &OwnedFd, wait: Duration) -> bool {
    let wait = Timespec::try_from(wait).unwrap_or_default();
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    // A signal interrupts the wait and has made it readable by then: the next call sees it.
    poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0)
}
