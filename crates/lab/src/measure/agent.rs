//! What the agents in a program's processes did, by their status pages.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mega_core::range::page::Field;
use mega_linux::agent::done::Said;
use mega_linux::agent::profiles::{Program, Shown};

use crate::result::{Better, Metric, Unit};

/// Metric, label, the field of the page, unit.
const FIGURES: [(&str, &str, Field, Unit); 10] = [
    ("agent_look_ns", "time of the agent's looks", Field::LookNs, Unit::Ns),
    ("agent_act_ns", "time of the agent's actions", Field::ActNs, Unit::Ns),
    (
        "agent_advised",
        "regions advised by the agent",
        Field::AdvisedRegions,
        Unit::Count,
    ),
    (
        "agent_withdrawn",
        "mappings whose advice the agent withdrew",
        Field::Withdrawn,
        Unit::Count,
    ),
    (
        "agent_populated",
        "regions populated ahead",
        Field::Populated,
        Unit::Count,
    ),
    (
        "agent_collapsed",
        "regions collapsed by the agent",
        Field::Collapsed,
        Unit::Count,
    ),
    (
        "agent_collapse_failed",
        "collapses of the agent that failed",
        Field::CollapseFailed,
        Unit::Count,
    ),
    (
        "agent_given_back",
        "regions given back by the agent",
        Field::GivenBack,
        Unit::Count,
    ),
    (
        "agent_missed",
        "ranges that the agent could not follow",
        Field::Missed,
        Unit::Count,
    ),
    (
        "agent_earlier",
        "regions that earlier runs had shown",
        Field::Earlier,
        Unit::Count,
    ),
];

/// The metrics that [`read`] gives.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let metric = |(name, label, _, unit): (&str, &str, Field, Unit)| {
        let better = match unit {
            Unit::Ns => Better::Lower,
            _ => Better::Neither,
        };
        Metric::new(name, label, unit, better)
    };
    FIGURES.map(metric).to_vec()
}

/// All pages `agent-PID` in this folder.
fn pages(folder: &Path) -> Vec<Said> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("agent-"))
        .filter_map(|entry| Said::read(&std::fs::read(entry.path()).ok()?).ok())
        .collect()
}

/// Sums over all pages; none if there is no page: the library was not loaded.
#[must_use]
pub fn read(folder: &Path) -> Option<BTreeMap<String, f64>> {
    let pages = pages(folder);
    let sum = |field| pages.iter().map(|page| page.get(field) as f64).sum();
    let sums = FIGURES.map(|(name, _, field, _)| (name.to_string(), sum(field)));
    (!pages.is_empty()).then(|| sums.into())
}

/// What the agent of this process says, and the inode of its page.
#[must_use]
pub fn of(folder: &Path, pid: u32) -> Option<(Said, u64)> {
    let path = folder.join(format!("agent-{pid}"));
    Some((
        Said::read(&std::fs::read(&path).ok()?).ok()?,
        path.metadata().ok()?.ino(),
    ))
}

/// What the programs have shown of how they fill their memory.
#[must_use]
pub fn shown(folder: &Path) -> BTreeMap<Program, Shown> {
    let mut shown: BTreeMap<Program, Shown> = BTreeMap::new();
    for page in pages(folder) {
        if let Some(program) = page.program() {
            shown.entry(program).or_default().add(&page.shown());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::range::page::{BYTES, MAGIC, VERSION};

    #[test]
    fn pages_of_all_processes_add_up_and_without_one_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agent-9"), "no page").unwrap();
        assert_eq!(read(folder.path()), None);
        for (pid, collapsed) in [(11, 3u64), (12, 4)] {
            let mut page = [0u8; BYTES];
            let words = [(0, MAGIC), (1, VERSION), (Field::Collapsed.word(), collapsed)];
            for (at, word) in words {
                page[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
            }
            std::fs::write(folder.path().join(format!("agent-{pid}")), page).unwrap();
        }
        let values = read(folder.path()).unwrap();
        assert_eq!(values["agent_collapsed"], 7.0);
        assert!(metrics().iter().all(|metric| values.contains_key(&metric.name)));
    }
}
