//! Results on disk: a folder for each experiment with `result.json` and `report.html`. Files are replaced
//! atomically: written beside their place and renamed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::NamedTempFile;
use thiserror::Error;

use super::check::{check, CheckError};
use super::html;

use super::scale::civil;
use crate::result::{Record, SCHEMA};

/// The record of an experiment.
pub const RESULT: &str = "result.json";

/// Its tables in Markdown, beside what was published (`mega sim NAME`).
pub const TABLE: &str = "table.md";

/// The page drawn from it.
pub const REPORT: &str = "report.html";

/// Why results cannot be kept or read.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The name would leave the folder.
    #[error("{0:?} cannot be the name of a results folder")]
    Name(String),
    /// The file system has no room.
    #[error("no space left for {}; earlier files are intact", path.display())]
    Full {
        /// What was being written.
        path: PathBuf,
    },
    /// It could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// What was being written.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// It could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What was being read.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// It is not the JSON of a record: the message has line, column and field.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It has another schema.
    #[error("{}: schema {found}; this mega reads schema {SCHEMA}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema in it.
        found: u64,
    },
    /// It is inconsistent.
    #[error("{}: {source}", path.display())]
    Check {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CheckError,
    },
}

/// The results folder of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes `NAME-YYYYMMDD-HHMMSS` (UTC) in `parent`, and `parent` when it is not there. When there is one of that second
    /// already, `-2` follows, and so on.
    ///
    /// # Errors
    /// When it cannot be made, or `name` has more than letters, digits, `-`, `_` and `.`.
    pub fn create(parent: &Path, name: &str, began_unix_s: u64) -> Result<Self, FolderError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(FolderError::Name(name.to_string()));
        }
        fs::create_dir_all(parent).map_err(|e| cannot_write(parent, e))?;
        let [year, month, day, hour, minute, second] = civil(began_unix_s);
        let name = format!("{name}-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
        let mut path = parent.join(&name);
        let mut number = 2;
        loop {
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    path = parent.join(format!("{name}-{number}"));
                    number += 1;
                }
                Err(e) => return Err(cannot_write(&path, e)),
            }
        }
    }

    /// An existing folder of any name.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `result.json`. Call it after each run: an experiment that ends early leaves what it has. Non-finite figures
    /// are omitted, as the format requires.
    ///
    /// # Errors
    /// When the record is inconsistent or cannot be written; the earlier file is then still there.
    pub fn save(&self, record: &Record) -> Result<(), FolderError> {
        let path = self.path.join(RESULT);
        let mut record = record.clone();
        for run in &mut record.runs {
            run.values.retain(|_, value| value.is_finite());
        }
        check(&record).map_err(|source| FolderError::Check {
            path: path.clone(),
            source,
        })?;
        let mut json = serde_json::to_vec(&record).map_err(|source| FolderError::Json {
            path: path.clone(),
            source,
        })?;
        json.push(b'\n');
        write_whole(&path, &json)
    }

    /// Draws `report.html` from `record`, and says where it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_report(&self, record: &Record) -> Result<PathBuf, FolderError> {
        let path = self.path.join(REPORT);
        write_whole(&path, html::page(record).as_bytes())?;
        Ok(path)
    }

    /// Writes `table.md`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_table(&self, markdown: &str) -> Result<(), FolderError> {
        write_whole(&self.path.join(TABLE), markdown.as_bytes())
    }
}

/// The newest folder of a name below this one: each ends with the time at which its run began.
///
/// # Errors
/// When the folder cannot be read.
pub fn newest(parent: &Path, name: &str) -> std::io::Result<Option<PathBuf>> {
    let begins = format!("{name}-2");
    let paths = std::fs::read_dir(parent)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&begins))
    };
    Ok(paths.filter(named).max())
}

/// Reads a record: `path` is a results folder or a file like its `result.json`.
///
/// # Errors
/// When it cannot be read, has another schema, or is inconsistent.
pub fn read(path: &Path) -> Result<Record, FolderError> {
    let path = if path.is_dir() {
        path.join(RESULT)
    } else {
        path.to_path_buf()
    };
    let bytes = fs::read(&path).map_err(|source| FolderError::Read {
        path: path.clone(),
        source,
    })?;
    /// What every version has.
    #[derive(Deserialize)]
    struct Head {
        schema: u64,
    }
    let json = |source| FolderError::Json {
        path: path.clone(),
        source,
    };
    let head: Head = serde_json::from_slice(&bytes).map_err(json)?;
    if head.schema != u64::from(SCHEMA) {
        return Err(FolderError::Schema {
            path,
            found: head.schema,
        });
    }
    let record = match serde_json::from_slice(&bytes) {
        Ok(record) => record,
        Err(source) => printed(&bytes).ok_or_else(|| json(source))?,
    };
    match check(&record) {
        Ok(()) => Ok(record),
        Err(source) => Err(FolderError::Check { path, source }),
    }
}

/// A record as `--json` prints it, with its comparison.
fn printed(bytes: &[u8]) -> Option<Record> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    value.as_object_mut()?.remove("comparison")?;
    serde_json::from_value(value).ok()
}

/// Writes `bytes` to `path` atomically.
///
/// # Errors
/// When it cannot be written; an earlier file then stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        readable_by_all(file.as_file())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|e| cannot_write(path, e))
}

