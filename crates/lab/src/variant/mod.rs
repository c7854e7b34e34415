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
use std::path::PathBuf;

use mega_core::policy::by_name;
use mega_linux::knobs::{KnobError, Knobs};
use mega_linux::module::Module;
use mega_linux::proc::ProcRoot;

use crate::result::VariantInfo;

pub mod agent;
mod backdrop;
pub mod mosaic;
mod name;

pub use agent::Agent;
pub use backdrop::Backdrop;
use backdrop::MTHP_64K;
pub use mosaic::Mosaic;
use name::{backdrops, planner_option, policies, COMPACT, COMPACT_HOW, SCANNER};

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
}
