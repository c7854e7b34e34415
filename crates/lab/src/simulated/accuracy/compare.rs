//! Live and simulated figures beside each other, and how far they may be apart.

use mega_core::units::Share;
use serde::Serialize;

use super::runs::Half;
use crate::result::{Outcome, Record, Unit};
use crate::stats::{median, paired, Interval, Paired};

/// What may differ by how much.
const COUNTS: &[(&str, &str, u32)] = &[
    ("faults", "faults", 2),
    ("huge_bytes", "in huge pages", 2),
    ("rss_bytes", "resident", 3),
];
/// Run times, as ratios to base pages.
const TIMES_PERCENT: u32 = 15;

/// One figure of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The workload.
    pub case: String,
    /// The variant.
    pub variant: String,
    /// What is compared.
    pub what: String,
    /// Measured.
    pub live: f64,
    /// 95 % interval of what was measured, of ratios in two rounds or more.
    pub live_interval: Option<Interval>,
    /// Simulated.
    pub simulated: f64,
    /// How far they may be apart.
    pub allowed: Share,
    /// Counted in bytes, not in things.
    pub unit: Unit,
}

impl Compared {
    /// Simulated over live, less one; none where both are nothing.
    #[must_use]
    pub fn off(&self) -> f64 {
        match (self.live, self.simulated) {
            (0.0, 0.0) => 0.0,
            (0.0, _) => f64::INFINITY,
            (live, simulated) => simulated / live - 1.0,
        }
    }

    /// Whether they are near enough. What differs by a few things of a kind is (a process has a stack, too).
    #[must_use]
    pub fn holds(&self) -> bool {
        let few = match self.unit {
            Unit::Bytes => 4.0 * 1_048_576.0,
            Unit::Count => 500.0,
            _ => 0.0,
        };
        (self.live - self.simulated).abs() <= few || self.off().abs() <= self.allowed.fraction()
    }

    /// They are not near enough, but so many rounds cannot tell: the interval of what was measured reaches to where they would be.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let allowed = self.allowed.fraction();
        let reaches =
            |i: Interval| i.low <= self.simulated / (1.0 - allowed) && i.high >= self.simulated / (1.0 + allowed);
        !self.holds() && self.live_interval.is_some_and(reaches)
    }
}

/// How quiet the machine was during the live runs whose times are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quiet {
    /// Runs that came to their end.
    pub runs: usize,
    /// Of these, doubtful ones.
    pub doubtful: usize,
    /// Worst time of the reference workload beside the runs, relative to its best.
    pub worst_probe: Option<f64>,
}

impl Quiet {
    fn of(live: &Record) -> Self {
        let done: Vec<_> = live.runs.iter().filter(|run| run.outcome == Outcome::Done).collect();
        let probes = done.iter().filter_map(|run| run.noise.probe_ns);
        let probes: Vec<f64> = probes.flat_map(|(before, after)| [before, after]).collect();
        let best = probes.iter().copied().reduce(f64::min);
        let worst = probes.iter().copied().reduce(f64::max);
        Self {
            runs: done.len(),
            doubtful: done.iter().filter(|run| !run.noise.doubtful.is_empty()).count(),
            worst_probe: worst.zip(best).map(|(worst, best)| worst / best),
        }
    }

    fn text(self) -> String {
        let Self { runs, doubtful, .. } = self;
        let probe = self.worst_probe.map_or(String::new(), |times| {
            format!(": the reference workload beside them ran up to {times:.2}× its best time")
        });
        format!("{doubtful} of {runs} live runs are doubtful{probe}.\n")
    }
}

/// All that was compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accuracy {
    /// Figure by figure.
    pub compared: Vec<Compared>,
    /// By workload: whether the variants come in the same order by run time.
    pub orders: Vec<(String, bool)>,
    /// By workload: the simulated run time on base pages over the live one. Ratios between variants hide it, and say little where it is far from 1.
    pub base_times: Vec<(String, f64)>,
    /// How far what was measured is to be trusted.
    pub quiet: Quiet,
}

fn value(record: &Record, case: usize, variant: usize, metric: &str) -> Option<f64> {
    let values: Vec<f64> = record
        .values(case, variant, metric)
        .into_iter()
        .map(|(_, v)| v)
        .collect();
    median(&values)
}

/// What the same work took under a variant, over what it took under another, round by round.
fn time_ratio(record: &Record, case: usize, over: usize, variant: usize, metric: &str) -> Paired {
    let [over, variant] = [over, variant].map(|variant| record.values(case, variant, metric));
    match metric.ends_with("_per_s") {
        true => paired(&variant, &over),
        false => paired(&over, &variant),
    }
}

/// Variants that are nearer than this have no order.
const TIE: f64 = 0.03;

/// Whether two variants are not clearly ordered one way live and clearly the other way simulated, by the ratios of their times.
fn same_order(live: f64, simulated: f64) -> bool {
    let sign = |ratio: f64| match ratio {
        r if r > 1.0 + TIE => 1,
        r if r < 1.0 - TIE => -1,
        _ => 0,
    };
    sign(live) * sign(simulated) >= 0
}

