//! What `run` and `manage` write: the journal, the status line, the summary.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use mega_core::control::{Observer, Status};
use mega_core::journal::{Event, Felt, Line, Repeats};
use mega_core::units::{show_duration, Time};
use mega_linux::agent::profiles::Profiles;
use serde_json::{json, Value};

use crate::agent::pages::Pages;
use crate::args::ManageOptions;
use crate::status::StatusLine;
use mega_cli::exit::{tell, Failure};
use mega_cli::journal::JournalFile;

/// Where everything goes.
pub struct Output {
    journal: Option<JournalFile>,
    json: bool,
    verbose: bool,
    quiet: bool,
    status: Option<StatusLine>,
    complained: bool,
    also: Option<Box<dyn Observer + Send>>,
    /// Why the last one was refused.
    refused: Option<String>,
    agents: Option<Pages>,
    profiles: Option<Profiles>,
    /// What each process has felt; of those that are gone, all together.
    felt: BTreeMap<u32, Felt>,
    felt_before: Felt,
    /// Of deferrals, which a full journal and a dry run have at each scan.
    repeats: Option<Repeats>,
}

impl Output {
    /// Opens the journal; fails before anything is managed if that cannot be.
    pub fn open(options: &ManageOptions) -> Result<Self> {
        let (json, verbose, quiet) = (options.json, options.verbose, options.quiet);
        let journal = options.journal.as_deref();
        let journal = journal.map(|path| JournalFile::create_live(path, json)).transpose()?;
        let status = (!quiet && !verbose && io::stderr().is_terminal()).then(StatusLine::default);
        Ok(Self {
            journal,
            json,
            verbose,
            quiet,
            status,
            complained: false,
            also: None,
            refused: None,
            agents: None,
            profiles: None,
            felt: BTreeMap::new(),
            felt_before: Felt::default(),
            repeats: (!options.journal_full && !options.dry_run).then(Repeats::default),
        })
    }

    /// Also says what these agents do, and keeps what their programs have shown.
    pub fn watch_agents(&mut self, pages: Pages, profiles: Option<Profiles>) {
        self.agents = Some(pages);
        self.profiles = profiles;
    }

    /// The agents watched.
    pub fn agents(&self) -> Option<&Pages> {
        self.agents.as_ref()
    }

    /// Writes what agents did since the last look.
    fn say_agents(&mut self, at: Time) {
        let news = self.agents.as_mut().map(Pages::look).unwrap_or_default();
        for (pid, said) in news {
            let event = said.event(pid);
            self.event(&Line { at, event });
        }
    }

    /// Writes what this process has felt, or each one, and drops it.
    fn say_felt(&mut self, at: Time, pid: Option<u32>) {
        let over = match pid {
            Some(pid) => self.felt.remove(&pid).map(|felt| (pid, felt)).into_iter().collect(),
            None => std::mem::take(&mut self.felt),
        };
        for (pid, felt) in over {
            self.felt_before.add(&felt);
            let event = felt.event(pid);
            self.event(&Line { at, event });
        }
    }

    /// Another one hears each event, too.
    pub fn also(&mut self, observer: Box<dyn Observer + Send>) {
        self.also = Some(observer);
    }

    /// A message for the user.
    pub fn say(&mut self, text: &str) {
        if !self.quiet {
            if let Some(status) = &mut self.status {
                status.clear();
            }
            tell(&format!("mega: {text}"));
        }
    }

    /// Says once that the journal cannot be written. Managing goes on: a full disk is no reason to leave a program half managed.
    fn complain(&mut self, written: Option<io::Result<()>>) {
        if let Some(Err(error)) = written {
            if !std::mem::replace(&mut self.complained, true) {
                self.say(&format!("the journal cannot be written: {error}"));
            }
        }
    }

