//! One process of a workload, with its events so far.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{Launch, ProgramError};
use super::Builtin;
use crate::memory::{die_with_parent_after_exec, disable_thp_after_exec};

/// Between two checks of the deadline and of whether the user wants to stop.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A line on standard output of a process, or the end of its output.
pub(super) type Said = (usize, Option<String>);

/// One process. It is killed when this is dropped before its end.
#[derive(Debug)]
pub(super) struct Instance {
    child: Child,
    input: ChildStdin,
    last_words: Arc<Mutex<String>>,
    /// Reads them until its stderr ends.
    listener: JoinHandle<()>,
    /// The last event of each name.
    pub events: BTreeMap<String, Value>,
    /// The rate that it reported last.
    pub ops_per_s: f64,
    /// Its output has ended.
    pub silent: bool,
    ended: Option<ExitStatus>,
}

/// Maximum length of an event.
const LINE_BYTES: u64 = 1 << 20;

fn read_lines(output: impl Read, mut each: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {
                if !each(String::from_utf8_lossy(&line).trim_end().to_string()) {
                    return;
                }
            }
            _ => return,
        }
    }
}

impl Instance {
    pub fn start(program: &Builtin, number: usize, launch: &Launch, said: Sender<Said>) -> Result<Self, ProgramError> {
        let own = [launch.lab.clone().into(), "workload".into()];
        let words = if program.command.is_empty() {
            &own[..]
        } else {
            &program.command
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(&program.workload).arg("--wait-first");
        let has = |option: &str| {
            program
                .args
                .iter()
                .any(|a| a == option || a.starts_with(&format!("{option}=")))
        };
        if !has("--seed") {
            command.arg(format!("--seed={}", launch.seed.wrapping_add(number as u64)));
        }
        if let Some(cpu) = launch.program_cpu.filter(|_| !has("--pin")) {
            command.arg(format!("--pin={cpu}"));
        }
        command.args(&program.args);
        // A command of the user's own is meant as it was typed, relative paths too.
        if program.command.is_empty() {
            command.current_dir(&launch.scratch);
        }
        command.envs(launch.own.environment.iter().map(|(name, value)| (name, value)));
        if launch.own.base_pages_only {
            disable_thp_after_exec(&mut command);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |why: &str| ProgramError::Start {
            program: program.name.clone(),
            why: format!("{}: {why}", words[0].to_string_lossy()),
        };
        let mut child = die_with_parent_after_exec(&mut command)
            .spawn()
            .map_err(|e| failed(&e.to_string()))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("it has no pipes"));
        };
        std::thread::spawn(move || {
            read_lines(output, |line| said.send((number, Some(line))).is_ok());
            let _ = said.send((number, None));
        });
        let last_words = Arc::new(Mutex::new(String::new()));
        let last = Arc::clone(&last_words);
        let listener = std::thread::spawn(move || {
            read_lines(errors, |line| {
                if !line.is_empty() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
                }
                true
            });
        });
        Ok(Self {
            child,
            input,
            last_words,
            listener,
            events: BTreeMap::new(),
            ops_per_s: 0.0,
            silent: false,
            ended: None,
        })
    }

    /// Sends it a command. A process that has exited is detected by its status.
    pub fn say(&mut self, command: &str) {
        let _ = writeln!(self.input, "{command}").and_then(|()| self.input.flush());
    }

    /// The last line on its stderr; may be empty. After its exit: waits a moment for output in flight.
    pub fn last_words(&self) -> String {
        let end = Instant::now() + LOOK_EVERY;
        while !self.listener.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its exit status, once it has one.
    pub fn status(&mut self) -> Result<Option<ExitStatus>, ProgramError> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().map_err(|source| ProgramError::System {
                doing: format!("wait for process {}", self.child.id()),
                source,
            })?;
        }
        Ok(self.ended)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
