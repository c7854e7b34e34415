//! `mega sim` from the command line. Needs no privilege and changes nothing; the machines are small, so that it takes seconds.

mod calibrate;
#[path = "../commands/mod.rs"]
mod commands;
mod input;
mod paper;
mod run;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mega_lab::report::folder;
use mega_lab::result::Record;

use commands::{built, LAB, MEGA};

/// `mega sim` with these arguments, to its end.
fn sim(args: &[&str]) -> Ended {
    Ended(command(args).output().expect("mega-lab starts"))
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.arg("sim").args(args).stdin(Stdio::null());
    command
}

struct Ended(Output);

impl Ended {
    fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// It did what it was to do.
    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.code(), 0, "{}", self.stderr());
        self
    }

    /// Refused with this status in one line of ours that has all of these words.
    #[track_caller]
    fn one_line(&self, status: i32, words: &[&str]) {
        let stderr = self.stderr();
        assert_eq!(self.code(), status, "{stderr}");
        assert!(stderr.starts_with("mega: ") && stderr.lines().count() == 1, "{stderr}");
        for word in words {
            assert!(stderr.contains(word), "'{word}' is not in: {stderr}");
        }
    }
}

/// The only results folder below one, and its record.
fn result(output: &Path) -> (PathBuf, Record) {
    let folders: Vec<PathBuf> = std::fs::read_dir(output)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    let [only] = folders.as_slice() else {
        panic!("{folders:?}")
    };
    (only.clone(), folder::read(only).unwrap_or_else(|e| panic!("{e}")))
}

/// The record with the real clock's times taken out: what must be the same each time.
fn without_times(mut record: Record) -> Record {
    record.settings.began_unix_s = 0;
    record.settings.seconds = 0.0;
    record.settings.command = String::new();
    record
}
