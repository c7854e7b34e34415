//! The folder in which the agents of a command's processes keep their pages.
//!
//! It belongs to the command's user, who may put anything into it: what is no regular file is not read, and nothing is followed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mega_linux::agent::done::{Said, Sums};
use mega_linux::agent::profiles::{Program, Shown};
use mega_linux::proc::ProcRoot;
use mega_linux::sys::User;
use mega_range::page::BYTES;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};

const NAME: &str = "agents-";

/// The folder, and what its pages said at the last look.
pub struct Pages {
    path: PathBuf,
    folder: OwnedFd,
    seen: BTreeMap<u32, Said>,
    /// Of programs that have ended.
    ended: Sums,
    shown: BTreeMap<Program, Shown>,
}

impl Pages {
    /// Makes it below `parent`, which others may not write in, for this user's programs (none: our own user's).
    ///
    /// # Errors
    /// The folder cannot be made or given to the user.
    pub fn create(parent: &Path, user: Option<&User>) -> Result<Self> {
        let root = ProcRoot::default();
        remove_left(parent, &root);
        let path = parent.join(format!("{NAME}{}", std::process::id()));
        remove(&path);
        let made = || -> rustix::io::Result<OwnedFd> {
            rustix::fs::mkdir(&path, Mode::RWXU)?;
            let folder = open_folder(&path)?;
            // Whatever the umask is.
            rustix::fs::fchmod(&folder, Mode::RWXU)?;
            if let Some(user) = user {
                rustix::fs::fchown(&folder, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
            }
            Ok(folder)
        };
        let folder = made().with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self {
            path,
            folder,
            seen: BTreeMap::new(),
            ended: Sums::default(),
            shown: BTreeMap::new(),
        })
    }

    /// The value of the variable that tells agents where to keep their pages.
    pub fn template(&self) -> OsString {
        self.path.join("%").into()
    }

    /// Reads all pages; returns those that have news. What ended processes leave is added up and removed.
    pub fn look(&mut self) -> Vec<(u32, Said)> {
        let root = ProcRoot::default();
        let mut news = Vec::new();
        for pid in pids(&self.folder) {
            // Asked before the page is read: what it says then is the last.
            let has_ended = !root.of_process(pid, "").exists();
            if let Some(said) = read(&self.folder, pid) {
                let before = self.seen.get(&pid);
                if let Some(before) = before.filter(|before| said.began_anew_after(before)) {
                    self.ended.add(before);
                    show(&mut self.shown, before);
                }
                if before.is_none_or(|before| said.did_more_than(before)) {
                    news.push((pid, said.clone()));
                }
                self.seen.insert(pid, said);
            }
            if has_ended {
                let _ = rustix::fs::unlinkat(&self.folder, pid.to_string(), AtFlags::empty());
                if let Some(last) = self.seen.remove(&pid) {
                    self.ended.add(&last);
                    show(&mut self.shown, &last);
                }
            }
        }
        news
    }

    /// What the agent of this process says, and the inode of its page.
    pub fn of(&self, pid: u32) -> Option<(Said, u64)> {
        read_with_inode(&self.folder, pid)
    }

    /// What all programs have shown of how they fill their memory, as of the last look.
    pub fn shown(&self) -> BTreeMap<Program, Shown> {
        let mut shown = self.shown.clone();
        self.seen.values().for_each(|said| show(&mut shown, said));
        shown
    }

    /// What all programs did, as of the last look.
    pub fn sums(&self) -> Sums {
        let mut sums = self.ended.clone();
        self.seen.values().for_each(|said| sums.add(said));
        sums
    }
}

/// Adds what one process says, among so many programs at most.
fn show(shown: &mut BTreeMap<Program, Shown>, said: &Said) {
    const MOST: usize = 1024;
    let Some(program) = said.program() else { return };
    if shown.len() < MOST || shown.contains_key(&program) {
        shown.entry(program).or_default().add(&said.shown());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// The names in a folder.
fn names(folder: &OwnedFd) -> Vec<std::ffi::CString> {
    let Ok(entries) = rustix::fs::Dir::read_from(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.file_name().to_owned()).collect()
}

/// Those that are a process's number, as an agent writes it.
fn pids(folder: &OwnedFd) -> Vec<u32> {
    let pid = |name: &std::ffi::CString| {
        let text = name.to_str().ok()?;
        let pid: u32 = text.parse().ok()?;
        (pid.to_string() == text).then_some(pid)
    };
    names(folder).iter().filter_map(pid).collect()
}

/// A page, where there is one that is whole.
fn read(folder: &OwnedFd, pid: u32) -> Option<Said> {
    read_with_inode(folder, pid).map(|(said, _)| said)
}

fn read_with_inode(folder: &OwnedFd, pid: u32) -> Option<(Said, u64)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, pid.to_string(), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(file.as_fd()).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut bytes = Vec::with_capacity(BYTES);
    File::from(file).take(BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some((Said::read(&bytes).ok()?, stat.st_ino))
}

/// Removes such a folder with its files. A folder within it, which no agent makes, stays, and it with that.
fn remove(path: &Path) {
    if let Ok(folder) = open_folder(path) {
        for name in names(&folder) {
            let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
        }
        let _ = rustix::fs::rmdir(path);
    }
}

/// Removes what killed managers left.
fn remove_left(parent: &Path, root: &ProcRoot) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse().ok());
        if pid.is_some_and(|pid: u32| !root.of_process(pid, "").exists()) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_range::page::{Field, MAGIC, VERSION};
    use std::os::unix::fs::PermissionsExt;

    /// No process has such a number.
    const ENDED: u32 = u32::MAX - 1;

    fn write(pages: &Pages, pid: u32, collapsed: u64) {
        let mut bytes = vec![0u8; BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
        let at = Field::Collapsed.word() * 8;
        bytes[at..at + 8].copy_from_slice(&collapsed.to_le_bytes());
        std::fs::write(pages.path.join(pid.to_string()), bytes).unwrap();
    }

    fn collapsed(pages: &Pages) -> Option<u64> {
        pages.sums().to_json()["collapsed"].as_u64()
    }

    #[test]
    fn pages_are_read_added_up_and_removed_with_their_processes() {
        let parent = tempfile::tempdir().unwrap();
        let mut pages = Pages::create(parent.path(), None).unwrap();
        let mode = pages.path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let own = std::process::id();
        write(&pages, own, 3);
        write(&pages, ENDED, 4);
        assert_eq!(pages.look().len(), 2);
        assert_eq!(collapsed(&pages), Some(7));
        assert!(!pages.path.join(ENDED.to_string()).exists());
        assert!(pages.look().is_empty(), "nothing is new");
        // Another program in the same process.
        write(&pages, own, 1);
        assert_eq!(pages.look().len(), 1);
        assert_eq!(collapsed(&pages), Some(8));
        let path = pages.path.clone();
        drop(pages);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_page_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let mut pages = Pages::create(parent.path(), None).unwrap();
        let own = std::process::id().to_string();
        std::os::unix::fs::symlink("/etc/passwd", pages.path.join(&own)).unwrap();
        std::fs::write(pages.path.join("01"), "x").unwrap();
        std::fs::write(pages.path.join("1"), "short").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, pages.path.join("2"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(pages.look().is_empty());
        assert_eq!(pages.sums(), Sums::default());
        // Left by a manager that was killed.
        let left = parent.path().join(format!("{NAME}{ENDED}"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("1"), "x").unwrap();
        remove_left(parent.path(), &ProcRoot::default());
        assert!(!left.exists() && pages.path.exists());
    }
}
