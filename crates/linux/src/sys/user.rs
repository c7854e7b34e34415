//! What a command is started as, with and under: a user, a limit of open files, reservations.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::set_open_files_limit;

/// Whom a command is to run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups.
    pub groups: Vec<u32>,
    /// Home folder.
    pub home: PathBuf,
}

impl User {
    /// The user of this name or number; `None` when there is none.
    pub fn find(name: &str) -> Option<Self> {
        let mut buffer = vec![0u8; 64 << 10];
        // SAFETY: plain memory that the calls fill.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let c_name = CString::new(name).ok()?;
        let (text, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the name ends in NUL, and all buffers live through the call, with their true lengths.
        let mut error = unsafe { libc::getpwnam_r(c_name.as_ptr(), &mut entry, text, bytes, &mut found) };
        if let (true, Ok(uid)) = (found.is_null(), name.parse()) {
            // SAFETY: as above.
            error = unsafe { libc::getpwuid_r(uid, &mut entry, text, bytes, &mut found) };
        }
        if error != 0 || found.is_null() {
            return None;
        }
        let mut groups: Vec<libc::gid_t> = vec![0; 1024];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the entry was filled in above and points into `buffer`; the list has room for `count` groups.
        let (name, home) = unsafe {
            if libc::getgrouplist(entry.pw_name, entry.pw_gid, groups.as_mut_ptr(), &mut count) < 0 {
                return None;
            }
            (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir))
        };
        groups.truncate(usize::try_from(count).ok()?);
        Some(Self {
            name: name.to_str().ok()?.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups,
            home: OsStr::from_bytes(home.to_bytes()).into(),
        })
    }
}

/// Has a command run as this user (groups, group, user, and HOME, USER and LOGNAME), and with this soft limit of open files.
pub fn before_exec(command: &mut Command, user: Option<User>, open_files: Option<u64>) {
    if let Some(user) = &user {
        command.env("HOME", &user.home);
        command.env("USER", &user.name).env("LOGNAME", &user.name);
    }
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec the closure makes system calls only, on memory that the child has a copy of.
    unsafe {
        command.pre_exec(move || {
            if let Some(soft) = open_files {
                set_open_files_limit(Some(soft))?;
            }
            if let Some(user) = &user {
                check(libc::setgroups(user.groups.len(), user.groups.as_ptr()))?;
                check(libc::setresgid(user.gid, user.gid, user.gid))?;
                check(libc::setresuid(user.uid, user.uid, user.uid))?;
            }
            Ok(())
        });
    }
}

/// Has the command ask for reservations of huge pages (PR_SET_THP_RESERVE of `kernel/reservation`) before it runs.
pub fn reserve_before_exec(command: &mut Command, threshold: u32) {
    const PR_SET_THP_RESERVE: libc::c_int = 0x5448_5052;
    // SAFETY: between fork and exec the closure makes one system call, which takes no pointer.
    unsafe {
        command.pre_exec(
            move || match libc::prctl(PR_SET_THP_RESERVE, libc::c_ulong::from(threshold), 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
}
