//! Holding real processes, following their families, finding them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mega_linux::proc::{smaps, stat, task, ProcRoot};
use mega_linux::process::family::Family;
use mega_linux::process::select::{self, SelectError};
use mega_linux::process::tasks::{Change, TaskReader};
use mega_linux::process::{Process, ProcessError};
use mega_linux::sys::{self, Madvise};
use rustix::io::Errno;

/// A child that dies with the test.
struct Guard(Child);

impl Guard {
    fn sh(script: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_lives_until_it_ends_and_a_zombie_does_not_live() {
    let root = ProcRoot::default();
    let mut child = Guard::sh("read x; exit 0");
    let process = Process::open(&root, child.pid()).unwrap();
    assert!(process.is_alive() && !process.is_exiting());
    assert_eq!(
        process.id().started,
        stat::read(&root, child.pid()).unwrap().start_ticks
    );
    assert_eq!(process.name(&root), "sh");
    child.0.kill().unwrap();
    assert!(process.wait_ended(Duration::from_secs(20)));
    // Nobody has waited for it yet: it is a zombie.
    assert!(stat::read(&root, child.pid()).unwrap().is_over());
    assert!(!process.is_alive());
    assert!(matches!(
        Process::open(&root, child.pid()),
        Err(ProcessError::Gone { .. })
    ));
    child.0.wait().unwrap();
    assert!(Process::open(&root, child.pid()).unwrap_err().is_gone());
    assert!(process
        .read(|| stat::read(&root, child.pid()))
        .is_err_and(|e| e.is_gone()));
    assert_eq!(process.name(&root), "");
}

#[test]
fn kernel_threads_and_threads_are_refused_by_name() {
    let root = ProcRoot::default();
    match stat::read(&root, 2) {
        Ok(kthreadd) if kthreadd.is_kernel_thread() => {
            let error = Process::open(&root, 2).unwrap_err();
            assert!(
                error.to_string().starts_with("process 2 (kthreadd): a kernel thread"),
                "{error}"
            );
        }
        _ => eprintln!("skipped: kthreadd is not visible in this PID namespace"),
    }
    let (send, receive) = std::sync::mpsc::channel();
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get() as u32)
            .unwrap();
        let _ = wait.recv();
    });
    let error = Process::open(&root, receive.recv().unwrap()).unwrap_err();
    assert!(matches!(error, ProcessError::Thread { .. }), "{error}");
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn a_process_whose_main_thread_ended_is_not_gone() {
    let script = "import ctypes,threading,time\n\
                  threading.Thread(target=lambda: time.sleep(100)).start()\n\
                  print('up', flush=True)\n\
                  ctypes.CDLL(None).syscall(60, 0)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdout(Stdio::piped());
    let Ok(child) = command.spawn() else {
        eprintln!("skipped: needs python3 to end a main thread before the others");
        return;
    };
    let mut child = Guard(child);
    assert_eq!(child.line(), "up");
    let root = ProcRoot::default();
    eventually("the main thread ends", || {
        stat::read(&root, child.pid()).unwrap().is_zombie()
    });
    assert!(!stat::read(&root, child.pid()).unwrap().is_over());
    let process = Process::open(&root, child.pid()).unwrap();
    assert!(process.is_alive() && process.is_exiting());
    // The main thread has no memory any more; the other one has.
    assert!(mega_linux::proc::maps::read(&root, child.pid()).unwrap().is_empty());
    let tid = process.living_thread(&root).unwrap();
    assert_ne!(tid, child.pid());
    let maps = root.of_thread(child.pid(), tid, "maps");
    assert!(!std::fs::read(maps).unwrap().is_empty());
    // And the kernel does not take advice for it.
    let refused = sys::process_madvise(process.pidfd(), 0x10000, 4096, Madvise::Cold);
    assert_eq!(refused, Err(Errno::SRCH));
    let mut family = Family::of([child.pid()]);
    assert_eq!(family.look(&root).unwrap().found.len(), 1);
}

