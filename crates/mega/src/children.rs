//! The command that `mega run` starts: started, reaped with all that came of it, and told what mega is told.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::SignalsInfo;

use crate::exit::Failure;

/// A command under way.
pub struct Running {
    /// Becomes readable when the last process that came of it has ended, or `mega off` wants us to let go.
    pub stop: OwnedFd,
    status: Arc<Mutex<Option<WaitStatus>>>,
    reaper: std::thread::JoinHandle<()>,
}

/// Why a command could not be started, with the status that says so.
pub struct StartError {
    /// 125 to 127, or 128 and a signal that came first.
    pub status: u8,
    /// What to say.
    pub error: anyhow::Error,
}

/// Signals, caught from here on: none may end us while we hold something, and none that was meant for the command may be lost.
pub struct Watched {
    signals: SignalsInfo<WithOrigin>,
    stop: OwnedFd,
    write: OwnedFd,
}

/// Begins to catch signals.
pub fn watch_signals() -> Result<Watched> {
    let signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2])
        .context("cannot watch signals")?;
    let (stop, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    stop_on(off_signal().as_raw(), &write)?;
    Ok(Watched { signals, stop, write })
}

/// Starts the command. What it leaves behind when it ends (daemons) becomes our child, so that it is found and reaped.
pub fn start(command: &[OsString], watched: Watched) -> Result<Running, StartError> {
    let Watched {
        mut signals,
        stop,
        write,
    } = watched;
    let (name, args) = command
        .split_first()
        .map_or((OsString::new(), &[][..]), |(n, a)| (n.clone(), a));
    let failed = |status, error| StartError { status, error };
    mega_linux::sys::become_subreaper()
        .context("cannot become the reaper of the command's orphans")
        .map_err(|e| failed(Failure::RUN_FAILED, e))?;
    if let Some(origin) = signals.pending().next() {
        let error = anyhow::anyhow!("signal {} came before the command was started", origin.signal);
        return Err(failed((128 + origin.signal) as u8, error));
    }
    let child = Command::new(&name).args(args).spawn().map_err(|error| {
        let status = if error.kind() == std::io::ErrorKind::NotFound {
            Failure::NOT_FOUND
        } else {
            Failure::NOT_EXECUTABLE
        };
        let error = anyhow::Error::new(error).context(format!("cannot run '{}'", name.to_string_lossy()));
        failed(status, error)
    })?;
    let pid = child.id() as i32;
    forward_signals(signals, pid);
    let status = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&status);
    let reaper = std::thread::spawn(move || {
        reap(pid, &seen);
        // Closing our end would not do: the signal's handler has one too.
        let _ = rustix::io::write(&write, b".");
    });
    Ok(Running { stop, status, reaper })
}

/// Reaps until there is nothing left to reap.
fn reap(main: i32, status: &Mutex<Option<WaitStatus>>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid.as_raw_nonzero().get() == main => {
                *status.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(ended);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Passes on to the command the signals that were sent to mega. Those of the terminal's keys reach it without us.
fn forward_signals(mut signals: SignalsInfo<WithOrigin>, pid: i32) {
    std::thread::spawn(move || {
        for origin in signals.forever() {
            let sent_by_a_process = origin.process.is_some();
            if let (true, Some(pid), Some(signal)) = (
                sent_by_a_process,
                Pid::from_raw(pid),
                Signal::from_named_raw(origin.signal),
            ) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    });
}

impl Running {
    /// Waits until everything has ended; gives the exit status to end with: the command's own, or 128 and its signal.
    pub fn finish(self) -> u8 {
        let _ = self.reaper.join();
        let status = *self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match status {
            Some(status) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => code as u8,
                (None, Some(signal)) => (128 + signal) as u8,
                (None, None) => Failure::RUN_FAILED,
            },
            None => Failure::RUN_FAILED,
        }
    }
}

/// What `mega off` sends: stop managing, whatever you manage goes on. No signal that a program could mean for another one.
pub fn off_signal() -> Signal {
    mega_linux::sys::first_realtime_signal()
}

fn stop_on(signal: i32, write: &OwnedFd) -> Result<()> {
    let write = write.try_clone().context("cannot watch signals")?;
    signal_hook::low_level::pipe::register(signal, write).context("cannot watch signals")?;
    Ok(())
}

/// A pipe that becomes readable when mega is asked to end (SIGTERM, SIGINT, SIGHUP).
pub fn stop_on_signals() -> Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    stop_on(off_signal().as_raw(), &write)?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        stop_on(signal, &write)?;
        // A second time ends us at once: whoever insists is obeyed, and `mega off` puts back what is left.
        let second = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&second)).context("cannot watch signals")?;
        signal_hook::flag::register(signal, second).context("cannot watch signals")?;
    }
    Ok(read)
}
