//! Programs that do what programs should not, beside one that is managed at the same time. What its neighbour gets done, before and meanwhile, is
//! said and not judged: this machine may be busy.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::groups::Group;
use crate::victim::Victim;
use crate::{is_calm, off, ready, settings, signal, until, Manager, LONG};

/// Killed when dropped.
pub struct Other(pub Child);

impl Other {
    pub fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a neighbour gets in a second: its own work done, and actions of its manager.
#[derive(Clone, Copy)]
struct Service {
    work: f64,
    actions: f64,
}

/// A neighbour that gives memory back and fills it, so that its manager always has something to do, and what it got when it was managed
/// alone.
pub struct Neighbour {
    pub victim: Victim,
    alone: Service,
}

impl Neighbour {
    fn start() -> Self {
        let mut victim = Victim::filling();
        let manager = Manager::start(&[victim.pid()]);
        manager.wait_done(victim.pid());
        let alone = Self::service(&mut victim, &manager);
        manager.stop();
        Self { victim, alone }
    }

    fn service(victim: &mut Victim, manager: &Manager) -> Service {
        let had = manager.done(victim.pid());
        let began = Instant::now();
        let work = victim.speed();
        let actions = manager.done(victim.pid()) - had;
        Service {
            work,
            actions: actions as f64 / began.elapsed().as_secs_f64(),
        }
    }

    /// Something is done on it while the other one does what it does; says what it gets meanwhile.
    #[track_caller]
    pub fn is_served(&mut self, manager: &Manager, beside: &str) {
        manager.wait_done(self.victim.pid());
        let now = Self::service(&mut self.victim, manager);
        eprintln!(
            "beside {beside} the neighbour gets {:.2} of its work done and {:.2} of the actions that it had alone",
            now.work / self.alone.work,
            now.actions / self.alone.actions,
        );
    }
}

/// Runs a test that must leave settings as they are.
pub fn leaving_nothing(test: impl FnOnce(&mut Neighbour)) {
    let Some(_alone) = ready() else { return };
    off();
    let before = settings();
    test(&mut Neighbour::start());
    off();
    assert_eq!(settings(), before);
}

#[track_caller]
pub fn stop(manager: Manager, context: &str) {
    let (ended, took) = manager.stop();
    is_calm(&ended.stderr, context);
    assert_eq!(ended.code, Some(0), "{context}: {}", ended.stderr);
    eprintln!("{context}: stopped within {} ms", took.as_millis());
}

#[test]
fn a_stopped_and_a_frozen_program_hold_up_nobody_and_keep_their_memory() {
    leaving_nothing(|neighbour| {
        let mut stopped = Victim::filling();
        let manager = Manager::start(&[stopped.pid(), neighbour.victim.pid()]);
        manager.wait_done(stopped.pid());
        signal(stopped.pid(), Signal::STOP);
        neighbour.is_served(&manager, "a stopped program");
        signal(stopped.pid(), Signal::CONT);
        stopped.check();
        stop(manager, "a stopped program");
        let Some(group) = Group::new("freezer") else { return };
        group.add(stopped.pid());
        let manager = Manager::start(&[stopped.pid(), neighbour.victim.pid()]);
        manager.wait_done(stopped.pid());
        if group.freeze(true) {
            neighbour.is_served(&manager, "a frozen program");
            assert!(group.freeze(false));
        }
        stopped.check();
        stop(manager, "a frozen program");
        drop(stopped);
    });
}

#[test]
fn a_fork_storm_within_its_pids_limit_holds_up_nobody() {
    leaving_nothing(|neighbour| {
        let Some(group) = Group::new("pids") else { return };
        if !group.set("pids.max", "pids.max", "200") {
            return;
        }
        let mut command = Command::new("sh");
        command.args(["-c", "storm() { while :; do storm & sleep 0.01; done; }; storm"]);
        group.enter(&mut command);
        let manager_of = |storm: &Other, neighbour: &Neighbour| Manager::start(&[storm.pid(), neighbour.victim.pid()]);
        let storm = Other::start(&mut command);
        let manager = manager_of(&storm, neighbour);
        neighbour.is_served(&manager, "a fork storm of 200 processes");
        neighbour.victim.check();
        stop(manager, "a fork storm");
        group.clear();
    });
}

/// Maps and unmaps, or has as many mappings as the kernel gives it: by a variable, in this test's own program.
const VARIABLE: &str = "MEGA_TEST_MAPPINGS";

#[test]
fn mapper() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new mappings at places that the kernel chooses, protected and unmapped by what made them.
    unsafe {
        if what == "many" {
            let pages = 70_000usize;
            let start = libc::mmap(std::ptr::null_mut(), pages * 4096, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let cut = (0..pages).step_by(2).take_while(|page| {
                *start.cast::<u8>().add(page * 4096) = 1;
                libc::mprotect(start.add(page * 4096), 4096, libc::PROT_READ) == 0
            });
            let cut = cut.count();
            let _ = std::fs::write(std::env::var("MEGA_TEST_READY").unwrap(), cut.to_string());
            std::thread::sleep(LONG * 5);
        }
        loop {
            let start = libc::mmap(std::ptr::null_mut(), 8 << 20, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            for at in (0..8usize << 20).step_by(4096) {
                *start.cast::<u8>().add(at) = 1;
            }
            libc::munmap(start.add(1 << 20), 3 << 20);
            libc::munmap(start, 8 << 20);
        }
    }
}

fn mapper_program(what: &str, ready: &Path) -> Other {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "programs::mapper"])
        .env(VARIABLE, what)
        .env("MEGA_TEST_READY", ready);
    Other::start(&mut command)
}

