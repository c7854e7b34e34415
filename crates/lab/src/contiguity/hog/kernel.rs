//! Allocating inside the kernel, by mega.ko: as `khugehog` did. One call allocates and frees everything.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use mega_linux::module::uapi::{Probe, CAN_PROBE, PROBE_KSWAPD, PROBE_MOVABLE, PROBE_RECLAIM, PROBE_RETRY, PROBE_ZERO};
use mega_linux::module::{Module, ModuleError, DEVICE};
use serde::{Deserialize, Serialize};

use super::outcome::{HogError, Limits, Stopped, Taken};
use crate::memory::base_page_bytes;

/// `mega_probe.ended`.
const FAILED: u32 = 1;
const FLOOR: u32 = 2;
const SIGNAL: u32 = 4;

const WORDS: [(&str, u32); 5] = [
    ("reclaim", PROBE_RECLAIM),
    ("kswapd", PROBE_KSWAPD),
    ("retry", PROBE_RETRY),
    ("movable", PROBE_MOVABLE),
    ("zero", PROBE_ZERO),
];

/// How hard each allocation tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProbeFlags(u32);

impl Default for ProbeFlags {
    /// As a huge page fault where `defrag` is `always` (GFP_TRANSHUGE, mm/huge_memory.c), without zeroing.
    fn default() -> Self {
        Self(PROBE_RECLAIM | PROBE_MOVABLE)
    }
}

impl FromStr for ProbeFlags {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(0));
        }
        let one = |word: &str| {
            let found = WORDS.iter().find(|(known, _)| *known == word);
            found.map(|(_, flag)| *flag).ok_or_else(|| {
                let known: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
                format!("'{word}' is not one of {}, none", known.join(", "))
            })
        };
        text.split(',')
            .map(one)
            .try_fold(0, |all, flag| Ok(all | flag?))
            .map(Self)
    }
}

impl fmt::Display for ProbeFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<_> = WORDS
            .iter()
            .filter(|(_, flag)| self.0 & flag != 0)
            .map(|(word, _)| *word)
            .collect();
        f.write_str(if set.is_empty() { "none" } else { "" })?;
        f.write_str(&set.join(","))
    }
}

impl TryFrom<String> for ProbeFlags {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ProbeFlags> for String {
    fn from(flags: ProbeFlags) -> Self {
        flags.to_string()
    }
}

/// Options for mega.ko.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOptions {
    /// Chunks of 2^order base pages.
    pub order: u32,
    /// How hard each allocation tries.
    pub flags: ProbeFlags,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            order: 9,
            flags: ProbeFlags::default(),
        }
    }
}

impl ProbeOptions {
    /// Size of one chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        (base_page_bytes() as u64) << self.order.min(30)
    }
}

/// Has mega.ko allocate chunks and free them, leaving `floor_bytes` of available memory. A signal ends it.
pub(super) fn by_module(limits: &Limits<'_>, options: &ProbeOptions, floor_bytes: u64) -> Result<Taken, HogError> {
    let module = Module::open()?;
    let info = *module.info();
    let refused = |what| {
        HogError::from(ModuleError::Call {
            what,
            errno: rustix::io::Errno::INVAL,
        })
    };
    if !module.can(CAN_PROBE) {
        return Err(refused("probe: not supported by this mega.ko"));
    }
    if options.order > info.order_max {
        return Err(refused("probe: the order exceeds the kernel's maximum"));
    }
    let most = limits.count.min(limits.most).min(info.probe_max.into());
    let mut request = Probe {
        flags: options.flags.0,
        order: options.order,
        count: u32::try_from(most).unwrap_or(u32::MAX),
        budget_ns: info.budget_max_ns.min(Duration::from_secs(60).as_nanos() as u64),
        floor_bytes,
        node: -1,
        ..Probe::default()
    };
    let (had, ended) = match (limits.stop)() {
        true => (Vec::new(), SIGNAL),
        false => {
            let had = module.probe(&mut request)?;
            (had, request.ended)
        }
    };
    Ok(Taken {
        checked_by: DEVICE.to_string(),
        stopped: match ended {
            FAILED => Stopped::NoneLeft,
            FLOOR => Stopped::Margin,
            SIGNAL => Stopped::Asked,
            0 if had.len() as u64 >= limits.count => Stopped::Count,
            // The headroom is used up.
            0 => Stopped::Margin,
            _ => Stopped::Time,
        },
        latencies_ns: had.into_iter().map(u64::from).collect(),
        fell_back_ns: match ended {
            FAILED => vec![request.failed_ns.into()],
            _ => Vec::new(),
        },
        held: None,
        memory: None,
        knobs: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_read_back_as_they_are_written_and_others_are_refused() {
        for text in [
            "none",
            "reclaim",
            "reclaim,movable",
            "reclaim,kswapd,retry,movable,zero",
        ] {
            assert_eq!(text.parse::<ProbeFlags>().unwrap().to_string(), text);
        }
        assert_eq!(ProbeFlags::default().to_string(), "reclaim,movable");
        for bad in ["", "reclaim,", "none,zero", "hard"] {
            assert!(bad.parse::<ProbeFlags>().is_err(), "{bad}");
        }
        assert_eq!(ProbeOptions::default().chunk_bytes(), 2 << 20);
    }
}
