//! All processes of one run: events, deadline, exit.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{Launch, ProgramError, Watch};
use super::instance::{Instance, Said, LOOK_EVERY};
use super::Builtin;

/// The processes of one run.
pub(super) struct Processes<'a> {
    name: &'a str,
    launch: &'a Launch,
    limit_s: u64,
    instances: Vec<Instance>,
    lines: Receiver<Said>,
}

/// Exit status of a workload that found corrupt memory.
const CORRUPT: i32 = 3;

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

impl<'a> Processes<'a> {
    /// Starts all processes, which wait for `go`.
    pub fn start(program: &'a Builtin, launch: &'a Launch) -> Result<Self, ProgramError> {
        let (said, lines) = channel();
        let start = |i| Instance::start(program, i, launch, said.clone());
        let left = launch.deadline.saturating_duration_since(Instant::now());
        Ok(Self {
            name: &program.name,
            launch,
            limit_s: left.as_secs_f64().ceil() as u64,
            instances: (0..program.instances).map(start).collect::<Result<_, _>>()?,
            lines,
        })
    }

    /// Announces each process to the watcher before any of them begins.
    pub fn wait_for_births(&mut self, watch: &mut dyn Watch) -> Result<(), ProgramError> {
        for i in 0..self.instances.len() {
            let born = self.wait_for("born", i, watch)?;
            let pid = born["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            watch.process(pid.ok_or_else(|| self.nonsense(&born.to_string()))?)?;
        }
        Ok(())
    }

    /// The results of all.
    pub fn results(&self) -> impl Iterator<Item = &Value> {
        self.instances.iter().filter_map(|i| i.events.get("result"))
    }

    fn nonsense(&self, line: &str) -> ProgramError {
        let start: String = line.chars().take(200).collect();
        ProgramError::NoFigure {
            program: self.name.to_string(),
            why: format!("unexpected output {start:?} instead of an event"),
        }
    }

    pub fn say_to_all(&mut self, command: &str) -> Result<(), ProgramError> {
        self.instances.iter_mut().for_each(|instance| instance.say(command));
        self.launch.check(self.name, self.limit_s)
    }

    /// Handles the next output within [`LOOK_EVERY`], and checks the deadline.
    fn step(&mut self, watch: &mut dyn Watch) -> Result<(), ProgramError> {
        self.launch.check(self.name, self.limit_s)?;
        let (i, line) = match self.lines.recv_timeout(LOOK_EVERY) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                // All outputs have ended; wait for the processes.
                std::thread::sleep(Duration::from_millis(1));
                return Ok(());
            }
        };
        let Some(line) = line else {
            self.instances[i].silent = true;
            return Ok(());
        };
        let event = serde_json::from_str::<Value>(&line).map_err(|_| self.nonsense(&line))?;
        let name = event["event"].as_str().ok_or_else(|| self.nonsense(&line))?.to_string();
        match name.as_str() {
            "report" => {
                if let Some(rate) = event["ops_per_s"].as_f64() {
                    self.instances[i].ops_per_s = rate;
                    watch.figure("ops_per_s", self.instances.iter().map(|i| i.ops_per_s).sum());
                }
            }
            "phase" if i == 0 => watch.phase(event["name"].as_str().unwrap_or_default()),
            _ => {}
        }
        self.instances[i].events.insert(name, event);
        Ok(())
    }

    /// Waits for an event of process `i`.
    fn wait_for(&mut self, name: &str, i: usize, watch: &mut dyn Watch) -> Result<Value, ProgramError> {
        loop {
            if let Some(event) = self.instances[i].events.get(name) {
                return Ok(event.clone());
            }
            self.step(watch)?;
            self.look_for_ends(name)?;
        }
    }

    pub fn wait_for_all(&mut self, name: &str, watch: &mut dyn Watch) -> Result<(), ProgramError> {
        (0..self.instances.len()).try_for_each(|i| self.wait_for(name, i, watch).map(|_| ()))
    }

    /// An error when a process has exited without the event `expected`.
    fn look_for_ends(&mut self, expected: &str) -> Result<(), ProgramError> {
        for i in 0..self.instances.len() {
            let instance = &mut self.instances[i];
            // Its last lines may arrive after its exit.
            if instance.silent && !instance.events.contains_key(expected) {
                if let Some(status) = instance.status()? {
                    self.judge(i, status)?;
                    return Err(ProgramError::NoFigure {
                        program: self.name.to_string(),
                        why: format!("it ended without its {expected} event"),
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits until all have exited successfully.
    pub fn wait_for_ends(&mut self, watch: &mut dyn Watch) -> Result<(), ProgramError> {
        for i in 0..self.instances.len() {
            let status = loop {
                if let Some(status) = self.instances[i].status()? {
                    break status;
                }
                self.step(watch)?;
            };
            self.judge(i, status)?;
        }
        Ok(())
    }

    /// What an exit status means.
    fn judge(&self, i: usize, status: ExitStatus) -> Result<(), ProgramError> {
        if status.success() {
            return Ok(());
        }
        let said = self.instances[i].last_words();
        let program = self.name.to_string();
        Err(match status.code() {
            Some(CORRUPT) => ProgramError::Wrong { program, why: said },
            _ => ProgramError::Ended {
                program,
                status: in_words(status),
                said,
            },
        })
    }
}
