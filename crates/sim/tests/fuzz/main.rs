//! Every parser of what comes from elsewhere, fed with what is nearly right: mutations of valid inputs, drawn from a seeded generator. None may panic or
//! take more memory than a parser needs.
//!
//! `FUZZ_SECONDS` says for how long (3 s each by default). A failure prints its seed and writes its input; `FUZZ_SEED=n FUZZ_SECONDS=0 cargo test -p
//! mega-sim --release --test fuzz NAME` runs that input alone.

#[path = "../../../../tests/fuzz/harness.rs"]
mod harness;

use harness::{fuzz, mutate, Dice, NUMBERS};
use mega_core::action::{ActionKind, Outcome};
use mega_core::journal::{seen, Event, Line};
use mega_core::observe::{Can, Machine, Observation, ProcessId, Region};
use mega_core::policy::by_name;
use mega_core::replay::{contrast, policy_of, replay};
use mega_core::units::{BasePages, Blocks, Bytes, Share, Time};
use mega_sim::cost::Costs;
use mega_sim::scenario::Scenario;
use mega_sim::trace::{Replay, ReplayOptions};
use mega_sim::workload::{Advice, CountingMemory, Memory, MemoryError, Program, Progress, Spec, NAMES};
use mega_trace::{count, write_text, Header, Kind, LackeyReader, Reader, Record, Scans, TextReader, Writer};

/// Records of every kind.
fn records() -> Vec<Record> {
    let id = |pid| Record::Process(ProcessId { pid, started: 77 });
    let region = |n: u64, huge| {
        Record::Region(Observation {
            region: Region(0x3f80_0000 + n),
            mapped: BasePages(if huge { 512 } else { 300 }),
            accessed: BasePages(n as u32),
            dirty: BasePages(1),
            zero: (!huge).then_some(BasePages(7)),
            kept: BasePages(0),
            huge,
            shared: false,
            raced: false,
            aged: true,
            can: Can::ALL,
        })
    };
    let machine = Machine {
        available_bytes: Bytes(8 << 30),
        total_bytes: Bytes(16 << 30),
        free_blocks: Blocks(900),
        pressure: Some(Share::percent(3)),
    };
    let base = 0x7f00_0000_0000;
    let mut all = vec![id(1), Record::Time(5)];
    let (address, bytes) = (base, 4 << 20);
    all.push(Record::Map { address, bytes });
    for i in 0..40u64 {
        let address = base + i * 4096 * (i % 5);
        let kind = Kind::ALL[i as usize % 3];
        all.push(Record::Touch { address, kind });
    }
    all.push(Record::Run {
        address: base,
        stride: -64,
        count: 9000,
        kind: Kind::Update,
    });
    all.push(Record::Work(300));
    for advice in Advice::ALL {
        all.push(Record::Advise { address, bytes, advice });
    }
    let (to, to_bytes) = (base + (1 << 30), 8 << 20);
    all.push(Record::Remap {
        address,
        bytes,
        to,
        to_bytes,
    });
    all.extend([
        Record::Fork(2),
        id(2),
        Record::Time(9_000_000),
        Record::Scan(machine),
        id(1),
    ]);
    all.extend((0..60).map(|n| region(n, n % 3 == 0)));
    all.extend([id(2), region(3, true), Record::Time(1 << 40), Record::Exit(2)]);
    all.push(Record::Unmap {
        address: to,
        bytes: to_bytes,
    });
    all
}

fn header() -> Header {
    Header {
        machine: "a machine".into(),
        kernel: "6.12".into(),
        command: "gups".into(),
        seed: 7,
    }
}

/// A memory that keeps nothing.
struct Nothing {
    next: u64,
}

