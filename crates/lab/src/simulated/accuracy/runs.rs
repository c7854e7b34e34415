//! The workloads that run in both worlds, on the same sizes with the same options.

use std::time::Duration;

use mega_core::units::Share;
use mega_sim::scenario::{Fragment, MachineSpec, Placed, Scenario, System};
use mega_sim::workload::redis::RedisOptions;
use mega_sim::workload::Spec;

use crate::contiguity::FragKind;
use crate::prepare::condition::Condition;
use crate::program::builtin::builtin;
use crate::program::redis::Redis;
use crate::program::Program;
use crate::run::{CasePlan, Plan};

/// What is run in both worlds. The model was made, and its costs chosen, while the first half was looked at; nothing was fitted to the second one,
/// neither to its workloads nor to the systems and the state of memory that only it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Seen while the model was made.
    Seen,
    /// Held out.
    HeldOut,
}

impl Half {
    /// The variants that both worlds run; the first is what run times are compared with.
    #[must_use]
    pub fn variants(self) -> &'static [&'static str] {
        match self {
            Self::Seen => &["base", "thp-always", "mega:compact=off"],
            Self::HeldOut => &[
                "base",
                "thp-always",
                "thp-always-defrag",
                "mega:compact=off",
                "ingens:compact=off",
            ],
        }
    }

    pub(super) fn twins(self) -> &'static [Twin] {
        match self {
            Self::Seen => SEEN,
            Self::HeldOut => HELD_OUT,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::HeldOut => "held-out",
        }
    }

    /// Its workloads' names.
    pub fn workloads(self) -> impl Iterator<Item = &'static str> {
        self.twins().iter().map(|twin| twin.name)
    }

    /// Those of these names; all, if there are none.
    fn only(self, names: &[String]) -> impl Iterator<Item = &'static Twin> + '_ {
        let asked = |twin: &&Twin| names.is_empty() || names.iter().any(|name| name == twin.name);
        self.twins().iter().filter(asked)
    }
}

/// Time between scans of both managers: the runs are short.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Share of the free memory that is of no use for huge pages where it is fragmented.
const UNUSABLE: Share = Share::percent(90);

/// How much a workload does, at scale 1.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// One pass: there is no option.
    Once,
    Times(u32),
    Iterations(u32),
    Updates(f64),
    Seconds(f64),
}

/// How large a workload is, at scale 1.
#[derive(Clone, Copy)]
enum Size {
    Mib(f64),
    /// A graph of two to this power vertices.
    Power(f64),
}

impl Size {
    /// As an option of both worlds.
    fn option(self, scale: f64) -> (&'static str, String) {
        match self {
            Self::Mib(mib) => ("mib", format!("{:.0}", (mib * scale).max(64.0))),
            Self::Power(power) => ("scale", format!("{:.0}", (power + scale.log2()).max(12.0))),
        }
    }
}

/// What runs.
enum Runs {
    Builtin {
        program: &'static str,
        size: Size,
        work: Work,
        /// Further options of the live one.
        live: &'static [(&'static str, &'static str)],
        /// Further options of the simulated one, as JSON's inner part. A weight of 8 leaves enough visits to touch every page in each second,
        /// but not those of unpopular keys.
        simulated: &'static str,
    },
    /// LRBHPS' Table 2 at this part of its size: a Redis that is filled, by the same number of requests under way.
    Redis(f64),
}

/// One workload in both worlds. Those that are managed long enough for it run until the manager is done with them: a count on the way there is the
/// machine's speed at that second.
pub(super) struct Twin {
    pub name: &'static str,
    runs: Runs,
    /// Nine tenths of the free memory are of no use for huge pages.
    fragmented: bool,
    /// What its run time is judged by.
    pub time: &'static str,
}

const SEEN: &[Twin] = &[
    Twin::of("touch", Size::Mib(8192.0), Work::Once, &[], "", "first_touch_ns"),
    Twin::of(
        "gups",
        Size::Mib(2048.0),
        Work::Updates(1.8e9),
        &[],
        r#","weight":8"#,
        "ops_per_s",
    ),
    Twin::of(
        "stride",
        Size::Mib(2048.0),
        Work::Times(1),
        &[],
        r#","weight":4"#,
        "elapsed_ns",
    ),
    Twin::of(
        "chunks",
        Size::Mib(3072.0),
        Work::Seconds(20.0),
        &[],
        r#","weight":8"#,
        "ops_per_s",
    ),
    // Each key is used within seconds: where half of a region's are, it is promoted or not by a hair.
    Twin::of(
        "kv",
        Size::Mib(2048.0),
        Work::Seconds(60.0),
        &[("zipf", "0.5")],
        r#","zipf":0.5"#,
        "ops_per_s",
    ),
];

