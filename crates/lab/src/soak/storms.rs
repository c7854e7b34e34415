//! Storms beside it: programs that make every memory call and check their own memory, one after another; each fourth is killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::memory::die_with_parent_after_exec;

/// How long one is, and the pause after it.
const STORM: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(10);
/// Each so manyth is killed in its middle.
const KILLED: u64 = 4;

#[derive(Default)]
struct Shared {
    ended: AtomicU64,
    killed: AtomicU64,
    wrong: Mutex<Option<String>>,
    stop: AtomicBool,
}

/// The thread that starts them; ends, and kills what it started, when this is dropped.
pub(super) struct Storms {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Storms in some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub ended: u64,
    pub killed: u64,
}

impl Storms {
    pub fn start(lab: PathBuf, environment: Vec<(OsString, OsString)>, seed: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for n in 1.. {
                let mut command = Command::new(&lab);
                command.args(["workload", "storm", "--threads", "2", "--memory-mib", "256"]);
                command.args(["--seconds", &STORM.as_secs().to_string()]);
                command.args(["--seed", &(seed + n).to_string()]);
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                // What it prints where its memory is wrong is for whoever reads this.
                command.stdin(Stdio::null()).stdout(Stdio::null());
                let time = if n % KILLED == 0 { STORM / 2 } else { STORM * 6 };
                let wrong = match die_with_parent_after_exec(&mut command).spawn() {
                    Ok(child) => end(child, time, &told),
                    Err(error) => Some(format!("cannot start a storm: {error}")),
                };
                if let Some(wrong) = wrong {
                    *told.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(wrong);
                    return;
                }
                if pause(PAUSE, &told) {
                    return;
                }
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Storms since this was asked last.
    pub fn since_last(&self) -> Count {
        Count {
            ended: self.shared.ended.swap(0, Relaxed),
            killed: self.shared.killed.swap(0, Relaxed),
        }
    }

    /// How one ended, if not well.
    pub fn wrong(&self) -> Option<String> {
        let wrong = self.shared.wrong.lock();
        wrong.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Storms {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits; whether it is over meanwhile.
fn pause(time: Duration, shared: &Shared) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !shared.stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    shared.stop.load(Relaxed)
}

/// Waits for one, and kills it after this time; what was wrong with it.
fn end(mut child: Child, time: Duration, shared: &Shared) -> Option<String> {
    let end = Instant::now() + time;
    let status: ExitStatus = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() > end || shared.stop.load(Relaxed) => {
                let _ = child.kill();
                let _ = child.wait();
                shared.killed.fetch_add(1, Relaxed);
                return None;
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Some(format!("cannot wait for a storm: {error}")),
        }
    };
    shared.ended.fetch_add(1, Relaxed);
    (!status.success()).then(|| format!("a storm ended with {status}: its memory was wrong, or it could not go on"))
}
