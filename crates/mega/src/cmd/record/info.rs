//! What is in a trace.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use mega_core::observe::ProcessId;
use mega_core::units::{show_duration, Bytes, Time};
use mega_trace::{Header, Record, Source, TraceError};
use serde_json::json;

use mega_cli::recording::open;

/// Processes that are told apart; of others there is the count of records only.
const MOST_PROCESSES: usize = 4096;
/// Processes that are listed for people.
const LISTED: usize = 12;

/// The kinds of records, in the order in which they are shown.
const KINDS: [&str; 13] = [
    "time", "process", "map", "unmap", "remap", "advise", "fork", "exit", "work", "access", "run", "scan", "region",
];

fn kind(record: &Record) -> usize {
    match record {
        Record::Time(_) => 0,
        Record::Process(_) => 1,
        Record::Map { .. } => 2,
        Record::Unmap { .. } => 3,
        Record::Remap { .. } => 4,
        Record::Advise { .. } => 5,
        Record::Fork(_) => 6,
        Record::Exit(_) => 7,
        Record::Work(_) => 8,
        Record::Touch { .. } => 9,
        Record::Run { .. } => 10,
        Record::Scan(_) => 11,
        Record::Region(_) => 12,
    }
}

/// Sums of a trace.
#[derive(Debug, Default)]
struct Info {
    records: u64,
    kinds: [u64; KINDS.len()],
    accesses: u64,
    times: Option<(u64, u64)>,
    processes: BTreeMap<ProcessId, u64>,
    is_more: bool,
}

impl Info {
    /// Reads to the end, or to what is wrong.
    fn of(source: &mut impl Source) -> (Self, Option<TraceError>) {
        let mut info = Self::default();
        let mut process = None;
        loop {
            match source.next_record() {
                Ok(Some(record)) => info.add(&record, &mut process),
                Ok(None) => return (info, None),
                Err(error) => return (info, Some(error)),
            }
        }
    }

    fn add(&mut self, record: &Record, process: &mut Option<ProcessId>) {
        self.records += 1;
        self.kinds[kind(record)] += 1;
        match record {
            Record::Time(ns) => {
                let (first, last) = self.times.unwrap_or((*ns, *ns));
                self.times = Some((first.min(*ns), last.max(*ns)));
            }
            Record::Touch { .. } => self.accesses += 1,
            Record::Run { count, .. } => self.accesses += count,
            Record::Process(id) => {
                *process = Some(*id);
                let is_known = self.processes.contains_key(id);
                self.is_more |= !is_known && self.processes.len() >= MOST_PROCESSES;
                if is_known || !self.is_more {
                    self.processes.entry(*id).or_default();
                }
                return;
            }
            _ => {}
        }
        // Times and scans are of the whole machine.
        if !matches!(record, Record::Time(_) | Record::Scan(_)) {
            if let Some(count) = process.and_then(|id| self.processes.get_mut(&id)) {
                *count += 1;
            }
        }
    }
}

/// Says what is in a trace. One that is damaged is told as far as it goes, and then is a failure.
pub fn run(path: &Path, json: bool) -> Result<()> {
    let mut reader = open(path)?;
    let header = reader.header().clone();
    let (info, error) = Info::of(&mut reader);
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", to_json(&header, &info, bytes, error.as_ref()))?;
    } else {
        write!(out, "{}", to_text(&header, &info, bytes, error.is_none()))?;
    }
    error.map_or(Ok(()), Err).with_context(|| path.display().to_string())
}

fn to_text(header: &Header, info: &Info, bytes: u64, is_whole: bool) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("{name:<10} {value}\n");
        }
    };
    line("machine", &header.machine);
    line("kernel", &header.kernel);
    line("command", &header.command);
    if header.seed != 0 {
        line("seed", &header.seed.to_string());
    }
    let end = if is_whole { "" } else { " up to where it is damaged" };
    line("records", &format!("{} in {}{end}", info.records, Bytes(bytes)));
    if let Some((first, last)) = info.times {
        let span = show_duration(Time(last).since(Time(first)));
        line("time", &format!("{span}, from {} to {} s", Time(first), Time(last)));
    }
    if info.accesses > 0 {
        line("accesses", &info.accesses.to_string());
    }
    let kinds = KINDS.iter().zip(info.kinds).filter(|(_, n)| *n > 0);
    for (i, (kind, n)) in kinds.enumerate() {
        line(if i == 0 { "of these" } else { "" }, &format!("{n:>12} {kind}"));
    }
    let more = if info.is_more { " at least" } else { "" };
    for (i, (id, n)) in info.processes.iter().take(LISTED).enumerate() {
        let name = if i == 0 { "processes" } else { "" };
        line(name, &format!("{n:>12} of {} (started {})", id.pid, id.started));
    }
    if info.processes.len() > LISTED {
        line(
            "",
            &format!("and {}{more} more processes", info.processes.len() - LISTED),
        );
    }
    text
}

fn to_json(header: &Header, info: &Info, bytes: u64, error: Option<&TraceError>) -> serde_json::Value {
    let kinds: serde_json::Map<_, _> = KINDS
        .iter()
        .zip(info.kinds)
        .map(|(kind, n)| ((*kind).to_string(), n.into()))
        .collect();
    let processes: Vec<_> = info
        .processes
        .iter()
        .map(|(id, records)| json!({"pid": id.pid, "started": id.started, "records": records}))
        .collect();
    json!({
        "schema": 1,
        "kind": "trace",
        "machine": header.machine,
        "kernel": header.kernel,
        "command": header.command,
        "seed": header.seed,
        "file_bytes": bytes,
        "whole": error.is_none(),
        "error": error.map(ToString::to_string),
        "records": info.records,
        "kinds": kinds,
        "accesses": info.accesses,
        "first_ns": info.times.map(|(first, _)| first),
        "last_ns": info.times.map(|(_, last)| last),
        "processes": processes,
        "more_processes": info.is_more,
    })
}
