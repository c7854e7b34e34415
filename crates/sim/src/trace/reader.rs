//! Reads traces, a frame at a time.

use super::frame::{Frame, FrameKind, FrameReader};
use super::record::{Header, Kind, Record, MOST_RUN};
use super::varint::{unfold, Fields};
use super::writer::{tag, Last, MOST_TEXT, WHYS};
use super::{Source, TraceError, What};
use crate::workload::Advice;
use mega_core::observe::{Can, Machine, Observation, ProcessId, Region};
use mega_core::units::{BasePages, Blocks, Bytes, Share, REGION_PAGES};
use std::io::Read;

/// Reads the records of a trace. It holds one frame: 2 MiB at most.
pub struct Reader<R: Read> {
    frames: FrameReader<R>,
    header: Header,
    frame: Frame,
    at: usize,
    left_in_frame: u32,
    records: u64,
    last: Last,
    over: bool,
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader behind {} records", self.records)
    }
}

impl<R: Read> Reader<R> {
    /// Begins to read: the header is read at once.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn new(from: R) -> Result<Self, TraceError> {
        let mut frames = FrameReader::new(from)?;
        let frame = frames.read(0)?;
        let mut f = Fields {
            bytes: &frame.plain,
            at: 0,
            offset: frame.offset,
            record: 0,
        };
        if frame.kind != FrameKind::Header {
            return Err(f.wrong("header", What::Unknown(frame.kind as u64)));
        }
        let most = MOST_TEXT as u64;
        let header = Header {
            machine: f.text("machine", most)?,
            kernel: f.text("kernel", most)?,
            command: f.text("command", most)?,
            seed: f.number("seed")?,
        };
        if !f.is_empty() {
            return Err(f.wrong("header", What::Trailing));
        }
        Ok(Self {
            frames,
            header,
            at: 0,
            left_in_frame: 0,
            records: 0,
            last: Last::default(),
            over: false,
            frame,
        })
    }

    /// Who recorded what.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Records read so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Reads frames until one has a record. False at the end.
    fn next_frame(&mut self) -> Result<bool, TraceError> {
        let wrong = |frame: &Frame, record, field, what| TraceError::Binary {
            offset: frame.offset,
            record,
            field,
            what,
        };
        self.frame = self.frames.read(self.records)?;
        self.at = 0;
        match self.frame.kind {
            FrameKind::Records if self.frame.records > 0 => {
                self.left_in_frame = self.frame.records;
                Ok(true)
            }
            FrameKind::Records => Err(wrong(&self.frame, self.records, "records", What::Unknown(0))),
            FrameKind::Header => Err(wrong(&self.frame, self.records, "frame kind", What::Unknown(0))),
            FrameKind::End => {
                let mut f = self.fields();
                let expected = f.number("records")?;
                if expected != self.records || !f.is_empty() {
                    let what = What::Count {
                        found: self.records,
                        expected,
                    };
                    return Err(wrong(&self.frame, self.records, "records", what));
                }
                self.frames.expect_end(self.records)?;
                Ok(false)
            }
        }
    }

    fn fields(&self) -> Fields<'_> {
        Fields {
            bytes: &self.frame.plain,
            at: self.at,
            offset: self.frame.offset,
            record: self.records,
        }
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        if self.left_in_frame == 0 && !self.next_frame()? {
            return Ok(None);
        }
        let bytes = &self.frame.plain;
        let mut f = Fields {
            bytes,
            at: self.at,
            offset: self.frame.offset,
            record: self.records,
        };
        let record = parse(&mut f, &mut self.last)?;
        self.left_in_frame -= 1;
        if self.left_in_frame == 0 && !f.is_empty() {
            return Err(f.wrong("frame data", What::Trailing));
        }
        self.at = f.at;
        self.records += 1;
        Ok(Some(record))
    }

    /// Offset in the file behind what was read, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.frames.offset()
    }
}

