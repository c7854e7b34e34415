//! Writes to a kernel file in a helper process, so that it can be ended.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mega_core::compaction::target::Ended;
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::{CompactError, Task, Way};
use crate::sys::Writer;

/// Between two looks at what there is by now.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Opens a file for writing, or says why that cannot be.
pub fn open(way: Way, path: &Path) -> Result<File, CompactError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|error| not_open(way, path, &error))
}

fn not_open(way: Way, path: &Path, error: &io::Error) -> CompactError {
    let path = path.to_owned();
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) | None => CompactError::Missing {
            way,
            why: format!("{} is not there", path.display()),
        },
        Some(errno) => CompactError::NotAllowed { way, path, errno },
    }
}

/// The first of these files that may be written, or why none.
pub fn writable(way: Way, paths: &[PathBuf], missing: &str) -> Result<(), CompactError> {
    match paths.first() {
        None => Err(CompactError::Missing {
            way,
            why: missing.to_string(),
        }),
        Some(path) => open(way, path).map(|_| ()),
    }
}

/// How a write ended.
pub struct Written {
    /// The task's reason to end it; none: it ended by itself.
    pub ended: Option<Ended>,
    /// What the kernel said.
    pub said: Result<(), Errno>,
    /// Processor time that it took.
    pub cpu: Duration,
}

/// Writes `text`, and kills the writer when `over` gives a reason; it is asked every 2 ms.
pub fn until(
    way: Way,
    file: &File,
    text: &str,
    mut over: impl FnMut() -> Result<Option<Ended>, CompactError>,
) -> Result<Written, CompactError> {
    let failed = |errno| CompactError::Failed {
        way,
        what: "cannot start a helper process".to_string(),
        errno,
    };
    let writer = Writer::start(file.as_fd(), text.as_bytes()).map_err(failed)?;
    let mut ended = None;
    // An interrupted wait is one that was short.
    while !writer.ended(LOOK_EVERY).unwrap_or(false) {
        ended = over()?;
        if ended.is_some() {
            writer.kill();
            break;
        }
    }
    let (said, cpu) = writer.finish();
    Ok(Written { ended, said, cpu })
}

/// The folders of this folder whose names begin with `prefix` and go on with a number, by number.
pub fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// The task's own end conditions.
pub fn over<'a>(task: &'a Task<'_>) -> impl FnMut() -> Result<Option<Ended>, CompactError> + 'a {
    || task.over(0)
}
