//! The candidates for the heap, side by side: mimalloc, and dlmalloc behind one lock; and glibc's malloc, jemalloc if it is installed, and the
//! whole library with base pages for comparison, the last two preloaded.
//!
//! - `threads`: 1 to 8 threads that allocate and free at random; time per pair of malloc and free
//! - `space`: a million live blocks; resident memory over what was asked for, after churn
//! - `start`: starting `true`, in microseconds
//! - `programs`: programs that allocate much, time and most resident memory against plain glibc in the same round
//!
//! `cargo bench -p libmemomania --bench allocators [-- PART...]`. docs/memomania.md has what it said, and the choice.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Malloc = fn(usize) -> *mut u8;
type Free = fn(*mut u8, usize);

/// Live blocks: of 5 MB in all, so that caches hold them, and of 270 MB.
const LIVE: usize = 20_000;
const LIVE_SPACE: usize = 1_000_000;
const PAIRS: usize = 1_500_000;
const ROUNDS: usize = 5;
const STARTS: usize = 200;
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

struct Shared(dlmalloc::Dlmalloc);

// SAFETY: only used behind a lock.
unsafe impl Send for Shared {}

static DLMALLOC: Mutex<Shared> = Mutex::new(Shared(dlmalloc::Dlmalloc::new()));

// Links mimalloc in.
use libmimalloc_sys as _;

extern "C" {
    fn mi_malloc(bytes: usize) -> *mut c_void;
    fn mi_free(block: *mut c_void);
}

// Blocks are freed once, by what they came from, with their size.

fn glibc_malloc(bytes: usize) -> *mut u8 {
    // SAFETY: takes a number.
    unsafe { libc::malloc(bytes).cast() }
}

fn glibc_free(block: *mut u8, _: usize) {
    // SAFETY: as said above.
    unsafe { libc::free(block.cast()) }
}

fn mimalloc_malloc(bytes: usize) -> *mut u8 {
    // SAFETY: takes a number.
    unsafe { mi_malloc(bytes).cast() }
}

fn mimalloc_free(block: *mut u8, _: usize) {
    // SAFETY: as said above.
    unsafe { mi_free(block.cast()) }
}

fn dlmalloc_malloc(bytes: usize) -> *mut u8 {
    // SAFETY: takes numbers.
    unsafe { DLMALLOC.lock().unwrap().0.malloc(bytes, 16) }
}

fn dlmalloc_free(block: *mut u8, bytes: usize) {
    // SAFETY: as said above.
    unsafe { DLMALLOC.lock().unwrap().0.free(block, bytes, 16) }
}

fn candidate(name: &str) -> (Malloc, Free) {
    match name {
        "mimalloc" => (mimalloc_malloc, mimalloc_free),
        "dlmalloc" => (dlmalloc_malloc, dlmalloc_free),
        // Preloaded.
        _ => (glibc_malloc, glibc_free),
    }
}

fn size(random: &mut Pcg64Mcg) -> usize {
    let n = random.next_u64();
    match n % 100 {
        0 => 4096 + (n >> 20) as usize % 60_000,
        1..=15 => 256 + (n >> 20) as usize % 2000,
        _ => 16 + (n >> 20) as usize % 240,
    }
}

