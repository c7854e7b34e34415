//! /sys/devices/system/node/nodeN/meminfo: the memory of one NUMA node.

use std::path::Path;

use mega_core::observe::NodeMemory;
use mega_core::units::Bytes;

use super::{buddyinfo, kb_fields, lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

kb_fields! {
    /// The memory of one NUMA node.
    Node {
        /// All of it.
        "MemTotal" => total_bytes,
        /// Free.
        "MemFree" => free_bytes,
        /// File caches in use.
        "Active(file)" => active_file_bytes,
        /// File caches that are reclaimed first.
        "Inactive(file)" => inactive_file_bytes,
        /// Kernel caches that may be given up.
        "SReclaimable" => slab_reclaimable_bytes,
    }
}

impl Node {
    /// Free memory and caches. The kernel gives no `MemAvailable` for a node; this is more by what it keeps to itself.
    pub fn available_bytes(&self) -> u64 {
        let caches = [
            self.active_file_bytes,
            self.inactive_file_bytes,
            self.slab_reclaimable_bytes,
        ];
        let parts = caches.into_iter().chain([self.free_bytes]).flatten();
        parts.fold(0, u64::saturating_add)
    }
}

/// A node's memory and its free blocks now.
pub fn read(root: &ProcRoot, node: u32) -> Result<NodeMemory> {
    let path = root.sys.join(format!("devices/system/node/node{node}/meminfo"));
    let memory = parse(&path, &read_bounded(&path, SMALL_BYTES)?)?;
    Ok(NodeMemory {
        available_bytes: Bytes(memory.available_bytes()),
        total_bytes: Bytes(memory.total_bytes.unwrap_or(0)),
        free_blocks: buddyinfo::read(root)?.free_blocks_of(node),
    })
}

/// Reads the text of a node's meminfo file, "Node 0 MemTotal:  98765 kB"; `path` is for messages only. Lines that are not known are skipped.
pub fn parse(path: &Path, text: &[u8]) -> Result<Node> {
    let text = String::from_utf8_lossy(text);
    let mut info = Node::default();
    for (at, line) in lines(path, &text) {
        let field = line.strip_prefix("Node ").and_then(|rest| rest.split_once(' '));
        match field.and_then(|(_, field)| field.split_once(':')) {
            Some((name, value)) => info.take(at, name, value)?,
            None => return Err(at.wrong("field", "a line such as 'Node 0 MemFree: 12 kB'", line)),
        };
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_is_free_memory_and_caches() {
        let text = "Node 1 MemTotal:       4000 kB\nNode 1 MemFree:        1000 kB\nNode 1 Active(file):     20 kB\n\
                    Node 1 Inactive(file):    3 kB\nNode 1 HugePages_Total:     0\nNode 1 SReclaimable:      1 kB\n";
        let node = parse(Path::new("m"), text.as_bytes()).unwrap();
        assert_eq!(
            (node.total_bytes, node.available_bytes()),
            (Some(4000 << 10), 1024 << 10)
        );
        assert!(parse(Path::new("m"), b"MemTotal: 1 kB\n").is_err());
    }
}
