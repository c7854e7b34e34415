//! What `mega sim` reads: files of bounded length, options of workloads, traces of any format.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use mega_core::units::{parse_duration, Bytes, Share};
use mega_sim::cost::Costs;
use mega_sim::machine::Machine;
use mega_sim::trace::{Replay, ReplayOptions};
use mega_sim::workload::{Program, Spec, NAMES};
use mega_trace::{LackeyReader, Reader, TextReader, Visits};
use serde_json::Value;

use mega_cli::exit::Failure;

/// A scenario or a sweep is no longer.
const MOST_BYTES: u64 = 4 << 20;

/// Reads a file as text; `-` is standard input.
pub fn read(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let mut text = String::new();
    let mut take = |from: &mut dyn Read| from.take(MOST_BYTES + 1).read_to_string(&mut text);
    let bytes = if path == Path::new("-") {
        take(&mut std::io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| take(&mut file))
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    if bytes as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("{name}: more than 4 MB")));
    }
    Ok(text)
}

/// A workload with options `KEY=VALUE`. Sizes, times and shares may be written as elsewhere: `mib=4G`, `time_ns=20s`, `share=50%`.
pub fn workload(name: &str, set: &[String]) -> Result<Spec> {
    let spec = Spec::named(name)
        .ok_or_else(|| Failure::usage(format!("no workload '{name}'; there are {}", NAMES.join(", "))))?;
    let mut options = serde_json::to_value(&spec)?;
    for pair in set {
        let (key, text) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("'{pair}' is not KEY=VALUE")))?;
        let known = options.as_object().into_iter().flat_map(|all| all.keys());
        let known: Vec<&str> = known.map(String::as_str).filter(|key| *key != "program").collect();
        if !known.contains(&key) {
            let why = format!("workload {name} has no option '{key}' (it has: {})", known.join(", "));
            return Err(Failure::usage(why));
        }
        options[key] = value(key, text).map_err(|why| Failure::usage(format!("workload {name}: {key}: {why}")))?;
    }
    serde_json::from_value(options).map_err(|e| Failure::usage(format!("workload {name}: {e}")))
}

/// A value as JSON writes it, or by what the key is counted in.
fn value(key: &str, text: &str) -> Result<Value, String> {
    if let Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) = serde_json::from_str(text) {
        return Ok(value);
    }
    let in_units = |unit: u64| {
        let bytes = text.parse::<Bytes>().map_err(|e| e.to_string())?.0;
        match bytes % unit {
            0 => Ok(Value::from(bytes / unit)),
            _ => Err(format!("'{text}' is no multiple of {}", Bytes(unit))),
        }
    };
    match key {
        _ if key.ends_with("_ns") => {
            let time = parse_duration(text).map_err(|e| e.to_string())?;
            Ok(Value::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
        }
        _ if key == "mib" || key.ends_with("_mib") => in_units(1 << 20),
        _ if key == "kib" || key.ends_with("_kib") => in_units(1 << 10),
        _ if key.ends_with("_bytes") => in_units(1),
        _ => {
            let share = text
                .parse::<Share>()
                .map_err(|_| format!("'{text}' is no number, share, true or false"))?;
            Ok(Value::from(share.fraction()))
        }
    }
}

/// A trace as a program. Its format is told by its first bytes: the binary one's magic, Valgrind's marks, or else text.
/// `scans`: what its scans saw is done, not its accesses.
pub fn trace(path: &Path, scans: bool, asked: ReplayOptions) -> Result<Box<dyn Program<Machine>>> {
    let name = || format!("trace {}", path.display());
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut file = BufReader::new(file);
    let first = file.fill_buf().with_context(name)?;
    let options = |map_unknown| ReplayOptions {
        map_unknown,
        keep_times: asked.keep_times || scans,
        ..asked
    };
    let marks = ["==", "I  ", " L ", " S ", " M "];
    let is_valgrind = marks.iter().any(|mark| first.starts_with(mark.as_bytes()));
    if first.starts_with(b"MEGATRACE") {
        let reader = Reader::new(file).with_context(name)?;
        if scans {
            let visits = Visits::new(reader, asked.process);
            // It has records of one process only, and no word of which.
            let options = ReplayOptions {
                process: None,
                ..options(false)
            };
            return Ok(Box::new(Replay::new(visits, options)));
        }
        return Ok(Box::new(Replay::new(reader, options(false))));
    }
    if scans {
        let error = format!("{}: only a binary recording has scans", path.display());
        return Err(Failure::usage(error));
    }
    if is_valgrind {
        // It has no mappings in it.
        return Ok(Box::new(Replay::new(LackeyReader::new(file, false), options(true))));
    }
    Ok(Box::new(Replay::new(TextReader::new(file), options(false))))
}

/// Costs that `mega sim calibrate` wrote.
pub fn costs(path: &Path) -> Result<Costs> {
    Costs::from_json(&read(path)?).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, options: &[&str]) -> Result<Value, String> {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let spec = workload(name, &options).map_err(|e| e.to_string())?;
        Ok(serde_json::to_value(spec).unwrap())
    }

    #[test]
    fn options_are_numbers_or_written_as_people_do() {
        let gups = set("gups", &["mib=4G", "time_ns=1.5s", "advise=true", "updates=7"]).unwrap();
        assert_eq!(
            (&gups["mib"], &gups["time_ns"], &gups["advise"], &gups["updates"]),
            (&4096.into(), &1_500_000_000u64.into(), &true.into(), &7.into())
        );
        let store = set("store", &["share=25%", "value_bytes=4K", "dense_mib=64"]).unwrap();
        assert_eq!(
            (&store["share"], &store["value_bytes"], &store["dense_mib"]),
            (&0.25.into(), &4096.into(), &64.into())
        );
        assert_eq!(
            set("gups", &["updates=5", "updates=null"]).unwrap()["updates"],
            Value::Null
        );
    }

    #[test]
    fn what_makes_no_sense_is_said_with_the_option() {
        for (name, option, words) in [
            ("gusp", "mib=1", "no workload 'gusp'; there are gups"),
            ("gups", "mib", "KEY=VALUE"),
            ("gups", "mob=1", "no option 'mob' (it has: "),
            ("gups", "program=touch", "no option 'program'"),
            ("gups", "mib=1K", "mib: '1K' is no multiple of 1.0M"),
            ("gups", "mib=-1", "-1"),
            ("gups", "mib=lots", "mib: "),
            ("gups", "time_ns=soon", "time_ns: "),
            ("gups", "advise=maybe", "advise: 'maybe'"),
            ("gups", "advise=3", "gups: invalid type"),
        ] {
            let error = set(name, &[option]).unwrap_err();
            assert!(error.contains(words), "{option}: {error}");
        }
    }

    #[test]
    fn a_trace_is_told_by_its_first_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        for (text, is_right) in [
            ("map 0x200000 4096\nr 0x200000\n", true),
            ("==1== Lackey\n L 1000,8\n", true),
            ("MEGATRACE", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                trace(&path, false, ReplayOptions::default()).is_ok(),
                is_right,
                "{text}"
            );
        }
        let error = trace(&folder.path().join("none"), false, ReplayOptions::default())
            .err()
            .unwrap();
        assert!(error.to_string().starts_with("cannot read "));
    }
}