/// Allocates and frees at random; answers nanoseconds per pair.
fn churn((malloc, free): (Malloc, Free), threads: u64, live: usize, pairs: usize) -> (f64, usize) {
    let asked = Mutex::new(0);
    let begin = Instant::now();
    let mut took = 0.0;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|seed| {
                let asked = &asked;
                scope.spawn(move || {
                    let mut random = Pcg64Mcg::seed_from_u64(seed + 1);
                    let mut live: Vec<(*mut u8, usize)> = vec![(std::ptr::null_mut(), 0); live / threads as usize];
                    let count = live.len() as u64;
                    for _ in 0..pairs / threads as usize {
                        let slot = &mut live[(random.next_u64() % count) as usize];
                        if !slot.0.is_null() {
                            free(slot.0, slot.1);
                        }
                        let n = size(&mut random);
                        let block = malloc(n);
                        // As much as is counted is also resident: a byte of each page.
                        // SAFETY: all within its bytes.
                        (0..n).step_by(4096).for_each(|at| unsafe { block.add(at).write(1) });
                        *slot = (block, n);
                    }
                    // The list is memory, too, and stays.
                    let blocks: usize = live.iter().map(|(_, n)| n).sum();
                    *asked.lock().unwrap() += blocks + std::mem::size_of_val(&live[..]);
                    std::mem::forget(live);
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        took = begin.elapsed().as_nanos() as f64;
    });
    (took / pairs as f64, asked.into_inner().unwrap())
}

/// The library that cargo built with this.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let places = [
        own.with_file_name("libmemomania.so"),
        own.parent().unwrap().join("../libmemomania.so"),
    ];
    let found = places.into_iter().filter(|path| path.is_file());
    found
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .unwrap_or_default()
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What a preloaded candidate is loaded from; nothing for those that are linked in.
fn candidates() -> Vec<(&'static str, PathBuf)> {
    let all = [
        ("glibc", PathBuf::new()),
        ("jemalloc", PathBuf::from(JEMALLOC)),
        ("mimalloc", PathBuf::new()),
        ("dlmalloc", PathBuf::new()),
        ("memomania", library()),
    ];
    let there = |(_, preload): &(&str, PathBuf)| preload.as_os_str().is_empty() || preload.is_file();
    all.into_iter().filter(there).collect()
}

/// Those that need no program of ours.
fn preloaded() -> Vec<(&'static str, PathBuf)> {
    let linked = |name: &str| matches!(name, "mimalloc" | "dlmalloc");
    candidates().into_iter().filter(|(name, _)| !linked(name)).collect()
}

