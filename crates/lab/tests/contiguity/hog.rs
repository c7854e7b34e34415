//! Taking huge pages: what is counted is what there is, and settings are as they were.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mega_lab::contiguity::{HogResult, How, Stopped};
use mega_linux::blocks::fragmentation::Fragmentation;
use mega_linux::proc::{vmstat, ProcRoot};
use rustix::process::Signal;

use crate::support::MEGA;
use crate::tool::{mega, ready, state_files, Ended, Program};

fn result(ended: &Ended) -> HogResult {
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn pool() -> PathBuf {
    PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
}

fn in_pool() -> u64 {
    std::fs::read_to_string(pool()).unwrap().trim().parse().unwrap()
}

/// Waits until the program has raised the setting, which it does in far less than a second; false: it has ended before.
fn wait_raised(program: &mut Program, before: u64) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while in_pool() <= before + 20 {
        assert!(Instant::now() < deadline, "{}", program.stderr());
        if !program.is_running() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

fn given_at_faults() -> u64 {
    vmstat::read(&ProcRoot::default()).unwrap().thp_fault_alloc().unwrap()
}

#[test]
fn what_is_counted_as_huge_is_huge() {
    let Some(_alone) = ready(1024) else { return };
    // Blocks may come from the processors' own lists, which hold hundreds of them.
    let free = |state: &Fragmentation| state.free_bytes + state.percpu_bytes.unwrap_or(0);
    // What is free is everybody's: others may free as much meanwhile, but not each time.
    let fewer_are_free = (0..5).any(|_| {
        let before = given_at_faults();
        let r = result(&mega(&["hog", "--count", "64", "--base", "--json"]));
        let given = given_at_faults() - before;
        assert_eq!((r.obtained, r.stopped, r.latencies_ns.len()), (64, Stopped::Count, 64));
        assert!(given >= 64, "the kernel has given {given}");
        assert_eq!(r.base.unwrap().bytes, 64 << 21);
        free(r.held.as_ref().unwrap()) + (32 << 21) < free(&r.before)
    });
    assert!(fewer_are_free, "64 blocks less are free while they are held");
    // The same program where the kernel gives base pages only: none are counted.
    let mut command = Command::new(MEGA);
    command.args(["hog", "--count", "64", "--json"]).stdin(Stdio::null());
    // SAFETY: one system call without memory between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let r = result(&Program::start(&mut command).wait(Duration::from_secs(60)));
    assert_eq!((r.obtained, r.stopped, r.share_of_free), (0, Stopped::NoneLeft, 0.0));
    assert_eq!(r.fell_back, 64, "as many in a row as there are before it gives up");
}

#[test]
fn hugetlb_pages_are_had_one_by_one_and_the_setting_is_put_back() {
    let Some(_alone) = ready(1024) else { return };
    let before = in_pool();
    let r = result(&mega(&["hog", "--how", "hugetlb", "--count", "50", "--json"]));
    assert_eq!((r.how, r.obtained, r.latency.count), (How::Hugetlb, 50, 50));
    assert!(r.latency.min_ns > 0);
    assert_eq!(in_pool(), before);
    assert!(state_files().is_empty());
}

#[test]
fn killed_it_leaves_a_setting_that_mega_off_puts_back() {
    let Some(_alone) = ready(2048) else { return };
    let before = in_pool();
    for _ in 0..5 {
        let mut program = Program::mega(&["hog", "--how", "hugetlb", "--count", "400"]);
        wait_raised(&mut program, before);
        program.signal(Signal::KILL);
        let ended = program.wait(Duration::from_secs(10));
        let left = in_pool();
        let off = mega(&["off"]);
        assert_eq!(off.code(), 0, "{}", off.stderr);
        assert_eq!(in_pool(), before, "{left} were left");
        assert!(state_files().is_empty());
        if left > before {
            let said = String::from_utf8_lossy(&off.stdout).into_owned();
            assert_eq!(ended.code(), 137);
            assert!(said.contains("restored") && said.contains("nr_hugepages"), "{said}");
            return;
        }
    }
    panic!("five times it was done before it could be killed");
}

#[test]
fn told_to_end_it_puts_the_setting_back_itself_and_so_does_mega_off() {
    let Some(_alone) = ready(2048) else { return };
    let before = in_pool();
    for by_off in [false, true] {
        let mut program = Program::mega(&["hog", "--how", "hugetlb", "--count", "400", "--json"]);
        wait_raised(&mut program, before);
        if by_off {
            assert_eq!(mega(&["off"]).code(), 0);
        } else {
            program.signal(Signal::TERM);
        }
        let r = result(&program.wait(Duration::from_secs(30)));
        assert!(matches!(r.stopped, Stopped::Asked | Stopped::Count), "{:?}", r.stopped);
        assert_eq!(in_pool(), before);
        assert!(state_files().is_empty());
    }
}

#[test]
fn people_get_a_summary_in_eighty_columns_and_a_picture() {
    let Some(_alone) = ready(1024) else { return };
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("hog.svg");
    let ended = mega(&["hog", "--count", "32", "--base", "-o", picture.to_str().unwrap()]);
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    let text = String::from_utf8(ended.stdout).unwrap();
    for word in [
        "32 huge pages by fault",
        "deviation",
        "p99.99",
        "2 MB of base pages",
        "with all held",
        "####",
    ] {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:?}");
    let svg = std::fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("base pages"));
}
