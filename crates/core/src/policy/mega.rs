//! MEGA (Michailidis, Delis, Roussopoulos: SYSTOR'19), sections 3.1 to 3.3 and Algorithm 1.
//!
//! A region is in one of three states:
//!
//! ```text
//!                    mapped ≥ StartUTracking                mapped ≥ MProm and utilization ≥ UProm
//!   mapped-tracked ───────────────────────────► candidate ───────────────────────────────────────► huge
//!                  ◄───────────────────────────           ◄───────────────────────────────────────
//!                    mapped < StopUTracking                 mapped < MDem or utilization < UDem
//!                                                           or zero-filled ≥ ZDem (ours)
//! ```
//!
//! A scan, every 5 s, finds the base pages of candidates and huge pages that were accessed since the last one. The share of the
//! region that was accessed goes into a history of the last N = 10 scans; utilization is their mean. An accessed huge page
//! counts as 512 accessed base pages.
//!
//! Interpretation where the paper leaves a choice:
//! - Algorithm 1 as printed ends the whole scan at the first region that stops being a candidate, and compares the count of one
//!   scan with the thresholds. Section 3.2 says what is meant: go on to the next region, compare the mean of the history.
//! - Scans before a region was tracked count as not accessed, so nothing is promoted at first sight: the paper wants long-lived huge
//!   pages (Table 5). `history=lived` takes the mean over the scans so far instead.
//! - For demotion it is the reverse: a huge page is not demoted as unutilized before its history is full. The case does not arise in the
//!   paper, where every huge page was a candidate first.
//! - A base page mapped to the shared zero page takes no memory, so it counts as not mapped. Linux leaves such pages where it splits a huge
//!   page, and promoting the region again would take the memory again.
//! - ZDem is ours. On Linux the part of a huge page that a program never touched cannot be unmapped, so MDem alone would never see waste;
//!   zero-filled contents are its visible trace.

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{Observation, ProcessView, Snapshot};
use crate::policy::params::{hand_on_parameters, parameters, Count, ParamError, ParamValue};
use crate::policy::table::Table;
use crate::policy::{Decision, Needs, Policy, ZERO_FILLED_LIMIT};
use crate::units::{BasePages, Share, UnitError, REGION_PAGES};

/// The longest configurable history. It bounds the memory per tracked region.
const HISTORY_MAX: usize = 32;
/// The paper's history, for which a tracked region takes less.
const HISTORY: usize = 10;

/// How scans from before a region was tracked count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Not accessed.
    Full,
    /// Not at all: the mean is over the scans so far.
    Lived,
}

impl ParamValue for History {
    fn read(text: &str) -> Result<Self, UnitError> {
        match text {
            "full" => Ok(Self::Full),
            "lived" => Ok(Self::Lived),
            _ => Err(UnitError::new(text, "'full' or 'lived'")),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Full => "full",
            Self::Lived => "lived",
        }
        .to_string()
    }
}

parameters! {
    /// The paper's parameters, with its values (sections 3.1 to 3.3), and ours.
    pub struct MegaParams for "mega" {
        start_utracking: Share = Share::percent(50), "StartUTracking: mapped share from which utilization is tracked";
        stop_utracking: Share = Share::percent(25), "StopUTracking: mapped share below which tracking ends";
        n: Count<1, 32> = Count(10), "N: scans in the history";
        mprom: Share = Share::percent(90), "MProm: mapped share from which a candidate may be promoted";
        uprom: Share = Share::percent(50), "UProm: utilization from which a candidate may be promoted";
        mdem: Share = Share::percent(50), "MDem: mapped share below which a huge page is demoted";
        udem: Share = Share::percent(25), "UDem: utilization below which a huge page is demoted";
        zdem: Share = ZERO_FILLED_LIMIT, "ZDem (ours): zero-filled share from which a huge page is demoted, even in use";
        history: History = History::Full, "scans before tracking began: 'full' counts them as not accessed, 'lived' omits them";
    }
}

