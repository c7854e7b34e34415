//! A child process and its descendants: started stopped, so that it is watched from its first page on; output in files; killed as
//! a group, also when we are killed.
//!
//! ```text
//!   we ──► sh, stopped ──exec──► the program ──► its children      one process group, led by the program
//!    └───► minder: reads a pipe whose other end we hold; when that closes, it kills the group
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mega_cli::mosaic::{target, PRELOAD};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process_group, pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use super::support::{find, last_line, system, Session, LOOK_EVERY};
use super::{Own, ProgramError};
use crate::memory::{die_with_parent_after_exec, disable_thp_after_exec, pin_process_to_cpu};

/// Stops itself, then becomes the program.
const STAND_IN: &str = "kill -STOP $$; exec \"$@\"";

/// Waits until our end of the pipe is closed, then kills the group.
const MINDER: &str = "read -r line; kill -KILL \"-$1\"";

/// Output beyond this is discarded, except its end.
const MOST_OUTPUT_BYTES: u64 = 64 << 20;

/// The end of the output that is kept then.
const KEPT_OUTPUT_BYTES: u64 = 2 << 20;

/// The stand-in needs a moment to stop itself.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running program, with its group. Dropping it ends the group.
#[derive(Debug)]
pub(super) struct Task {
    name: String,
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
    minder: Child,
    /// What it writes to stdout.
    pub stdout: PathBuf,
    /// What it writes to stderr.
    pub stderr: PathBuf,
    ended: Option<ExitStatus>,
}

fn output(path: &Path) -> Result<File, ProgramError> {
    let doing = format!("create {}", path.display());
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(system(&doing))
}

/// As env(1) reads it.
fn assignment((name, value): &(OsString, OsString)) -> OsString {
    let mut text = name.clone();
    text.push("=");
    text.push(value);
    text
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain anything; the state follows its closing parenthesis.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with('T'))
}

impl Task {
    /// Starts `argv` in the scratch folder, in its own process group, on `cpu`, stopped: [`Self::go`] lets it run.
    /// Its output goes to `tag.stdout` and `tag.stderr` there. `prepare` may change how it is started. The environment applies to it alone, not
    /// to its launcher, which would load a preloaded library too.
    ///
    /// # Errors
    /// [`ProgramError::Start`] when there is no such program.
    pub fn start_stopped(
        session: &Session,
        tag: &str,
        argv: &[OsString],
        cpu: Option<usize>,
        own: &Own,
        prepare: fn(&mut Command) -> &mut Command,
    ) -> Result<Self, ProgramError> {
        let scratch = &session.launch.scratch;
        let name = argv
            .first()
            .map(|a| a.to_string_lossy().into_owned())
            .unwrap_or_default();
        let start = |why: String| ProgramError::Start {
            program: name.clone(),
            why,
        };
        let path = find(&name).ok_or_else(|| start("no such program in PATH".into()))?;
        let (stdout, stderr) = (
            scratch.join(format!("{tag}.stdout")),
            scratch.join(format!("{tag}.stderr")),
        );
        let mut command = Command::new("/bin/sh");
        command.args(["-c", STAND_IN, "sh"]);
        // A static program has no loader that would obey: `mega` begins the agent in it, and is not to have one itself.
        let is_static = own.has_agent && target::is_static(&path);
        let is_of_program = |(name, _): &&(OsString, OsString)| !(is_static && name == PRELOAD);
        if !own.environment.is_empty() {
            let environment = own.environment.iter().filter(is_of_program);
            command.arg("env").args(environment.map(assignment));
        }
        if is_static {
            command.arg(&session.launch.mega).args(target::BEGIN);
        }
        // Before what `prepare` adds: that may keep it from calling prctl.
        if own.base_pages_only {
            disable_thp_after_exec(&mut command);
        }
        command.arg(path).args(&argv[1..]);
        command.current_dir(scratch).process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(output(&stdout)?)
            .stderr(output(&stderr)?);
        let mut child = die_with_parent_after_exec(prepare(&mut command))
            .spawn()
            .map_err(|e| start(e.to_string()))?;
        let held = Self::hold(&child);
        let (group, pidfd, minder) = match held {
            Ok(held) => held,
            Err(source) => {
                let _ = child.kill();
                let _ = child.wait();
                let doing = format!("hold {name}");
                return Err(ProgramError::System { doing, source });
            }
        };
        let task = Self {
            name: name.clone(),
            child,
            group,
            pidfd,
            minder,
            stdout,
            stderr,
            ended: None,
        };
        let end = Instant::now() + START_TIMEOUT;
        while !is_stopped(task.pid()) {
            session.check()?;
            if task.finished(Duration::from_millis(1))? || Instant::now() > end {
                return Err(start(format!(
                    "/bin/sh did not stop itself: {}",
                    last_line(&task.stderr)
                )));
            }
        }
        if let Some(cpu) = cpu {
            let doing = format!("pin {name} to processor {cpu}");
            pin_process_to_cpu(task.pid(), cpu).map_err(system(&doing))?;
        }
        Ok(task)
    }

