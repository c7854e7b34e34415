//! Finding processes by name, by cgroup and by systemd unit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{shorten, Error};
use crate::proc::{lines, mountinfo, read_bounded, stat, task, ProcRoot, SMALL_BYTES};

/// The most cgroups that are searched, and how deep.
const CGROUPS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 32;

/// Why no process was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// A kernel file cannot be read.
    #[error(transparent)]
    Read(#[from] Error),
    /// No cgroup hierarchy is mounted.
    #[error("no cgroup hierarchy is mounted (looked in {})", mountinfo.display())]
    NoHierarchy {
        /// Where mounts were looked for.
        mountinfo: PathBuf,
    },
    /// The path goes up, or is not a path.
    #[error("cgroup '{path}': a path such as /system.slice/redis.service, without '..'")]
    BadPath {
        /// What was given.
        path: String,
    },
    /// There is no such cgroup.
    #[error("cgroup '{path}': not found below {}", shown(searched))]
    NoCgroup {
        /// What was given.
        path: String,
        /// The hierarchies' mount points.
        searched: Vec<PathBuf>,
    },
    /// What was given is not a unit's name.
    #[error("unit '{name}': not a unit's name")]
    BadUnit {
        /// What was given.
        name: String,
    },
    /// There is no such unit, or it does not run.
    #[error(
        "unit '{name}': no cgroup of this name below {}, and systemd knows of none: is it running?",
        shown(searched)
    )]
    NoUnit {
        /// The unit's full name.
        name: String,
        /// The hierarchies' mount points.
        searched: Vec<PathBuf>,
    },
    /// Several units have this name: user units of several users.
    #[error("unit '{name}': several run: {}; give one of them by --cgroup", shown(found))]
    Ambiguous {
        /// The unit's full name.
        name: String,
        /// Their cgroups.
        found: Vec<PathBuf>,
    },
    /// There are more cgroups than anyone has.
    #[error("{}: more than {CGROUPS_MAX} cgroups", path.display())]
    TooMany {
        /// Where the search began.
        path: PathBuf,
    },
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// The processes whose name matches: what /proc/PID/comm has, at most 15 bytes. Kernel threads, zombies and ourselves are
/// left out; a process that ends meanwhile is too.
///
/// # Errors
/// /proc cannot be listed.
pub fn by_comm(root: &ProcRoot, matches: &dyn Fn(&str) -> bool) -> Result<BTreeSet<u32>, SelectError> {
    let mut found = BTreeSet::new();
    for pid in task::processes(root)? {
        let stat = match stat::read(root, pid) {
            Ok(stat) => stat,
            // One that we may not see, or cannot make sense of, is not one that was asked for.
            Err(_) => continue,
        };
        let ours = root.is_live() && pid == std::process::id();
        if !ours && !stat.is_kernel_thread() && !stat.is_over() && matches(&stat.comm) {
            found.insert(pid);
        }
    }
    Ok(found)
}

/// The processes in a cgroup and in those below it. The path is the cgroup's ("/system.slice/redis.service", with or
/// without the first slash) or that of its folder ("/sys/fs/cgroup/...").
///
/// # Errors
/// There is no such control group, or its files cannot be read.
pub fn by_cgroup(root: &ProcRoot, path: &Path) -> Result<BTreeSet<u32>, SelectError> {
    processes_below(&cgroup_folder(root, path)?)
}

/// The processes of a systemd unit; ".service" is added to a name without a type.
///
/// # Errors
/// There is no such unit, several have this name, or its files cannot be read.
pub fn by_unit(root: &ProcRoot, name: &str) -> Result<BTreeSet<u32>, SelectError> {
    processes_below(&unit_folder(root, name)?)
}

/// The folder of a cgroup. Looked for in v2 first (pure or hybrid), then in systemd's own v1 hierarchy, then in the others.
///
/// # Errors
/// There is no such control group, or no hierarchy is mounted.
pub fn cgroup_folder(root: &ProcRoot, path: &Path) -> Result<PathBuf, SelectError> {
    let given = || shorten(&path.to_string_lossy());
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(SelectError::BadPath { path: given() });
    }
    let hierarchies = hierarchies(root)?;
    for hierarchy in &hierarchies {
        // A folder's path as it is; else the cgroup's, from the part of the hierarchy that is mounted.
        let inside = path.strip_prefix(&hierarchy.point).ok().or_else(|| {
            let below = path.strip_prefix(&hierarchy.root).ok();
            below.or_else(|| path.is_relative().then_some(path))
        });
        let folder = inside.map(|inside| hierarchy.point.join(inside));
        if let Some(folder) = folder.filter(|folder| folder.join("cgroup.procs").is_file()) {
            return Ok(folder);
        }
    }
    Err(SelectError::NoCgroup {
        path: given(),
        searched: points(hierarchies),
    })
}

