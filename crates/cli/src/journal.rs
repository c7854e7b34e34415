//! A journal as a file, or on standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::journal::{Event, Line};
use rustix::fd::AsFd;

/// Bytes that may wait for a reader that is slow.
const QUEUE_BYTES: usize = 64 << 20;
/// Bytes handed on at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// For so long a reader is waited for at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Where a journal goes.
pub struct JournalFile {
    to: To,
    json: bool,
    flushed: Instant,
}

enum To {
    File(BufWriter<File>),
    Reader(Unblocked),
}

impl JournalFile {
    /// Creates the file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, json: bool) -> Result<Self> {
        Self::open(path, json, |_| false)
    }

    /// As [`JournalFile::create`], but where somebody reads it (a pipe, a terminal) lines are dropped and counted rather than waited for: a
    /// reader that stops reading must not stop what is journalled.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create_live(path: &Path, json: bool) -> Result<Self> {
        Self::open(path, json, has_reader)
    }

    fn open(path: &Path, json: bool, is_read: impl Fn(&File) -> bool) -> Result<Self> {
        let opened = if path == Path::new("-") {
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::create(path)
        };
        let file = opened.with_context(|| format!("cannot write the journal {}", path.display()))?;
        Ok(Self {
            to: match is_read(&file) {
                true => To::Reader(Unblocked::new(file).context("cannot start a thread for the journal")?),
                false => To::File(BufWriter::new(file)),
            },
            json,
            flushed: Instant::now(),
        })
    }

    /// Writes one line.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let text = if self.json { line.to_json() } else { line.to_text() };
        match &mut self.to {
            To::File(file) => writeln!(file, "{text}")?,
            To::Reader(reader) => reader.line(&text)?,
        }
        // A system call for each line would cost more than the scan.
        if self.flushed.elapsed() > Duration::from_secs(1)
            || matches!(line.event, Event::Stop { .. } | Event::Start { .. })
        {
            self.hand_on()?;
        }
        Ok(())
    }

    /// Lets whoever follows the journal see what was written so far, and waits for nobody.
    ///
    /// # Errors
    /// Writing failed.
    pub fn hand_on(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        match &mut self.to {
            To::File(file) => file.flush(),
            To::Reader(reader) => reader.hand_on(),
        }
    }

    /// Writes what is still buffered. A reader that does not read is waited for two seconds.
    ///
    /// # Errors
    /// Writing failed.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.to {
            To::File(file) => file.flush(),
            To::Reader(reader) => reader.hand_on().and_then(|()| reader.wait(LAST_WAIT)),
        }
        .context("cannot write the journal")
    }

    /// Lines that were dropped so far, because nobody read.
    pub fn dropped(&self) -> u64 {
        match &self.to {
            To::File(_) => 0,
            To::Reader(reader) => reader.dropped,
        }
    }
}

/// A pipe, a socket or a terminal: somebody reads it, or does not.
fn has_reader(file: &File) -> bool {
    let kind = file.metadata().map(|file| file.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) || rustix::termios::isatty(file)
}

/// Writes by a thread of its own, which alone waits for the reader.
struct Unblocked {
    chunk: Vec<u8>,
    lines: u64,
    queue: Sender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    /// The errno of the first write that failed, else 0.
    failed: Arc<AtomicI32>,
    dropped: u64,
}

impl Unblocked {
    fn new(mut file: File) -> io::Result<Self> {
        let (queue, chunks) = channel::<Vec<u8>>();
        let (queued, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI32::new(0)));
        let (left, failure) = (Arc::clone(&queued), Arc::clone(&failed));
        std::thread::Builder::new().spawn(move || {
            for chunk in chunks {
                if let Err(error) = file.write_all(&chunk) {
                    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
                    let _ = failure.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
                }
                left.fetch_sub(chunk.len(), Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            chunk: Vec::new(),
            lines: 0,
            queue,
            queued,
            failed,
            dropped: 0,
        })
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.chunk.extend_from_slice(text.as_bytes());
        self.chunk.push(b'\n');
        self.lines += 1;
        match self.chunk.len() >= CHUNK_BYTES {
            true => self.hand_on(),
            false => Ok(()),
        }
    }

    /// Hands the chunk to the thread, or drops it where too much waits already.
    fn hand_on(&mut self) -> io::Result<()> {
        let (chunk, lines) = (std::mem::take(&mut self.chunk), std::mem::take(&mut self.lines));
        self.failure()?;
        if chunk.is_empty() {
            return Ok(());
        }
        if self.queued.load(Ordering::Relaxed) > QUEUE_BYTES {
            self.dropped += lines;
            return Ok(());
        }
        self.queued.fetch_add(chunk.len(), Ordering::Relaxed);
        self.queue.send(chunk).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until all has been read.
    fn wait(&self, most: Duration) -> io::Result<()> {
        let end = Instant::now() + most;
        while self.queued.load(Ordering::Relaxed) > 0 {
            if Instant::now() >= end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.failure()
    }

    fn failure(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use mega_core::units::Time;

    fn line() -> Line {
        let text = "x".repeat(4096);
        Line {
            at: Time(0),
            event: Event::Notice { text },
        }
    }

    #[test]
    fn only_what_is_read_by_somebody_has_a_reader_and_its_end_is_said_as_it_is() {
        assert!(!has_reader(&File::create("/dev/full").unwrap()));
        assert!(!has_reader(&File::open("/proc/self/exe").unwrap()));
        let (read, write) = rustix::pipe::pipe().unwrap();
        let write = File::from(write);
        assert!(has_reader(&write));
        drop(read);
        let mut journal = JournalFile {
            to: To::Reader(Unblocked::new(write).unwrap()),
            json: false,
            flushed: Instant::now(),
        };
        journal.write(&line()).unwrap();
        let error = format!("{:#}", journal.flush().unwrap_err());
        assert!(error.contains("Broken pipe"), "{error}");
    }

    #[test]
    fn a_reader_that_does_not_read_holds_up_nobody_and_what_is_dropped_is_counted() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut read = File::from(read);
        let mut journal = JournalFile {
            to: To::Reader(Unblocked::new(File::from(write)).unwrap()),
            json: false,
            flushed: Instant::now(),
        };
        let lines = 40_000;
        let began = Instant::now();
        for _ in 0..lines {
            journal.write(&line()).unwrap();
        }
        let dropped = journal.dropped();
        assert!(dropped > lines / 4 && dropped < lines, "{dropped}");
        assert!(journal.flush().unwrap_err().to_string().contains("journal"));
        assert!(began.elapsed() < Duration::from_secs(20));
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            read.read_to_string(&mut text).unwrap();
            text.lines().count() as u64
        });
        while journal.flush().is_err() {}
        let dropped = journal.dropped();
        drop(journal);
        assert_eq!(reader.join().unwrap(), lines - dropped, "the others are whole");
    }
}
