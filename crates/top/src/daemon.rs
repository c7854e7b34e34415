//! The daemon's status, as `mega status --json` gives it.
//!
//! Asked through the command, not the socket: the JSON is documented, how it travels is the daemon's own affair. Keys that a daemon does not
//! have are unknown figures.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mega_cli::hand_over;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use serde_json::Value as Json;

use crate::figures::Figures;

/// The longest time that an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest answer.
const ANSWER_BYTES: usize = 64 << 20;

/// A process that the daemon knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// The rule.
    pub rule: String,
    /// The rule's policy.
    pub policy: String,
    /// What it does with it.
    pub state: String,
    /// Figures that only the daemon has.
    pub figures: Figures,
    /// Why it did not do more: reasons and how often.
    pub refusals: Vec<(String, u64)>,
}

/// The daemon.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Daemon {
    /// Its process.
    pub pid: u64,
    /// Seconds since its start.
    pub up_seconds: u64,
    /// How many rules are in force.
    pub rules: usize,
    /// It only watches.
    pub dry_run: bool,
    /// Why the last reload was refused.
    pub refused: Vec<String>,
    /// The processes under rules.
    pub processes: BTreeMap<u32, Known>,
}

/// Reads a status.
///
/// # Errors
/// It is not the daemon's.
pub fn parse(text: &str) -> Result<Daemon, String> {
    let status: Json = serde_json::from_str(text).map_err(|error| format!("the daemon's answer: {error}"))?;
    if status["kind"] != "status" {
        return Err("the daemon's answer is no status".to_string());
    }
    let list = |of: &Json, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let word = |of: &Json, key: &str| of[key].as_str().unwrap_or_default().to_string();
    let rules = list(&status, "rules");
    let mut processes = BTreeMap::new();
    for rule in &rules {
        for process in list(rule, "processes") {
            let Some(pid) = process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()) else {
                continue;
            };
            let known = Known {
                rule: word(rule, "name"),
                policy: word(rule, "policy"),
                state: word(&process, "state"),
                figures: figures(&process),
                refusals: refusals(&process),
            };
            processes.insert(pid, known);
        }
    }
    Ok(Daemon {
        pid: status["daemon"].as_u64().unwrap_or(0),
        up_seconds: status["up_seconds"].as_u64().unwrap_or(0),
        rules: rules.len(),
        dry_run: status["dry_run"] == true,
        refused: list(&status, "last_reload_refused")
            .iter()
            .filter_map(Json::as_str)
            .map(str::to_string)
            .collect(),
        processes,
    })
}

fn figures(process: &Json) -> Figures {
    Figures {
        resident_bytes: process["resident_bytes"].as_u64().unwrap_or(0),
        huge_bytes: process["huge_bytes"].as_u64(),
        waste_bytes: process["waste_bytes"].as_u64(),
        qualifies_bytes: None,
        gain: process["gain"].as_f64(),
        stall: process["stall"].as_f64(),
        promotions: process["promotions"].as_u64(),
        demotions: process["demotions"].as_u64(),
    }
}

fn refusals(process: &Json) -> Vec<(String, u64)> {
    let of = process["refusals"].as_object();
    let mut list: Vec<(String, u64)> = of
        .into_iter()
        .flatten()
        .filter_map(|(reason, count)| Some((reason.clone(), count.as_u64().filter(|n| *n > 0)?)))
        .collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list
}

/// Asks the daemon.
///
/// # Errors
/// None runs, it is not ours to ask, or it does not answer in time; in a line.
pub fn ask() -> Result<Daemon, String> {
    let program = hand_over::find("mega").ok_or("the command mega is neither beside mega-top nor in PATH")?;
    parse(&answer(Command::new(program).args(["status", "--json"]))?)
}

/// What a command prints, or the line that it says when it fails.
fn answer(command: &mut Command) -> Result<String, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("mega status: {error}"))?;
    let result = match (child.stdout.take(), child.stderr.take()) {
        (Some(mut out), Some(mut said)) => {
            let until = Instant::now() + ANSWER_WITHIN;
            // What it says is a line: the pipe holds it.
            read_until(&mut out, until).map(|text| (text, said_line(&mut said, until)))
        }
        _ => Err("mega status has no output".to_string()),
    };
    if result.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("mega status: {error}"))?;
    match result? {
        (text, _) if status.success() => Ok(text),
        (_, line) => Err(line),
    }
}

fn said_line(said: &mut (impl Read + std::os::fd::AsFd), until: Instant) -> String {
    let text = read_until(said, until).unwrap_or_default();
    let line = text.lines().next().unwrap_or("mega status has failed");
    line.strip_prefix("mega: ").unwrap_or(line).to_string()
}

fn read_until(from: &mut (impl Read + std::os::fd::AsFd), until: Instant) -> Result<String, String> {
    let mut text = Vec::new();
    let mut part = [0; 1 << 16];
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
        let ready = poll(&mut [PollFd::new(&*from, PollFlags::IN)], Some(&left));
        match ready {
            Ok(0) => return Err("the daemon does not answer in time".to_string()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(format!("mega status: {error}")),
            Ok(_) => {}
        }
        match from.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(read) if text.len() + read <= ANSWER_BYTES => text.extend_from_slice(&part[..read]),
            Ok(_) => return Err("the daemon's answer is too long".to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("mega status: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn today_s_status_is_read_and_figures_that_it_lacks_are_unknown() {
        let text = r#"{"schema":1,"kind":"status","daemon":7,"up_seconds":9,"dry_run":false,"last_reload_refused":["a.toml:1:2: no"],
            "rules":[{"name":"redis","policy":"mega","processes":[{"pid":42,"comm":"r","resident_bytes":5,"state":"managed"}]}]}"#;
        let daemon = parse(text).unwrap();
        assert_eq!((daemon.pid, daemon.up_seconds, daemon.rules), (7, 9, 1));
        assert_eq!(daemon.refused, ["a.toml:1:2: no"]);
        let known = &daemon.processes[&42];
        assert_eq!(
            (known.rule.as_str(), known.policy.as_str(), known.state.as_str()),
            ("redis", "mega", "managed")
        );
        assert_eq!((known.figures.huge_bytes, known.figures.gain), (None, None));
    }

    #[test]
    fn figures_and_reasons_that_a_status_has_are_read_the_most_frequent_first() {
        let text = r#"{"kind":"status","rules":[{"processes":[{"pid":1,"huge_bytes":3,"waste_bytes":4,"stall":0.01,"promotions":8,
            "refusals":{"no free block":2,"budget":9,"none":0}},{"pid":-1},{"pid":99999999999}]}]}"#;
        let daemon = parse(text).unwrap();
        assert_eq!(daemon.processes.len(), 1);
        let known = &daemon.processes[&1];
        assert_eq!(
            known.refusals,
            [("budget".to_string(), 9), ("no free block".to_string(), 2)]
        );
        assert_eq!(
            (known.figures.waste_bytes, known.figures.stall, known.figures.promotions),
            (Some(4), Some(0.01), Some(8))
        );
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for bad in ["", "{", "[]", "null", "{\"kind\":\"show\"}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_command_that_fails_says_why_and_one_that_hangs_is_ended() {
        let run = |script: &str| answer(Command::new("sh").args(["-c", script]));
        assert_eq!(run("echo yes"), Ok("yes\n".to_string()));
        assert_eq!(
            run("echo 'mega: no daemon runs' >&2; exit 1"),
            Err("no daemon runs".to_string())
        );
        let began = Instant::now();
        assert_eq!(
            run("exec sleep 60"),
            Err("the daemon does not answer in time".to_string())
        );
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
