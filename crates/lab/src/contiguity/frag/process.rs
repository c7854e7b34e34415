//! The condition "fragmented" of an experiment: `mega frag` as a child process, whose memory is accounted separately and
//! freed by ending it.

use super::outcome::{FragError, FragOptions, Made, Verified};
use crate::contiguity::headroom::Amount;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::thread::JoinHandle;

/// A child that keeps memory fragmented. Dropping this ends it; it also ends when we do.
#[derive(Debug)]
pub struct Fragmenter {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Option<JoinHandle<String>>,
    made: Made,
}

impl Fragmenter {
    /// Starts `mega frag` (`mega` is the program to run) and waits until memory is fragmented.
    ///
    /// # Errors
    /// [`FragError::Child`] with what the child said.
    pub fn start(mega: &Path, options: &FragOptions) -> Result<Self, FragError> {
        let child = Command::new(mega)
            .args(arguments(options))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| FragError::Child(format!("cannot run {}: {e}", mega.display())))?;
        let lines = lines_of(child.stdout.take());
        let said = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = stderr.read_to_string(&mut text);
                text
            })
        });
        let stdin = child.stdin.take();
        let mut running = Running {
            child,
            stdin,
            lines,
            said,
        };
        let made = running.wait_for("ready")?;
        Ok(running.with(made))
    }

    /// Its result, with free memory before and after.
    #[must_use]
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// The child's PID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it verify all kept pages.
    ///
    /// # Errors
    /// [`FragError::Child`] with what is wrong.
    pub fn verify(&mut self) -> Result<Verified, FragError> {
        if let Some(stdin) = &mut self.stdin {
            // The end of its output tells that a child has ended.
            let _ = writeln!(stdin, "check");
        }
        wait_for(&self.lines, "checked").map_err(|why| self.failed(&why))
    }

    /// Has it verify all kept pages once more, free them and exit.
    ///
    /// # Errors
    /// [`FragError::Child`] with what is wrong; it has exited nevertheless.
    pub fn release(mut self) -> Result<Verified, FragError> {
        drop(self.stdin.take());
        let verified = wait_for(&self.lines, "freed").map_err(|why| self.failed(&why))?;
        let status = self.child.wait();
        match status {
            Ok(status) if status.success() => Ok(verified),
            Ok(status) => Err(self.failed(&status.to_string())),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    fn failed(&mut self, why: &str) -> FragError {
        let _ = self.child.kill();
        let _ = self.child.wait();
        child_error(why, self.said.take())
    }
}

impl Drop for Fragmenter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child that is not ready yet.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Option<JoinHandle<String>>,
}

impl Running {
    fn wait_for(&mut self, event: &str) -> Result<Made, FragError> {
        wait_for(&self.lines, event).map_err(|why| {
            let _ = self.child.kill();
            let _ = self.child.wait();
            child_error(&why, self.said.take())
        })
    }

    fn with(self, made: Made) -> Fragmenter {
        Fragmenter {
            child: self.child,
            stdin: self.stdin,
            lines: self.lines,
            said: self.said,
            made,
        }
    }
}

/// The child's last line on stderr, or else `why`.
fn child_error(why: &str, said: Option<JoinHandle<String>>) -> FragError {
    let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
    let last = said.lines().last().unwrap_or_default().trim_start_matches("mega: ");
    FragError::Child(if last.is_empty() {
        why.to_string()
    } else {
        last.to_string()
    })
}

fn lines_of(stdout: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = channel();
    if let Some(stdout) = stdout {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receive
}

/// The next event of this name; others are skipped.
fn wait_for<T: DeserializeOwned>(lines: &Receiver<String>, event: &str) -> Result<T, String> {
    for line in lines {
        let value: Value = serde_json::from_str(&line).map_err(|e| format!("not an event: {line}: {e}"))?;
        if value["event"] == event {
            return serde_json::from_value(value).map_err(|e| format!("event '{event}': {e}"));
        }
    }
    Err(format!("it ended before its event '{event}'"))
}

/// The command line of these options.
fn arguments(options: &FragOptions) -> Vec<String> {
    let mut line: Vec<String> = ["frag", "--json", "--commands", "--kind", options.kind.name()]
        .map(str::to_string)
        .to_vec();
    let mut option = |name: &str, value: String| line.extend([name.to_string(), value]);
    option("--seed", options.seed.to_string());
    match options.amount {
        Amount::Most => {}
        Amount::Bytes(bytes) => option("--amount", bytes.to_string()),
        Amount::Share(share) => option("--amount", share.to_string()),
    }
    if let Some(keep) = options.keep {
        option("--keep", keep.to_string());
    }
    if let Some(target) = options.target {
        option("--target", target.to_string());
    }
    if options.pin {
        line.push("--pin-pages".to_string());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::units::Share;

    #[test]
    fn options_become_a_command_line() {
        let options = FragOptions {
            amount: Amount::Bytes(1 << 30),
            keep: Some(Share::percent(30)),
            pin: true,
            target: Some(Share::percent(90)),
            ..FragOptions::default()
        };
        assert_eq!(
            arguments(&options).join(" "),
            "frag --json --commands --kind study --seed 1 --amount 1073741824 --keep 30% --target 90% --pin-pages"
        );
    }

    #[test]
    fn a_program_that_is_not_there_or_says_nothing_is_an_error_with_its_words() {
        let error = Fragmenter::start(Path::new("/nonexistent"), &FragOptions::default()).unwrap_err();
        assert!(error.to_string().contains("cannot run /nonexistent"), "{error}");
        let error = Fragmenter::start(Path::new("/bin/true"), &FragOptions::default()).unwrap_err();
        assert!(error.to_string().contains("ended before its event 'ready'"), "{error}");
    }
}
