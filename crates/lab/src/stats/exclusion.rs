//! Which rounds count: a rule that is fixed before a run, in `exclusion.json`, and the same for both sides of a comparison. Records say by
//! which version of it they were made. A change of the rule is a new version.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The rule.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its version, from 1.
    pub version: u32,
    /// The day since which it stands.
    pub frozen: String,
    /// What excludes a round, in words.
    pub excluded: String,
    /// What becomes of doubtful runs, in words.
    pub doubtful: String,
    /// Above which a run is doubtful.
    pub limits: Limits,
}

/// Limits of noise.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Share of all processors' time that the hypervisor stole.
    pub steal_share: f64,
    /// Time of other processes, as a share of one processor.
    pub others_share: f64,
    /// Time of the reference workload against its best.
    pub reference_ratio: f64,
    /// Change of the clock's frequency, as a share.
    pub clock_share: f64,
}

static RULE: LazyLock<Rule> =
    LazyLock::new(|| serde_json::from_str(include_str!("exclusion.json")).expect("a test reads the rule"));

/// The rule of this build.
#[must_use]
pub fn rule() -> &'static Rule {
    &RULE
}

/// The rounds of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rounds {
    /// In which both sides were run, whatever came of it.
    pub measured: usize,
    /// Excluded by the [`rule`].
    pub excluded: usize,
    /// From which the ratio comes.
    pub kept: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was frozen, by version. A changed rule is a new line, never a changed one.
    const FROZEN: [(u32, u64); 1] = [(1, 0x1766_67c4_c884_c46d)];

    /// FNV-1a, 64 bits.
    fn hash(bytes: &[u8]) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    #[test]
    fn the_rule_is_the_one_that_was_frozen_under_its_version() {
        let found = (rule().version, hash(include_bytes!("exclusion.json")));
        assert_eq!(Some(&found), FROZEN.last(), "a changed rule needs a new version");
        assert!(FROZEN.iter().map(|(version, _)| *version).eq(1..=FROZEN.len() as u32));
    }

    #[test]
    fn the_documents_state_the_limits_of_the_rule() {
        let page = include_str!("../../../../docs/experiments.md");
        let limits = rule().limits;
        for text in [
            format!("stole over {:.0} %", 100.0 * limits.steal_share),
            format!("used over {:.0} %", 100.0 * limits.others_share),
            format!("over {}×", limits.reference_ratio),
            format!("changed by over {:.0} %", 100.0 * limits.clock_share),
        ] {
            assert!(page.contains(&text), "{text}");
        }
    }
}
