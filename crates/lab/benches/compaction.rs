//! What each way of making free blocks yields, costs and stalls (issue "Contiguity", actuators): the table of docs/compaction.md.
//!
//! `cargo bench -p mega --bench compaction -- [--rounds 3] [--gib 0] [--blocks 100] [--settle 4] [--only WAY]`
//!
//! Each run fragments memory anew (`mega frag`, the study's pattern, over 7/8 of what is available or `--gib`), has a program hold all
//! free blocks but 64 (or what it gets in three seconds), and asks one way for so many blocks more. The same program, on the other processor, touches its own 256 MB at
//! random and takes fresh pages all the while; its operations before are the comparison. Ways run in alternation.

mod bench;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::{median, needs, option, show, LAB, MANAGER_CPU, PROGRAM_CPU};
use mega_core::compaction::target::{Compacted, Order};
use mega_core::units::Blocks;
use mega_lab::contiguity::{Amount, FragKind, FragOptions, Fragmenter};
use mega_lab::memory::{base_page_bytes, pin_process_to_cpu, pin_to_cpu, Mapping, HUGE_BYTES};
use mega_lab::protocol::command::Commands;
use mega_lab::timing::clock::now_ns;
use mega_lab::timing::latency::Latency;
use mega_linux::blocks::fragmentation;
use mega_linux::compact::{compact, open, Way};
use mega_linux::proc::ProcRoot;
use serde_json::{json, Value};
use std::sync::atomic::Ordering::Relaxed;

const PROBED: usize = 256 << 20;
/// Free blocks that are left at the beginning of a run.
const LEFT: u64 = 64;
const STATE: &str = "/run/mega";

fn main() {
    if std::env::args().any(|arg| arg == "--prober") {
        return probe();
    }
    let (rounds, gib, blocks) = (option("rounds", 3), option("gib", 0), option("blocks", 100));
    let settle = Duration::from_secs(option("settle", 4));
    if !needs(3072 + (gib << 10)) {
        return;
    }
    let only = std::env::args().skip_while(|arg| arg != "--only").nth(1);
    let mut ways: Vec<(Way, Vec<Run>)> = Way::STOCK.into_iter().map(|way| (way, Vec::new())).collect();
    ways.retain(|(way, _)| only.as_deref().is_none_or(|only| only == way.word()));
    // Where a program runs that asks, and its helpers.
    let _ = pin_to_cpu(MANAGER_CPU);
    for round in 1..=rounds {
        for (way, runs) in &mut ways {
            match run(*way, round, gib, blocks, settle) {
                Ok(run) => {
                    show(&format!("round {round} of {rounds}: {}", run.line(*way)));
                    runs.push(run);
                }
                Err(why) => show(&format!("round {round} of {rounds}: {}: {why}", way.word())),
            }
        }
    }
    table(&ways, blocks);
}

/// One run of one way.
struct Run {
    done: Compacted,
    later_blocks: u64,
    unusable_share: f64,
    quiet: Value,
    during: Value,
}

impl Run {
    fn gained(&self) -> f64 {
        self.done.after.0 as f64 - self.done.before.0 as f64
    }

    fn later(&self) -> f64 {
        self.later_blocks as f64 - self.done.before.0 as f64
    }

    fn line(&self, way: Way) -> String {
        let d = &self.done;
        format!(
            "{}: {:.0} % unusable, {} free, {:+.0} at once, {} on lists, {:+.0} later, {} after {:.0} ms, cpu {:.0} ms, {} moved, touch max {} us, fresh max {} us",
            way.word(),
            100.0 * self.unusable_share,
            d.before.0,
            self.gained(),
            d.on_lists.0,
            self.later(),
            d.ended.word(),
            d.took.as_secs_f64() * 1e3,
            d.cpu.as_secs_f64() * 1e3,
            d.moved_pages,
            us(&self.during["touch"]["max_ns"]),
            us(&self.during["fresh"]["max_ns"]),
        )
    }
}

fn run(way: Way, seed: u64, gib: u64, blocks: u64, settle: Duration) -> Result<Run, String> {
    let root = ProcRoot::default();
    let mut actuator = open(way, &root, STATE.as_ref()).map_err(|e| e.to_string())?;
    let amount = match gib {
        0 => Amount::Most,
        gib => Amount::Bytes(gib << 30),
    };
    let options = FragOptions {
        kind: FragKind::Study,
        amount,
        seed,
        ..FragOptions::default()
    };
    let fragmenter = Fragmenter::start(LAB.as_ref(), &options).map_err(|e| e.to_string())?;
    let mut prober = Prober::start();
    prober.mark();
    std::thread::sleep(Duration::from_secs(1));
    let quiet = prober.mark();
    let unusable_share = fragmentation::read(&root).map_err(|e| e.to_string())?.unusable_share;
    let order = Order {
        blocks: Blocks(blocks),
        time: Duration::from_secs(2),
    };
    prober.mark();
    let report = compact(actuator.as_mut(), &root, &order, &[], &|| false);
    let during = prober.mark();
    let done = report.map_err(|e| e.to_string())?.done;
    std::thread::sleep(settle);
    let later_blocks = fragmentation::read(&root).map_err(|e| e.to_string())?.free_blocks;
    drop(prober);
    // What it keeps is checked: compaction has moved it about.
    fragmenter.release().map_err(|e| e.to_string())?;
    Ok(Run {
        done,
        later_blocks,
        unusable_share,
        quiet,
        during,
    })
}

