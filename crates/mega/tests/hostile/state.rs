//! Managers killed at each step of writing their state, and state that is cut, torn or empty.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crate::inject::{text_at, Call, Fate, Injector};
use crate::victim::Victim;
use crate::{fault_size, off, ready, settings, until, Manager};

/// Calls by which the state's files and the settings change, with the place of a path among the arguments.
const CALLS: &[(i64, usize)] = &[
    (libc::SYS_openat, 1),
    (libc::SYS_mkdir, 0),
    (libc::SYS_rename, 0),
    (libc::SYS_renameat, 1),
    (libc::SYS_unlink, 0),
    (libc::SYS_unlinkat, 1),
    (libc::SYS_write, usize::MAX),
    (libc::SYS_flock, usize::MAX),
];

/// Whether the call is about state or settings.
fn is_step(call: &Call) -> bool {
    let Some((_, at)) = CALLS.iter().find(|(number, _)| *number == i64::from(call.number)) else {
        return false;
    };
    let path = match call.args.get(*at) {
        Some(address) => text_at(call.tid, *address),
        // By its descriptor.
        None => fs::read_link(format!("/proc/{}/fd/{}", call.tid, call.args[0]))
            .map_or(String::new(), |path| path.display().to_string()),
    };
    let is_read = i64::from(call.number) == libc::SYS_openat && call.args[2] & 3 == 0;
    path.starts_with("/run/mega") || path.starts_with("/sys/kernel/mm/transparent_hugepage/hugepages") && !is_read
}

#[test]
fn a_manager_killed_at_each_step_of_writing_its_state_leaves_settings_that_are_put_back() {
    let Some(_alone) = ready() else { return };
    off();
    let before = settings();
    let mut victim = Victim::filling();
    let (mut steps, mut in_effect) = (0u64, 0);
    for last in 1..200 {
        let folder = tempfile::tempdir().unwrap();
        // A second of it is enough: the end has its steps, too.
        let command = Manager::command(folder.path(), &["--duration", "300ms", &victim.pid().to_string()]);
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        let fate = move |call: &Call| match is_step(call) && count.fetch_add(1, Relaxed) + 1 == last {
            true => Fate::Dies,
            false => Fate::GoesOn,
        };
        let calls: Vec<i64> = CALLS.iter().map(|(number, _)| *number).collect();
        let (child, injector) = match Injector::start(command, &calls, fate) {
            Ok(started) => started,
            Err(error) => return eprintln!("SKIPPED: the kernel does not tell of system calls (seccomp): {error}"),
        };
        let mut manager = Manager::of(child, folder);
        until("it ends", || !manager.is_running());
        let ended = manager.ended();
        drop(injector);
        in_effect += u64::from(settings() != before);
        off();
        assert_eq!(settings(), before, "killed at step {last}");
        // Nothing is left but the lock.
        for kind in ["knobs", "claims"] {
            let left = fs::read_dir(Path::new("/run/mega").join(kind)).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{kind} after step {last}");
        }
        if ended.code.is_some() {
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            steps = last - 1;
            break;
        }
    }
    victim.check();
    assert!(steps >= 10, "only {steps} steps were seen");
    if !fault_size().is_empty() {
        assert!(in_effect > 0, "no step was one with settings changed");
    }
    eprintln!("killed at each of {steps} steps; settings were in effect after {in_effect}");
}

#[test]
fn state_that_is_cut_torn_or_empty_is_kept_aside_and_said_and_nothing_is_written_by_it() {
    let Some(_alone) = ready() else { return };
    off();
    let before = settings();
    let victim = Victim::reading();
    let mut manager = Manager::start(&[victim.pid()]);
    manager.wait_scans(1);
    let whole = fs::read_dir("/run/mega/knobs").unwrap().next();
    let Some(whole) = whole.map(|entry| fs::read(entry.unwrap().path()).unwrap()) else {
        return eprintln!("EXPECTED: this kernel has no setting that a manager changes (--fault-size, Linux 6.8)");
    };
    // In order, so that what is looked at is the files alone.
    let (ended, _) = {
        manager.is_running();
        manager.stop()
    };
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(settings(), before);
    let torn = |at: usize| {
        let mut text = whole.clone();
        text[at..].fill(0);
        text
    };
    let cuts = (0..whole.len()).step_by(37).chain([whole.len() - 1]);
    let files: Vec<Vec<u8>> = cuts.flat_map(|at| [whole[..at].to_vec(), torn(at)]).collect();
    for (n, text) in files.iter().enumerate() {
        let path = format!("/run/mega/knobs/{}-1-0.json", 900_000 + n);
        fs::write(&path, text).unwrap();
        let off = std::process::Command::new(env!("CARGO_BIN_EXE_mega"))
            .arg("off")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&off.stderr);
        assert!(!stderr.contains("panicked"), "{n}: {stderr}");
        let aside = Path::new(&path).with_extension("corrupt");
        assert!(
            aside.exists() && !Path::new(&path).exists(),
            "{n}: {} bytes: {stderr}",
            text.len()
        );
        let said = format!("{stderr}{}", String::from_utf8_lossy(&off.stdout));
        assert!(said.contains("corrupt"), "{n}: {said}");
        fs::remove_file(aside).unwrap();
        assert_eq!(settings(), before, "{n}");
    }
    eprintln!("{} files", files.len());
}

#[test]
fn where_the_state_cannot_be_written_nothing_is_changed_and_what_was_changed_is_put_back() {
    let Some(_alone) = ready() else { return };
    off();
    let before = settings();
    let mut victim = Victim::filling();
    let remount = |data: &str| {
        let text = |text: &str| std::ffi::CString::new(text).unwrap();
        let (none, state, data) = (text("none"), text("/run/mega"), text(data));
        let flags = libc::MS_REMOUNT | if data.to_bytes() == b"ro" { libc::MS_RDONLY } else { 0 };
        let data = if data.to_bytes() == b"ro" {
            text("mode=755")
        } else {
            data
        };
        // SAFETY: strings that live through the call; the mount is this test's own.
        let done = unsafe {
            libc::mount(
                none.as_ptr(),
                state.as_ptr(),
                std::ptr::null(),
                flags,
                data.as_ptr().cast(),
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    };
    let fill = || {
        let _ = fs::write("/run/mega/full", vec![1; 8 << 20]);
    };
    // From the start.
    for full in [false, true] {
        if full {
            fill()
        } else {
            remount("ro")
        }
        let mut manager = Manager::start(&[victim.pid()]);
        until("it ends or manages", || !manager.is_running() || manager.scans() > 2);
        let is_running = manager.is_running();
        let ended = if is_running { manager.stop().0 } else { manager.ended() };
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        assert!(!ended.stderr.is_empty(), "full: {full}: it says nothing");
        assert_eq!(ended.code, Some(1), "full: {full}: {}", ended.stderr);
        assert_eq!(settings(), before, "full: {full}");
        if full {
            fs::remove_file("/run/mega/full").unwrap()
        } else {
            remount("mode=755,size=4m")
        }
    }
    // While it manages.
    for full in [false, true] {
        let manager = Manager::start(&[victim.pid()]);
        manager.wait_done(victim.pid());
        // A mount with files open for writing is not made read-only: the lock is open for moments.
        if full {
            fill()
        } else {
            remount("ro")
        }
        manager.wait_scans(3);
        let (ended, _) = manager.stop();
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        if full {
            fs::remove_file("/run/mega/full").unwrap()
        } else {
            remount("mode=755,size=4m")
        }
        off();
        assert_eq!(settings(), before, "full: {full}: {}", ended.stderr);
    }
    victim.check();
}
