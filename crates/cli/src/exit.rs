//! Exit statuses and the one line that goes with each failure.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::text::printable;

/// How a failure ends the program.
pub struct Failure;

impl Failure {
    /// It failed.
    pub const FAILED: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// `mega run` itself failed.
    pub const RUN_FAILED: u8 = 125;
    /// The command cannot be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// The command was not found.
    pub const NOT_FOUND: u8 = 127;

    /// Wrong usage that the argument parser cannot see.
    pub fn usage(error: impl fmt::Display) -> anyhow::Error {
        anyhow::Error::new(UsageError(error.to_string()))
    }

    /// A failure about which the one line is on standard error already.
    pub fn said() -> anyhow::Error {
        anyhow::Error::new(Said)
    }

    /// Says what failed and gives the status for it.
    pub fn status(result: anyhow::Result<()>, failed: u8) -> ExitCode {
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // A reader that went away (`mega show | head`) is no failure to talk about.
                let broken_pipe = error
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
                if broken_pipe {
                    return ExitCode::SUCCESS;
                }
                if error.downcast_ref::<Said>().is_none() {
                    say(&error);
                }
                let is_usage = error.downcast_ref::<UsageError>().is_some();
                if is_usage && failed == Self::FAILED {
                    ExitCode::from(Self::USAGE)
                } else {
                    ExitCode::from(failed)
                }
            }
        }
    }
}

/// Says what failed in one line.
pub fn say(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors name their cause themselves.
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    tell(&format!("mega: {}", text.replace('\n', " ")));
}

/// A line on standard error, without what a terminal would obey. Nobody may read there any more, which is no reason to panic and leave a program half managed.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// The status for a command line that the parser refused, or for help.
pub fn usage_status(error: &clap::Error, is_run: bool) -> ExitCode {
    match (error.use_stderr(), is_run) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(Failure::RUN_FAILED),
        (true, false) => ExitCode::from(Failure::USAGE),
    }
}

#[derive(Debug)]
struct Said;

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("said before")
    }
}

impl std::error::Error for Said {}

#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}
