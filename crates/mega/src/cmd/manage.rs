//! `mega manage`: manage what already runs.

use std::path::PathBuf;

use anyhow::Result;
use mega_linux::host::Roster;
use mega_linux::proc::ProcRoot;
use mega_linux::process::select::{by_cgroup, by_comm, cgroup_folder, unit_folder};
use mega_linux::process::Process;
use regex_lite::Regex;

use crate::args::ManageArgs;
use crate::manage::{prepare, set_intent, FamilyRoster};
use mega_cli::exit::Failure;
use mega_cli::signals::stop_on_signals;

/// Manages until everything selected has ended, the time is over, or a signal comes.
pub fn run(mut args: ManageArgs) -> Result<()> {
    let selector = selector(&args)?;
    let root = ProcRoot::default();
    for &pid in &args.pids {
        Process::open(&root, pid)?;
    }
    // Before anything of ours shows: `mega off` ends by a signal whom it finds.
    let stop = stop_on_signals()?;
    set_intent(&mut args.options, args.intent.intent)?;
    let ready = prepare(args.options)?;
    let roster: Box<dyn Roster> = match selector {
        None => Box::new(FamilyRoster::of(args.pids)),
        Some(selector) => Box::new(Selected(selector)),
    };
    let closed = roster.closed();
    let managed = ready.manage(roster, stop)?;
    if closed && !managed.anyone {
        return Err(managed.output.nobody());
    }
    managed.output.finish(&managed.status, true)
}

fn selector(args: &ManageArgs) -> Result<Option<Selector>> {
    let ways = usize::from(!args.pids.is_empty())
        + usize::from(args.comm.is_some())
        + usize::from(args.cgroup.is_some())
        + usize::from(args.unit.is_some());
    if ways != 1 {
        return Err(Failure::usage(
            "say what to manage by exactly one of: PID..., --comm RE, --cgroup PATH, --unit NAME",
        ));
    }
    let root = ProcRoot::default();
    if let Some(pattern) = &args.comm {
        let pattern = Regex::new(pattern)
            .map_err(|_| Failure::usage(format!("--comm '{pattern}' is not a regular expression")))?;
        return Ok(Some(Selector::Comm(pattern)));
    }
    if let Some(path) = &args.cgroup {
        return Ok(Some(Selector::Cgroup(cgroup_folder(&root, path)?)));
    }
    if let Some(unit) = &args.unit {
        return Ok(Some(Selector::Cgroup(unit_folder(&root, unit)?)));
    }
    Ok(None)
}

/// Whom to find, anew at every scan.
enum Selector {
    /// Processes whose name matches.
    Comm(Regex),
    /// Processes of a control group and those below it.
    Cgroup(PathBuf),
}

/// What a selector finds, but never ourselves.
struct Selected(Selector);

impl Roster for Selected {
    fn pids(&mut self, root: &ProcRoot) -> Result<Vec<u32>, String> {
        let found = match &self.0 {
            Selector::Comm(pattern) => by_comm(root, &|name| pattern.is_match(name)),
            Selector::Cgroup(folder) => by_cgroup(root, folder),
        };
        let own = std::process::id();
        Ok(found
            .map_err(|error| error.to_string())?
            .into_iter()
            .filter(|pid| *pid != own)
            .collect())
    }

    fn closed(&self) -> bool {
        false
    }
}
