//! `mega journal`: what the daemon decided and did.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use mega_cli::signals::{stop_on_signals, stopped};

use super::config::load;
use crate::args::JournalArgs;
use crate::service::journal::{Filter, Follower};

/// Lines shown before those that come.
const BEFORE: usize = 10;
/// Time between two looks for new lines.
const EVERY: Duration = Duration::from_millis(250);

/// Prints it.
pub fn run(args: &JournalArgs) -> Result<()> {
    let path = match &args.file {
        Some(file) => file.clone(),
        None => match load(&args.source.source())?.journal() {
            Some((path, _)) => path,
            None => bail!("the daemon writes no journal: its configuration has journal = \"off\""),
        },
    };
    let filter = Filter {
        rule: args.rule.clone(),
        pid: args.pid,
        events: args.events.clone(),
    };
    let stop = stop_on_signals()?;
    let mut follower = Follower::new(&path);
    let printed = print(args, &filter, &mut follower, || stopped(&stop, EVERY));
    match printed {
        // Who reads us has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("only root may read the daemon's journal {}", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read the journal {}", path.display())),
        Ok(()) if args.follow || follower.is_there() => Ok(()),
        Ok(()) => bail!("no journal {}: has the daemon run with it?", path.display()),
    }
}

fn print(
    args: &JournalArgs,
    filter: &Filter,
    follower: &mut Follower,
    mut is_over: impl FnMut() -> bool,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match args.lines.or(args.follow.then_some(BEFORE)) {
        Some(count) => {
            for line in follower.last(count, filter, args.json)? {
                writeln!(out, "{line}")?;
            }
        }
        None => show(follower, filter, args.json, &mut out)?,
    }
    out.flush()?;
    while args.follow && !is_over() {
        show(follower, filter, args.json, &mut out)?;
        out.flush()?;
    }
    Ok(())
}

fn show(follower: &mut Follower, filter: &Filter, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    follower.read(|line| match filter.show(line, as_json) {
        Some(line) => writeln!(out, "{line}"),
        None => Ok(()),
    })
}