impl Memory for Nothing {
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        let address = self.next;
        let end = bytes
            .checked_add(address)
            .and_then(|end| end.checked_next_multiple_of(2 << 20));
        self.next = end
            .and_then(|end| end.checked_add(2 << 20))
            .ok_or(MemoryError::NoMemory { bytes })?;
        Ok(address)
    }
    fn unmap(&mut self, _: u64, _: u64) -> Result<(), MemoryError> {
        Ok(())
    }
    fn advise(&mut self, _: u64, _: u64, _: Advice) -> Result<(), MemoryError> {
        Ok(())
    }
    fn touch(&mut self, _: u64, _: bool) {}
    fn work(&mut self, _: u64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Reads a trace in each way.
fn read_trace(bytes: &[u8]) {
    let _ = Reader::new(bytes).and_then(|mut reader| count(&mut reader));
    if let Ok(reader) = Reader::new(bytes) {
        let mut scans = Scans::new(reader);
        while let Ok(Some(_)) = scans.next_scan() {}
    }
    for map_unknown in [false, true] {
        if let Ok(reader) = Reader::new(bytes) {
            let options = ReplayOptions {
                map_unknown,
                ..ReplayOptions::default()
            };
            let mut program = Replay::new(reader, options);
            let mut memory = Nothing { next: 2 << 20 };
            // A few bytes may mean millions of accesses: not to the end.
            for _ in 0..200 {
                if !matches!(program.step(&mut memory, 0), Ok(Progress::Ran)) {
                    break;
                }
            }
        }
    }
}

#[test]
fn trace() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for (i, record) in records().iter().enumerate() {
        writer.write(record).unwrap();
        if i == 50 {
            writer.flush().unwrap();
        }
    }
    let file = writer.finish().unwrap();
    let empty = Writer::new(Vec::new(), &header()).unwrap().finish().unwrap();
    let seeds = vec![file, empty];
    fuzz(
        "trace",
        |dice| mutate(dice, &seeds, &["RECS", "HEAD", "DONE"]),
        read_trace,
    );
}

/// A frame as docs/trace.md has it, so that what is in it is read although it is wrong.
fn frame(kind: &[u8; 4], number: u32, plain: &[u8], records: u32) -> Vec<u8> {
    let stored = zstd::bulk::compress(plain, 1).unwrap();
    let mut frame = kind.to_vec();
    for n in [stored.len() as u32, plain.len() as u32, records] {
        frame.extend_from_slice(&n.to_le_bytes());
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(&frame);
    crc.update(&stored);
    frame.extend_from_slice(&crc.finalize().to_le_bytes());
    frame.extend_from_slice(&stored);
    frame
}

/// The plain data of the frames of a trace, by their place.
fn plain_frames(file: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut at = 12;
    let mut found = Vec::new();
    while at < file.len() {
        let word = |i: usize| u32::from_le_bytes(file[at + i..at + i + 4].try_into().unwrap());
        let (stored, plain, records) = (word(4) as usize, word(8) as usize, word(12));
        let data = zstd::bulk::decompress(&file[at + 20..at + 20 + stored], plain).unwrap();
        found.push((data, records));
        at += 20 + stored;
    }
    found
}

#[test]
fn trace_records() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    records().iter().for_each(|record| writer.write(record).unwrap());
    let file = writer.finish().unwrap();
    let frames = plain_frames(&file);
    let [head, data, _] = &frames[..] else {
        panic!("a header, the records, the end: {}", frames.len())
    };
    let seeds = [vec![head.0.clone()], vec![data.0.clone()]];
    let make = |dice: &mut Dice| {
        let (mut head, mut plain, mut records) = (seeds[0][0].clone(), seeds[1][0].clone(), data.1);
        match dice.below(8) {
            0 => head = mutate(dice, &seeds[0], &[]),
            1 => records = *dice.pick(&NUMBERS) as u32,
            _ => plain = mutate(dice, &seeds[1], &[]),
        }
        let mut done = Vec::new();
        let mut n = u64::from(records);
        while n >= 0x80 {
            done.push(n as u8 | 0x80);
            n >>= 7;
        }
        done.push(n as u8);
        let mut made = file[..12].to_vec();
        made.extend(frame(b"HEAD", 0, &head, 0));
        made.extend(frame(b"RECS", 1, &plain, records));
        made.extend(frame(b"DONE", 2, &done, 0));
        made
    };
    // What is not changed at all is read: the frames are right.
    let whole = [
        &file[..12],
        &frame(b"HEAD", 0, &head.0, 0),
        &frame(b"RECS", 1, &data.0, data.1),
    ]
    .concat();
    let whole = [whole, frame(b"DONE", 2, &frames[2].0, 0)].concat();
    let read = Reader::new(&whole[..]).and_then(|mut reader| count(&mut reader));
    assert_eq!(read, Ok(u64::from(data.1)));
    fuzz("trace_records", make, read_trace);
}

