//! The state folder: who the managers are, one lock, and files that are whole or not there.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::KnobError;
use crate::error::Error;
use crate::proc::{read_bounded, stat, ProcRoot};

/// The most that a state file may have.
const LIMIT_BYTES: u64 = 1 << 20;

/// One run of one manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manager {
    pub pid: u32,
    pub start_ticks: u64,
    /// /proc/sys/kernel/random/boot_id.
    pub boot: String,
}

impl Manager {
    pub fn ourselves() -> Result<Self, Error> {
        let pid = std::process::id();
        Ok(Self {
            pid,
            start_ticks: stat::read(&ProcRoot::default(), pid)?.start_ticks,
            boot: boot()?,
        })
    }

    /// It still runs: its PID is not another process's.
    pub fn is_alive(&self) -> bool {
        let stat = stat::read(&ProcRoot::default(), self.pid);
        match stat {
            Ok(stat) => !stat.is_over() && stat.start_ticks == self.start_ticks && self.is_of_this_boot(),
            // What cannot be read is not known to be gone.
            Err(error) => !error.is_gone(),
        }
    }

    pub fn is_of_this_boot(&self) -> bool {
        boot().map_or(true, |boot| boot == self.boot)
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.start_ticks)
    }
}

fn boot() -> Result<String, Error> {
    let text = read_bounded(Path::new("/proc/sys/kernel/random/boot_id"), 4096)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// While it lives, no other manager reads or writes state.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// A folder of state files.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn open(path: &Path) -> Result<Self, KnobError> {
        for folder in [path.to_owned(), path.join("knobs"), path.join("claims")] {
            match fs::create_dir_all(&folder) {
                Ok(()) => {}
                Err(error) => return Err(Error::io(&folder, "make", error).into()),
            }
            let unsafe_because = |why| KnobError::Unsafe {
                path: folder.clone(),
                why,
            };
            let what = fs::symlink_metadata(&folder).map_err(|e| Error::io(&folder, "look at", e))?;
            if !what.is_dir() {
                return Err(unsafe_because("not a folder"));
            }
            if what.uid() != rustix::process::geteuid().as_raw() {
                return Err(unsafe_because("belongs to somebody else"));
            }
            if what.mode() & 0o022 != 0 {
                fs::set_permissions(&folder, Permissions::from_mode(0o755))
                    .map_err(|_| unsafe_because("others may write in it"))?;
            }
        }
        Ok(Self(path.to_owned()))
    }

    pub fn path(&self, kind: &str, name: &str) -> PathBuf {
        self.0.join(kind).join(format!("{name}.json"))
    }

    /// Waits for the others.
    pub fn lock(&self) -> Result<Lock, Error> {
        let path = self.0.join("lock");
        let lock = || -> io::Result<File> {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&path)?;
            rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
            Ok(file)
        };
        let file = lock().map_err(|e| Error::io(&path, "lock", e))?;
        Ok(Lock { _file: file })
    }

    /// The files of this kind by name, each with what it says or why it says nothing.
    #[allow(clippy::type_complexity)]
    pub fn files<T: DeserializeOwned>(
        &self,
        _lock: &Lock,
        kind: &str,
    ) -> Result<Vec<(PathBuf, Result<T, String>)>, Error> {
        let folder = self.0.join(kind);
        let list = || -> io::Result<Vec<PathBuf>> {
            let mut paths = Vec::new();
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                match path.extension().and_then(|end| end.to_str()) {
                    Some("json") => paths.push(path),
                    // Saving needs the lock, which we have: whoever saved this was killed half way.
                    Some("new") => fs::remove_file(&path)?,
                    _ => {}
                }
            }
            paths.sort();
            Ok(paths)
        };
        let paths = list().map_err(|e| Error::io(&folder, "list", e))?;
        Ok(paths
            .into_iter()
            .map(|path| {
                let read = Self::read(&path);
                (path, read)
            })
            .collect())
    }

    pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
        let text = read_bounded(path, LIMIT_BYTES).map_err(|e| e.to_string())?;
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Writes the file so that whoever reads it, or finds it after we were killed at any moment, sees the old one or the new one; nothing: removes it.
    pub fn save<T: Serialize>(&self, _lock: &Lock, path: &Path, state: Option<&T>) -> Result<(), KnobError> {
        let temporary = path.with_extension("new");
        let save = || -> io::Result<()> {
            let Some(state) = state else {
                return match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            };
            let mut file = OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(&serde_json::to_vec_pretty(state)?)?;
            fs::rename(&temporary, path)
        };
        save().map_err(|e| Error::io(path, "save", e).into())
    }

    /// Renames a file that makes no sense; answers the new name.
    pub fn keep_aside(&self, _lock: &Lock, path: &Path) -> Result<PathBuf, Error> {
        let aside = path.with_extension("corrupt");
        fs::rename(path, &aside).map_err(|e| Error::io(path, "rename", e))?;
        Ok(aside)
    }
}