#[test]
fn advice_reaches_another_process_and_its_page_tables_show_it() {
    if !sys::effective_capabilities()
        .unwrap()
        .contains(rustix::thread::CapabilitySet::SYS_NICE)
    {
        eprintln!("skipped: advising another process needs CAP_SYS_NICE");
        return;
    }
    let machine = mega_linux::knobs::thp::read(&ProcRoot::default()).unwrap().unwrap();
    if machine.huge_page_mode() == mega_linux::knobs::thp::Mode::Always {
        eprintln!("skipped: huge pages are always on here, so there is nothing to promote");
        return;
    }
    // A child with 8 MB of base pages.
    let script = "import mmap,sys,time\n\
                  m=mmap.mmap(-1,8<<20,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
                  m.write(b'x'*(8<<20))\nprint('up',flush=True)\ntime.sleep(100)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdout(Stdio::piped());
    let Ok(child) = command.spawn() else {
        eprintln!("skipped: needs python3");
        return;
    };
    let mut child = Guard(child);
    assert_eq!(child.line(), "up");
    let root = ProcRoot::default();
    let process = Process::open(&root, child.pid()).unwrap();
    let largest = |entries: Vec<smaps::Entry>| {
        entries
            .into_iter()
            .map(|e| (mega_linux::vma::Vma::from(&e), e))
            .filter(|(vma, e)| vma.is_manageable() && e.usage.rss_bytes >= Some(8 << 20))
            .max_by_key(|(_, e)| e.usage.rss_bytes)
            .unwrap()
    };
    let (vma, before) = largest(smaps::read(&root, child.pid()).unwrap());
    assert_eq!(before.usage.anon_huge_bytes, Some(0));
    let regions = vma.regions().unwrap();
    let advised = sys::process_madvise(process.pidfd(), regions.start, 2 << 20, Madvise::Collapse);
    assert_eq!(advised, Ok(2 << 20));
    let (_, after) = largest(smaps::read(&root, child.pid()).unwrap());
    assert_eq!(after.usage.anon_huge_bytes, Some(2 << 20));
    // One base page of it made cold: split.
    let advised = sys::process_madvise(process.pidfd(), regions.start, 4096, Madvise::Cold);
    assert_eq!(advised, Ok(4096));
    let (_, after) = largest(smaps::read(&root, child.pid()).unwrap());
    assert_eq!(after.usage.anon_huge_bytes, Some(0));
    assert_eq!(after.usage.rss_bytes, before.usage.rss_bytes);
}

#[test]
fn a_family_grows_by_children_and_shrinks_when_they_end() {
    let root = ProcRoot::default();
    let mut child = Guard::sh("sleep 1000 & echo $!; (sleep 1001 & echo $!; wait) & wait");
    let first: u32 = child.line().parse().unwrap();
    let mut family = Family::of([child.pid()]);
    eventually("all four are members", || {
        family.look(&root).unwrap();
        family.members().count() == 4
    });
    let pids: BTreeSet<u32> = family.members().map(|m| m.pid).collect();
    assert!(pids.contains(&first) && pids.contains(&child.pid()));
    assert_eq!(family.look(&root).unwrap().found, []);
    kill(first);
    eventually("the end of one is noticed", || {
        family.look(&root).unwrap().gone.iter().any(|m| m.pid == first)
    });
    // The shell's end leaves the others orphans; they stay members.
    child.0.kill().unwrap();
    eventually("the shell is gone", || {
        family.look(&root).unwrap();
        family.members().all(|m| m.pid != child.pid())
    });
    let orphans: Vec<u32> = family.members().map(|m| m.pid).collect();
    assert_eq!(orphans.len(), 2);
    orphans.into_iter().for_each(kill);
}

#[test]
fn a_subreaper_keeps_a_daemon_whose_parents_ended() {
    sys::become_subreaper().unwrap();
    let root = ProcRoot::default();
    let mut family = Family::below(std::process::id());
    // The daemon forks twice and its parents end before anyone looks.
    let mut child = Guard::sh("(setsid sleep 1002 >/dev/null & echo $!) ; exit 0");
    let daemon: u32 = child.line().parse().unwrap();
    child.0.wait().unwrap();
    eventually("the daemon is ours", || {
        family.look(&root).unwrap();
        family.members().any(|m| m.pid == daemon)
    });
    assert!(family.members().all(|m| m.pid != std::process::id()));
    kill(daemon);
    let pid = rustix::process::Pid::from_raw(daemon as i32);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
}

/// The table of all processes; says why and gives none where it is not to be had.
fn tasks() -> Option<TaskReader> {
    TaskReader::new()
        .map_err(|why| eprintln!("SKIPPED: no table of processes here: {why}"))
        .ok()
}

