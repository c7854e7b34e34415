//! `mega run --policy lrbhps`: on a kernel with kernel/reservation the command asks for reservations, and the kernel decides
//! at its faults. There is nothing to scan, and no privilege is needed.

use std::process::ExitCode;

use anyhow::{Context, Result};
use mega_core::fault::{by_name, FaultPolicy};
use mega_core::units::Bytes;
use mega_linux::knobs::thp::{self, Mode};
use mega_linux::proc::ProcRoot;
use mega_linux::reservation::{self, Counters, MAX_THRESHOLD};
use mega_linux::sys::User;
use serde_json::json;

use crate::agent::start::without;
use crate::args::ManageOptions;
use crate::children::{self, Circumstances, Watched};
use mega_cli::exit::{say, tell, Failure};

/// The papers' systems that the kernel's mechanism covers, and their thresholds in populated base pages.
const PRESETS: [(&str, u32); 3] = [("lrbhps", 64), ("quicksilver-sync", 64), ("freebsd", MAX_THRESHOLD)];

/// What fault-time policies need, for an error.
pub const NEEDS: &str = "decides at page faults: it needs a kernel with kernel/reservation (docs/reservations.md) and \
                         `mega run`, or the simulator (`mega sim`)";

/// The threshold, where the policy is one that the kernel carries out.
///
/// # Errors
/// Where this kernel cannot, or an option makes no sense with it.
pub fn threshold(options: &ManageOptions) -> Result<Option<u32>> {
    let Some((name, of_paper)) = PRESETS.into_iter().find(|(name, _)| *name == options.policy) else {
        return Ok(None);
    };
    let threshold = chosen(name, of_paper, &options.set)?;
    match reservation::read(&ProcRoot::default()).context("cannot read the kernel's settings of reservations")? {
        Some(found) if found.is_allowed => {}
        Some(_) => {
            let why = "/sys/kernel/mm/transparent_hugepage/reserve/enabled is never; set it to process";
            return Err(anyhow::anyhow!("policy '{name}': {why}"));
        }
        None => return Err(Failure::usage(format!("policy '{name}' {NEEDS}"))),
    }
    if mode() == Some(Mode::Never) {
        let why = "faults reserve where they may map huge pages, and transparent_hugepage/enabled is never; set it to \
                   madvise or always";
        return Err(anyhow::anyhow!("policy '{name}': {why}"));
    }
    if options.journal.is_some() || options.dry_run || options.duration.is_some() {
        let why = "the kernel decides: --journal, --dry-run and --duration have no meaning";
        return Err(Failure::usage(format!("policy '{name}': {why}")));
    }
    Ok(Some(threshold))
}

/// Where faults may map huge pages, as far as that can be read.
fn mode() -> Option<Mode> {
    let thp = thp::read(&ProcRoot::default()).ok().flatten();
    thp.map(|thp| thp.huge_page_mode())
}

/// The threshold after `--set`: LRBHPS' `t` only, which the other two fix.
fn chosen(name: &str, of_paper: u32, sets: &[String]) -> Result<u32> {
    let mut threshold = of_paper;
    for set in sets {
        let value = set.strip_prefix("t=").filter(|_| name == "lrbhps").ok_or_else(|| {
            let there = if name == "lrbhps" { "t" } else { "none" };
            Failure::usage(format!(
                "policy '{name}' has no parameter '{set}' in the kernel (there are: {there})"
            ))
        })?;
        // The same bounds as in the simulator.
        let mut policy = by_name("lrbhps").context("no rules of LRBHPS")?;
        FaultPolicy::set(policy.as_mut(), "t", value).map_err(Failure::usage)?;
        threshold = value.parse().map_err(Failure::usage)?;
    }
    Ok(threshold)
}

/// Runs the command; exits with its status.
pub fn run(
    command: &[std::ffi::OsString],
    options: &ManageOptions,
    user: Option<User>,
    reserve: u32,
    signals: Watched,
) -> ExitCode {
    if !options.quiet && mode() == Some(Mode::Madvise) {
        tell("mega: transparent_hugepage/enabled is madvise: only memory that the command advises is reserved");
    }
    let root = ProcRoot::default();
    let before = reservation::counters(&root).unwrap_or_default();
    let within = Circumstances {
        user,
        open_files: None,
        reserve: Some(reserve),
        environment: without(),
        ..Circumstances::default()
    };
    let running = match children::start(command, signals, within) {
        Ok(running) => running,
        Err(failed) => {
            say(&failed.error);
            return ExitCode::from(failed.status);
        }
    };
    let status = running.finish();
    if !options.quiet {
        match reservation::counters(&root) {
            Ok(now) => tell(&summary(now.since(before), reserve, options.json)),
            Err(error) => say(&error.into()),
        }
    }
    ExitCode::from(status)
}

/// What came of it. The kernel counts for the machine.
fn summary(c: Counters, threshold: u32, as_json: bool) -> String {
    if as_json {
        return json!({
            "schema": 1,
            "kind": "reservations",
            "threshold_pages": threshold,
            "reserved": c.reserved,
            "without_block": c.without_block,
            "populated_pages": c.populated,
            "promoted": c.promoted,
            "released": c.released,
            "unpopulated_bytes": c.unpopulated_bytes,
        })
        .to_string();
    }
    format!(
        "mega: {} blocks reserved, {} mapped huge from {threshold} populated pages on, {} released, \
         {} faults without a free block (all of the machine)",
        c.reserved, c.promoted, c.released, c.without_block
    ) + &match c.unpopulated_bytes {
        0 => String::new(),
        bytes => format!("; {} still reserved", Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lrbhps_has_a_threshold_to_set_and_it_is_bounded() {
        let set = |name, of_paper, text: &str| chosen(name, of_paper, &[text.to_owned()]);
        assert_eq!(set("lrbhps", 64, "t=256").unwrap(), 256);
        assert_eq!(chosen("freebsd", 512, &[]).unwrap(), 512);
        for (name, text) in [
            ("lrbhps", "t=0"),
            ("lrbhps", "t=513"),
            ("lrbhps", "idle=5s"),
            ("freebsd", "t=64"),
        ] {
            assert!(set(name, 64, text).is_err(), "{name} {text}");
        }
    }

    #[test]
    fn the_summary_fits_its_counters() {
        let counters = Counters {
            reserved: 9,
            promoted: 7,
            unpopulated_bytes: 2 << 20,
            ..Counters::default()
        };
        let text = summary(counters, 64, false);
        assert!(
            text.contains("9 blocks reserved, 7 mapped huge from 64") && text.ends_with("2.0M still reserved"),
            "{text}"
        );
        assert!(summary(counters, 64, true).contains("\"unpopulated_bytes\":2097152"));
    }
}
