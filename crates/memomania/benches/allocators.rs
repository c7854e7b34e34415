//! The candidates for the heap, side by side: mimalloc, and dlmalloc behind one lock; and glibc's malloc, jemalloc if it is installed, and the
//! whole library with base pages for comparison, the last two preloaded. Threads 1 to 8, time per pair of malloc and free, and resident memory
//! over what was asked for.
//!
//! `cargo bench -p libmemomania --bench allocators`. docs/memomania.md has what it said, and the choice.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Malloc = fn(usize) -> *mut u8;
type Free = fn(*mut u8, usize);

const LIVE: usize = 20_000;
const PAIRS: usize = 1_500_000;
const ROUNDS: usize = 5;
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
fn churn((malloc, free): (Malloc, Free), threads: u64) -> (f64, usize) {
    let asked = Mutex::new(0);
    let begin = Instant::now();
    let mut took = 0.0;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|seed| {
                let asked = &asked;
                scope.spawn(move || {
                    let mut random = Pcg64Mcg::seed_from_u64(seed + 1);
                    let mut live: Vec<(*mut u8, usize)> = vec![(std::ptr::null_mut(), 0); LIVE / threads as usize];
                    let count = live.len() as u64;
                    for _ in 0..PAIRS / threads as usize {
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
                    *asked.lock().unwrap() += live.iter().map(|(_, n)| n).sum::<usize>();
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        took = begin.elapsed().as_nanos() as f64;
    });
    (took / PAIRS as f64, asked.into_inner().unwrap())
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

fn main() {
    if let Ok(name) = std::env::var("CANDIDATE") {
        let threads = std::env::var("THREADS").unwrap().parse().unwrap();
        let before = resident();
        let (ns, asked) = churn(candidate(&name), threads);
        println!("{ns} {}", (resident() - before) as f64 / asked as f64);
        return;
    }
    let all: Vec<(&str, PathBuf)> = [
        ("glibc", PathBuf::new()),
        ("jemalloc", PathBuf::from(JEMALLOC)),
        ("mimalloc", PathBuf::new()),
        ("dlmalloc", PathBuf::new()),
        ("memomania", library()),
    ]
    .into_iter()
    .filter(|(_, preload)| preload.as_os_str().is_empty() || preload.is_file())
    .collect();
    println!("candidate  threads  ns per pair (median of {ROUNDS})  resident per byte asked for");
    for threads in [1, 2, 4, 8] {
        let mut results: Vec<Vec<(f64, f64)>> = vec![Vec::new(); all.len()];
        for _ in 0..ROUNDS {
            for ((name, preload), results) in all.iter().zip(&mut results) {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.env("CANDIDATE", name).env("THREADS", format!("{threads}"));
                if !preload.as_os_str().is_empty() {
                    command.env("LD_PRELOAD", preload);
                }
                let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
                let mut numbers = text.split_whitespace().map(|n| n.parse::<f64>().unwrap());
                results.push((numbers.next().unwrap(), numbers.next().unwrap()));
            }
        }
        for ((name, _), mut results) in all.iter().zip(results) {
            results.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (ns, space) = results[ROUNDS / 2];
            println!("{name:<10} {threads:<8} {ns:<26.1} {space:.2}");
        }
    }
}
