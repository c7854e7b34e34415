//! Which metrics there are: from the counters and one look at the processes to the page. docs/metrics.md lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::machine::{unix, Machine};
use super::text::{Format, Kind, Page};
use super::totals::{OfRule, OfService, Reasons, Tables, Totals};
use crate::service::figures::{Book, Place};
use crate::service::matching::Matching;

/// What is in force.
#[derive(Clone)]
pub struct InForce {
    /// Which rule each process is under.
    pub matching: Arc<Matching>,
    /// What the loops know of each process.
    pub book: Book,
    /// Time between scans.
    pub interval: Duration,
    /// Decide only.
    pub dry_run: bool,
    /// Reloads that were accepted.
    pub reloads: u64,
    /// Reloads that were refused.
    pub refused: u64,
    /// The last one was refused.
    pub is_refused: bool,
    /// When the daemon began.
    pub began: SystemTime,
}

/// What one rule's or service's processes have together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    resident: u64,
    mapped: u64,
    huge: u64,
    waste: u64,
}

/// One look at the processes under rules.
#[derive(Debug, Default)]
pub struct Look {
    /// The rules' names and policies, in their order, each name once.
    pub rules: Vec<(String, String)>,
    /// Where a rule has one.
    guarantees: BTreeMap<String, f64>,
    sums: BTreeMap<String, Sum>,
    /// By rule and state.
    processes: BTreeMap<(String, &'static str), u64>,
    services: BTreeMap<Place, Sum>,
}

/// Name, help, and how to have it.
type Figure<T, V> = (&'static str, &'static str, fn(&T) -> V);

const STATES: [&str; 4] = ["managed", "left-alone", "below-min-resident", "not-managed"];

impl Look {
    /// Looks.
    pub fn at(of: &InForce) -> Self {
        let mut look = Self::default();
        for rule in of.matching.rules() {
            if !look.rules.iter().any(|(name, _)| *name == rule.name()) {
                look.rules.push((rule.name(), rule.policy()));
                let guarantee = rule.guarantee().map(|share| (rule.name(), share.fraction()));
                look.guarantees.extend(guarantee);
            }
        }
        for (pid, at) in of.matching.look(None).unwrap_or_default() {
            let Some(rule) = of.matching.rules().get(at.rule) else {
                continue;
            };
            let (mapped, leaves_alone) = (of.book.mapped(pid), rule.policy() == "leave-alone");
            let state = match mapped {
                Some(_) => "managed",
                None if leaves_alone => "left-alone",
                None if at.is_small => "below-min-resident",
                None => "not-managed",
            };
            let mapped = mapped.unwrap_or_default();
            let sum = Sum {
                resident: at.resident,
                mapped: mapped.bytes,
                huge: mapped.huge,
                waste: mapped.waste,
            };
            let place = at.place(&rule.name());
            look.add(place, state, sum, !leaves_alone);
        }
        look
    }

