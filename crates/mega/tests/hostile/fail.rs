//! Each system call that managing makes fails with each error that it may give, for a while, while a program is managed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use crate::inject::{Call, Fate, Injector};
use crate::programs::Other;
use crate::victim::Victim;
use crate::{is_calm, off, ready, settings, until, Manager, Ready, OPTIONS};

/// What the calls do at a time: go on, fail all, fail each third.
const OPEN: u8 = 0;
const ALL: u8 = 1;
const THIRD: u8 = 2;

/// Calls by name, number and errors. Memory (`mmap`, `brk`) is not among them: a Rust program that gets none ends, and a thread that cannot be
/// started is `clone3`'s. `move_pages` is made on machines with several NUMA nodes only.
const CALLS: &[(&str, i64, &[i32])] = &[
    (
        "openat",
        libc::SYS_openat,
        &[libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES],
    ),
    (
        "read",
        libc::SYS_read,
        &[libc::EIO, libc::EINTR, libc::ESRCH, libc::ENOMEM, libc::EBADF],
    ),
    ("getdents64", libc::SYS_getdents64, &[libc::ENOMEM, libc::ENOENT]),
    ("statx", libc::SYS_statx, &[libc::ENOMEM, libc::EACCES]),
    (
        "write",
        libc::SYS_write,
        &[libc::ENOSPC, libc::EIO, libc::EINTR, libc::EBADF],
    ),
    ("ioctl", libc::SYS_ioctl, &[libc::EINVAL, libc::ENOMEM, libc::EBADF]),
    (
        "process_madvise",
        libc::SYS_process_madvise,
        &[
            libc::EAGAIN,
            libc::EBADF,
            libc::EBUSY,
            libc::EINTR,
            libc::EINVAL,
            libc::ENOMEM,
            libc::EPERM,
            libc::ESRCH,
        ],
    ),
    (
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        &[libc::EFAULT, libc::EPERM, libc::ENOMEM],
    ),
    (
        "pidfd_open",
        libc::SYS_pidfd_open,
        &[libc::EMFILE, libc::ENOMEM, libc::EINVAL],
    ),
    ("poll", libc::SYS_poll, &[libc::EINTR, libc::ENOMEM]),
    ("ppoll", libc::SYS_ppoll, &[libc::EINTR, libc::ENOMEM]),
    ("epoll_pwait", libc::SYS_epoll_pwait, &[libc::EINTR, libc::EBADF]),
    ("epoll_ctl", libc::SYS_epoll_ctl, &[libc::ENOMEM, libc::ENOSPC]),
    (
        "bpf",
        libc::SYS_bpf,
        &[libc::EPERM, libc::ENOMEM, libc::EMFILE, libc::EINTR],
    ),
    ("kcmp", libc::SYS_kcmp, &[libc::EPERM, libc::ESRCH]),
    ("clone3", libc::SYS_clone3, &[libc::EAGAIN, libc::ENOMEM]),
    ("flock", libc::SYS_flock, &[libc::EINTR, libc::ENOLCK]),
    ("rename", libc::SYS_rename, &[libc::ENOSPC, libc::EROFS]),
    ("unlink", libc::SYS_unlink, &[libc::EROFS, libc::EIO]),
];

/// How it manages: its options, and the call that is refused all the time.
struct Way {
    options: &'static [&'static str],
    refused: Option<i64>,
    /// Of [`CALLS`], those that it makes and no way before it; none: all.
    calls: &'static [&'static str],
}

/// Policies that need no accessed bits; the second one reads what huge pages hold.
const WITHOUT_EBPF: &[&str] = &[
    "--policy",
    "ingens",
    "--interval",
    "100ms",
    "--cpu-budget",
    "100%",
    "--free-blocks",
    "0",
];
const READING_CONTENTS: &[&str] = &["--policy", "trim", "--interval", "100ms", "--cpu-budget", "100%"];

/// With eBPF; and without, when processes are found in /proc, and page tables and contents are read by other calls.
const WAYS: [Way; 3] = [
    Way {
        options: OPTIONS,
        refused: None,
        calls: &[],
    },
    Way {
        options: WITHOUT_EBPF,
        refused: Some(libc::SYS_bpf),
        calls: &["getdents64", "ioctl", "kcmp"],
    },
    Way {
        options: READING_CONTENTS,
        refused: Some(libc::SYS_bpf),
        calls: &["process_vm_readv"],
    },
];

