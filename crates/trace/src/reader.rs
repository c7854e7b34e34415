//! Reads traces, a frame at a time.

use super::frame::{Frame, FrameKind, FrameReader};
use super::record::{Header, Kind, Record, MOST_RUN};
use super::varint::{unfold, Fields};
use super::writer::{tag, Last, MOST_TEXT, WHYS};
use super::Advice;
use super::{Source, TraceError, What};
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
pub(super) fn parse(f: &mut Fields<'_>, last: &mut Last) -> Result<Record, TraceError> {
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
        kept: BasePages::ZERO,
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
