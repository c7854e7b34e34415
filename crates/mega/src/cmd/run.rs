//! `mega run`: run a command and manage it and its children.

use std::process::ExitCode;

use crate::args::RunArgs;
use crate::children;
use crate::exit::{say, Failure};
use crate::manage::{prepare, FamilyRoster};

/// Exits with the command's status, or 125 to 127 when it did not come to that.
pub fn run(args: RunArgs) -> ExitCode {
    // Before anything of ours shows: `mega off` ends by a signal whom it finds.
    let signals = match children::watch_signals() {
        Ok(signals) => signals,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    let ready = match prepare(args.options) {
        Ok(ready) => ready,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    let running = match children::start(&args.command, signals) {
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
