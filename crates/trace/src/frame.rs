//! Frames: pieces of a file that are compressed and checked each by itself.

use super::{TraceError, What};
use std::io::{Read, Write};

/// The first bytes of a file: name, version, and an end of line that a conversion of text would break.
pub(super) const MAGIC: [u8; 12] = *b"MEGATRACE\x01\r\n";
/// Bytes of a frame before its data.
const HEAD: usize = 20;
/// The most bytes of a frame, decompressed.
pub(super) const MOST_PLAIN: usize = 1 << 20;
/// The most bytes of a frame, compressed: what zstd may need for data that does not compress.
const MOST_STORED: usize = MOST_PLAIN + (MOST_PLAIN >> 8) + 1024;
/// Level of compression: zstd's default.
const LEVEL: i32 = 3;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Header,
    Records,
    End,
}

impl FrameKind {
    const ALL: [(Self, [u8; 4]); 3] = [
        (Self::Header, *b"HEAD"),
        (Self::Records, *b"RECS"),
        (Self::End, *b"DONE"),
    ];

    fn word(self) -> [u8; 4] {
        Self::ALL
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or([0; 4], |(_, w)| *w)
    }
}

/// One frame that was read.
#[derive(Debug)]
pub(super) struct Frame {
    pub kind: FrameKind,
    pub plain: Vec<u8>,
    pub records: u32,
    /// Offset in the file.
    pub offset: u64,
}

/// The checksum covers the head, the data, and the frame's number: a frame that is lost or doubled is found too.
fn checksum(number: u32, head: &[u8], stored: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(head);
    crc.update(stored);
    crc.finalize()
}

pub(super) struct FrameWriter<W: Write> {
    to: W,
    compressor: zstd::bulk::Compressor<'static>,
    number: u32,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn new(mut to: W) -> std::io::Result<Self> {
        to.write_all(&MAGIC)?;
        Ok(Self {
            to,
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            number: 0,
        })
    }

    pub(super) fn write(&mut self, kind: FrameKind, plain: &[u8], records: u32) -> std::io::Result<()> {
        let stored = self.compressor.compress(plain)?;
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(&kind.word());
        for n in [stored.len() as u32, plain.len() as u32, records] {
            head.extend_from_slice(&n.to_le_bytes());
        }
        let crc = checksum(self.number, &head, &stored);
        head.extend_from_slice(&crc.to_le_bytes());
        self.number = self.number.wrapping_add(1);
        self.to.write_all(&head)?;
        self.to.write_all(&stored)
    }

    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }

    pub(super) fn finish(mut self) -> std::io::Result<W> {
        self.flush()?;
        Ok(self.to)
    }
}

pub(super) struct FrameReader<R: Read> {
    from: R,
    decompressor: zstd::bulk::Decompressor<'static>,
    number: u32,
    offset: u64,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn new(from: R) -> Result<Self, TraceError> {
        let io = |e: std::io::Error| TraceError::Binary {
            offset: 0,
            record: 0,
            field: "zstd",
            what: What::Io(e.to_string()),
        };
        let decompressor = zstd::bulk::Decompressor::new().map_err(io)?;
        let mut reader = Self {
            from,
            decompressor,
            number: 0,
            offset: 0,
        };
        let mut magic = [0; MAGIC.len()];
        reader.fill(&mut magic, 0, 0, "magic")?;
        let wrong = |field, value: u64| TraceError::Binary {
            offset: 0,
            record: 0,
            field,
            what: What::Unknown(value),
        };
        if magic[..9] != MAGIC[..9] {
            return Err(wrong(
                "magic",
                u64::from_be_bytes(magic[..8].try_into().unwrap_or_default()),
            ));
        }
        if magic[9] != MAGIC[9] {
            return Err(wrong("version", magic[9].into()));
        }
        if magic != MAGIC {
            return Err(wrong("magic", u64::from(magic[10]) << 8 | u64::from(magic[11])));
        }
        reader.offset = MAGIC.len() as u64;
        Ok(reader)
    }

    /// Offset of the next frame.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn fill(&mut self, to: &mut [u8], offset: u64, record: u64, field: &'static str) -> Result<(), TraceError> {
        self.from.read_exact(to).map_err(|e| {
            let what = match e.kind() {
                std::io::ErrorKind::UnexpectedEof => What::Truncated,
                _ => What::Io(e.to_string()),
            };
            TraceError::Binary {
                offset,
                record,
                field,
                what,
            }
        })
    }

    /// The next frame. `record` is the number of the next record, for errors.
    pub(super) fn read(&mut self, record: u64) -> Result<Frame, TraceError> {
        let offset = self.offset;
        let wrong = |field, what| TraceError::Binary {
            offset,
            record,
            field,
            what,
        };
        let mut head = [0; HEAD];
        self.fill(&mut head, offset, record, "frame head")?;
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let name: [u8; 4] = [head[0], head[1], head[2], head[3]];
        let kind = FrameKind::ALL.iter().find(|(_, w)| *w == name).map(|(kind, _)| *kind);
        let kind = kind.ok_or_else(|| wrong("frame kind", What::Unknown(u32::from_be_bytes(name).into())))?;
        let limited = |field, value: u32, most: usize| match value as usize {
            n if n > most => Err(wrong(
                field,
                What::TooLarge {
                    value: value.into(),
                    most: most as u64,
                },
            )),
            n => Ok(n),
        };
        let stored_bytes = limited("stored bytes", word(4), MOST_STORED)?;
        let plain_bytes = limited("plain bytes", word(8), MOST_PLAIN)?;
        // A record has one byte at least.
        limited("records", word(12), plain_bytes)?;
        let mut stored = vec![0; stored_bytes];
        self.fill(&mut stored, offset + HEAD as u64, record, "frame data")?;
        let (found, expected) = (checksum(self.number, &head[..HEAD - 4], &stored), word(HEAD - 4));
        if found != expected {
            return Err(wrong("checksum", What::Checksum { found, expected }));
        }
        let plain = self.decompressor.decompress(&stored, plain_bytes).unwrap_or_default();
        if plain.len() != plain_bytes {
            return Err(wrong("frame data", What::NotCompressed(plain_bytes as u64)));
        }
        self.number = self.number.wrapping_add(1);
        self.offset += (HEAD + stored_bytes) as u64;
        Ok(Frame {
            kind,
            plain,
            records: word(12),
            offset,
        })
    }

    /// Nothing may follow the last frame.
    pub(super) fn expect_end(&mut self, record: u64) -> Result<(), TraceError> {
        let mut one = [0];
        let wrong = |what| TraceError::Binary {
            offset: self.offset,
            record,
            field: "end",
            what,
        };
        loop {
            return match self.from.read(&mut one) {
                Ok(0) => Ok(()),
                Ok(_) => Err(wrong(What::Trailing)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => Err(wrong(What::Io(e.to_string()))),
            };
        }
    }
}
