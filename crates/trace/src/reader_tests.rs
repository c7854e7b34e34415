//! What the reader must hold against: everything that a file can be.

use super::reader::{parse, Reader};
use super::testing::any_record;
use super::varint::Fields;
use super::writer::{Last, Writer};
use super::*;
use proptest::prelude::*;

/// SplitMix64's step: data that does not compress.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub fn written(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut w = Writer::new(Vec::new(), header).unwrap();
    records.iter().for_each(|r| w.write(r).unwrap());
    w.finish().unwrap()
}

/// Everything in a file, or the first error.
pub fn read_all(bytes: &[u8]) -> Result<(Header, Vec<Record>), TraceError> {
    let mut r = Reader::new(bytes)?;
    let mut all = Vec::new();
    while let Some(record) = r.next_record()? {
        all.push(record);
    }
    assert_eq!(r.next_record(), Ok(None));
    Ok((r.header().clone(), all))
}

fn header() -> Header {
    Header {
        machine: "a".into(),
        kernel: "6.12".into(),
        command: "é gups".into(),
        seed: 7,
    }
}

fn small() -> Vec<u8> {
    let touch = |i: u64| Record::Touch {
        address: i * 4096,
        kind: Kind::Write,
    };
    let records: Vec<Record> = (0..30)
        .map(touch)
        .chain([Record::Time(5), Record::Work(1), Record::Fork(2)])
        .collect();
    written(&header(), &records)
}

proptest! {
    #[test]
    fn whatever_is_written_reads_back(records in proptest::collection::vec(any_record(), 0..200)) {
        let bytes = written(&header(), &records);
        prop_assert_eq!(read_all(&bytes), Ok((header(), records)));
    }

    #[test]
    fn no_bytes_make_the_record_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut f = Fields { bytes: &bytes, at: 0, offset: 0, record: 0 };
        let mut last = Last::default();
        while !f.is_empty() && parse(&mut f, &mut last).is_ok() {}
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), with_magic: bool) {
        let mut file = if with_magic { super::frame::MAGIC.to_vec() } else { Vec::new() };
        file.extend(bytes);
        prop_assert!(read_all(&file).is_err());
    }
}

#[test]
fn a_trace_of_many_frames_reads_back() {
    let mut state = 1u64;
    let mut next = || {
        state = mix(state);
        state
    };
    let records: Vec<Record> = (0..200_000)
        .map(|_| Record::Touch {
            address: next(),
            kind: Kind::Read,
        })
        .collect();
    let bytes = written(&header(), &records);
    assert!(bytes.len() > 1 << 20);
    assert!(read_all(&bytes).unwrap().1 == records);
    assert_eq!(Reader::new(&bytes[..]).and_then(|mut r| count(&mut r)), Ok(200_000));
}

#[test]
fn truncation_at_every_byte_is_an_error_with_its_place() {
    let bytes = small();
    for end in 0..bytes.len() {
        let error = read_all(&bytes[..end]).unwrap_err();
        let TraceError::Binary { offset, what, .. } = &error else {
            panic!("{error}")
        };
        assert!(*offset <= end as u64 && *what == What::Truncated, "{end}: {error}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = small();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(read_all(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn frames_that_are_lost_doubled_or_followed_by_more_are_found() {
    let mut bytes = small();
    bytes.push(0);
    assert!(read_all(&bytes)
        .unwrap_err()
        .to_string()
        .contains("bytes follow the end"));
    let many: Vec<Record> = (0..300_000)
        .map(|i| Record::Touch {
            address: mix(i),
            kind: Kind::Read,
        })
        .collect();
    let bytes = written(&header(), &many);
    let starts: Vec<usize> = (0..bytes.len() - 4).filter(|i| &bytes[*i..i + 4] == b"RECS").collect();
    assert!(starts.len() >= 3);
    let lost = [&bytes[..starts[1]], &bytes[starts[2]..]].concat();
    let doubled = [&bytes[..starts[2]], &bytes[starts[1]..]].concat();
    for bad in [lost, doubled] {
        assert!(read_all(&bad).unwrap_err().to_string().contains("checksum"));
    }
}

#[test]
fn hostile_lengths_are_refused_before_anything_is_allocated() {
    let bytes = small();
    for (at, field) in [(12 + 4, "stored bytes"), (12 + 8, "plain bytes"), (12 + 12, "records")] {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = read_all(&changed).unwrap_err();
        assert!(
            matches!(&error, TraceError::Binary { field: f, offset: 12, what: What::TooLarge { .. }, .. } if *f == field),
            "{error}"
        );
    }
}

#[test]
fn errors_name_byte_record_and_field() {
    let mut bytes = small();
    bytes[9] = 2;
    assert_eq!(
        read_all(&bytes).unwrap_err().to_string(),
        "trace, byte 0, record 0, version: 0x2 has no meaning here"
    );
    let error = read_all(b"no trace at all").unwrap_err().to_string();
    assert!(error.contains("magic"), "{error}");
    let mut f = Fields {
        bytes: &[0x10],
        at: 0,
        offset: 99,
        record: 5,
    };
    let error = parse(&mut f, &mut Last::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "trace, byte 99, record 5, address: the input ends here"
    );
}
