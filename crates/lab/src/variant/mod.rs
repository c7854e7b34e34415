//! Variants: how memory is managed during a run. A variant is a backdrop (the machine's THP settings), optionally with a policy that
//! manages the program or a mosaic of page sizes that it is started on.
//!
//! ```text
//!   base  thp-always  thp-madvise  thp-always-defrag  thp-none0  mthp-64k  backdrops
//!   mega  ingens  trim  khugepaged  …                                 a policy on the backdrop `base`
//!   thp-always+trim   mthp-64k+mega   base+mega:uprom=30%:mprom=80%         a policy on another backdrop, with parameters
//!   mega:compact=ingens   mega:compact=off                  the compaction planner; else the manager's default
//!   mega:compact=mega:compact-how=chosen                    blocks selected by the planner (needs mega.ko), or by the kernel: node
//!   mega:scanner=module                                     how page tables are read
//!   mega:compact=demand/floor=2G/budget=1G                  with parameters of the planner
//!   mega:cpu-budget=10%:stall-budget=20%                    what managing may cost
//!   auto   auto:agent   auto:manager   auto:for=latency     libmega_agent.so inside the program and a manager beside it; one of them
//!   auto:known   auto:agent:known                           with what the program's earlier runs have shown (profiles)
//!   preset:redis                                            what a rule's preset says, as `mega run` does it
//!   mosaic:2M   mosaic:1G   mosaic:heap=1G@0/2M:anon=4K     page sizes by libmemomania, see [`mosaic`]
//! ```
//!
//! Settings are applied through [`Knobs`], which restores them on success, on failure and, after kill -9, at the next start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use mega_core::compaction::planner;
use mega_core::policy::{by_name, Policy, POLICIES};
use mega_core::presets;
use mega_core::units::Share;
use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::module::Module;
use mega_linux::proc::ProcRoot;

use crate::result::VariantInfo;

pub mod agent;
mod backdrop;
pub mod mosaic;

pub use agent::Agent;
pub use backdrop::Backdrop;
use backdrop::MTHP_64K;
pub use mosaic::Mosaic;

/// Parameters of the manager, not of the policy: options of `mega manage`.
const COMPACT: &str = "compact";
const COMPACT_HOW: &str = "compact-how";
const SCANNER: &str = "scanner";
/// Those with a fixed set of values.
const CHOICES: [(&str, &[&str]); 2] = [
    (COMPACT_HOW, &["auto", "chosen", "node"]),
    (SCANNER, &["auto", "ebpf", "pagemap-scan", "pagemap", "module"]),
];
const BUDGETS: [&str; 2] = ["cpu-budget", "stall-budget"];

/// The prefix of a preset.
const PRESET: &str = "preset";

/// The prefix of a mosaic.
const MOSAIC: &str = "mosaic";

/// The policy that has an agent inside the program and a manager beside it, and the words for one of them alone.
const AUTO: &str = "auto";
const AGENT_ALONE: &str = "agent";
const MANAGER_ALONE: &str = "manager";
/// The program has a profile.
const KNOWN: &str = "known";
/// What matters for the program: of agent and manager.
const INTENT: &str = "for";
/// Coverage to be kept.
const GUARANTEE: &str = "guarantee";

/// The default backdrop of a policy or a mosaic.
fn below(policy: &str, mosaic: Option<&Mosaic>) -> Backdrop {
    match mosaic {
        _ if policy == AUTO => Backdrop::ThpMadvise,
        Some(mosaic) if mosaic.has_transparent() => Backdrop::ThpMadvise,
        _ => Backdrop::Base,
    }
}

