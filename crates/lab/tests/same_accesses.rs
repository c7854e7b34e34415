//! The simulator's programs make the same accesses as the live workloads, for the same seed and options. The live side is recorded by
//! Valgrind (`--tool=lackey`): every load and store that the processor executes, without the workload knowing.
//!
//! Compared are visits of pages in their order: which page, whether the first access of the visit writes, and whether any does. That
//! is what faults, accessed and dirty bits depend on. Only areas that the workload names in its events are looked at; what it checks
//! after its result is not part of the comparison.
//!
//! Not compared: `churn` (it names no area; its loop is the one of `touch`) and `sizes` (its memory comes from the C library).

use mega_lab::memory::hide_vdso_after_exec;
use mega_sim::workload::{run_to_end, Advice, CountingMemory, Memory, MemoryError, Spec};
use mega_trace::{Kind, LackeyReader, Record, Source};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

const PAGE: u64 = 4096;

/// A visit of a page: number of the area, of the page in it, whether its first access writes, whether any does.
type Visit = (usize, u64, bool, bool);

/// Joins accesses to visits.
#[derive(Debug, Default)]
struct Visits {
    /// First address and bytes of the areas looked at, in the order of the events.
    areas: Vec<(u64, u64)>,
    all: Vec<Visit>,
}

impl Visits {
    fn add(&mut self, address: u64, write: bool) {
        let found = self
            .areas
            .iter()
            .position(|(start, bytes)| address.wrapping_sub(*start) < *bytes);
        let Some(area) = found else { return };
        let page = (address - self.areas[area].0) / PAGE;
        match self.all.last_mut() {
            Some((a, p, _, any)) if (*a, *p) == (area, page) => *any |= write,
            _ => self.all.push((area, page, write, write)),
        }
    }
}

/// A memory that keeps visits; areas are those that are mapped with these numbers.
struct Simulated {
    memory: CountingMemory,
    wanted: Vec<usize>,
    maps: usize,
    visits: Visits,
}

impl Memory for Simulated {
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        let at = self.memory.map(bytes)?;
        if self.wanted.contains(&self.maps) {
            self.visits.areas.push((at, bytes.next_multiple_of(PAGE)));
        }
        self.maps += 1;
        Ok(at)
    }

    fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.memory.unmap(address, bytes)
    }

    fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), MemoryError> {
        self.memory.advise(address, bytes, advice)
    }

    fn touch(&mut self, address: u64, write: bool) {
        self.memory.touch(address, write);
        self.visits.add(address, write);
    }

    fn work(&mut self, ns: u64) {
        self.memory.work(ns);
    }

    fn now_ns(&self) -> u64 {
        self.memory.now_ns()
    }
}

fn simulated(spec: &str, wanted: &[usize]) -> Vec<Visit> {
    let spec: Spec = serde_json::from_str(spec).unwrap();
    let mut memory = Simulated {
        memory: CountingMemory::new(),
        wanted: wanted.to_vec(),
        maps: 0,
        visits: Visits::default(),
    };
    let mut program = spec.build::<Simulated>().unwrap();
    run_to_end(program.as_mut(), &mut memory, |m, ns| m.memory.wait_until(ns)).unwrap();
    assert_eq!(memory.memory.stray, 0);
    memory.visits.all
}

/// The areas of the first event that has any.
fn areas(out: impl std::io::Read) -> Option<Vec<(u64, u64)>> {
    for line in BufReader::new(out).lines() {
        let event: Value = serde_json::from_str(&line.ok()?).ok()?;
        let areas = event["areas"].as_array().filter(|a| !a.is_empty());
        if let Some(areas) = areas {
            return areas
                .iter()
                .map(|a| Some((a["start"].as_u64()?, a["bytes"].as_u64()?)))
                .collect();
        }
    }
    None
}

fn live(args: &str) -> Vec<Visit> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(env!("CARGO_BIN_EXE_mega-workload"))
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = hide_vdso_after_exec(&mut command).spawn().unwrap();
    let (send, known): (_, Receiver<Vec<(u64, u64)>>) = channel();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        if let Some(areas) = areas(&mut out) {
            let _ = send.send(areas);
        }
        // The rest is read too: a workload whose reader goes away ends at once.
        let _ = std::io::copy(&mut out, &mut std::io::sink());
    });
    let mut trace = LackeyReader::new(BufReader::with_capacity(1 << 20, child.stderr.take().unwrap()), false);
    let mut visits = Visits::default();
    // What comes before the areas are known.
    let mut before = Vec::new();
    while let Some(record) = trace.next_record().unwrap() {
        let Record::Touch { address, kind } = record else {
            continue;
        };
        let write = kind == Kind::Write;
        if visits.areas.is_empty() {
            before.push((address, write));
            if let Ok(areas) = known.try_recv() {
                visits.areas = areas;
                before.drain(..).for_each(|(address, write)| visits.add(address, write));
            }
        } else {
            visits.add(address, write);
        }
    }
    reader.join().unwrap();
    assert!(child.wait().unwrap().success(), "{args}");
    if visits.areas.is_empty() {
        visits.areas = known.recv().unwrap();
        before.drain(..).for_each(|(address, write)| visits.add(address, write));
    }
    visits.all
}

