//! A `mega record` beside a program on base pages: its memory as a trace, for the simulator.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{kill_process, Pid, Signal};

use crate::memory::die_with_parent_after_exec;
use crate::program::ProgramError;

/// A running recorder. Dropping it ends it in order; the program continues.
#[derive(Debug)]
pub struct Recorder {
    child: Child,
}

impl Recorder {
    /// Records process `pid` and its descendants to `trace`, a scan at each interval.
    ///
    /// # Errors
    /// It did not start.
    pub fn start(mega: &Path, pid: i32, trace: &Path, interval: Duration) -> Result<Self, ProgramError> {
        let mut command = Command::new(mega);
        command
            .args(["record", "--quiet", "--age", "--interval"])
            .arg(format!("{}ms", interval.as_millis()))
            .arg("--output")
            .arg(trace)
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = die_with_parent_after_exec(&mut command).spawn();
        let child = child.map_err(|e| ProgramError::Start {
            program: "mega record".to_string(),
            why: e.to_string(),
        })?;
        Ok(Self { child })
    }
}

impl Recorder {
    /// Ends it, if it has not ended with the program, and says whether it recorded. Why not is on standard error.
    ///
    /// # Errors
    /// It failed.
    pub fn finish(mut self) -> Result<(), ProgramError> {
        let why = match self.stop() {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => format!("it ended with {status}"),
            Err(error) => error.to_string(),
        };
        Err(ProgramError::Start {
            program: "mega record".to_string(),
            why,
        })
    }

    fn stop(&mut self) -> std::io::Result<ExitStatus> {
        if let (None, Some(pid)) = (self.child.try_wait()?, Pid::from_raw(self.child.id() as i32)) {
            let _ = kill_process(pid, Signal::INT);
        }
        self.child.wait()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
