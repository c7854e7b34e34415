//! What the evidence comes to. Pure.
//!
//! Huge pages save time in two ways: translations that the processor need not look up, and page faults that are not taken. The first is estimated
//! from touches of different base pages (what fits the TLB needs no look-up, with any page size), at what a touch at random costs less on huge
//! pages on this machine; the second from faults, at what a first touch costs less. Whole runs, where there are any, count more than both.

use std::time::Duration;

use mega_linux::inspect::costs::Costs;
use serde::Serialize;

use super::compare::{Compared, Run};
use super::watch::Seen;

/// Base pages that a second-level TLB holds, about.
const TLB_PAGES: f64 = 2048.0;
/// Saved share of the time from which it is worth anything.
const WORTH: f64 = 0.03;
/// The most that is believed of an estimate.
const MOST: f64 = 0.6;
/// The least memory in which huge pages can matter.
const LEAST_BYTES: u64 = 16 << 20;
/// The shortest processor time that says anything.
const LEAST_CPU: Duration = Duration::from_millis(200);
/// Memory that would be added is a loss from this share of the resident memory on, and this much.
const BLOAT: (f64, u64) = (0.10, 64 << 20);

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Huge pages everywhere pay.
    WorthIt,
    /// They pay where memory is dense, and elsewhere they waste memory.
    WorthItWhereDense,
    /// They bring nothing.
    DoNotBother,
    /// They bring nothing and waste memory.
    WouldHurt,
    /// It has them.
    HasThem,
    /// Too little was seen.
    Unknown,
}

/// How sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// It could not be otherwise, or whole runs agree.
    Sure,
    /// One run of each kind, or an estimate of which least and most say the same.
    Likely,
    /// An estimate near a limit, or without part of the evidence.
    Unsure,
}

/// Shares of the processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Looking translations up.
    pub translation: f64,
    /// Page faults.
    pub faults: f64,
}

impl Estimate {
    /// Both.
    pub fn saved(self) -> f64 {
        (self.translation + self.faults).clamp(0.0, MOST)
    }
}

/// Everything that is known.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Processes, those with the most processor time first.
    pub processes: Vec<Seen>,
    /// Of all of them, also those that ended unseen.
    pub cpu: Duration,
    /// This machine's costs; none: they could not be measured.
    pub costs: Option<Costs>,
    /// Whole runs.
    pub compared: Option<Compared>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// What to do.
    pub verdict: Verdict,
    /// How sure that is.
    pub sure: Confidence,
    /// Share of the processor time that huge pages save.
    pub saved: f64,
    /// At least and at most.
    pub saved_range: (f64, f64),
    /// By accesses and faults.
    pub estimate: Estimate,
    /// By whole runs: share of the processor time saved, and how far runs of one kind are apart.
    pub measured: Option<(f64, f64)>,
    /// Memory that would be added if every touched region were huge.
    pub bloat_bytes: u64,
    /// Resident where huge pages can be.
    pub possible_bytes: u64,
    /// The part of it that is dense.
    pub dense_bytes: u64,
    /// In huge pages already.
    pub huge_bytes: u64,
    /// Zero-filled in them.
    pub waste_bytes: Option<u64>,
}

/// What huge pages in dense regions would save of a process's time: by translations, at least and at most, and by faults.
fn saved(seen: &Seen, costs: &Costs) -> (f64, f64, f64) {
    let in_use = seen.in_use as f64;
    let missed = if in_use > TLB_PAGES {
        1.0 - TLB_PAGES / in_use
    } else {
        0.0
    };
    let dense = seen.layout.dense_bytes as f64 / seen.layout.resident_bytes.max(1) as f64;
    let (least, most) = costs.saved_touch_ns();
    let missed = seen.touches * missed * 1e-9;
    let faults = seen.faults as f64 * dense * costs.saved_fault_ns().max(0.0) * 1e-9;
    // No more than the kernel used in all, whatever a fault cost us.
    (missed * least, missed * most, faults.min(seen.system.as_secs_f64()))
}

/// Share saved, and the spread within one kind, by processor time.
fn measured(compared: &Compared) -> Option<(f64, f64)> {
    let best = |runs: &[Run]| runs.iter().map(|run| run.cpu_s).min_by(f64::total_cmp);
    let worst = |runs: &[Run]| runs.iter().map(|run| run.cpu_s).max_by(f64::total_cmp);
    let (base, huge) = (best(&compared.base)?, best(&compared.huge)?);
    if base <= 0.0 {
        return None;
    }
    let spread = |runs: &[Run], best: f64| worst(runs).map_or(0.0, |worst| (worst - best) / base);
    let spread = spread(&compared.base, base).max(spread(&compared.huge, huge));
    Some((1.0 - huge / base, spread))
}

