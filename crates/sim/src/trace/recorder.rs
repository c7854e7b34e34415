//! A memory that writes down what a program does to it.

use crate::workload::{Memory, MemoryError};
use mega_trace::{Advice, Header, Kind, Record, Writer, MOST_RUN};
use std::io::Write;

/// Computing is written down when so much has come together, in ns: not each little piece, which would cut runs of accesses short.
const WORK: u64 = 10_000;
/// Accesses at equal distances before they are written as a run.
const RUN: u64 = 3;

/// Passes everything on to a memory, and writes it to a trace.
#[derive(Debug)]
pub struct Recorder<M: Memory, W: Write> {
    memory: M,
    writer: Writer<W>,
    /// The run of accesses that goes on: first address, distance, number, kind.
    run: Option<(u64, i64, u64, Kind)>,
    work_ns: u64,
    failed: Option<std::io::Error>,
}

impl<M: Memory, W: Write> Recorder<M, W> {
    /// Of what happens to `memory` from now on.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(memory: M, to: W, header: &Header) -> std::io::Result<Self> {
        Ok(Self {
            memory,
            writer: Writer::new(to, header)?,
            run: None,
            work_ns: 0,
            failed: None,
        })
    }

    /// The memory.
    pub fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Writes any other record: a scan, a process.
    pub fn note(&mut self, record: &Record) {
        self.flush();
        self.put(record);
    }

    /// Writes the memory's time: after a sleep, of which no access tells.
    pub fn note_time(&mut self) {
        self.note(&Record::Time(self.memory.now_ns()));
    }

    /// Whether writing failed: what happens from then on is not recorded, and [`finish`](Self::finish) says why.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Records so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.writer.records()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first time that writing failed.
    pub fn finish(mut self) -> std::io::Result<(M, W)> {
        self.flush();
        match self.failed {
            Some(e) => Err(e),
            None => Ok((self.memory, self.writer.finish()?)),
        }
    }

    fn put(&mut self, record: &Record) {
        if self.failed.is_none() {
            self.failed = self.writer.write(record).err();
        }
    }

    fn put_run(&mut self) {
        if let Some((address, stride, count, kind)) = self.run.take() {
            if count >= RUN {
                self.put(&Record::Run {
                    address,
                    stride,
                    count,
                    kind,
                });
                return;
            }
            for i in 0..count {
                self.put(&Record::Touch {
                    address: address.wrapping_add((stride as u64).wrapping_mul(i)),
                    kind,
                });
            }
        }
    }

    fn flush(&mut self) {
        self.put_run();
        if self.work_ns > 0 {
            let work = Record::Work(std::mem::take(&mut self.work_ns));
            self.put(&work);
        }
    }

    fn access(&mut self, address: u64, kind: Kind) {
        match &mut self.run {
            Some((first, stride, count, k)) if *k == kind => {
                let next = first.wrapping_add((*stride as u64).wrapping_mul(*count));
                if *count == 1 {
                    *stride = address.wrapping_sub(*first) as i64;
                    *count = 2;
                    return;
                }
                if next == address && *count < MOST_RUN {
                    *count += 1;
                    return;
                }
            }
            _ => {}
        }
        self.put_run();
        self.run = Some((address, 0, 1, kind));
    }
}

impl<M: Memory, W: Write> Memory for Recorder<M, W> {
    fn map(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        let address = self.memory.map(bytes)?;
        self.note(&Record::Map { address, bytes });
        Ok(address)
    }

    fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        self.memory.unmap(address, bytes)?;
        self.note(&Record::Unmap { address, bytes });
        Ok(())
    }

    fn remap(&mut self, address: u64, bytes: u64, new_bytes: u64) -> Result<u64, MemoryError> {
        let to = self.memory.remap(address, bytes, new_bytes)?;
        self.note(&Record::Remap {
            address,
            bytes,
            to,
            to_bytes: new_bytes,
        });
        Ok(to)
    }

    fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), MemoryError> {
        self.memory.advise(address, bytes, advice)?;
        self.note(&Record::Advise { address, bytes, advice });
        Ok(())
    }

    fn touch(&mut self, address: u64, write: bool) {
        self.memory.touch(address, write);
        self.access(address, if write { Kind::Write } else { Kind::Read });
    }

    fn update(&mut self, address: u64) {
        self.memory.update(address);
        self.access(address, Kind::Update);
    }

    fn work(&mut self, ns: u64) {
        self.memory.work(ns);
        self.work_ns = self.work_ns.saturating_add(ns);
        if self.work_ns >= WORK {
            self.flush();
        }
    }

    fn now_ns(&self) -> u64 {
        self.memory.now_ns()
    }

    fn paid_by_page_ns(&self) -> u64 {
        self.memory.paid_by_page_ns()
    }

    fn fork(&mut self, child: u32) -> Result<(), MemoryError> {
        self.memory.fork(child)?;
        self.note(&Record::Fork(child));
        Ok(())
    }

    fn child_exits(&mut self, child: u32) -> Result<(), MemoryError> {
        self.memory.child_exits(child)?;
        self.note(&Record::Exit(child));
        Ok(())
    }
}
