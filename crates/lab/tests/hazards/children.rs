//! Everything that comes of a command is managed, and the command notices nothing of it.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mega_core::journal::Event;
use rustix::process::Signal;

use crate::support::{wait_until, Workload, LAB, MEGA};
use crate::tool::{done_on, found, mega, ready, Figures, Manager, Numbers, Program, FAST};

const PROMOTE: &[&str] = &[
    "--policy",
    "khugepaged",
    "--set",
    "pages_to_scan=100000000",
    "--set",
    "scan_sleep_s=1",
];
const SOON: Duration = Duration::from_secs(30);

fn run(command: &[&str]) -> Manager {
    let args: Vec<&str> = FAST
        .iter()
        .chain(PROMOTE)
        .chain(&["--"])
        .chain(command)
        .copied()
        .collect();
    Manager::start("run", &args)
}

#[test]
fn the_exit_status_is_the_command_s_own() {
    let Some(_alone) = ready(512) else { return };
    for (command, status) in [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let ended = mega(&["run", "-q", "--", "sh", "-c", command]);
        assert_eq!((ended.code(), ended.stderr.as_str()), (status, ""), "{command}");
    }
}

#[test]
fn signals_are_passed_on() {
    let Some(_alone) = ready(512) else { return };
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
    ] {
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let command = Program::mega(&["run", "-q", "--", "sh", "-c", &script]);
        assert!(
            wait_until(SOON, || command.stdout().contains("ready")),
            "{}",
            command.stderr()
        );
        command.signal(signal);
        let ended = command.wait(SOON);
        assert_eq!(ended.code(), 9, "{name}: {}", ended.stderr);
        assert_eq!(ended.stdout, format!("ready\ngot {name}\n").as_bytes());
    }
    // One that the command does not catch ends it, and the status says so.
    let command = Program::mega(&[
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "echo ready; while :; do sleep 0.05; done",
    ]);
    assert!(wait_until(SOON, || command.stdout().contains("ready")));
    command.signal(Signal::TERM);
    assert_eq!(command.wait(SOON).code(), 143);
}

#[test]
fn input_and_output_pass_through_untouched() {
    let Some(_alone) = ready(512) else { return };
    let mut numbers = Numbers(5);
    let bytes: Vec<u8> = (0..3 << 20).map(|_| numbers.below(256) as u8).collect();
    let mut child = Command::new(MEGA)
        .args(["run", "--", "sh", "-c", "cat; echo error >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut back = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(back == bytes, "{} of {} bytes came back", back.len(), bytes.len());
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "error");
    assert!(
        lines.len() == 2 && lines[1].starts_with("mega: "),
        "the command's line and the summary: {error}"
    );
}

#[test]
fn run_lasts_until_the_last_daemon_has_ended() {
    let Some(_alone) = ready(512) else { return };
    let figures = Figures::of("daemons");
    // Once with a first look that sees the daemon, once so that only a later one can: the command ends at once.
    for (script, slow) in [
        ("setsid sh -c 'sleep 2; exec sleep 0.5' & exit 4", "100ms"),
        ("setsid sh -c 'setsid sleep 2.5 & exit 1' & sleep 0.3; exit 4", "100ms"),
        ("(setsid sleep 2.5 &) & exit 4", "1s"),
    ] {
        let began = Instant::now();
        let manager = Manager::start(
            "run",
            &["--interval", slow, "--duration", "60s", "--", "sh", "-c", script],
        );
        let managed = manager.wait(SOON);
        assert_eq!(managed.ended.code(), 4, "{script}: {}", managed.ended.stderr);
        assert!(
            began.elapsed() >= Duration::from_secs(2),
            "{script}: ended before its daemon"
        );
        let found = found(&managed.lines);
        assert!(!found.is_empty(), "{script}");
        assert!(
            found.values().all(|names| names.len() == 1),
            "{script}: managed twice: {found:?}"
        );
        let gone: Vec<u64> = managed
            .lines
            .iter()
            .filter(|line| matches!(line.event, Event::Gone { .. }))
            .map(|line| line.at.0)
            .collect();
        // Not by its name: a look may come before it has become "sleep".
        assert!(
            gone.iter().any(|at| *at > 900_000_000),
            "{script}: the daemon was not managed to its end: {found:?}, gone at {gone:?}"
        );
        assert_eq!(gone.len(), found.len(), "{script}");
        let stop = managed.lines.last().unwrap();
        assert!(matches!(stop.event, Event::Stop { .. }));
        assert!(stop.at.0 > 900_000_000, "{script}: managing ended before the daemon");
    }
    figures.say("3 kinds");
}

#[test]
fn children_by_fork_and_exec_are_managed() {
    let Some(_alone) = ready(1024) else { return };
    // Two children by fork and exec, and one that takes the shell's own place.
    let script = "for i in 1 2; do sleep 6 | \"$0\" workload dense --mib 8 & done; sleep 0.4; exec \"$0\" workload storm --seconds 4 \
                  --threads 4 --memory-mib 512";
    let manager = run(&["sh", "-c", script, LAB]);
    assert!(
        wait_until(SOON, || !found(&manager.lines()).is_empty()),
        "nothing is managed"
    );
    let shell = *found(&manager.lines()).keys().next().unwrap();
    let managed = manager.wait(Duration::from_secs(60));
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    let found = found(&managed.lines);
    assert!(
        found.len() > 3,
        "the storm's forked children are managed too: {found:?}"
    );
    if let Some((pid, _)) = found.iter().find(|(_, names)| names.len() > 1) {
        let about = format!("pid: {pid}");
        let lines = managed.lines.iter().map(|line| format!("{line:?}"));
        let lines: Vec<String> = lines.filter(|line| line.contains(&about)).collect();
        panic!("process {pid} was managed twice: {lines:#?}");
    }
    // The shell's process went on as the storm: with other memory, and with threads.
    assert!(done_on(&managed.lines, shell) > 0, "nothing was done after exec");
}

#[test]
fn duration_ends_managing_and_not_the_command() {
    let Some(_alone) = ready(512) else { return };
    let began = Instant::now();
    let manager = Manager::start(
        "run",
        &[
            "--interval",
            "100ms",
            "--duration",
            "1s",
            "--",
            "sh",
            "-c",
            "sleep 3; exit 8",
        ],
    );
    let managed = manager.wait(SOON);
    assert_eq!(managed.ended.code(), 8, "{}", managed.ended.stderr);
    assert!(began.elapsed() >= Duration::from_secs(3));
    let stop = managed.lines.last().unwrap();
    assert!(matches!(stop.event, Event::Stop { .. }));
    assert!(stop.at.0 < 2_000_000_000, "managing went on: {stop:?}");
    // The same of what runs already.
    let mut sleeper = Program::start(Command::new("sleep").arg("60"));
    let managed = Manager::start(
        "manage",
        &["--interval", "100ms", "--duration", "1s", &sleeper.pid().to_string()],
    )
    .wait(SOON);
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    assert!(sleeper.is_running());
}

extern "C" fn sleep_for_ever(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: pause takes nothing and returns only after a handled signal.
        unsafe { libc::pause() };
    }
}