/// What it comes to.
pub fn answer(evidence: &Evidence) -> Answer {
    let all = || evidence.processes.iter();
    let sum = |of: &dyn Fn(&Seen) -> u64| all().map(of).sum::<u64>();
    let cpu = evidence.cpu.as_secs_f64().max(1e-3);
    let mut estimate = Estimate::default();
    let (mut least, mut most) = (0.0, 0.0);
    for (at_least, at_most, faults) in all().filter_map(|seen| Some(saved(seen, evidence.costs.as_ref()?))) {
        estimate.translation += (at_least + at_most) / 2.0 / cpu;
        estimate.faults += faults / cpu;
        least += (at_least + faults / 2.0) / cpu;
        most += (at_most + faults) / cpu;
    }
    let mut answer = Answer {
        verdict: Verdict::Unknown,
        sure: Confidence::Unsure,
        saved: estimate.saved(),
        saved_range: (least.min(MOST), most.min(MOST)),
        estimate,
        measured: evidence.compared.as_ref().and_then(measured),
        bloat_bytes: sum(&|seen| seen.layout.bloat_bytes()),
        possible_bytes: sum(&|seen| seen.layout.possible_bytes),
        dense_bytes: sum(&|seen| seen.layout.dense_bytes),
        huge_bytes: sum(&|seen| seen.layout.huge_bytes),
        waste_bytes: all().map(|seen| seen.layout.waste_bytes).sum(),
    };
    let resident = sum(&|seen| seen.layout.resident_bytes);
    let largest = all()
        .map(|seen| seen.layout.possible_bytes + seen.layout.huge_bytes)
        .max()
        .unwrap_or(0);
    let is_short = evidence.cpu < LEAST_CPU;
    let has_bloat = answer.bloat_bytes >= BLOAT.1 && answer.bloat_bytes as f64 >= BLOAT.0 * resident as f64;
    if answer.huge_bytes > answer.possible_bytes {
        answer.verdict = Verdict::HasThem;
        answer.sure = Confidence::Sure;
        return answer;
    }
    let sees_heat = all().any(|seen| seen.windows > 1) && evidence.costs.is_some();
    match answer.measured {
        // A run for a set time takes as long on any pages: an estimate far off is believed more.
        Some((saved, spread)) if saved.abs() >= 0.02 || estimate.saved() < 2.0 * WORTH => {
            answer.saved = saved;
            let off = spread.max(0.01);
            answer.saved_range = (saved - off, saved + off);
            let rounds = evidence.compared.as_ref().map_or(0, |c| c.base.len().min(c.huge.len()));
            let is_clear = (saved - WORTH).abs() > spread;
            answer.sure = match (rounds, is_clear) {
                (0 | 1, true) => Confidence::Likely,
                (_, true) => Confidence::Sure,
                (_, false) => Confidence::Unsure,
            };
        }
        _ if largest < LEAST_BYTES => {
            (answer.saved, answer.saved_range) = (0.0, (0.0, 0.0));
            answer.sure = if resident > 0 || !is_short {
                Confidence::Sure
            } else {
                Confidence::Unsure
            };
        }
        _ if answer.dense_bytes == 0 => answer.sure = Confidence::Likely,
        _ if !sees_heat || is_short => {}
        _ => {
            let is_far = answer.saved_range.0 >= WORTH || answer.saved_range.1 < WORTH;
            answer.sure = if is_far { Confidence::Likely } else { Confidence::Unsure };
        }
    }
    answer.verdict = match (answer.saved >= WORTH, has_bloat) {
        (true, false) => Verdict::WorthIt,
        (true, true) => Verdict::WorthItWhereDense,
        (false, true) => Verdict::WouldHurt,
        (false, false)
            if answer.measured.is_none() && largest >= LEAST_BYTES && !sees_heat && answer.dense_bytes > 0 =>
        {
            Verdict::Unknown
        }
        (false, false) => Verdict::DoNotBother,
    };
    answer
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;

    const GB: u64 = 1 << 30;

    fn costs() -> Costs {
        Costs {
            base_fault_ns: 400.0,
            huge_fault_ns: 60_000.0,
            huge_fault_max_ns: 200_000.0,
            touch_ns: [25.0, 17.0],
            chained_ns: [82.0, 70.0],
            bytes: 256 << 20,
        }
    }

    fn dense(gb: u64) -> Seen {
        Seen {
            layout: Layout {
                resident_bytes: gb * GB,
                possible_bytes: gb * GB,
                dense_bytes: gb * GB,
                if_huge_bytes: gb * GB,
                waste_bytes: Some(0),
                ..Layout::default()
            },
            cpu: Duration::from_secs(10),
            system: Duration::from_secs(5),
            windows: 10,
            ..Seen::default()
        }
    }

    fn of(seen: Seen) -> Answer {
        answer(&Evidence {
            cpu: seen.cpu,
            processes: vec![seen],
            costs: Some(costs()),
            compared: None,
        })
    }

    fn run(cpu_s: f64) -> Run {
        Run {
            elapsed_s: cpu_s,
            cpu_s,
            system_s: 0.0,
            faults: 0,
            peak_bytes: GB,
            status: Some(0),
        }
    }

    #[test]
    fn touches_at_random_over_much_memory_pay() {
        let found = of(Seen {
            touches: 3e8,
            in_use: 500_000,
            ..dense(2)
        });
        assert_eq!((found.verdict, found.sure), (Verdict::WorthIt, Confidence::Likely));
        assert!((found.saved - 0.3).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn what_fits_the_tlb_needs_no_look_up_however_often_it_is_touched() {
        let found = of(Seen {
            touches: 1e9,
            in_use: 1500,
            ..dense(2)
        });
        assert_eq!((found.verdict, found.sure), (Verdict::DoNotBother, Confidence::Likely));
        assert_eq!(found.saved, 0.0);
    }

    #[test]
    fn faults_alone_can_pay() {
        let found = of(Seen {
            faults: 3_000_000,
            ..dense(2)
        });
        assert_eq!(found.verdict, Verdict::WorthIt);
        assert!(
            found.estimate.faults > 0.08 && found.estimate.translation == 0.0,
            "{found:?}"
        );
        let found = of(Seen {
            faults: 3_000_000,
            system: Duration::from_millis(100),
            ..dense(2)
        });
        assert_eq!(found.verdict, Verdict::DoNotBother, "the kernel used a hundredth");
        assert_eq!(found.estimate.faults, 0.01);
    }

    #[test]
    fn scattered_memory_would_be_hurt_and_beside_a_dense_hot_part_only_there_it_pays() {
        let mut scattered = dense(1);
        scattered.layout.dense_bytes = 0;
        scattered.layout.if_huge_bytes = 6 * GB;
        assert_eq!(of(scattered).verdict, Verdict::WouldHurt);
        let mut both = dense(2);
        both.layout.dense_bytes = GB;
        both.layout.if_huge_bytes = 7 * GB;
        (both.touches, both.in_use) = (3e8, 250_000);
        assert_eq!(of(both).verdict, Verdict::WorthItWhereDense);
    }

    #[test]
    fn little_memory_is_not_worth_a_thought_and_what_is_huge_already_is_said_to_be() {
        let mut small = dense(1);
        small.layout = Layout {
            resident_bytes: 4 << 20,
            possible_bytes: 2 << 20,
            ..Layout::default()
        };
        assert_eq!(
            (of(small.clone()).verdict, of(small).sure),
            (Verdict::DoNotBother, Confidence::Sure)
        );
        let mut huge = dense(1);
        huge.layout.huge_bytes = 3 * GB;
        assert_eq!(of(huge).verdict, Verdict::HasThem);
    }

    #[test]
    fn whole_runs_count_more_than_estimates_unless_they_took_a_set_time() {
        let with = |base: &[f64], huge: &[f64], seen: Seen| {
            answer(&Evidence {
                cpu: seen.cpu,
                processes: vec![seen],
                costs: Some(costs()),
                compared: Some(Compared {
                    by: super::super::compare::By::Stock,
                    base: base.iter().copied().map(run).collect(),
                    huge: huge.iter().copied().map(run).collect(),
                }),
            })
        };
        let found = with(&[10.0, 10.1], &[8.0, 8.1], dense(2));
        assert_eq!((found.verdict, found.sure), (Verdict::WorthIt, Confidence::Sure));
        assert!((found.saved - 0.2).abs() < 1e-9);
        let found = with(&[10.0], &[8.0], dense(2));
        assert_eq!(found.sure, Confidence::Likely);
        let found = with(&[10.0, 12.0], &[9.5, 11.9], dense(2));
        assert_eq!(found.sure, Confidence::Unsure, "runs of one kind are as far apart");
        // Ten seconds in any case.
        let hot = Seen {
            touches: 3e8,
            in_use: 500_000,
            ..dense(2)
        };
        assert_eq!(with(&[10.0, 10.0], &[10.0, 10.0], hot).verdict, Verdict::WorthIt);
        let found = with(&[10.0, 10.1], &[10.5, 10.6], dense(2));
        assert_eq!(found.verdict, Verdict::DoNotBother);
        assert!(found.saved < 0.0);
    }

    #[test]
    fn without_any_evidence_nothing_is_claimed() {
        let mut unseen = dense(2);
        unseen.windows = 0;
        let found = of(unseen);
        assert_eq!((found.verdict, found.sure), (Verdict::Unknown, Confidence::Unsure));
    }
}