/// The last scans of one region, `N` at most, and how many there were.
#[derive(Debug, Clone, Copy)]
struct Scans<const N: usize> {
    accessed: [u16; N],
    next: u8,
    lived: u8,
}

impl<const N: usize> Scans<N> {
    const NONE: Self = Self {
        accessed: [0; N],
        next: 0,
        lived: 0,
    };

    fn push(&mut self, pages: BasePages, n: usize) {
        self.accessed[usize::from(self.next) % n] = pages.0.min(REGION_PAGES) as u16;
        self.next = ((usize::from(self.next) + 1) % n) as u8;
        self.lived = (usize::from(self.lived) + 1).min(n) as u8;
    }

    fn sum(&self) -> u64 {
        self.accessed.iter().map(|&pages| u64::from(pages)).sum()
    }
}

/// The policy, with its candidates and huge pages.
#[derive(Debug, Default)]
pub struct Mega {
    params: MegaParams,
    /// One of them is used: the second if the history is longer than the paper's.
    tracked: Table<Scans<HISTORY>>,
    tracked_longer: Table<Scans<HISTORY_MAX>>,
}

impl Mega {
    fn history_len(&self) -> usize {
        (self.params.n.0 as usize).clamp(1, HISTORY_MAX)
    }
}

/// One region's next state and the action for it.
struct Step<const N: usize> {
    keep: Option<Scans<N>>,
    action: Option<(ActionKind, Reason, BasePages, Expect)>,
    utilization: Share,
}

fn step<const N: usize>(params: &MegaParams, n: usize, seen: &Observation, had: Option<Scans<N>>) -> Step<N> {
    let populated = seen.populated();
    let is_candidate = match had {
        _ if seen.huge => true,
        Some(_) => params.stop_utracking.reached_by_pages(populated),
        None => params.start_utracking.reached_by_pages(populated),
    };
    if !is_candidate {
        return Step {
            keep: None,
            action: None,
            utilization: Share::ZERO,
        };
    }
    let mut scans = had.unwrap_or(Scans::NONE);
    if seen.aged {
        scans.push(seen.accessed, n);
    }
    let over = match params.history {
        History::Full => n,
        History::Lived => usize::from(scans.lived),
    };
    let (sum, whole) = (scans.sum(), over as u64 * u64::from(REGION_PAGES));
    let utilization = Share::of(sum, whole);
    let used = |pages: u64| BasePages((pages / over.max(1) as u64) as u32);

    let zero = seen.zero.unwrap_or_default();
    let action = if seen.shared {
        None
    } else if !seen.huge {
        let wanted = seen.can.promote
            && over > 0
            && params.mprom.reached_by_pages(populated)
            && params.uprom.reached_by(sum, whole);
        wanted.then_some((
            ActionKind::Promote,
            Reason::Utilized,
            used(sum),
            Expect::Populated(populated.less(BasePages(REGION_PAGES / 8))),
        ))
    } else if !seen.can.demote {
        None
    } else if zero > BasePages::ZERO && params.zdem.reached_by_pages(zero) {
        let least = BasePages(zero.0 - zero.0 / 8);
        Some((ActionKind::Demote, Reason::ZeroFilled, zero, Expect::Zero(least)))
    } else if !params.mdem.reached_by_pages(seen.mapped) {
        Some((ActionKind::Demote, Reason::Unmapped, zero, Expect::Anything))
    } else if usize::from(scans.lived) >= n && !params.udem.reached_by(sum, whole) {
        Some((ActionKind::Demote, Reason::Unutilized, zero, Expect::Anything))
    } else {
        None
    };
    Step {
        keep: Some(scans),
        action,
        utilization,
    }
}

