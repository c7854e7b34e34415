//! `mega status`: what the daemon does.

use std::io::Write;

use anyhow::{Context, Result};
use mega_cli::text::printable;
use mega_core::units::Bytes;
use serde_json::Value as Json;

use crate::args::StatusArgs;
use crate::service::daemon;

/// Asks it.
pub fn run(args: &StatusArgs) -> Result<()> {
    let text = daemon::ask()?;
    let status: Json = serde_json::from_str(&text).context("the daemon's answer cannot be read")?;
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
        for process in list(&rule, "processes") {
            writeln!(
                out,
                "  {:>8}  {:<16} {:>9}  {}",
                word(&process, "pid"),
                word(&process, "comm"),
                Bytes(process["resident_bytes"].as_u64().unwrap_or(0)).to_string(),
                word(&process, "state")
            )?;
        }
    }
    Ok(())
}
