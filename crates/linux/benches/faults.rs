//! What measuring fault latency costs: nanoseconds per first touch of a base page.
//!
//! ```text
//! cargo bench -p mega-linux --bench faults          # 400 MB, 15 rounds; needs root
//! ```
//!
//! A forked child touches the same number of fresh pages again and again. Rounds alternate between nothing attached,
//! attached for another process, and attached for the child; reported are the medians over the rounds, and the median
//! of each round's difference to its neighbour with nothing attached. The child gives all memory back after each round,
//! and takes it again at once, so that the machine's memory stays warm.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use mega_linux::faults::Faults;

const PAGE: usize = 4096;
const PAGES: usize = 100_000;
const ROUNDS: usize = 15;

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time to touch all pages once, in nanoseconds.
fn touch_all() -> u64 {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: new memory, advised, written and unmapped within its bounds.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, prot, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        libc::madvise(base, PAGES * PAGE, libc::MADV_NOHUGEPAGE);
        let start = now_ns();
        for i in 0..PAGES {
            base.cast::<u8>().add(i * PAGE).write_volatile(1);
        }
        let time = now_ns() - start;
        libc::munmap(base, PAGES * PAGE);
        time
    }
}

/// A child that touches on demand, until it is killed.
struct Toucher {
    pid: i32,
    gate: UnixStream,
}

impl Toucher {
    fn fork() -> Toucher {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        // SAFETY: the child touches memory, makes system calls, and never returns.
        match unsafe { libc::fork() } {
            0 => {
                let mut byte = [0u8];
                while theirs.read_exact(&mut byte).is_ok() {
                    // The first warms the memory.
                    touch_all();
                    if theirs.write_all(&touch_all().to_ne_bytes()).is_err() {
                        break;
                    }
                }
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) }
            }
            pid => {
                assert!(pid > 0, "fork");
                Toucher { pid, gate: ours }
            }
        }
    }

    fn ns_per_fault(&mut self) -> f64 {
        let mut time = [0u8; 8];
        self.gate.write_all(&[1]).expect("telling the child");
        self.gate.read_exact(&mut time).expect("the child's time");
        u64::from_ne_bytes(time) as f64 / PAGES as f64
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        // SAFETY: a child of ours that has not been waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    // Cargo's tests run benches too, without this flag: then there is nothing to measure.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    let mut child = Toucher::fork();
    let idle = Toucher::fork();
    let (mut none, mut others, mut followed) = (Vec::new(), Vec::new(), Vec::new());
    let mut how = "";
    for _ in 0..ROUNDS {
        none.push(child.ns_per_fault());
        for (pid, times) in [(idle.pid, &mut others), (child.pid, &mut followed)] {
            let faults = match Faults::start(&[pid as u32]) {
                Ok(faults) => faults,
                Err(error) => {
                    eprintln!("skipped: {error}");
                    return;
                }
            };
            how = faults.how();
            times.push(child.ns_per_fault());
            let seen = faults.read().expect("counters").base.count();
            let expected = if pid == idle.pid { 0 } else { 2 * PAGES as u64 };
            assert!(
                (expected..=expected + 200).contains(&seen),
                "{seen} faults seen, {expected} made"
            );
        }
    }
    println!("{how}");
    println!("{ROUNDS} rounds of {PAGES} base faults, ns per fault:");
    for (name, times) in [
        ("nothing attached", &none),
        ("attached, not followed", &others),
        ("followed", &followed),
    ] {
        let more = median(times.iter().zip(&none).map(|(a, b)| a - b).collect());
        let (low, high) = times.iter().fold((f64::MAX, 0f64), |(l, h), &t| (l.min(t), h.max(t)));
        let middle = median(times.clone());
        println!("  {name:24}{middle:8.0}  ({low:.0} to {high:.0}){more:+8.0}");
    }
}
