//! `mega doctor`: what this machine offers, who owns its THP settings, what is missing.

use std::io::Write;

use anyhow::Result;
use mega_linux::capabilities::{examine, Availability, Finding};
use mega_linux::compact::{available, Way};
use mega_linux::module::{uapi, Module};
use mega_linux::proc::ProcRoot;
use serde_json::json;

use crate::args::{DoctorArgs, ScannerChoice};
use crate::manage::scanner_for;
use mega_cli::settings::missing;
use mega_cli::text::wrapped;

/// One capability of DESIGN's table, here.
struct Capability {
    what: &'static str,
    works: bool,
    why: String,
}

/// The ways of making free blocks that there are, and why the others are not.
fn ways() -> (Vec<&'static str>, String) {
    let (mut ways, mut none) = (Vec::new(), String::new());
    for way in Way::STOCK {
        match available(way, &ProcRoot::default()) {
            Ok(()) => ways.push(way.word()),
            Err(error) => none += &format!("; {error}"),
        }
    }
    (ways, none)
}

/// Reports. Always succeeds: a missing capability is a finding, not a failure.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let machine = examine(&ProcRoot::default());
    let findings = &machine.findings;
    let capabilities = capabilities(findings);
    let mut out = std::io::stdout().lock();
    if args.json {
        let list: Vec<_> = capabilities
            .iter()
            .map(|c| json!({"capability": c.what, "works": c.works, "detail": c.why}))
            .collect();
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "kind": "doctor", "machine": machine, "capabilities": list})
        )?;
        return Ok(());
    }
    writeln!(out, "This machine")?;
    for finding in findings {
        let mark = match finding.status {
            Availability::Ok => "ok ",
            Availability::Partial => "~  ",
            Availability::Missing => "no ",
        };
        let head = format!("  {mark} {:<22} ", finding.name);
        writeln!(out, "{}", wrapped(&head, &finding.detail))?;
        if finding.status != Availability::Ok && !finding.consequence.is_empty() {
            let head = format!("      {:<22} -> ", "");
            writeln!(out, "{}", wrapped(&head, &finding.consequence))?;
        }
    }
    writeln!(out, "\nWhat mega can do here")?;
    for c in &capabilities {
        let head = format!("  {} {:<36} ", if c.works { "yes" } else { "no " }, c.what);
        writeln!(out, "{}", wrapped(&head, &c.why))?;
    }
    Ok(())
}

fn capabilities(findings: &[Finding]) -> Vec<Capability> {
    let (observe, accessed, how) = match scanner_for(ScannerChoice::Auto) {
        Ok((scanner, refused)) => {
            let mut how = format!("by {}", scanner.name());
            for reason in refused {
                how += &format!("; {reason}");
            }
            (true, scanner.sees_accessed(), how)
        }
        Err(error) => (false, false, format!("{error:#}")),
    };
    let works = |name: &str| {
        findings
            .iter()
            .any(|f| f.name == name && f.status != Availability::Missing)
    };
    let detail = |name: &str| {
        findings
            .iter()
            .find(|f| f.name == name)
            .map_or("", |f| f.detail.as_str())
            .to_string()
    };
    // In other processes: an agent does so in its own, without any privilege.
    let cannot = Some(missing(findings, false).join("; ")).filter(|missing| !missing.is_empty());
    let cannot = cannot.map(|missing| format!("{missing}; `mega run --agent-only` needs no privilege"));
    let (ways, none) = ways();
    let module = Module::open();
    let by_module = |how: &str| match &module {
        Ok(_) => how.to_string(),
        Err(error) if error.is_absent() => "needs mega.ko, which is not loaded".to_string(),
        Err(error) => error.to_string(),
    };
    let no_faults = "needs a kernel with kernel/reservation; see `mega sim`";
    vec![
        Capability {
            what: "see mapped, huge and zero pages",
            works: observe,
            why: how.clone(),
        },
        Capability {
            what: "see accessed pages (utilization)",
            works: accessed,
            why: if accessed {
                how
            } else {
                "only the eBPF walk and mega.ko can".into()
            },
        },
        Capability {
            what: "promote",
            works: cannot.is_none() && works("collapse"),
            why: cannot.clone().unwrap_or_else(|| detail("collapse")),
        },
        Capability {
            what: "demote, give zero pages back",
            works: cannot.is_none() && works("cold"),
            why: cannot.unwrap_or_else(|| detail("cold")),
        },
        Capability {
            what: "make free blocks, bounded",
            works: !ways.is_empty(),
            why: format!("by {}", ways.join(", ")) + &none,
        },
        Capability {
            what: "compact chosen blocks",
            works: module.as_ref().is_ok_and(|module| module.can(uapi::CAN_COMPACT)),
            why: by_module("mega run, mega manage and mega compact do where --compact-how or --how is auto"),
        },
        Capability {
            what: "clear accessed bits without side effects",
            works: module.as_ref().is_ok_and(|module| module.can(uapi::CAN_AGE)),
            why: by_module("with --scanner module"),
        },
        Capability {
            what: "time allocations inside the kernel",
            works: module.as_ref().is_ok_and(|module| module.can(uapi::CAN_PROBE)),
            why: by_module("mega hog --kernel"),
        },
        Capability {
            what: "decide at fault time (reservations)",
            works: works("reservations"),
            why: match works("reservations") {
                true => "mega run --policy lrbhps -- CMD".into(),
                false => no_faults.into(),
            },
        },
    ]
}