/// What a policy's parameters say, `made` being the policy where this build has it.
fn managed(policy: &str, params: &[&str], mut made: Option<Box<dyn Policy>>) -> Result<Managed, String> {
    let (mut set, mut options) = (Vec::new(), BTreeMap::new());
    for param in params {
        let (key, value) = param
            .split_once('=')
            .ok_or_else(|| format!("'{param}' is not KEY=VALUE"))?;
        if key == COMPACT {
            check_planner(value)?;
            options.insert(key.to_string(), value.to_string());
        } else if CHOICES
            .iter()
            .any(|(name, values)| *name == key && values.contains(&value))
        {
            options.insert(key.to_string(), value.to_string());
        } else if BUDGETS.contains(&key) {
            value.parse::<Share>().map_err(|e| e.to_string())?;
            options.insert(key.to_string(), value.to_string());
        } else {
            if let Some(made) = &mut made {
                made.set(key, value).map_err(|e| e.to_string())?;
            }
            set.push((*param).to_string());
        }
    }
    if let Some(made) = &made {
        made.check().map_err(|e| e.to_string())?;
    }
    Ok(Managed {
        policy: policy.to_string(),
        set,
        options,
    })
}

/// Agent and manager of `auto` with these parameters.
fn auto(params: &[&str]) -> Result<(Option<Agent>, Option<Managed>), String> {
    let is_known = params.contains(&KNOWN);
    let alone: Vec<&str> = params
        .iter()
        .copied()
        .filter(|word| !word.contains('=') && *word != KNOWN)
        .collect();
    let (has_agent, has_manager) = match alone.as_slice() {
        [] => (true, true),
        [AGENT_ALONE] => (true, false),
        [MANAGER_ALONE] => (false, true),
        _ => return Err(format!("expected {AGENT_ALONE}, {MANAGER_ALONE} or neither")),
    };
    if is_known && !has_agent {
        return Err(format!(
            "profiles are the agent's: {MANAGER_ALONE} and {KNOWN} contradict"
        ));
    }
    let rest: Vec<&str> = params.iter().copied().filter(|word| word.contains('=')).collect();
    let intent = rest.iter().find_map(|param| param.strip_prefix("for="));
    intent.map_or(Ok(()), agent::check_intent)?;
    let of_manager = if has_manager { rest.as_slice() } else { &[] };
    if let (false, Some(param)) = (has_manager, rest.iter().find(|param| !param.starts_with("for="))) {
        return Err(format!("an agent alone has no '{param}'"));
    }
    let manager = has_manager
        .then(|| managed(AUTO, of_manager, by_name(AUTO)))
        .transpose()?;
    let intent = intent.map(str::to_string);
    Ok((has_agent.then_some(Agent { intent, is_known }), manager))
}

/// What a preset says, as a variant. The size from which on a rule manages is no part of it: the program is measured.
fn in_full(preset: &presets::Preset) -> String {
    let keys = preset
        .keys()
        .filter(|(key, _)| BUDGETS.contains(key) || *key == GUARANTEE);
    let params = preset.set().chain(keys);
    params.fold(AUTO.to_string(), |text, (key, value)| format!("{text}:{key}={value}"))
}

/// A policy that manages the program, with parameters as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// Its name.
    pub policy: String,
    /// `key=value` each.
    pub set: Vec<String>,
    /// The manager's own options, if not the default. `compact`: the compaction planner, or `off`.
    pub options: BTreeMap<String, String>,
}

impl Managed {
    /// All parameters in the form that parses back.
    fn all(&self) -> impl Iterator<Item = String> + '_ {
        let options = self.options.iter().map(|(key, value)| format!("{key}={value}"));
        self.set.iter().cloned().chain(options)
    }
}

/// How memory is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The machine's settings.
    pub backdrop: Backdrop,
    /// The policy that manages the program; none in the kernel's own variants.
    pub managed: Option<Managed>,
    /// The agent that the program is started with, if any.
    pub agent: Option<Agent>,
    /// The page sizes that the program is started on, if any.
    pub mosaic: Option<Mosaic>,
    /// Tells identical variants apart.
    pub label: Option<String>,
}

