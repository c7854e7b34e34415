//! The machine's settings with undo, and whether managing can work here.

use anyhow::{Context, Result};
use mega_linux::capabilities::{Availability, Finding};
use mega_linux::knobs::{Knobs, Restored, STATE_FOLDER};
use mega_linux::proc::ProcRoot;

/// What managing needs and does not have here, with what that means; nothing: it can work.
pub fn missing(findings: &[Finding], dry_run: bool) -> Vec<String> {
    let mut needed = vec!["page-sizes", "thp", "cap-sys-ptrace"];
    if !dry_run {
        needed.extend(["cap-sys-nice", "collapse"]);
    }
    findings
        .iter()
        .filter(|finding| finding.status == Availability::Missing && needed.contains(&finding.name))
        .map(|finding| format!("{} ({}: {})", finding.name, finding.detail, finding.consequence))
        .collect()
}

/// Whether managing can work here at all; one line that says what is missing and what still works.
pub fn require(dry_run: bool) -> Result<()> {
    let machine = mega_linux::capabilities::examine(&ProcRoot::default());
    let missing = missing(&machine.findings, dry_run);
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::bail!(
        "cannot manage processes: missing {}. Run it as root; `mega show` of your own processes, `mega doctor`, \
         `mega policies` and `mega replay` work without",
        missing.join("; ")
    )
}

/// This machine's settings, with undo.
pub fn open_knobs() -> Result<Knobs> {
    Knobs::open(ProcRoot::default(), STATE_FOLDER.as_ref()).context("cannot keep the machine's settings safe")
}

/// What was put back, and what was not, a line each.
pub fn describe_restored(done: &Restored) -> Vec<String> {
    let restored = done.restored.iter().map(|path| format!("restored {}", path.display()));
    let left = done.left.iter().map(|left| {
        let path = left.path.display();
        format!(
            "not restored: {path} was '{}' and has been changed externally to '{}'",
            left.original, left.current
        )
    });
    let shared = done
        .shared
        .iter()
        .map(|path| format!("{} stays: another manager uses it", path.display()));
    let failed = done
        .failed
        .iter()
        .map(|(path, why)| format!("could not restore {}: {why}", path.display()));
    let corrupt = done
        .corrupt
        .iter()
        .map(|path| format!("a corrupt state file is kept as {}", path.display()));
    restored
        .chain(left)
        .chain(shared)
        .chain(failed)
        .chain(corrupt)
        .collect()
}
