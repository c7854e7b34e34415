//! /proc/PID/cgroup: where a process is in each cgroup hierarchy.

use std::path::Path;

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// A process's place in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Controllers of a v1 hierarchy ("memory", "name=systemd"); empty for v2.
    pub controllers: String,
    /// The cgroup, from the root of the hierarchy: "/system.slice/redis.service".
    pub path: String,
}

/// Where the process is; in v2 one line, in v1 and hybrid set-ups one per hierarchy.
pub fn read(root: &ProcRoot, pid: u32) -> Result<Vec<Membership>> {
    let path = root.of_process(pid, "cgroup");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a cgroup file, "0::/path" or "5:memory:/path"; `path` is for messages only.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Membership>> {
    let text = String::from_utf8_lossy(text);
    let mut all = Vec::new();
    for (at, line) in lines(path, &text) {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(cgroup)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(at.wrong("cgroup", "number:controllers:path", line));
        };
        all.push(Membership {
            controllers: controllers.to_owned(),
            path: cgroup.to_owned(),
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_in_the_path_stay() {
        let all = parse(Path::new("c"), b"5:memory:/a:b\n0::/\n").unwrap();
        assert_eq!((all[0].controllers.as_str(), all[0].path.as_str()), ("memory", "/a:b"));
        assert_eq!(all[1].controllers, "");
    }
}