/// Not a usable variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariantError {
    /// Neither a backdrop nor a policy.
    #[error(
        "no variant '{name}': {}; {} or mosaic:PAGES, alone or as BACKDROP+POLICY",
        backdrops(),
        policies()
    )]
    Unknown {
        /// What was given.
        name: String,
    },
    /// The policy, or the mosaic, does not take this parameter.
    #[error("variant '{name}': {why}")]
    Parameter {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel does not support it.
    #[error("variant '{name}' cannot run here: {why}")]
    Unsupported {
        /// The variant.
        name: String,
        /// What is missing.
        why: String,
    },
}

fn backdrops() -> String {
    Backdrop::ALL.map(|(_, name)| name).join(", ")
}

fn policies() -> String {
    let names: Vec<&str> = POLICIES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "base")
        .collect();
    names.join(", ")
}

impl FromStr for Variant {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, VariantError> {
        let unknown = || VariantError::Unknown { name: text.to_string() };
        let backdrop = |name: &str| Backdrop::ALL.iter().find(|(_, known)| *known == name).map(|(b, _)| *b);
        let (text, label) = match text.split_once('#') {
            Some((_, "")) => return Err(unknown()),
            Some((text, label)) => (text, Some(label.to_string())),
            None => (text, None),
        };
        let kernels_own = |backdrop: Backdrop| Self {
            backdrop,
            managed: None,
            agent: None,
            mosaic: None,
            label: label.clone(),
        };
        if let Some(backdrop) = backdrop(text) {
            return Ok(kernels_own(backdrop));
        }
        // Parameters may contain a plus, names do not.
        let (names, params) = text.split_once(':').unwrap_or((text, ""));
        let (given, policy) = match names.split_once('+') {
            Some((name, policy)) => (Some(backdrop(name).ok_or_else(unknown)?), policy),
            None => (None, names),
        };
        let wrong = |why| VariantError::Parameter {
            name: text.to_string(),
            why,
        };
        if policy == PRESET {
            let preset = presets::by_name(params).ok_or_else(|| wrong(format!("no preset '{params}'")))?;
            let made: Self = in_full(preset).parse()?;
            return Ok(Self { label, ..made });
        }
        if policy == MOSAIC {
            let mosaic = Mosaic::parse(params).map_err(wrong)?;
            let backdrop = given.unwrap_or(below(policy, Some(&mosaic)));
            return Ok(Self {
                mosaic: Some(mosaic),
                ..kernels_own(backdrop)
            });
        }
        let backdrop = given.unwrap_or(below(policy, None));
        let params: Vec<&str> = params.split(':').filter(|param| !param.is_empty()).collect();
        let (agent, managed) = match policy {
            AUTO => auto(&params).map_err(wrong)?,
            _ => {
                let made = by_name(policy).ok_or_else(unknown)?;
                (None, Some(managed(policy, &params, Some(made)).map_err(wrong)?))
            }
        };
        Ok(Self {
            agent,
            managed,
            ..kernels_own(backdrop)
        })
    }
}

/// `off`, or a planner with its parameters: `demand/floor=2G/budget=1G`.
fn check_planner(text: &str) -> Result<(), String> {
    match text {
        "off" => Ok(()),
        _ => planner::from_text(&planner_option(text))
            .map(drop)
            .map_err(|e| e.to_string()),
    }
}

/// As `mega manage --compact` reads it: `demand:floor=2G,budget=1G`.
fn planner_option(text: &str) -> String {
    text.replacen('/', ":", 1).replace('/', ",")
}

