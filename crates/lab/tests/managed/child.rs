//! A process with one odd area: this test program itself, started anew with what it is to do in its environment.

use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mega_lab::memory::content;
use mega_lab::memory::{base_page_bytes, base_pages_only, die_with_parent, Mapping, HUGE_BYTES, MADV_COLLAPSE};
use mega_lab::protocol::command::Commands;
use mega_lab::protocol::emit::event;
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, MapFlags, ProtFlags};
use serde_json::{json, Value};

use crate::support::Workload;

const ENV: &str = "MEGA_TEST_CHILD";
const SEED: u64 = 11;
const MADV_NOHUGEPAGE: i32 = 15;

/// What a child maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Plain memory, on whatever pages faults map.
    Plain,
    /// Locked base pages.
    Locked,
    /// Base pages with MADV_NOHUGEPAGE.
    NoHuge,
    /// Huge pages that got MADV_NOHUGEPAGE afterwards.
    NoHugeAfterwards,
    /// Base pages of a process that disabled THP.
    Prctl,
    /// A file on a tmpfs without a name.
    Memfd,
    /// A file on disk, mapped privately.
    File,
    /// Mappings of 1.5 MB.
    Small,
}

const ALL: [(What, &str); 8] = [
    (What::Plain, "plain"),
    (What::Locked, "locked"),
    (What::NoHuge, "no-huge"),
    (What::NoHugeAfterwards, "no-huge-afterwards"),
    (What::Prctl, "prctl"),
    (What::Memfd, "memfd"),
    (What::File, "file"),
    (What::Small, "small"),
];

/// Starts one with so many MB, filled, every page touched ten times a second. Commands: `zero N` (fills the last N base pages of each
/// region with zeroes), `check`, `quit`.
pub fn start(prefix: &[&str], what: What, mib: usize) -> (Workload, Value) {
    let name = ALL.iter().find(|(w, _)| *w == what).unwrap().1;
    let own = std::env::current_exe().unwrap();
    let mut line: Vec<&str> = prefix.to_vec();
    line.push(own.to_str().unwrap());
    line.extend(["--exact", "child::child", "--nocapture", "--test-threads=1"]);
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env(ENV, format!("{name} {mib}"));
    Workload::start_command(command)
}

/// Not a test: the child's own body.
#[test]
fn child() {
    let Ok(order) = std::env::var(ENV) else { return };
    let (name, mib) = order.split_once(' ').unwrap();
    let what = ALL.iter().find(|(_, n)| *n == name).unwrap().0;
    die_with_parent().unwrap();
    let areas = map(what, mib.parse::<usize>().unwrap() << 20);
    // The test harness has not ended its line.
    println!();
    let starts: Vec<usize> = areas.iter().flat_map(regions).collect();
    event("ready", json!({"pid": std::process::id(), "kinds": {"all": starts}}));
    serve(&areas);
    std::process::exit(0);
}

/// Addresses of the whole regions of an area.
fn regions(area: &Area) -> impl Iterator<Item = usize> {
    let words = area.words();
    let (start, bytes) = (words.as_ptr() as usize, words.len() * 8);
    (start.next_multiple_of(HUGE_BYTES)..start + bytes)
        .step_by(HUGE_BYTES)
        .filter(move |at| at + HUGE_BYTES <= start + bytes)
}

enum Area {
    Anonymous(Mapping),
    File(&'static [AtomicU64]),
}

impl Area {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Anonymous(mapping) => mapping.words(),
            Self::File(words) => words,
        }
    }

    fn pages(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.words().chunks(base_page_bytes() / 8)
    }

    fn fill(&self) {
        self.pages()
            .enumerate()
            .for_each(|(i, words)| content::fill(words, SEED + i as u64));
    }
}

