//! Which files make up the configuration.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::place::{Place, Problem};

/// The folders, the strongest first.
const FOLDERS: [&str; 3] = ["etc/mega", "run/mega", "usr/lib/mega"];
const FILE_BYTES: u64 = 256 << 10;
const FILES_MAX: usize = 256;

/// Where a configuration comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// This file alone.
    File(PathBuf),
    /// The system's folders below this root.
    System(PathBuf),
}

/// A file's text.
#[derive(Debug)]
pub struct Text {
    /// Its path.
    pub path: PathBuf,
    /// What it has.
    pub text: String,
}

/// The main file, if any, then the drop-ins by name.
///
/// # Errors
/// A file cannot be read, is too long, or is no text.
pub fn texts(source: &Source) -> Result<(Option<Text>, Vec<Text>), Problem> {
    let root = match source {
        Source::File(path) => return Ok((Some(read(path)?), Vec::new())),
        Source::System(root) => root,
    };
    let main = FOLDERS
        .iter()
        .map(|folder| root.join(folder).join("mega.toml"))
        .find(|path| path.exists());
    let main = main.map(|path| read(&path)).transpose()?;
    let mut found: BTreeMap<_, PathBuf> = BTreeMap::new();
    for folder in FOLDERS.iter().map(|folder| root.join(folder).join("mega.d")) {
        let wrong = |error: &io::Error| Problem {
            place: Place::whole(&folder),
            text: format!("cannot list: {error}"),
        };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(wrong(&error)),
        };
        for entry in entries {
            let path = entry.map_err(|error| wrong(&error))?.path();
            if path.extension().is_some_and(|end| end == "toml") {
                let name = path.file_name().map(ToOwned::to_owned);
                found.entry(name).or_insert(path);
            }
        }
        if found.len() > FILES_MAX {
            return Err(Problem {
                place: Place::whole(&folder),
                text: format!("more than {FILES_MAX} files"),
            });
        }
    }
    let drop_ins = found.into_values().map(|path| read(&path)).collect::<Result<_, _>>()?;
    Ok((main, drop_ins))
}

fn read(path: &Path) -> Result<Text, Problem> {
    let wrong = |text: String| Problem {
        place: Place::whole(path),
        text,
    };
    // A pipe or a disk would hold up the daemon; /dev/null masks.
    let kind = fs::metadata(path)
        .map_err(|error| wrong(format!("cannot read: {error}")))?
        .file_type();
    if !kind.is_file() && fs::canonicalize(path).is_ok_and(|path| path != Path::new("/dev/null")) {
        return Err(wrong("not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| wrong(format!("cannot read: {error}")))?;
    file.take(FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(format!("cannot read: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(wrong(format!("longer than {} KB", FILE_BYTES >> 10)));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Text {
            path: path.to_owned(),
            text,
        }),
        Err(error) => {
            let good = String::from_utf8_lossy(error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or(&[]))
                .into_owned();
            Err(Problem {
                place: Place::of(path, &good, good.len()),
                text: "not UTF-8".to_owned(),
            })
        }
    }
}
