//! What `auto` has to reach, judged from records: issue 20's table. Ratios are of medians within one record, so that nothing is compared
//! across runs of the laboratory.

use crate::result::{Better, Record};
use crate::stats::median;

/// The rounds that a verdict needs.
pub const ROUNDS: usize = 6;

/// One case of one record.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its case.
    pub case: usize,
}

/// A gate with what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// What is compared.
    pub what: String,
    /// The figure; `None`: not measured.
    pub figure: Option<f64>,
    /// Whether the figure has to be at least the goal; else at most.
    pub at_least: bool,
    /// The goal.
    pub goal: f64,
    /// Which program has that figure, where it is the worst of several.
    pub worst: Option<String>,
    /// Fewest rounds behind the figure, and doubtful runs among them.
    pub rounds: usize,
    /// Doubtful runs.
    pub doubtful: usize,
}

impl Gate {
    /// Whether it is reached; `None`: not measured.
    #[must_use]
    pub fn reached(&self) -> Option<bool> {
        let figure = self.figure?;
        Some(match self.at_least {
            true => figure >= self.goal,
            false => figure <= self.goal,
        })
    }

    /// In a word; too few rounds and doubtful runs keep it from being a verdict.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.reached() {
            None => "not measured",
            Some(_) if self.rounds < ROUNDS || self.doubtful > 0 => "no verdict",
            Some(true) => "reached",
            Some(false) => "missed",
        }
    }
}

/// A ratio with what stands behind it.
#[derive(Debug, Clone)]
struct Ratio {
    program: String,
    value: f64,
    rounds: usize,
    doubtful: usize,
}

impl Seen<'_> {
    /// Its program's name.
    #[must_use]
    pub fn case_name(&self) -> &str {
        &self.record.cases[self.case].name
    }

    /// Its condition without its size: `unfragmented`, `fragmented`, `limit`, `busy`.
    #[must_use]
    pub fn condition(&self) -> &str {
        let condition = self.record.cases[self.case].condition.as_str();
        condition.split('=').next().unwrap_or(condition)
    }

    /// A variant's median of a figure.
    #[must_use]
    pub fn median(&self, variant: &str, metric: &str) -> Option<f64> {
        let variant = self.record.variants.iter().position(|known| known.name == variant)?;
        let values = self.record.values(self.case, variant, metric);
        median(&values.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
    }

    /// The figure of memory, `mean` or `peak`: memory taken; older records have resident memory only.
    #[must_use]
    pub fn memory(&self, which: &str) -> String {
        let taken = format!("{which}_taken_bytes");
        let has_taken = self.record.runs.iter().any(|run| run.values.contains_key(&taken));
        if has_taken {
            taken
        } else {
            format!("{which}_rss_bytes")
        }
    }

    /// Rounds and doubtful runs of these variants.
    fn behind(&self, variants: &[&str]) -> (usize, usize) {
        let of = |name: &str| {
            let variant = self.record.variants.iter().position(|known| known.name == name);
            self.record
                .runs
                .iter()
                .filter(move |run| run.case == self.case && Some(run.variant) == variant)
                .filter(|run| run.outcome == crate::result::Outcome::Done)
        };
        let rounds = variants.iter().map(|name| of(name).count()).min().unwrap_or(0);
        let doubtful = variants
            .iter()
            .flat_map(|name| of(name))
            .filter(|run| !run.noise.doubtful.is_empty())
            .count();
        (rounds, doubtful)
    }

    /// The figure it is judged by, higher being better: name and direction.
    #[must_use]
    pub fn judged_by(&self) -> Option<(&str, Better)> {
        // Redis and others have figures that one program of the record lacks.
        let has = |name: &str| self.record.runs.iter().any(|run| run.values.contains_key(name));
        let main = self.record.main_metrics().find(|metric| has(&metric.name))?;
        Some((&main.name, main.better))
    }

    /// How good a variant is by what it is judged by, relative to another: above 1 is better.
    #[must_use]
    pub fn relative(&self, variant: &str, to: &str) -> Option<f64> {
        let (name, better) = self.judged_by()?;
        let (one, other) = (self.median(variant, name)?, self.median(to, name)?);
        let ratio = match better {
            Better::Lower => other / one,
            _ => one / other,
        };
        ratio.is_finite().then_some(ratio)
    }

    fn ratio(&self, value: Option<f64>, variants: &[&str]) -> Option<Ratio> {
        let (rounds, doubtful) = self.behind(variants);
        Some(Ratio {
            program: self.case_name().to_string(),
            value: value?,
            rounds,
            doubtful,
        })
    }

    /// A figure of `auto` over that of another variant.
    fn over(&self, variant: &str, to: &str, metric: &str) -> Option<Ratio> {
        let value = self.median(variant, metric)? / self.median(to, metric)?;
        self.ratio(value.is_finite().then_some(value), &[variant, to])
    }

    /// `auto` against the better of base pages and stock THP.
    fn against_the_better(&self) -> Option<Ratio> {
        let of = |to| self.relative("auto", to);
        self.ratio(
            Some(of("base")?.min(of("thp-always")?)),
            &["auto", "base", "thp-always"],
        )
    }
}

