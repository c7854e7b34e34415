//! Running a sweep: what is not done yet, on all processors; then its table, and where the whole is done its report.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mega_sim::scenario::Silent;
use tempfile::NamedTempFile;

use super::pool::{self, Told};
use super::{axes, Column, Point, Results, Row, Shard, Sweep, SweepError, Table, Values};
use crate::result::{About, Case, Metric, Outcome, Record};
use crate::simulated::figures;

/// How to run it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where results are kept.
    pub folder: PathBuf,
    /// Which points.
    pub shard: Shard,
    /// Points that are run at once.
    pub threads: usize,
    /// Throw away what is there.
    pub anew: bool,
    /// Who runs it, with version and commit: results of different ones are not mixed.
    pub made_by: String,
    /// The command line, for the report.
    pub command: String,
}

/// What goes on, for whoever shows it.
#[derive(Debug)]
pub enum Progress<'a> {
    /// So many of the shard's points are done already.
    Resumes {
        /// Points done.
        done: usize,
        /// Of so many.
        of: usize,
    },
    /// Something that the user should know.
    Notice(&'a str),
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
        /// About how long the others take.
        left: Duration,
    },
}

/// What a sweep left.
#[derive(Debug)]
pub struct Done {
    /// Points done, of the shard.
    pub done: usize,
    /// Of so many.
    pub of: usize,
    /// It was stopped.
    pub stopped: bool,
    /// Points at which the simulator itself failed: in words, and a scenario that repeats it.
    pub broken: Vec<(String, PathBuf)>,
    /// The table.
    pub csv: PathBuf,
    /// Of a whole sweep that is done and not too long: everything as a record.
    pub record: Option<Record>,
}

/// Rows of a piece of the table.
const PIECE: usize = 4096;
/// A longer sweep has no report: a table is the better view of it.
const MOST_REPORTED: usize = 5000;

