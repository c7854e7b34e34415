//! Transparent huge pages of a process, by prctl(2): for itself and for what it starts. A fork inherits it, and an exec keeps it. Nobody
//! can undo it for a process from outside.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;

use super::last_errno;

/// How a process's THP is switched off by prctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThpDisable {
    /// It is not.
    No,
    /// Wholly: MADV_COLLAPSE fails too.
    Fully,
    /// Except where madvise(MADV_HUGEPAGE) or MADV_COLLAPSE asks for it (6.18).
    ExceptAdvised,
}

/// PR_THP_DISABLE_EXCEPT_ADVISED of uapi/linux/prctl.h.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// The system call; all its arguments are numbers.
fn set(disable: ThpDisable) -> Result<(), Errno> {
    let (set, flags): (libc::c_ulong, libc::c_ulong) = match disable {
        ThpDisable::No => (0, 0),
        ThpDisable::Fully => (1, 0),
        ThpDisable::ExceptAdvised => (1, EXCEPT_ADVISED),
    };
    let none: libc::c_ulong = 0;
    // SAFETY: PR_SET_THP_DISABLE takes no pointer; its last two arguments must be zero.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, set, flags, none, none) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// What PR_GET_THP_DISABLE says about ourselves. About others only `THP_enabled` in /proc/PID/status speaks, and only of [`ThpDisable::Fully`].
///
/// # Errors
/// EINVAL before Linux 3.15.
pub fn own_thp_disable() -> Result<ThpDisable, Errno> {
    let none: libc::c_ulong = 0;
    // SAFETY: PR_GET_THP_DISABLE takes no pointer; its other arguments must be zero.
    match unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) } {
        -1 => Err(last_errno()),
        0 => Ok(ThpDisable::No),
        bits if bits as libc::c_ulong & EXCEPT_ADVISED != 0 => Ok(ThpDisable::ExceptAdvised),
        _ => Ok(ThpDisable::Fully),
    }
}

/// Whether this kernel has [`ThpDisable::ExceptAdvised`]. Asked of a child that ends at once: nothing of ours changes.
pub fn can_except_advised() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        // SAFETY: between fork and _exit the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(set(ThpDisable::ExceptAdvised).is_err());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for that child; `status` is ours.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        child > 0 && waited == child && status == 0
    })
}

/// Has a command run with its THP switched off so, with all that it starts.
pub fn disable_thp_before_exec(command: &mut Command, disable: ThpDisable) {
    // SAFETY: between fork and exec the closure makes one system call, which takes no pointer.
    unsafe {
        command.pre_exec(move || set(disable).map_err(|errno| io::Error::from_raw_os_error(errno.raw_os_error())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell started so says of itself, and of what it starts: `THP_enabled` is about [`ThpDisable::Fully`] alone.
    fn thp_enabled(disable: ThpDisable) -> Vec<String> {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "grep THP_enabled /proc/self/status; sh -c 'grep THP_enabled /proc/self/status'",
        ]);
        disable_thp_before_exec(&mut command, disable);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines()
            .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn it_is_inherited_and_an_exec_keeps_it_and_we_stay_as_we_are() {
        let before = own_thp_disable().unwrap();
        if before == ThpDisable::No {
            assert_eq!(thp_enabled(ThpDisable::No), ["1", "1"]);
        }
        assert_eq!(thp_enabled(ThpDisable::Fully), ["0", "0"]);
        match can_except_advised() {
            true => assert_eq!(thp_enabled(ThpDisable::ExceptAdvised), ["1", "1"]),
            false => eprintln!("SKIPPED: needs Linux 6.18"),
        }
        assert_eq!(own_thp_disable().unwrap(), before);
    }
}
