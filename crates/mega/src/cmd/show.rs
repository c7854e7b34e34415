//! `mega show`: a snapshot of a process's huge pages.

mod managed;

use std::io::Write;

use anyhow::{Context, Result};
use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;
use mega_linux::deadline;
use mega_linux::inspect::usage::{self, InspectError, MappingUsage, Usage, UsageOptions};
use mega_linux::knobs::thp::{self, Owner};
use mega_linux::proc::ProcRoot;
use mega_linux::process::Process;
use mega_linux::scan::Scanner;
use mega_linux::vma::Obstacle;
use serde_json::{json, Value};

use super::mosaic;
use crate::agent;
use crate::args::ShowArgs;
use crate::manage::scanner_for;
use mega_cli::exit::tell;
use mega_cli::mosaic::report;
use mega_cli::text::{printable, wrapped};

/// A process.
struct Seen {
    pid: u32,
    name: String,
    /// Its figures, or why there are none: it holds its address space locked.
    figures: Result<Figures, String>,
    /// What the daemon did to it, if it manages it.
    managed: Option<Value>,
}

/// The figures of one process.
struct Figures {
    looked: Usage,
    owners: Vec<Owner>,
    /// Memomania's pools, if it is preloaded in the process.
    pools: Option<Value>,
    agent: Option<agent::live::Agent>,
}

/// Inspects each process in turn.
pub fn run(args: &ShowArgs) -> Result<()> {
    let root = ProcRoot::default();
    let (mut scanner, refused) = scanner_for(args.scanner)?;
    for reason in refused {
        tell(&format!("mega: {reason}; using {}", scanner.name()));
    }
    let rules = managed::Rules::ask();
    let mut seen = Vec::new();
    for &pid in &args.pids {
        let process = Process::open(&root, pid)?;
        let name = process.name(&root);
        let figures = match look(&root, scanner.as_mut(), pid, &name) {
            // Others are shown all the same.
            Err(error)
                if error
                    .downcast_ref::<InspectError>()
                    .is_some_and(InspectError::is_locked) =>
            {
                Err(error.to_string())
            }
            figures => Ok(figures.with_context(|| format!("process {pid} ({name})"))?),
        };
        seen.push(Seen {
            pid,
            name,
            figures,
            managed: rules.of(pid),
        });
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let list: Vec<_> = seen.iter().map(to_json).collect();
        writeln!(
            out,
            "{}",
            json!({"schema": 1, "kind": "show", "scanner": scanner.name(), "processes": list})
        )?;
        return Ok(());
    }
    for one in &seen {
        write!(out, "{}", to_text(one, args.top))?;
    }
    Ok(())
}

/// What waits for the process's `mmap_lock` is done by a worker, and waited for for some seconds only.
fn look(root: &ProcRoot, scanner: &mut dyn Scanner, pid: u32, name: &str) -> Result<Figures> {
    let looked = usage::read(root, scanner, pid, &UsageOptions::default())?;
    let (root, name) = (root.clone(), name.to_owned());
    let others = deadline::within(pid, deadline::WALK, move || {
        let owners = thp::owners(&root, pid)?;
        let pools = mosaic::live::read(&root, pid, &name)?;
        anyhow::Ok((owners, pools, agent::live::read(&root, pid)?))
    });
    let (owners, pools, agent) = others.map_err(InspectError::from)??;
    Ok(Figures {
        looked,
        owners,
        pools,
        agent,
    })
}

fn show_waste(waste: Option<u64>) -> String {
    waste.map_or_else(|| "?".to_string(), |bytes| Bytes(bytes).to_string())
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0}%", 100.0 * part as f64 / whole.max(1) as f64)
}

