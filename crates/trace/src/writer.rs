//! Writes traces.

use super::frame::{FrameKind, FrameWriter};
use super::record::{Header, Kind, Record, MOST_RUN};
use super::varint::{fold, put};
use super::Advice;
use mega_core::observe::{Observation, Why};
use std::io::Write;

/// A frame is written when it has this many bytes.
const FRAME: usize = 256 << 10;
/// The most bytes of a text of the header.
pub(super) const MOST_TEXT: usize = 4096;

/// The first byte of each record. Accesses add their kind.
pub(super) mod tag {
    pub const TIME: u8 = 0x01;
    pub const PROCESS: u8 = 0x02;
    pub const MAP: u8 = 0x03;
    pub const UNMAP: u8 = 0x04;
    pub const REMAP: u8 = 0x05;
    pub const ADVISE: u8 = 0x06;
    pub const FORK: u8 = 0x07;
    pub const EXIT: u8 = 0x08;
    pub const WORK: u8 = 0x09;
    pub const TOUCH: u8 = 0x10;
    pub const RUN: u8 = 0x14;
    pub const SCAN: u8 = 0x20;
    pub const REGION: u8 = 0x21;
}

/// The reasons of an observation, by their number in a trace, from 1; 0 is none.
pub(super) const WHYS: [Why; 11] = [
    Why::NoHugePage,
    Why::Prctl,
    Why::Mlocked,
    Why::Hugetlb,
    Why::File,
    Why::Shmem,
    Why::Special,
    Why::Stack,
    Why::Small,
    Why::Changed,
    Why::Refused,
];

/// What numbers are differences to.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub address: u64,
    pub region: u64,
    pub time_ns: u64,
}

/// Writes records to a file, compressed.
pub struct Writer<W: Write> {
    frames: FrameWriter<W>,
    plain: Vec<u8>,
    in_frame: u32,
    records: u64,
    last: Last,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer of {} records", self.records)
    }
}

/// A text of at most [`MOST_TEXT`] bytes, cut between characters.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put(out, end as u64);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

impl<W: Write> Writer<W> {
    /// Begins a trace. Texts of the header are cut at 4096 bytes.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(to: W, header: &Header) -> std::io::Result<Self> {
        let mut frames = FrameWriter::new(to)?;
        let mut plain = Vec::new();
        for text in [&header.machine, &header.kernel, &header.command] {
            put_text(&mut plain, text);
        }
        put(&mut plain, header.seed);
        frames.write(FrameKind::Header, &plain, 0)?;
        plain.clear();
        Ok(Self {
            frames,
            plain,
            in_frame: 0,
            records: 0,
            last: Last::default(),
        })
    }

    /// Records so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Appends a record. A run of no accesses is left out; one of too many becomes several.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, record: &Record) -> std::io::Result<()> {
        if let Record::Run {
            address,
            stride,
            count,
            kind,
        } = *record
        {
            let (mut address, mut left) = (address, count);
            while left > 0 {
                let count = left.min(MOST_RUN);
                self.one(&Record::Run {
                    address,
                    stride,
                    count,
                    kind,
                })?;
                address = address.wrapping_add((stride as u64).wrapping_mul(count));
                left -= count;
            }
            return Ok(());
        }
        self.one(record)
    }

    fn address(&mut self, address: u64) {
        put(&mut self.plain, fold(address.wrapping_sub(self.last.address) as i64));
        self.last.address = address;
    }

    fn one(&mut self, record: &Record) -> std::io::Result<()> {
        let number = |kind: Kind| Kind::ALL.iter().position(|k| *k == kind).unwrap_or(0) as u8;
        let with = |tag: u8, numbers: &[u64], out: &mut Vec<u8>| {
            out.push(tag);
            numbers.iter().for_each(|n| put(out, *n));
        };
        let out = &mut self.plain;
        match *record {
            Record::Touch { address, kind } => {
                out.push(tag::TOUCH + number(kind));
                self.address(address);
            }
            Record::Run {
                address,
                stride,
                count,
                kind,
            } => {
                out.push(tag::RUN + number(kind));
                self.address(address);
                put(&mut self.plain, fold(stride));
                put(&mut self.plain, count);
                self.last.address = address.wrapping_add((stride as u64).wrapping_mul(count - 1));
            }
            Record::Time(ns) => {
                with(tag::TIME, &[fold(ns.wrapping_sub(self.last.time_ns) as i64)], out);
                self.last.time_ns = ns;
            }
            Record::Process(id) => with(tag::PROCESS, &[id.pid.into(), id.started], out),
            Record::Map { address, bytes } => with(tag::MAP, &[address, bytes], out),
            Record::Unmap { address, bytes } => with(tag::UNMAP, &[address, bytes], out),
            Record::Remap {
                address,
                bytes,
                to,
                to_bytes,
            } => with(tag::REMAP, &[address, bytes, to, to_bytes], out),
            Record::Advise { address, bytes, advice } => {
                let number = Advice::ALL.iter().position(|a| *a == advice).unwrap_or(0);
                with(tag::ADVISE, &[address, bytes, number as u64], out);
            }
            Record::Fork(child) => with(tag::FORK, &[child.into()], out),
            Record::Exit(child) => with(tag::EXIT, &[child.into()], out),
            Record::Work(ns) => with(tag::WORK, &[ns], out),
            Record::Scan(m) => {
                let pressure = m.pressure.map_or(0, |p| u64::from(p.as_millionths()) + 1);
                with(
                    tag::SCAN,
                    &[m.available_bytes.0, m.total_bytes.0, m.free_blocks.0, pressure],
                    out,
                );
                self.last.region = 0;
            }
            Record::Region(o) => {
                out.push(tag::REGION);
                put(out, fold(o.region.0.wrapping_sub(self.last.region) as i64));
                self.last.region = o.region.0;
                put_observation(out, &o);
            }
        }
        self.in_frame += 1;
        self.records += 1;
        if self.plain.len() >= FRAME {
            self.end_frame()?;
        }
        Ok(())
    }

    /// Ends the frame under way and passes it on: whoever reads the file then, or after a crash, finds what was written so far.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.end_frame()?;
        self.frames.flush()
    }

    fn end_frame(&mut self) -> std::io::Result<()> {
        if self.in_frame > 0 {
            self.frames.write(FrameKind::Records, &self.plain, self.in_frame)?;
            self.plain.clear();
            self.in_frame = 0;
        }
        Ok(())
    }

    /// Writes the end. Without it the trace counts as truncated.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.end_frame()?;
        let mut end = Vec::new();
        put(&mut end, self.records);
        self.frames.write(FrameKind::End, &end, 0)?;
        self.frames.finish()
    }
}

fn put_observation(out: &mut Vec<u8>, o: &Observation) {
    let flags = [
        o.huge,
        o.shared,
        o.raced,
        o.aged,
        o.can.promote,
        o.can.demote,
        o.can.age,
        o.zero.is_some(),
    ];
    out.push(
        flags
            .iter()
            .enumerate()
            .fold(0, |byte, (i, flag)| byte | u8::from(*flag) << i),
    );
    out.push(
        o.can
            .why
            .and_then(|why| WHYS.iter().position(|w| *w == why))
            .map_or(0, |i| i as u8 + 1),
    );
    for pages in [o.mapped, o.accessed, o.dirty] {
        put(out, pages.0.into());
    }
    if let Some(zero) = o.zero {
        put(out, zero.0.into());
    }
}
