//! Signals reach what they are meant for, and nothing else; what was ignored stays ignored.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{kill_process, Pid, Signal};

use crate::*;

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Has what is started ignore SIGHUP, as nohup does.
fn nohup(command: &mut Command) {
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
}

#[test]
fn after_the_command_has_ended_signals_go_to_what_it_left_behind() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (ready, told) = (folder.path().join("ready"), folder.path().join("told"));
    let server = format!(
        "trap 'echo told > {}; exit 0' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        told.display(),
        ready.display()
    );
    let script = format!(
        "sh -c \"$SERVER\" & while [ ! -s {} ]; do sleep 0.05; done; exit 3",
        ready.display()
    );
    let child = mega()
        .args(["run", "-q", "--", "sh", "-c", &script])
        .env("SERVER", server)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the server runs", || {
        fs::read_to_string(&ready).is_ok_and(|pid| pid.ends_with('\n'))
    });
    let shell = format!("/proc/{}/task/{}/children", child.id(), child.id());
    // The server alone is left below mega: the command has been reaped.
    let server = fs::read_to_string(&ready).unwrap().trim().to_owned();
    until("the command has ended", || {
        fs::read_to_string(&shell).is_ok_and(|list| list.trim() == server)
    });
    send(child.id(), Signal::TERM);
    until("the server is told", || told.exists());
    let (status, _) = ended(child);
    assert_eq!(status.code(), Some(3), "the command's own status");
}

#[test]
fn a_signal_reaches_a_command_that_runs() {
    if !is_root() {
        return;
    }
    let child = mega()
        .args([
            "run",
            "-q",
            "--",
            "sh",
            "-c",
            "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = child;
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    send(child.id(), Signal::TERM);
    assert_eq!(ended(child).0.code(), Some(7));
}

#[test]
fn nohup_keeps_its_meaning_for_the_command_and_for_mega() {
    if !is_root() {
        return;
    }
    let mut command = mega();
    let script = "grep SigIgn /proc/self/status; echo; while [ ! -e $DONE ]; do sleep 0.05; done; exit 5";
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    nohup(
        command
            .args(["run", "-q", "--", "sh", "-c", script])
            .env("DONE", &done)
            .stdout(Stdio::piped()),
    );
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    let mask = u64::from_str_radix(line.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert!(mask & 1 != 0, "SIGHUP is not ignored any more: {line}");
    send(child.id(), Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    fs::write(&done, "").unwrap();
    assert_eq!(ended(child).0.code(), Some(5));
}

#[test]
fn a_manager_that_was_started_by_nohup_does_not_stop_when_the_terminal_closes() {
    if !is_root() {
        return;
    }
    let mut program = Command::new("sleep").arg("300").spawn().unwrap();
    let mut command = mega();
    nohup(
        command
            .args(["manage", "--duration", "6s", "--json", &program.id().to_string()])
            .stdout(Stdio::piped()),
    );
    let child = command.spawn().unwrap();
    until("it manages", || {
        fs::read_to_string(format!("/proc/{}/status", child.id())).is_ok_and(|s| s.contains("SigCgt"))
    });
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    send(child.id(), Signal::HUP);
    send(child.id(), Signal::HUP);
    let status = ended(child).0;
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(
        status.success() && began.elapsed() > Duration::from_secs(4),
        "{status} {:?}",
        began.elapsed()
    );
}

#[test]
fn sighup_and_sigterm_that_come_twice_still_put_everything_back() {
    if !is_root() {
        return;
    }
    let mut program = Command::new("sleep").arg("300").spawn().unwrap();
    for signal in [Signal::HUP, Signal::TERM] {
        let child = mega()
            .args(["manage", "--json", &program.id().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its claim is the last thing before it observes.
        until("it manages", || {
            let claims = fs::read_dir("/run/mega/claims").into_iter().flatten().flatten();
            claims.into_iter().any(|claim| {
                claim
                    .file_name()
                    .to_string_lossy()
                    .starts_with(&format!("{}-", program.id()))
            })
        });
        send(child.id(), signal);
        send(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        assert!(stdout(&output).contains("\"kind\":\"summary\""), "it ended in order");
    }
    program.kill().unwrap();
    program.wait().unwrap();
}