fn map(what: What, bytes: usize) -> Vec<Area> {
    let plain = |bytes| Mapping::new(bytes).unwrap();
    let filled = |mapping| {
        let area = Area::Anonymous(mapping);
        area.fill();
        area
    };
    let on_base_pages = |mapping| base_pages_only(|| filled(mapping)).unwrap();
    let whole = 0..bytes;
    match what {
        What::Plain => vec![filled(plain(bytes))],
        What::Locked => {
            let mut mapping = plain(bytes);
            base_pages_only(|| mapping.lock(whole, true)).unwrap().unwrap();
            vec![on_base_pages(mapping)]
        }
        What::NoHuge => {
            let mut mapping = plain(bytes);
            mapping.advise(whole, MADV_NOHUGEPAGE).unwrap();
            vec![filled(mapping)]
        }
        What::NoHugeAfterwards => {
            let Area::Anonymous(mut mapping) = filled(plain(bytes)) else {
                unreachable!()
            };
            mapping.advise(whole.clone(), MADV_COLLAPSE).unwrap();
            mapping.advise(whole, MADV_NOHUGEPAGE).unwrap();
            vec![Area::Anonymous(mapping)]
        }
        What::Prctl => {
            mega_lab::memory::disable_thp().unwrap();
            vec![filled(plain(bytes))]
        }
        What::Memfd => {
            let fd = memfd_create("mega-test", MemfdFlags::CLOEXEC).unwrap();
            vec![map_file(&fd, bytes, MapFlags::SHARED)]
        }
        What::File => {
            let file = tempfile::tempfile().unwrap();
            vec![map_file(&file, bytes, MapFlags::PRIVATE)]
        }
        What::Small => {
            const SMALL: usize = 3 << 19;
            (0..bytes / SMALL).map(|_| on_base_pages(plain(SMALL))).collect()
        }
    }
}

fn map_file(file: &impl std::os::fd::AsFd, bytes: usize, flags: MapFlags) -> Area {
    ftruncate(file, bytes as u64).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice, never unmapped. Nobody else has the file, so nobody shortens it, and
    // atomics may be looked at while they are written.
    let words = unsafe {
        let at = mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
            file,
            0,
        )
        .unwrap();
        std::slice::from_raw_parts(at as *const AtomicU64, bytes / 8)
    };
    let area = Area::File(words);
    area.fill();
    area
}

/// Keeps all pages in use, and does what it is told. A word that is wrong ends it with a panic, which its parent sees.
fn serve(areas: &[Area]) {
    let commands = Commands::from_stdin();
    let per_region = HUGE_BYTES / base_page_bytes();
    let mut zeroed = 0;
    loop {
        let expects_zero = |page: usize| page % per_region >= per_region - zeroed;
        for area in areas {
            for (i, words) in area.pages().enumerate() {
                let expected = if expects_zero(i) {
                    0
                } else {
                    content::word(SEED + i as u64, 9)
                };
                assert_eq!(
                    words[9].load(std::sync::atomic::Ordering::Relaxed),
                    expected,
                    "page {i}"
                );
            }
        }
        let Some(command) = commands.next_within(Duration::from_millis(100)) else {
            continue;
        };
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("zero", n) => {
                zeroed = n.parse().unwrap();
                for area in areas {
                    let dead = area
                        .pages()
                        .enumerate()
                        .filter(|(i, _)| i % per_region >= per_region - zeroed);
                    dead.flat_map(|(_, words)| words)
                        .for_each(|w| w.store(0, std::sync::atomic::Ordering::Relaxed));
                }
                event("zeroed", json!({"pages_per_region": zeroed}));
            }
            ("check", _) => {
                let bad = areas.iter().find_map(|area| {
                    area.pages().enumerate().find_map(|(i, words)| {
                        let seen = if expects_zero(i) {
                            content::verify_zero(words)
                        } else {
                            content::verify(words, SEED + i as u64)
                        };
                        seen.err().map(|e| format!("page {i}: {e:?}"))
                    })
                });
                event("checked", json!({"ok": bad.is_none(), "error": bad}));
            }
            _ => return,
        }
    }
}
