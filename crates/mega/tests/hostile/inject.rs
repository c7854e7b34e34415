//! System calls that fail when we say so: the kernel asks this test about each call (seccomp's user notification), which lets it go on, has it
//! fail, or kills the caller.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

/// The listener's number in the program.
const LISTENER: i32 = 200;
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// A system call as the kernel tells of it: `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Call {
    id: u64,
    /// The thread that makes it.
    pub tid: u32,
    flags: u32,
    /// Which.
    pub number: i32,
    arch: u32,
    ip: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    GoesOn,
    Fails(i32),
    /// The caller is killed before it.
    Dies,
}

/// Asks about these calls until the program has ended.
pub struct Injector {
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

fn ioctl<T>(fd: &OwnedFd, request: libc::c_ulong, with: &mut T) -> io::Result<()> {
    // SAFETY: `with` is the structure that the request takes, by the kernel's uapi/linux/seccomp.h.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(with)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel ask about these calls of the command.
fn watch(command: &mut Command, calls: &[i64]) {
    let step = |code, k: u32, jt: u8, jf: u8| libc::sock_filter { code, jt, jf, k };
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let say = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = vec![step(load, 0, 0, 0)];
    program.extend(
        calls
            .iter()
            .enumerate()
            .map(|(n, call)| step(is, *call as u32, (calls.len() - n) as u8, 0)),
    );
    program.push(step(say, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(step(say, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    // SAFETY: between fork and exec two system calls, on memory that was there before the fork.
    unsafe {
        command.pre_exec(move || {
            let filter = libc::sock_fprog {
                len: program.len() as u16,
                filter: program.as_ptr().cast_mut(),
            };
            let fd = libc::syscall(
                libc::SYS_seccomp,
                libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const filter,
            );
            if fd < 0 || libc::dup2(fd as i32, LISTENER) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

impl Injector {
    /// Starts the command; `fate` decides about each of these calls from its start on.
    pub fn start(
        mut command: Command,
        calls: &[i64],
        mut fate: impl FnMut(&Call) -> Fate + Send + 'static,
    ) -> io::Result<(Child, Self)> {
        watch(&mut command, calls);
        let child = command.spawn()?;
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        // SAFETY: numbers only; the new descriptor is nobody else's.
        let listener = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), LISTENER, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            while !is_over.load(Relaxed) {
                let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
                if !poll(&mut fds, Some(&pause)).is_ok_and(|ready| ready > 0) {
                    continue;
                }
                if fds[0].revents().contains(PollFlags::HUP) {
                    return;
                }
                let mut call = Call::default();
                if ioctl(&listener, RECEIVE, &mut call).is_err() {
                    continue;
                }
                let mut answer = Answer {
                    id: call.id,
                    value: 0,
                    error: 0,
                    flags: 0,
                };
                match fate(&call) {
                    Fate::GoesOn => answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
                    Fate::Fails(errno) => answer.error = -errno,
                    Fate::Dies => {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                        continue;
                    }
                }
                let _ = ioctl(&listener, SEND, &mut answer);
            }
        });
        Ok((
            child,
            Self {
                thread: Some(thread),
                over,
            },
        ))
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The text at this address of a thread's memory.
pub fn text_at(tid: u32, address: u64) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 256];
    let file = std::fs::File::open(format!("/proc/{tid}/mem"));
    let read = file.and_then(|file| file.read_at(&mut bytes, address)).unwrap_or(0);
    let end = bytes[..read].iter().position(|byte| *byte == 0).unwrap_or(read);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