impl<R: Read> Source for Reader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        if self.over {
            return Ok(None);
        }
        let record = self.read();
        self.over = !matches!(record, Ok(Some(_)));
        record
    }
}

/// One record. For fuzzing: any bytes give a record or an error.
#[inline]
fn parse(f: &mut Fields<'_>, last: &mut Last) -> Result<Record, TraceError> {
    let tag = f.byte("tag")?;
    Ok(match tag {
        tag::TOUCH..=0x12 => {
            last.address = last.address.wrapping_add(unfold(f.number("address")?) as u64);
            Record::Touch {
                address: last.address,
                kind: Kind::ALL[(tag - tag::TOUCH) as usize],
            }
        }
        tag::RUN..=0x16 => {
            let address = last.address.wrapping_add(unfold(f.number("address")?) as u64);
            let stride = unfold(f.number("stride")?);
            let count = f.at_most("count", MOST_RUN)?;
            if count == 0 {
                return Err(f.wrong("count", What::Unknown(0)));
            }
            last.address = address.wrapping_add((stride as u64).wrapping_mul(count - 1));
            Record::Run {
                address,
                stride,
                count,
                kind: Kind::ALL[(tag - tag::RUN) as usize],
            }
        }
        tag::TIME => {
            last.time_ns = last.time_ns.wrapping_add(unfold(f.number("time")?) as u64);
            Record::Time(last.time_ns)
        }
        tag::PROCESS => Record::Process(ProcessId {
            pid: pid(f, "pid")?,
            started: f.number("started")?,
        }),
        tag::MAP => Record::Map {
            address: f.number("address")?,
            bytes: f.number("bytes")?,
        },
        tag::UNMAP => Record::Unmap {
            address: f.number("address")?,
            bytes: f.number("bytes")?,
        },
        tag::REMAP => Record::Remap {
            address: f.number("address")?,
            bytes: f.number("bytes")?,
            to: f.number("new address")?,
            to_bytes: f.number("new bytes")?,
        },
        tag::ADVISE => {
            let (address, bytes) = (f.number("address")?, f.number("bytes")?);
            let advice = f.at_most("advice", Advice::ALL.len() as u64 - 1)? as usize;
            Record::Advise {
                address,
                bytes,
                advice: Advice::ALL[advice],
            }
        }
        tag::FORK => Record::Fork(pid(f, "child")?),
        tag::EXIT => Record::Exit(pid(f, "child")?),
        tag::WORK => Record::Work(f.number("time")?),
        tag::SCAN => {
            last.region = 0;
            let (available, total) = (f.number("available bytes")?, f.number("total bytes")?);
            let blocks = f.number("free blocks")?;
            let pressure = f.at_most("pressure", 1_000_001)?;
            Record::Scan(Machine {
                available_bytes: Bytes(available),
                total_bytes: Bytes(total),
                free_blocks: Blocks(blocks),
                pressure: pressure.checked_sub(1).map(|n| Share::millionths(n as u32)),
            })
        }
        tag::REGION => {
            last.region = last.region.wrapping_add(unfold(f.number("region")?) as u64);
            // The last region of 64 bits of addresses.
            let most = u64::MAX / mega_core::units::HUGE_PAGE_BYTES;
            if last.region > most {
                return Err(f.wrong(
                    "region",
                    What::TooLarge {
                        value: last.region,
                        most,
                    },
                ));
            }
            Record::Region(observation(f, Region(last.region))?)
        }
        other => return Err(f.wrong("tag", What::Unknown(other.into()))),
    })
}

fn pid(f: &mut Fields<'_>, field: &'static str) -> Result<u32, TraceError> {
    Ok(f.at_most(field, u32::MAX.into())? as u32)
}

