//! Policies: which regions to promote and demote, decided on observations. Pure: no clock, no input or output, and no knowledge of the host, so
//! that the very same code decides on a live machine and in the simulator.

mod auto;
mod base;
mod ethp;
pub mod guarantee;
mod hawkeye;
mod ingens;
mod khugepaged;
mod mega;
pub mod params;
mod table;
mod trim;

pub use auto::{Auto, AutoParams};
pub use base::Base;
pub use ethp::{Ethp, EthpParams};
pub use guarantee::Guarantee;
pub use hawkeye::{Hawkeye, HawkeyeParams};
pub use ingens::{Ingens, IngensParams};
pub use khugepaged::{Khugepaged, KhugepagedParams};
pub use mega::{Mega, MegaParams};
pub use params::{Param, ParamError};
pub use trim::{Trim, TrimParams};

use std::time::Duration;

use crate::action::{Action, ActionKind, Expect, Reason};
use crate::observe::{Observation, ProcessId, Region, Snapshot};
use crate::units::{BasePages, Bytes, Share};

/// What a policy needs to be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Which base pages were accessed in each interval.
    pub utilization: bool,
    /// Zero-filled base pages inside huge pages.
    pub contents: bool,
    /// Promotions that add memory leave at least so much room below each control group's limit.
    pub clear_of_limits: Bytes,
}

/// What a policy decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Actions, in no particular order: the budget orders them.
    pub actions: Vec<Action>,
    /// Regions, by process and rising address, whose accessed bits are to be cleared so that the next scan tells their
    /// utilization.
    pub age: Vec<(ProcessId, Vec<Region>)>,
    /// Regions that are candidates: mapped enough for their utilization to be tracked, and not huge.
    pub candidates: usize,
    /// How soon to look again, where that is sooner than the interval.
    pub look_again: Option<Duration>,
    /// Look again as soon as the programs grow.
    pub watch_growth: bool,
}

/// A policy. It keeps its own state per region, bounded by a small constant each, and drops regions that disappear.
pub trait Policy: Send {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it needs to see.
    fn needs(&self) -> Needs;

    /// What it does on a host that cannot observe accesses, for a notice; none if it needs no accesses.
    fn without_utilization(&self) -> Option<&'static str> {
        None
    }

    /// The share of time for which it wants programs to be stalled at most, unless the user says otherwise.
    fn stall_budget(&self) -> Option<Share> {
        None
    }

    /// Whether page faults should map base pages where nobody asked for huge ones: the policy promotes afterwards.
    fn wants_small_faults(&self) -> bool {
        true
    }

    /// Decides on a snapshot, and updates its state.
    fn decide(&mut self, seen: &Snapshot) -> Decision;

    /// Sets a parameter from text. By default there are none.
    fn set(&mut self, name: &str, _value: &str) -> Result<(), ParamError> {
        Err(ParamError::unknown(self.name(), name, &[]))
    }

    /// Whether the parameters are consistent; asked once after all are set.
    fn check(&self) -> Result<(), ParamError> {
        Ok(())
    }

    /// Its parameters with their values.
    fn params(&self) -> Vec<Param> {
        Vec::new()
    }
}

/// Every policy: its name and one line of description. Help texts and errors list these.
pub const POLICIES: &[(&str, &str)] = &[
    (
        "auto",
        "promote what was filled densely, soon after; keep waste within bounds",
    ),
    (
        "mega",
        "promote what is mapped and used, demote what is unused or wasteful (SYSTOR'19)",
    ),
    (
        "ingens",
        "promote what is 90 % mapped, demote what falls below (OSDI'16)",
    ),
    (
        "trim",
        "leave promotion to the kernel, demote huge pages that are mostly zeroes",
    ),
    (
        "hawkeye",
        "promote from one mapped page, what is accessed most first; recover bloat under pressure (ASPLOS'19)",
    ),
    ("ethp", "promote whatever is accessed, demote nothing (DAMON's scheme)"),
    (
        "khugepaged",
        "promote from one mapped page, 4096 pages per 10 s, as the kernel thread does",
    ),
    ("base", "demote everything: base pages only"),
];

/// The policy of this name with default parameters, and without a guarantee.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    let policy: Box<dyn Policy> = match name {
        "auto" => Box::<Auto>::default(),
        "mega" => Box::<Mega>::default(),
        "ingens" => Box::<Ingens>::default(),
        "trim" => Box::<Trim>::default(),
        "hawkeye" => Box::<Hawkeye>::default(),
        "ethp" => Box::<Ethp>::default(),
        "khugepaged" => Box::<Khugepaged>::default(),
        "base" => Box::<Base>::default(),
        _ => return None,
    };
    Some(Box::new(Guarantee::new(policy)))
}

/// Unmapped and kept base pages of a region that are worth a split: an eighth of it.
const KEPT_LIMIT: BasePages = BasePages(BasePages::REGION.0 / 8);

/// The demotion that frees what a process has unmapped of huge pages that the region's other pages are a part of. Which the kernel would do when
/// memory is short: until then it is in nobody's resident memory, and not free.
pub(crate) fn release(process: ProcessId, seen: &Observation) -> Option<Action> {
    let may = !seen.huge && seen.can.demote && !seen.shared && !seen.raced;
    (may && seen.kept >= KEPT_LIMIT).then_some(Action {
        process,
        region: seen.region,
        kind: ActionKind::Demote,
        reason: Reason::PartlyUnmapped,
        utilization: None,
        benefit: seen.kept,
        expect: Expect::Kept(KEPT_LIMIT),
    })
}

/// Default of the zero-filled share from which a huge page is demoted. Measured: see docs/waste.md.
pub(crate) const ZERO_FILLED_LIMIT: Share = Share::percent(50);

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_policy_exists_under_its_name_and_no_other_does() {
        for (name, _) in POLICIES {
            assert_eq!(by_name(name).unwrap().name(), *name);
        }
        assert!(by_name("Mega").is_none() && by_name("").is_none());
    }

    #[test]
    fn only_who_takes_back_what_faults_map_wants_huge_faults() {
        for (name, _) in POLICIES {
            assert_eq!(by_name(name).unwrap().wants_small_faults(), *name != "trim", "{name}");
        }
        let mut auto = by_name("auto").unwrap();
        auto.set("for", "throughput").unwrap();
        assert!(!auto.wants_small_faults());
    }

    #[test]
    fn every_parameter_takes_its_own_default_and_rejects_nonsense() {
        for (name, _) in POLICIES {
            let mut policy = by_name(name).unwrap();
            for param in policy.params() {
                policy.set(param.name, &param.default).unwrap();
                assert!(policy.set(param.name, "nonsense").is_err(), "{name}.{}", param.name);
            }
            policy.check().unwrap();
            assert!(policy.set("no_such_parameter", "1").is_err());
        }
    }
}