#[test]
fn text() {
    let mut all = Vec::new();
    records()
        .iter()
        .for_each(|record| write_text(&mut all, record).unwrap());
    let seeds = vec![all, b"r 0x10 -64 3\nw 5\n\n# x\nprocess 1 2\n".to_vec()];
    let words = ["map ", "remap", "r ", "0x", " -", "collapse", "#"];
    fuzz(
        "text",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let _ = count(&mut TextReader::new(input));
        },
    );
}

#[test]
fn lackey() {
    let seeds = vec![b"==1== Lackey\nI  0401ab70,3\n S 1fff000758,8\n L 04000ffe,4\n M 10,1\n==1== \n".to_vec()];
    let words = ["I  ", " L ", " S ", ",", "==", "--", "ffffffffffffffff", "4096"];
    fuzz(
        "lackey",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            for instructions in [false, true] {
                let _ = count(&mut LackeyReader::new(input, instructions));
            }
        },
    );
}

/// A journal with every sort of line that a replay goes by.
fn journal() -> Vec<String> {
    let mut lines = vec![
        "0.000000 start schema=1 clock_ns=461412000000 policy=ingens params=util_threshold=50% interval_ns=5000000000 \
         stall_budget_ppm=50000 cpu_budget_ppm=100000 free_memory_ppm=50000 free_blocks=32 pressure_ppm=100000 dry_run=false"
            .to_string(),
        "0.001000 found pid=1 started=11 name=\"toy 1\"".to_string(),
    ];
    for scan in 0..3u64 {
        let at = Time(5_000_000_000 * scan + 2_000_000);
        let mut say = |text: String| lines.push(format!("{at} {text}"));
        say(format!(
            "machine seen_ns={} available_bytes=17179869184 total_bytes=25769803776 free_blocks=8000 pressure_ppm=0",
            at.0 - 1000
        ));
        say("see pid=1 started=11 region=0x200000 count=5 mapped_pages=480 accessed_pages=480 dirty_pages=0 zero_pages=0 flags=promote+demote+age".into());
        say("see pid=1 started=11 region=0x7200000 count=1 mapped_pages=512 accessed_pages=512 dirty_pages=0 zero_pages=400 flags=huge+aged+promote+demote+age".into());
        say("scan pid=1 regions=6 huge=1 mapped_pages=2912 accessed_pages=2912 waste_pages=400 inspected=1".into());
        say("scanned processes=1 candidates=5 took_ns=1000000 cpu_ns=900000".into());
        say("age pid=1 regions=5 refused=1 took_ns=50000".into());
        for region in 1..6 {
            say(format!(
                "decide pid=1 region={} action=promote reason=mapped benefit_pages=480",
                Region(region)
            ));
        }
        for region in 1..4u64 {
            let at = Time(at.0 + region * 9_000_000);
            let event = Event::Outcome {
                pid: 1,
                region: Region(region),
                action: ActionKind::Promote,
                outcome: [Outcome::Done, Outcome::Busy, Outcome::Gone][region as usize - 1],
                took_ns: 430_000,
                stall_ns: None,
                returned_pages: 0,
                cpu_ns: 2_000_000 * (scan + 1),
            };
            lines.push(Line { at, event }.to_text());
        }
        lines.push(format!("{at} defer pid=1 action=promote why=budget regions=2"));
    }
    lines.push("15.000000 stop scans=3 promoted=3 demoted=0 failed=6 returned_bytes=0 stall_ns=1 cpu_ns=1".into());
    lines
}