/// Keeps a small record, fit for a repository, as NAME.json in `folder`.
///
/// # Errors
/// When it cannot be written.
pub fn keep(folder: &Path, name: &str, record: &Record) -> Result<(), FolderError> {
    fs::create_dir_all(folder).map_err(|e| cannot_write(folder, e))?;
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string(&record.clone().small()).map_err(|e| cannot_write(&path, e.into()))?;
    write_whole(&path, (text + "\n").as_bytes())
}

/// Temporary files are private; results written with sudo should be readable by all.
pub(crate) fn readable_by_all(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

fn cannot_write(path: &Path, source: io::Error) -> FolderError {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FolderError::Full { path },
        _ => FolderError::Write { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(&parent.path().join("results"), "redis-bloat", 1_795_260_498).unwrap();
        (parent, folder)
    }

    #[test]
    fn a_folder_is_named_for_its_experiment_and_its_second() {
        let (_parent, folder) = folder();
        assert!(folder.path().ends_with("results/redis-bloat-20261121-112818"));
        let again = Folder::create(folder.path().parent().unwrap(), "redis-bloat", 1_795_260_498).unwrap();
        assert!(again.path().ends_with("redis-bloat-20261121-112818-2"));
        for name in ["", "../up", "a/b", ".hidden", "a b"] {
            let refused = Folder::create(folder.path(), name, 0).unwrap_err();
            assert!(matches!(refused, FolderError::Name(_)), "{name:?}");
        }
    }

    #[test]
    fn what_is_saved_is_read_back_the_same_from_the_folder_and_from_the_file() {
        let (_parent, folder) = folder();
        let mut record = synthetic::record(&Options {
            troubled: true,
            ..Options::default()
        });
        // Only numbers that JSON has exactly.
        let rounded = |v: &mut f64| *v = v.round();
        for run in &mut record.runs {
            run.values.values_mut().for_each(rounded);
            run.series.columns.values_mut().flatten().flatten().for_each(rounded);
            run.distributions
                .values_mut()
                .for_each(|d| d.quantiles.iter_mut().for_each(|(_, ns)| rounded(ns)));
        }
        folder.save(&record).unwrap();
        assert_eq!(read(folder.path()).unwrap(), record);
        assert_eq!(read(&folder.path().join(RESULT)).unwrap(), record);
        assert!(folder.save_report(&record).unwrap().is_file());
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
    }

    #[test]
    fn an_experiment_in_progress_is_saved_run_by_run_and_what_is_not_a_number_is_left_out() {
        let (_parent, folder) = folder();
        let whole = synthetic::record(&Options::default());
        let mut partial = whole.clone();
        partial.runs.clear();
        for run in &whole.runs[..3] {
            partial.runs.push(run.clone());
            partial
                .runs
                .last_mut()
                .unwrap()
                .values
                .insert("ops_per_s".into(), f64::NAN);
            folder.save(&partial).unwrap();
            let back = read(folder.path()).unwrap();
            assert_eq!(back.runs.len(), partial.runs.len());
            assert!(!back.runs[0].values.contains_key("ops_per_s"));
        }
        partial.ended_early = Some("interrupted".into());
        folder.save(&partial).unwrap();
        assert_eq!(read(folder.path()).unwrap().ended_early.as_deref(), Some("interrupted"));
    }

    #[test]
    fn a_failed_save_leaves_the_earlier_file_as_it_was() {
        let (_parent, folder) = folder();
        let record = synthetic::record(&Options::default());
        folder.save(&record).unwrap();
        let before = fs::read(folder.path().join(RESULT)).unwrap();
        let mut broken = record.clone();
        broken.runs[0].case = 99;
        let error = folder.save(&broken).unwrap_err();
        assert!(
            error.to_string().contains("runs[0].case: is 99, but there are 2"),
            "{error}"
        );
        assert_eq!(fs::read(folder.path().join(RESULT)).unwrap(), before);
    }

    #[test]
    fn a_full_disk_is_one_clear_error() {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .write_all(b"x")
            .unwrap_err();
        let text = cannot_write(Path::new("/results/result.json"), full).to_string();
        assert_eq!(text, "no space left for /results/result.json; earlier files are intact");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_name_and_place() {
        let (_parent, folder) = folder();
        let path = folder.path().join(RESULT);
        let error_of = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err().to_string()
        };
        assert!(read(&path).unwrap_err().to_string().starts_with("cannot read /"));
        assert!(error_of("{\"schema\": 1,\n oops}").contains("result.json: key must be a string at line 2 column 2"));
        assert!(error_of("{\"kind\": \"bench\"}").contains("missing field `schema`"));
        assert!(error_of("{\"schema\": 7}").ends_with("result.json: schema 7; this mega reads schema 1"));
        let mut json = serde_json::to_value(synthetic::record(&Options::default())).unwrap();
        json["surprise"] = 1.into();
        assert!(error_of(&json.to_string()).contains("unknown field `surprise`"));
        json.as_object_mut().unwrap().remove("surprise");
        json["runs"][2]["variant"] = 77.into();
        assert!(error_of(&json.to_string()).contains("result.json: runs[2].variant: is 77, but there are 4"));
    }
}