fn to_text(seen: &Seen, top: usize) -> String {
    let Seen {
        pid,
        name,
        figures,
        managed,
    } = seen;
    let Figures {
        looked,
        owners,
        pools,
        agent,
    } = match figures {
        Ok(figures) => figures,
        Err(why) => return format!("{pid} {}\n{}\n", printable(name), wrapped("  not seen: ", why)),
    };
    let t = &looked.total;
    let mut text = format!(
        "{pid} {}\n  resident {}   in huge pages {} ({})\n  wasted in them {}   would qualify {}\n",
        printable(name),
        Bytes(t.rss_bytes),
        Bytes(t.huge_bytes),
        percent(t.huge_bytes, t.rss_bytes),
        show_waste(t.waste_bytes),
        Bytes(t.qualifies_bytes),
    );
    if t.kept_bytes > 0 {
        let kept = format!(
            "{} that the program has unmapped of huge pages: not resident, not free",
            Bytes(t.kept_bytes)
        );
        text += &wrapped("  kept: ", &kept);
        text += "\n";
    }
    if let Some(reserved) = t.reserved_bytes.filter(|&bytes| bytes > 0) {
        text += &format!("  reserved and not populated {}\n", Bytes(reserved));
    }
    if looked.read.0 < looked.read.1 {
        text += &format!(
            "  (waste: {} of {} huge pages read, scaled)\n",
            looked.read.0, looked.read.1
        );
    }
    for owner in owners {
        text += &wrapped("  THP: ", &owner.to_string());
        text += "\n";
    }
    if let Some(agent) = agent {
        text += &wrapped("  agent: ", &agent.to_text());
        text += "\n";
    }
    if let Some(managed) = managed {
        text += &wrapped("  managed: ", &managed::to_text(managed));
        text += "\n";
    }
    let mut mappings: Vec<&MappingUsage> = looked.mappings.iter().filter(|m| m.tally.rss_bytes > 0).collect();
    mappings.sort_by_key(|m| std::cmp::Reverse(m.tally.rss_bytes));
    let shown = if top == 0 {
        mappings.len()
    } else {
        top.min(mappings.len())
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["  mapping", "resident", "huge", "wasted", "qualifies", "note"]);
    for m in &mappings[..shown] {
        table.add_row(row(m));
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        text += line.trim_end();
        text += "\n";
    }
    if shown < mappings.len() {
        let rest: u64 = mappings[shown..].iter().map(|m| m.tally.rss_bytes).sum();
        text += &format!(
            "  and {} more with {} (--top 0 lists all)\n",
            mappings.len() - shown,
            Bytes(rest)
        );
    }
    if let Some(pools) = pools {
        text += "  memomania\n";
        text += &report::table(vec![pools.clone()], "now");
    }
    text
}

/// One mapping as a table row. Files and small mappings get no remark; those with huge pages disabled do.
fn row(m: &MappingUsage) -> [String; 6] {
    let name = printable(m.vma.name.as_deref().unwrap_or("anonymous"));
    let short: String = match name.rsplit_once('/') {
        Some((_, file)) => file.chars().take(11).collect(),
        None => name.chars().take(11).collect(),
    };
    let or_dash = |bytes: u64| {
        if bytes == 0 {
            "-".to_string()
        } else {
            Bytes(bytes).to_string()
        }
    };
    let note = match m.vma.obstacle() {
        Some(Obstacle::NoHugePage) => "MADV_NOHUGEPAGE",
        Some(Obstacle::Userfaultfd) => "userfaultfd",
        Some(Obstacle::Locked) => "mlock",
        Some(Obstacle::Hugetlb) => "hugetlb",
        Some(Obstacle::Shmem) => "shared memory",
        _ => "",
    };
    [
        format!("  {:x} {short}", m.vma.start),
        Bytes(m.tally.rss_bytes).to_string(),
        or_dash(m.tally.huge_bytes),
        m.tally.waste_bytes.map_or("-".to_string(), or_dash),
        or_dash(m.tally.qualifies_bytes),
        note.to_string(),
    ]
}

fn to_json(seen: &Seen) -> Value {
    let Seen {
        pid,
        name,
        figures,
        managed,
    } = seen;
    let Figures {
        looked,
        owners,
        pools,
        agent,
    } = match figures {
        Ok(figures) => figures,
        Err(why) => return json!({"pid": pid, "name": name, "not_seen": why, "managed": managed}),
    };
    let mappings: Vec<_> = looked
        .mappings
        .iter()
        .filter(|m| m.tally.rss_bytes > 0)
        .map(|m| {
            let mut value = serde_json::to_value(m.tally).unwrap_or_default();
            value["start"] = format!("{:#x}", m.vma.start).into();
            value["end"] = format!("{:#x}", m.vma.end).into();
            value["name"] = m.vma.name.clone().into();
            value["obstacle"] = m.vma.obstacle().map(|o| o.to_string()).into();
            value
        })
        .collect();
    json!({
        "pid": pid,
        "name": name,
        "total": looked.total,
        "huge_pages_read": looked.read.0,
        "huge_pages": looked.read.1,
        "thp": owners,
        "mappings": mappings,
        "memomania": pools,
        "managed": managed,
        "agent": agent.as_ref().map(agent::live::Agent::to_json),
    })
}
