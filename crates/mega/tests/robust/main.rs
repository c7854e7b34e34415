//! `mega` beside programs that are hostile or unlucky: signals, inherited dispositions, limits, names that a terminal would obey.
//!
//! All but the last need root: they manage.

mod names;
mod privileges;
mod signals;
mod started;

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The command that was built with this test.
pub fn mega() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    command.stdin(Stdio::null()).env_remove("SUDO_UID");
    command
}

/// Managing needs root; says so and skips otherwise.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: managing needs root");
    }
    root
}

/// Looks until it is so, for 30 seconds at most.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for its end, and kills it if that does not come.
pub fn ended(mut child: Child) -> (ExitStatus, String) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("did not end within 30 s");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).unwrap();
    }
    (status, said)
}

/// What it wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
