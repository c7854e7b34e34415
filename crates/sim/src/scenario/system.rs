//! Systems by name: what decides at faults, what scans, and what compacts for the free-block target.
//!
//! ```text
//!   base  linux  freebsd  quicksilver  lrbhps:t=256  giant                 deciding at faults
//!   thp-always  thp-madvise  thp-always-defrag                             linux, by the lab's names for its settings
//!   mega  ingens  khugepaged  ethp  mega:uprom=30%                         scanning, on base pages
//!   auto  hawkeye                                                          both
//!   linux+trim  thp-always+mega:uprom=30%                                  scanning on another's faults
//!   mega:compact=off  mega:compact=demand/floor=2G                         the compaction planner; the kernel selects the blocks
//!   mega:compact=chosen/mega/budget=200M                                   the same, and the planner selects the blocks (mega.ko)
//! ```

use std::fmt;
use std::str::FromStr;

use mega_core::compaction::planner::{self, Planner};
use mega_core::compaction::target::FreeBlockTarget;
use mega_core::fault::{self, FaultPolicy, FAULT_POLICIES};
use mega_core::policy::{self, Policy, POLICIES};
use serde::{Deserialize, Serialize};

use crate::host::Compacting;

/// Settings by name and value.
type Settings = &'static [(&'static str, &'static str)];

/// The lab's baselines: settings of unmodified Linux under one name.
pub const BACKDROPS: &[(&str, Settings)] = &[
    ("thp-always", &[("enabled", "always"), ("defrag", "madvise")]),
    ("thp-madvise", &[("enabled", "madvise"), ("defrag", "madvise")]),
    ("thp-always-defrag", &[("enabled", "always"), ("defrag", "always")]),
];

/// The parameter that is the manager's, not the policy's.
const COMPACT: &str = "compact";
/// Before a planner: it selects the blocks itself.
const CHOSEN: &str = "chosen/";
/// The planner of `mega manage` by default.
const DEFAULT_PLANNER: &str = "demand";

/// Why a text does not name a system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("system '{name}': {why}")]
pub struct SystemError {
    /// The text given.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// A policy with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    name: String,
    set: Vec<(String, String)>,
}

/// A system and its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct System {
    text: String,
    fault: Named,
    scan: Option<Named>,
    /// The compaction planner as `name:key=value,…`, and whether it selects the blocks; none: no free-block target.
    planner: Option<(String, bool)>,
}

impl From<System> for String {
    fn from(system: System) -> Self {
        system.text
    }
}

impl TryFrom<String> for System {
    type Error = SystemError;

    fn try_from(text: String) -> Result<Self, SystemError> {
        text.parse()
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_fault(name: &str) -> bool {
    FAULT_POLICIES.iter().any(|(known, _)| *known == name)
}

/// `base` does not scan.
fn is_scan(name: &str) -> bool {
    name != "base" && POLICIES.iter().any(|(known, _)| *known == name)
}

fn name_of(part: &str) -> &str {
    part.split(':').next().unwrap_or_default()
}

/// The part that decides at faults and the part that scans. A plus inside a parameter (`defrag=defer+madvise`) separates nothing.
fn divide(text: &str) -> (&str, Option<&str>) {
    let pluses = text.match_indices('+').map(|(at, _)| at);
    for at in pluses {
        if is_scan(name_of(&text[at + 1..])) {
            return (&text[..at], Some(&text[at + 1..]));
        }
    }
    (text, None)
}

/// All names, for an error.
fn known() -> String {
    let faults = FAULT_POLICIES.iter().map(|(name, _)| *name);
    let scans = POLICIES.iter().map(|(name, _)| *name).filter(|name| !is_fault(name));
    let backdrops = BACKDROPS.iter().map(|(name, _)| *name);
    faults.chain(backdrops).chain(scans).collect::<Vec<_>>().join(", ")
}

impl Named {
    /// Name and parameters.
    fn parse(part: &str) -> Result<Self, String> {
        let mut words = part.split(':');
        let name = words.next().unwrap_or_default().to_string();
        let mut set = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("'{word}' is not KEY=VALUE"))?;
            set.push((key.to_string(), value.to_string()));
        }
        Ok(Self { name, set })
    }

