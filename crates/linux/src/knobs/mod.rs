//! Global settings that are put back, whatever happens.
//!
//! Every manager that changes settings keeps a file (each [`Knobs`] of a process its own), `knobs/PID-START-N.json` in the state folder (/run/mega): each knob with
//! its original value and what the manager may have written. The file is there before the knob is touched (in memory: what a boot forgets
//! is forgotten with the knobs themselves, so nobody waits for a disk). So:
//!
//! - on a normal end [`Knobs::restore`] (or drop) puts back what is still as we wrote it;
//! - after a crash the next [`Knobs::recover`] finds a file whose manager is gone, and does the same;
//! - a knob that somebody else has changed meanwhile is theirs: it is left alone and reported;
//! - two managers may hold a knob at the same value: the second one's original is the first one's, and the last out puts it
//!   back. At another value the second one is refused.
//!
//! One lock file orders all of this between managers. They must share a PID namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::knobs::thp::chosen;
use crate::proc::ProcRoot;
use crate::sys;

mod claims;
mod fault_size;
mod state;
pub mod thp;

pub use claims::{Claim, ClaimError, Claims};
pub use fault_size::{fault_size, FaultSize};
use state::{Folder, Lock, Manager};

/// Why a setting was not changed, or not put back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] Error),
    /// The state folder would let others have us write where they like.
    #[error("{}: {why}; it must be ours alone", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not a setting of the kernel.
    #[error("{}: not a file below /sys or /proc/sys", path.display())]
    NotAKnob {
        /// What was given.
        path: PathBuf,
    },
    /// Another manager holds it at another value.
    #[error("{}: process {manager} holds it at '{value}' until it ends", path.display())]
    Held {
        /// The knob.
        path: PathBuf,
        /// The other manager's PID.
        manager: u32,
        /// Its value.
        value: String,
    },
    /// The kernel took the value and did not keep it.
    #[error("{}: wrote '{wrote}', reads '{reads}'", path.display())]
    NotKept {
        /// The knob.
        path: PathBuf,
        /// What was written.
        wrote: String,
        /// What it says now.
        reads: String,
    },
    /// The kernel takes it, and something goes wrong then.
    #[error("{}: {value} is not written: {why}", path.display())]
    Refused {
        /// The knob.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why not.
        why: &'static str,
    },
    /// Linux is too old, or built without it.
    #[error("{what} is not possible here: {why}")]
    Unsupported {
        /// What was wanted.
        what: String,
        /// What is missing.
        why: &'static str,
    },
}

type Result<T> = std::result::Result<T, KnobError>;

/// One knob in a manager's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    /// What it said before any manager touched it.
    original: String,
    /// What we may have written: one value, or during a change the old and the new one.
    ours: Vec<String>,
    /// It is a count, and the kernel may have stopped half way: any number from the original to the largest of ours is ours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    count: bool,
}

impl Held {
    fn is_ours(&self, current: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let between = || {
            let most = self.ours.iter().filter_map(|ours| number(ours)).max()?;
            Some((number(&self.original)?..=most).contains(&number(current)?))
        };
        self.ours.iter().any(|ours| ours == current) || self.count && between().unwrap_or(false)
    }
}

/// A manager's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    schema: u32,
    manager: Manager,
    knobs: BTreeMap<PathBuf, Held>,
}

const SCHEMA: u32 = 1;

/// A knob that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The knob.
    pub path: PathBuf,
    /// What it said at first.
    pub original: String,
    /// What it says now, which is not ours.
    pub current: String,
}

/// What was put back, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Knobs that say again what they said at first.
    pub restored: Vec<PathBuf>,
    /// Knobs that somebody else has changed meanwhile.
    pub left: Vec<Left>,
    /// Knobs that another manager still holds, and will put back.
    pub shared: Vec<PathBuf>,
    /// Knobs that could not be put back, and why; the next recovery tries again.
    pub failed: Vec<(PathBuf, String)>,
    /// State files that make no sense, and where they were kept.
    pub corrupt: Vec<PathBuf>,
}

