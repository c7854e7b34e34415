//! The record of an experiment: every run with its figures, where it was measured, and how. This is the format of `result.json`;
//! report and comparison are drawn from nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of this format.
pub const SCHEMA: u32 = 1;

/// One execution of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Always `bench`.
    pub kind: String,
    /// Which experiment.
    pub experiment: About,
    /// Where it ran.
    pub machine: Machine,
    /// How it ran.
    pub settings: Settings,
    /// What was measured, in the order in which it is shown.
    pub metrics: Vec<Metric>,
    /// What was run: workloads under conditions.
    pub cases: Vec<Case>,
    /// How memory was managed. The first is the baseline.
    pub variants: Vec<VariantInfo>,
    /// Every run, in the order in which they ran.
    pub runs: Vec<Run>,
    /// What the paper found.
    pub published: Vec<Published>,
    /// Why the experiment was ended before its last run, if it was.
    pub ended_early: Option<String>,
}

/// Which experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Its name: `mega-table3`.
    pub name: String,
    /// A one-line title.
    pub title: String,
    /// The question that it answers, in a sentence.
    pub question: String,
    /// Paper and table or figure: `MEGA (SYSTOR'19), Table 3`.
    pub source: Option<String>,
    /// The paper's size and ours, in words, with the factor.
    pub scale: Option<String>,
    /// What differs from the paper, in one sentence.
    pub differs: Option<String>,
}

/// Where it ran, without anything that identifies the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Under a hypervisor.
    pub virtual_machine: bool,
    /// THP settings before the experiment: file name and value.
    pub thp: BTreeMap<String, String>,
    /// Operating system, by /etc/os-release.
    pub system: String,
}

/// How it ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of mega.
    pub version: String,
    /// Commit it was built from, if known; a trailing `+`: with changes.
    pub commit: Option<String>,
    /// When it began, seconds since 1970, UTC.
    pub began_unix_s: u64,
    /// How long it took.
    pub seconds: f64,
    /// Rounds: each runs every variant of every case once, and begins with the next variant.
    pub rounds: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Processor of the program; clients, manager and sampler have the others. `None`: not pinned.
    pub program_cpu: Option<usize>,
    /// The command line that repeats it.
    pub command: String,
    /// The version of the rule by which rounds are excluded ([`crate::stats::exclusion`]). Older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusion_rule: Option<u32>,
}

/// The kernel of a simulated machine.
pub const SIMULATED: &str = "simulated";

impl Machine {
    /// It was simulated: the same seed gives the same figures, without noise.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.kernel == SIMULATED
    }
}

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better: throughput.
    Higher,
    /// Less is better: time, memory.
    Lower,
    /// Neither: huge pages, counters.
    Neither,
}

/// Unit of a value. Values are stored in the base unit and shown scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Operations per second.
    PerSecond,
    /// A count.
    Count,
    /// 0 to 1.
    Share,
    /// A plain ratio.
    Ratio,
}

/// One measured quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its name in [`Run::values`]: `ops_per_s`, `rss_bytes`, `fault_p99_ns`.
    pub name: String,
    /// Label: `operations/s`.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// Shown in the table on the terminal and compared; the others are in the report's details.
    pub main: bool,
}

/// A workload under a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Short name, unique in the record: `redis-del-50`.
    pub name: String,
    /// What runs, as a command line or in words.
    pub program: String,
    /// The state of the machine: `unfragmented`, `fragmented 90%`, `limit 4G`.
    pub condition: String,
}

/// How memory is managed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantInfo {
    /// As on the command line: `mega:uprom=30%`.
    pub name: String,
    /// What it does, in words.
    pub about: String,
    /// Settings it makes: file and value.
    pub knobs: BTreeMap<String, String>,
}

/// One run of one variant of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Index into [`Record::cases`].
    pub case: usize,
    /// Index into [`Record::variants`].
    pub variant: usize,
    /// From 0.
    pub round: usize,
    /// Seconds since the experiment began.
    pub began_s: f64,
    /// How long it took.
    pub seconds: f64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Figures by metric name, in the metric's base unit; without those that could not be measured.
    pub values: BTreeMap<String, f64>,
    /// Figures over time.
    pub series: Series,
    /// Start of each phase, seconds since the run began: `fill`, `serve`.
    pub phases: Vec<(f64, String)>,
    /// Latency distributions by name: `fault`, `request`.
    pub distributions: BTreeMap<String, Distribution>,
    /// Snapshots of physical memory, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
    /// Noise on the machine.
    pub noise: Noise,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "why")]
pub enum Outcome {
    /// It completed, and its program found its memory intact.
    Done,
    /// It failed: why, in one line.
    Failed(String),
    /// It could not be run here: why, in one line.
    Skipped(String),
}

/// Figures over time: one time axis, a column for each figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Seconds since the run began, ascending.
    pub seconds: Vec<f64>,
    /// By name (`rss_bytes`, `huge_bytes`, `ops_per_s`, `free_blocks`), as long as `seconds`; `None` where it could not be read.
    pub columns: BTreeMap<String, Vec<Option<f64>>>,
}

