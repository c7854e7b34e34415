//! The pools of a running process that libmemomania serves, as it would report them when it ends.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use mega_linux::proc::{maps, ProcRoot};
use memomania_layout::report::Process;
use memomania_layout::status;
use serde_json::Value;

/// Reads a process's pools from its memory. None: it has none, or those of another version.
///
/// # Errors
/// The process is gone, or its memory may not be read.
pub fn read(root: &ProcRoot, pid: u32, name: &str) -> Result<Option<Value>> {
    let mappings = maps::read(root, pid)?;
    let is_status = |mapping: &&maps::Mapping| mapping.name.as_deref() == Some(status::MAPPING) && !mapping.shared;
    let Some(mapping) = mappings.iter().find(is_status) else {
        return Ok(None);
    };
    let path = root.of_process(pid, "mem");
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let decoded = status::decode(mapping.start, |address, bytes| file.read_exact_at(bytes, address));
    // What cannot be read at an address that the process states is no status of ours.
    let Ok(Some((pools, counts))) = decoded else {
        return Ok(None);
    };
    let process = Process {
        pid,
        name: name.as_bytes(),
        pools,
        counts,
    };
    Ok(serde_json::from_str(&process.to_string()).ok())
}
