//! A trace's Parquet tables read back as what the trace holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use mega_core::observe::{Can, Machine, Observation, ProcessId, Region, Why};
use mega_core::units::{BasePages, Blocks, Bytes, Share};
use mega_sim::trace::export;
use mega_sim::workload::Advice;
use mega_trace::{Kind, Record, Source, TraceError};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

/// Rows as column names and values.
fn rows(folder: &Path, table: &str) -> Vec<BTreeMap<String, Field>> {
    let reader = SerializedFileReader::new(File::open(folder.join(table)).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().into_columns().into_iter().collect())
        .collect()
}

fn observation(number: u64, huge: bool) -> Record {
    Record::Region(Observation {
        region: Region(number),
        mapped: BasePages(if huge { 512 } else { 9 }),
        accessed: BasePages(3),
        dirty: BasePages(2),
        zero: (!huge).then_some(BasePages(1)),
        kept: BasePages(0),
        huge,
        shared: false,
        raced: false,
        aged: true,
        can: Can {
            promote: !huge,
            demote: true,
            age: false,
            why: huge.then_some(Why::Mlocked),
        },
    })
}

fn records() -> Vec<Record> {
    let id = |pid| Record::Process(ProcessId { pid, started: 1 << 40 });
    let machine = |pressure| {
        Record::Scan(Machine {
            available_bytes: Bytes(u64::MAX),
            total_bytes: Bytes(2),
            free_blocks: Blocks(3),
            pressure,
        })
    };
    let (address, bytes) = (u64::MAX - 4095, 4096);
    vec![
        id(7),
        Record::Time(50),
        Record::Map { address, bytes },
        Record::Touch {
            address,
            kind: Kind::Write,
        },
        Record::Run {
            address: 4096,
            stride: -64,
            count: 1000,
            kind: Kind::Update,
        },
        Record::Advise {
            address,
            bytes,
            advice: Advice::DontNeed,
        },
        Record::Remap {
            address,
            bytes,
            to: 1,
            to_bytes: 2,
        },
        Record::Work(300),
        Record::Fork(u32::MAX),
        machine(None),
        id(8),
        observation(5, true),
        Record::Time(90),
        machine(Some(Share::percent(3))),
        observation(5, false),
        observation(6, false),
        Record::Exit(8),
        Record::Unmap { address, bytes },
    ]
}

fn exported(folder: &Path, mut source: impl Source) -> Result<Vec<(&'static str, u64)>, String> {
    export(&mut source, &mut |table| File::create(folder.join(table))).map_err(|e| e.to_string())
}

#[test]
fn every_record_is_a_row_with_its_time_and_process() {
    let folder = tempfile::tempdir().unwrap();
    let written = exported(folder.path(), records().into_iter()).unwrap();
    assert_eq!(written, [("accesses", 2), ("events", 7), ("scans", 2), ("regions", 3)]);
    let table = |name| rows(folder.path(), name);
    let words = |rows: &[BTreeMap<String, Field>], column: &str| {
        rows.iter()
            .map(|row| row[column].to_string().replace('"', ""))
            .collect::<Vec<_>>()
    };

    let accesses = table("accesses");
    assert_eq!(words(&accesses, "kind"), ["write", "update"]);
    assert_eq!(accesses[0]["address"], Field::ULong(u64::MAX - 4095));
    assert_eq!(accesses[1]["stride_bytes"], Field::Long(-64));
    assert_eq!(words(&accesses, "count"), ["1", "1000"]);
    assert_eq!(words(&accesses, "pid"), ["7", "7"]);

    let events = table("events");
    assert_eq!(
        words(&events, "kind"),
        ["map", "advise", "remap", "work", "fork", "exit", "unmap"]
    );
    assert_eq!(words(&events, "advice")[1], "dontneed");
    assert_eq!(events[0]["advice"], Field::Null);
    assert_eq!(events[2]["to_bytes"], Field::ULong(2));
    assert_eq!(events[3]["work_ns"], Field::ULong(300));
    assert_eq!(events[4]["child"], Field::UInt(u32::MAX));
    assert_eq!(words(&events, "time_ns"), ["50", "50", "50", "50", "50", "90", "90"]);

    let scans = table("scans");
    assert_eq!(scans[0]["available_bytes"], Field::ULong(u64::MAX));
    assert_eq!(
        (&scans[0]["pressure_ppm"], &scans[1]["pressure_ppm"]),
        (&Field::Null, &Field::UInt(30_000))
    );

    let regions = table("regions");
    assert_eq!(words(&regions, "scan"), ["0", "1", "1"]);
    assert_eq!(words(&regions, "pid"), ["8", "8", "8"]);
    assert_eq!(regions[2]["address"], Field::ULong(6 << 21));
    assert_eq!(
        (&regions[0]["zero_pages"], &regions[1]["zero_pages"]),
        (&Field::Null, &Field::UInt(1))
    );
    assert_eq!(
        (&regions[0]["huge"], &regions[1]["huge"]),
        (&Field::Bool(true), &Field::Bool(false))
    );
    assert_eq!(
        (words(&regions, "why")[0].as_str(), &regions[1]["why"]),
        ("mlocked", &Field::Null)
    );
}

#[test]
fn many_rows_are_written_group_by_group_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let many = 300_000u64;
    let touch = |i: u64| Record::Touch {
        address: i * 4096,
        kind: Kind::Read,
    };
    let source = (0..many).map(touch).collect::<Vec<_>>().into_iter();
    assert_eq!(exported(folder.path(), source).unwrap(), [("accesses", many)]);
    let reader = SerializedFileReader::new(File::open(folder.path().join("accesses")).unwrap()).unwrap();
    assert!(reader.metadata().num_row_groups() > 1);
    let sum: u64 = rows(folder.path(), "accesses")
        .iter()
        .map(|row| match row["address"] {
            Field::ULong(address) => address / 4096,
            _ => 0,
        })
        .sum();
    assert_eq!(sum, many * (many - 1) / 2);
    assert!(
        !folder.path().join("events").exists(),
        "a table without rows is not made"
    );
}

/// A source that breaks off.
struct Broken(std::vec::IntoIter<Record>);

impl Source for Broken {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        let wrong = TraceError::Replay {
            record: 18,
            what: "it breaks off".into(),
        };
        self.0.next().map(Some).ok_or(wrong)
    }
}

#[test]
fn of_a_trace_that_breaks_off_the_tables_are_whole_up_to_there() {
    let folder = tempfile::tempdir().unwrap();
    let error = exported(folder.path(), Broken(records().into_iter())).unwrap_err();
    assert!(error.contains("breaks off"), "{error}");
    assert_eq!(rows(folder.path(), "regions").len(), 3);
    let nowhere = export(&mut records().into_iter(), &mut |_| File::create("/no/such/folder/t")).unwrap_err();
    assert!(nowhere.to_string().starts_with("table "), "{nowhere}");
}