impl Way {
    fn calls(&self) -> impl Iterator<Item = &'static (&'static str, i64, &'static [i32])> + '_ {
        let is_its = |name: &str| self.calls.is_empty() || self.calls.contains(&name);
        CALLS.iter().filter(move |(name, ..)| is_its(name))
    }
}

/// Of a call's errors one, another one in each process of this test, or all of them (`make hostile`).
fn chosen(errors: &'static [i32]) -> &'static [i32] {
    match std::env::var_os("MEGA_HOSTILE").is_some_and(|all| all == "all") {
        true => errors,
        false => {
            let at = std::process::id() as usize % errors.len();
            &errors[at..=at]
        }
    }
}

/// A manager some of whose calls fail while the mode says so.
struct Failing {
    manager: Manager,
    mode: Arc<AtomicU8>,
    failed: Arc<AtomicU64>,
    _injector: Injector,
}

impl Failing {
    fn start(way: &Way, number: i64, errno: i32, mode: u8, pids: [u32; 3]) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let command = Manager::command_with(
            folder.path(),
            way.options,
            &pids.map(|pid| pid.to_string()).each_ref().map(String::as_str),
        );
        let (mode, failed) = (Arc::new(AtomicU8::new(mode)), Arc::new(AtomicU64::new(0)));
        let (now, count, mut seen) = (Arc::clone(&mode), Arc::clone(&failed), 0u64);
        let refused = way.refused;
        let fate = move |call: &Call| {
            if refused == Some(i64::from(call.number)) {
                return Fate::Fails(libc::EPERM);
            }
            seen += 1;
            let fails = match now.load(Relaxed) {
                ALL => true,
                THIRD => seen % 3 == 0,
                _ => false,
            };
            if fails {
                count.fetch_add(1, Relaxed);
                return Fate::Fails(errno);
            }
            Fate::GoesOn
        };
        let calls: Vec<i64> = refused.into_iter().chain([number]).collect();
        let (child, injector) = Injector::start(command, &calls, fate)?;
        Ok(Self {
            manager: Manager::of(child, folder),
            mode,
            failed,
            _injector: injector,
        })
    }
}

/// What is managed, alone on this machine: one program that fills memory, one that reads huge pages, and one whose children come and go, which
/// are found, held, claimed and let go.
struct Managed {
    before: BTreeMap<PathBuf, String>,
    victims: [Victim; 2],
    parent: Other,
    _alone: Ready,
}

impl Managed {
    fn start() -> Option<Self> {
        let alone = ready()?;
        off();
        Some(Self {
            before: settings(),
            victims: [Victim::filling(), Victim::reading_huge()],
            parent: Other::start(Command::new("sh").args(["-c", "while :; do sleep 0.1; done"])),
            _alone: alone,
        })
    }

    fn pids(&self) -> [u32; 3] {
        let [small, huge] = self.victims.each_ref().map(Victim::pid);
        [small, huge, self.parent.pid()]
    }

    #[track_caller]
    fn check(&mut self) {
        for victim in &mut self.victims {
            victim.check();
        }
    }
}

