//! `mega mosaic`: run a command with its memory on a chosen mixture of page sizes, by the preload library of crates/memomania.
//!
//! Nothing is started before all is known to fit: layouts, the library, the program, and pages where there must be enough.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use memomania_layout::page::BASE;
use memomania_layout::settings::{layout, size, Partial};
use memomania_layout::wire::{encode, LONGEST, VARIABLE};

use crate::args::{MosaicAction, MosaicArgs};
use crate::children::{self, Circumstances};
use mega_cli::exit::{say, Failure};
use mega_cli::hand_over::run_lab;
use mega_cli::mosaic::{report, reserve, target, with_library, PRELOAD};

pub mod live;

/// Exits with the command's status, or 125 to 127 when it did not come to that.
pub fn run(args: &MosaicArgs) -> ExitCode {
    if let Some(MosaicAction::Explore { .. }) = &args.action {
        let words = std::env::args_os().skip(1);
        return Failure::status(run_lab("mega mosaic explore", words), Failure::FAILED);
    }
    match prepare_and_run(args) {
        Ok(status) => ExitCode::from(status),
        Err(error) => Failure::status(Err(error), Failure::RUN_FAILED),
    }
}

fn prepare_and_run(args: &MosaicArgs) -> Result<u8> {
    let partial = settings(args)?;
    let base = rustix::param::page_size();
    anyhow::ensure!(
        base == BASE,
        "impossible here: the kernel's pages have {base} bytes, and the library is for {BASE}"
    );
    let library = target::library()?;
    let program = args.command.first().map_or(Path::new(""), Path::new);
    target::check(program)?;
    reserve::check_transparent(&partial)?;
    // Before anything of the machine's changes: no signal may end us while it is so.
    let signals = children::watch_signals()?;
    let mut reserved = reserve::prepare(&partial, args.reserve.as_ref())?;
    let lines = report::Lines::open(partial.report.as_deref())?;
    let told = Partial {
        report: Some(lines.path()),
        ..partial
    };
    let value = encode(&told.settings());
    anyhow::ensure!(value.len() <= LONGEST, "the report's path is too long");
    std::env::set_var(VARIABLE, value);
    std::env::set_var(PRELOAD, with_library(&library, std::env::var_os(PRELOAD)));
    let running = match children::start(&args.command, signals, Circumstances::default()) {
        Ok(running) => running,
        Err(failed) => {
            say(&failed.error);
            return Ok(failed.status);
        }
    };
    let status = running.finish();
    reserved.put_back();
    if let Err(error) = lines.say(args.report) {
        say(&error);
    }
    Ok(status)
}

/// The command line over the environment over the file.
fn settings(args: &MosaicArgs) -> Result<Partial> {
    let line = Partial {
        heap: args.heap.as_deref().map(|text| layout("--heap", text)).transpose()?,
        anon: args.anon.as_deref().map(|text| layout("--anon", text)).transpose()?,
        heap_bytes: args
            .heap_size
            .as_deref()
            .map(|text| size("--heap-size", text))
            .transpose()?,
        anon_bytes: args
            .anon_size
            .as_deref()
            .map(|text| size("--anon-size", text))
            .transpose()?,
        fallback: args.fallback.map(Into::into),
        fork: args.fork.map(Into::into),
        demote: args.no_demote.then_some(false),
        inherit: args.no_inherit.then_some(false),
        report: args
            .report_file
            .as_ref()
            .map(|path| path.to_string_lossy().into_owned()),
    };
    let environment = Partial::from_environment(|name| {
        let value = std::env::var_os(name)?;
        Some(value.to_string_lossy().into_owned())
    })?;
    let file = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            memomania_layout::file::parse(&path.display().to_string(), &text)?
        }
        None => Partial::default(),
    };
    let all = line.over(environment).over(file);
    for (name, layout, bytes) in [("heap", all.heap, all.heap_bytes), ("anon", all.anon, all.anon_bytes)] {
        let (Some(layout), Some(bytes)) = (layout, bytes) else {
            continue;
        };
        anyhow::ensure!(
            layout.stated_end() <= bytes,
            "{name}: the layout {layout} ends past the pool's size of {bytes} bytes"
        );
    }
    Ok(all)
}
