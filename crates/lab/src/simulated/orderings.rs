//! Which system is better: every published comparison of two systems against the simulated one.
//!
//! Two systems are compared where a paper gives the same metric of the same case for both. Published values that differ by no more than
//! [`MARGIN`] are a tie. An order is reproduced if the simulated values differ the same way, by more than [`LEAST`]: less decides nothing; a tie if they differ by no more than [`NOISE`]: no paper gives an error, and means of three runs on one machine differ by
//! that much. Figures that are inputs of the model are not compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::inputs::is_input;
use super::papers::find;
use crate::report::scale::{ratio_text, value_text};
use crate::result::{Published, Record, Unit};
use crate::stats::median;

/// Published values that differ by no more are a tie.
pub const MARGIN: f64 = 0.02;
/// Simulated values that differ by no more have no order.
pub const LEAST: f64 = 0.005;
/// Simulated values that differ by no more reproduce a tie.
pub const NOISE: f64 = 0.05;

/// Two systems in a paper and here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The paper, in a word.
    pub paper: String,
    /// The experiment.
    pub experiment: String,
    /// Its case.
    pub case: String,
    /// The metric.
    pub metric: String,
    /// What it is counted in.
    pub unit: Unit,
    /// Where it is published.
    pub place: String,
    /// The first system, by the paper's name.
    pub a: String,
    /// The second.
    pub b: String,
    /// What the paper has of both; none where it says in words that the first has more.
    pub published: Option<(f64, f64)>,
    /// What was simulated of both; none where a run did not come to its end.
    pub simulated: Option<(f64, f64)>,
    /// The paper has them alike.
    pub tie: bool,
    /// It hangs on something that the model cannot know.
    pub unknown: bool,
    /// It came out as published.
    pub reproduced: bool,
    /// Why not.
    pub why: Option<String>,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orderings {
    /// One by one, in the order of the experiments.
    pub compared: Vec<Compared>,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reproduced {
    /// Reproduced.
    pub reproduced: usize,
    /// Of so many.
    pub of: usize,
}

impl Reproduced {
    /// In percent; all of none.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.of == 0 {
            return 100.0;
        }
        100.0 * self.reproduced as f64 / self.of as f64
    }

    /// Counts one.
    pub(crate) fn add(&mut self, reproduced: bool) {
        self.of += 1;
        self.reproduced += usize::from(reproduced);
    }
}

/// By how much two values differ, and which way: 0.1 when the first is a tenth more than the second.
fn difference(a: f64, b: f64) -> f64 {
    match (a, b) {
        (a, b) if a == b => 0.0,
        (a, b) if a > b && b > 0.0 => a / b - 1.0,
        (a, b) if b > a && a > 0.0 => 1.0 - b / a,
        (a, b) if a > b => f64::INFINITY,
        _ => f64::NEG_INFINITY,
    }
}

fn same_way(published: f64, simulated: f64) -> bool {
    simulated.abs() > LEAST && (published > 0.0) == (simulated > 0.0)
}

/// Compares what the records' papers have with what they simulated.
#[must_use]
pub fn count(records: &[Record]) -> Orderings {
    let mut all = Orderings::default();
    for record in records {
        let Some(experiment) = find(&record.experiment.name) else {
            continue;
        };
        let record = record.by_what_differs();
        let known = |one: &Published| !is_input(&record.experiment.name, &one.metric, &one.system);
        let mut found = compared(&record, experiment.paper, &known);
        for words in experiment.words {
            found.extend(in_words(&record, experiment.paper, words));
        }
        for one in &mut found {
            let fits = |miss: &&super::Miss| miss.fits(&one.case, &one.metric, &one.a, &one.b);
            let unknown = experiment.unknown.iter().find(fits);
            let why = unknown.or_else(|| experiment.misses.iter().find(fits));
            one.unknown = unknown.is_some();
            one.why = why.filter(|_| !one.reproduced).map(|miss| miss.why.to_string());
        }
        all.compared.extend(found);
    }
    all
}

/// The simulated value of a metric of a system in a case.
fn simulated(record: &Record, case: usize, variant: &str, metric: &str) -> Option<f64> {
    let variant = record.variants.iter().position(|v| v.name == variant)?;
    let values: Vec<f64> = record
        .values(case, variant, metric)
        .into_iter()
        .map(|(_, v)| v)
        .collect();
    median(&values)
}

fn unit_of(record: &Record, metric: &str) -> Unit {
    let found = record.metrics.iter().find(|known| known.name == metric);
    found.map_or(Unit::Ratio, |metric| metric.unit)
}

