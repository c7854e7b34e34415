//! `mega map`: heat maps of physical memory, or of one process.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use serde_json::Value;

use crate::args::{MapArgs, MapTarget};
use crate::draw::terminal::Style;
use crate::draw::{save, Format};
use mega_cli::draw::scene::Scene;
use mega_cli::exit::tell;
use mega_cli::signals::stop_on_signals;

mod axis;
mod phys;
mod process;

/// A look that can be shown in three ways.
trait Map {
    /// For a terminal or a file of text: 80 columns, and about so many lines at most.
    fn text(&self, style: Style, lines: usize) -> String;
    /// As a picture.
    fn scene(&self) -> Scene;
    /// For programs.
    fn json(&self) -> Value;
}

/// Something to look at, again and again.
trait Subject {
    fn look(&mut self) -> Result<Box<dyn Map>>;
}

/// Looks and shows; with --watch until it is told to stop or what it looks at is gone.
pub fn run(args: &MapArgs) -> Result<()> {
    if let Some(path) = &args.output {
        Format::of(path)?.check()?;
    }
    let mut subject: Box<dyn Subject> = match args.target {
        MapTarget::Phys => Box::new(phys::Memory::new(args.every)),
        MapTarget::Process(pid) => Box::new(process::OneProcess::open(pid, args.scanner)?),
    };
    match args.watch {
        None => show(args, subject.look()?.as_ref(), false),
        Some(interval) => watch(args, subject.as_mut(), interval),
    }
}

fn show(args: &MapArgs, map: &dyn Map, redraw: bool) -> Result<()> {
    if let Some(path) = &args.output {
        save(&map.scene(), path)?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", map.json())?;
    } else if args.output.is_none() {
        let style = Style::of_stdout();
        let lines = screen_lines();
        let text = map.text(style, lines);
        match (redraw, style) {
            // From the upper left corner, each line's rest and what is below cleared: no flicker. A line more would scroll.
            (true, Style::Colour) => {
                let fitting: Vec<&str> = text.lines().take(lines.saturating_sub(1)).collect();
                write!(out, "\x1b[H{}\x1b[K\n\x1b[J", fitting.join("\x1b[K\n"))?;
            }
            (true, Style::Ascii) => writeln!(out, "{text}")?,
            (false, _) => write!(out, "{text}")?,
        }
    }
    out.flush()?;
    Ok(())
}

/// Lines of the terminal; of a file, as many as a person sees at once.
fn screen_lines() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map(|size| usize::from(size.ws_row))
        .ok()
        .filter(|lines| *lines > 0)
        .unwrap_or(40)
}

/// Hides the cursor; shows it again when dropped, on whichever way out.
struct Screen;

impl Screen {
    fn take() -> Self {
        let mut out = std::io::stdout().lock();
        let _ = write!(out, "\x1b[?25l\x1b[2J");
        let _ = out.flush();
        Self
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout().lock();
        let _ = write!(out, "\x1b[?25h");
        let _ = out.flush();
    }
}

fn watch(args: &MapArgs, subject: &mut dyn Subject, interval: Duration) -> Result<()> {
    let stop = stop_on_signals()?;
    let on_screen = !args.json && args.output.is_none() && Style::of_stdout() == Style::Colour;
    let mut first = Some(subject.look()?);
    let _screen = on_screen.then(Screen::take);
    loop {
        let map = match first.take() {
            Some(map) => map,
            None => match subject.look() {
                Ok(map) => map,
                // It was there before: that it has ended is no failure of ours.
                Err(error) if is_gone(&error) => {
                    tell("mega: the process has ended");
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        show(args, map.as_ref(), true)?;
        if stopped(&stop, interval)? {
            return Ok(());
        }
    }
}

/// Waits; answers whether it is to stop.
fn stopped(stop: &OwnedFd, interval: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(interval).context("the interval is too long")?;
    let mut fds = [PollFd::new(stop, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(0) => Ok(false),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error).context("cannot wait"),
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    use mega_linux::inspect::usage::InspectError;
    use mega_linux::scan::ScanError;
    error.chain().any(|cause| match cause.downcast_ref::<InspectError>() {
        Some(InspectError::Proc(e)) => e.is_gone(),
        Some(InspectError::Scan(e)) => matches!(e, ScanError::Gone),
        Some(InspectError::Locked(_)) | None => false,
    })
}
