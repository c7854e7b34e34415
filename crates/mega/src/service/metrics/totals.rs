//! Counters since the daemon's start, by rule, by service and by policy; a reload does not set them back. Every table is bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mega_core::action::{ActionKind, Outcome};
use mega_core::journal::Event;
use mega_core::units::BasePages;

use crate::service::figures::{word, Place};

/// Services with figures of their own; later ones count in their rule only.
pub const SERVICES_MAX: usize = 256;
/// A service without processes keeps its place, and its counters, for so long.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// Reasons by rule; later ones count as `other`.
const REASONS_MAX: usize = 64;
/// The histogram's bounds, in microseconds.
const BOUNDS_US: [u64; 9] = [10, 50, 100, 500, 1000, 5000, 10_000, 50_000, 100_000];

/// Stalls by their length.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Stalls {
    counts: [u64; BOUNDS_US.len()],
    /// All.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
}

impl Stalls {
    fn add(&mut self, ns: u64) {
        let at = BOUNDS_US.iter().position(|bound| ns <= bound * 1000);
        if let Some(count) = at.and_then(|at| self.counts.get_mut(at)) {
            *count += 1;
        }
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Bounds in seconds, and how many were at most that long.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut sum = 0;
        BOUNDS_US.iter().zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (*bound as f64 / 1e6, sum)
        })
    }
}

/// By action (`promote`, `demote`) and reason.
pub type Reasons = BTreeMap<(&'static str, String), u64>;

/// What was done under a rule.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OfRule {
    /// Promotions done.
    pub promotions: u64,
    /// Demotions done.
    pub demotions: u64,
    /// Regions that others have collapsed.
    pub by_others: u64,
    /// Memory given back.
    pub returned_bytes: u64,
    /// Actions that were tried and not done.
    pub refused: Reasons,
    /// Regions whose turn did not come, counted at each scan.
    pub deferred: Reasons,
    /// For how long programs were stalled by each action.
    pub stalls: Stalls,
    /// For how long they may have been stalled by cleared accessed bits.
    pub ageing_ns: u64,
    /// Processes that have less than their rule guarantees, and why.
    pub missed: BTreeMap<u32, String>,
}

/// What was done in a service.
#[derive(Debug, Clone)]
pub struct OfService {
    /// Promotions done.
    pub promotions: u64,
    /// Demotions done.
    pub demotions: u64,
    /// Both kinds of stall.
    pub stall_ns: u64,
    seen: Instant,
}

/// What the loops of a policy did.
#[derive(Debug, Clone, Default)]
pub struct OfPolicy {
    /// Scans.
    pub scans: u64,
    /// Their duration.
    pub took_ns: u64,
    /// Their processor time.
    pub cpu_ns: u64,
    /// The end of each loop's last one.
    pub last: BTreeMap<usize, SystemTime>,
}

/// The counters.
#[derive(Debug, Default)]
pub struct Tables {
    /// By the rule's name.
    pub rules: BTreeMap<String, OfRule>,
    /// By the names of rule and service.
    pub services: BTreeMap<Place, OfService>,
    /// By the policy's name.
    pub policies: BTreeMap<String, OfPolicy>,
}

/// The counters; clones share them.
#[derive(Debug, Default, Clone)]
pub struct Totals(Arc<Mutex<Tables>>);

impl Totals {
    /// The counters; nobody counts meanwhile.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the rules and loops that a new configuration does not have.
    pub fn keep(&self, rules: &[String], policies: &[String]) {
        let mut tables = self.tables();
        tables.rules.retain(|name, _| rules.contains(name));
        tables.services.retain(|place, _| rules.contains(&place.rule));
        tables.policies.retain(|name, _| policies.contains(name));
        tables.policies.values_mut().for_each(|of| of.last.clear());
        // The new loops look anew.
        tables.rules.values_mut().for_each(|of| of.missed.clear());
    }

    /// A process has less than its rule guarantees, for this reason, or no longer.
    pub fn guarantee(&self, place: &Place, pid: u32, why: Option<String>) {
        let mut tables = self.tables();
        let missed = &mut tables.rules.entry(place.rule.clone()).or_default().missed;
        match why {
            Some(why) => drop(missed.insert(pid, why)),
            None => drop(missed.remove(&pid)),
        }
    }

    /// A scan of a loop has ended.
    pub fn scanned(&self, policy: &str, number: usize, took_ns: u64, cpu_ns: u64) {
        let mut tables = self.tables();
        let of = tables.policies.entry(policy.to_owned()).or_default();
        of.scans += 1;
        of.took_ns = of.took_ns.saturating_add(took_ns);
        of.cpu_ns = of.cpu_ns.saturating_add(cpu_ns);
        of.last.insert(number, SystemTime::now());
    }

    /// Something was done, or not, to a process that is there.
    pub fn event(&self, place: &Place, event: &Event) {
        let mut tables = self.tables();
        let rule = tables.rules.entry(place.rule.clone()).or_default();
        let (mut promotions, mut demotions, mut stall) = (0, 0, 0);
        match event {
            Event::Age { stall_ns, .. } => {
                rule.ageing_ns = rule.ageing_ns.saturating_add(*stall_ns);
                stall = *stall_ns;
            }
            Event::Collapsed { regions, .. } => rule.by_others += regions,
            Event::Defer {
                action, why, regions, ..
            } => count(&mut rule.deferred, *action, word(*why), *regions),
            Event::Outcome {
                action,
                outcome,
                took_ns,
                stall_ns,
                returned_pages,
                ..
            } => {
                stall = stall_ns.unwrap_or(*took_ns);
                rule.stalls.add(stall);
                rule.returned_bytes += BasePages(*returned_pages).bytes().0;
                match (outcome, action) {
                    (Outcome::Done, ActionKind::Promote) => promotions = 1,
                    (Outcome::Done, ActionKind::Demote) => demotions = 1,
                    (Outcome::Already, _) => {}
                    (refused, action) => count(&mut rule.refused, *action, refused.to_string(), 1),
                }
            }
            _ => return,
        }
        rule.promotions += promotions;
        rule.demotions += demotions;
        if promotions + demotions + stall > 0 {
            if let Some(service) = tables.service(place) {
                service.promotions += promotions;
                service.demotions += demotions;
                service.stall_ns = service.stall_ns.saturating_add(stall);
            }
        }
    }
}