#[test]
fn the_table_of_processes_says_what_proc_says() {
    let Some(mut tasks) = tasks() else { return };
    let child = Guard::sh("while :; do :; done");
    eventually("it runs", || {
        stat::read(&ProcRoot::default(), child.pid()).is_ok_and(|stat| stat.user_ticks > 5)
    });
    let table = tasks.read().unwrap();
    let (root, us) = (ProcRoot::default(), std::process::id());
    for pid in [us, child.pid(), 1] {
        let (seen, stat) = (table.get(pid).unwrap(), stat::read(&root, pid).unwrap());
        assert_eq!(
            (seen.start_ticks, seen.parent, seen.comm.as_str(), seen.is_zombie),
            (stat.start_ticks, stat.ppid, stat.comm.as_str(), false)
        );
        assert!(
            seen.threads >= 1 && (pid == us || seen.threads == stat.threads),
            "{seen:?}"
        );
        let lag = 4 * 128 * 4096 * std::thread::available_parallelism().unwrap().get() as u64;
        let resident = seen.resident_pages * 4096;
        assert!(
            resident.abs_diff(stat.rss_bytes) < lag.max(4 << 20),
            "{resident} {stat:?}"
        );
    }
    let ran = table.get(child.pid()).unwrap().ran_ns;
    assert!(ran > 20_000_000, "{ran} ns");
    assert!(!table.is_shared(us, child.pid()) && table.is_shared(us, us));
    eventually("it has run on", || {
        tasks.read().unwrap().get(child.pid()).unwrap().ran_ns > ran
    });
    let zombie = Command::new("true").spawn().unwrap();
    eventually("a zombie is over", || {
        tasks
            .read()
            .unwrap()
            .get(zombie.id())
            .is_some_and(|task| task.is_over())
    });
    Guard(zombie);
}

#[test]
fn who_comes_and_goes_is_told_in_order_and_by_whom() {
    let Some(mut tasks) = tasks() else { return };
    tasks.read().unwrap();
    let mut child = Guard::sh("exec sleep 0.1");
    let pid = child.pid();
    child.0.wait().unwrap();
    let table = tasks.read().unwrap();
    let of = |change: &&Change| match **change {
        Change::Fork { pid: who, .. } | Change::Exec { pid: who } | Change::Exit { pid: who } => who == pid,
    };
    let changes: Vec<Change> = table.changes.iter().filter(of).copied().collect();
    let parent = std::process::id();
    assert_eq!(
        changes,
        [
            Change::Fork { pid, parent },
            Change::Exec { pid },
            Change::Exec { pid },
            Change::Exit { pid }
        ]
    );
    assert!(table.get(pid).is_none());
    assert!(tasks.read().unwrap().changes.iter().find(of).is_none(), "told once");
}

#[test]
fn changes_that_find_no_room_are_counted() {
    let Some(mut tasks) = tasks() else { return };
    tasks.read().unwrap();
    let mut storm = Guard::sh("i=0; while [ $i -lt 8000 ]; do (:); i=$((i+1)); done");
    storm.0.wait().unwrap();
    let table = tasks.read().unwrap();
    let told = table.changes.len() as u64;
    assert!(
        table.lost > 0 && told + table.lost >= 16_000,
        "{told} told, {} lost",
        table.lost
    );
    assert_eq!(tasks.read().unwrap().lost, 0, "counted once");
}

#[test]
fn what_leaves_its_parents_between_two_looks_is_found_by_the_changes() {
    let Some(mut tasks) = tasks() else { return };
    let root = ProcRoot::default();
    let mut child = Guard::sh("read go; (setsid sleep 1005 >/dev/null & echo $!); read stay");
    let mut by_proc = Family::of([child.pid()]);
    let mut by_changes = Family::of([child.pid()]);
    by_proc.look(&root).unwrap();
    by_changes.look_in(&root, &tasks.read().unwrap()).unwrap();
    std::io::Write::write_all(child.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    let orphan: u32 = child.line().parse().unwrap();
    eventually("its parent has ended", || {
        stat::read(&root, orphan).is_ok_and(|stat| stat.ppid == 1 || stat.ppid == std::process::id())
    });
    by_changes.look_in(&root, &tasks.read().unwrap()).unwrap();
    let found = by_changes.members().any(|member| member.pid == orphan);
    by_proc.look(&root).unwrap();
    let seen = by_proc.members().any(|member| member.pid == orphan);
    kill(orphan);
    assert!(found && !seen, "by the changes {found}, by /proc {seen}");
}

#[test]
fn a_process_with_our_memory_is_not_managed_twice() {
    extern "C" fn sleep_for_ever(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: pause takes nothing and returns only after a handled signal.
            unsafe { libc::pause() };
        }
    }
    let mut stack = vec![0u64; 64 << 10];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the child runs on its own stack, which outlives it, and touches nothing but that.
    let pid = unsafe {
        libc::clone(
            sleep_for_ever,
            top.cast(),
            libc::CLONE_VM | libc::SIGCHLD,
            std::ptr::null_mut(),
        )
    };
    assert!(pid > 0);
    let (pid, us, root) = (pid as u32, std::process::id(), ProcRoot::default());
    let (a, b) = (Process::open(&root, us).unwrap(), Process::open(&root, pid).unwrap());
    assert!(a.shares_memory_with(&b) && b.shares_memory_with(&a));
    let mut with_us = Family::of([us]);
    let found = with_us.look(&root).unwrap().found;
    assert!(found.iter().any(|m| m.pid == us) && found.iter().all(|m| m.pid != pid));
    let sharing = with_us.everyone().find(|m| m.pid == pid).unwrap();
    assert_eq!(sharing.shares_with, Some(us));
    let mut below_us = Family::below(us);
    assert!(below_us.look(&root).unwrap().found.iter().all(|m| m.pid != pid));
    kill(pid);
    let reaped = rustix::process::Pid::from_raw(pid as i32);
    rustix::process::waitpid(reaped, rustix::process::WaitOptions::empty()).unwrap();
    let other = Guard::sh("read x");
    assert!(!a.shares_memory_with(&Process::open(&root, other.pid()).unwrap()));
}

