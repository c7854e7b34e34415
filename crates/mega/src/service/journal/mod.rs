//! The daemon's journal: what was decided and done, a JSON object a line, in four files that rotate.
//!
//! Lines go through a bounded queue to a thread that writes them, so that a slow disk holds up no scan; what does not fit is counted, and the
//! count is written when there is room again.

mod reading;
mod time;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::SystemTime;

use anyhow::{Context, Result};
use mega_cli::exit::tell;
use mega_core::journal::{Event, Line};
use serde_json::{json, Map, Value as Json};

use super::figures::Place;
pub use reading::{Filter, Follower};
use time::rfc3339;

/// The file that is written, and so many older ones.
const OLDER: usize = 3;
/// Lines that may wait for the disk.
const QUEUE: usize = 4096;
/// Written at a time.
const BATCH_BYTES: usize = 64 << 10;

/// The files, the oldest first.
fn files(path: &Path) -> Vec<PathBuf> {
    let older = (1..=OLDER).rev().map(|number| older(path, number));
    older.chain([path.to_owned()]).collect()
}

fn older(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Writes lines until it is dropped.
pub struct Journal {
    queue: Option<SyncSender<String>>,
    dropped: std::sync::Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Goes on with the file, or begins it; its folder is made if it is not there.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, max_bytes: u64) -> Result<Self> {
        let files =
            Files::open(path, max_bytes).with_context(|| format!("cannot write the journal {}", path.display()))?;
        let (queue, lines) = sync_channel(QUEUE);
        let dropped = std::sync::Arc::new(AtomicU64::new(0));
        let (count, shown) = (std::sync::Arc::clone(&dropped), path.to_owned());
        let thread = std::thread::Builder::new().name("mega-journal".to_owned());
        let thread = thread.spawn(move || write_all(files, &lines, &count, &shown));
        Ok(Self {
            queue: Some(queue),
            dropped,
            thread: Some(thread.context("cannot start a thread")?),
        })
    }

    /// An event of a loop. Sums of scans are left out: they are in the status and the metrics.
    pub fn event(&self, policy: &str, place: Option<&Place>, line: &Line) {
        if matches!(
            line.event,
            Event::Scan { .. } | Event::Scanned { .. } | Event::Age { .. } | Event::See { .. } | Event::Machine { .. }
        ) {
            return;
        }
        let mut object = Map::new();
        match place {
            Some(place) => {
                object.insert("rule".to_owned(), json!(place.rule));
                object.insert("service".to_owned(), json!(place.service));
            }
            None => drop(object.insert("policy".to_owned(), json!(policy))),
        }
        // A loop's own start has its policy already.
        object.extend(line.fields());
        self.write(object);
    }

    /// Something that the daemon itself did.
    pub fn say(&self, event: &str, fields: &Json) {
        let mut object = Map::from_iter([("event".to_owned(), json!(event))]);
        if let Json::Object(fields) = fields {
            object.extend(fields.clone());
        }
        self.write(object);
    }

    fn write(&self, fields: Map<String, Json>) {
        let text = stamped(fields);
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(text).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stamped(fields: Map<String, Json>) -> String {
    let mut object = Map::from_iter([("time".to_owned(), json!(rfc3339(SystemTime::now())))]);
    object.extend(fields);
    Json::Object(object).to_string() + "\n"
}

fn write_all(mut files: Files, lines: &Receiver<String>, dropped: &AtomicU64, path: &Path) {
    let mut complained = false;
    while let Ok(mut batch) = lines.recv() {
        let mut count = 1;
        while batch.len() < BATCH_BYTES {
            match lines.try_recv() {
                Ok(line) => batch.push_str(&line),
                Err(_) => break,
            }
            count += 1;
        }
        let missing = dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let fields = json!({"event": "dropped", "lines": missing});
            batch.push_str(&stamped(fields.as_object().cloned().unwrap_or_default()));
        }
        let written = files.write(&batch);
        if let Err(error) = &written {
            dropped.fetch_add(missing + count, Ordering::Relaxed);
            // Said once, and again when it has worked in between.
            if !complained {
                tell(&format!(
                    "mega: the journal {} cannot be written: {error}",
                    path.display()
                ));
            }
        }
        complained = written.is_err();
    }
}

/// The file that is written, and what becomes of it.
struct Files {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl Files {
    fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir_all(folder)?;
        }
        let (file, bytes) = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            most: max_bytes / (OLDER as u64 + 1),
        })
    }

    fn write(&mut self, batch: &str) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + batch.len() as u64 > self.most {
            self.rotate()?;
        }
        let written = self.file.write_all(batch.as_bytes());
        self.bytes = self.file.metadata().map_or(self.bytes, |file| file.len());
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (0..OLDER).rev() {
            let from = match number {
                0 => self.path.clone(),
                number => older(&self.path, number),
            };
            match fs::rename(&from, older(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        (self.file, self.bytes) = open(&self.path)?;
        Ok(())
    }
}

/// A file of ours alone. What a daemon that was killed in the middle of a line left is a line of its own.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.custom_flags(flags.bits() as i32).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    let mut bytes = about.len();
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::units::Time;
    use std::os::unix::fs::PermissionsExt;

    fn notice(text: &str) -> Line {
        Line {
            at: Time(0),
            event: Event::Notice { text: text.to_owned() },
        }
    }

    #[test]
    fn a_line_has_its_time_its_rule_and_service_and_the_fields_of_the_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/journal");
        let journal = Journal::open(&path, 1 << 20).unwrap();
        let place = Place {
            rule: "r".to_owned(),
            service: "s.service".to_owned(),
        };
        let gone = Line {
            at: Time(0),
            event: Event::Gone { pid: 7 },
        };
        journal.event("mega", Some(&place), &gone);
        journal.event("mega", None, &notice("n"));
        journal.say("reload", &json!({"result": "accepted"}));
        drop(journal);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let time = lines[0]["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
        assert!(
            text.lines()
                .next()
                .unwrap()
                .ends_with("\"rule\":\"r\",\"service\":\"s.service\",\"event\":\"gone\",\"pid\":7}"),
            "{text}"
        );
        assert_eq!((&lines[1]["policy"], &lines[1]["text"]), (&json!("mega"), &json!("n")));
        assert_eq!(
            (&lines[2]["event"], &lines[2]["result"]),
            (&json!("reload"), &json!("accepted"))
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn four_files_rotate_and_never_take_more_than_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let max = 64 << 10;
        let mut journal = Files::open(&path, max).unwrap();
        for number in 0..1000 {
            journal.write(&format!("{number:0>999}\n")).unwrap();
            let sizes = fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().metadata().unwrap().len());
            assert!(sizes.sum::<u64>() <= max);
        }
        let text: String = files(&path)
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
        let numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers, (1000 - numbers.len() as u64..1000).collect::<Vec<_>>());
        assert!(numbers.len() > 48, "{}", numbers.len());
    }

    #[test]
    fn a_line_that_was_cut_by_a_crash_ends_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        fs::write(&path, "{\"time\":").unwrap();
        Journal::open(&path, 1 << 20).unwrap().say("x", &json!({}));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"time\":\n{\"time\":\"2"), "{text}");
    }

    #[test]
    fn a_link_or_a_pipe_in_place_of_the_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(Journal::open(&path, 1 << 20).is_err());
        assert!(Journal::open(Path::new("/dev/null"), 1 << 20).is_err());
    }

    #[test]
    fn a_disk_that_takes_nothing_holds_up_nobody() {
        let full = Files {
            path: PathBuf::from("/dev/full"),
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            bytes: 0,
            most: u64::MAX,
        };
        let (queue, lines) = sync_channel(4);
        queue.send("a\n".to_owned()).unwrap();
        queue.send("b\n".to_owned()).unwrap();
        drop(queue);
        let dropped = AtomicU64::new(3);
        write_all(full, &lines, &dropped, Path::new("/dev/full"));
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
    }
}
