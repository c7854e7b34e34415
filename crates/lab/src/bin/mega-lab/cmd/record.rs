//! `mega record --workload` and `--export`: traces of built-in programs, and Parquet tables of traces.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use mega_core::observe::ProcessId;
use mega_core::units::Bytes;
use mega_sim::trace::{export as to_tables, Recorder};
use mega_sim::workload::{CountingMemory, Memory, Progress, Spec, NAMES};
use mega_trace::Record;
use serde_json::{Map, Value};

use crate::args::RecordArgs;
use mega_cli::exit::{tell, Failure};
use mega_cli::recording::{cannot_write, create, header, nanos, open, size_of};
use mega_cli::signals::stop_on_signals;
use mega_cli::signals::stopped;

/// What an access takes in the program's own time: about one that misses the processor's first cache. Only programs that go by the clock
/// depend on it.
const ACCESS_NS: u64 = 5;
/// Signals are looked for after so much of the program's time, in ns.
const STEP_NS: u64 = 1_000_000;

/// Records a program, or exports a trace.
pub fn run(args: &RecordArgs) -> Result<()> {
    match (args.export.as_deref(), &args.workload, args.output.as_deref()) {
        (Some([tables, file]), ..) => export(tables, file),
        (_, Some(name), Some(to)) => workload(name, args, to),
        _ => Err(Failure::usage("say what to record or to export")),
    }
}

type Tape = Recorder<CountingMemory, BufWriter<File>>;

/// Runs a built-in program on a memory that only counts, and writes down what it accesses.
fn workload(name: &str, args: &RecordArgs, to: &Path) -> Result<()> {
    let spec = spec(name, args.options.as_deref())?;
    let mut program = spec.build::<Tape>().map_err(Failure::usage)?;
    let options = program.parameters();
    let seed = options.get("seed").and_then(Value::as_u64).unwrap_or(0);
    let stop = stop_on_signals()?;
    let cannot = || cannot_write(to);
    let memory = CountingMemory::with_touch_ns(ACCESS_NS);
    let mut tape =
        Recorder::new(memory, create(to)?, &header(format!("{name} {options}"), seed)).with_context(cannot)?;
    tape.note(&Record::Process(ProcessId { pid: 1, started: 0 }));
    let end_ns = args.duration.map_or(u64::MAX, nanos);
    let mut ended = Ok(());
    while tape.now_ns() < end_ns && !tape.has_failed() && !stopped(&stop, Duration::ZERO) {
        let until_ns = tape.now_ns().saturating_add(STEP_NS).min(end_ns);
        match program.step(&mut tape, until_ns) {
            Ok(Progress::Ran) => {}
            Ok(Progress::Sleeps(wakes_ns)) if wakes_ns < end_ns => {
                tape.memory().wait_until(wakes_ns);
                tape.note_time();
            }
            Ok(Progress::Sleeps(_) | Progress::Done) => break,
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    tape.note_time();
    let records = tape.records();
    let (memory, _) = tape.finish().with_context(cannot)?;
    ended.with_context(|| name.to_string())?;
    if !args.quiet {
        tell(&format!(
            "mega: {}: {} accesses of {} in {records} records, {}",
            to.display(),
            memory.touches(),
            Bytes(memory.resident_pages() * mega_core::units::BASE_PAGE_BYTES),
            size_of(to),
        ));
    }
    Ok(())
}

/// The program of this name with these options.
fn spec(name: &str, options: Option<&str>) -> Result<Spec> {
    if !NAMES.contains(&name) {
        let error = format!("no built-in program '{name}' (there are: {})", NAMES.join(", "));
        return Err(Failure::usage(error));
    }
    let wrong = |why: String| Failure::usage(format!("--options of {name}: {why}"));
    let mut fields: Map<String, Value> = match options {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?,
    };
    if fields.insert("program".into(), name.into()).is_some() {
        return Err(wrong("a field 'program', which is given by --workload".into()));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|e| wrong(e.to_string()))
}

/// Makes Parquet tables of a trace: `TABLES.parquet` names `TABLES.accesses.parquet` and so on.
fn export(tables: &Path, from: &Path) -> Result<()> {
    let mut reader = open(from)?;
    let stem = tables.with_extension("");
    if tables.extension().is_none_or(|e| e != "parquet") || stem.file_name().is_none() {
        let error = format!("'{}' is no name for tables: say NAME.parquet", tables.display());
        return Err(Failure::usage(error));
    }
    let path_of = |table: &str| {
        let mut name = stem.clone().into_os_string();
        name.push(format!(".{table}.parquet"));
        PathBuf::from(name)
    };
    let mut begin = |table: &'static str| Ok(BufWriter::new(File::create(path_of(table))?));
    let written =
        to_tables(&mut reader, &mut begin).with_context(|| format!("{} to {}", from.display(), tables.display()))?;
    if written.is_empty() {
        tell(&format!("mega: {} holds nothing: no table is made", from.display()));
    }
    for (table, rows) in written {
        let path = path_of(table);
        tell(&format!("mega: {}: {rows} rows, {}", path.display(), size_of(&path)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_built_in_program_are_checked() {
        assert!(spec("gups", None).is_ok() && spec("gups", Some(r#"{"mib": 7}"#)).is_ok());
        for (name, options, why) in [
            ("gusp", None, "gups"),
            ("gups", Some("{"), "--options"),
            ("gups", Some("[]"), "--options"),
            ("gups", Some(r#"{"mob": 7}"#), "mob"),
            ("gups", Some(r#"{"mib": -7}"#), "mib"),
            ("gups", Some(r#"{"program": "kv"}"#), "program"),
        ] {
            let error = spec(name, options).unwrap_err().to_string();
            assert!(error.contains(why) || why == "mib", "{error}");
        }
    }
}
