//! What a comparison is made of: cases, figures, variants, each against the first.

use serde::Serialize;

use crate::result::{Better, Unit};
use crate::stats::exclusion::Rounds;
use crate::stats::{range_holds, rounds_needed, Interval, Paired, Verdict};

/// Summary of a record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this format.
    pub schema: u32,
    /// Always `bench-comparison`.
    pub kind: &'static str,
    /// Name of the experiment.
    pub experiment: String,
    /// The baseline variant.
    pub base: Option<String>,
    /// The experiment was ended before its last run, by whom or what.
    pub ended_early: Option<String>,
    /// What came out, in one sentence.
    pub verdict: String,
    /// How the verdicts were reached.
    pub tests: Tests,
    /// Every case of the record.
    pub cases: Vec<CaseComparison>,
}

/// How the verdicts were reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tests {
    /// The test of a comparison.
    pub test: &'static str,
    /// The correction for their number.
    pub correction: &'static str,
    /// The probability of one false verdict or more on the page.
    pub level: f64,
    /// Number of comparisons in the family.
    pub comparisons: usize,
    /// Rounds below which none of so many can be significant.
    pub rounds_needed: usize,
    /// The version of the rule by which rounds were excluded.
    pub exclusion_rule: u32,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseComparison {
    /// Name of the case.
    pub case: String,
    /// The state of the machine.
    pub condition: String,
    /// The finding, in a sentence.
    pub sentence: String,
    /// Outcomes of the runs, by variant.
    pub runs: Vec<RunCounts>,
    /// The main metrics.
    pub metrics: Vec<MetricComparison>,
}

/// Outcomes of the runs of a variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunCounts {
    /// Name of the variant.
    pub variant: String,
    /// Completed runs, doubtful ones included.
    pub done: usize,
    /// Of these, runs on a noisy machine.
    pub doubtful: usize,
    /// Failed runs.
    pub failed: usize,
    /// Skipped runs.
    pub skipped: usize,
}

/// One metric of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// Its name.
    pub metric: String,
    /// Its label.
    pub label: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// Every variant of the record, in its order.
    pub variants: Vec<Cell>,
}

/// One metric of one variant of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Name of the variant.
    pub variant: String,
    /// Number of values.
    pub rounds: usize,
    /// Of these, how many come from doubtful runs.
    pub doubtful: usize,
    /// Median in the base unit; `None` without a value.
    pub median: Option<f64>,
    /// 95 % interval of the median; `None` for fewer than two values.
    pub interval: Option<Interval>,
    /// Against the first variant; `None` for the first itself and without a round in which both have a value.
    pub against_first: Option<Against>,
}

/// One variant against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Against {
    /// The ratio and the test.
    #[serde(flatten)]
    pub paired: Paired,
    /// The rounds behind them.
    pub counted: Rounds,
    /// The ratio again, without the rounds in which either run is doubtful; `None` where that leaves none.
    pub without_doubtful: Option<WithoutDoubtful>,
    /// The first variant again: the ratio shows what the measurement alone does.
    pub a_a: bool,
    /// The p-value corrected for the number of comparisons; `None` for what is not tested.
    pub p_holm: Option<f64>,
    /// The verdict; `None` for what is not tested, and when neither direction is better. That of an A/A comparison stands alone.
    pub verdict: Option<Verdict>,
    /// Both are single simulated runs: the ratio is exact, and no test applies.
    #[serde(skip)]
    pub exact: bool,
}

/// A ratio without doubtful rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WithoutDoubtful {
    /// Number of rounds.
    pub rounds: usize,
    /// Median of the ratios.
    pub ratio: Option<f64>,
    /// 95 % interval of that median.
    pub ratio_interval: Option<Interval>,
}

impl Against {
    /// The verdict in words; empty without one.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.verdict {
            _ if self.exact => "",
            _ if self.a_a => "A/A",
            Some(Verdict::Better) => "better",
            Some(Verdict::Worse) => "worse",
            Some(Verdict::NoDifference) => "not significant",
            Some(Verdict::TooFew) => "too few rounds",
            None => "",
        }
    }
}

/// A note that the rounds are too few for a test, and how far their intervals can be believed.
#[must_use]
pub fn too_few(rounds: usize, comparisons: usize) -> String {
    let are = match rounds {
        1 => "1 round is".to_string(),
        n => format!("{n} rounds are"),
    };
    let among = match comparisons {
        0 | 1 => String::new(),
        n => format!(" among {n} comparisons"),
    };
    let holds = match rounds {
        0 | 1 => String::new(),
        n => format!(
            ", and intervals of {n} hold the median in {:.0} % of cases at most",
            range_holds(n) * 100.0
        ),
    };
    let needed = rounds_needed(comparisons);
    format!("{are} too few for a verdict{among}; {needed} are needed{holds}")
}

/// The fewest rounds of those that are too few.
pub(crate) fn fewest<'a>(metrics: impl IntoIterator<Item = &'a MetricComparison>) -> Option<usize> {
    let cells = metrics.into_iter().flat_map(|metric| &metric.variants);
    let against = cells.filter_map(|cell| cell.against_first.as_ref());
    let short = against.filter(|against| !against.a_a && against.verdict == Some(Verdict::TooFew));
    short.map(|against| against.paired.rounds).min()
}