const HELD_OUT: &[Twin] = &[
    Twin::of("churn", Size::Mib(2048.0), Work::Times(4), &[], "", "elapsed_ns"),
    Twin::of(
        "holes",
        Size::Mib(3072.0),
        Work::Seconds(15.0),
        &[],
        r#","weight":4"#,
        "ops_per_s",
    ),
    Twin::of("graph", Size::Power(22.0), Work::Iterations(8), &[], "", "elapsed_ns"),
    Twin {
        name: "redis",
        runs: Runs::Redis(0.4),
        fragmented: false,
        time: "ops_per_s",
    },
    Twin {
        name: "touch-fragmented",
        fragmented: true,
        ..Twin::of("touch", Size::Mib(2048.0), Work::Once, &[], "", "first_touch_ns")
    },
];

impl Twin {
    /// A built-in workload under its own name, on unfragmented memory.
    const fn of(
        program: &'static str,
        size: Size,
        work: Work,
        live: &'static [(&'static str, &'static str)],
        simulated: &'static str,
        time: &'static str,
    ) -> Self {
        Self {
            name: program,
            runs: Runs::Builtin {
                program,
                size,
                work,
                live,
                simulated,
            },
            fragmented: false,
            time,
        }
    }

    /// The live one.
    fn live(&self, scale: f64) -> Box<dyn Program> {
        let (program, size, work, further) = match self.runs {
            Runs::Redis(part) => return Box::new(Redis::cold(part * scale)),
            Runs::Builtin {
                program,
                size,
                work,
                live,
                ..
            } => (program, size, work, live),
        };
        let work = match work {
            Work::Once => None,
            Work::Times(times) => Some(("times", times.to_string())),
            Work::Iterations(times) => Some(("iterations", times.to_string())),
            Work::Updates(updates) => Some(("updates", format!("{:.0}", updates * scale))),
            Work::Seconds(seconds) => Some(("seconds", (seconds * scale).to_string())),
        };
        let further = further.iter().map(|(name, value)| (*name, (*value).to_string()));
        let options: Vec<(&str, String)> = std::iter::once(size.option(scale)).chain(work).chain(further).collect();
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Box::new(builtin(program, &options, 1).unwrap_or_else(|e| panic!("{}: {e}", self.name)))
    }

