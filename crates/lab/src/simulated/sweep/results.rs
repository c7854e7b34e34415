//! Results on disk: a line of JSON for each finished point, synced before the next is written, so that whatever ends a sweep leaves all that was done.
//!
//! ```text
//!   {"schema":1,"kind":"sweep-results","sweep":"9f86d081884c7d65","made_by":"0.1.0 1a2b3c","points":96}
//!   {"point":0,"failed":null,"values":{"ops_per_s":81234567.1, …}}
//! ```
//!
//! A shard writes a file of its own (`results-2-of-4.jsonl`), and every sweep reads what all files of its folder have: when all shards are through, the
//! whole sweep (`results.jsonl`) has nothing left to do but the table. A last line that was not written to its end is dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};
use serde::{Deserialize, Serialize};

use super::{Shard, Sweep, SweepError};
use crate::result::SCHEMA;

/// A line is never longer.
const LINE_MAX: u64 = 1 << 20;
/// Beginning and end of the files' names.
const NAME: (&str, &str) = ("results", ".jsonl");
const KIND: &str = "sweep-results";

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: u32,
    kind: String,
    sweep: String,
    made_by: String,
    points: usize,
}

/// A finished point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its number.
    pub point: usize,
    /// Why a program failed.
    pub failed: Option<String>,
    /// Figures by metric name.
    pub values: BTreeMap<String, f64>,
}

/// Where a row lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    offset: u64,
    bytes: usize,
}

/// The results of a folder.
#[derive(Debug)]
pub struct Results {
    /// To be read; the first is ours, to be written as well.
    files: Vec<(PathBuf, File)>,
    /// Where ours ends.
    end: u64,
    places: Vec<Option<Place>>,
    /// What was dropped, in words.
    pub dropped: Option<String>,
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SweepError + 'a {
    move |source| SweepError::File {
        doing,
        path: path.to_path_buf(),
        source,
    }
}

/// `results.jsonl`, `results-2-of-4.jsonl`.
fn name_of(shard: Shard) -> String {
    let (begin, end) = NAME;
    match shard {
        Shard::WHOLE => format!("{begin}{end}"),
        Shard { number, of } => format!("{begin}-{number}-of-{of}{end}"),
    }
}

