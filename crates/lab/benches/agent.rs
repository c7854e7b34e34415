//! What the agent costs a program that maps and one that sleeps, and what it and a profile save one that fills memory right at its start.
//!
//! `cargo bench -p mega-lab --bench agent -- [--rounds 20]`
//!
//! Each round runs both programs in turn: by themselves, with the agent inside, and with what an earlier run has shown (`mega profile`).
//! Then three programs that hold memory and sleep, with the agent alone inside.

mod bench;

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bench::{keep_warm, median, needs, option, show, MEGA};
use mega_lab::memory::{base_page_bytes, Mapping};
use mega_lab::timing::clock::now_ns;

/// Pairs of mmap and munmap that are timed together.
const PAIRS: u64 = 20_000;
/// What is mapped, by name.
const SIZES: [(&str, usize); 2] = [("64 KB", 64 << 10), ("16 MB", 16 << 20)];
/// What is held by who sleeps, how long it takes the helper to see that nothing happens, and how long it is watched.
const HELD: usize = 300 << 20;
const SETTLING: Duration = Duration::from_secs(12);
const WATCHED: Duration = Duration::from_secs(20);
/// Mappings that are filled, and their size.
const FILLED: (usize, usize) = (3, 18 << 20);

/// How a program is run: by name, and by what `mega` is given.
const WAYS: [(&str, &[&str]); 3] = [
    ("by itself", &[]),
    ("with the agent", &["run", "-q", "--no-profiles"]),
    ("with agent and profile", &["run", "-q"]),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args
        .iter()
        .position(|arg| arg == "--program")
        .map(|at| args[at + 1].as_str())
    {
        Some("maps") => return maps(),
        Some("sleeps") => return sleeps(),
        Some(_) => return fills(),
        None => {}
    }
    let rounds = option("rounds", 20);
    if !needs(1024) {
        return;
    }
    let warm = keep_warm();
    let folder = tempfile::tempdir().unwrap();
    let figures = |way: &[&str], program: &str| -> Vec<f64> {
        let own = std::env::current_exe().unwrap();
        let mut command = match way {
            [] => Command::new(own),
            options => {
                let mut command = Command::new(MEGA);
                command
                    .args(options)
                    .arg("--")
                    .arg(own)
                    .env("MEGA_PROFILES", folder.path());
                command
            }
        };
        let said = command.args(["--program", program]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8(said.stdout).unwrap();
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    // What is learned.
    figures(WAYS[2].1, "fills");
    let mut seen = vec![vec![Vec::new(); SIZES.len() + 1]; WAYS.len()];
    for _ in 0..rounds {
        for ((_, way), seen) in WAYS.iter().zip(&mut seen) {
            let all = figures(way, "maps").into_iter().chain(figures(way, "fills"));
            seen.iter_mut().zip(all).for_each(|(seen, figure)| seen.push(figure));
        }
    }
    let names = SIZES.map(|(name, _)| format!("mmap and munmap of {name}, ns"));
    for (what, name) in names.into_iter().chain(["filling 54 MB, us".to_owned()]).enumerate() {
        for ((way, _), seen) in WAYS.iter().zip(&seen) {
            let mut all = seen[what].clone();
            all.sort_by(f64::total_cmp);
            show(&format!(
                "{name}: {way} {:.0} ({:.0} to {:.0})",
                median(&all),
                all[0],
                all[all.len() - 1]
            ));
        }
    }
    drop(warm);
    for _ in 0..3 {
        let ppm = figures(&["run", "-q", "--agent-only"], "sleeps")[0];
        show(&format!(
            "helper of a program that sleeps on 300 MB: {:.3} % of a processor",
            ppm / 1e4
        ));
    }
}

fn maps() {
    for (_, bytes) in SIZES {
        let began = now_ns();
        for _ in 0..PAIRS {
            drop(Mapping::new(bytes).unwrap());
        }
        print!("{} ", (now_ns() - began) / PAIRS);
    }
    println!();
}

fn fills() {
    std::thread::sleep(Duration::from_millis(20));
    let began = now_ns();
    let all: Vec<_> = (0..FILLED.0).map(|_| filled(FILLED.1)).collect();
    println!("{}", (now_ns() - began) / 1000);
    drop(all);
}

fn filled(bytes: usize) -> Mapping {
    let memory = Mapping::new(bytes).unwrap();
    for page in 0..bytes / base_page_bytes() {
        memory.page_words(page)[0].store(1, Relaxed);
    }
    memory
}

/// Prints the share of a processor that the helper takes, in millionths: it is this program's only child.
fn sleeps() {
    let _held = filled(HELD);
    std::thread::sleep(SETTLING);
    let own = std::process::id();
    let helpers = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let file = format!("/proc/{}/schedstat", helpers.trim());
    let ran = || -> u64 {
        let said = std::fs::read_to_string(&file).unwrap();
        said.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (before, began) = (ran(), now_ns());
    std::thread::sleep(WATCHED);
    println!("{}", (ran() - before) * 1_000_000 / (now_ns() - began));
}
