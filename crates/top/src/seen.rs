//! One look: what there is to show.

use std::time::Duration;

use mega_linux::inspect::regions::RegionMap;

use crate::daemon::Daemon;
use crate::figures::Figures;

/// A process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its systemd unit, or else its control group.
    pub service: String,
    /// Its figures.
    pub figures: Figures,
    /// The daemon's rule that it is under.
    pub rule: Option<String>,
    /// What is being done, in a few words.
    pub doing: String,
    /// Why that, and why not more; a line each.
    pub why: Vec<String>,
}

/// A process's regions.
#[derive(Debug, Clone)]
pub struct Map {
    /// Whose.
    pub pid: u32,
    /// They, or why they cannot be seen.
    pub regions: Result<RegionMap, String>,
}

/// What one look saw.
#[derive(Debug, Clone)]
pub struct Look {
    /// The processes, by number.
    pub processes: Vec<Process>,
    /// The map asked for.
    pub map: Option<Map>,
    /// The daemon, or why there is none to ask.
    pub daemon: Result<Daemon, String>,
    /// How page tables are read, or why they cannot be.
    pub scanner: Result<String, String>,
    /// The machine: memory, available memory, bytes in anonymous huge pages.
    pub memory: Option<[u64; 3]>,
    /// Time that it took.
    pub took: Duration,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            map: None,
            daemon: Err("not asked yet".to_string()),
            scanner: Err("not looked yet".to_string()),
            memory: None,
            took: Duration::ZERO,
        }
    }
}