/// Programs that huge pages do little for.
const UNHELPED: [&str; 3] = ["gcc", "zstd", "again"];

/// The worst of these ratios against a goal.
fn worst(what: String, ratios: Vec<Ratio>, at_least: bool, goal: f64) -> Gate {
    let sign = if at_least { 1.0 } else { -1.0 };
    let found = ratios
        .iter()
        .min_by(|a, b| (sign * a.value).total_cmp(&(sign * b.value)));
    Gate {
        what,
        figure: found.map(|ratio| ratio.value),
        at_least,
        goal,
        worst: found.filter(|_| ratios.len() > 1).map(|ratio| ratio.program.clone()),
        rounds: ratios.iter().map(|ratio| ratio.rounds).min().unwrap_or(0),
        doubtful: ratios.iter().map(|ratio| ratio.doubtful).sum(),
    }
}

/// The geometric mean of these ratios against a goal.
fn mean(what: String, ratios: &[Ratio], goal: f64) -> Gate {
    let logs: f64 = ratios.iter().map(|ratio| ratio.value.ln()).sum();
    Gate {
        figure: (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp()),
        worst: None,
        ..worst(what, ratios.to_vec(), true, goal)
    }
}

/// All gates of these cases.
#[must_use]
pub fn gates(seen: &[Seen<'_>]) -> Vec<Gate> {
    let under = |condition: &'static str| seen.iter().filter(move |seen| seen.condition() == condition);
    let mut all = Vec::new();
    for condition in ["unfragmented", "limit", "busy"] {
        let ratios: Vec<Ratio> = under(condition).filter_map(Seen::against_the_better).collect();
        let what = format!("{condition}: each program against the better of base pages and stock THP");
        all.push(worst(what, ratios.clone(), true, 0.98));
        all.push(mean(format!("{condition}: the same, geometric mean"), &ratios, 1.02));
    }
    let one = |condition: &'static str, program: &'static str| {
        under(condition).filter(move |seen| seen.case_name() == program)
    };
    let mut single = |what: &str, condition, program, variant: &str, to: &str, metric: &str, goal| {
        let ratios = one(condition, program).filter_map(|seen| seen.over(variant, to, metric));
        all.push(worst(
            what.to_string(),
            ratios.collect(),
            metric.ends_with("_per_s"),
            goal,
        ));
    };
    let (free, busy) = ("unfragmented", "busy");
    single(
        "GUPS, first 15 s, against stock THP",
        free,
        "gups",
        "auto",
        "thp-always",
        "ops_per_s",
        1.0,
    );
    let what = "first touch of 4 GB against stock THP, with a spare processor";
    single(what, free, "touch", "auto", "thp-always", "first_touch_ns", 0.7);
    let what = "first touch of 4 GB against stock THP, all processors busy";
    single(what, busy, "touch", "auto", "thp-always", "first_touch_ns", 1.0);
    let what = "a touch's p99.9 against base pages, with a spare processor";
    single(what, free, "touch", "auto", "base", "touch_p999_ns", 0.6);
    let what = "a touch's p99.9 against base pages, all busy, for latency";
    single(
        what,
        busy,
        "touch",
        "auto:agent:for=latency",
        "base",
        "touch_p999_ns",
        1.0,
    );
    let what = "all touches together against base pages, all busy";
    single(what, busy, "touch", "auto", "base", "first_touch_ns", 0.3);
    let what = "Redis request p99.9 against base pages, settled";
    single(what, free, "redis-get", "auto", "base", "request_p999_ns", 1.0);
    let what = "Redis request p99.9 against base pages, filling";
    single(what, free, "redis-fill", "auto", "base", "request_p999_ns", 1.2);
    let what = "Redis, 70 % deleted: memory taken at the end against base pages";
    single(what, free, "redis-delete", "auto", "base", "taken_bytes", 1.03);
    let longest = one(busy, "touch").filter_map(|seen| {
        let ms = seen.median("auto", "touch_max_ns").map(|ns| ns / 1e6);
        seen.ratio(ms, &["auto"])
    });
    all.push(worst(
        "the longest touch in ms, all busy".into(),
        longest.collect(),
        false,
        0.5,
    ));
    for (which, goal) in [("mean", 1.03), ("peak", 1.05)] {
        let ratios = under(free).filter_map(|seen| seen.over("auto", "base", &seen.memory(which)));
        let what = format!("memory taken, {which}, against base pages, each program");
        all.push(worst(what, ratios.collect(), false, goal));
    }
    let unhelped = under(free).filter(|seen| UNHELPED.contains(&seen.case_name()));
    let ratios = unhelped.filter_map(Seen::against_the_better).collect();
    all.push(worst("programs that huge pages do not help".into(), ratios, true, 0.98));
    let touched = one("fragmented", "touch").filter_map(|seen| seen.over("auto", "base", "first_touch_ns"));
    let what = "fragmented: first touch against base pages";
    all.push(worst(what.into(), touched.collect(), false, 1.05));
    let stock = under("fragmented").filter_map(|seen| {
        let value = seen.relative("auto", "thp-always");
        seen.ratio(value, &["auto", "thp-always"])
    });
    let what = "fragmented: each program against stock THP";
    all.push(worst(what.into(), stock.collect(), true, 1.0));
    all
}
