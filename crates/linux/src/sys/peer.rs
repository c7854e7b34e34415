//! Who is at the other end of a Unix socket, and groups by name.

use std::ffi::CString;
use std::os::unix::net::UnixStream;

use rustix::fd::AsRawFd;
use rustix::io::Errno;

/// The process that connected, as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its PID; 0 where it is in a PID namespace that we do not see.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

/// Most groups that a process may have (NGROUPS_MAX).
const GROUPS: usize = 65536;

/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS of Linux 4.13).
///
/// # Errors
/// It is no Unix socket that is connected.
pub fn peer(stream: &UnixStream) -> Result<Peer, Errno> {
    let mut of = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(stream, libc::SO_PEERCRED, std::slice::from_mut(&mut of))?;
    let mut groups = vec![0u32; 64];
    let count = match option(stream, libc::SO_PEERGROUPS, &mut groups) {
        Err(Errno::RANGE) => {
            groups.resize(GROUPS, 0);
            option(stream, libc::SO_PEERGROUPS, &mut groups)?
        }
        other => other?,
    };
    groups.truncate(count);
    Ok(Peer {
        pid: u32::try_from(of.pid).unwrap_or(0),
        uid: of.uid,
        gid: of.gid,
        groups,
    })
}

/// Reads a list; answers how many it got.
fn option<T: Copy>(stream: &UnixStream, name: libc::c_int, list: &mut [T]) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(size_of_val(list)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the list lives through the call, which is told its size in bytes; the kernel fills in plain numbers, of which any is valid.
    let done = unsafe {
        let (list, length) = (list.as_mut_ptr().cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, list, length)
    };
    match done {
        0 => Ok(length as usize / size_of::<T>()),
        _ => Err(super::last_errno()),
    }
}

/// The number of the group of this name; `None` when there is none.
pub fn group(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0u8; 64 << 10];
    // SAFETY: plain memory that the call fills.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    let (text, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the name ends in NUL, and all buffers live through the call, with their true lengths.
    let error = unsafe { libc::getgrnam_r(name.as_ptr(), &mut entry, text, bytes, &mut found) };
    (error == 0 && !found.is_null()).then_some(entry.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_ourselves_with_our_groups() {
        let (here, _there) = UnixStream::pair().unwrap();
        let found = peer(&here).unwrap();
        assert_eq!(found.pid, std::process::id());
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert_eq!(found.gid, rustix::process::getegid().as_raw());
        let mut ours: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        let mut groups = found.groups;
        ours.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, ours);
    }

    #[test]
    fn groups_are_found_by_name() {
        assert_eq!(group("root"), Some(0));
        assert_eq!(group("no-such-group-of-mega"), None);
        assert_eq!(group("a\0b"), None);
    }
}
