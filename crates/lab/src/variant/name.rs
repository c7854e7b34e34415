//! A variant's name: reading and writing it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use mega_core::compaction::planner;
use mega_core::policy::{by_name, Policy, POLICIES};
use mega_core::presets;
use mega_core::units::Share;

use super::{agent, Agent, Backdrop, Managed, Mosaic, Variant, VariantError};

/// Parameters of the manager, not of the policy: options of `mega manage`.
pub(super) const COMPACT: &str = "compact";
pub(super) const COMPACT_HOW: &str = "compact-how";
pub(super) const SCANNER: &str = "scanner";
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
pub(super) fn planner_option(text: &str) -> String {
    text.replacen('/', ":", 1).replace('/', ",")
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

pub(super) fn backdrops() -> String {
    Backdrop::ALL.map(|(_, name)| name).join(", ")
}

pub(super) fn policies() -> String {
    let names: Vec<&str> = POLICIES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "base")
        .collect();
    names.join(", ")
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