fn observation(f: &mut Fields<'_>, region: Region) -> Result<Observation, TraceError> {
    let flags = f.byte("flags")?;
    let flag = |i: u8| flags >> i & 1 == 1;
    let why = match f.byte("why")? {
        0 => None,
        n => match WHYS.get(n as usize - 1) {
            Some(why) => Some(*why),
            None => return Err(f.wrong("why", What::Unknown(n.into()))),
        },
    };
    let mut pages = |field| Ok(BasePages(f.at_most(field, REGION_PAGES.into())? as u32));
    let (mapped, accessed, dirty) = (pages("mapped")?, pages("accessed")?, pages("dirty")?);
    let zero = if flag(7) { Some(pages("zero")?) } else { None };
    Ok(Observation {
        region,
        mapped,
        accessed,
        dirty,
        zero,
        huge: flag(0),
        shared: flag(1),
        raced: flag(2),
        aged: flag(3),
        can: Can {
            promote: flag(4),
            demote: flag(5),
            age: flag(6),
            why,
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::writer::Writer;
    use super::*;
    use proptest::prelude::*;

    pub fn any_record() -> impl Strategy<Value = Record> {
        let kind = (0usize..3).prop_map(|i| Kind::ALL[i]);
        let pages = || (0u32..=512).prop_map(BasePages);
        let observation = (
            0u64..1 << 43,
            (pages(), pages(), pages()),
            proptest::option::of(pages()),
            any::<[bool; 7]>(),
            proptest::option::of((0usize..11).prop_map(|i| WHYS[i])),
        );
        let observation = observation.prop_map(|(region, (mapped, accessed, dirty), zero, flags, why)| {
            let [huge, shared, raced, aged, promote, demote, age] = flags;
            let can = Can {
                promote,
                demote,
                age,
                why,
            };
            Observation {
                region: Region(region),
                mapped,
                accessed,
                dirty,
                zero,
                huge,
                shared,
                raced,
                aged,
                can,
            }
        });
        let scan = (any::<[u64; 3]>(), proptest::option::of(0u32..=1_000_000));
        prop_oneof![
            4 => (any::<u64>(), kind.clone()).prop_map(|(address, kind)| Record::Touch { address, kind }),
            2 => (any::<u64>(), any::<i64>(), 1..=MOST_RUN, kind)
                .prop_map(|(address, stride, count, kind)| Record::Run { address, stride, count, kind }),
            1 => any::<u64>().prop_map(Record::Time),
            1 => (any::<u32>(), any::<u64>()).prop_map(|(pid, started)| Record::Process(ProcessId { pid, started })),
            1 => any::<(u64, u64)>().prop_map(|(address, bytes)| Record::Map { address, bytes }),
            1 => any::<(u64, u64)>().prop_map(|(address, bytes)| Record::Unmap { address, bytes }),
            1 => any::<[u64; 4]>()
                .prop_map(|[address, bytes, to, to_bytes]| Record::Remap { address, bytes, to, to_bytes }),
            1 => (any::<(u64, u64)>(), 0usize..6)
                .prop_map(|((address, bytes), i)| Record::Advise { address, bytes, advice: Advice::ALL[i] }),
            1 => any::<u32>().prop_map(Record::Fork),
            1 => any::<u32>().prop_map(Record::Exit),
            1 => any::<u64>().prop_map(Record::Work),
            1 => scan.prop_map(|([a, t, b], p)| Record::Scan(Machine {
                available_bytes: Bytes(a),
                total_bytes: Bytes(t),
                free_blocks: Blocks(b),
                pressure: p.map(Share::millionths),
            })),
            2 => observation.prop_map(Record::Region),
        ]
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
            let mut file = if with_magic { super::super::frame::MAGIC.to_vec() } else { Vec::new() };
            file.extend(bytes);
            prop_assert!(read_all(&file).is_err());
        }
    }

    #[test]
    fn a_trace_of_many_frames_reads_back() {
        let mut state = 1u64;
        let mut next = || {
            state = crate::workload::pattern::mix(state);
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
        let head = written(&header(), &[]).len();
        let end = head - written(&Header::default(), &[]).len();
        assert!(end < head);
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

    use crate::workload::pattern::mix;

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
}
