//! What a program is charged for being promoted, against what it really loses: it times its own touches.
//!
//! `cargo bench -p mega-lab --bench felt -- [--mib 1024] [--rounds 6] [--only grows|uses|maps|computes]`
//!
//! A program with so much dense memory does one thing all the while, on a processor of its own, and adds up by how much each step took longer
//! than steps usually do. It does so for a while before, and as long as a manager without a stall budget promotes all of that memory.

mod bench;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bench::{huge_mib, keep_warm, median, needs, option, show, Manager, PROGRAM_CPU};
use mega_lab::memory::{base_page_bytes, pin_to_cpu, Mapping};
use mega_lab::timing::clock::now_ns;

/// What the program does: faults beside the regions that are promoted, in the same mapping; touches these regions; maps and unmaps; neither.
const KINDS: [&str; 4] = ["grows", "uses", "maps", "computes"];
/// A step that takes so many times the usual was held up.
const HELD_UP: u64 = 5;
/// Faults in a row before what was faulted is given back.
const FRESH: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--program") {
        return program(&args[at + 1], args[at + 2].parse().unwrap());
    }
    let (mib, rounds) = (option("mib", 1024), option("rounds", 6));
    if !needs(2 * mib + 3072) {
        return;
    }
    let only = args.iter().skip_while(|arg| *arg != "--only").nth(1);
    let kinds: Vec<&str> = KINDS
        .into_iter()
        .filter(|kind| only.is_none_or(|only| only == kind))
        .collect();
    let mut ratios = vec![Vec::new(); kinds.len()];
    for round in 1..=rounds {
        for (kind, ratios) in kinds.iter().zip(&mut ratios) {
            let mut program = Program::start(kind, mib);
            let warm = keep_warm();
            let (lost_before, alone) = program.lost_in(Duration::from_secs(3));
            let manager = Manager::start(
                program.child.id() as i32,
                &[
                    "--policy",
                    "ingens",
                    "--interval",
                    "200ms",
                    "--stall-budget",
                    "100%",
                    "--cpu-budget",
                    "100%",
                ],
            );
            let began = Instant::now();
            while huge_mib(program.child.id() as i32) + 8 < mib && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let (lost, time) = program.lost_in(Duration::from_millis(50));
            let did = manager.stop();
            drop(warm);
            let usual = lost_before.as_secs_f64() * time.as_secs_f64() / alone.as_secs_f64();
            let lost = (lost.as_secs_f64() - usual).max(0.0) * 1e3;
            let charged = did.charged_us.iter().sum::<f64>() / 1e3;
            let took = did.took_us.iter().sum::<f64>() / 1e3;
            show(&format!(
                "round {round}: {kind:<8} {} promoted in {took:.1} ms of calls; charged {charged:.1} ms, lost {lost:.1} ms (usually {:.1} ms in that time)",
                did.promoted,
                usual * 1e3,
            ));
            ratios.push((charged / lost, charged / took, lost / took));
        }
    }
    for (kind, seen) in kinds.iter().zip(&ratios) {
        let of = |f: fn(&(f64, f64, f64)) -> f64| {
            let mut all: Vec<f64> = seen.iter().map(f).collect();
            all.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2} to {:.2})", median(&all), all[0], all[all.len() - 1])
        };
        show(&format!(
            "{kind:<8} charged/lost {}; charged/calls {}; lost/calls {}",
            of(|s| s.0),
            of(|s| s.1),
            of(|s| s.2),
        ));
    }
}

/// The program under way.
struct Program {
    child: Child,
    stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(kind: &str, mib: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--program", kind, &mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        Self { child, stdin, lines }
    }

    /// What it lost since it was asked last, and in which time; asked after so long.
    fn lost_in(&mut self, time: Duration) -> (Duration, Duration) {
        std::thread::sleep(time);
        writeln!(self.stdin, "?").unwrap();
        let line = self.lines.next().unwrap().unwrap();
        let mut words = line.split(' ').map(|word| Duration::from_nanos(word.parse().unwrap()));
        (words.next().unwrap(), words.next().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does what it is named for until it is killed; for each line that it reads it says what it has lost since the last, and the time.
fn program(kind: &str, mib: u64) {
    let _ = pin_to_cpu(PROGRAM_CPU);
    let page = base_page_bytes();
    let dense = (mib << 20) as usize;
    let mut memory = Mapping::new(dense + FRESH * page).unwrap();
    for at in 0..dense / page {
        memory.page_words(at)[0].store(1, Relaxed);
    }
    let own: Vec<std::sync::atomic::AtomicU64> = (0..1 << 15).map(std::sync::atomic::AtomicU64::new).collect();
    let (send, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|_| send.send(()))
    });
    println!("ready");
    let mut at: usize = 0;
    let mut random: u64 = 1;
    let mut step = |memory: &mut Mapping| {
        at += 1;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match kind {
            "grows" => {
                let fresh = at % FRESH;
                if fresh == 0 {
                    memory.advise(dense..dense + FRESH * page, libc::MADV_DONTNEED).unwrap();
                }
                let began = now_ns();
                memory.page_words(dense / page + fresh)[0].store(1, Relaxed);
                now_ns() - began
            }
            "uses" => {
                let began = now_ns();
                memory.page_words((random >> 33) as usize % (dense / page))[0].fetch_add(1, Relaxed);
                now_ns() - began
            }
            "maps" => {
                let began = now_ns();
                drop(Mapping::new(64 << 10).unwrap());
                now_ns() - began
            }
            _ => {
                let began = now_ns();
                let word = &own[(random >> 33) as usize % own.len()];
                word.fetch_add(1, Relaxed);
                now_ns() - began
            }
        }
    };
    let mut first: Vec<u64> = (0..100_000).map(|_| step(&mut memory)).collect();
    first.sort_unstable();
    let usual = first[first.len() / 2].max(200);
    let (mut lost, mut since) = (0, now_ns());
    loop {
        let took = step(&mut memory);
        if took > HELD_UP * usual {
            lost += took - usual;
        }
        if asked.try_recv().is_ok() {
            let now = now_ns();
            println!("{lost} {}", now - since);
            let _ = std::io::stdout().flush();
            (lost, since) = (0, now);
        }
    }
}