/// Whether a figure of this name is compared.
#[must_use]
pub fn is_compared(metric: &str) -> bool {
    let mut twins = [Half::Seen, Half::HeldOut].into_iter().flat_map(Half::twins);
    COUNTS.iter().any(|(name, ..)| *name == metric) || twins.any(|twin| twin.time == metric)
}

/// Sets both beside each other. `counted` are live runs with the faults counted, which slows them; times come from `live`.
#[must_use]
pub fn compare(half: Half, live: &Record, counted: &Record, simulated: &Record) -> Accuracy {
    let mut accuracy = Accuracy {
        compared: Vec::new(),
        orders: Vec::new(),
        base_times: Vec::new(),
        quiet: Quiet::of(live),
    };
    let cases = live.cases.iter().enumerate();
    for (c, twin) in cases.filter_map(|(c, case)| Some((c, half.twins().iter().find(|twin| twin.name == case.name)?))) {
        let mut add = |variant: &str, what: &str, live: (Option<f64>, Option<Interval>), simulated, percent, unit| {
            if let ((Some(live), live_interval), Some(simulated)) = (live, simulated) {
                accuracy.compared.push(Compared {
                    case: twin.name.to_string(),
                    variant: variant.to_string(),
                    what: what.to_string(),
                    live,
                    live_interval,
                    simulated,
                    allowed: Share::percent(percent),
                    unit,
                });
            }
        };
        for (v, variant) in half.variants().iter().enumerate() {
            for (metric, what, percent) in COUNTS {
                let (from, unit) = match *metric {
                    "faults" => (counted, Unit::Count),
                    _ => (live, Unit::Bytes),
                };
                add(
                    variant,
                    what,
                    (value(from, c, v, metric), None),
                    value(simulated, c, v, metric),
                    *percent,
                    unit,
                );
            }
            if v > 0 {
                let live = time_ratio(live, c, 0, v, twin.time);
                add(
                    variant,
                    "run time, base pages = 1",
                    (live.ratio, live.ratio_interval),
                    time_ratio(simulated, c, 0, v, twin.time).ratio,
                    TIMES_PERCENT,
                    Unit::Ratio,
                );
            }
        }
        if let (Some(live), Some(simulated)) = (value(live, c, 0, twin.time), value(simulated, c, 0, twin.time)) {
            let times = match twin.time.ends_with("_per_s") {
                true => live / simulated,
                false => simulated / live,
            };
            accuracy.base_times.push((twin.name.to_string(), times));
        }
        let pairs = || (0..half.variants().len()).flat_map(|v| (0..v).map(move |over| (over, v)));
        let ratios = |record| -> Option<Vec<f64>> {
            let ratio = |(over, v)| time_ratio(record, c, over, v, twin.time).ratio;
            pairs().map(ratio).collect()
        };
        if let (Some(live), Some(simulated)) = (ratios(live), ratios(simulated)) {
            let same = live
                .iter()
                .zip(simulated)
                .all(|(live, simulated)| same_order(*live, simulated));
            accuracy.orders.push((twin.name.to_string(), same));
        }
    }
    accuracy
}