/// Takes every region one step on.
fn decide<const N: usize>(params: &MegaParams, n: usize, tracked: &mut Table<Scans<N>>, seen: &Snapshot) -> Decision {
    let mut decision = Decision::default();
    tracked.keep_only(&seen.processes);
    for process in &seen.processes {
        let mut age = Vec::new();
        let ProcessView { id, .. } = process;
        tracked.update(process, |region, had| {
            if region.raced {
                return had;
            }
            let step = step(params, n, region, had);
            if step.keep.is_some() {
                decision.candidates += usize::from(!region.huge);
                if region.can.age && !region.shared {
                    age.push(region.region);
                }
            }
            if let Some((kind, reason, benefit, expect)) = step.action {
                decision.actions.push(Action {
                    process: *id,
                    region: region.region,
                    kind,
                    reason,
                    utilization: Some(step.utilization),
                    benefit,
                    expect,
                });
            }
            step.keep
        });
        decision.age.push((*id, age));
    }
    decision
}

impl Policy for Mega {
    fn name(&self) -> &'static str {
        "mega"
    }

    fn needs(&self) -> Needs {
        Needs {
            utilization: true,
            contents: true,
            ..Needs::default()
        }
    }

    fn without_utilization(&self) -> Option<&'static str> {
        Some("promotes nothing; demotes only what is mostly zero-filled. Policy 'ingens' promotes by what is mapped")
    }

    fn decide(&mut self, seen: &Snapshot) -> Decision {
        match self.history_len() {
            n if n <= HISTORY => decide(&self.params, n, &mut self.tracked, seen),
            n => decide(&self.params, n, &mut self.tracked_longer, seen),
        }
    }

    hand_on_parameters!();

    fn check(&self) -> Result<(), ParamError> {
        let p = &self.params;
        let broken = |rule| Err(ParamError::Inconsistent { policy: "mega", rule });
        if p.stop_utracking > p.start_utracking {
            return broken("stop_utracking must not be above start_utracking");
        }
        if p.udem > p.uprom {
            return broken("udem must not be above uprom, or pages would be demoted as soon as they are promoted");
        }
        if p.mdem > p.mprom {
            return broken("mdem must not be above mprom, or pages would be demoted as soon as they are promoted");
        }
        if u64::from(p.zdem.as_millionths()) + u64::from(p.mprom.as_millionths()) <= 1_000_000 {
            return broken("zdem must be above 100% - mprom, or pages would be demoted as soon as they are promoted");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{base, huge, Driver};

    fn mega() -> Driver<Mega> {
        Driver::new(Mega::default())
    }

    #[test]
    fn the_defaults_are_the_papers_parameter_table() {
        let table: Vec<_> = Mega::default()
            .params()
            .into_iter()
            .map(|p| (p.name, p.default))
            .collect();
        let paper = [
            ("start_utracking", "50%"), // 3.1
            ("stop_utracking", "25%"),  // 3.1
            ("n", "10"),                // 3.2
            ("mprom", "90%"),           // 3.3
            ("uprom", "50%"),           // 3.3
            ("mdem", "50%"),            // 3.3
            ("udem", "25%"),            // 3.3
        ];
        for (name, value) in paper {
            assert!(
                table.contains(&(name, value.to_string())),
                "{name} = {value} in {table:?}"
            );
        }
    }

    #[test]
    fn a_full_and_hot_region_is_promoted_after_half_the_history_and_not_before() {
        let mut m = mega();
        m.see(base(1, 512, 512).unaged()); // first sight: nothing was cleared before it
        for scan in 1..5 {
            m.see(base(1, 512, 512));
            assert!(m.actions().is_empty(), "scan {scan}");
        }
        m.see(base(1, 512, 512));
        assert_eq!(m.kinds(), [(1, ActionKind::Promote, Reason::Utilized)]);
    }

    #[test]
    fn history_lived_promotes_at_the_first_scan_that_tells() {
        let mut m = mega();
        m.policy.set("history", "lived").unwrap();
        m.see(base(1, 512, 512).unaged());
        assert!(m.actions().is_empty());
        m.see(base(1, 512, 512));
        assert_eq!(m.kinds(), [(1, ActionKind::Promote, Reason::Utilized)]);
    }

    #[test]
    fn mprom_at_just_under_and_just_over() {
        for (mapped, promoted) in [(460, false), (461, true), (462, true)] {
            let mut m = mega();
            for _ in 0..10 {
                m.see(base(1, mapped, mapped));
            }
            assert_eq!(!m.actions().is_empty(), promoted, "{mapped} mapped");
        }
    }

    #[test]
    fn uprom_at_just_under_and_just_over_is_the_mean_of_the_history() {
        // The mean over ten scans of 512 pages reaches one half at 2560 page accesses.
        for (last, promoted) in [(255, false), (256, true), (257, true)] {
            let mut m = mega();
            for _ in 0..9 {
                m.see(base(1, 512, 256));
            }
            m.see(base(1, 512, last));
            assert_eq!(!m.actions().is_empty(), promoted, "{last} accessed last");
        }
    }

    #[test]
    fn start_and_stop_utracking_at_just_under_and_just_over() {
        let mut m = mega();
        m.see(base(1, 255, 0));
        assert_eq!((m.policy.tracked.len(), m.aged()), (0, 0));
        m.see(base(1, 256, 0));
        assert_eq!((m.policy.tracked.len(), m.aged()), (1, 1));
        m.see(base(1, 128, 0));
        assert_eq!(m.policy.tracked.len(), 1, "a candidate stays one down to StopUTracking");
        m.see(base(1, 127, 0));
        assert_eq!(m.policy.tracked.len(), 0);
        m.see(base(1, 200, 0));
        assert_eq!(m.policy.tracked.len(), 0, "and is one again only from StartUTracking");
    }

    #[test]
    fn a_region_that_stops_being_a_candidate_does_not_end_the_scan() {
        let mut m = mega();
        for _ in 0..10 {
            m.see_all(&[base(1, 512, 512), base(2, 512, 512)]);
        }
        m.see_all(&[base(1, 10, 10), base(2, 512, 512)]);
        assert_eq!(m.kinds(), [(2, ActionKind::Promote, Reason::Utilized)]);
    }

    #[test]
    fn an_unutilized_huge_page_is_demoted_once_its_history_is_full() {
        let mut m = mega();
        for scan in 0..9 {
            m.see(huge(1, false));
            assert!(m.actions().is_empty(), "scan {scan}");
        }
        m.see(huge(1, false));
        assert_eq!(m.kinds(), [(1, ActionKind::Demote, Reason::Unutilized)]);
    }

    #[test]
    fn udem_at_just_under_and_just_over() {
        // Of ten scans of a huge page, accessed or not as a whole: 2 are under a quarter, 3 are over.
        for (hot_scans, demoted) in [(2, true), (3, false)] {
            let mut m = mega();
            for scan in 0..10 {
                m.see(huge(1, scan < hot_scans));
            }
            assert_eq!(!m.actions().is_empty(), demoted, "{hot_scans} of 10 scans");
        }
    }

    #[test]
    fn zdem_demotes_a_huge_page_in_use_at_the_threshold_and_not_under_it() {
        for (zero, demoted) in [(0, false), (255, false), (256, true), (502, true)] {
            let mut m = mega();
            m.see(huge(1, true).zero(zero));
            let expected: &[_] = if demoted {
                &[(1, ActionKind::Demote, Reason::ZeroFilled)]
            } else {
                &[]
            };
            assert_eq!(m.kinds(), expected, "{zero} zero-filled");
        }
    }

    #[test]
    fn the_zero_pages_that_a_demotion_leaves_do_not_count_as_mapped() {
        let mut m = mega();
        for _ in 0..20 {
            m.see(base(1, 512, 512).zero(502));
            assert!(m.actions().is_empty());
        }
    }

    #[test]
    fn what_cannot_be_done_is_not_asked_for() {
        let mut m = mega();
        for _ in 0..12 {
            m.see_all(&[
                base(1, 512, 512).cannot(crate::observe::Why::NoHugePage),
                base(2, 512, 512).shared(),
                huge(3, false).cannot(crate::observe::Why::Mlocked),
                huge(4, false).shared(),
            ]);
            assert!(m.actions().is_empty());
        }
    }

    #[test]
    fn scans_without_clearing_leave_the_history_alone() {
        let mut m = mega();
        for _ in 0..30 {
            m.see_all(&[base(1, 512, 512).unaged(), huge(2, false).unaged()]);
            assert!(m.actions().is_empty());
        }
    }

    #[test]
    fn a_raced_look_changes_nothing() {
        let mut m = mega();
        for _ in 0..4 {
            m.see(base(1, 512, 512));
        }
        m.see(base(1, 0, 0).raced());
        assert!(m.actions().is_empty());
        m.see(base(1, 512, 512));
        assert_eq!(m.kinds(), [(1, ActionKind::Promote, Reason::Utilized)]);
    }

    #[test]
    fn a_region_or_process_that_disappears_is_forgotten() {
        let mut m = mega();
        for _ in 0..4 {
            m.see(base(1, 512, 512));
        }
        m.see_all(&[]);
        assert_eq!(m.policy.tracked.len(), 0);
        m.see(base(1, 512, 512));
        assert!(m.actions().is_empty(), "its history began anew");
    }

    #[test]
    fn parameters_that_would_flap_are_refused() {
        for (name, value) in [
            ("udem", "60%"),
            ("mdem", "95%"),
            ("stop_utracking", "51%"),
            ("zdem", "10%"),
        ] {
            let mut policy = Mega::default();
            policy.set(name, value).unwrap();
            assert!(policy.check().is_err(), "{name}={value}");
        }
    }

    #[test]
    fn the_state_of_a_tracked_region_takes_at_most_100_bytes_and_a_third_of_that_with_the_papers_history() {
        assert!(std::mem::size_of::<(crate::observe::Region, Scans<HISTORY>)>() <= 32);
        assert!(std::mem::size_of::<(crate::observe::Region, Scans<HISTORY_MAX>)>() <= 100);
    }

    #[test]
    fn a_history_longer_than_the_papers_takes_as_many_scans() {
        for (n, at) in [("10", 5), ("11", 6), ("32", 16)] {
            let mut m = mega();
            m.policy.set("n", n).unwrap();
            let first = (1..40).find(|_| {
                m.see(base(1, 512, 512));
                !m.actions().is_empty()
            });
            assert_eq!(first, Some(at), "n={n}");
        }
    }

    proptest::proptest! {
        /// Whatever is seen: no action contradicts what was seen, and a promoted region satisfied the thresholds.
        #[test]
        fn actions_always_fit_what_was_seen(
            scans in proptest::collection::vec(proptest::collection::vec((0u32..=512, 0u32..=512, 0u32..=512, 0u8..32), 0..6), 1..40)
        ) {
            let mut m = mega();
            for scan in &scans {
                let regions: Vec<_> = scan.iter().enumerate().map(|(i, &(mapped, accessed, zero, bits))| {
                    let mut o = if bits & 1 == 0 { base(i as u64, mapped, accessed) } else { huge(i as u64, bits & 2 == 0) };
                    o = o.zero(zero.min(o.0.mapped.0));
                    o.0.shared = bits & 4 != 0;
                    o.0.aged = bits & 8 == 0;
                    o.0.raced = bits & 16 != 0;
                    o
                }).collect();
                m.see_all(&regions);
                for action in m.actions() {
                    let o = regions[action.region.0 as usize].0;
                    proptest::prop_assert!(!o.raced && !o.shared);
                    match action.kind {
                        ActionKind::Promote => {
                            proptest::prop_assert!(!o.huge && o.populated().0 >= 461);
                            proptest::prop_assert!(action.utilization.unwrap() >= Share::percent(50));
                        }
                        ActionKind::Demote => proptest::prop_assert!(o.huge),
                    }
                }
                proptest::prop_assert!(m.policy.tracked.len() <= regions.len());
            }
        }
    }
}