/// All files of results in a folder, by name.
fn all_in(folder: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed("read", folder))? {
        let path = entry.map_err(failed("read", folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(NAME.0) && name.ends_with(NAME.1) {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

impl Results {
    /// Opens what a folder has of this sweep, and the shard's own file to write. `anew`: what is there goes first, the shard's own file, or
    /// of the whole sweep all of them.
    ///
    /// # Errors
    /// Results of another sweep or of another mega, lines that make no sense, another sweep at work, failed system calls.
    pub fn open(folder: &Path, sweep: &Sweep, shard: Shard, made_by: &str, anew: bool) -> Result<Self, SweepError> {
        std::fs::create_dir_all(folder).map_err(failed("write", folder))?;
        let own = folder.join(name_of(shard));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&own)
            .map_err(failed("write", &own))?;
        // Held as long as the file is open.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(SweepError::Busy(own)),
            Err(error) => return Err(failed("write", &own)(error.into())),
        }
        let others: Vec<PathBuf> = all_in(folder)?.into_iter().filter(|path| *path != own).collect();
        if anew {
            file.set_len(0).map_err(failed("write", &own))?;
            if shard == Shard::WHOLE {
                for other in &others {
                    std::fs::remove_file(other).map_err(failed("write", other))?;
                }
            }
        }
        let header = Header {
            schema: SCHEMA,
            kind: KIND.to_string(),
            sweep: sweep.hash().to_string(),
            made_by: made_by.to_string(),
            points: sweep.len(),
        };
        let mut results = Self {
            files: Vec::new(),
            end: 0,
            places: vec![None; sweep.len()],
            dropped: None,
        };
        let whole = results.take_in(own.clone(), file, &header)?;
        results.settle(whole, &header)?;
        for other in others.iter().filter(|_| !(anew && shard == Shard::WHOLE)) {
            let file = File::open(other).map_err(failed("read", other))?;
            results.take_in(other.clone(), file, &header)?;
        }
        Ok(results)
    }

    /// Reads a file's rows. Returns the length of its whole lines.
    fn take_in(&mut self, path: PathBuf, file: File, header: &Header) -> Result<u64, SweepError> {
        let number = self.files.len();
        let mut reader = BufReader::new(file.try_clone().map_err(failed("read", &path))?);
        let (mut offset, mut line, mut text) = (0u64, 0usize, Vec::new());
        loop {
            line += 1;
            text.clear();
            let read = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut text);
            let bytes = read.map_err(failed("read", &path))?;
            if text.last() != Some(&b'\n') {
                if bytes as u64 == LINE_MAX {
                    let why = "too long to be a sweep's".to_string();
                    return Err(SweepError::Line { path, line, why });
                }
                // The end, or a line that was not written to its end.
                break;
            }
            if line == 1 {
                check_header(&path, &text, header)?;
            } else {
                let row = read_row(&text, self.places.len());
                let row = row.map_err(|why| SweepError::Line {
                    path: path.clone(),
                    line,
                    why,
                })?;
                // The same point again is the same result.
                self.places[row.point].get_or_insert(Place {
                    file: number,
                    offset,
                    bytes,
                });
            }
            offset += bytes as u64;
        }
        self.files.push((path, file));
        Ok(offset)
    }

    /// Cuts off what follows the whole lines of our own file, and begins it where it is empty.
    fn settle(&mut self, whole: u64, header: &Header) -> Result<(), SweepError> {
        let path = self.files[0].0.clone();
        let cannot = failed("write", &path);
        let file = &self.files[0].1;
        let length = file.metadata().map_err(&cannot)?.len();
        if length > whole {
            file.set_len(whole).map_err(&cannot)?;
            self.dropped = Some(format!(
                "the last line of {} was not written to its end: dropped",
                path.display()
            ));
        }
        self.end = whole;
        if whole == 0 {
            let line = serde_json::to_vec(header).map_err(|e| cannot(e.into()))?;
            self.append(line)?;
            // So that the file is there after a crash as well.
            if let Some(folder) = path.parent() {
                let synced = File::open(folder).and_then(|folder| folder.sync_all());
                synced.map_err(failed("write", folder))?;
            }
        }
        Ok(())
    }

    fn append(&mut self, mut line: Vec<u8>) -> Result<(u64, usize), SweepError> {
        line.push(b'\n');
        let (path, file) = &self.files[0];
        let cannot = failed("write", path);
        file.write_all_at(&line, self.end).map_err(&cannot)?;
        file.sync_data().map_err(&cannot)?;
        let place = (self.end, line.len());
        self.end += line.len() as u64;
        Ok(place)
    }

    /// Keeps a row. When this returns it is on the disk.
    ///
    /// # Errors
    /// The disk is full, for example.
    pub fn add(&mut self, row: &Row) -> Result<(), SweepError> {
        let line = serde_json::to_vec(row).map_err(|e| failed("write", &self.files[0].0)(e.into()))?;
        let (offset, bytes) = self.append(line)?;
        if let Some(place) = self.places.get_mut(row.point) {
            *place = Some(Place { file: 0, offset, bytes });
        }
        Ok(())
    }

    /// Whether a point is done.
    #[must_use]
    pub fn has(&self, point: usize) -> bool {
        self.places.get(point).is_some_and(Option::is_some)
    }

    /// A point's row, read from the disk.
    ///
    /// # Errors
    /// It cannot be read, or is not what it was.
    pub fn row(&self, point: usize) -> Result<Option<Row>, SweepError> {
        let Some(place) = self.places.get(point).copied().flatten() else {
            return Ok(None);
        };
        let (path, file) = &self.files[place.file];
        let mut text = vec![0; place.bytes];
        file.read_exact_at(&mut text, place.offset)
            .map_err(failed("read", path))?;
        let row = read_row(&text, self.places.len()).map_err(|why| SweepError::Line {
            path: path.clone(),
            line: 0,
            why,
        })?;
        Ok(Some(row))
    }
}

fn check_header(path: &Path, text: &[u8], expected: &Header) -> Result<(), SweepError> {
    let found: Header = serde_json::from_slice(text).map_err(|e| SweepError::Line {
        path: path.to_path_buf(),
        line: 1,
        why: format!("not the first line of a sweep's results: {e}"),
    })?;
    let other = |why: String| {
        Err(SweepError::Other {
            path: path.to_path_buf(),
            why,
        })
    };
    if found.kind != expected.kind || found.schema != expected.schema {
        return other(format!("holds {} of schema {}", found.kind, found.schema));
    }
    if found.sweep != expected.sweep || found.points != expected.points {
        return other("holds results of another sweep: the file was changed".to_string());
    }
    if found.made_by != expected.made_by {
        return other(format!(
            "holds results of mega {}, and this is {}",
            found.made_by, expected.made_by
        ));
    }
    Ok(())
}

fn read_row(text: &[u8], points: usize) -> Result<Row, String> {
    let row: Row = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if row.point >= points {
        return Err(format!("point {} of {points}", row.point));
    }
    Ok(row)
}