impl Accuracy {
    /// Everything compared is near enough, and in the same order.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.compared.iter().all(Compared::holds) && self.orders.iter().all(|(_, same)| *same)
    }

    /// As a table in Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = |unit, value: f64| match unit {
            Unit::Bytes => format!("{:.2} GB", value / 1e9),
            Unit::Ratio => format!("{value:.3}"),
            _ => format!("{value:.0}"),
        };
        let mut text = String::from("| workload | variant | figure | live | 95 % | simulated | off | allowed |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for c in &self.compared {
            text += &format!(
                "| {} | {} | {} | {} | {} | {} | {:+.1} %{} | {} |\n",
                c.case,
                c.variant,
                c.what,
                shown(c.unit, c.live),
                c.live_interval
                    .map_or(String::new(), |i| format!("{:.3}-{:.3}", i.low, i.high)),
                shown(c.unit, c.simulated),
                100.0 * c.off(),
                match (c.holds(), c.is_open()) {
                    (true, _) => "",
                    (false, true) => " (?)",
                    (false, false) => " (!)",
                },
                c.allowed,
            );
        }
        let held = |is_time: bool| {
            let of = || self.compared.iter().filter(|c| (c.unit == Unit::Ratio) == is_time);
            format!("{} of {}", of().filter(|c| c.holds()).count(), of().count())
        };
        let (counts, times) = (held(false), held(true));
        text += &format!("\n{counts} counts and sizes and {times} run times are within what is allowed");
        let open = self.compared.iter().filter(|c| c.is_open()).count();
        text += &match open {
            0 => ".\n".to_string(),
            open => format!(";\n{open} more may be (?): the interval of what was measured reaches there.\n"),
        };
        let wrong: Vec<&str> = self
            .orders
            .iter()
            .filter(|(_, same)| !same)
            .map(|(name, _)| name.as_str())
            .collect();
        text += &match wrong.as_slice() {
            [] => format!(
                "The order by run time is the same in all {} workloads.\n",
                self.orders.len()
            ),
            wrong => format!("The order by run time differs in {}.\n", wrong.join(", ")),
        };
        let times: Vec<String> = self
            .base_times
            .iter()
            .map(|(name, times)| format!("{name} {times:.2}"))
            .collect();
        text += &format!(
            "Simulated run time on base pages over the live one:\n{}.\n",
            times.join(", ")
        );
        text + &self.quiet.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;
    use crate::result::{Noise, Run};

    #[test]
    fn run_times_are_compared_round_by_round() {
        let mut record = synthetic::record(&synthetic::Options::default());
        let run = record.runs[0].clone();
        let ran = |round, variant, per_s: f64| Run {
            round,
            variant,
            case: 0,
            outcome: Outcome::Done,
            values: [("ops_per_s".to_string(), per_s)].into(),
            ..run.clone()
        };
        // The medians' ratio is 1; in two rounds of three the second takes half of the time.
        let rates = [(10.0, 20.0), (20.0, 40.0), (40.0, 20.0)];
        let runs = rates.iter().enumerate();
        record.runs = runs.flat_map(|(n, (a, b))| [ran(n, 0, *a), ran(n, 1, *b)]).collect();
        assert_eq!(time_ratio(&record, 0, 0, 1, "ops_per_s").ratio, Some(0.5));
        assert_eq!(time_ratio(&record, 0, 1, 0, "ops_per_s").ratio, Some(2.0));
    }

    #[test]
    fn orders_agree_unless_a_clear_one_is_turned() {
        assert!(same_order(0.5, 0.6) && same_order(1.5, 1.2));
        assert!(same_order(0.99, 1.2) && same_order(0.5, 1.01));
        assert!(!same_order(0.5, 1.2) && !same_order(1.1, 0.9));
    }

    #[test]
    fn a_figure_is_near_enough_or_not() {
        let compared = |live, simulated, percent, unit| Compared {
            case: "gups".into(),
            variant: "base".into(),
            what: "faults".into(),
            live,
            live_interval: None,
            simulated,
            allowed: Share::percent(percent),
            unit,
        };
        assert!(compared(1_000_000.0, 1_019_000.0, 2, Unit::Count).holds());
        assert!(!compared(1_000_000.0, 1_021_000.0, 2, Unit::Count).holds());
        assert!(compared(0.0, 0.0, 2, Unit::Bytes).holds());
        assert!(!compared(0.0, 1e9, 2, Unit::Bytes).holds());
        assert!(!compared(0.5, 0.6, 15, Unit::Ratio).holds());
        let within = |low, high| Compared {
            live_interval: Some(Interval { low, high }),
            ..compared(0.5, 0.6, 15, Unit::Ratio)
        };
        // Within 15 % of 0.6 is from 0.522 on.
        assert!(within(0.4, 0.53).is_open() && !within(0.4, 0.52).is_open());
        assert!(!compared(0.5, 0.6, 15, Unit::Ratio).is_open() && !compared(0.6, 0.6, 15, Unit::Ratio).is_open());
        let accuracy = Accuracy {
            compared: vec![compared(0.5, 0.6, 15, Unit::Ratio), within(0.4, 0.53)],
            orders: vec![("gups".into(), true)],
            base_times: vec![("gups".into(), 6.9)],
            quiet: Quiet::default(),
        };
        let text = accuracy.text();
        assert!(text.contains("over the live one:\ngups 6.90.\n"), "{text}");
        assert!(!accuracy.holds() && text.contains("+20.0 % (!)") && text.contains("+20.0 % (?)"));
        assert!(text
            .contains("0 of 0 counts and sizes and 0 of 2 run times are within what is allowed;\n1 more may be (?)"));
    }

    #[test]
    fn how_quiet_the_machine_was_is_said() {
        let mut record = synthetic::record(&synthetic::Options::default());
        let run = record.runs[0].clone();
        let ran = |probe_ns, doubtful: &[&str], outcome| Run {
            outcome,
            noise: Noise {
                probe_ns: Some(probe_ns),
                doubtful: doubtful.iter().map(ToString::to_string).collect(),
                ..run.noise.clone()
            },
            ..run.clone()
        };
        record.runs = vec![
            ran((1e6, 1.1e6), &[], Outcome::Done),
            ran((1e6, 2.5e6), &["slow"], Outcome::Done),
            ran((9e6, 9e6), &["slow"], Outcome::Failed("it broke".into())),
        ];
        let quiet = Quiet::of(&record);
        assert_eq!((quiet.runs, quiet.doubtful, quiet.worst_probe), (2, 1, Some(2.5)));
        assert_eq!(
            quiet.text(),
            "1 of 2 live runs are doubtful: the reference workload beside them ran up to 2.50× its best time.\n"
        );
    }
}
