//! Runs of a command as a whole: on base pages, and on huge pages.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_cli::mosaic::target;
use mega_linux::knobs::thp::{self, Mode};
use mega_linux::proc::ProcRoot;
use mega_linux::process::{family::Family, Process};
use mega_linux::scan::Scanner;
use mega_linux::sys::{self, EndedChildren, ThpDisable};
use mega_range::intent::Intent;
use rustix::process::{Signal, WaitOptions};
use serde::Serialize;

use super::watch::{watch, Seen};
use crate::agent::start::{self, Environment};

/// What maps huge pages in the second kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The kernel at every fault, as `enabled` = always has it.
    Stock,
    /// Our agent, inside the program.
    Agent,
}

impl By {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock THP",
            Self::Agent => "the agent",
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// From start to end.
    pub elapsed_s: f64,
    /// Processor time.
    pub cpu_s: f64,
    /// The part of it that the kernel took.
    pub system_s: f64,
    /// Page faults.
    pub faults: u64,
    /// The most that was resident at a time.
    pub peak_bytes: u64,
    /// Exit status; none: a signal ended it.
    pub status: Option<i32>,
}

/// The runs of both kinds.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Who mapped huge pages.
    pub by: By,
    /// On base pages.
    pub base: Vec<Run>,
    /// On huge pages.
    pub huge: Vec<Run>,
}

/// How a command can be run on huge pages, or why it cannot.
pub fn huge_pages(command: &[OsString]) -> Result<(By, Environment)> {
    let mode = thp::read(&ProcRoot::default())?.map(|thp| thp.huge_page_mode());
    match mode {
        None => anyhow::bail!("this kernel has no transparent huge pages"),
        Some(Mode::Always) => Ok((By::Stock, start::without())),
        Some(_) => {
            let program = command.first().context("no command")?;
            target::check(program.as_ref())?;
            Ok((
                By::Agent,
                start::with(&start::library_for(None)?, Some(Intent::Throughput), None, None),
            ))
        }
    }
}

/// How to run a command.
pub struct How<'a> {
    /// The command and its arguments.
    pub command: &'a [OsString],
    /// Without any huge page.
    pub on_base_pages: bool,
    /// With these variables.
    pub environment: Environment,
    /// With our standard input.
    pub with_input: bool,
    /// Ended after this time.
    pub most: Option<Duration>,
}

/// Runs it, and watches it: its processes, with `scanner`; without, only what is resident.
///
/// # Errors
/// It cannot be started.
pub fn run(how: How<'_>, scanner: Option<&mut dyn Scanner>, stop: &OwnedFd) -> Result<(Run, Vec<Seen>)> {
    let (name, words) = how.command.split_first().context("no command")?;
    sys::become_subreaper().context("cannot become the reaper of the command's orphans")?;
    let mut command = Command::new(name);
    command.args(words).envs(how.environment);
    // Standard output is the report's.
    command.stdout(
        std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .context("standard error")?,
    );
    if !how.with_input {
        command.stdin(Stdio::null());
    }
    if how.on_base_pages {
        sys::disable_thp_before_exec(&mut command, ThpDisable::Fully);
    }
    let before = sys::ended_children();
    let began = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot run '{}'", name.to_string_lossy()))?;
    let root = ProcRoot::default();
    let main = Process::open(&root, child.id())?;
    let mut family = Family::below(std::process::id());
    // The watch looks every now and then; this one knows when the command ended.
    let pidfd = main.shared_pidfd();
    let clock = std::thread::spawn(move || {
        while let Ok(false) = sys::pidfd_ended(pidfd.as_fd(), Duration::from_secs(60)) {}
        began.elapsed()
    });
    let is_over = |elapsed: Duration| !main.is_alive() || how.most.is_some_and(|most| elapsed >= most);
    let (seen, peak_bytes) = watch(&root, scanner, &mut family, stop, is_over);
    let status = end(&main, child.id());
    let elapsed = clock.join().unwrap_or_else(|_| began.elapsed());
    let took = sys::ended_children().since(before);
    Ok((result(elapsed, took, peak_bytes, status), seen))
}

fn result(elapsed: Duration, took: EndedChildren, peak_bytes: u64, status: Option<i32>) -> Run {
    Run {
        elapsed_s: elapsed.as_secs_f64(),
        cpu_s: took.cpu.as_secs_f64(),
        system_s: took.system.as_secs_f64(),
        faults: took.minor_faults,
        peak_bytes,
        status,
    }
}

/// Ends the command where it still runs, and waits for all that came of it. Its exit status, or none.
fn end(main: &Process, pid: u32) -> Option<i32> {
    if main.is_alive() {
        let _ = sys::pidfd_send_signal(main.pidfd(), Signal::TERM);
        if !main.wait_ended(Duration::from_secs(10)) {
            let _ = sys::pidfd_send_signal(main.pidfd(), Signal::KILL);
        }
    }
    let mut status = None;
    // Daemons that it left behind go on: they are not waited for.
    while let Ok(Some((ended, how))) = rustix::process::wait(WaitOptions::empty()) {
        if ended.as_raw_nonzero().get() == pid as i32 {
            status = how.exit_status();
            break;
        }
    }
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    status
}
