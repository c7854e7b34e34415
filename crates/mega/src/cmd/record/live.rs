//! Processes and commands: what is seen of them at each interval.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::budget::Budget;
use mega_core::host::{Host, HostEvent, Wake, Wants};
use mega_core::observe::{ProcessId, Snapshot};
use mega_core::units::{show_duration, Bytes, Time};
use mega_linux::host::{LinuxHost, Options, Roster};
use mega_linux::knobs::{Claims, STATE_FOLDER};
use mega_linux::proc::{maps, stat, ProcRoot};
use mega_linux::process::Process;
use mega_linux::scan::Scanner;
use mega_linux::sys::set_open_files_limit;
use mega_trace::{Header, Record, Writer};

use super::mappings::Mappings;
use super::output;
use crate::args::RecordArgs;
use crate::children::{self, Circumstances};
use crate::manage::{scanner_for, FamilyRoster};
use mega_cli::exit::{say, tell, Failure};
use mega_cli::recording::{cannot_write, create, header, nanos};
use mega_cli::signals::stop_on_signals;

/// A killed recorder loses no more than this of its trace.
const FLUSH: Duration = Duration::from_secs(1);
/// Part of one processor that reading contents may take: half of what a manager's scans may, by default.
const CONTENTS_PART: u32 = 20;

/// Records processes until they have ended, the time is over, or a signal comes.
pub fn processes(args: &RecordArgs, to: &Path) -> Result<()> {
    for &pid in &args.pids {
        Process::open(&ProcRoot::default(), pid)?;
    }
    let stop = stop_on_signals()?;
    let words: Vec<_> = args.pids.iter().map(ToString::to_string).collect();
    let recording = Recording::prepare(args, to, format!("PID {}", words.join(" ")))?;
    let done = recording.run(Box::new(FamilyRoster::of(args.pids.clone())), stop)?;
    if !done.anyone {
        return Err(match done.refused {
            Some(_) if !args.quiet => Failure::said(),
            Some(why) => anyhow::anyhow!(why),
            None => anyhow::anyhow!("nothing to record: every process ended before it could be looked at"),
        });
    }
    done.tell(args.quiet);
    Ok(())
}

/// Runs a command and records it and what comes of it. Exits with its status, or 125 to 127 when it did not come to that.
pub fn command(args: &RecordArgs) -> ExitCode {
    let prepared = || -> Result<_> {
        let signals = children::watch_signals()?;
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        Ok((signals, Recording::prepare(args, output(args)?, words.join(" "))?))
    };
    let (signals, recording) = match prepared() {
        Ok(prepared) => prepared,
        Err(error) => return Failure::status(Err(error), Failure::RUN_FAILED),
    };
    let within = Circumstances {
        open_files: Some(recording.open_files),
        ..Circumstances::default()
    };
    let running = match children::start(&args.command, signals, within) {
        Ok(running) => running,
        Err(failed) => {
            say(&failed.error);
            return ExitCode::from(failed.status);
        }
    };
    let stop = running.stop.try_clone().context("cannot record the command");
    let done = stop.and_then(|stop| recording.run(Box::new(FamilyRoster::below_us()), stop));
    // Whatever became of the recording: the command is said at once what went wrong, and waited for.
    if let Err(error) = &done {
        say(error);
    }
    let status = running.finish();
    match done {
        Ok(done) => {
            done.tell(args.quiet);
            ExitCode::from(status)
        }
        Err(_) => ExitCode::from(Failure::RUN_FAILED),
    }
}

/// A recording that is ready to sample: everything that can fail earlier has succeeded.
struct Recording {
    scanner: Box<dyn Scanner>,
    claims: Option<Claims>,
    file: BufWriter<File>,
    path: PathBuf,
    header: Header,
    interval: Duration,
    duration: Option<Duration>,
    quiet: bool,
    /// The soft limit of open files before it was raised.
    open_files: u64,
}

/// What a recording came to.
struct Done {
    scans: u64,
    processes: u64,
    records: u64,
    took: Duration,
    path: PathBuf,
    anyone: bool,
    refused: Option<String>,
}

