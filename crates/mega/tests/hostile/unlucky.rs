//! What programs and managers meet without anybody's ill will: a kill for want of memory, a number that another program gets, a reader of the
//! journal that stops reading.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::groups::Group;
use crate::programs::{leaving_nothing, stop, Other};
use crate::victim::Victim;
use crate::{fault_size, is_calm, ready, signal, until, Manager, OPTIONS};

#[test]
fn a_program_that_is_killed_for_want_of_memory_in_the_middle_of_all_holds_up_nobody() {
    leaving_nothing(|neighbour| {
        let Some(group) = Group::new("memory") else { return };
        if !group.set("memory.limit_in_bytes", "memory.max", "64000000") {
            return;
        }
        // It keeps all that it reads, and reads for ever.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1; exec tail /dev/zero"]);
        group.enter(&mut command);
        let mut greedy = Other::start(&mut command);
        let manager = Manager::start(&[greedy.pid(), neighbour.victim.pid()]);
        until("the kernel kills it", || greedy.0.try_wait().unwrap().is_some());
        let status = greedy.0.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(libc::SIGKILL)
        );
        neighbour.is_served(&manager, "a program that was killed for want of memory");
        neighbour.victim.check();
        stop(manager, "a kill for want of memory");
    });
}

/// Runs [`another_program_gets_the_number`] in a namespace of its own, in which nobody else takes numbers.
const VARIABLE: &str = "MEGA_TEST_NUMBERS";

#[test]
fn a_number_that_another_program_gets_is_not_taken_for_the_one_that_had_it() {
    let Some(_alone) = ready() else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "unlucky::another_program_gets_the_number", "--nocapture"]);
    let output = command.env(VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("SKIPPED") || said.contains("the number was taken"),
        "{said}"
    );
    said.lines()
        .filter(|line| line.contains("SKIPPED"))
        .for_each(|line| eprintln!("{line}"));
}

#[test]
fn another_program_gets_the_number() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let last = Path::new("/proc/sys/kernel/ns_last_pid");
    if !last.exists() {
        return eprintln!("SKIPPED: the kernel gives no number on request (CONFIG_CHECKPOINT_RESTORE)");
    }
    let neighbour = Victim::filling();
    for _ in 0..5 {
        let first = Victim::filling();
        let number = first.pid();
        let manager = Manager::start(&[number, neighbour.pid()]);
        manager.wait_done(number);
        // It must not see that the first one ends.
        signal(manager.pid(), Signal::STOP);
        drop(first);
        std::fs::write(last, (number - 1).to_string()).unwrap();
        let mut second = Victim::reading();
        signal(manager.pid(), Signal::CONT);
        if second.pid() != number {
            // A thread has it.
            continue;
        }
        manager.wait_done(neighbour.pid());
        manager.wait_scans(10);
        manager.wait_done(neighbour.pid());
        let rollup = std::fs::read_to_string(format!("/proc/{number}/smaps_rollup")).unwrap();
        let huge = rollup.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
        assert_eq!(huge.split_whitespace().nth(1), Some("0"), "{}", manager.stderr());
        second.check();
        let (ended, _) = manager.stop();
        is_calm(&ended.stderr, "a number that another program gets");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        return eprintln!("the number was taken");
    }
    eprintln!("SKIPPED: no second program got the number of the first one");
}

#[test]
fn a_reader_of_the_journal_that_stops_reading_holds_up_nobody_and_that_is_said() {
    let Some(_alone) = ready() else { return };
    let mut victim = Victim::filling();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    command.arg("manage").args(OPTIONS).args(fault_size());
    command
        .args(["--journal", "-", "--duration", "20s"])
        .arg(victim.pid().to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Its own group: what it starts ends with it.
    let mut child = command.process_group(0).spawn().unwrap();
    let mut journal = child.stdout.take().unwrap();
    // A pipe holds 64 KB: far less than it has to say in this time.
    std::thread::sleep(Duration::from_secs(10));
    let huge = || {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", victim.pid())).unwrap();
        let line = rollup.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // It gives its memory back all the while, so that what is huge was promoted just now.
    until("it goes on promoting", || huge() > 0);
    signal(child.id(), Signal::TERM);
    until("it ends though nobody reads", || child.try_wait().unwrap().is_some());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    is_calm(&said, "nobody reads the journal");
    // What nobody has read is no success.
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("cannot write the journal: nobody reads it"), "{said}");
    let mut read = Vec::new();
    journal.read_to_end(&mut read).unwrap();
    assert!(read.len() <= 1 << 20, "{} bytes went into a pipe", read.len());
    victim.check();
}