/// Every two systems of a record that the paper has the same figure of, where that figure counts.
pub(crate) fn compared(record: &Record, paper: &str, counts: &dyn Fn(&Published) -> bool) -> Vec<Compared> {
    let mut all = Vec::new();
    for (index, case) in record.cases.iter().enumerate() {
        let of_case = |p: &&Published| p.case.as_ref().is_none_or(|name| *name == case.name);
        let mut by_metric: BTreeMap<&str, Vec<&Published>> = BTreeMap::new();
        for one in record.published.iter().filter(of_case) {
            if one.variant.is_some() && counts(one) {
                by_metric.entry(one.metric.as_str()).or_default().push(one);
            }
        }
        for (metric, figures) in by_metric {
            for (i, a) in figures.iter().enumerate() {
                for b in &figures[i + 1..] {
                    let value = |p: &Published| simulated(record, index, p.variant.as_deref()?, metric);
                    let here = value(a).zip(value(b));
                    let published = difference(a.value, b.value);
                    let tie = published.abs() <= MARGIN;
                    let reproduced = here.is_some_and(|(a, b)| match difference(a, b) {
                        simulated if tie => simulated.abs() <= NOISE,
                        simulated => same_way(published, simulated),
                    });
                    all.push(Compared {
                        paper: paper.to_string(),
                        experiment: record.experiment.name.clone(),
                        case: case.name.clone(),
                        metric: metric.to_string(),
                        unit: unit_of(record, metric),
                        place: a.place.clone(),
                        a: a.system.clone(),
                        b: b.system.clone(),
                        published: Some((a.value, b.value)),
                        simulated: here,
                        tie,
                        unknown: false,
                        reproduced,
                        why: None,
                    });
                }
            }
        }
    }
    all
}

/// The variant that goes by this name in the paper: it opens the variant's description.
fn variant_of<'a>(record: &'a Record, system: &str) -> Option<&'a str> {
    let begin = format!("{system}: ");
    let found = record.variants.iter().find(|v| v.about.starts_with(&begin));
    found.map(|variant| variant.name.as_str())
}

fn in_words(record: &Record, paper: &str, words: &super::Words) -> Option<Compared> {
    let case = record.cases.iter().position(|case| case.name == words.case)?;
    let value = |system| simulated(record, case, variant_of(record, system)?, words.metric);
    let here = value(words.more).zip(value(words.less));
    Some(Compared {
        paper: paper.to_string(),
        experiment: record.experiment.name.clone(),
        case: words.case.to_string(),
        metric: words.metric.to_string(),
        unit: unit_of(record, words.metric),
        place: words.place.to_string(),
        a: words.more.to_string(),
        b: words.less.to_string(),
        published: None,
        simulated: here,
        tie: false,
        unknown: false,
        reproduced: here.is_some_and(|(more, less)| difference(more, less) > LEAST),
        why: None,
    })
}

/// The counts of a paper.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The paper, in a word.
    pub paper: String,
    /// All comparisons, ties included.
    pub all: Reproduced,
    /// Of those, the ones that hang on nothing that the model cannot know.
    pub knowable: Reproduced,
    /// Of those, the ones that are no ties: better or worse.
    pub knowable_not_tied: Reproduced,
    /// Better or worse, knowable or not.
    pub orders: Reproduced,
    /// Alike, knowable or not.
    pub ties: Reproduced,
}

impl Counts {
    fn add(&mut self, one: &Compared) {
        let count = |counts: &mut Reproduced, counted: bool| {
            if counted {
                counts.add(one.reproduced);
            }
        };
        count(&mut self.all, true);
        count(&mut self.knowable, !one.unknown);
        count(&mut self.knowable_not_tied, !one.unknown && !one.tie);
        count(&mut self.orders, !one.tie);
        count(&mut self.ties, one.tie);
    }
}

impl Orderings {
    /// The counts of each paper, in the order in which they come.
    #[must_use]
    pub fn by_paper(&self) -> Vec<Counts> {
        let mut papers: Vec<Counts> = Vec::new();
        for one in &self.compared {
            let at = papers
                .iter()
                .position(|counts| counts.paper == one.paper)
                .unwrap_or_else(|| {
                    papers.push(Counts {
                        paper: one.paper.clone(),
                        ..Counts::default()
                    });
                    papers.len() - 1
                });
            papers[at].add(one);
        }
        papers
    }

    /// The counts of these papers together.
    #[must_use]
    pub fn of(&self, papers: &[&str]) -> Counts {
        let mut counts = Counts {
            paper: papers.join(" and "),
            ..Counts::default()
        };
        let wanted = self.compared.iter().filter(|one| papers.contains(&one.paper.as_str()));
        wanted.for_each(|one| counts.add(one));
        counts
    }

