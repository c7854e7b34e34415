//! A control group, version 1 or 2, made for one run and removed after it: it limits memory, and counts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mega_core::units::Bytes;
use mega_linux::proc::ProcRoot;

use super::system;
use crate::program::ProgramError;

/// Files of the memory controller in one version of control groups.
struct Files {
    limit: &'static str,
    events: &'static str,
    killed: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    events: "memory.oom_control",
    killed: "oom_kill ",
};
const V2: Files = Files {
    limit: "memory.max",
    events: "memory.events",
    killed: "oom_kill ",
};

/// The control group. Dropping it moves remaining processes to its parent and removes it.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    two: bool,
}

/// Prefix of our groups; then come the PID of the process that made it, and a number.
const NAME: &str = "mega-lab-";
static MADE: AtomicU32 = AtomicU32::new(0);

/// Where a group says how much memory its processes take.
#[derive(Debug, Clone)]
pub struct Account(PathBuf);

impl Account {
    /// Memory of no file, shared memory too, once however many processes map it, with what is unmapped of huge pages that
    /// are whole still: the pages on the group's lists (memory.stat).
    #[must_use]
    pub fn taken_bytes(&self) -> Option<u64> {
        anonymous(&fs::read_to_string(&self.0).ok()?)
    }
}

fn anonymous(stat: &str) -> Option<u64> {
    let of = |name: &str| {
        let mut lines = stat.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    Some(of("active_anon")? + of("inactive_anon")? + of("unevictable")?)
}

impl Group {
    /// Makes one, with this limit or none, after removing groups left by lab processes that have exited.
    ///
    /// # Errors
    /// No memory controller, or no permission.
    pub fn make(root: &ProcRoot, limit: Option<Bytes>) -> Result<Self, ProgramError> {
        let (parent, two) = parent(root)?;
        remove_left(root, &parent);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = parent.join(format!("{NAME}{process}-{number}"));
        match fs::create_dir(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(system(&format!("create the control group {}", path.display()), e));
            }
            _ => {}
        }
        let group = Self { path, two };
        if let Some(limit) = limit {
            let file = group.path.join(group.files().limit);
            fs::write(&file, limit.0.to_string()).map_err(|e| system(&format!("write {}", file.display()), e))?;
        }
        Ok(group)
    }

    fn files(&self) -> &'static Files {
        if self.two {
            &V2
        } else {
            &V1
        }
    }

    /// How much its processes take.
    #[must_use]
    pub fn account(&self) -> Account {
        Account(self.path.join("memory.stat"))
    }

    /// Moves a process into it, with its threads.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, pid: i32) -> Result<(), ProgramError> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|e| system(&format!("put process {pid} into {}", file.display()), e))
    }

    /// Whether the kernel killed a process of the group at its limit.
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        let text = fs::read_to_string(self.path.join(self.files().events)).unwrap_or_default();
        let killed = text.lines().find_map(|line| line.strip_prefix(self.files().killed));
        killed.and_then(|n| n.trim().parse::<u64>().ok()).is_some_and(|n| n > 0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Moves a group's processes to its parent and removes it.
fn remove(path: &Path) {
    let Some(parent) = path.parent() else { return };
    for pid in fs::read_to_string(path.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
    {
        let _ = fs::write(parent.join("cgroup.procs"), pid);
    }
    let _ = fs::remove_dir(path);
}

fn remove_left(root: &ProcRoot, parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAME)?.split('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !root.of_process(pid, "stat").exists()) {
            remove(&entry.path());
        }
    }
}

/// Where a group can be made: our own group in the memory controller's hierarchy; and whether it is version 2.
fn parent(root: &ProcRoot) -> Result<(PathBuf, bool), ProgramError> {
    let one = root.sys.join("fs/cgroup/memory");
    if one
        .join(V1.limit)
        .parent()
        .is_some_and(|p| p.join("cgroup.procs").exists())
    {
        return Ok((one, false));
    }
    let two = root.sys.join("fs/cgroup");
    let control = two.join("cgroup.subtree_control");
    if fs::read_to_string(two.join("cgroup.controllers")).is_ok_and(|c| c.split_whitespace().any(|c| c == "memory")) {
        // Usually enabled already; systemd does the same, and it limits nothing by itself.
        if !fs::read_to_string(&control).is_ok_and(|c| c.split_whitespace().any(|c| c == "memory")) {
            fs::write(&control, "+memory").map_err(|e| system("enable the memory controller", e))?;
        }
        return Ok((two, true));
    }
    Err(system(
        "limit memory",
        std::io::Error::other("the memory controller of control groups is missing"),
    ))
}
