//! The command that `mega run` starts: started, reaped with all that came of it, and told what mega is told.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use mega_linux::proc::ProcRoot;
use mega_linux::process::{family::Family, Process};
use mega_linux::reservation;
use mega_linux::sys::{self, ThpDisable, User};
use rustix::fd::AsFd;
use rustix::process::{Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::SignalsInfo;

use crate::agent::start::Environment;
use mega_cli::exit::Failure;
use mega_cli::signals::{off_signal, stop_on};

/// A command under way.
pub struct Running {
    /// Becomes readable when its last descendant has ended, or `mega off` tells us to stop.
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

/// Begins to catch signals. Those that are ignored stay so, for the command too: `nohup` keeps its meaning.
pub fn watch_signals() -> Result<Watched> {
    let all = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2].into_iter();
    let signals = SignalsInfo::<WithOrigin>::new(all.filter(|signal| !sys::is_ignored(*signal)))
        .context("cannot watch signals")?;
    let (stop, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    stop_on(off_signal().as_raw(), &write)?;
    Ok(Watched { signals, stop, write })
}

/// In which circumstances the command runs, where they are not mega's own.
#[derive(Debug, Default)]
pub struct Circumstances {
    /// As this user.
    pub user: Option<User>,
    /// With this soft limit of open files.
    pub open_files: Option<u64>,
    /// With faults that map base pages where nobody asked for huge ones, whatever `enabled` says.
    pub small_faults: bool,
    /// Asking for reservations with this threshold (`crate::reserve`).
    pub reserve: Option<u32>,
    /// With these variables.
    pub environment: Environment,
}

/// Starts the command. What it leaves behind when it ends (daemons) becomes our child, so that it is found and reaped.
pub fn start(command: &[OsString], watched: Watched, within: Circumstances) -> Result<Running, StartError> {
    let Watched {
        mut signals,
        stop,
        write,
    } = watched;
    let (name, args) = command
        .split_first()
        .map_or((OsString::new(), &[][..]), |(n, a)| (n.clone(), a));
    let failed = |status, error| StartError { status, error };
    sys::become_subreaper()
        .context("cannot become the reaper of the command's orphans")
        .map_err(|e| failed(Failure::RUN_FAILED, e))?;
    if let Some(origin) = signals.pending().next() {
        let error = anyhow::anyhow!("signal {} came before the command was started", origin.signal);
        return Err(failed((128 + origin.signal) as u8, error));
    }
    let mut to_start = Command::new(&name);
    to_start.args(args).envs(within.environment);
    if within.user.is_some() || within.open_files.is_some() {
        sys::before_exec(&mut to_start, within.user, within.open_files);
    }
    if within.small_faults {
        sys::disable_thp_before_exec(&mut to_start, ThpDisable::ExceptAdvised);
    }
    if let Some(threshold) = within.reserve {
        reservation::ask_before_exec(&mut to_start, threshold);
    }
    let child = to_start.spawn().map_err(|error| not_started(&name, error))?;
    let pid = child.id() as i32;
    // Nobody has reaped it yet, so the number is its own.
    let main = sys::pidfd_open(child.id())
        .context("cannot hold the command")
        .map_err(|e| failed(Failure::RUN_FAILED, e))?;
    forward_signals(signals, main);
    let status = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&status);
    let reaper = std::thread::spawn(move || {
        reap(pid, &seen);
        // Closing our end would not do: the signal's handler has one too.
        let _ = rustix::io::write(&write, b".");
    });
    Ok(Running { stop, status, reaper })
}

/// Why a command was not executed.
pub fn not_started(name: &OsStr, error: std::io::Error) -> StartError {
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => Failure::NOT_FOUND,
        _ => Failure::NOT_EXECUTABLE,
    };
    let error = anyhow::Error::new(error).context(format!("cannot run '{}'", name.to_string_lossy()));
    StartError { status, error }
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

/// Passes on to the command the signals that were sent to mega, and once it has ended to all that it left behind. Those of the terminal's
/// keys reach them without us. Never by number: that may be another process's by now.
fn forward_signals(mut signals: SignalsInfo<WithOrigin>, main: OwnedFd) {
    std::thread::spawn(move || {
        for origin in signals.forever() {
            let (Some(_), Some(signal)) = (origin.process, Signal::from_named_raw(origin.signal)) else {
                continue;
            };
            match sys::pidfd_ended(main.as_fd(), Duration::ZERO) {
                Ok(true) => signal_all_below(signal),
                _ => drop(sys::pidfd_send_signal(main.as_fd(), signal)),
            }
        }
    });
}

/// Signals every process below us: as their subreaper we have all that came of the command.
fn signal_all_below(signal: Signal) {
    let root = ProcRoot::default();
    let mut below = Family::below(std::process::id());
    if below.look(&root).is_err() {
        return;
    }
    for member in below.everyone() {
        // Opened, and the same as the one that was found below us.
        match Process::open(&root, member.pid) {
            Ok(process) if process.start_ticks() == member.start_ticks => {
                let _ = sys::pidfd_send_signal(process.pidfd(), signal);
            }
            _ => {}
        }
    }
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