fn known(agent: &Agent) -> &'static str {
    match agent.is_known {
        true => ":known",
        false => "",
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = match (&self.managed, &self.agent) {
            (Some(managed), _) => managed.policy.as_str(),
            (None, Some(_)) => AUTO,
            (None, None) => "",
        };
        if policy.is_empty() && self.mosaic.is_none() {
            f.write_str(self.backdrop.name())?;
        } else if self.backdrop != below(policy, self.mosaic.as_ref()) {
            write!(f, "{}+", self.backdrop.name())?;
        }
        match (&self.managed, &self.agent) {
            (None, Some(agent)) => {
                write!(f, "{AUTO}:{AGENT_ALONE}{}", known(agent))?;
                if let Some(intent) = &agent.intent {
                    write!(f, ":{INTENT}={intent}")?;
                }
            }
            (Some(managed), None) if managed.policy == AUTO => {
                write!(f, "{AUTO}:{MANAGER_ALONE}")?;
                managed.all().try_for_each(|set| write!(f, ":{set}"))?;
            }
            (Some(managed), agent) => {
                f.write_str(&managed.policy)?;
                f.write_str(agent.as_ref().map_or("", known))?;
                managed.all().try_for_each(|set| write!(f, ":{set}"))?;
            }
            (None, None) => {}
        }
        if let Some(mosaic) = &self.mosaic {
            write!(f, "{MOSAIC}:{mosaic}")?;
        }
        match &self.label {
            Some(label) => write!(f, "#{label}"),
            None => Ok(()),
        }
    }
}

