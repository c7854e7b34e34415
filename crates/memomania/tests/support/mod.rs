//! Running programs under the library, and this test program itself in a part.

#![allow(dead_code)] // several test programs share this, and each uses a part of it

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memomania_layout::settings::{Partial, Settings};
use memomania_layout::wire::{encode, VARIABLE};

/// Held by tests that use hugetlb pages or much memory.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library that cargo built with this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let places = [deps.join("libmemomania.so"), deps.join("../libmemomania.so")];
    let found = places.into_iter().filter(|path| path.is_file());
    let newest = found.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("libmemomania.so is not there").canonicalize().unwrap()
}

/// Settings as the command would make them.
pub fn settings(heap: &str, anon: &str, more: &[(&str, &str)]) -> Partial {
    let all = [&[("HEAP", heap), ("ANON", anon)], more].concat();
    Partial::from_environment(|name| {
        let short = name.strip_prefix("MEGA_MOSAIC_").unwrap();
        all.iter()
            .find(|(own, _)| *own == short)
            .map(|(_, value)| (*value).to_string())
    })
    .unwrap()
}

/// Has a command run under the library.
pub fn under(command: &mut Command, settings: &Settings<'_>) {
    command.env("LD_PRELOAD", library()).env(VARIABLE, encode(settings));
}

/// This test program with one of its tests, which plays a part when `part` is set.
pub fn ourselves(test: &str, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("MEMOMANIA_PART", part);
    command
}

/// The part that this process is to play, if it was started so.
pub fn part() -> Option<String> {
    std::env::var("MEMOMANIA_PART").ok()
}

/// Runs a command and answers what it wrote; fails if it failed.
pub fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(3000)..]).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// A program of this machine, or a note that it is not there.
pub fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// Pages of hugetlb for as long as this lives; put back then. `None`, with a note, where they cannot be had.
pub struct HugePages {
    folder: &'static str,
    added: u64,
}

const HUGE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const GIGANTIC: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";

fn number(folder: &str, file: &str) -> Option<u64> {
    std::fs::read_to_string(format!("{folder}/{file}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Pages that were set aside, without those that go with the program that still has them.
fn persistent(folder: &str) -> Option<u64> {
    let surplus = number(folder, "surplus_hugepages").unwrap_or(0);
    Some(number(folder, "nr_hugepages")?.saturating_sub(surplus))
}

/// Free pages that nobody was promised.
fn free_of(folder: &str) -> u64 {
    let of = |file| number(folder, file).unwrap_or(0);
    of("free_hugepages").saturating_sub(of("resv_hugepages"))
}

/// Free hugetlb pages of 2 MB that nobody was promised.
pub fn free_pages() -> u64 {
    free_of(HUGE)
}

impl HugePages {
    /// So many free ones of 2 MB.
    pub fn reserve(count: u64) -> Option<Self> {
        Self::of(HUGE, count)
    }

    /// So many free ones of 1 GB.
    pub fn gigantic(count: u64) -> Option<Self> {
        Self::of(GIGANTIC, count)
    }

    fn of(folder: &'static str, count: u64) -> Option<Self> {
        let Some(before) = persistent(folder) else {
            eprintln!("SKIPPED: {folder} is not there");
            return None;
        };
        let target = before + count.saturating_sub(free_of(folder));
        let this = Self {
            folder,
            added: target - before,
        };
        // What others do to memory meanwhile may be in the way for some seconds.
        for _ in 0..12 {
            if std::fs::write(format!("{folder}/nr_hugepages"), format!("{target}\n")).is_err() {
                eprintln!("SKIPPED: it needs root to reserve pages ({folder})");
                return None;
            }
            if free_of(folder) >= count {
                return Some(this);
            }
            let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
            std::thread::sleep(Duration::from_millis(500));
        }
        let free = free_of(folder);
        eprintln!("SKIPPED: no {count} pages to be had, {free} only ({folder})");
        None
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Others may have reserved some meanwhile.
        let now = persistent(self.folder).unwrap_or(0);
        let rest = now.saturating_sub(self.added);
        let _ = std::fs::write(format!("{}/nr_hugepages", self.folder), format!("{rest}\n"));
    }
}