#[test]
fn journal_lines_and_replays() {
    let lines = journal();
    let parsed: Vec<Line> = lines.iter().map(|line| Line::parse(line).unwrap()).collect();
    let mut policy = policy_of(&parsed[0].event).unwrap().unwrap();
    assert!(
        replay(&parsed, policy.as_mut()).unwrap().scans == 3,
        "the seed is a journal"
    );
    let json: Vec<String> = parsed.iter().map(Line::to_json).collect();
    let seeds: Vec<Vec<u8>> = [lines, json]
        .iter()
        .map(|lines| lines.join("\n").into_bytes())
        .collect();
    let words = [
        "policy=mega",
        "outcome=done",
        "pid=",
        "count=",
        "null",
        "\"",
        "\\u0000",
        "{",
        "-",
        "huge+",
        "0x200000",
    ];
    let make = |dice: &mut Dice| mutate(dice, &seeds, &words);
    fuzz("journal", make, |input| {
        let text = String::from_utf8_lossy(input);
        let mut lines = Vec::new();
        for line in text.lines().filter_map(|line| Line::parse(line).ok()) {
            // So many regions may be, but not in this test's memory.
            if !matches!(line.event, Event::See { count, .. } if count > 512) {
                let _ = seen(&line.event);
                lines.push(line);
            }
        }
        let policy = lines.iter().find_map(|line| policy_of(&line.event));
        if let Some(Ok(mut policy)) = policy {
            let _ = replay(&lines, policy.as_mut());
        }
        let mut other = by_name("mega").unwrap();
        let _ = contrast(&lines, other.as_mut());
    });
}

#[test]
fn costs() {
    let seeds = vec![Costs::default().to_json().into_bytes(), b"{}".to_vec()];
    let words = ["null", "\"", "[", "{", "1e999", "-0", "\"split_ns\": 1,", "true"];
    fuzz(
        "costs",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let _ = Costs::from_json(&String::from_utf8_lossy(input));
        },
    );
}

#[test]
fn programs() {
    let all = NAMES.iter().filter_map(|name| Spec::named(name));
    let seeds: Vec<Vec<u8>> = all.map(|spec| serde_json::to_vec(&spec).unwrap()).collect();
    let words = [
        "null",
        "\"",
        "[",
        "{",
        "1e999",
        "-0",
        "\"mib\": 1,",
        "true",
        "\"program\": \"graph\",",
    ];
    fuzz(
        "programs",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            if let Ok(spec) = serde_json::from_slice::<Spec>(input) {
                let _ = spec.build::<CountingMemory>();
            }
        },
    );
}

#[test]
fn scenarios() {
    let all = r#"{
        "machine": {"memory": "1G", "nodes": 2, "cpus": 2, "pc_hole": true, "costs": "mega", "tlb": "haswell", "swap": "1G"},
        "system": "linux:defrag=always+mega:uprom=40%:compact=demand/floor=2G",
        "fragment": {"unusable": {"share": "90%", "unmovable": "3%"}},
        "interval": "500ms", "stall_budget": "5%", "cpu_budget": "10%", "every": "1s", "seed": 3, "ends": "120s",
        "programs": [
            {"run": {"program": "gups", "mib": 64}, "name": "g", "starts": "1s", "exits": true},
            {"run": {"program": "chunks", "mib": 64}, "after": 0, "node": 1}
        ]
    }"#;
    Scenario::from_json(all).unwrap();
    let small = r#"{"fragment": "study", "programs": [{"run": {"program": "touch"}}]}"#;
    let seeds = vec![all.as_bytes().to_vec(), small.as_bytes().to_vec()];
    let words = [
        "null",
        "\"",
        "[",
        "{",
        "1e999",
        "-0",
        "\"1T\"",
        "\"-1%\"",
        "\"mega:\"",
        "+",
        ":uprom=",
        "\"0ns\"",
        "true",
    ];
    fuzz(
        "scenarios",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let _ = Scenario::from_json(&String::from_utf8_lossy(input));
        },
    );
}