impl Restored {
    /// There was nothing to put back.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where settings are remembered on a machine; tests have folders of their own.
pub const STATE_FOLDER: &str = "/run/mega";

/// The settings that this manager has changed. Dropping it puts them back.
#[derive(Debug)]
pub struct Knobs {
    root: ProcRoot,
    folder: Folder,
    /// Its state's file: one for each of a process's.
    file: String,
    state: State,
}

impl Knobs {
    /// For settings below this root, remembered in this folder (/run/mega), which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made, or others may write in it.
    pub fn open(root: ProcRoot, folder: &Path) -> Result<Self> {
        let manager = Manager::ourselves()?;
        Self::open_as(root, folder, manager)
    }

    fn open_as(root: ProcRoot, folder: &Path, manager: Manager) -> Result<Self> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let file = format!("{manager}-{}", OPENED.fetch_add(1, Ordering::Relaxed));
        let state = State {
            schema: SCHEMA,
            manager,
            knobs: BTreeMap::new(),
        };
        Ok(Self {
            root,
            folder: Folder::open(folder)?,
            file,
            state,
        })
    }

    /// The root below which settings are changed.
    pub fn root(&self) -> &ProcRoot {
        &self.root
    }

    /// What a knob says: of several choices the one in brackets.
    ///
    /// # Errors
    /// It is no setting, or cannot be read.
    pub fn get(&self, path: &Path) -> Result<String> {
        current(&self.root, path)
    }

