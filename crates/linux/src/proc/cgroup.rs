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

/// The process's control group that says what it belongs to: in a hybrid set-up systemd's own hierarchy has the units, and the unified one may be
/// empty. "/" for one in no group, or gone.
pub fn own(root: &ProcRoot, pid: u32) -> String {
    let all = read(root, pid).unwrap_or_default();
    let rank = |controllers: &str| match controllers {
        "name=systemd" => 0,
        "" => 1,
        _ => 2,
    };
    let groups = all.into_iter().filter(|one| one.path != "/");
    let best = groups.min_by_key(|one| rank(&one.controllers));
    best.map_or_else(|| "/".to_owned(), |one| one.path)
}

/// The unit in a control group's path: its last part that is named like a unit which has processes; else the whole path.
pub fn service(path: &str) -> &str {
    path.rsplit('/')
        .find(|part| part.ends_with(".service") || part.ends_with(".scope"))
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_the_innermost_unit_of_a_control_group() {
        assert_eq!(service("/system.slice/redis.service"), "redis.service");
        assert_eq!(
            service("/user.slice/user-0.slice/user@0.service/app.slice/a.scope/x"),
            "a.scope"
        );
        assert_eq!(service("/kubepods/pod1/abc"), "/kubepods/pod1/abc");
        assert_eq!(service("/"), "/");
    }

    #[test]
    fn colons_in_the_path_stay() {
        let all = parse(Path::new("c"), b"5:memory:/a:b\n0::/\n").unwrap();
        assert_eq!((all[0].controllers.as_str(), all[0].path.as_str()), ("memory", "/a:b"));
        assert_eq!(all[1].controllers, "");
    }
}
