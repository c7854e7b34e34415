//! Parts of a sweep that other machines run: shard i of n has the points i-1, i-1+n, i-1+2n …; its results are a file, and all files together
//! give what one machine would have given.
//!
//! A shard is a pure task: the same file each time, written whole or not at all. It has the sweep's own text in it, so that shards of
//! different sweeps are not merged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Row, Sweep, SweepError};
use crate::report::folder::readable_by_all;

/// A shard's file is no longer.
const MOST_BYTES: u64 = 1 << 30;
/// Shards of a sweep.
const MOST_SHARDS: usize = super::MOST_POINTS;

/// Which part: the `index`-th, from 1, of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// Of so many.
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, of)| {
            let (index, of) = (index.parse().ok()?, of.parse().ok()?);
            (1 <= index && index <= of && of <= MOST_SHARDS).then_some(Self { index, of })
        });
        parsed.ok_or_else(|| format!("expected I/N with I from 1 to N, and N at most {MOST_SHARDS}"))
    }
}

impl Shard {
    /// Its points of a sweep.
    pub fn points(self, sweep: &Sweep) -> impl Iterator<Item = usize> + Clone + Send {
        (self.index - 1..sweep.len()).step_by(self.of)
    }
}

/// A shard's file. Figures are texts: JSON readers may round the last digit.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: u32,
    kind: String,
    version: String,
    shard: Shard,
    sweep: String,
    rows: Vec<KeptRow>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptRow {
    point: usize,
    failed: Option<String>,
    values: BTreeMap<String, String>,
}

impl Kept {
    fn new(text: &str, shard: Shard, rows: &[Row]) -> Self {
        let rows = rows.iter().map(|row| KeptRow {
            point: row.point,
            failed: row.failed.clone(),
            values: row
                .values
                .iter()
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect(),
        });
        Self {
            schema: 1,
            kind: "sweep-shard".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            shard,
            sweep: text.to_owned(),
            rows: rows.collect(),
        }
    }

    /// Reads a file, and checks that it is whole.
    fn read(path: &Path) -> Result<Self, String> {
        let mut text = String::new();
        let file = File::open(path).map_err(|e| e.to_string())?;
        file.take(MOST_BYTES)
            .read_to_string(&mut text)
            .map_err(|e| e.to_string())?;
        let kept: Self = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        if (kept.schema, kept.kind.as_str()) != (1, "sweep-shard") {
            return Err("not a shard of a sweep".to_owned());
        }
        if kept.version != env!("CARGO_PKG_VERSION") {
            return Err(format!(
                "made by version {}, this is {}",
                kept.version,
                env!("CARGO_PKG_VERSION")
            ));
        }
        let Shard { index, of } = kept.shard;
        format!("{index}/{of}").parse::<Shard>()?;
        Ok(kept)
    }

    fn rows(&self, sweep: &Sweep) -> Result<Vec<Row>, String> {
        if !self.rows.iter().map(|row| row.point).eq(self.shard.points(sweep)) {
            return Err("its points are not those of its shard".to_owned());
        }
        let value = |(name, text): (&String, &String)| {
            let value: Option<f64> = text.parse().ok().filter(|value: &f64| value.is_finite());
            value
                .map(|value| (name.clone(), value))
                .ok_or_else(|| format!("{name}: '{text}' is no number"))
        };
        let row = |row: &KeptRow| {
            Ok(Row {
                point: row.point,
                failed: row.failed.clone(),
                values: row.values.iter().map(value).collect::<Result<_, String>>()?,
            })
        };
        self.rows.iter().map(row).collect()
    }
}

/// Whether this file has this shard of this sweep already.
#[must_use]
pub fn is_done(path: &Path, text: &str, shard: Shard) -> bool {
    Kept::read(path).is_ok_and(|kept| kept.sweep == text && kept.shard == shard)
}

/// Writes a shard's file, whole or not at all.
///
/// # Errors
/// It cannot be written.
pub fn save(path: &Path, text: &str, shard: Shard, rows: &[Row]) -> Result<(), SweepError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = || -> io::Result<()> {
        let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        serde_json::to_writer(&mut file, &Kept::new(text, shard, rows))?;
        file.write_all(b"\n")?;
        readable_by_all(file.as_file())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| SweepError::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// The sweep and all its rows from the files of all its shards, in any order; the same shard may be there twice.
///
/// # Errors
/// A file that is no shard, shards of different sweeps, and which shards are missing.
pub fn merge<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(Sweep, Vec<Row>), SweepError> {
    let mut first: Option<(&Path, Kept, Sweep)> = None;
    let mut shards: BTreeMap<usize, Vec<Row>> = BTreeMap::new();
    for path in paths {
        let wrong = |why: String| SweepError::Shard {
            path: path.to_path_buf(),
            why,
        };
        let kept = Kept::read(path).map_err(wrong)?;
        let sweep = match &first {
            None => Sweep::from_json(&kept.sweep)?,
            Some((_, one, sweep)) if one.sweep == kept.sweep && one.shard.of == kept.shard.of => sweep.clone(),
            Some((other, ..)) => {
                return Err(wrong(format!(
                    "of another sweep, or number of shards, than {}",
                    other.display()
                )))
            }
        };
        let rows = kept.rows(&sweep).map_err(wrong)?;
        if shards.get(&kept.shard.index).is_some_and(|twice| *twice != rows) {
            return Err(wrong(format!(
                "another file has other results of shard {}",
                kept.shard.index
            )));
        }
        shards.insert(kept.shard.index, rows);
        first.get_or_insert((path, kept, sweep));
    }
    let Some((_, kept, sweep)) = first else {
        return Err(SweepError::Missing("no file".to_owned()));
    };
    let missing: Vec<_> = (1..=kept.shard.of)
        .filter(|index| !shards.contains_key(index))
        .collect();
    if !missing.is_empty() {
        let named: Vec<_> = missing.iter().take(20).map(ToString::to_string).collect();
        let more = if missing.len() > 20 { " ..." } else { "" };
        let why = format!("{} of {}: {}{more}", missing.len(), kept.shard.of, named.join(", "));
        return Err(SweepError::Missing(why));
    }
    let mut rows: Vec<Row> = shards.into_values().flatten().collect();
    rows.sort_by_key(|row| row.point);
    Ok((sweep, rows))
}