/// Runs a sweep's points that are not done yet, and writes what there is.
///
/// # Errors
/// Results that cannot be kept or do not belong to it.
pub fn run(
    sweep: &Sweep,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl FnMut(&Progress<'_>),
) -> Result<Done, SweepError> {
    let shard = options.shard;
    let mut results = Results::open(&options.folder, sweep, shard, &options.made_by, options.anew)?;
    if let Some(dropped) = &results.dropped {
        tell(&Progress::Notice(dropped));
    }
    let ours: Vec<usize> = (0..sweep.len()).filter(|index| shard.has(*index)).collect();
    let todo: Vec<usize> = ours.iter().copied().filter(|index| !results.has(*index)).collect();
    let (of, before) = (ours.len(), ours.len() - todo.len());
    tell(&Progress::Resumes { done: before, of });
    let began = Instant::now();
    let (mut done, mut broken) = (before, Vec::new());
    let work = |index: usize| row_of(sweep, index);
    pool::each(
        todo.into_iter(),
        options.threads,
        stop,
        work,
        |told| -> Result<(), SweepError> {
            match told {
                Told::Begins(index) => {
                    let label = sweep.label(sweep.point(index));
                    tell(&Progress::Begins { label: &label });
                }
                Told::Ended(index, Err(why)) => broken.push(keep_broken(sweep, index, &why, &options.folder)?),
                Told::Ended(index, Ok(row)) => {
                    results.add(&row)?;
                    done += 1;
                    let left = began
                        .elapsed()
                        .div_f64((done - before) as f64)
                        .mul_f64((of - done) as f64);
                    let label = sweep.label(sweep.point(index));
                    tell(&Progress::Ended {
                        done,
                        of,
                        label: &label,
                        failed: row.failed.as_deref(),
                        left,
                    });
                }
            }
            Ok(())
        },
    )?;
    let csv = options.folder.join(match shard {
        Shard::WHOLE => "points.csv".to_string(),
        Shard { number, of } => format!("points-{number}-of-{of}.csv"),
    });
    write_csv(sweep, &results, &ours, &csv)?;
    let whole = shard == Shard::WHOLE && done == of && of <= MOST_REPORTED;
    let record = whole.then(|| record(sweep, &results, options)).transpose()?;
    Ok(Done {
        done,
        of,
        stopped: done + broken.len() < of && stop.load(Relaxed),
        broken,
        csv,
        record,
    })
}

fn row_of(sweep: &Sweep, index: usize) -> Row {
    let scenario = sweep.scenario(sweep.point(index));
    let run = match scenario.run(&mut Silent) {
        Ok(outcome) => figures::run_of(&outcome, 0, 0, 0),
        // Every combination was checked; whatever this is, it is the point's result.
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

/// The simulator panicked: the scenario is kept, so that it can be run alone.
fn keep_broken(sweep: &Sweep, index: usize, why: &str, folder: &Path) -> Result<(String, PathBuf), SweepError> {
    let point = sweep.point(index);
    let path = folder.join(format!("broken-{index}.json"));
    std::fs::write(&path, sweep.scenario(point).to_json()).map_err(|source| SweepError::File {
        doing: "write",
        path: path.clone(),
        source,
    })?;
    Ok((format!("point {index} ({}): {why}", sweep.label(point)), path))
}

/// The metrics that a sweep's programs can have: its columns, whatever came out.
fn columns(sweep: &Sweep) -> Vec<Metric> {
    let (ours, all) = (sweep.programs(), figures::metrics());
    all.into_iter()
        .filter(|metric| figures::is_metric_of(&metric.name, &ours))
        .collect()
}

/// A piece of the table: these points, those of them that are done.
fn piece(sweep: &Sweep, results: &Results, metrics: &[Metric], points: &[usize]) -> Result<Table, SweepError> {
    let mut rows: Vec<(Point, Row)> = Vec::new();
    for index in points {
        if let Some(row) = results.row(*index)? {
            rows.push((sweep.point(*index), row));
        }
    }
    let text = |name: &str, of: &dyn Fn(Point, &Row) -> Option<String>| {
        Column::new(
            name,
            Values::Text(rows.iter().map(|(point, row)| of(*point, row)).collect()),
        )
    };
    let whole = |name: &str, of: &dyn Fn(Point) -> u64| {
        Column::new(
            name,
            Values::Whole(rows.iter().map(|(point, _)| Some(of(*point))).collect()),
        )
    };
    let mut columns = vec![
        whole("point", &|point| point.index as u64),
        text("workload", &|point, _| {
            Some(sweep.workloads[point.workload].name.clone())
        }),
        whole("memory_bytes", &|point| sweep.memory[point.memory].0),
        text("fragment", &|point, _| {
            Some(axes::fragment_text(sweep.fragment[point.fragment]))
        }),
        whole("seed", &|point| sweep.seeds[point.seed]),
        text("system", &|point, _| Some(sweep.systems[point.system].to_string())),
        text("failed", &|_, row| row.failed.clone()),
    ];
    for metric in metrics {
        let values = rows.iter().map(|(_, row)| row.values.get(&metric.name).copied());
        columns.push(Column::new(metric.name.clone(), Values::Number(values.collect())));
    }
    Ok(Table { columns })
}

fn write_csv(sweep: &Sweep, results: &Results, points: &[usize], path: &Path) -> Result<(), SweepError> {
    let metrics = columns(sweep);
    let cannot = |source| SweepError::File {
        doing: "write",
        path: path.to_path_buf(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = NamedTempFile::new_in(folder).map_err(cannot)?;
    let mut out = BufWriter::new(file);
    piece(sweep, results, &metrics, &[])?
        .write_csv_header(&mut out)
        .map_err(cannot)?;
    for points in points.chunks(PIECE) {
        piece(sweep, results, &metrics, points)?
            .write_csv(&mut out)
            .map_err(cannot)?;
    }
    out.flush().map_err(cannot)?;
    let file = out.into_inner().map_err(|e| cannot(e.into_error()))?;
    crate::report::folder::readable_by_all(file.as_file()).map_err(cannot)?;
    file.as_file().sync_all().map_err(cannot)?;
    file.persist(path).map_err(|e| cannot(e.error))?;
    Ok(())
}

/// The whole sweep as a record: a case for each workload, size and state, a round for each seed.
fn record(sweep: &Sweep, results: &Results, options: &Options) -> Result<Record, SweepError> {
    let [workloads, memory, fragments, _, _] = sweep.sizes();
    let mut cases = Vec::new();
    for workload in 0..workloads {
        for memory in 0..memory {
            for fragment in 0..fragments {
                let (of, size) = (&sweep.workloads[workload], sweep.memory[memory]);
                let fragment = sweep.fragment[fragment];
                cases.push(Case {
                    name: format!("{} {size} {}", of.name, axes::fragment_text(fragment)),
                    program: of.describe(),
                    condition: format!("{size} of memory, {}", figures::condition(fragment)),
                });
            }
        }
    }
    let mut runs = Vec::new();
    for index in 0..sweep.len() {
        let point = sweep.point(index);
        let case = (point.workload * memory + point.memory) * fragments + point.fragment;
        let Some(row) = results.row(index)? else { continue };
        let mut run = figures::run_of_nothing(case, point.system, point.seed);
        run.values = row.values;
        run.outcome = row.failed.map_or(Outcome::Done, Outcome::Failed);
        runs.push(run);
    }
    // Sizes that look the same to people may differ.
    let mut names = BTreeSet::new();
    for (i, case) in cases.iter_mut().enumerate() {
        if !names.insert(case.name.clone()) {
            case.name += &format!(" ({i})");
        }
    }
    let mut machine = figures::machine(&sweep.base.machine);
    machine.memory_bytes = sweep.memory.iter().map(|bytes| bytes.0).max().unwrap_or(0);
    Ok(figures::record(figures::Parts {
        about: About {
            name: "sweep".to_string(),
            title: format!("A sweep of {} simulated runs", sweep.len()),
            question: String::new(),
            source: None,
            scale: None,
            differs: None,
        },
        machine,
        cases,
        variants: sweep.systems.iter().map(figures::variant).collect(),
        runs,
        published: Vec::new(),
        main: figures::main_metrics(&sweep.programs()),
        rounds: sweep.seeds.len(),
        seed: sweep.seeds[0],
        command: options.command.clone(),
    }))
}