#[test]
fn who_shares_memory_is_not_managed_twice() {
    let Some(_alone) = ready(512) else { return };
    let mut stack = vec![0u64; 64 << 10];
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the child runs on its own stack, which outlives it, and touches nothing but that.
    let sharer = unsafe {
        libc::clone(
            sleep_for_ever,
            top.cast(),
            libc::CLONE_VM | libc::SIGCHLD,
            std::ptr::null_mut(),
        )
    };
    assert!(sharer > 0);
    let us = std::process::id();
    let managed = Manager::start(
        "manage",
        &[
            "--interval",
            "100ms",
            "--duration",
            "1s",
            "--policy",
            "khugepaged",
            &us.to_string(),
            &sharer.to_string(),
        ],
    )
    .wait(SOON);
    let reaped = rustix::process::Pid::from_raw(sharer);
    rustix::process::kill_process(reaped.unwrap(), Signal::KILL).unwrap();
    rustix::process::waitpid(reaped, rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    let found = found(&managed.lines);
    assert_eq!(found.get(&us).map(Vec::len), Some(1), "{found:?}");
    assert!(!found.contains_key(&(sharer as u32)), "{found:?}");
}

#[test]
fn processes_are_found_by_name() {
    let Some(_alone) = ready(512) else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("mega-named-so");
    assert!(Command::new("cp").arg(LAB).arg(&copy).status().unwrap().success());
    let mut command = Command::new(&copy);
    command.args(["workload", "dense", "--mib", "16"]).stdin(Stdio::piped());
    let program = Program::start(&mut command);
    let mut manager = Manager::start("manage", &["--interval", "100ms", "--comm", "^mega-named-so$"]);
    manager.wait_found(program.pid());
    // One that comes later is found too.
    let later = Program::start(&mut command);
    manager.wait_found(later.pid());
    let managed = manager.stop();
    assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
    assert_eq!(found(&managed.lines).len(), 2);
}

/// A control group of our own, gone at the end.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        assert!(wait_until(Duration::from_secs(5), || fs::remove_dir(&self.0).is_ok()) || std::thread::panicking());
    }
}

#[test]
fn processes_are_found_by_control_group() {
    let Some(_alone) = ready(512) else { return };
    let points = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd"];
    let Some(point) = points
        .iter()
        .find(|point| fs::metadata(format!("{point}/cgroup.procs")).is_ok())
    else {
        eprintln!("SKIPPED: no control groups are mounted below /sys/fs/cgroup");
        return;
    };
    let name = format!("mega-hazards-{}", std::process::id());
    let cgroup = Cgroup(PathBuf::from(point).join(&name));
    if let Err(error) = fs::create_dir(&cgroup.0) {
        std::mem::forget(cgroup);
        eprintln!("SKIPPED: no control group can be made in {point}: {error}");
        return;
    }
    let (mut program, _) = Workload::start(&["kinds", "--regions", "4"]);
    let other = Program::start(Command::new("sleep").arg("60"));
    fs::write(cgroup.0.join("cgroup.procs"), program.pid.to_string()).unwrap();
    for path in [format!("/{name}"), name.clone(), cgroup.0.to_str().unwrap().to_string()] {
        let args: Vec<&str> = FAST.iter().chain(PROMOTE).copied().chain(["--cgroup", &path]).collect();
        let mut manager = Manager::start("manage", &args);
        manager.wait_found(program.pid as u32);
        let managed = manager.stop();
        assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
        assert!(!found(&managed.lines).contains_key(&other.pid()));
    }
    program.check();
    assert!(program.quit().success());
}

#[test]
fn a_unit_that_is_not_there_is_said_to_be_missing() {
    let Some(_alone) = ready(512) else { return };
    let ended = mega(&["manage", "--unit", "no-such-thing-here"]);
    assert_eq!(ended.code(), 1);
    assert!(
        ended.stderr.starts_with("mega: unit 'no-such-thing-here.service': "),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1);
}
