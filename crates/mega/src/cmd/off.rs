//! `mega off`: stop all managers and restore all settings.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use mega_linux::knobs::{Claims, STATE_FOLDER};
use mega_linux::sys;
use rustix::fd::AsFd;
use serde_json::json;

use crate::args::OffArgs;
use mega_cli::settings::{describe_restored, open_knobs};
use mega_cli::signals::off_signal;

/// Long enough for a manager to finish the call that it is in.
const PATIENCE: Duration = Duration::from_secs(15);

/// Stops running managers, and restores what killed ones left behind.
pub fn run(args: &OffArgs) -> Result<()> {
    let mut done = end_managers()?;
    let restored = open_knobs()?.recover().context("cannot put settings back")?;
    done.extend(describe_restored(&restored));
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", json!({"schema": 1, "kind": "off", "done": done}))?;
    } else if done.is_empty() {
        writeln!(out, "nothing to put back")?;
    } else {
        for line in done {
            writeln!(out, "{line}")?;
        }
    }
    if !restored.failed.is_empty() {
        bail!("not everything could be put back");
    }
    Ok(())
}

/// Tells each manager to stop (the programs keep running), and waits until none holds a process or a setting.
fn end_managers() -> Result<Vec<String>> {
    let claims = Claims::open(STATE_FOLDER.as_ref()).context("cannot read the list of managed processes")?;
    let holding = || -> Result<BTreeSet<u32>> {
        let mut managers: BTreeSet<u32> = claims.list()?.into_iter().map(|(_, manager)| manager).collect();
        managers.extend(open_knobs()?.held()?.into_iter().map(|(.., manager)| manager));
        // A daemon may have neither.
        managers.extend(crate::service::daemon::running()?);
        managers.remove(&std::process::id());
        Ok(managers)
    };
    let managers = holding()?;
    let mut done = Vec::new();
    for &pid in &managers {
        let Ok(pidfd) = sys::pidfd_open(pid) else { continue };
        // Held by now: is it still a manager, or did its PID pass on in between?
        if !holding()?.contains(&pid) {
            continue;
        }
        sys::pidfd_send_signal(pidfd.as_fd(), off_signal())
            .with_context(|| format!("cannot tell manager {pid} to stop"))?;
        done.push(format!("told manager {pid} to stop"));
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holding()?.is_disjoint(&managers) {
        if std::time::Instant::now() > deadline {
            bail!("managers did not stop: {:?}", holding()?);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(done)
}