#[test]
fn processes_are_found_by_name_without_ourselves_and_kernel_threads() {
    let root = ProcRoot::default();
    let child = Guard(Command::new("sleep").arg("1003").stdout(Stdio::null()).spawn().unwrap());
    eventually("exec has happened", || {
        select::by_comm(&root, &|name| name == "sleep")
            .unwrap()
            .contains(&child.pid())
    });
    let all = select::by_comm(&root, &|_| true).unwrap();
    assert!(!all.contains(&std::process::id()) && !all.contains(&2));
    assert!(task::processes(&root).unwrap().is_superset(&all) || !all.is_empty());
}

/// A cgroup of our own in some hierarchy, gone at the end.
struct Cgroup(std::path::PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in [self.0.join("inner"), self.0.clone()] {
            for _ in 0..100 {
                if std::fs::remove_dir(&folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn processes_are_found_by_cgroup_and_by_unit_in_every_hierarchy_of_this_machine() {
    let root = ProcRoot::default();
    let mut tried = 0;
    for mount in mega_linux::proc::mountinfo::read(&root).unwrap() {
        if mount.kind != "cgroup2" && !mount.options.contains("name=systemd") {
            continue;
        }
        let unit = format!("mega-test-{}-{}.service", std::process::id(), mount.kind);
        let cgroup = Cgroup(mount.point.join(&unit));
        if std::fs::create_dir_all(cgroup.0.join("inner")).is_err() {
            eprintln!("skipped {}: no cgroup can be made there", mount.point.display());
            continue;
        }
        tried += 1;
        let child = Guard::sh("read x");
        std::fs::write(cgroup.0.join("inner/cgroup.procs"), child.pid().to_string()).unwrap();
        let expected = BTreeSet::from([child.pid()]);
        for path in [cgroup.0.clone(), format!("/{unit}").into(), unit.clone().into()] {
            assert_eq!(select::by_cgroup(&root, &path).unwrap(), expected, "{}", path.display());
        }
        assert_eq!(select::by_unit(&root, &unit).unwrap(), expected);
        assert_eq!(
            select::by_unit(&root, unit.strip_suffix(".service").unwrap()).unwrap(),
            expected
        );
    }
    eprintln!("{tried} hierarchies tried");
}

#[test]
fn what_is_not_there_is_said_clearly() {
    let root = ProcRoot::default();
    let error = select::by_unit(&root, "mega-no-such-unit").unwrap_err();
    match error {
        SelectError::NoUnit { ref name, .. } => assert_eq!(name, "mega-no-such-unit.service"),
        SelectError::NoHierarchy { .. } => eprintln!("no cgroups here"),
        other => panic!("{other}"),
    }
    for bad in ["", "../x", "a/b", "-x", "a\nb"] {
        assert!(
            matches!(select::by_unit(&root, bad), Err(SelectError::BadUnit { .. })),
            "{bad:?}"
        );
    }
    let up = select::by_cgroup(&root, std::path::Path::new("/a/../../etc")).unwrap_err();
    assert!(matches!(up, SelectError::BadPath { .. }), "{up}");
}