impl Tables {
    /// The counters of a service; none where there are too many.
    pub fn service(&mut self, place: &Place) -> Option<&mut OfService> {
        if !self.services.contains_key(place) && self.services.len() >= SERVICES_MAX {
            self.services.retain(|_, of| of.seen.elapsed() < KEPT_FOR);
            if self.services.len() >= SERVICES_MAX {
                return None;
            }
        }
        let new = || OfService {
            promotions: 0,
            demotions: 0,
            stall_ns: 0,
            seen: Instant::now(),
        };
        let of = self.services.entry(place.clone()).or_insert_with(new);
        of.seen = Instant::now();
        Some(of)
    }

    /// Forgets the services that have had no process for long.
    pub fn forget(&mut self) {
        self.services.retain(|_, of| of.seen.elapsed() < KEPT_FOR);
    }
}

fn count(reasons: &mut Reasons, action: ActionKind, why: String, times: u64) {
    let action = match action {
        ActionKind::Promote => "promote",
        ActionKind::Demote => "demote",
    };
    let mut key = (action, why);
    if !reasons.contains_key(&key) && reasons.len() >= REASONS_MAX {
        key.1 = "other".to_owned();
    }
    *reasons.entry(key).or_default() += times;
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::observe::Region;

    fn place(service: &str) -> Place {
        Place {
            rule: "r".to_owned(),
            service: service.to_owned(),
        }
    }

    fn outcome(outcome: Outcome, stall_ns: u64) -> Event {
        Event::Outcome {
            pid: 1,
            region: Region(1),
            action: ActionKind::Promote,
            outcome,
            took_ns: 7,
            stall_ns: Some(stall_ns),
            returned_pages: 2,
            cpu_ns: 0,
        }
    }

    #[test]
    fn a_stall_is_counted_in_every_bucket_that_it_fits() {
        let mut stalls = Stalls::default();
        for ns in [10_000, 10_001, 2_000_000_000] {
            stalls.add(ns);
        }
        let buckets: Vec<_> = stalls.buckets().collect();
        assert_eq!((buckets[0], buckets[1], buckets[8]), ((1e-5, 1), (5e-5, 2), (0.1, 2)));
        assert_eq!((stalls.count, stalls.sum_ns), (3, 2_000_020_001));
    }

    #[test]
    fn what_is_done_counts_in_rule_and_service_and_what_is_refused_by_its_reason() {
        let totals = Totals::default();
        totals.event(&place("a"), &outcome(Outcome::Done, 5));
        totals.event(&place("b"), &outcome(Outcome::Done, 6));
        totals.event(&place("b"), &outcome(Outcome::Busy, 1));
        let tables = totals.tables();
        let rule = &tables.rules["r"];
        assert_eq!((rule.promotions, rule.stalls.sum_ns), (2, 12));
        assert_eq!(rule.returned_bytes, 3 * 2 * 4096);
        assert_eq!(rule.refused, BTreeMap::from([(("promote", "busy".to_owned()), 1)]));
        let b = &tables.services[&place("b")];
        assert_eq!((b.promotions, b.stall_ns), (1, 7));
    }

    #[test]
    fn a_thousand_services_that_come_and_go_take_no_more_room_than_the_limit() {
        let totals = Totals::default();
        for number in 0..1000 {
            totals.event(&place(&format!("{number}.service")), &outcome(Outcome::Done, 1));
        }
        let mut tables = totals.tables();
        assert_eq!(
            (tables.services.len(), tables.rules["r"].promotions),
            (SERVICES_MAX, 1000)
        );
        let long_ago = Instant::now().checked_sub(KEPT_FOR).unwrap();
        tables.services.values_mut().for_each(|of| of.seen = long_ago);
        assert!(tables.service(&place("new")).is_some());
        assert_eq!(tables.services.len(), 1);
    }

    #[test]
    fn errors_without_end_are_one_reason_in_the_end() {
        let totals = Totals::default();
        for errno in 0..1000 {
            totals.event(&place("a"), &outcome(Outcome::Failed(errno), 1));
        }
        let tables = totals.tables();
        let refused = &tables.rules["r"].refused;
        assert_eq!(refused.len(), REASONS_MAX + 1);
        assert_eq!(refused.values().sum::<u64>(), 1000);
    }

    #[test]
    fn counters_outlive_a_reload_unless_their_rule_does_not() {
        let totals = Totals::default();
        totals.event(&place("a"), &outcome(Outcome::Done, 1));
        totals.scanned("mega", 0, 5, 4);
        totals.keep(&["r".to_owned()], &["mega".to_owned()]);
        assert_eq!(totals.tables().rules["r"].promotions, 1);
        assert_eq!(totals.tables().policies["mega"].scans, 1);
        totals.keep(&[], &[]);
        assert!(totals.tables().rules.is_empty() && totals.tables().services.is_empty());
    }
}
