//! What `run` and `manage` write: the journal, the status line, the summary.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::control::{Observer, Status};
use mega_core::journal::{Event, Line};
use mega_core::units::show_duration;
use serde_json::json;

use crate::exit::{tell, Failure};
use crate::status::StatusLine;

/// Where everything goes.
pub struct Output {
    journal: Option<Box<dyn Write>>,
    json: bool,
    verbose: bool,
    quiet: bool,
    status: Option<StatusLine>,
    complained: bool,
    /// Why the last one was refused.
    refused: Option<String>,
    flushed: Instant,
}

impl Output {
    /// Opens the journal; fails before anything is managed if that cannot be.
    pub fn open(journal: Option<&Path>, json: bool, verbose: bool, quiet: bool) -> Result<Self> {
        let journal: Option<Box<dyn Write>> = match journal {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(BufWriter::new(io::stdout()))),
            Some(path) => {
                let file =
                    File::create(path).with_context(|| format!("cannot write the journal {}", path.display()))?;
                Some(Box::new(BufWriter::new(file)))
            }
        };
        let status = (!quiet && !verbose && io::stderr().is_terminal()).then(StatusLine::default);
        Ok(Self {
            journal,
            json,
            verbose,
            quiet,
            status,
            complained: false,
            refused: None,
            flushed: Instant::now(),
        })
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let text = if self.json { line.to_json() } else { line.to_text() };
        writeln!(journal, "{text}")?;
        // Whoever follows the journal sees it at most a second late; a line a system call would cost more than the scan.
        if self.flushed.elapsed() > Duration::from_secs(1)
            || matches!(line.event, Event::Stop { .. } | Event::Start { .. })
        {
            self.flushed = Instant::now();
            journal.flush()?;
        }
        Ok(())
    }

    /// A message to people.
    pub fn say(&mut self, text: &str) {
        if !self.quiet {
            if let Some(status) = &mut self.status {
                status.clear();
            }
            tell(&format!("mega: {text}"));
        }
    }

    /// Nobody could be managed: the failure that says so, unless why each one was refused has been said.
    pub fn nobody(mut self) -> anyhow::Error {
        if let Some(journal) = &mut self.journal {
            let _ = journal.flush();
        }
        match self.refused {
            Some(_) if !self.quiet => Failure::said(),
            Some(why) => anyhow::anyhow!(why),
            None => anyhow::anyhow!("nothing to manage: every process ended before it could be looked at"),
        }
    }

    /// Removes the status line and writes the summary: to standard output, or to standard error where that is the command's.
    pub fn finish(mut self, status: &Status, stdout_is_ours: bool) -> Result<()> {
        if let Some(line) = &mut self.status {
            line.clear();
        }
        if let Some(journal) = &mut self.journal {
            journal.flush().context("cannot write the journal")?;
        }
        if self.quiet {
            return Ok(());
        }
        let text = if self.json {
            summary_json(status)
        } else {
            summary(status)
        };
        if stdout_is_ours {
            writeln!(io::stdout(), "{text}")?;
        } else {
            tell(&text);
        }
        Ok(())
    }
}

impl Observer for Output {
    fn event(&mut self, line: &Line) {
        if let Err(error) = self.write(line) {
            // Managing goes on: a full disk is no reason to leave a program half managed.
            if !std::mem::replace(&mut self.complained, true) {
                self.say(&format!("the journal cannot be written: {error}"));
            }
        }
        match &line.event {
            Event::Notice { text } => self.say(text),
            Event::Refused { pid, why } => {
                let own = format!("process {pid}: ");
                let text = format!(
                    "process {pid} is not managed: {}",
                    why.strip_prefix(&own).unwrap_or(why)
                );
                self.say(&text);
                self.refused = Some(text);
            }
            _ if self.verbose => self.say(&line.to_text()),
            _ => {}
        }
    }

    fn status(&mut self, status: &Status) {
        if let Some(line) = &mut self.status {
            line.show(status);
        }
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

/// The end in words.
fn summary(s: &Status) -> String {
    format!(
        "mega: {} promoted, {} demoted, {} not done; {} given back; {} scans in {}; \
         stall {} ({:.2}%), cpu {} ({:.2}%)",
        s.promoted,
        s.demoted,
        s.failed,
        s.returned,
        s.scans,
        show_duration(s.elapsed),
        show_duration(s.stall),
        share(s.stall, s.elapsed),
        show_duration(s.cpu),
        share(s.cpu, s.elapsed),
    ) + &stock(s)
}

/// What became of the stock, if anything was done for it.
fn stock(s: &Status) -> String {
    if s.compactions == 0 {
        return String::new();
    }
    let once = if s.compactions == 1 {
        "compaction"
    } else {
        "compactions"
    };
    let chosen: Vec<_> = s.chosen.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let chosen = match chosen.is_empty() {
        true => String::new(),
        false => format!(" (chosen: {})", chosen.join(", ")),
    };
    format!(
        "; stock {} blocks made in {} {once}{chosen}, cpu {}",
        s.made.0,
        s.compactions,
        show_duration(s.compaction_cpu)
    )
}

/// The end for machines.
fn summary_json(s: &Status) -> String {
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "schema": 1,
        "kind": "summary",
        "scans": s.scans,
        "promoted": s.promoted,
        "demoted": s.demoted,
        "failed": s.failed,
        "returned_bytes": s.returned.0,
        "regions": s.regions,
        "huge_regions": s.huge,
        "waste_bytes": s.waste.0,
        "stall_ns": ns(s.stall),
        "cpu_ns": ns(s.cpu),
        "elapsed_ns": ns(s.elapsed),
        "last_scan_ns": ns(s.scan_took),
        "compactions": s.compactions,
        "made_blocks": s.made.0,
        "compaction_cpu_ns": ns(s.compaction_cpu),
        "chosen_blocks": s.chosen,
    })
    .to_string()
}
