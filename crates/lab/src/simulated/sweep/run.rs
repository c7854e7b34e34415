//! Running a sweep: all its points on several threads, then its table and, where it is complete, its record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mega_sim::scenario::Silent;

use super::record::record;
use super::{csv, Sweep, SweepError};
use crate::result::{Outcome, Record};
use crate::simulated::figures;
use crate::simulated::parallel::{self, Told};

/// How to run it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder for the results.
    pub folder: PathBuf,
    /// Points that run at once.
    pub threads: usize,
    /// The command line, for the report.
    pub command: String,
}

/// Progress of a sweep.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A point begins.
    Begins {
        /// The point.
        label: &'a str,
    },
    /// A point has ended.
    Ended {
        /// Points done.
        done: usize,
        /// Of so many.
        of: usize,
        /// The point.
        label: &'a str,
        /// Why a program of it failed.
        failed: Option<&'a str>,
        /// Estimated time for the others.
        left: Duration,
    },
}

/// A finished point.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its number.
    pub point: usize,
    /// Why a program failed.
    pub failed: Option<String>,
    /// Figures by metric name.
    pub values: BTreeMap<String, f64>,
}

/// Result of a sweep.
#[derive(Debug)]
pub struct Done {
    /// Points done.
    pub done: usize,
    /// Of so many.
    pub of: usize,
    /// It was stopped.
    pub stopped: bool,
    /// Points at which the simulator itself failed: in words, and a scenario that repeats it.
    pub broken: Vec<(String, PathBuf)>,
    /// The table of the points that are done.
    pub csv: PathBuf,
    /// Of a complete sweep that is not too long: everything as a record.
    pub record: Option<Record>,
}

/// A longer sweep has no record and no report: a table is the better view of it.
const MOST_REPORTED: usize = 5000;

/// Points that were run.
#[derive(Debug, Default)]
pub struct Points {
    /// In the order of their numbers.
    pub rows: Vec<Row>,
    /// As [`Done::broken`].
    pub broken: Vec<(String, PathBuf)>,
}

fn cannot_write(path: &Path) -> impl FnOnce(std::io::Error) -> SweepError {
    let path = path.to_path_buf();
    move |source| SweepError::Write { path, source }
}

/// Runs every point. When `stop` is set, those under way are finished and the table has what is done.
///
/// # Errors
/// Results that cannot be written.
pub fn run(
    sweep: &Sweep,
    options: &Options,
    stop: &AtomicBool,
    tell: impl FnMut(&Progress<'_>),
) -> Result<Done, SweepError> {
    let points = points(sweep, 0..sweep.len(), options, stop, tell)?;
    let mut done = all_of(sweep, points, options)?;
    done.stopped = done.done + done.broken.len() < done.of && stop.load(Relaxed);
    Ok(done)
}

/// Runs the points of these numbers.
///
/// # Errors
/// The folder, or the scenario of a point at which the simulator failed, cannot be written.
pub fn points(
    sweep: &Sweep,
    which: impl Iterator<Item = usize> + Clone + Send,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl FnMut(&Progress<'_>),
) -> Result<Points, SweepError> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder).map_err(cannot_write(folder))?;
    let of = which.clone().count();
    let began = Instant::now();
    let mut points = Points::default();
    let work = |index: usize| row_of(sweep, index);
    parallel::each(which, options.threads, stop, work, |told| {
        match told {
            Told::Begins(index) => {
                let label = sweep.label(sweep.point(index));
                tell(&Progress::Begins { label: &label });
            }
            Told::Ended(index, Err(why)) => {
                // The simulator panicked: the scenario is kept, so that it can be run alone.
                let point = sweep.point(index);
                let path = folder.join(format!("broken-{index}.json"));
                std::fs::write(&path, sweep.scenario(point).to_json()).map_err(cannot_write(&path))?;
                let why = format!("point {index} ({}): {why}", sweep.label(point));
                points.broken.push((why, path));
            }
            Told::Ended(index, Ok(row)) => {
                let done = points.rows.len() + 1;
                let each = began.elapsed().div_f64(done as f64);
                tell(&Progress::Ended {
                    done,
                    of,
                    label: &sweep.label(sweep.point(index)),
                    failed: row.failed.as_deref(),
                    left: each.mul_f64((of - done) as f64),
                });
                points.rows.push(row);
            }
        }
        Ok(())
    })?;
    points.rows.sort_by_key(|row| row.point);
    Ok(points)
}

/// Writes the table of these points, and makes the record where they are all.
///
/// # Errors
/// The table cannot be written.
pub fn all_of(sweep: &Sweep, points: Points, options: &Options) -> Result<Done, SweepError> {
    let Points { rows, broken } = points;
    let (done, of) = (rows.len(), sweep.len());
    std::fs::create_dir_all(&options.folder).map_err(cannot_write(&options.folder))?;
    let csv = options.folder.join("points.csv");
    csv::write(sweep, &rows, &csv).map_err(cannot_write(&csv))?;
    let is_reported = done == of && of <= MOST_REPORTED;
    Ok(Done {
        done,
        of,
        stopped: false,
        broken,
        csv,
        record: is_reported.then(|| record(sweep, rows, &options.command)),
    })
}

fn row_of(sweep: &Sweep, index: usize) -> Row {
    let scenario = sweep.scenario(sweep.point(index));
    let run = match scenario.run(&mut Silent) {
        Ok(outcome) => figures::run_of(&outcome, 0, 0, 0),
        // Every combination was checked; an error is the point's result.
        Err(error) => figures::failed_run(error.to_string(), 0, 0, 0),
    };
    let mut values = run.values;
    values.retain(|_, value| value.is_finite());
    Row {
        point: index,
        failed: match run.outcome {
            Outcome::Failed(why) | Outcome::Skipped(why) => Some(why),
            Outcome::Done => None,
        },
        values,
    }
}
