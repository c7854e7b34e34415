//! A program whose faults a monitor is to serve that does not: what reads or fills its memory waits for ever.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::programs::{leaving_nothing, stop, Other};
use crate::{signal, until, Manager};

const REGION: usize = 2 << 20;
const REGIONS: usize = 16;
/// Runs [`unserved`] as this test's own program; it makes this file once it is set up.
const VARIABLE: &str = "MEGA_TEST_UNSERVED";

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;

/// A userfaultfd; none where the kernel gives none.
fn userfaultfd() -> Option<i32> {
    let mut api = [API, 0, 0];
    // SAFETY: a descriptor of our own, and a structure as long as the call's.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        (fd >= 0 && libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) == 0).then_some(fd)
    }
}

/// Sixteen mostly empty huge pages of a range that a monitor is to serve. Again and again it gives one back, which from then on whoever
/// touches it waits for, and takes it out of the monitor's hands to fill it anew. A thread waits for one all the while.
#[test]
fn unserved() {
    let Ok(ready) = std::env::var(VARIABLE) else { return };
    let monitor = userfaultfd().expect("the test has made one");
    // SAFETY: a mapping of our own, within which all happens.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(std::ptr::null_mut(), (REGIONS + 1) * REGION, access, flags, -1, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        let start = mapped.cast::<u8>().add(mapped.align_offset(REGION));
        assert_eq!(libc::madvise(start.cast(), REGIONS * REGION, libc::MADV_HUGEPAGE), 0);
        let fill = |region: usize| start.add(region * REGION).write_volatile(1);
        let watch = |region: usize, is_on: bool| {
            let mut range = [start.add(region * REGION) as u64, REGION as u64, MODE_MISSING, 0];
            let call = if is_on { UFFDIO_REGISTER } else { UFFDIO_UNREGISTER };
            assert_eq!(libc::ioctl(monitor, call, range.as_mut_ptr()), 0);
        };
        for region in 0..REGIONS {
            fill(region);
            watch(region, true);
        }
        let give_back = |region: usize| libc::madvise(start.add(region * REGION).cast(), REGION, libc::MADV_DONTNEED);
        give_back(0);
        let waits_for = start as usize;
        std::thread::spawn(move || (waits_for as *const u8).read_volatile());
        std::fs::write(ready, "").unwrap();
        for region in (1..REGIONS).cycle() {
            give_back(region);
            std::thread::sleep(Duration::from_millis(3));
            watch(region, false);
            fill(region);
            watch(region, true);
        }
    }
}

fn program(ready: &Path) -> Other {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "userfault::unserved"]).env(VARIABLE, ready);
    let program = Other::start(&mut command);
    until("its range is watched", || ready.exists());
    program
}

#[test]
fn a_program_whose_faults_nobody_serves_holds_up_nobody() {
    leaving_nothing(|neighbour| {
        let Some(own) = userfaultfd() else {
            eprintln!("SKIPPED: the kernel gives no userfaultfd");
            return;
        };
        // SAFETY: ours.
        unsafe { libc::close(own) };
        let folder = tempfile::tempdir().unwrap();
        let mut program = program(&folder.path().join("ready"));
        let manager = Manager::start(&[program.pid(), neighbour.victim.pid()]);
        neighbour.is_served(&manager, "a program whose faults nobody serves");
        stop(manager, "faults that nobody serves");
        // What is read of huge pages to see how much of them is zero may be given back at that moment.
        for policy in ["trim", "auto"] {
            let manager = reading(&program, policy);
            manager.wait_scans(20);
            neighbour.victim.check();
            stop(manager, policy);
        }
        assert!(program.0.try_wait().unwrap().is_none(), "it was ended");
        signal(program.pid(), Signal::KILL);
    });
}

fn reading(program: &Other, policy: &str) -> Manager {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--policy", policy, "--interval", "100ms", "--cpu-budget", "100%"];
    let pid = program.pid().to_string();
    let child = Manager::command_with(folder.path(), &options, &[&pid]).spawn().unwrap();
    Manager::of(child, folder)
}