    /// No process could be managed: the error, unless it has been printed for each one already.
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
            let flushed = journal.flush();
            let dropped = journal.dropped();
            if dropped > 0 {
                tell(&format!(
                    "mega: {dropped} lines of the journal were dropped: its reader was too slow"
                ));
            }
            flushed?;
        }
        let agents = self.agents.as_mut().map(|pages| {
            pages.look();
            (pages.sums(), pages.shown())
        });
        if let (Some(profiles), Some((_, shown))) = (&self.profiles, &agents) {
            if let Err(error) = profiles.learn(shown) {
                self.say(&format!("what was learned of the programs is not kept: {error:#}"));
            }
        }
        if self.quiet {
            return Ok(());
        }
        let agents = agents.map(|(sums, _)| sums);
        let text = if self.json {
            let mut value = summary_json(status);
            value["felt"] = felt_json(&self.felt_before);
            value["agents"] = agents.map(|sums| sums.to_json()).into();
            value.to_string()
        } else {
            summary(status) + &longest(&self.felt_before) + &agents.map(|sums| sums.to_text()).unwrap_or_default()
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
        match &line.event {
            Event::Outcome { pid, took_ns, .. } if *took_ns > 0 => self.felt.entry(*pid).or_default().note(&line.event),
            Event::Gone { pid } => self.say_felt(line.at, Some(*pid)),
            Event::Stop { .. } => {
                self.say_felt(line.at, None);
                self.say_agents(line.at);
            }
            _ => {}
        }
        if let Some(also) = &mut self.also {
            also.event(line);
        }
        if !self.repeats.as_mut().is_none_or(|repeats| repeats.is_news(&line.event)) {
            return;
        }
        let written = self.journal.as_mut().map(|journal| journal.write(line));
        self.complain(written);
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
        if matches!(line.event, Event::Scanned { .. }) {
            self.say_agents(line.at);
        }
    }

    /// A scan or an action is over: the next line may be an interval away.
    fn status(&mut self, status: &Status) {
        let written = self.journal.as_mut().map(JournalFile::hand_on);
        self.complain(written);
        if let Some(line) = &mut self.status {
            line.show(status);
        }
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

/// The summary in words.
fn summary(s: &Status) -> String {
    if s.scans == 0 {
        return "mega: over before the first scan".to_owned();
    }
    format!(
        "mega: {} promoted, {} demoted, {} not done; {} freed; {} scans in {}; \
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
    ) + &compacted(s)
        + &by_others(s)
        + &unscanned(s)
}

/// Regions that khugepaged, the programs or agents in them have collapsed.
fn by_others(s: &Status) -> String {
    match s.by_others {
        0 => String::new(),
        n => format!("; {n} collapsed by others"),
    }
}

/// Processes that the last scan could not read; why has been said.
fn unscanned(s: &Status) -> String {
    match s.unscanned {
        0 => String::new(),
        n => format!("; {n} processes not scanned"),
    }
}

/// The longest stall by one action.
fn longest(felt: &Felt) -> String {
    match felt.longest_ns {
        0 => String::new(),
        ns => format!("; longest stall {}", show_duration(Duration::from_nanos(ns))),
    }
}

/// The histogram of stalls for machines.
pub fn felt_json(felt: &Felt) -> Value {
    let under_us: Vec<Value> = felt.under_us().map(|(us, count)| json!([us, count])).collect();
    json!({
        "actions": felt.actions,
        "stall_ns": felt.stall_ns,
        "longest_ns": felt.longest_ns,
        "under_us": under_us,
    })
}

/// What proactive compaction made, if it ran.
fn compacted(s: &Status) -> String {
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
        "; {} free blocks made in {} {once}{chosen}, cpu {}",
        s.made.0,
        s.compactions,
        show_duration(s.compaction_cpu)
    )
}

/// The summary for machines.
fn summary_json(s: &Status) -> Value {
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "schema": 1,
        "kind": "summary",
        "scans": s.scans,
        "promoted": s.promoted,
        "demoted": s.demoted,
        "collapsed_by_others": s.by_others,
        "failed": s.failed,
        "returned_bytes": s.returned.0,
        "regions": s.regions,
        "huge_regions": s.huge,
        "unscanned_processes": s.unscanned,
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
}