    /// The fault policy; a baseline is linux with settings.
    fn fault(&self) -> Result<Box<dyn FaultPolicy>, String> {
        let backdrop = BACKDROPS.iter().find(|(name, _)| *name == self.name);
        let (name, settings) = backdrop.map_or((self.name.as_str(), &[][..]), |(_, set)| ("linux", *set));
        let mut made =
            fault::by_name(name).ok_or_else(|| format!("no fault policy '{name}'; there are {}", known()))?;
        let settings = settings.iter().map(|(k, v)| (*k, *v));
        for (key, value) in settings.chain(self.set.iter().map(|(k, v)| (k.as_str(), v.as_str()))) {
            made.set(key, value).map_err(|e| e.to_string())?;
        }
        made.check().map_err(|e| e.to_string())?;
        Ok(made)
    }

    fn scan(&self) -> Result<Box<dyn Policy>, String> {
        let mut made = policy::by_name(&self.name)
            .ok_or_else(|| format!("no scan-time policy '{}'; there are {}", self.name, known()))?;
        for (key, value) in &self.set {
            made.set(key, value).map_err(|e| e.to_string())?;
        }
        made.check().map_err(|e| e.to_string())?;
        Ok(made)
    }

    /// Extracts the compaction planner: `off`, or a planner.
    fn take_planner(&mut self) -> Result<Option<(String, bool)>, String> {
        let at = self.set.iter().position(|(key, _)| key == COMPACT);
        let text = at.map(|at| self.set.remove(at).1);
        let text = text.as_deref().unwrap_or(DEFAULT_PLANNER);
        if text == "off" {
            return Ok(None);
        }
        let (name, chosen) = text.strip_prefix(CHOSEN).map_or((text, false), |rest| (rest, true));
        let name = name.replacen('/', ":", 1).replace('/', ",");
        planner::from_text(&name).map_err(|e| e.to_string())?;
        Ok(Some((name, chosen)))
    }
}

impl FromStr for System {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        let wrong = |why: String| SystemError {
            name: text.chars().take(200).collect(),
            why,
        };
        let base = Named {
            name: "base".to_string(),
            set: Vec::new(),
        };
        let (first, second) = divide(text);
        let first = Named::parse(first).map_err(wrong)?;
        let (fault, scan) = match second {
            Some(second) => (first, Some(Named::parse(second).map_err(wrong)?)),
            // Both parts of one system; the parameters are the scanner's.
            None if is_fault(&first.name) && is_scan(&first.name) => {
                let fault = Named {
                    name: first.name.clone(),
                    set: Vec::new(),
                };
                (fault, Some(first))
            }
            None if is_scan(&first.name) => (base, Some(first)),
            None => (first, None),
        };
        let mut system = Self {
            text: text.to_string(),
            fault,
            scan,
            planner: None,
        };
        if let Some(scan) = &mut system.scan {
            system.planner = scan.take_planner().map_err(wrong)?;
            scan.scan().map_err(wrong)?;
        }
        system.fault.fault().map_err(wrong)?;
        Ok(system)
    }
}

/// Checked when the system was read.
const CHECKED: &str = "checked when it was read";

impl System {
    /// The fault policy.
    ///
    /// # Panics
    /// Never: it was made once when it was read.
    #[must_use]
    pub fn fault_policy(&self) -> Box<dyn FaultPolicy> {
        self.fault.fault().expect(CHECKED)
    }

    /// The scan-time policy; none: the kernel alone.
    ///
    /// # Panics
    /// Never: it was made once when it was read.
    #[must_use]
    pub fn scan_policy(&self) -> Option<Box<dyn Policy>> {
        self.scan.as_ref().map(|scan| scan.scan().expect(CHECKED))
    }

    /// Whether it accepts this parameter if it is appended: the scanning part does, or else the other.
    #[must_use]
    pub fn takes(&self, key: &str) -> bool {
        match self.scan_policy() {
            Some(policy) => key == COMPACT || policy.params().iter().any(|param| param.name == key),
            None => self.fault_policy().params().iter().any(|param| param.name == key),
        }
    }