    /// What came out otherwise.
    pub fn misses(&self) -> impl Iterator<Item = &Compared> {
        self.compared.iter().filter(|one| !one.reproduced)
    }

    /// The counts, in Markdown.
    #[must_use]
    pub fn counts(&self) -> String {
        let mut text = String::from(
            "| paper | better or worse | of these, knowable | alike | all | knowable |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let share = |share: Reproduced| match share.of {
            0 => String::new(),
            of => format!("{} of {of} ({:.0} %)", share.reproduced, share.percent()),
        };
        let mut all = self.by_paper();
        all.push(self.of(&["MEGA", "LRBHPS"]));
        for counts in all.iter().filter(|counts| counts.all.of > 0) {
            let columns = [
                counts.orders,
                counts.knowable_not_tied,
                counts.ties,
                counts.all,
                counts.knowable,
            ];
            let _ = writeln!(text, "| {} | {} |", counts.paper, columns.map(share).join(" | "));
        }
        text
    }

    /// As people read it, in Markdown: the counts, and each miss with both numbers and why.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.counts();
        if self.misses().next().is_some() {
            text += "\n| experiment | case | figure | systems | published | simulated | why |\n| --- | --- | --- | --- | --- | --- | --- |\n";
        }
        for miss in self.misses() {
            let pair = |values: Option<(f64, f64)>| match values {
                None => "–".to_string(),
                Some((a, b)) if miss.unit == Unit::Ratio => format!("{} : {}", ratio_text(a), ratio_text(b)),
                Some((a, b)) => format!("{} : {}", value_text(miss.unit, a), value_text(miss.unit, b)),
            };
            let said = match miss.published {
                None => "more : less".to_string(),
                published => pair(published),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {}{} | {} : {} | {said} | {} | {}{} |",
                miss.experiment,
                miss.case,
                miss.metric,
                if miss.tie { " (alike)" } else { "" },
                miss.a,
                miss.b,
                pair(miss.simulated),
                if miss.unknown { "cannot be known: " } else { "" },
                miss.why.as_deref().unwrap_or("not explained")
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_size_and_a_direction() {
        assert_eq!(difference(3.0, 3.0), 0.0);
        assert!((difference(1.1, 1.0) - 0.1).abs() < 1e-9 && (difference(1.0, 1.1) + 0.1).abs() < 1e-9);
        assert_eq!(
            (difference(1.0, 0.0), difference(0.0, 1.0)),
            (f64::INFINITY, f64::NEG_INFINITY)
        );
        assert!(same_way(0.5, 0.01) && !same_way(0.5, -0.01) && !same_way(0.5, 0.0001));
        assert!(same_way(f64::NEG_INFINITY, -0.2));
    }

    #[test]
    fn orders_ties_and_what_cannot_be_known_are_counted_apart_and_by_paper() {
        let one = |paper: &str, tie, unknown, reproduced| Compared {
            paper: paper.to_string(),
            experiment: "x".to_string(),
            case: "c".to_string(),
            metric: "elapsed_ns".to_string(),
            unit: Unit::Ns,
            place: String::new(),
            a: "A".to_string(),
            b: "B".to_string(),
            published: Some((1e9, 2e9)),
            simulated: Some((2e9, 1e9)),
            tie,
            unknown,
            reproduced,
            why: (!reproduced).then(|| "because".to_string()),
        };
        let all = Orderings {
            compared: vec![
                one("MEGA", false, false, true),
                one("MEGA", false, false, false),
                one("MEGA", false, true, false),
                one("MEGA", true, false, true),
                one("LRBHPS", false, false, true),
            ],
        };
        let share = |reproduced, of| Reproduced { reproduced, of };
        let papers = all.by_paper();
        assert_eq!(
            (papers[0].orders, papers[0].knowable_not_tied, papers[0].ties),
            (share(1, 3), share(1, 2), share(1, 1))
        );
        assert_eq!((papers[1].paper.as_str(), papers[1].orders), ("LRBHPS", share(1, 1)));
        let both = all.of(&["MEGA", "LRBHPS"]);
        assert_eq!((both.orders, both.knowable_not_tied), (share(2, 4), share(2, 3)));
        assert_eq!((both.all, both.knowable), (share(3, 5), share(3, 4)));
        let text = all.text();
        assert!(text.contains("| 2 of 4 (50 %) | 2 of 3 (67 %) |"), "{text}");
        assert!(text.contains("| 3 of 5 (60 %) | 3 of 4 (75 %) |"), "{text}");
        assert!(text.contains("cannot be known: because"), "{text}");
        let json = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Orderings>(&json).unwrap(), all);
    }
}
