//! /proc/PID/task: threads, and the children of each.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::{Error, Result};

/// The threads of a process, the main one included.
pub fn threads(root: &ProcRoot, pid: u32) -> Result<BTreeSet<u32>> {
    numbers_in(&root.of_process(pid, "task"))
}

/// Every process that /proc shows: thread group leaders, zombies and kernel threads too.
pub fn processes(root: &ProcRoot) -> Result<BTreeSet<u32>> {
    numbers_in(&root.proc)
}

/// The children of all threads of a process; none where the kernel was built without CONFIG_PROC_CHILDREN.
///
/// While children come and go the kernel may leave some out: what is missed once is there the next time.
pub fn children(root: &ProcRoot, pid: u32) -> Result<Option<BTreeSet<u32>>> {
    let mut all = BTreeSet::new();
    let mut any = false;
    for tid in threads(root, pid)? {
        let path = root.of_thread(pid, tid, "children");
        match read_bounded(&path, SMALL_BYTES) {
            Ok(text) => {
                any = true;
                all.extend(parse_children(&path, &text)?);
            }
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(any.then_some(all))
}

/// Reads the text of a children file, "12 34 ": PIDs; `path` is for messages only.
pub fn parse_children(path: &Path, text: &[u8]) -> Result<Vec<u32>> {
    let text = String::from_utf8_lossy(text);
    lines(path, &text)
        .flat_map(|(at, line)| {
            line.split_ascii_whitespace()
                .map(move |word| at.number("pid", Some(word)))
        })
        .collect()
}

/// The entries of a folder whose names are numbers.
fn numbers_in(folder: &Path) -> Result<BTreeSet<u32>> {
    let list = || -> io::Result<BTreeSet<u32>> {
        let mut numbers = BTreeSet::new();
        for entry in fs::read_dir(folder)? {
            if let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                numbers.insert(number);
            }
        }
        Ok(numbers)
    };
    list().map_err(|e| Error::io(folder, "list", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_numbers_with_spaces_between() {
        assert_eq!(parse_children(Path::new("c"), b"1 22 333 ").unwrap(), [1, 22, 333]);
        assert!(parse_children(Path::new("c"), b"").unwrap().is_empty());
        assert_eq!(
            parse_children(Path::new("c"), b"1 x").unwrap_err().to_string(),
            "c:1: pid: expected a number, found 'x'"
        );
    }

    #[test]
    fn our_own_threads_are_found() {
        let root = ProcRoot::default();
        assert!(threads(&root, std::process::id())
            .unwrap()
            .contains(&std::process::id()));
        assert!(processes(&root).unwrap().contains(&1));
    }
}