fn command(program: impl AsRef<std::ffi::OsStr>, preload: &PathBuf) -> Command {
    let mut command = Command::new(program);
    if !preload.as_os_str().is_empty() {
        command.env("LD_PRELOAD", preload);
    }
    command
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median, least and most.
fn spread(mut values: Vec<f64>) -> String {
    let middle = median(&mut values);
    format!("{middle:.3} ({:.3} to {:.3})", values[0], values[values.len() - 1])
}

/// The numbers that this program says, run as one candidate; those of the median time.
fn measured(part: &str, threads: usize) {
    let all = candidates();
    let mut results: Vec<Vec<Vec<f64>>> = vec![Vec::new(); all.len()];
    for _ in 0..ROUNDS {
        for ((name, preload), results) in all.iter().zip(&mut results) {
            let mut command = command(std::env::current_exe().unwrap(), preload);
            command.env("CANDIDATE", name).env("PART", part);
            command.env("THREADS", format!("{threads}"));
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            results.push(text.split_whitespace().map(|n| n.parse().unwrap()).collect());
        }
    }
    for ((name, _), mut results) in all.iter().zip(results) {
        results.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let numbers: Vec<String> = results[ROUNDS / 2].iter().map(|n| format!("{n:>10.2}")).collect();
        println!("{name:<10} {threads:<8} {}", numbers.join(" "));
    }
}

fn start() {
    println!("candidate  microseconds to start and end `true` (median of {STARTS})");
    let all = preloaded();
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    for _ in 0..STARTS {
        for ((_, preload), took) in all.iter().zip(&mut took) {
            let mut command = command("true", preload);
            let begin = Instant::now();
            assert!(command.status().unwrap().success());
            took.push(begin.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    for ((name, _), mut took) in all.iter().zip(took) {
        println!("{name:<10} {:.0}", median(&mut took));
    }
}

/// Programs that allocate much; those that are there.
const PROGRAMS: [(&str, &[&str]); 5] = [
    (
        "python3",
        &[
            "-c",
            "d = {i: [str(i), (i, i + 1)] for i in range(600000)}\nfor r in range(3):\n  d = {k: list(v) for k, v in d.items()}",
        ],
    ),
    (
        "sqlite3",
        &[
            ":memory:",
            "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000) insert into t select i, hex(randomblob(i % 200)) from n; create index x on t(b); select count(*), max(length(b)) from t where b > '8';",
        ],
    ),
    (
        "perl",
        &["-e", "for (1 .. 900000) { $h{$_ * 7919 % 1000003} = \"x\" x ($_ % 97); } for (keys %h) { delete $h{$_} if $_ % 3 } "],
    ),
    (
        "sh",
        &["-c", "seq 1 3000000 | sort --parallel=2 -S 200M -r | tail -n 1"],
    ),
    (
        "gcc",
        &["-O2", "-x", "c++", "-S", "-o", "/dev/null", "-include", "bits/stdc++.h", "/dev/null"],
    ),
];

/// Seconds, and kilobytes at most resident.
fn cost(command: &mut Command) -> Option<(f64, f64)> {
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: our child, waited for here only; numbers are written to these.
    let (ended, usage) = unsafe {
        let ended = libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr());
        (ended, usage.assume_init())
    };
    let took = begin.elapsed().as_secs_f64();
    let _ = child.stdin.take();
    (ended > 0 && status == 0).then_some((took, usage.ru_maxrss as f64))
}

fn programs() {
    println!(
        "program   candidate  time over glibc's of the same round: median (least to most)   most resident over glibc's"
    );
    let all = preloaded();
    for (program, arguments) in PROGRAMS {
        let mut ratios: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); all.len()];
        let round = || {
            let each = all.iter();
            let each =
                each.map(|(_, preload)| cost(command(program, preload).args(arguments).env("PYTHONMALLOC", "malloc")));
            each.collect::<Option<Vec<_>>>()
        };
        // The first round warms the page cache.
        if round().is_none() {
            println!("{program:<9} is not here, or fails");
            continue;
        }
        for _ in 0..2 * ROUNDS + 1 {
            let costs = round().unwrap();
            for (ratios, (time, resident)) in ratios.iter_mut().zip(&costs) {
                ratios.0.push(time / costs[0].0);
                ratios.1.push(resident / costs[0].1);
            }
        }
        for ((name, _), (times, resident)) in all.iter().zip(ratios).skip(1) {
            println!("{program:<9} {name:<10} {:<40} {}", spread(times), spread(resident));
        }
    }
}

/// This program as one candidate.
fn as_candidate(name: &str) {
    let threads = std::env::var("THREADS").unwrap().parse().unwrap();
    let before = resident();
    let allocator = candidate(name);
    let over = |asked: usize| (resident() - before) as f64 / asked as f64;
    if std::env::var("PART").unwrap() == "space" {
        let (_, asked) = churn(allocator, threads, LIVE_SPACE, 2 * LIVE_SPACE);
        println!("{}", over(asked));
        return;
    }
    let (ns, asked) = churn(allocator, threads, LIVE, PAIRS);
    println!("{ns} {}", over(asked));
}

fn main() {
    if let Ok(name) = std::env::var("CANDIDATE") {
        return as_candidate(&name);
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |part: &str| asked.is_empty() || asked.iter().any(|a| a == part);
    if wants("threads") {
        println!("candidate  threads  ns per pair  resident per byte asked for (median of {ROUNDS})");
        [1, 2, 4, 8].iter().for_each(|threads| measured("threads", *threads));
    }
    if wants("space") {
        println!("candidate  threads  resident per byte asked for, {LIVE_SPACE} live blocks");
        [1, 4].iter().for_each(|threads| measured("space", *threads));
    }
    if wants("start") {
        start();
    }
    if wants("programs") {
        programs();
    }
}