    /// Whether the parameter is written in it.
    #[must_use]
    pub fn sets(&self, key: &str) -> bool {
        let set = |named: &Named| named.set.iter().any(|(k, _)| k == key);
        let kept = key == COMPACT && self.text.contains(":compact=");
        kept || set(&self.fault) || self.scan.as_ref().is_some_and(set)
    }

    fn planner(&self) -> Option<Box<dyn Planner>> {
        let (text, _) = self.planner.as_ref()?;
        Some(planner::from_text(text).expect(CHECKED))
    }

    /// The free-block target.
    #[must_use]
    pub fn free_block_target(&self) -> Option<FreeBlockTarget> {
        self.planner().map(FreeBlockTarget::new)
    }

    /// How it compacts.
    #[must_use]
    pub fn compacting(&self) -> Compacting {
        match &self.planner {
            None => Compacting::No,
            Some((_, false)) => Compacting::Kernel,
            Some((_, true)) => self.planner().map_or(Compacting::No, Compacting::Chosen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(text: &str) -> System {
        text.parse().unwrap()
    }

    #[test]
    fn names_mean_what_the_grammar_says() {
        for (text, fault, scan) in [
            ("base", "base", None),
            ("linux", "linux", None),
            ("thp-always", "linux", None),
            ("lrbhps:t=256", "lrbhps", None),
            ("mega", "base", Some("mega")),
            ("hawkeye", "hawkeye", Some("hawkeye")),
            ("auto:for=memory", "auto", Some("auto")),
            ("base+auto", "base", Some("auto")),
            ("thp-always+trim", "linux", Some("trim")),
            ("linux:defrag=defer+madvise+mega:uprom=30%", "linux", Some("mega")),
            ("linux:defrag=defer+madvise", "linux", None),
        ] {
            let made = system(text);
            let name = made.scan_policy().map(|policy| policy.name());
            assert_eq!((made.fault_policy().name(), name), (fault, scan), "{text}");
            assert_eq!(made.to_string(), text);
        }
        let value = system("lrbhps:t=256").fault_policy().params();
        assert!(value.iter().any(|param| param.name == "t" && param.value == "256"));
    }

    #[test]
    fn the_stock_is_kept_by_whom_it_says() {
        assert!(matches!(system("mega").compacting(), Compacting::Kernel));
        assert_eq!(system("mega").free_block_target().unwrap().planner().name(), "demand");
        let off = system("mega:compact=off");
        assert!(off.free_block_target().is_none() && matches!(off.compacting(), Compacting::No));
        let chosen = system("mega:compact=chosen/mega/budget=100M:uprom=40%");
        assert!(matches!(chosen.compacting(), Compacting::Chosen(_)));
        assert_eq!(chosen.free_block_target().unwrap().planner().name(), "mega");
        assert!(system("linux").free_block_target().is_none());
    }

    #[test]
    fn a_system_knows_its_parameters_and_those_that_it_sets() {
        let (mega, lrbhps) = (system("mega:uprom=30%"), system("lrbhps"));
        assert!(mega.takes("uprom") && mega.takes("compact") && !mega.takes("t"));
        assert!(mega.sets("uprom") && !mega.sets("mprom") && !mega.sets("compact"));
        assert!(lrbhps.takes("t") && !lrbhps.takes("uprom") && !lrbhps.sets("t"));
        assert!(!system("base").takes("compact"));
        assert!(system("mega:compact=off").sets("compact"));
    }

    #[test]
    fn what_there_is_not_is_answered_with_what_there_is() {
        for (bad, why) in [
            ("", "there are base"),
            ("magic", "there are base"),
            ("mega:uprom", "not KEY=VALUE"),
            ("mega:uprom=900%", "uprom"),
            ("lrbhps:no=1", "no parameter"),
            ("mega:compact=magic", "no planner 'magic'"),
            ("magic+mega", "'magic'"),
            ("linux+magic", "'linux+magic'"),
        ] {
            let error = bad.parse::<System>().unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