/// Compares a live workload with its simulated twin, and what the twin does must be at least `least` visits long. `whole`: the live one does no more than that.
fn same(args: &str, spec: &str, wanted: &[usize], least: usize, whole: bool) {
    let sim = simulated(spec, wanted);
    let mut live = live(args);
    // Where others have the processors, two seconds under valgrind may be few visits.
    for seconds in ["--seconds 8", "--seconds 32"] {
        if live.len() < least && args.contains("--seconds 2") {
            live = self::live(&args.replace("--seconds 2", seconds));
        }
    }
    let n = sim.len().min(live.len());
    assert!(
        n >= least,
        "{args}: {} visits live, {} simulated",
        live.len(),
        sim.len()
    );
    if let Some(at) = (0..n - 1).find(|i| sim[*i] != live[*i]) {
        let (from, to) = (at.saturating_sub(3), (at + 5).min(n));
        panic!(
            "{args}: visit {at} differs\n live      {:?}\n simulated {:?}",
            &live[from..to],
            &sim[from..to]
        );
    }
    if whole {
        assert_eq!((sim.len(), sim.last()), (live.len(), live.last()), "{args}");
    }
}

/// There is nothing to compare with where there is no Valgrind.
fn has_valgrind() -> bool {
    let there = Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("skipped: valgrind is not in PATH");
    }
    there
}

#[test]
fn plain_walks_and_random_updates_are_the_same_live_and_simulated() {
    if !has_valgrind() {
        return;
    }
    same(
        "gups --mib 1 --updates 2000",
        r#"{"program": "gups", "mib": 1, "updates": 2000}"#,
        &[0],
        2000,
        true,
    );
    same(
        "touch --mib 2 --scattered",
        r#"{"program": "touch", "mib": 2, "scattered": true}"#,
        &[0],
        512,
        false,
    );
    same(
        "stride --mib 1 --times 2 --shifts 3",
        r#"{"program": "stride", "mib": 1, "times": 2, "shifts": 3}"#,
        &[0],
        2 * 3 * 32,
        true,
    );
    same(
        "compute --kib 64 --passes 2",
        r#"{"program": "compute", "kib": 64, "passes": 2}"#,
        &[0],
        48,
        false,
    );
}

#[test]
fn what_is_drawn_is_the_same_live_and_simulated() {
    if !has_valgrind() {
        return;
    }
    same(
        "chunks --mib 3 --chunk-mib 1 --one-in 2 --seconds 0 --seed 7",
        r#"{"program": "chunks", "mib": 3, "chunk_mib": 1, "one_in": 2, "time_ns": 0, "seed": 7}"#,
        &[0, 1, 2],
        4000,
        false,
    );
    same(
        "holes --mib 4 --seconds 0 --random --seed 3",
        r#"{"program": "holes", "mib": 4, "time_ns": 0, "random": true, "seed": 3}"#,
        &[0],
        2048 + 256,
        false,
    );
    same(
        "sparse --mib 4 --seconds 0",
        r#"{"program": "sparse", "mib": 4, "time_ns": 0}"#,
        &[0],
        120,
        false,
    );
}

#[test]
fn stores_lay_out_and_search_their_tables_the_same_live_and_simulated() {
    if !has_valgrind() {
        return;
    }
    same(
        "kv --mib 1 --value-bytes 512 --seconds 0 --reads 0.3 --delete-share 0.3",
        r#"{"program": "kv", "mib": 1, "value_bytes": 512, "time_ns": 0, "reads": 0.3, "delete_share": 0.3}"#,
        &[0, 1],
        5000,
        false,
    );
    // As many operations as there is time for: the live ones are the first of the simulated ones.
    same(
        "store --dense-mib 1 --sparse-mib 2 --seconds 2 --writes 0.5 --zipf 0.9 --sparse-every 10 --no-verify",
        r#"{"program": "store", "dense_mib": 1, "sparse_mib": 2, "time_ns": 20000000, "writes": 0.5, "zipf": 0.9, "sparse_every": 10}"#,
        &[0, 1, 3],
        2500,
        false,
    );
}

#[test]
fn trees_and_graphs_are_the_same_live_and_simulated() {
    if !has_valgrind() {
        return;
    }
    same(
        "btree --mib 1 --load 0.2 --seconds 0",
        r#"{"program": "btree", "mib": 1, "load": 0.2, "time_ns": 0}"#,
        &[0],
        8_000,
        false,
    );
    same(
        "graph --scale 10 --edge-factor 4 --iterations 2",
        r#"{"program": "graph", "scale": 10, "edge_factor": 4, "iterations": 2}"#,
        &[0, 1, 2, 3, 4],
        20_000,
        false,
    );
}