    /// The simulated one.
    fn simulated(&self, scale: f64) -> Spec {
        let (program, size, work, further) = match self.runs {
            Runs::Redis(part) => {
                let Redis {
                    count,
                    connections,
                    depth,
                    ..
                } = Redis::cold(part * scale);
                return Spec::Redis(RedisOptions {
                    keys: count,
                    in_flight: (connections * depth) as u32,
                    ..RedisOptions::default()
                });
            }
            Runs::Builtin {
                program,
                size,
                work,
                simulated,
                ..
            } => (program, size, work, simulated),
        };
        let work = match work {
            Work::Once => String::new(),
            Work::Times(times) => format!(r#","times":{times}"#),
            Work::Iterations(times) => format!(r#","iterations":{times}"#),
            Work::Updates(updates) => format!(r#","updates":{:.0}"#, updates * scale),
            Work::Seconds(seconds) => format!(r#","time_ns":{:.0}"#, seconds * scale * 1e9),
        };
        let (option, size) = size.option(scale);
        let spec = format!(r#"{{"program":"{program}","{option}":{size}{work}{further}}}"#);
        serde_json::from_str(&spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
    }
}

/// The live runs: of these workloads, of all if none is named.
///
/// # Panics
/// When a workload does not take its options; a test makes all of them.
#[must_use]
pub fn plan(half: Half, only: &[String], scale: f64, faults: bool) -> Plan {
    let case = |twin: &Twin| CasePlan {
        name: twin.name.to_string(),
        program: twin.live(scale),
        condition: match twin.fragmented {
            true => Condition::Fragmented(UNUSABLE, FragKind::Study),
            false => Condition::Unfragmented,
        },
    };
    Plan {
        cases: half.only(only).map(case).collect(),
        variants: half
            .variants()
            .iter()
            .map(|name| name.parse().expect("a variant"))
            .collect(),
        manager_options: vec!["--interval".to_string(), format!("{}ms", INTERVAL.as_millis())],
        prefault: true,
        faults,
        main: ["ops_per_s", "first_touch_ns", "elapsed_ns", "rss_bytes", "huge_bytes"]
            .map(str::to_string)
            .to_vec(),
        record: None,
    }
}

/// A variant as this machine's kernel has it: Linux 6.18 gives a store to a region that was only loaded from a huge page (seen with `stride`).
fn system(variant: &str) -> &str {
    match variant {
        "thp-always" => "thp-always:huge_after_load=on",
        "thp-always-defrag" => "thp-always-defrag:huge_after_load=on",
        other => other,
    }
}

/// The simulated runs on this machine, of the same workloads: by case, by variant.
///
/// # Panics
/// When a workload does not take its options; a test makes all of them.
#[must_use]
pub fn scenarios(half: Half, only: &[String], scale: f64, machine: &MachineSpec, seed: u64) -> Vec<Vec<Scenario>> {
    let of = |twin: &Twin, variant: &str| {
        let program = Placed {
            name: Some(twin.name.to_string()),
            ..Placed::new(twin.simulated(scale))
        };
        let fragment = Fragment::Unusable {
            share: UNUSABLE,
            unmovable: Share::ZERO,
        };
        Scenario {
            machine: machine.clone(),
            system: system(variant).parse::<System>().expect("a system"),
            fragment: twin.fragmented.then_some(fragment),
            programs: vec![program],
            interval: INTERVAL,
            seed,
            ..Scenario::default()
        }
    };
    half.only(only)
        .map(|twin| half.variants().iter().map(|variant| of(twin, variant)).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::units::Bytes;

    #[test]
    fn both_worlds_have_the_same_workloads_in_the_same_sizes() {
        let machine = MachineSpec {
            memory: Bytes(24 << 30),
            ..MachineSpec::default()
        };
        for (half, scale) in [Half::Seen, Half::HeldOut]
            .into_iter()
            .flat_map(|half| [(half, 0.02), (half, 1.0)])
        {
            let plan = plan(half, &[], scale, false);
            let scenarios = scenarios(half, &[], scale, &machine, 1);
            assert_eq!(plan.cases.len(), scenarios.len());
            for (case, of_variants) in plan.cases.iter().zip(&scenarios) {
                assert_eq!(of_variants.len(), plan.variants.len());
                for scenario in of_variants {
                    scenario.check().unwrap();
                    let placed = &scenario.programs[0];
                    assert_eq!(placed.name.as_ref(), Some(&case.name));
                    assert_eq!(scenario.fragment.is_some(), case.condition != Condition::Unfragmented);
                    let spec = serde_json::to_value(&placed.run).unwrap();
                    let needs = case.program.needs().memory_bytes >> 20;
                    let size = |field: &str| spec[field].as_u64();
                    match (size("mib"), size("keys")) {
                        // The hash table has an index beside its values.
                        (Some(mib), _) => assert!(
                            (mib..=mib + mib / 50 + 16).contains(&needs),
                            "{}: {mib} and {needs}",
                            case.name
                        ),
                        (None, Some(keys)) => assert!(case.program.describe().contains(&keys.to_string())),
                        (None, None) => assert!(case.program.describe().contains(&size("scale").unwrap().to_string())),
                    }
                }
            }
        }
    }

    #[test]
    fn halves_have_nothing_in_common_but_base_pages_and_what_they_are_compared_with() {
        assert!(Half::Seen
            .workloads()
            .all(|seen| Half::HeldOut.workloads().all(|held_out| held_out != seen)));
        assert_eq!(Half::Seen.variants()[0], Half::HeldOut.variants()[0]);
        assert!(Half::HeldOut
            .variants()
            .iter()
            .any(|variant| !Half::Seen.variants().contains(variant)));
    }

    #[test]
    fn workloads_are_chosen_by_name_in_both_worlds() {
        let only = ["kv".to_string(), "touch".to_string()];
        let names: Vec<String> = plan(Half::Seen, &only, 0.02, false)
            .cases
            .iter()
            .map(|case| case.name.clone())
            .collect();
        assert_eq!(names, ["touch", "kv"]);
        let scenarios = scenarios(Half::Seen, &only, 0.02, &MachineSpec::default(), 1);
        assert_eq!(scenarios.len(), 2);
        assert_eq!(scenarios[1][0].programs[0].run.name(), "kv");
    }
}
