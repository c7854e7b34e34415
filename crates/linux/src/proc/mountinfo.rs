//! /proc/self/mountinfo: what is mounted where; here to find the cgroup hierarchies.

use std::path::{Path, PathBuf};

use super::{lines, read_bounded, unescape, ProcRoot};
use crate::error::Result;

/// The most text that is read.
const LIMIT_BYTES: u64 = 64 << 20;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder of the mounted file system that appears at `point`: "/" unless a part is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Type of the file system: "cgroup2", "tmpfs" ...
    pub kind: String,
    /// The file system's own options, with commas between: "rw,name=systemd".
    pub options: String,
}

/// The mounts that this process sees.
pub fn read(root: &ProcRoot) -> Result<Vec<Mount>> {
    let path = root.proc.join("self/mountinfo");
    parse(&path, &read_bounded(&path, LIMIT_BYTES)?)
}

/// Reads the text of a mountinfo file; `path` is for messages only.
///
/// "31 23 0:28 ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS", with spaces, tabs, line ends and backslashes in octal.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Mount>> {
    let text = String::from_utf8_lossy(text);
    let mut mounts = Vec::new();
    for (at, line) in lines(path, &text) {
        let mut words = line.split(' ');
        let (Some(root), Some(point)) = (words.nth(3), words.next()) else {
            return Err(at.wrong("mount point", "at least five fields", line));
        };
        let mut tail = words.skip_while(|word| *word != "-").skip(1);
        let Some(kind) = tail.next() else {
            return Err(at.wrong("file system type", "a type after ' - '", line));
        };
        let unescaped = |text| unescape(text, b" \t\n\\#");
        mounts.push(Mount {
            root: unescaped(root).into(),
            point: unescaped(point).into(),
            kind: unescaped(kind),
            options: unescaped(tail.nth(1).unwrap_or("")),
        });
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_skipped_and_escapes_undone() {
        let text = br"41 31 0:38 / /a\040b rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate";
        let mounts = parse(Path::new("m"), text).unwrap();
        assert_eq!(mounts[0].point, Path::new("/a b"));
        assert_eq!(
            (mounts[0].kind.as_str(), mounts[0].options.as_str()),
            ("cgroup2", "rw,nsdelegate")
        );
    }

    #[test]
    fn a_short_line_is_an_error() {
        assert!(parse(Path::new("m"), b"1 2 3:4 / \n").is_err());
        assert!(parse(Path::new("m"), b"1 2 3:4 / /x rw\n").is_err());
    }
}
