//! `mega run`: run a command and manage it and its children.

use std::process::ExitCode;

use anyhow::Result;
use mega_linux::sys::User;

use crate::args::RunArgs;
use crate::children::{self, Circumstances};
use crate::manage::{prepare, FamilyRoster};
use crate::reserve;
use mega_cli::exit::{say, Failure};

/// Exits with the command's status, or 125 to 127 when it did not come to that.
pub fn run(args: RunArgs) -> ExitCode {
    // Before anything of ours shows: `mega off` ends by a signal whom it finds.
    let signals = match children::watch_signals() {
        Ok(signals) => signals,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    match reserve::threshold(&args.options).and_then(|found| Ok((found, user(args.user.as_deref())?))) {
        Ok((Some(pages), user)) => return reserve::run(&args.command, &args.options, user, pages, signals),
        Ok((None, _)) => {}
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    }
    let prepared = user(args.user.as_deref()).and_then(|user| Ok((user, prepare(args.options)?)));
    let (user, mut ready) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    if user.is_none() {
        if let Some(name) = invoker() {
            ready.output.say(&format!(
                "the command runs as root; --user {name} runs it as who called sudo"
            ));
        }
    }
    let within = Circumstances {
        user,
        open_files: Some(ready.open_files),
        reserve: None,
    };
    let running = match children::start(&args.command, signals, within) {
        Ok(running) => running,
        Err(failed) => {
            say(&failed.error);
            return ExitCode::from(failed.status);
        }
    };
    // We are the reaper of orphans, so all that comes of the command stays below us.
    let managed = running
        .stop
        .try_clone()
        .map(|stop| ready.manage(Box::new(FamilyRoster::below_us()), stop));
    // Even if managing ended early (--duration), the command is waited for, and its status is ours.
    let status = running.finish();
    match managed {
        Ok(managed) => {
            if let Err(error) = managed.output.finish(&managed.status, false) {
                say(&error);
            }
        }
        Err(error) => say(&anyhow::Error::new(error).context("cannot manage the command")),
    }
    ExitCode::from(status)
}

/// The user to run the command as.
fn user(name: Option<&str>) -> Result<Option<User>> {
    let Some(name) = name else { return Ok(None) };
    let found = User::find(name).ok_or_else(|| Failure::usage(format!("--user: there is no user '{name}'")))?;
    Ok(Some(found))
}

/// Who called sudo, where that is not root.
fn invoker() -> Option<String> {
    let uid: u32 = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    (uid != 0 && rustix::process::geteuid().is_root()).then(|| std::env::var("SUDO_USER").ok())?
}
