//! Forking, pinning and dying with the parent.

use rustix::process::{getpid, getppid, set_parent_process_death_signal, Signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How a forked child exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A forked child. Dropping one that was not waited for kills it and waits.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    reaped: bool,
}

/// Forks. The child runs `body`, exits with its result (101 if it panics) and dies with the thread that forked it.
///
/// In the child only the calling thread exists. `body` must not print through `std::io::stdout` nor take any other lock
/// that another thread may have held at the time, or it deadlocks. (glibc makes its allocator usable in the child.)
///
/// # Errors
/// When the kernel refuses to fork.
pub fn fork_child(body: impl FnOnce() -> u8) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: the child goes on with a copy of this thread's memory; it runs `body` and leaves by _exit, so no destructor
    // or exit handler of the parent runs twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let with_parent = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
            let code = if with_parent && getppid() == Some(parent) {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101)
            } else {
                102
            };
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(code)) }
        }
        pid => Ok(Child { pid, reaped: false }),
    }
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    fn reap(&mut self, options: i32) -> io::Result<Option<Exit>> {
        let mut status = 0;
        loop {
            // SAFETY: writes to a local; the pid is a child of ours that was not reaped, so it names nobody else.
            match unsafe { libc::waitpid(self.pid, &mut status, options) } {
                0 => return Ok(None),
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ => {
                    self.reaped = true;
                    return Ok(Some(if libc::WIFSIGNALED(status) {
                        Exit::Signal(libc::WTERMSIG(status))
                    } else {
                        Exit::Code(libc::WEXITSTATUS(status))
                    }));
                }
            }
        }
    }

    /// Waits for it to exit.
    ///
    /// # Errors
    /// When it was waited for already.
    pub fn wait(&mut self) -> io::Result<Exit> {
        self.reap(0)?
            .ok_or_else(|| io::Error::other("waitpid returned nothing"))
    }

    /// How it exited, if it has.
    ///
    /// # Errors
    /// When it was waited for already.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.reap(libc::WNOHANG)
    }

    /// Sends SIGKILL, unless it was waited for already.
    pub fn kill(&self) {
        if !self.reaped {
            // SAFETY: an unreaped child of ours: its pid cannot have been given to another process.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.wait();
        }
    }
}

/// Makes this process die with the thread that started it.
///
/// # Errors
/// When the kernel refuses.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes the process of `command` die with the thread that starts it.
pub fn die_with_parent_after_exec(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only one system call is made, which is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// Keeps the process that `command` starts, and its children, from disabling huge pages for itself by
/// `prctl(PR_SET_THP_DISABLE)`: that call returns 0 and does nothing. Some databases do so; such a process
/// cannot be given huge pages. It also keeps them from gaining privileges by exec.
pub fn keep_thp_after_exec(command: &mut Command) -> &mut Command {
    answer_prctl_after_exec(command, libc::PR_SET_THP_DISABLE, 0)
}

/// Makes `prctl(PR_GET_AUXV)` fail in the process that `command` starts, as on a kernel before 6.4: for programs under Valgrind,
/// which hides the vDSO in /proc/self/auxv and not there, so that rustix would jump to where none is. It also keeps them
/// from gaining privileges by exec.
pub fn hide_vdso_after_exec(command: &mut Command) -> &mut Command {
    const PR_GET_AUXV: i32 = 0x4155_5856;
    answer_prctl_after_exec(command, PR_GET_AUXV, libc::EINVAL as u32)
}

/// Answers calls of `prctl` with this option by an error number, or 0 for success.
fn answer_prctl_after_exec(command: &mut Command, option: i32, errno: u32) -> &mut Command {
    const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The lower half of the first argument, which is the option.
    const OPTION: u32 = std::mem::offset_of!(libc::seccomp_data, args) as u32 + 4 * cfg!(target_endian = "big") as u32;
    let rule = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, jump, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut rules = [
        rule(load, 0, 0, NUMBER),
        rule(jump, 0, 3, libc::SYS_prctl as u32),
        rule(load, 0, 0, OPTION),
        rule(jump, 0, 1, option as u32),
        rule(end, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        rule(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: rules.len() as u16,
            filter: rules.as_mut_ptr(),
        };
        // SAFETY: takes no pointers.
        let no_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: the kernel copies the rules, which are valid and live until the call returns.
        let filter = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
        match (no_privileges, filter) {
            (0, 0) => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only two system calls are made, which are async-signal-safe.
    unsafe { command.pre_exec(install) }
}

/// Binds the calling thread, and threads and children that it starts from now on, to `cpu`.
///
/// # Errors
/// When this process may not use that CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The calling thread is bound to a CPU until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: rustix::thread::CpuSet,
    /// Belongs to the thread that was bound.
    _here: std::marker::PhantomData<*const ()>,
}

/// Binds the calling thread to `cpu` until the result is dropped. What it starts meanwhile inherits that and keeps it.
///
/// # Errors
/// When this process may not use that CPU.
pub fn pin_for_now(cpu: usize) -> io::Result<Pinned> {
    let before = rustix::thread::sched_getaffinity(None)?;
    pin_to_cpu(cpu)?;
    Ok(Pinned {
        before,
        _here: std::marker::PhantomData,
    })
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
    }
}

/// Binds every thread of process `pid` to `cpu`; what it starts from now on inherits that.
///
/// # Errors
/// When there is no such CPU or process, or it is not ours to bind.
pub fn pin_process_to_cpu(pid: i32, cpu: usize) -> io::Result<()> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = task?.file_name();
        let tid = name
            .to_str()
            .and_then(|n| n.parse().ok())
            .and_then(rustix::process::Pid::from_raw);
        rustix::thread::sched_setaffinity(tid, &set)?;
    }
    Ok(())
}