    /// Changes a setting, remembering what it was. Puts back first what a crashed manager left behind.
    ///
    /// # Errors
    /// It is no setting, another manager holds it at another value, or the kernel refused or did not keep the value.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        self.set_timed(path, value).map(|_| ())
    }

    /// As [`Knobs::set`]; answers how long the kernel took for the write itself, without what remembering costs.
    ///
    /// # Errors
    /// As [`Knobs::set`].
    pub fn set_timed(&mut self, path: &Path, value: &str) -> Result<Duration> {
        self.change(path, value, false, &mut put)
    }

    /// As [`Knobs::set`], with the write itself left to `write`: for one that has to be bounded in time.
    ///
    /// # Errors
    /// As [`Knobs::set`], and those of `write`.
    pub fn set_by(
        &mut self,
        path: &Path,
        value: &str,
        write: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<()> {
        self.change(path, value, false, write).map(|_| ())
    }

    /// Sets a count to this number or, where the kernel cannot, to one on the way to it. Answers which.
    ///
    /// # Errors
    /// As [`Knobs::set`].
    pub fn raise(&mut self, path: &Path, value: u64) -> Result<u64> {
        self.raise_by(path, value, &mut put)
    }

    /// As [`Knobs::raise`], with the write itself left to `write`, which may end it early.
    ///
    /// # Errors
    /// As [`Knobs::set`], and those of `write`.
    pub fn raise_by(
        &mut self,
        path: &Path,
        value: u64,
        write: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<u64> {
        match self.change(path, &value.to_string(), true, write) {
            Ok(_) => Ok(value),
            Err(KnobError::NotKept { path, wrote, reads }) => match reads.parse() {
                Ok(reached) => Ok(reached),
                Err(_) => Err(KnobError::NotKept { path, wrote, reads }),
            },
            Err(error) => Err(error),
        }
    }

    fn change(
        &mut self,
        path: &Path,
        value: &str,
        count: bool,
        put: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<Duration> {
        // Anything between takes khugepaged's and the shrinker's limits apart, and later kernels refuse it. What others wrote is put back.
        if path.ends_with("khugepaged/max_ptes_none") && !["0", "511"].contains(&value) {
            return Err(KnobError::Refused {
                path: path.to_owned(),
                value: value.to_owned(),
                why: "only 0 and 511 have a meaning for all sizes",
            });
        }
        let lock = self.folder.lock()?;
        let before = current(&self.root, path)?;
        self.clean_up(&lock)?;
        let before = match self.state.knobs.contains_key(path) {
            true => before,
            // Cleaning up may have changed it.
            false => current(&self.root, path)?,
        };
        let mut original = before.clone();
        for other in self.others(&lock)? {
            let Some(held) = other.knobs.get(path) else { continue };
            if held.ours.iter().any(|ours| ours != value) {
                return Err(KnobError::Held {
                    path: path.to_owned(),
                    manager: other.manager.pid,
                    value: held.ours.last().cloned().unwrap_or_default(),
                });
            }
            original.clone_from(&held.original);
        }
        let previous = self.state.knobs.get(path).cloned();
        let held = self.state.knobs.entry(path.to_owned()).or_insert(Held {
            original,
            ours: Vec::new(),
            count,
        });
        if held.ours.last().is_none_or(|last| last != value) {
            held.ours.push(value.to_owned());
        }
        self.save(&lock)?;
        let result = write(&self.root, path, value, put);
        match (&result, previous) {
            (Ok(_), _) => {
                if let Some(held) = self.state.knobs.get_mut(path) {
                    held.ours = vec![value.to_owned()];
                }
            }
            // Refused and unchanged: it is as it was before.
            (Err(_), previous) if current(&self.root, path).is_ok_and(|now| now == before) => match previous {
                Some(previous) => {
                    self.state.knobs.insert(path.to_owned(), previous);
                }
                None => {
                    self.state.knobs.remove(path);
                }
            },
            // Half done: all values stay remembered as ours.
            (Err(_), _) => {}
        }
        self.save(&lock)?;
        result
    }

    /// Puts back everything that we have changed and that is still as we wrote it.
    ///
    /// # Errors
    /// The state folder cannot be used. A setting that cannot be put back is no error but in the report.
    pub fn restore(&mut self) -> Result<Restored> {
        let mut report = Restored::default();
        if self.state.knobs.is_empty() {
            return Ok(report);
        }
        let lock = self.folder.lock()?;
        let others = self.others(&lock)?;
        put_back(&self.root, &mut self.state, &others, &mut report);
        self.save(&lock)?;
        Ok(report)
    }

    /// Puts back what managers that are gone have left changed. Files that make no sense are kept aside and reported.
    ///
    /// # Errors
    /// As [`Knobs::restore`].
    pub fn recover(&mut self) -> Result<Restored> {
        let lock = self.folder.lock()?;
        self.clean_up(&lock)
    }

    /// The knobs that managers hold now, with original value, value and PID.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub fn held(&self) -> Result<Vec<(PathBuf, String, String, u32)>> {
        let lock = self.folder.lock()?;
        let mut all = Vec::new();
        for state in self.others(&lock)?.into_iter().chain([self.state.clone()]) {
            for (path, held) in state.knobs {
                let value = held.ours.last().cloned().unwrap_or_default();
                all.push((path, held.original, value, state.manager.pid));
            }
        }
        Ok(all)
    }

    fn clean_up(&self, lock: &Lock) -> Result<Restored> {
        let mut report = Restored::default();
        let mut alive = vec![self.state.clone()];
        let mut gone = Vec::new();
        for (path, read) in self.folder.files::<State>(lock, "knobs")? {
            match read {
                Ok(state) if state.manager == self.state.manager => {}
                Ok(state) if state.manager.is_alive() => alive.push(state),
                Ok(state) if state.schema == SCHEMA => gone.push((path, state)),
                _ => report.corrupt.push(self.folder.keep_aside(lock, &path)?),
            }
        }
        for (path, mut state) in gone {
            let named = state.knobs.len();
            state.knobs.retain(|knob, _| check(&self.root, knob).is_ok());
            let names_others = state.knobs.len() < named;
            // After a boot everything is as the kernel has it.
            if state.manager.is_of_this_boot() {
                put_back(&self.root, &mut state, &alive, &mut report);
            } else {
                state.knobs.clear();
            }
            // What names no setting will never be one, and every later recovery would fail for it.
            if names_others {
                report.corrupt.push(self.folder.keep_aside(lock, &path)?);
            }
            self.folder
                .save(lock, &path, (!state.knobs.is_empty()).then_some(&state))?;
        }
        Ok(report)
    }

    fn others(&self, lock: &Lock) -> Result<Vec<State>> {
        let files = self.folder.files::<State>(lock, "knobs")?.into_iter();
        let states = files.filter_map(|(_, read)| read.ok());
        Ok(states
            .filter(|state| state.manager != self.state.manager && state.manager.is_alive())
            .collect())
    }

    fn save(&self, lock: &Lock) -> Result<()> {
        let path = self.folder.path("knobs", &self.file);
        let state = (!self.state.knobs.is_empty()).then_some(&self.state);
        self.folder.save(lock, &path, state)
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        // A forked child has a copy of this and no business with it. What fails here stays in the file for `recover`.
        if self.state.manager.pid == std::process::id() {
            let _ = self.restore();
        }
    }
}

/// Puts back what the state holds, and takes out of it what is settled.
fn put_back(root: &ProcRoot, state: &mut State, others: &[State], report: &mut Restored) {
    let mut unsettled = BTreeMap::new();
    for (path, held) in std::mem::take(&mut state.knobs) {
        if others.iter().any(|other| other.knobs.contains_key(&path)) {
            report.shared.push(path);
            continue;
        }
        let current = match current(root, &path) {
            Ok(current) => current,
            Err(error) => {
                report.failed.push((path.clone(), error.to_string()));
                unsettled.insert(path, held);
                continue;
            }
        };
        if current == held.original {
            report.restored.push(path);
        } else if !held.is_ours(&current) {
            report.left.push(Left {
                path,
                original: held.original,
                current,
            });
        } else if let Err(error) = write(root, &path, &held.original, &mut put) {
            report.failed.push((path.clone(), error.to_string()));
            unsettled.insert(path, held);
        } else {
            report.restored.push(path);
        }
    }
    state.knobs = unsettled;
}

/// A state file must not have us write anywhere but to settings.
fn check(root: &ProcRoot, path: &Path) -> Result<()> {
    let below = path.starts_with(&root.sys) || path.starts_with(root.proc.join("sys"));
    if below && !path.components().any(|part| part == Component::ParentDir) {
        return Ok(());
    }
    Err(KnobError::NotAKnob { path: path.to_owned() })
}

fn current(root: &ProcRoot, path: &Path) -> Result<String> {
    check(root, path)?;
    let text = crate::proc::read_bounded(path, 4096)?;
    let value = chosen(&String::from_utf8_lossy(&text)).to_owned();
    Ok(persistent(path, &value).unwrap_or(value))
}

/// What was written to a count of hugetlb pages. It reads as that and the surplus pages, which go when their program does: putting those back,
/// too, would keep them for good (hugetlbpage.rst, "surplus_hugepages"). `None` for other settings.
fn persistent(path: &Path, value: &str) -> Option<String> {
    if path.file_name()? != "nr_hugepages" {
        return None;
    }
    let surplus = crate::proc::read_bounded(&path.with_file_name("surplus_hugepages"), 4096).ok()?;
    let surplus: u64 = String::from_utf8_lossy(&surplus).trim().parse().ok()?;
    Some(value.parse::<u64>().ok()?.saturating_sub(surplus).to_string())
}

/// Writes and reads again. Answers how long the write took.
fn write(
    root: &ProcRoot,
    path: &Path,
    value: &str,
    put: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
) -> Result<Duration> {
    check(root, path)?;
    let begin = sys::monotonic();
    put(path, value).map_err(|e| Error::io(path, "write", e))?;
    let took = sys::monotonic().saturating_sub(begin);
    let reads = current(root, path)?;
    if reads == value {
        return Ok(took);
    }
    Err(KnobError::NotKept {
        path: path.to_owned(),
        wrote: value.to_owned(),
        reads,
    })
}

/// A file that is not there is no setting, and is not made.
fn put(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())
}

#[cfg(test)]
mod tests;