    fn hold(child: &Child) -> io::Result<(Pid, OwnedFd, Child)> {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(group, PidfdFlags::empty())?;
        // The write end is closed on exec in everything that we start, so only our own end closes it.
        let mut minder = Command::new("/bin/sh");
        minder.args(["-c", MINDER, "sh", &child.id().to_string()]);
        minder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its own group: keyboard interrupts are ours to handle.
        Ok((group, pidfd, minder.process_group(0).spawn()?))
    }

    /// Its process id, which is that of its group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Lets it run.
    ///
    /// # Errors
    /// When it has exited.
    pub fn go(&self) -> Result<(), ProgramError> {
        let doing = format!("resume {}", self.name);
        pidfd_send_signal(&self.pidfd, Signal::CONT).map_err(system(&doing))
    }

    /// Whether it has ended; waits at most `time` for that.
    ///
    /// # Errors
    /// When the status cannot be read.
    pub fn finished(&self, time: Duration) -> Result<bool, ProgramError> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let time = Timespec::try_from(time).ok();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut fds, time.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(system(&format!("wait for {}", self.name))(e)),
        }
    }

    /// Waits until it ends by itself, calls `look` about fifty times a second, then ends what is left of its group.
    ///
    /// # Errors
    /// When the time is over, when `look` fails, or when its exit status is not 0.
    pub fn wait(
        &mut self,
        session: &mut Session,
        mut look: impl FnMut(&Self, &mut Session) -> Result<(), ProgramError>,
    ) -> Result<(), ProgramError> {
        while !self.finished(LOOK_EVERY)? {
            session.check()?;
            look(self, session)?;
            self.bound_output();
        }
        let status = self.end()?;
        match status.success() {
            true => Ok(()),
            false => Err(self.ended(status)),
        }
    }

    /// The error of having ended with `status`.
    #[must_use]
    pub fn ended(&self, status: ExitStatus) -> ProgramError {
        ProgramError::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            said: last_line(&self.stderr),
        }
    }

    /// The error of its exit, if it has exited or does within a second; else `error`.
    pub fn why(&mut self, error: ProgramError) -> ProgramError {
        if matches!(error, ProgramError::Wrong { .. }) || !self.finished(Duration::from_secs(1)).unwrap_or(false) {
            return error;
        }
        match self.end() {
            Ok(status) => self.ended(status),
            Err(e) => e,
        }
    }

    fn bound_output(&self) {
        use rustix::fs::{fallocate, FallocateFlags};
        for path in [&self.stdout, &self.stderr] {
            let length = std::fs::metadata(path).map_or(0, |m| std::os::unix::fs::MetadataExt::blocks(&m) * 512);
            if length > MOST_OUTPUT_BYTES {
                let Ok(file) = OpenOptions::new().write(true).open(path) else {
                    continue;
                };
                let size = file.metadata().map_or(0, |m| m.len());
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // File systems without support keep all of it.
                let _ = fallocate(&file, hole, 0, size.saturating_sub(KEPT_OUTPUT_BYTES));
            }
        }
    }

    /// Asks it to end, with SIGTERM, waits for at most `time`, then ends its group.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn terminate(&mut self, time: Duration) -> Result<ExitStatus, ProgramError> {
        if self.ended.is_none() {
            let _ = pidfd_send_signal(&self.pidfd, Signal::TERM);
            let _ = self.finished(time)?;
        }
        self.end()
    }

    /// Ends its group and returns its status.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn end(&mut self) -> Result<ExitStatus, ProgramError> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        // Not reaped yet, so its PID still names this group. The minder is stopped before that changes.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.minder.kill();
        let _ = self.minder.wait();
        let status = self.child.wait().map_err(system(&format!("wait for {}", self.name)))?;
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