impl Done {
    fn tell(&self, quiet: bool) {
        if !quiet {
            let size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
            tell(&format!(
                "mega: {}: {} records, {}; {} scans of {} processes in {}",
                self.path.display(),
                self.records,
                Bytes(size),
                self.scans,
                self.processes,
                show_duration(self.took),
            ));
        }
    }
}

impl Recording {
    fn prepare(args: &RecordArgs, to: &Path, command: String) -> Result<Self> {
        let open_files = set_open_files_limit(None).context("cannot raise the limit of open files")?;
        let (scanner, refused) = scanner_for(args.scanner)?;
        let note = |text: &str| {
            if !args.quiet {
                tell(&format!("mega: {text}"));
            }
        };
        for reason in refused {
            note(&format!("{reason}; using {}", scanner.name()));
        }
        if !scanner.sees_accessed() {
            note(&format!(
                "scanner {} cannot see which pages are accessed",
                scanner.name()
            ));
        }
        // A manager goes by the accessed bits that it cleared itself: whoever else clears them has to be alone with the process.
        let claims = args.age.then(|| Claims::open(STATE_FOLDER.as_ref())).transpose();
        Ok(Self {
            scanner,
            claims: claims.context("cannot open the list of managed processes")?,
            file: create(to)?,
            path: to.to_owned(),
            header: header(command, 0),
            interval: args.interval,
            duration: args.duration,
            quiet: args.quiet,
            open_files,
        })
    }

    fn run(self, roster: Box<dyn Roster>, stop: OwnedFd) -> Result<Done> {
        let cannot = || cannot_write(&self.path);
        let ages = self.claims.is_some();
        let wants = Wants {
            utilization: ages,
            // Other ways of reading contents than the eBPF scanner's set accessed bits, which is to touch the program.
            contents: self.scanner.name() == "ebpf",
            contents_cpu: self.interval / CONTENTS_PART,
        };
        let options = Options {
            root: ProcRoot::default(),
            stop: Some(stop),
            duration: self.duration,
            dry_run: false,
            contents: true,
            claims: self.claims,
            actuator: None,
            table: true,
        };
        let mut host = LinuxHost::new(self.scanner, roster, options);
        let mut tape = Tape::new(self.file, &self.header, host.now(), self.quiet).with_context(cannot)?;
        let mut flushed = Instant::now();
        loop {
            let tick = host.now();
            let seen = host.observe(&wants);
            // A look that was stopped may be incomplete.
            if host.is_stopped() {
                break;
            }
            tape.events(seen.at, host.events()).with_context(cannot)?;
            tape.scan(&seen).with_context(cannot)?;
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                tape.writer.flush().with_context(cannot)?;
            }
            // As a manager: cleared bits make pages look cold to reclaim, so not while it is at work.
            if ages && !Budget::default().under_pressure(&seen.machine) {
                tape.age(&mut host, &seen);
            }
            if host.wait(tick.after(self.interval)) == Wake::Stop {
                break;
            }
        }
        let (now, events) = (host.now(), host.events());
        tape.events(now, events).with_context(cannot)?;
        let took = now.since(tape.began);
        let done = Done {
            scans: tape.scans,
            processes: tape.processes,
            records: tape.writer.records(),
            took,
            anyone: host.seen_any(),
            refused: tape.refused,
            path: self.path.clone(),
        };
        tape.writer.finish().with_context(cannot)?;
        Ok(done)
    }
}

/// The trace under way.
struct Tape {
    writer: Writer<BufWriter<File>>,
    began: Time,
    recorded: BTreeMap<ProcessId, Mappings>,
    said: BTreeSet<&'static str>,
    quiet: bool,
    refused: Option<String>,
    scans: u64,
    processes: u64,
}

