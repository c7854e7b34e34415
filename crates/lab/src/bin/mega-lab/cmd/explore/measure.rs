//! One run of the program under one layout: how long it took, and what its processes say that they had.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{bail, Context, Result};
use memomania_layout::layout::Layout;
use memomania_layout::settings::Partial;
use memomania_layout::wire::{encode, VARIABLE};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{kill_process, pidfd_open, Pid, PidfdFlags, Signal};
use serde_json::Value;

use mega_cli::mosaic::report::{number, Lines};
use mega_cli::mosaic::{with_library, PRELOAD};

/// What is the same for all runs.
pub struct Runner<'a> {
    pub command: &'a [std::ffi::OsString],
    pub library: PathBuf,
    /// All but layouts and report.
    pub settings: Partial,
    /// The program's output is shown.
    pub shows_output: bool,
    /// Becomes readable when mega is asked to end.
    pub stop: OwnedFd,
}

/// What a run showed.
pub struct Run {
    /// From start to end, by the wall.
    pub seconds: f64,
    /// A line of each process that ended in the usual way.
    pub processes: Vec<Value>,
}

impl Run {
    /// Bytes in use at most of heap and anonymous mappings, in the process that had most of each.
    pub fn in_use(&self) -> [usize; 2] {
        let peak = |pool: &str| {
            let of = |process: &Value| -> u64 {
                let pages = process["pools"][pool]["pages"].as_object();
                pages
                    .into_iter()
                    .flatten()
                    .map(|(_, kind)| number(&kind["peak_bytes"]))
                    .sum()
            };
            self.processes.iter().map(of).max().unwrap_or(0) as usize
        };
        // The program break has the heap's layout.
        [peak("heap").max(peak("brk")), peak("anon")]
    }

    /// Allocations for which no large page was available.
    fn short(&self) -> u64 {
        let of = |process: &Value| number(&process["short"]["2M"]) + number(&process["short"]["1G"]);
        self.processes.iter().map(of).sum()
    }
}

impl Runner<'_> {
    /// Runs the program. Fails if it fails, if pages were short, or if mega is asked to end.
    pub fn run(&self, [heap, anon]: [Layout; 2]) -> Result<Run> {
        let lines = Lines::open(None)?;
        let settings = Partial {
            heap: Some(heap),
            anon: Some(anon),
            report: Some(lines.path()),
            ..self.settings.clone()
        };
        let (name, args) = self.command.split_first().context("there is no command")?;
        let output = || {
            if self.shows_output {
                Stdio::inherit()
            } else {
                Stdio::null()
            }
        };
        let mut command = Command::new(name);
        command
            .args(args)
            .env(VARIABLE, encode(&settings.settings()))
            .env(PRELOAD, with_library(&self.library, std::env::var_os(PRELOAD)))
            .stdin(Stdio::null())
            .stdout(output())
            .stderr(output());
        let begin = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run '{}'", name.to_string_lossy()))?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the program")?;
        let mut all = [
            PollFd::new(&ended, PollFlags::IN),
            PollFd::new(&self.stop, PollFlags::IN),
        ];
        while let Err(rustix::io::Errno::INTR) = poll(&mut all, None) {}
        let is_stopped = !all[1].revents().is_empty();
        if is_stopped {
            let _ = kill_process(pid, Signal::TERM);
        }
        let status = child.wait().context("cannot wait for the program")?;
        let seconds = begin.elapsed().as_secs_f64();
        if is_stopped {
            bail!("asked to end before all was measured");
        }
        let layouts = format!("--heap {heap} --anon {anon}");
        if !status.success() {
            bail!("the program failed ({status}) under {layouts}; run it by itself: mega mosaic {layouts} -- ...");
        }
        let run = Run {
            seconds,
            processes: lines.read()?,
        };
        match run.short() {
            0 => Ok(run),
            short => {
                bail!("no large page was available {short} times under {layouts}; reserve more, as in --reserve=2M=4G")
            }
        }
    }
}