/// A latency distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Mean in ns.
    pub mean_ns: f64,
    /// Quantile (0 to 1) and value in ns, ascending; the last is the largest value, at 1.
    pub quantiles: Vec<(f64, f64)>,
}

/// A snapshot of physical memory: mean number of base pages in use per block, along physical addresses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// Which moment: `before`, `prepared`.
    pub moment: String,
    /// Blocks of 2 MB that one cell stands for.
    pub blocks_per_cell: u64,
    /// Number of the first block.
    pub first_block: u64,
    /// Cells by ascending address.
    pub cells: Vec<PictureCell>,
}

/// Base pages in use per block, 0 to 512: the mean over the blocks of a cell that have memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureCell {
    /// In huge pages.
    pub huge: u16,
    /// Movable, and pages on per-CPU lists.
    pub movable: u16,
    /// Unmovable: the kernel's own.
    pub unmovable: u16,
}

/// Noise on the machine during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Share of processor time stolen by the hypervisor.
    pub steal_share: Option<f64>,
    /// Processor time of unrelated processes, as a share of one processor.
    pub others_share: Option<f64>,
    /// Time of the reference workload on the program's processor, before and after the run.
    pub probe_ns: Option<(f64, f64)>,
    /// Clock in MHz before and after, if known.
    pub mhz: Option<(f64, f64)>,
    /// Why this run is doubtful, a line each; empty if it is not.
    pub doubtful: Vec<String>,
}

/// A figure from a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Name of our case, or `None` for all.
    pub case: Option<String>,
    /// The paper's name of the system: `Linux THP`, `Ingens`.
    pub system: String,
    /// The corresponding variant, if any.
    pub variant: Option<String>,
    /// Metric name.
    pub metric: String,
    /// In the metric's base unit.
    pub value: f64,
    /// Where it is published: `Table 3`, `section 5.2`.
    pub place: String,
}

impl Metric {
    /// A secondary metric.
    #[must_use]
    pub fn new(name: impl Into<String>, label: impl Into<String>, unit: Unit, better: Better) -> Self {
        Self {
            name: name.into(),
            label: label.into(),
            unit,
            better,
            main: false,
        }
    }
}

impl Record {
    /// The values of a metric in the completed runs of a variant of a case, with their rounds, by round.
    #[must_use]
    pub fn values(&self, case: usize, variant: usize, metric: &str) -> Vec<(usize, f64)> {
        let done = |run: &&Run| run.case == case && run.variant == variant && run.outcome == Outcome::Done;
        let value = |run: &Run| Some((run.round, *run.values.get(metric)?));
        let mut values: Vec<_> = self.runs.iter().filter(done).filter_map(value).collect();
        values.sort_by_key(|(round, _)| *round);
        values
    }

    /// Of several cases under one variant, the cases are what is compared: the same record with the cases as variants of one case. Any
    /// other record is returned as it is.
    #[must_use]
    pub fn by_what_differs(&self) -> Cow<'_, Self> {
        if self.variants.len() != 1 || self.cases.len() < 2 {
            return Cow::Borrowed(self);
        }
        let mut record = self.clone();
        let variant = record.variants.remove(0);
        record.variants = std::mem::take(&mut record.cases)
            .into_iter()
            .map(|case| VariantInfo {
                name: case.name,
                about: format!("{}; {}", case.program, case.condition),
                knobs: BTreeMap::new(),
            })
            .collect();
        record.cases = vec![Case {
            name: self.experiment.name.clone(),
            program: self.experiment.title.clone(),
            condition: format!("under {}", variant.name),
        }];
        for run in &mut record.runs {
            run.variant = std::mem::replace(&mut run.case, 0);
        }
        for published in &mut record.published {
            published.variant = published.case.take();
        }
        Cow::Owned(record)
    }

    /// The same without what only a report draws, to be kept in a repository.
    #[must_use]
    pub fn small(mut self) -> Self {
        for run in &mut self.runs {
            run.series = Series::default();
            run.distributions.clear();
            run.pictures.clear();
        }
        self
    }

    /// One round of simulated runs: figures are exact, and no statistical test applies.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.machine.is_simulated() && self.settings.rounds <= 1
    }

    /// The metrics that are shown first.
    pub fn main_metrics(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.iter().filter(|metric| metric.main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn cases_under_one_variant_become_the_variants_and_others_stay() {
        let record = synthetic::record(&Options {
            variants: 1,
            rounds: 2,
            ..Options::default()
        });
        assert!(record.cases.len() > 1);
        let turned = record.by_what_differs();
        let names = |record: &Record| record.cases.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let rows: Vec<_> = turned.variants.iter().map(|v| v.name.clone()).collect();
        assert_eq!((rows, turned.cases.len()), (names(&record), 1));
        let metric = &record.metrics[0].name;
        for case in 0..record.cases.len() {
            assert_eq!(turned.values(0, case, metric), record.values(case, 0, metric));
        }
        let several = synthetic::record(&Options::default());
        assert_eq!(*several.by_what_differs(), several);
    }
}
