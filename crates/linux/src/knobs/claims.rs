//! Claims: two managers never work on one process.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::state::{Folder, Manager};
use super::KnobError;

/// Why a process is not ours to manage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another manager has it.
    #[error("process {pid}: already managed by process {manager}")]
    Taken {
        /// The process.
        pid: u32,
        /// The other manager, or we ourselves.
        manager: u32,
    },
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] KnobError),
}

/// A claim's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    pid: u32,
    start_ticks: u64,
    manager: Manager,
}

/// Who manages whom, one file per managed process in `claims` of the state folder.
#[derive(Debug, Clone)]
pub struct Claims {
    folder: Folder,
    us: Manager,
}

/// A process that is ours to manage until this is dropped, or until we end.
#[derive(Debug)]
pub struct Claim {
    claims: Claims,
    process: Manager,
}

impl Claims {
    /// In this folder (/run/mega), which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made, or others may write in it.
    pub fn open(folder: &Path) -> Result<Self, KnobError> {
        Ok(Self {
            folder: Folder::open(folder)?,
            us: Manager::ourselves()?,
        })
    }

    /// Claims a process. A claim whose manager has ended, by whatever means, is void.
    ///
    /// # Errors
    /// Another manager has the process, or the state folder cannot be used.
    pub fn claim(&self, pid: u32, start_ticks: u64) -> Result<Claim, ClaimError> {
        let process = Manager {
            pid,
            start_ticks,
            boot: self.us.boot.clone(),
        };
        let lock = self.folder.lock().map_err(KnobError::from)?;
        let path = self.folder.path("claims", &process.to_string());
        // A file that makes no sense claims nothing.
        if let Ok(there) = Folder::read::<State>(&path) {
            if there.manager.is_alive() {
                return Err(ClaimError::Taken {
                    pid,
                    manager: there.manager.pid,
                });
            }
        }
        let state = State {
            pid,
            start_ticks,
            manager: self.us.clone(),
        };
        self.folder.save(&lock, &path, Some(&state))?;
        Ok(Claim {
            claims: self.clone(),
            process,
        })
    }

    /// The claims that hold: process and manager, by PID. Removes those that do not.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub fn list(&self) -> Result<Vec<(u32, u32)>, KnobError> {
        let lock = self.folder.lock()?;
        let mut holding = Vec::new();
        for (path, read) in self.folder.files::<State>(&lock, "claims")? {
            match read {
                Ok(state) if state.manager.is_alive() => holding.push((state.pid, state.manager.pid)),
                _ => self.folder.save::<State>(&lock, &path, None)?,
            }
        }
        Ok(holding)
    }
}

impl Claim {
    fn release(&self) -> Result<(), KnobError> {
        let folder = &self.claims.folder;
        let lock = folder.lock()?;
        let path = folder.path("claims", &self.process.to_string());
        match Folder::read::<State>(&path) {
            Ok(state) if state.manager == self.claims.us => folder.save::<State>(&lock, &path, None),
            _ => Ok(()),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A forked child must not release what its parent holds. What fails here is void once we have ended.
        if self.claims.us.pid == std::process::id() {
            let _ = self.release();
        }
    }
}
