//! Traces as files: begun, opened, and what their headers say.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use mega_core::units::Bytes;
use mega_linux::proc::{cpuinfo, meminfo, ProcRoot};
use mega_trace::{Header, Reader};

/// Begins a file.
///
/// # Errors
/// It cannot be created.
pub fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| cannot_write(path))?;
    Ok(BufWriter::new(file))
}

/// Begins to read a trace.
///
/// # Errors
/// It cannot be read, or is no trace.
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Reader::new(BufReader::new(file)).with_context(|| path.display().to_string())
}

/// What failed, for an error's context.
#[must_use]
pub fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Whole nanoseconds, as traces have them.
#[must_use]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Size of a file; 0 where it cannot be read.
#[must_use]
pub fn size_of(path: &Path) -> Bytes {
    Bytes(std::fs::metadata(path).map_or(0, |file| file.len()))
}

/// The header of a trace that is made here: processor, memory and kernel, but not the machine's name.
#[must_use]
pub fn header(command: String, seed: u64) -> Header {
    let root = ProcRoot::default();
    let cpu = cpuinfo::read(&root).unwrap_or_default();
    let memory_bytes = meminfo::read(&root).ok().and_then(|memory| memory.total_bytes);
    let gib = memory_bytes.unwrap_or(0) as f64 / f64::from(1 << 30);
    let processor = cpu.model.unwrap_or_default();
    Header {
        machine: format!("{processor}, {} processors, {gib:.1} GB", cpu.processors),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        command,
        seed,
    }
}