    fn add(&mut self, place: Place, state: &'static str, sum: Sum, with_service: bool) {
        *self.processes.entry((place.rule.clone(), state)).or_default() += 1;
        self.sums.entry(place.rule.clone()).or_default().add(sum);
        if with_service {
            self.services.entry(place).or_default().add(sum);
        }
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.resident += other.resident;
        self.mapped += other.mapped;
        self.huge += other.huge;
        self.waste += other.waste;
    }
}

/// The page.
pub fn page(of: &InForce, look: &Look, totals: &Totals, machine: &Machine, format: Format) -> String {
    let mut page = Page::new(format);
    own(&mut page, of, machine);
    let mut tables = totals.tables();
    scans(&mut page, of, &tables);
    rules(&mut page, look, &tables);
    services(&mut page, look, &mut tables);
    let page_of_machine = |page: &mut Page| {
        page.metric(
            "mega_free_blocks",
            Kind::Gauge,
            "Free 2 MB blocks of a NUMA node (/proc/buddyinfo).",
        );
        for (node, blocks) in &machine.free_blocks {
            page.sample(&[("node", &node.to_string())], blocks);
        }
        let help = "Changes of a huge page setting by others, as far as seen at two successive readings.";
        page.metric("mega_setting_changes_total", Kind::Counter, help);
        for (setting, changes) in &machine.changes {
            page.sample(&[("setting", setting)], changes);
        }
    };
    page_of_machine(&mut page);
    page.finish()
}

fn own(page: &mut Page, of: &InForce, machine: &Machine) {
    page.metric("mega_build_info", Kind::Gauge, "Always 1; the daemon's version.");
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.metric(
        "mega_start_time_seconds",
        Kind::Gauge,
        "When the daemon began, since 1970.",
    );
    page.sample(&[], unix(of.began));
    page.metric(
        "mega_cpu_seconds_total",
        Kind::Counter,
        "Processor time of the daemon itself.",
    );
    page.sample(&[], machine.cpu.as_secs_f64());
    page.metric(
        "mega_memory_bytes",
        Kind::Gauge,
        "Resident memory of the daemon itself.",
    );
    page.sample(&[], machine.resident_bytes);
    page.metric("mega_dry_run", Kind::Gauge, "1: decides only.");
    page.sample(&[], u8::from(of.dry_run));
    page.metric(
        "mega_config_reloads_total",
        Kind::Counter,
        "Reloads of the configuration.",
    );
    page.sample(&[("result", "accepted")], of.reloads);
    page.sample(&[("result", "refused")], of.refused);
    let help = "0: the last reload was refused, and the configuration before it is in force.";
    page.metric("mega_config_last_reload_successful", Kind::Gauge, help);
    page.sample(&[], u8::from(!of.is_refused));
}

fn scans(page: &mut Page, of: &InForce, tables: &Tables) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    page.metric(
        "mega_scan_interval_seconds",
        Kind::Gauge,
        "Time between two scans, as configured.",
    );
    page.sample(&[], of.interval.as_secs_f64());
    page.metric("mega_scans_total", Kind::Counter, "Scans by the loops of a policy.");
    for (policy, of) in &tables.policies {
        page.sample(&[("policy", policy)], of.scans);
    }
    page.metric("mega_scan_seconds_total", Kind::Counter, "Duration of these scans.");
    for (policy, of) in &tables.policies {
        page.sample(&[("policy", policy)], seconds(of.took_ns));
    }
    page.metric(
        "mega_scan_cpu_seconds_total",
        Kind::Counter,
        "Processor time of these scans.",
    );
    for (policy, of) in &tables.policies {
        page.sample(&[("policy", policy)], seconds(of.cpu_ns));
    }
    let help = "When the loop of the policy that is furthest behind ended its last scan, since 1970.";
    page.metric("mega_last_scan_timestamp_seconds", Kind::Gauge, help);
    for (policy, of) in &tables.policies {
        if let Some(last) = of.last.values().min() {
            page.sample(&[("policy", policy)], unix(*last));
        }
    }
}