/// The folder of a systemd unit's cgroup.
///
/// # Errors
/// There is no such unit, or several have this name.
pub fn unit_folder(root: &ProcRoot, name: &str) -> Result<PathBuf, SelectError> {
    let bad = name.is_empty() || name.starts_with(['-', '.']) || name.contains(['/', '\0']) || name.len() > 255;
    if bad || name.chars().any(char::is_control) {
        return Err(SelectError::BadUnit { name: shorten(name) });
    }
    let types = [".service", ".scope", ".slice", ".mount", ".socket", ".swap"];
    let full = match types.iter().any(|end| name.ends_with(end)) {
        true => name.to_owned(),
        false => format!("{name}.service"),
    };
    let hierarchies = hierarchies(root)?;
    for hierarchy in &hierarchies {
        let usual = hierarchy.point.join("system.slice").join(&full);
        if usual.join("cgroup.procs").is_file() {
            return Ok(usual);
        }
        let mut found = Vec::new();
        for folder in cgroups_below(&hierarchy.point)? {
            if folder.file_name().is_some_and(|last| last == full.as_str()) {
                found.push(folder);
            }
        }
        match found.len() {
            0 => {}
            1 => return Ok(found.remove(0)),
            _ => return Err(SelectError::Ambiguous { name: full, found }),
        }
    }
    let known = root.is_live().then(|| ask_systemd(&full)).flatten();
    match known.and_then(|cgroup| cgroup_folder(root, &cgroup).ok()) {
        Some(folder) => Ok(folder),
        None => Err(SelectError::NoUnit {
            name: full,
            searched: points(hierarchies),
        }),
    }
}

/// The cgroup that systemd names for a unit; none when it does not run, or there is no systemd.
fn ask_systemd(unit: &str) -> Option<PathBuf> {
    let output = Command::new("systemctl")
        .args(["show", "--property=ControlGroup", "--value", "--", unit])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let cgroup = text.trim();
    // The root would be every process of the machine.
    (output.status.success() && cgroup.len() > 1).then(|| cgroup.into())
}

/// The mounted hierarchies, in the order in which they are searched.
fn hierarchies(root: &ProcRoot) -> Result<Vec<mountinfo::Mount>, SelectError> {
    let rank = |mount: &mountinfo::Mount| match mount.kind.as_str() {
        "cgroup2" => Some(0),
        "cgroup" if mount.options.split(',').any(|option| option == "name=systemd") => Some(1),
        "cgroup" => Some(2),
        _ => None,
    };
    let mut found = mountinfo::read(root)?;
    found.retain(|mount| rank(mount).is_some());
    found.sort_by_key(rank);
    if found.is_empty() {
        return Err(SelectError::NoHierarchy {
            mountinfo: root.proc.join("self/mountinfo"),
        });
    }
    Ok(found)
}

fn points(hierarchies: Vec<mountinfo::Mount>) -> Vec<PathBuf> {
    hierarchies.into_iter().map(|mount| mount.point).collect()
}

fn processes_below(folder: &Path) -> Result<BTreeSet<u32>, SelectError> {
    let mut found = BTreeSet::new();
    for cgroup in cgroups_below(folder)? {
        let path = cgroup.join("cgroup.procs");
        let text = match read_bounded(&path, SMALL_BYTES) {
            Ok(text) => text,
            // A threaded cgroup keeps its processes in the one above it; another one may be gone by now.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => continue,
            Err(error) if cgroup != folder && (error.is_gone() || error.errno() == Some(libc::ENODEV)) => continue,
            Err(error) => return Err(error.into()),
        };
        let text = String::from_utf8_lossy(&text);
        for (at, line) in lines(&path, &text) {
            // 0 is a process of another PID namespace.
            let pid: u32 = at.number("pid", Some(line))?;
            found.extend(Some(pid).filter(|pid| *pid != 0));
        }
    }
    Ok(found)
}

/// This cgroup and all below it.
fn cgroups_below(folder: &Path) -> Result<Vec<PathBuf>, SelectError> {
    let mut found = vec![(folder.to_owned(), 0)];
    let mut next = 0;
    while let Some((folder, depth)) = found.get(next).cloned() {
        next += 1;
        let listed = std::fs::read_dir(&folder).and_then(|entries| {
            entries
                .filter_map(
                    |entry| match entry.and_then(|e| Ok((e.file_type()?.is_dir(), e.path()))) {
                        Ok((true, path)) => Some(Ok(path)),
                        Ok((false, _)) => None,
                        Err(error) => Some(Err(error)),
                    },
                )
                .collect::<io::Result<Vec<PathBuf>>>()
        });
        match listed {
            Ok(folders) if depth < DEPTH_MAX => found.extend(folders.into_iter().map(|path| (path, depth + 1))),
            Ok(_) => {}
            Err(error) if depth > 0 && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&folder, "list", error).into()),
        }
        if found.len() > CGROUPS_MAX {
            return Err(SelectError::TooMany { path: folder });
        }
    }
    Ok(found.into_iter().map(|(path, _)| path).collect())
}