impl Variant {
    /// Whether programs begin with what earlier runs have shown.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.is_known)
    }

    /// Its settings, by path.
    #[must_use]
    pub fn settings(&self, root: &ProcRoot) -> Vec<(PathBuf, &'static str)> {
        let made = self.backdrop.settings().iter();
        made.map(|(name, value)| (root.thp(name), *value)).collect()
    }

    /// Whether this kernel supports it.
    ///
    /// # Errors
    /// What it lacks.
    pub fn supported(&self, root: &ProcRoot) -> Result<(), VariantError> {
        let lacks = |why: &str| {
            Err(VariantError::Unsupported {
                name: self.to_string(),
                why: why.to_string(),
            })
        };
        if !root.thp("enabled").exists() {
            return lacks("this kernel has no transparent huge pages");
        }
        let options = self.managed.as_ref().map(|managed| &managed.options);
        let is = |key: &str, value: &str| options.is_some_and(|options| options.get(key).is_some_and(|v| v == value));
        if is(COMPACT_HOW, "chosen") || is(SCANNER, "module") {
            if let Err(error) = Module::open() {
                return lacks(&error.to_string());
            }
        }
        if let Some(policy) = self.managed.as_ref().map(|managed| &managed.policy) {
            if by_name(policy).is_none() {
                return lacks(&format!("this build has no policy '{policy}'"));
            }
        }
        if self.backdrop == Backdrop::Mthp64k && !root.thp(MTHP_64K).exists() {
            return lacks("this kernel has no 64 KB folios for anonymous memory (Linux 6.8)");
        }
        let has_transparent = self.mosaic.as_ref().is_some_and(Mosaic::has_transparent);
        if has_transparent && matches!(self.backdrop, Backdrop::Base | Backdrop::Mthp64k) {
            return lacks("2M:thp needs transparent huge pages of 2 MB: thp-madvise+mosaic:…");
        }
        Ok(())
    }

    /// Whether the program is to have base pages only, whatever it requests: not where somebody promotes them.
    #[must_use]
    pub fn base_pages_only(&self) -> bool {
        self.backdrop == Backdrop::Base && self.managed.is_none() && self.agent.is_none()
    }

    /// Applies its settings. Dropping or restoring `knobs` restores them.
    ///
    /// # Errors
    /// A setting that cannot be changed, or that another manager holds.
    pub fn apply(&self, knobs: &mut Knobs) -> Result<(), KnobError> {
        for (path, value) in self.settings(&knobs.root().clone()) {
            knobs.set(&path, value)?;
        }
        Ok(())
    }

    /// The manager's options: `--policy mega --set uprom=30%`; none without a policy.
    #[must_use]
    pub fn manager_options(&self) -> Option<Vec<String>> {
        let managed = self.managed.as_ref()?;
        let mut options = vec!["--policy".to_string(), managed.policy.clone()];
        for set in &managed.set {
            options.extend(["--set".to_string(), set.clone()]);
        }
        for (key, value) in &managed.options {
            let value = if key == COMPACT {
                planner_option(value)
            } else {
                value.clone()
            };
            options.extend([format!("--{key}"), value]);
        }
        Some(options)
    }

    /// For the record.
    #[must_use]
    pub fn info(&self, root: &ProcRoot) -> VariantInfo {
        let agent = self.agent.as_ref().map(|agent| {
            let intent = agent.intent.as_ref().map(|intent| format!(", for {intent}"));
            let known = if agent.is_known { ", with a profile" } else { "" };
            format!(", libmega_agent.so inside{known}{}", intent.unwrap_or_default())
        });
        let mut about = match (&self.managed, &self.mosaic) {
            (None, None) => self.backdrop.about().to_string(),
            (None, Some(mosaic)) => format!("{}; {}", self.backdrop.about(), mosaic.about()),
            (Some(managed), _) => {
                let params: Vec<String> = managed.all().collect();
                let params = match params.as_slice() {
                    [] => String::new(),
                    params => format!(" with {}", params.join(", ")),
                };
                format!(
                    "{}, managed by policy {}{params}",
                    self.backdrop.about(),
                    managed.policy
                )
            }
        };
        about += &agent.unwrap_or_default();
        let knobs: BTreeMap<String, String> = self
            .settings(root)
            .into_iter()
            .map(|(path, value)| (path.display().to_string(), value.to_string()))
            .collect();
        VariantInfo {
            name: self.to_string(),
            about,
            knobs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_were_written() {
        for name in [
            "base",
            "thp-always",
            "thp-madvise",
            "thp-always-defrag",
            "mthp-64k",
            "mega",
            "ingens",
            "thp-always+trim",
            "base#again",
            "thp-always+trim#2",
            "mthp-64k+mega",
            "mega:uprom=30%",
            "thp-always+mega:uprom=30%:mprom=80%",
            "mega:compact=off",
            "mega:compact-how=chosen:scanner=module",
            "mega:uprom=30%:compact=ingens",
            "mega:compact=demand/floor=2G/budget=1G",
            "mega:uprom=30%:compact=off:cpu-budget=10%:stall-budget=20%",
            "mosaic:2M",
            "mosaic:1G#again",
            "mosaic:2M:thp",
            "thp-always+mosaic:heap=2M:thp@0+64M/4K:anon=4K",
            "mosaic:heap=1G@0/2M:anon=2M@2M+64M:fallback=smaller",
            "mosaic:2M:share=25%",
            "thp-none0",
            "auto",
            "auto:agent",
            "auto:manager#2",
            "auto:agent:for=latency",
            "auto:known",
            "auto:agent:known:for=latency",
            "auto:known:compact=off",
            "thp-always+auto",
            "thp-always+auto:agent",
            "auto:compact=off",
            "auto:manager:compact=off",
        ] {
            let variant: Variant = name.parse().unwrap();
            assert_eq!(variant.to_string(), name);
        }
        let same: Variant = "base+mega".parse().unwrap();
        assert_eq!(same.to_string(), "mega");
    }

    #[test]
    fn what_does_not_exist_is_answered_with_what_does() {
        let error = "thp-allways".parse::<Variant>().unwrap_err().to_string();
        assert!(error.contains("thp-always,") && error.contains("ingens"), "{error}");
        for bad in [
            "",
            "+",
            "base+",
            "nosuch+mega",
            "mega+base",
            "mega:nosuch=1",
            "mega:uprom",
            "mega:uprom=900%",
            "mega:compact=nobody",
            "mega:compact-how=guess",
            "mega:scanner=crystal",
            "mega:compact=demand/floor",
            "mega:compact=demand/no=1",
            "mega:cpu-budget=much",
            "base#",
            "mosaic",
            "mosaic:",
            "mosaic:64K",
            "mosaic:2M:uprom=30%",
            "mega+mosaic:2M",
            "nosuch+mosaic:2M",
            "auto:nobody",
            "auto:agent:manager",
            "auto:manager:known",
            "mega:known",
            "auto:agent:for=fun",
            "auto:agent:compact=off",
            "auto:compact=nobody",
        ] {
            assert!(bad.parse::<Variant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn auto_is_agent_and_manager_or_one_of_them_where_programs_may_advise() {
        for (name, agent, manager) in [
            ("auto", true, true),
            ("auto:agent", true, false),
            ("auto:manager", false, true),
        ] {
            let variant: Variant = name.parse().unwrap();
            assert_eq!(variant.backdrop, Backdrop::ThpMadvise, "{name}");
            assert_eq!((variant.agent.is_some(), variant.managed.is_some()), (agent, manager));
            let options = variant.manager_options();
            assert_eq!(
                options,
                manager.then(|| ["--policy", "auto"].map(str::to_string).to_vec())
            );
            let about = variant.info(&ProcRoot::default()).about;
            assert_eq!(about.contains("libmega_agent.so"), agent, "{about}");
        }
    }

    #[test]
    fn khugepaged_fills_no_holes_in_the_backdrop_that_says_so() {
        let variant: Variant = "thp-none0".parse().unwrap();
        let settings = variant.settings(&ProcRoot::default());
        let none = settings
            .iter()
            .find(|(path, _)| path.ends_with("khugepaged/max_ptes_none"));
        assert_eq!(none.map(|(_, value)| *value), Some("0"));
    }

    #[test]
    fn a_mosaic_has_no_manager_and_transparent_pages_only_where_it_wants_them() {
        let backdrop = |name: &str| {
            let variant: Variant = name.parse().unwrap();
            assert!(variant.managed.is_none() && variant.manager_options().is_none());
            variant.backdrop
        };
        assert_eq!(backdrop("mosaic:2M"), Backdrop::Base);
        assert_eq!(backdrop("mosaic:2M:thp"), Backdrop::ThpMadvise);
        assert_eq!(backdrop("thp-always+mosaic:2M"), Backdrop::ThpAlways);
        let info = "mosaic:1G".parse::<Variant>().unwrap().info(&ProcRoot::default());
        assert_eq!(info.about, "base pages only; Memomania: heap on 1G, mappings on 2M");
    }

    #[test]
    fn base_as_a_backdrop_is_no_policy_and_a_policy_has_base_pages_below_it() {
        let base: Variant = "base".parse().unwrap();
        assert_eq!((base.managed.as_ref(), base.manager_options()), (None, None));
        let mega: Variant = "mega:uprom=30%".parse().unwrap();
        assert_eq!(mega.backdrop, Backdrop::Base);
        assert_eq!(
            mega.manager_options().unwrap(),
            ["--policy", "mega", "--set", "uprom=30%"]
        );
        let other: Variant = "mega:compact=ingens".parse().unwrap();
        assert_eq!(
            other.manager_options().unwrap(),
            ["--policy", "mega", "--compact", "ingens"]
        );
        let floor: Variant = "mega:compact=demand/floor=2G/budget=1G".parse().unwrap();
        assert_eq!(
            floor.manager_options().unwrap()[2..],
            ["--compact", "demand:floor=2G,budget=1G"]
        );
        let budget: Variant = "mega:cpu-budget=10%".parse().unwrap();
        assert_eq!(budget.manager_options().unwrap()[2..], ["--cpu-budget", "10%"]);
    }
    #[test]
    fn a_preset_is_what_mega_run_would_be_told() {
        for preset in presets::PRESETS {
            let variant: Variant = format!("preset:{}", preset.name).parse().unwrap();
            assert_eq!(variant, in_full(preset).parse().unwrap());
            assert_eq!(variant.to_string(), in_full(preset));
            let (agent, managed) = (variant.agent.unwrap(), variant.managed.unwrap());
            assert_eq!(agent.intent.as_deref(), Some(preset.intent));
            assert_eq!(managed.options.get("stall-budget").map(String::as_str), preset.stall);
            let guarantee = preset.guarantee.map(|share| format!("guarantee={share}"));
            assert!(guarantee.is_none_or(|set| managed.set.contains(&set)));
        }
        let error = "preset:rediss".parse::<Variant>().unwrap_err().to_string();
        assert!(error.contains("no preset 'rediss'"), "{error}");
    }
}
