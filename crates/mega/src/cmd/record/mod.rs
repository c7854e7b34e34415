//! `mega record`: traces, from wherever: processes, built-in programs, texts; and what is in them.
//!
//! | file | subject |
//! | --- | --- |
//! | `live` | processes and commands, by looking at them |
//! | `mappings` | what of a process's mappings came and went |
//! | `convert` | built-in programs, text formats, Parquet |
//! | `info` | what is in a trace |

mod convert;
mod info;
mod live;
mod mappings;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use mega_linux::proc::ProcRoot;
use mega_sim::trace::{Header, Reader};

use crate::args::RecordArgs;
use crate::exit::Failure;

/// Records, or reads what was recorded.
pub fn run(args: &RecordArgs) -> ExitCode {
    let result = match (
        &args.info,
        args.export.as_deref(),
        args.import.as_deref(),
        &args.workload,
    ) {
        (Some(file), ..) => info::run(file, args.json),
        (_, Some([tables, file]), ..) => convert::export(tables, file),
        (.., Some([format, file]), _) => output(args).and_then(|to| convert::import(format, file, to, args.quiet)),
        (.., Some(name)) => output(args).and_then(|to| convert::workload(name, args, to)),
        _ if args.command.is_empty() => output(args).and_then(|to| live::processes(args, to)),
        _ => return live::command(args),
    };
    Failure::status(result, Failure::FAILED)
}

/// Where the trace goes. The parser of the command line has seen to it that there is one.
fn output(args: &RecordArgs) -> Result<&Path> {
    let output = args.output.as_deref();
    output.ok_or_else(|| Failure::usage("say where to write the trace: -o FILE"))
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| cannot_write(path))?;
    Ok(BufWriter::new(file))
}

/// Whole nanoseconds, as traces have them.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Begins to read a trace.
fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Reader::new(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// The header of a trace that is made here. Nothing of it names the machine.
fn header(command: String, seed: u64) -> Header {
    let machine = mega_lab::measure::machine::describe(&ProcRoot::default());
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    Header {
        machine: format!("{}, {} processors, {gib:.1} GB", machine.processor, machine.processors),
        kernel: machine.kernel,
        command,
        seed,
    }
}
