//! `mega status`: what the daemon does.

use std::io::Write;

use anyhow::Result;
use mega_cli::text::printable;
use mega_core::units::Bytes;
use serde_json::Value as Json;

use crate::args::StatusArgs;
use crate::service::daemon;

/// Asks it.
pub fn run(args: &StatusArgs) -> Result<()> {
    let status = daemon::ask()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{status}")?;
        return Ok(());
    }
    let word = |of: &Json, key: &str| match &of[key] {
        Json::String(text) => printable(text).to_string(),
        other => other.to_string(),
    };
    let list = |of: &Json, key: &str| of[key].as_array().cloned().unwrap_or_default();
    writeln!(
        out,
        "daemon {}, up {} s, {} reloads{}",
        word(&status, "daemon"),
        word(&status, "up_seconds"),
        word(&status, "reloads"),
        if status["dry_run"] == true { ", dry run" } else { "" }
    )?;
    for line in list(&status, "last_reload_refused") {
        writeln!(
            out,
            "last reload refused: {}",
            printable(line.as_str().unwrap_or_default())
        )?;
    }
    for rule in list(&status, "rules") {
        let scans = rule["scans"]
            .as_u64()
            .map_or_else(String::new, |scans| format!(", {scans} scans"));
        writeln!(
            out,
            "\n{}: policy {}{scans} ({})",
            word(&rule, "name"),
            word(&rule, "policy"),
            word(&rule, "from")
        )?;
        if let (Some(share), Some(missed)) = (rule["guarantee"].as_f64(), rule["guarantee_missed"].as_object()) {
            let missed: Vec<String> = missed
                .iter()
                .map(|(pid, why)| format!("{} ({})", printable(pid), printable(why.as_str().unwrap_or_default())))
                .collect();
            let missed = match missed.is_empty() {
                true => "kept".to_owned(),
                false => format!("missed by process {}", missed.join(", ")),
            };
            writeln!(out, "  guarantee {:.0}%: {missed}", 100.0 * share)?;
        }
        let processes = list(&rule, "processes");
        if !processes.is_empty() {
            writeln!(out, "{HEAD}")?;
        }
        for process in &processes {
            writeln!(out, "{}", row(process))?;
        }
    }
    Ok(())
}

const HEAD: &str = "       PID  COMMAND           RESIDENT  COVERAGE     WASTE  PROMOTED  DEMOTED   STALL  STATE";

/// A process: what is not known of it is a dash.
fn row(process: &Json) -> String {
    let text = |key: &str| printable(process[key].as_str().unwrap_or("-")).to_string();
    let bytes = |key: &str| {
        process[key]
            .as_u64()
            .map_or("-".to_owned(), |bytes| Bytes(bytes).to_string())
    };
    let count = |key: &str| process[key].as_u64().map_or("-".to_owned(), |count| count.to_string());
    let percent = |key: &str, digits: usize| {
        let share = process[key].as_f64();
        share.map_or("-".to_owned(), |share| format!("{:.digits$}%", 100.0 * share))
    };
    let refusals = process["refusals"].as_object().into_iter().flatten();
    let waits: Vec<String> = refusals
        .map(|(why, times)| format!("{} x{times}", printable(why)))
        .collect();
    let waits = match waits.is_empty() {
        true => String::new(),
        false => format!("; refused: {}", waits.join(", ")),
    };
    format!(
        "  {:>8}  {:<16} {:>9}  {:>8} {:>9}  {:>8} {:>8}  {:>6}  {}{waits}",
        count("pid"),
        text("comm"),
        bytes("resident_bytes"),
        percent("coverage", 0),
        bytes("waste_bytes"),
        count("promotions"),
        count("demotions"),
        percent("stall", 2),
        text("state"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_stands_below_its_heads_and_what_is_unknown_is_a_dash() {
        let known = row(&json!({
            "pid": 4711, "comm": "redis-server", "resident_bytes": 263 << 20, "coverage": 0.954, "waste_bytes": 2 << 20,
            "promotions": 126, "demotions": 0, "stall": 0.0031, "state": "managed", "refusals": {"pressure": 2},
        }));
        assert!(known.ends_with("managed; refused: pressure x2"), "{known}");
        let new = row(&json!({"pid": 1, "comm": "a\u{1b}]0;x", "resident_bytes": 4096, "state": "too small"}));
        assert!(!new.contains('\u{1b}') && new.matches(" -").count() == 5, "{new}");
        for (head, value) in [
            ("RESIDENT", "263M"),
            ("COVERAGE", "95%"),
            ("PROMOTED", "126"),
            ("STALL", "0.31%"),
        ] {
            let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
            assert_eq!(end(HEAD, head), end(&known, value), "{known}");
        }
    }
}