#[test]
fn each_system_call_that_fails_for_a_while_is_said_and_managing_goes_on_and_ends_in_order() {
    let Some(mut managed) = Managed::start() else { return };
    let (mut tried, mut made) = (BTreeSet::new(), BTreeSet::new());
    let (mut cases, mut calls) = (0, 0);
    for (way, (name, number, errors)) in WAYS.iter().flat_map(|way| way.calls().map(move |call| (way, call))) {
        let mut any = 0;
        for errno in chosen(errors) {
            let context = format!("{name} fails with {errno}");
            let mut failing = match Failing::start(way, *number, *errno, OPEN, managed.pids()) {
                Ok(failing) => failing,
                Err(error) => {
                    return eprintln!("SKIPPED: the kernel does not let system calls fail (seccomp): {error}")
                }
            };
            until(&format!("{context}: it manages: {}", failing.manager.stderr()), || {
                failing.manager.scans() > 2 || !failing.manager.is_running()
            });
            assert!(failing.manager.is_running(), "{context}: {}", failing.manager.stderr());
            for mode in [ALL, THIRD] {
                failing.mode.store(mode, Relaxed);
                std::thread::sleep(Duration::from_millis(400));
            }
            failing.mode.store(OPEN, Relaxed);
            // It is told that the program has ended, where that was what the kernel said.
            let said_gone = [libc::ESRCH, libc::ENOENT].contains(errno);
            let had = failing.manager.scans();
            until(&format!("{context}: it goes on: {}", failing.manager.stderr()), || {
                failing.manager.scans() > had + 1 || !failing.manager.is_running()
            });
            let is_running = failing.manager.is_running();
            assert!(
                is_running || said_gone,
                "{context}: it ended: {}",
                failing.manager.stderr()
            );
            any += failing.failed.load(Relaxed);
            let (ended, _) = failing.manager.stop();
            is_calm(&ended.stderr, &context);
            assert_eq!(ended.code, Some(0), "{context}: {}", ended.stderr);
            if settings() != managed.before {
                // It ended while its calls failed, and says that it could not.
                assert!(
                    !is_running && ended.stderr.contains("could not restore"),
                    "{context}: {}",
                    ended.stderr
                );
                off();
                assert_eq!(settings(), managed.before, "{context}");
            }
            managed.check();
            cases += 1;
        }
        calls += any;
        tried.insert(*name);
        if any > 0 {
            made.insert(*name);
        }
    }
    off();
    assert_eq!(settings(), managed.before);
    // These are made when it starts: the next test has them fail.
    let never: Vec<_> = tried.difference(&made).collect();
    eprintln!("{cases} cases, {calls} calls failed; never made while one of them was to fail: {never:?}");
    let at_start = ["statx", "poll", "clone3", "process_vm_readv"];
    assert!(never.iter().all(|name| at_start.contains(name)), "{never:?}");
}

#[test]
fn a_system_call_that_fails_from_the_start_ends_it_with_a_line_or_is_done_without() {
    let Some(mut managed) = Managed::start() else { return };
    let mut ends = BTreeMap::new();
    let (mut tried, mut made) = (BTreeSet::new(), BTreeSet::new());
    // Without these no program starts at all.
    let loads = [libc::SYS_openat, libc::SYS_read];
    let all = WAYS.iter().flat_map(|way| way.calls().map(move |call| (way, call)));
    for (way, (name, number, errors)) in all.filter(|(_, (_, number, _))| !loads.contains(number)) {
        // A call that is always interrupted is made again for ever, as it must be.
        for errno in chosen(errors).iter().filter(|errno| **errno != libc::EINTR) {
            let context = format!("{name} always fails with {errno}");
            let mut failing = match Failing::start(way, *number, *errno, ALL, managed.pids()) {
                Ok(failing) => failing,
                Err(error) => {
                    return eprintln!("SKIPPED: the kernel does not let system calls fail (seccomp): {error}")
                }
            };
            let began = std::time::Instant::now();
            until(&context, || {
                !failing.manager.is_running() || failing.manager.scans() > 2 || began.elapsed() > Duration::from_secs(3)
            });
            let ended = match failing.manager.is_running() {
                // What puts settings back must be let.
                true => {
                    failing.mode.store(OPEN, Relaxed);
                    failing.manager.stop().0
                }
                false => failing.manager.ended(),
            };
            tried.insert(*name);
            if failing.failed.load(Relaxed) > 0 {
                made.insert(*name);
            }
            is_calm(&ended.stderr, &context);
            assert!(
                matches!(ended.code, Some(0 | 1)),
                "{context}: {:?} {}",
                ended.code,
                ended.stderr
            );
            let silent = ended.code == Some(1) && ended.stderr.is_empty();
            assert!(!silent || *name == "write", "{context}: it says nothing");
            off();
            assert_eq!(settings(), managed.before, "{context}: {}", ended.stderr);
            managed.check();
            *ends.entry(ended.code).or_insert(0) += 1;
        }
    }
    let never: Vec<_> = tried.difference(&made).collect();
    eprintln!("exit statuses: {ends:?}; never made: {never:?}");
    assert!(never.is_empty(), "{never:?}");
}