fn rules(page: &mut Page, look: &Look, tables: &Tables) {
    page.metric("mega_rule_info", Kind::Gauge, "Always 1; the policy of a rule.");
    for (rule, policy) in &look.rules {
        page.sample(&[("rule", rule), ("policy", policy)], 1);
    }
    page.metric(
        "mega_processes",
        Kind::Gauge,
        "Processes under a rule, by what is done with them.",
    );
    for (rule, _) in &look.rules {
        for state in STATES {
            let processes = look.processes.get(&(rule.clone(), state)).copied().unwrap_or(0);
            page.sample(&[("rule", rule), ("state", state)], processes);
        }
    }
    let gauges: [Figure<Sum, u64>; 4] = [
        ("mega_resident_bytes", "Resident memory of a rule's processes.", |sum| {
            sum.resident
        }),
        (
            "mega_mapped_bytes",
            "Memory that managed processes map, as of the last scan.",
            |sum| sum.mapped,
        ),
        ("mega_huge_bytes", "The part of it that huge pages map.", |sum| sum.huge),
        (
            "mega_waste_bytes",
            "Zero-filled memory found in these huge pages.",
            |sum| sum.waste,
        ),
    ];
    for (name, help, value) in gauges {
        page.metric(name, Kind::Gauge, help);
        for (rule, _) in &look.rules {
            page.sample(&[("rule", rule)], look.sums.get(rule).map_or(0, value));
        }
    }
    page.metric("mega_guarantee_ratio", Kind::Gauge, "Coverage that a rule guarantees.");
    for (rule, share) in &look.guarantees {
        page.sample(&[("rule", rule)], share);
    }
    let help = "Processes that have less than their rule guarantees, by what stood in the way.";
    page.metric("mega_guarantee_missed_processes", Kind::Gauge, help);
    for rule in look.guarantees.keys() {
        let missed = tables.rules.get(rule).into_iter().flat_map(|of| of.missed.values());
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        missed.for_each(|why| *reasons.entry(why).or_default() += 1);
        for (why, processes) in reasons {
            page.sample(&[("rule", rule), ("reason", why)], processes);
        }
    }
    let none = OfRule::default();
    let of = |rule: &str| tables.rules.get(rule).unwrap_or(&none);
    let counters: [Figure<OfRule, u64>; 4] = [
        ("mega_promotions_total", "Promotions done.", |of| of.promotions),
        ("mega_demotions_total", "Demotions done.", |of| of.demotions),
        (
            "mega_collapsed_by_others_total",
            "Regions that others have collapsed: khugepaged, the programs, agents in them.",
            |of| of.by_others,
        ),
        ("mega_returned_bytes_total", "Memory given back to the system.", |of| {
            of.returned_bytes
        }),
    ];
    for (name, help, value) in counters {
        page.metric(name, Kind::Counter, help);
        for (rule, _) in &look.rules {
            page.sample(&[("rule", rule)], value(of(rule)));
        }
    }
    let reasons: [Figure<OfRule, Reasons>; 2] = [
        (
            "mega_refused_actions_total",
            "Actions that were tried and not done, by reason.",
            |of| of.refused.clone(),
        ),
        (
            "mega_deferred_regions_total",
            "Regions whose turn did not come, by reason; counted anew at each scan.",
            |of| of.deferred.clone(),
        ),
    ];
    for (name, help, value) in reasons {
        page.metric(name, Kind::Counter, help);
        for (rule, _) in &look.rules {
            for ((action, reason), times) in &value(of(rule)) {
                page.sample(&[("rule", rule), ("action", action), ("reason", reason)], times);
            }
        }
    }
    let help = "For how long a program was stalled by one action of ours.";
    page.metric("mega_action_stall_seconds", Kind::Histogram, help);
    for (rule, _) in &look.rules {
        let stalls = &of(rule).stalls;
        page.histogram(
            &[("rule", rule)],
            stalls.buckets(),
            stalls.sum_ns as f64 / 1e9,
            stalls.count,
        );
    }
    let help = "For how long programs may have been stalled because accessed bits were cleared.";
    page.metric("mega_ageing_stall_seconds_total", Kind::Counter, help);
    for (rule, _) in &look.rules {
        page.sample(&[("rule", rule)], of(rule).ageing_ns as f64 / 1e9);
    }
}

/// The largest first, so that these have figures where there are too many.
fn services(page: &mut Page, look: &Look, tables: &mut Tables) {
    tables.forget();
    let mut largest: Vec<(&Place, &Sum)> = look.services.iter().collect();
    largest.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.resident));
    let unlisted = largest
        .iter()
        .filter(|(place, _)| tables.service(place).is_none())
        .count();
    let rules: BTreeSet<&str> = look.rules.iter().map(|(rule, _)| rule.as_str()).collect();
    let gauges: [Figure<Sum, u64>; 4] = [
        (
            "mega_service_resident_bytes",
            "Resident memory of a service's processes.",
            |sum| sum.resident,
        ),
        (
            "mega_service_mapped_bytes",
            "Memory that they map, as of the last scan.",
            |sum| sum.mapped,
        ),
        (
            "mega_service_huge_bytes",
            "The part of it that huge pages map.",
            |sum| sum.huge,
        ),
        (
            "mega_service_waste_bytes",
            "Zero-filled memory found in these huge pages.",
            |sum| sum.waste,
        ),
    ];
    for (name, help, value) in gauges {
        page.metric(name, Kind::Gauge, help);
        for (place, sum) in &look.services {
            if tables.services.contains_key(place) {
                page.sample(&[("rule", &place.rule), ("service", &place.service)], value(sum));
            }
        }
    }
    let counters: [Figure<OfService, f64>; 3] = [
        ("mega_service_promotions_total", "Promotions done in a service.", |of| {
            of.promotions as f64
        }),
        ("mega_service_demotions_total", "Demotions done in a service.", |of| {
            of.demotions as f64
        }),
        (
            "mega_service_stall_seconds_total",
            "For how long its programs were, or may have been, stalled by us.",
            |of| of.stall_ns as f64 / 1e9,
        ),
    ];
    for (name, help, value) in counters {
        page.metric(name, Kind::Counter, help);
        for (place, of) in &tables.services {
            if rules.contains(place.rule.as_str()) {
                page.sample(&[("rule", &place.rule), ("service", &place.service)], value(of));
            }
        }
    }
    page.metric(
        "mega_services_unlisted",
        Kind::Gauge,
        "Services without figures of their own: there are too many.",
    );
    page.sample(&[], unlisted);
}

