//! `mega record`: traces of processes and of texts; and what is in them. Built-in programs and Parquet are the lab's.
//!
//! | file | subject |
//! | --- | --- |
//! | `live` | processes and commands, by looking at them |
//! | `mappings` | which of a process's mappings came and went |
//! | `import` | text formats |
//! | `info` | what is in a trace |

mod import;
mod info;
mod live;
mod mappings;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use mega_cli::exit::Failure;
use mega_cli::hand_over::run_lab;

use crate::args::RecordArgs;

/// Records, or reads what was recorded.
pub fn run(args: &RecordArgs) -> ExitCode {
    let result = match (&args.info, args.import.as_deref()) {
        (Some(file), _) => info::run(file, args.json),
        (_, Some([format, file])) => output(args).and_then(|to| import::import(format, file, to, args.quiet)),
        _ if args.export.is_some() => run_lab("mega record --export", lab_words(args)),
        _ if args.workload.is_some() => run_lab("mega record --workload", lab_words(args)),
        _ if args.command.is_empty() => output(args).and_then(|to| live::processes(args, to)),
        _ => return live::command(args),
    };
    Failure::status(result, Failure::FAILED)
}

/// The command line for the lab: those options that concern it.
fn lab_words(args: &RecordArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["record".into()];
    let mut add = |option: &str, value: OsString| {
        let mut word = OsString::from(format!("--{option}="));
        word.push(value);
        words.push(word);
    };
    if let Some(name) = &args.workload {
        add("workload", name.into());
    }
    if let Some(options) = &args.options {
        add("options", options.into());
    }
    if let Some(output) = &args.output {
        add("output", output.into());
    }
    if let Some(duration) = args.duration {
        add("duration", format!("{}us", duration.as_micros()).into());
    }
    if args.quiet {
        words.push("--quiet".into());
    }
    if let Some(export) = &args.export {
        words.push("--export".into());
        words.extend(export.iter().map(|path| path.clone().into_os_string()));
    }
    words
}

/// Where the trace goes. The parser of the command line requires it.
fn output(args: &RecordArgs) -> Result<&Path> {
    let output = args.output.as_deref();
    output.ok_or_else(|| Failure::usage("say where to write the trace: -o FILE"))
}
