//! Child processes of the storm that are killed by SIGKILL: forked copies and, where the storm knows its own command line, other programs.

use crate::memory::content;
use crate::memory::{die_with_parent_after_exec, fork_child, Child, Mapping};
use crate::timing::clock::now_ns;
use std::ffi::OsString;
use std::io;
use std::process::{Command, Stdio};

/// How to run this program with another workload: its command line up to `storm`.
#[derive(Debug, Clone)]
pub struct Caller(Vec<OsString>);

impl Caller {
    /// From this process's command line; `None` if it does not contain `storm`.
    pub fn of_this_process() -> Option<Self> {
        let words: Vec<OsString> = std::env::args_os().collect();
        let at = words.iter().position(|w| w == "storm").filter(|at| *at > 0)?;
        Some(Self(words[1..at].to_vec()))
    }
}

#[derive(Debug)]
enum Process {
    /// Held for its drop, which kills it.
    Forked(#[allow(dead_code)] Child),
    Executed(std::process::Child),
}

/// A process to be killed.
#[derive(Debug)]
pub struct Victim {
    process: Process,
    kill_at_ns: u64,
}

impl Victim {
    /// A copy of this process that maps, faults and writes memory of its own until it is killed.
    pub fn fork(live_ns: u64) -> io::Result<Self> {
        let child = fork_child(|| {
            for seed in 1.. {
                let Ok(memory) = Mapping::new(3 << 20) else { return 1 };
                content::fill(memory.words(), seed);
                if content::verify(memory.words(), seed).is_err() {
                    return 3;
                }
            }
            0
        })?;
        Ok(Self {
            process: Process::Forked(child),
            kill_at_ns: now_ns() + live_ns,
        })
    }

    /// Another process of this program.
    pub fn execute(caller: &Caller, live_ns: u64) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(&caller.0).args(["dense", "--mib", "4", "--hot-ms", "1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = die_with_parent_after_exec(&mut command).spawn()?;
        Ok(Self {
            process: Process::Executed(child),
            kill_at_ns: now_ns() + live_ns,
        })
    }

    /// Whether it is due to be killed.
    pub fn is_due(&self) -> bool {
        now_ns() >= self.kill_at_ns
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // A forked child is killed and waited for by its own drop.
        if let Process::Executed(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