#[cfg(test)]
impl InForce {
    /// No rule, nothing reloaded.
    pub fn of_nothing() -> Self {
        let rules = crate::service::config::Config::none().rules;
        Self {
            matching: Arc::new(Matching::new(rules, Duration::from_secs(1))),
            book: Book::default(),
            interval: Duration::from_secs(5),
            dry_run: false,
            reloads: 0,
            refused: 0,
            is_refused: false,
            began: SystemTime::UNIX_EPOCH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force() -> InForce {
        InForce {
            reloads: 2,
            refused: 1,
            is_refused: true,
            began: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            ..InForce::of_nothing()
        }
    }

    fn look(services: u64) -> Look {
        let mut look = Look {
            rules: vec![
                ("r".to_owned(), "mega".to_owned()),
                ("none".to_owned(), "off".to_owned()),
            ],
            ..Look::default()
        };
        for number in 0..services {
            let place = Place {
                rule: "r".to_owned(),
                service: format!("{number}.service"),
            };
            let sum = Sum {
                resident: number,
                mapped: 4,
                huge: 2,
                waste: 1,
            };
            look.add(place, "managed", sum, true);
        }
        look
    }

    #[test]
    fn a_rule_has_its_figures_from_the_beginning_and_a_service_as_soon_as_it_is_there() {
        let text = page(
            &in_force(),
            &look(2),
            &Totals::default(),
            &Machine::default(),
            Format::Prometheus,
        );
        for line in [
            "mega_start_time_seconds 1.5",
            "mega_config_reloads_total{result=\"refused\"} 1",
            "mega_config_last_reload_successful 0",
            "mega_rule_info{rule=\"r\",policy=\"mega\"} 1",
            "mega_processes{rule=\"r\",state=\"managed\"} 2",
            "mega_processes{rule=\"none\",state=\"managed\"} 0",
            "mega_huge_bytes{rule=\"r\"} 4",
            "mega_huge_bytes{rule=\"none\"} 0",
            "mega_promotions_total{rule=\"none\"} 0",
            "mega_action_stall_seconds_count{rule=\"r\"} 0",
            "mega_service_waste_bytes{rule=\"r\",service=\"1.service\"} 1",
            "mega_service_promotions_total{rule=\"r\",service=\"0.service\"} 0",
            "mega_services_unlisted 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn a_guarantee_that_is_missed_is_there_with_its_reasons_until_it_is_met() {
        let (totals, mut look) = (Totals::default(), look(1));
        look.guarantees.insert("r".to_owned(), 0.95);
        let place = Place {
            rule: "r".to_owned(),
            service: "0.service".to_owned(),
        };
        let text = || page(&in_force(), &look, &totals, &Machine::default(), Format::Prometheus);
        totals.guarantee(&place, 1, Some("pressure".to_owned()));
        totals.guarantee(&place, 2, Some("pressure".to_owned()));
        assert!(text().contains("mega_guarantee_ratio{rule=\"r\"} 0.95\n"));
        let missed = "mega_guarantee_missed_processes{rule=\"r\",reason=\"pressure\"} 2\n";
        assert!(text().contains(missed), "{}", text());
        totals.guarantee(&place, 1, None);
        totals.guarantee(&place, 2, None);
        assert!(!text().contains("mega_guarantee_missed_processes{"));
    }

    #[test]
    fn of_very_many_services_the_largest_are_listed_and_the_page_stays_small() {
        let totals = Totals::default();
        let text = page(
            &in_force(),
            &look(1000),
            &totals,
            &Machine::default(),
            Format::OpenMetrics,
        );
        assert!(text.contains("mega_services_unlisted 744\n"), "{text}");
        assert!(text.contains("service=\"999.service\"") && !text.contains("service=\"0.service\""));
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series < 2000, "{series}");
        // Another thousand after them take no more room.
        let text = page(
            &in_force(),
            &look(2000),
            &totals,
            &Machine::default(),
            Format::OpenMetrics,
        );
        assert!(text.lines().filter(|line| !line.starts_with('#')).count() < 2000);
    }
}