/// The program beside it.
struct Prober {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Prober {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--prober")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        pin_process_to_cpu(child.id() as i32, PROGRAM_CPU).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut prober = Self { child, lines };
        prober.read();
        prober
    }

    /// What its operations took since the last mark.
    fn mark(&mut self) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "mark").unwrap();
        self.read()
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes huge pages until so few blocks are free, in at most three seconds: kcompactd makes new ones meanwhile. At least 2 GB stay
/// available.
fn hold_free_blocks(root: &ProcRoot) -> Mapping {
    let read = || fragmentation::read(root).unwrap().free_blocks;
    let available = || mega_linux::proc::meminfo::read(root).unwrap().available_bytes.unwrap();
    let pieces = (available().saturating_sub(2 << 30) / HUGE_BYTES as u64) as usize;
    let mut held = Mapping::new(pieces.max(1) * HUGE_BYTES).unwrap();
    held.advise(0..held.len_bytes(), libc::MADV_HUGEPAGE).unwrap();
    let began = Instant::now();
    for piece in held.words().chunks(HUGE_BYTES / 8) {
        if read() <= LEFT || available() < 2 << 30 || began.elapsed() > Duration::from_secs(3) {
            break;
        }
        piece[0].store(1, Relaxed);
    }
    held
}

/// Holds free blocks; then touches and takes pages, and tells what that took when asked.
fn probe() {
    mega_lab::memory::die_with_parent().unwrap();
    let mut area = Mapping::new(PROBED).unwrap();
    area.advise(0..PROBED, libc::MADV_NOHUGEPAGE).unwrap();
    let pages = PROBED / base_page_bytes();
    (0..pages).for_each(|page| area.page_words(page)[0].store(1, Relaxed));
    let _held = hold_free_blocks(&ProcRoot::default());
    let commands = Commands::when(true);
    println!("{}", json!({"ready": true}));
    let (mut touch, mut fresh) = (Latency::new(), Latency::new());
    let mut random = 1u64;
    let mut looked = Instant::now();
    loop {
        random = mega_lab::memory::content::mix(random);
        let page = random as usize % pages;
        let begin = now_ns();
        area.page_words(page)[0].store(random, Relaxed);
        touch.record(now_ns() - begin);
        let page = (random >> 32) as usize % pages;
        let bytes = page * base_page_bytes()..(page + 1) * base_page_bytes();
        area.advise(bytes, libc::MADV_DONTNEED).unwrap();
        let begin = now_ns();
        area.page_words(page)[0].store(random, Relaxed);
        fresh.record(now_ns() - begin);
        if looked.elapsed() > Duration::from_micros(200) {
            looked = Instant::now();
            match commands.poll().as_deref() {
                Some("mark") => {
                    println!("{}", json!({"touch": touch.summary(), "fresh": fresh.summary()}));
                    (touch, fresh) = (Latency::new(), Latency::new());
                }
                Some(_) => return,
                None => {}
            }
        }
    }
}

fn us(ns: &Value) -> u64 {
    ns.as_u64().unwrap_or(0) / 1000
}

/// Median, and least to most.
fn figure(runs: &[Run], of: impl Fn(&Run) -> f64) -> String {
    let values: Vec<f64> = runs.iter().map(of).collect();
    let (least, most) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    format!("{:.0} ({least:.0} to {most:.0})", median(&values))
}

fn table(ways: &[(Way, Vec<Run>)], blocks: u64) {
    println!("\nMedians (least to most). {blocks} blocks asked for; latencies in us, of the program beside it, before and while.\n");
    println!("| way | rounds | blocks at once | blocks later | time, ms | CPU, ms | later blocks per CPU second | touch p99 | touch max | fresh p99 | fresh max |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (way, runs) in ways.iter().filter(|(_, runs)| !runs.is_empty()) {
        let ns = |run: &Run, quiet: bool, op: &str, what: &str| {
            let side = if quiet { &run.quiet } else { &run.during };
            side[op][what].as_f64().unwrap_or(0.0) / 1e3
        };
        let both = |op: &'static str, what: &'static str| {
            let before: Vec<f64> = runs.iter().map(|run| ns(run, true, op, what)).collect();
            let during: Vec<f64> = runs.iter().map(|run| ns(run, false, op, what)).collect();
            format!("{:.1}, {:.1}", median(&before), median(&during))
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            way.word(),
            runs.len(),
            figure(runs, Run::gained),
            figure(runs, Run::later),
            figure(runs, |run| run.done.took.as_secs_f64() * 1e3),
            figure(runs, |run| run.done.cpu.as_secs_f64() * 1e3),
            figure(runs, |run| run.later() / run.done.cpu.as_secs_f64().max(1e-3)),
            both("touch", "p99_ns"),
            both("touch", "max_ns"),
            both("fresh", "p99_ns"),
            both("fresh", "max_ns"),
        );
    }
}
