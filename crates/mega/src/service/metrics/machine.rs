//! What the metrics say of the machine and of the daemon itself.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mega_linux::proc::{buddyinfo, stat, ProcRoot};
use mega_linux::sys::process_cpu_time;

/// Settings of huge pages that others may change under us.
const SETTINGS: [&str; 7] = [
    "enabled",
    "defrag",
    "shmem_enabled",
    "use_zero_page",
    "shrink_underused",
    "khugepaged/defrag",
    "khugepaged/max_ptes_none",
];

/// One look.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Machine {
    /// Free 2 MB blocks by node; nothing where the kernel does not tell.
    pub free_blocks: BTreeMap<u32, u64>,
    /// Our processor time.
    pub cpu: Duration,
    /// Our resident memory.
    pub resident_bytes: u64,
    /// How often each setting was seen changed.
    pub changes: BTreeMap<&'static str, u64>,
}

/// Looks again and again.
#[derive(Debug, Default)]
pub struct Watch {
    root: ProcRoot,
    settings: BTreeMap<&'static str, String>,
    changes: BTreeMap<&'static str, u64>,
}

impl Watch {
    /// Looks.
    pub fn look(&mut self) -> Machine {
        for name in SETTINGS {
            let Ok(text) = std::fs::read_to_string(self.root.thp(name)) else {
                continue;
            };
            let changes = self.changes.entry(name).or_default();
            if self
                .settings
                .insert(name, text.clone())
                .is_some_and(|before| before != text)
            {
                *changes += 1;
            }
        }
        let mut free_blocks = BTreeMap::new();
        if let Ok(info) = buddyinfo::read(&self.root) {
            for zone in &info.zones {
                free_blocks.insert(zone.node, info.free_blocks_of(zone.node).0);
            }
        }
        Machine {
            free_blocks,
            cpu: process_cpu_time(),
            resident_bytes: stat::read(&self.root, std::process::id()).map_or(0, |stat| stat.rss_bytes),
            changes: self.changes.clone(),
        }
    }
}

/// Seconds since 1970.
pub fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_setting_that_changes_between_two_looks_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let thp = root.path().join("sys/kernel/mm/transparent_hugepage");
        fs::create_dir_all(thp.join("khugepaged")).unwrap();
        fs::write(thp.join("enabled"), "always [madvise] never\n").unwrap();
        let mut watch = Watch {
            root: ProcRoot::under(root.path()),
            ..Watch::default()
        };
        assert_eq!(watch.look().changes, BTreeMap::from([("enabled", 0)]));
        fs::write(thp.join("enabled"), "[always] madvise never\n").unwrap();
        assert_eq!(watch.look().changes["enabled"], 1);
        assert_eq!(watch.look().changes["enabled"], 1);
    }
}