#[test]
fn a_storm_of_mmap_and_munmap_and_as_many_mappings_as_there_may_be_hold_up_nobody() {
    leaving_nothing(|neighbour| {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let storm = mapper_program("storm", &ready);
        let manager = Manager::start(&[storm.pid(), neighbour.victim.pid()]);
        neighbour.is_served(&manager, "a storm of mmap and munmap");
        stop(manager, "a storm of mmap and munmap");
        drop(storm);
        let many = mapper_program("many", &ready);
        until("it has its mappings", || {
            std::fs::read_to_string(&ready).is_ok_and(|text| !text.is_empty())
        });
        let mappings = std::fs::read_to_string(format!("/proc/{}/maps", many.pid()))
            .unwrap()
            .lines()
            .count();
        assert!(mappings > 60_000, "{mappings} mappings");
        let manager = Manager::start(&[many.pid(), neighbour.victim.pid()]);
        neighbour.is_served(&manager, &format!("a program of {mappings} mappings"));
        neighbour.victim.check();
        stop(manager, "many mappings");
    });
}

#[test]
fn a_program_at_its_memory_limit_is_neither_killed_nor_changed_by_promotions() {
    leaving_nothing(|neighbour| {
        let Some(group) = Group::new("memory") else { return };
        // The program's 24 MB and little more; its own 4 MB are for what it is.
        if !group.set("memory.limit_in_bytes", "memory.max", "34000000") {
            return;
        }
        let mut tight = Victim::start("fill", |command| group.enter(command));
        let manager = Manager::start(&[tight.pid(), neighbour.victim.pid()]);
        for _ in 0..5 {
            neighbour.is_served(&manager, "a program at its limit");
            tight.check();
        }
        eprintln!(
            "{} actions were done on the program at its limit",
            manager.done(tight.pid())
        );
        stop(manager, "a program at its limit");
        tight.check();
        drop(tight);
    });
}

#[test]
fn programs_that_exec_in_the_middle_of_all_that_is_done_to_them_hold_up_nobody() {
    leaving_nothing(|neighbour| {
        let script = "d=$(head -c 4000000 /dev/zero | tr '\\0' x); exec sh -c \"$0\" \"$0\"";
        let mut others: Vec<Other> = (0..2)
            .map(|_| Other::start(Command::new("sh").args(["-c", script, script])))
            .collect();
        let pids: Vec<u32> = others.iter().map(Other::pid).chain([neighbour.victim.pid()]).collect();
        let manager = Manager::start(&pids);
        neighbour.is_served(&manager, "programs that exec all the while");
        std::thread::sleep(Duration::from_secs(2));
        for other in &mut others {
            assert!(other.0.try_wait().unwrap().is_none(), "it was ended");
        }
        neighbour.victim.check();
        stop(manager, "programs that exec");
    });
}
