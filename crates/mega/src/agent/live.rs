//! The agent in a running process, as `mega show` finds it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use mega_linux::agent::done::Said;
use mega_linux::proc::maps::{self, Mapping};
use mega_linux::proc::ProcRoot;
use mega_range::page::BYTES;
use serde_json::{json, Value};

use super::library::LIBRARY;

/// An agent in a process.
pub struct Agent {
    /// What it says of itself; none: it is off, or of another version.
    said: Option<Said>,
}

/// Looks for one, and reads its page through the process's memory.
///
/// # Errors
/// The process is gone, or its memory may not be read.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Option<Agent>> {
    let mappings = maps::read(root, pid)?;
    let is_library = |mapping: &Mapping| {
        let name = mapping.name.as_deref();
        name.and_then(|name| name.rsplit('/').next()) == Some(LIBRARY)
    };
    if !mappings.iter().any(is_library) {
        return Ok(None);
    }
    let path = root.of_process(pid, "mem");
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let may_be_page = |mapping: &&Mapping| {
        let bytes = mapping.end - mapping.start;
        mapping.shared && mapping.read && mapping.write && mapping.inode != 0 && bytes == BYTES as u64
    };
    let said = mappings.iter().filter(may_be_page).find_map(|mapping| {
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, mapping.start).ok()?;
        Said::read(&bytes).ok()
    });
    Ok(Some(Agent { said }))
}

impl Agent {
    /// A line.
    pub fn to_text(&self) -> String {
        match &self.said {
            Some(said) => said.to_text(),
            None => "off, or of another version".to_owned(),
        }
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        self.said.as_ref().map_or(json!({}), Said::to_json)
    }
}
