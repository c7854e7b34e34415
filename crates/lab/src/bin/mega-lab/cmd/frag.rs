//! `mega frag`: fragment memory on purpose.

use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::units::{show_duration, Bytes};
use mega_lab::contiguity::headroom::go_first;
use mega_lab::contiguity::{Frag, FragOptions, Made};
use mega_lab::protocol::command::Commands;
use mega_lab::protocol::emit::event;
use mega_linux::blocks::fragmentation;
use mega_linux::proc::ProcRoot;
use serde_json::{json, Value};

use crate::args::FragArgs;
use crate::contiguity::table;
use mega_cli::contiguity::{brief, percent};
use mega_cli::exit::tell;
use mega_cli::signals::stop_on_signals;
use mega_cli::signals::stopped;

/// What is checked of the kept memory between two refreshes.
const CHECKED_BYTES: Bytes = Bytes(64 << 20);

/// How long a signal may wait to be seen.
const TICK: Duration = Duration::from_millis(50);

/// Fragments memory, and holds it so.
pub fn run(args: &FragArgs) -> Result<()> {
    let stop = stop_on_signals()?;
    go_first().context("cannot offer itself to the out-of-memory killer first")?;
    let options = FragOptions {
        kind: args.kind,
        amount: args.amount.unwrap_or_default(),
        keep: args.keep,
        pin: args.pin_pages,
        target: args.target,
        seed: args.seed,
    };
    let commands = Commands::when(args.commands);
    // A controller that has gone away stops us while we begin, too. No other command comes before it has read `ready`.
    let asked = || stopped(&stop, Duration::ZERO) || commands.poll().is_some();
    let root = ProcRoot::default();
    let mut frag = Frag::make(&options, &root, &asked)?;
    if args.json {
        event("ready", with_schema(serde_json::to_value(frag.made())?));
    } else {
        write!(std::io::stdout(), "{}", report(frag.made()))?;
    }
    if frag.made().missed() {
        tell(&format!(
            "mega: the target of {} is not reached: {}",
            percent(frag.made().target_share.unwrap_or(0.0)),
            frag.made().ended.describe()
        ));
    }
    let at_once = hold(&mut frag, args, &commands, &stop, &root)?;
    if !at_once {
        frag.verify()?;
    }
    let (kept, verified) = (frag.made().kept_bytes, frag.verified());
    drop(frag);
    if args.json {
        event("freed", with_schema(serde_json::to_value(verified)?));
    } else {
        let checked = if kept == 0 {
            String::new()
        } else {
            format!(
                "; {} kept pages found right, all of them {} times",
                verified.pages, verified.passes
            )
        };
        writeln!(std::io::stdout(), "freed {}{checked}", Bytes(kept))?;
    }
    Ok(())
}

/// Holds it until the time is over, a command says so (false), or a signal comes (true: free at once).
fn hold(frag: &mut Frag, args: &FragArgs, commands: &Commands, stop: &OwnedFd, root: &ProcRoot) -> Result<bool> {
    let begin = Instant::now();
    let terminal = !args.json && std::io::stderr().is_terminal();
    let mut refreshed = Instant::now();
    let at_once = loop {
        let left = args.hold.map(|hold| hold.saturating_sub(begin.elapsed()));
        if stopped(stop, left.map_or(TICK, |left| left.min(TICK))) {
            break true;
        }
        if left.is_some_and(|left| left.is_zero()) {
            break false;
        }
        match commands.poll().as_deref() {
            None => {}
            Some("check") => {
                let verified = frag.verify()?;
                event("checked", with_schema(serde_json::to_value(verified)?));
            }
            Some("quit") => break false,
            Some(other) => event("error", json!({"message": format!("unknown command {other:?}")})),
        }
        // An experiment is not to be disturbed by looks that it did not ask for.
        if !args.commands && refreshed.elapsed() >= args.refresh {
            refreshed = Instant::now();
            frag.verify_some(CHECKED_BYTES)?;
            refresh(frag, args, terminal, begin.elapsed(), root)?;
        }
    };
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[2K");
    }
    Ok(at_once)
}

/// Says how fragmented memory is by now.
fn refresh(frag: &Frag, args: &FragArgs, terminal: bool, held: Duration, root: &ProcRoot) -> Result<()> {
    let state = fragmentation::read(root)?;
    if args.json {
        let fields = json!({"free": state, "verified": frag.verified(), "held_ns": held.as_nanos() as u64});
        event("held", with_schema(fields));
        return Ok(());
    }
    let line = format!(
        "{}: {}",
        show_duration(Duration::from_secs(held.as_secs())),
        brief(&state)
    );
    if terminal {
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K{line}");
        let _ = err.flush();
    } else {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

fn with_schema(mut fields: Value) -> Value {
    fields["schema"] = 1.into();
    fields
}

fn report(made: &Made) -> String {
    let mut text = format!(
        "{}: took {} in {}, keeps {}",
        made.kind,
        Bytes(made.taken_bytes),
        show_duration(Duration::from_nanos(made.elapsed_ns)),
        Bytes(made.kept_bytes)
    );
    if made.pinned_bytes > 0 {
        text += &format!(", of which pipes hold {}", Bytes(made.pinned_bytes));
    }
    if made.huge_pages + made.fell_back > 0 {
        text += &format!(
            "\n{} huge pages had and split, {} not given",
            made.huge_pages, made.fell_back
        );
    }
    text += &format!("\nended because {}\n", made.ended.describe());
    text + &table(&[("before", &made.before), ("now", &made.after)])
}