impl Tape {
    fn new(file: BufWriter<File>, header: &Header, began: Time, quiet: bool) -> std::io::Result<Self> {
        Ok(Self {
            writer: Writer::new(file, header)?,
            began,
            recorded: BTreeMap::new(),
            said: BTreeSet::new(),
            quiet,
            refused: None,
            scans: 0,
            processes: 0,
        })
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            tell(&format!("mega: {text}"));
        }
    }

    fn say_once(&mut self, key: &'static str, text: impl FnOnce() -> String) {
        if self.said.insert(key) {
            self.say(&text());
        }
    }

    /// Writes who came and went by this moment.
    fn events(&mut self, at: Time, events: Vec<HostEvent>) -> std::io::Result<()> {
        self.writer.write(&Record::Time(nanos(at.since(self.began))))?;
        for event in events {
            match event {
                HostEvent::Found(id, _) => self.found(id)?,
                HostEvent::Gone(id) => {
                    self.recorded.remove(&id);
                    self.writer.write(&Record::Process(id))?;
                    self.writer.write(&Record::Exit(id.pid))?;
                }
                HostEvent::Refused(pid, why) => {
                    let own = format!("process {pid}: ");
                    let text = format!(
                        "process {pid} is not recorded: {}",
                        why.strip_prefix(&own).unwrap_or(&why)
                    );
                    self.say(&text);
                    self.refused = Some(text);
                }
                HostEvent::Notice(text) => self.say(&text),
                HostEvent::Compacted(_) => {}
            }
        }
        Ok(())
    }

    /// A child of a process that is recorded was forked by it.
    fn found(&mut self, id: ProcessId) -> std::io::Result<()> {
        self.processes += 1;
        let parent = stat::read(&ProcRoot::default(), id.pid).ok().map(|stat| stat.ppid);
        let parent = self.recorded.keys().find(|known| Some(known.pid) == parent).copied();
        if let Some(parent) = parent {
            self.writer.write(&Record::Process(parent))?;
            self.writer.write(&Record::Fork(id.pid))?;
        }
        self.recorded.insert(id, Mappings::default());
        Ok(())
    }

    /// Writes what came and went of mappings, and then what was seen.
    fn scan(&mut self, seen: &Snapshot) -> std::io::Result<()> {
        for process in &seen.processes {
            match maps::read(&ProcRoot::default(), process.id.pid) {
                Ok(now) => self.mappings(process.id, &now)?,
                Err(error) if error.is_gone() => {}
                Err(error) => self.say_once("maps", || format!("what is mapped is not recorded: {error}")),
            }
        }
        self.scans += 1;
        self.writer.write(&Record::Scan(seen.machine))?;
        for process in &seen.processes {
            self.writer.write(&Record::Process(process.id))?;
            // Tables are read without a lock: what cannot be is left out, as the control loop does.
            for region in process.regions.iter().filter(|region| region.is_sane()) {
                self.writer.write(&Record::Region(*region))?;
            }
        }
        Ok(())
    }

    fn mappings(&mut self, id: ProcessId, now: &[maps::Mapping]) -> std::io::Result<()> {
        let changes = self.recorded.entry(id).or_default().update(now);
        if changes.mapped.is_empty() && changes.unmapped.is_empty() {
            return Ok(());
        }
        self.writer.write(&Record::Process(id))?;
        for (start, end) in changes.unmapped {
            let bytes = end - start;
            self.writer.write(&Record::Unmap { address: start, bytes })?;
        }
        for (start, end) in changes.mapped {
            let bytes = end - start;
            self.writer.write(&Record::Map { address: start, bytes })?;
        }
        Ok(())
    }

    /// Clears the accessed bits of all that was seen.
    fn age(&mut self, host: &mut LinuxHost, seen: &Snapshot) {
        for process in &seen.processes {
            let can = process.regions.iter().filter(|seen| seen.can.age);
            let regions: Vec<_> = can.map(|seen| seen.region).collect();
            if regions.is_empty() {
                continue;
            }
            let aged = host.age(process.id, &regions);
            if aged.regions == 0 && aged.refused > 0 {
                self.say_once("age", || {
                    format!(
                        "process {}: the kernel does not let its accessed bits be cleared",
                        process.id.pid
                    )
                });
            }
        }
    }
}