/// Processor time of which processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This process, all threads.
    Ours,
    /// Children that were waited for, and theirs.
    Children,
}

/// Processor time so far, in user mode and in the kernel (`getrusage`).
///
/// # Errors
/// What the kernel answers.
pub fn cpu_time(whose: Whose) -> io::Result<std::time::Duration> {
    let who = match whose {
        Whose::Ours => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage into memory of ours that is as large.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then written: every field is an integer.
    let usage = unsafe { usage.assume_init() };
    let time = |t: libc::timeval| std::time::Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Disables THP for this process and its children.
///
/// # Errors
/// When the kernel refuses.
pub fn disable_thp() -> io::Result<()> {
    Ok(rustix::thread::disable_transparent_huge_pages(true)?)
}

/// Has the process that `command` starts, and its children, get base pages only.
pub fn disable_thp_after_exec(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only one system call is made, which is async-signal-safe.
    unsafe { command.pre_exec(disable_thp) }
}

/// Runs `body` while this process gets base pages only, whatever the machine's settings.
/// Unlike MADV_NOHUGEPAGE this does not mark the memory: it can be promoted afterwards.
///
/// # Errors
/// When the kernel refuses.
pub fn base_pages_only<T>(body: impl FnOnce() -> T) -> io::Result<T> {
    let before = rustix::thread::transparent_huge_pages_are_disabled()?;
    rustix::thread::disable_transparent_huge_pages(true)?;
    let result = body();
    rustix::thread::disable_transparent_huge_pages(before)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_status_comes_back() {
        assert_eq!(fork_child(|| 7).unwrap().wait().unwrap(), Exit::Code(7));
    }

    #[test]
    fn a_child_that_is_killed_says_so() {
        let mut child = fork_child(|| loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        })
        .unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill();
        assert_eq!(child.wait().unwrap(), Exit::Signal(libc::SIGKILL));
    }

    #[test]
    fn a_thread_that_was_bound_for_a_while_may_run_where_it_could_before() {
        let allowed = || rustix::thread::sched_getaffinity(None).unwrap();
        let before = allowed();
        let cpu = (0..1024).find(|c| before.is_set(*c)).unwrap();
        let pinned = pin_for_now(cpu).unwrap();
        assert_eq!(allowed().count(), 1);
        drop(pinned);
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_process_that_is_kept_from_it_cannot_disable_huge_pages_and_one_that_is_not_can() {
        // The shell cannot call prctl; this test's own program can, in the child that runs the part below.
        let part = "MEGA_TEST_DISABLE_THP";
        if std::env::var_os(part).is_some() {
            disable_thp().unwrap();
            let disabled = rustix::thread::transparent_huge_pages_are_disabled().unwrap();
            println!("disabled: {disabled}");
            return;
        }
        let name =
            "memory::process::tests::a_process_that_is_kept_from_it_cannot_disable_huge_pages_and_one_that_is_not_can";
        let run = |keep: bool| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", name, "--nocapture"]).env(part, "1");
            if keep {
                keep_thp_after_exec(&mut command);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert!(run(true).contains("disabled: false"));
        assert!(run(false).contains("disabled: true"));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(pin_to_cpu(1000).is_err());
        assert!(pin_to_cpu(usize::MAX).is_err());
    }
}
