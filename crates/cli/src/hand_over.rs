//! Commands that are programs of their own, as git has them: `mega x` runs `mega-x`, or the `x` of `mega-lab`.
//!
//! A program is looked for beside the running one, then in PATH. It takes this one's place (exec), so that its exit status and the signals that it
//! gets are its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::exit::Failure;

/// The laboratory's program.
pub const LAB: &str = "mega-lab";

/// The laboratory's commands, with what each does. A test of `mega-lab` compares them with its own.
pub const LAB_COMMANDS: [(&str, &str); 6] = [
    (
        "demo",
        "Compare a store of a few GB on base pages, under THP, and managed",
    ),
    (
        "bench",
        "Run experiments: what huge pages do to a program, under which policy, at what cost",
    ),
    ("sim", "Simulate any policy on any machine; the same figures each time"),
    ("frag", "Fragment free memory on purpose, until Ctrl-C"),
    ("hog", "Allocate huge pages to exhaustion; report latencies"),
    (
        "mosaic explore",
        "Find out which part of a command's memory gains from large pages",
    ),
];

/// Commands that are a program and a package each, with what each does.
pub const COMPANIONS: [(&str, &str); 1] = [("top", "Watch services, their processes and regions, live")];

/// Commands of the laboratory that `mega --help` does not list: for tests and benchmarks.
const HIDDEN: [&str; 1] = ["workload"];

/// Whether a command is the laboratory's.
#[must_use]
pub fn is_of_lab(command: &str) -> bool {
    LAB_COMMANDS.iter().any(|(name, _)| *name == command) || HIDDEN.contains(&command)
}

/// The commands of other programs as `mega --help` lists them.
#[must_use]
pub fn others_help() -> String {
    let mut text = String::new();
    let mut list = |head: &str, commands: &[(&str, &str)]| {
        text += head;
        for (name, about) in commands {
            text += &format!("\n{}", crate::text::wrapped(&format!("  {name:<14}  "), about));
        }
    };
    list("With mega-top installed:", &COMPANIONS);
    list("\n\nWith mega-lab installed:", &LAB_COMMANDS);
    text
}

/// Runs a command that is not this program's, with all of this program's arguments. Returns only where that is impossible.
#[must_use]
pub fn run_command(command: &OsStr) -> ExitCode {
    Failure::status(
        find_command(command).and_then(|(program, of_lab)| {
            let words = std::env::args_os().skip(if of_lab { 1 } else { 2 });
            exec(&program, of_lab, words)
        }),
        Failure::FAILED,
    )
}

/// Runs the laboratory with these arguments. Returns only where that is impossible.
///
/// # Errors
/// It is not installed, or cannot be executed.
pub fn run_lab<W: AsRef<OsStr>>(what: &str, words: impl IntoIterator<Item = W>) -> Result<()> {
    exec(&lab(what)?, true, words)
}

/// The laboratory's program; `what` is what needs it.
///
/// # Errors
/// It is not installed.
pub fn lab(what: &str) -> Result<PathBuf> {
    find(LAB).ok_or_else(|| {
        Failure::usage(format!(
            "{what} needs {LAB}, which is neither beside mega nor in PATH: build it (`make build`) or install the package mega-lab"
        ))
    })
}

/// The `mega` that belongs to the laboratory: beside it, or in PATH.
///
/// # Errors
/// There is none.
pub fn mega() -> Result<PathBuf> {
    find("mega").context(
        "managing needs the command mega, which is neither beside mega-lab nor in PATH: build it (`make build`) or install the package mega",
    )
}

/// A program of this name: beside the running one, else in PATH.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    beside
        .filter(|path| is_program(path))
        .or_else(|| in_path(OsStr::new(name)))
}

/// A program as execvp finds it.
#[must_use]
pub fn in_path(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
}

fn find_command(command: &OsStr) -> Result<(PathBuf, bool)> {
    let unknown = |more: &str| {
        Failure::usage(format!(
            "no command '{}' (`mega --help` lists them){more}",
            command.to_string_lossy()
        ))
    };
    let name = command
        .to_str()
        .filter(|name| !name.is_empty() && !name.contains('/'))
        .ok_or_else(|| unknown(""))?;
    if is_of_lab(name) {
        return Ok((lab(&format!("mega {name}"))?, true));
    }
    let program = find(&format!("mega-{name}")).ok_or_else(|| {
        if COMPANIONS.iter().any(|(companion, _)| *companion == name) {
            return Failure::usage(format!(
                "mega {name} needs mega-{name}, which is neither beside mega nor in PATH: build it (`make build`) or install the package mega"
            ));
        }
        unknown(&format!(", and no mega-{name} beside mega or in PATH"))
    })?;
    Ok((program, false))
}

/// `mega bench --help` says how `mega bench` is used: the laboratory is called by the name that the user typed.
fn exec<W: AsRef<OsStr>>(program: &Path, of_lab: bool, words: impl IntoIterator<Item = W>) -> Result<()> {
    let mut command = Command::new(program);
    if of_lab {
        let own: Option<OsString> = std::env::args_os().next();
        command.arg0(own.unwrap_or_else(|| "mega".into()));
    }
    let error = command.args(words).exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}
