//! The workloads that run in both worlds, on the same sizes with the same options.

use std::time::Duration;

use mega_sim::scenario::{MachineSpec, Placed, Scenario, System};
use mega_sim::workload::Spec;

use crate::prepare::condition::Condition;
use crate::program::builtin::builtin;
use crate::run::{CasePlan, Plan};

/// The variants that both run; the first is what run times are compared with.
pub const VARIANTS: &[&str] = &["base", "thp-always", "mega:compact=off"];
/// Time between scans of both managers: the runs are short.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// How much a workload does, at scale 1.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// One pass: there is no option.
    Once,
    Times(u32),
    Updates(f64),
    Seconds(f64),
}

/// One workload in both worlds. Those that are managed long enough for it run until the manager is done with them: a count on the way there is the
/// machine's speed at that second.
pub(super) struct Twin {
    pub name: &'static str,
    /// Size at scale 1 in MiB.
    mib: f64,
    work: Work,
    /// Further options of the live one.
    live: &'static [(&'static str, &'static str)],
    /// The simulated one's options but for the size, as JSON's inner part. A weight of 8 leaves enough visits to touch every page in each second,
    /// but not those of unpopular keys.
    simulated: &'static str,
    /// What its run time is judged by.
    pub time: &'static str,
}

pub(super) const TWINS: &[Twin] = &[
    Twin {
        name: "touch",
        mib: 8192.0,
        work: Work::Once,
        live: &[],
        simulated: "",
        time: "first_touch_ns",
    },
    Twin {
        name: "gups",
        mib: 2048.0,
        work: Work::Updates(1.8e9),
        live: &[],
        simulated: r#","weight":8"#,
        time: "ops_per_s",
    },
    Twin {
        name: "stride",
        mib: 2048.0,
        work: Work::Times(1),
        live: &[],
        simulated: r#","weight":4"#,
        time: "elapsed_ns",
    },
    Twin {
        name: "chunks",
        mib: 3072.0,
        work: Work::Seconds(20.0),
        live: &[],
        simulated: r#","weight":8"#,
        time: "ops_per_s",
    },
    Twin {
        name: "kv",
        mib: 2048.0,
        work: Work::Seconds(60.0),
        // Each key is used within seconds: where half of a region's are, it is promoted or not by a hair.
        live: &[("zipf", "0.5")],
        simulated: r#","zipf":0.5"#,
        time: "ops_per_s",
    },
];

impl Twin {
    fn mib(&self, scale: f64) -> String {
        format!("{:.0}", (self.mib * scale).max(64.0))
    }

    /// The live one's options.
    fn live(&self, scale: f64) -> Vec<(&'static str, String)> {
        let work = match self.work {
            Work::Once => None,
            Work::Times(times) => Some(("times", times.to_string())),
            Work::Updates(updates) => Some(("updates", format!("{:.0}", updates * scale))),
            Work::Seconds(seconds) => Some(("seconds", (seconds * scale).to_string())),
        };
        let further = self.live.iter().map(|(name, value)| (*name, (*value).to_string()));
        std::iter::once(("mib", self.mib(scale)))
            .chain(work)
            .chain(further)
            .collect()
    }

    /// The simulated one's.
    fn simulated(&self, scale: f64) -> String {
        let work = match self.work {
            Work::Once => String::new(),
            Work::Times(times) => format!(r#","times":{times}"#),
            Work::Updates(updates) => format!(r#","updates":{:.0}"#, updates * scale),
            Work::Seconds(seconds) => format!(r#","time_ns":{:.0}"#, seconds * scale * 1e9),
        };
        format!("{work}{}", self.simulated)
    }
}

/// The workloads' names.
pub fn workloads() -> impl Iterator<Item = &'static str> {
    TWINS.iter().map(|twin| twin.name)
}

/// Those of these names; all, if there are none.
fn twins(only: &[String]) -> impl Iterator<Item = &'static Twin> + '_ {
    let asked = |twin: &&Twin| only.is_empty() || only.iter().any(|name| name == twin.name);
    TWINS.iter().filter(asked)
}

/// The live runs: of these workloads, of all if none is named.
///
/// # Panics
/// When a workload does not take its options; a test makes all of them.
#[must_use]
pub fn plan(only: &[String], scale: f64, faults: bool) -> Plan {
    let case = |twin: &Twin| {
        let options = twin.live(scale);
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        CasePlan {
            name: twin.name.to_string(),
            program: Box::new(builtin(twin.name, &options, 1).unwrap_or_else(|e| panic!("{}: {e}", twin.name))),
            condition: Condition::Unfragmented,
        }
    };
    Plan {
        cases: twins(only).map(case).collect(),
        variants: VARIANTS.iter().map(|name| name.parse().expect("a variant")).collect(),
        manager_options: vec!["--interval".to_string(), format!("{}ms", INTERVAL.as_millis())],
        prefault: true,
        faults,
        main: ["ops_per_s", "first_touch_ns", "elapsed_ns", "rss_bytes", "huge_bytes"]
            .map(str::to_string)
            .to_vec(),
    }
}

/// A variant as this machine's kernel has it: Linux 6.18 gives a store to a region that was only loaded from a huge page (seen with `stride`).
fn system(variant: &str) -> &str {
    match variant {
        "thp-always" => "thp-always:huge_after_load=on",
        other => other,
    }
}

/// The simulated runs on this machine, of the same workloads: by case, by variant.
///
/// # Panics
/// When a workload does not take its options; a test makes all of them.
#[must_use]
pub fn scenarios(only: &[String], scale: f64, machine: &MachineSpec, seed: u64) -> Vec<Vec<Scenario>> {
    let of = |twin: &Twin, variant: &str| {
        let spec = format!(
            r#"{{"program":"{}","mib":{}{}}}"#,
            twin.name,
            twin.mib(scale),
            twin.simulated(scale)
        );
        let run: Spec = serde_json::from_str(&spec).unwrap_or_else(|e| panic!("{spec}: {e}"));
        Scenario {
            machine: machine.clone(),
            system: system(variant).parse::<System>().expect("a system"),
            programs: vec![Placed::new(run)],
            interval: INTERVAL,
            seed,
            ..Scenario::default()
        }
    };
    twins(only)
        .map(|twin| VARIANTS.iter().map(|variant| of(twin, variant)).collect())
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
        for scale in [0.02, 1.0] {
            let plan = plan(&[], scale, false);
            let scenarios = scenarios(&[], scale, &machine, 1);
            assert_eq!(plan.cases.len(), scenarios.len());
            for (case, of_variants) in plan.cases.iter().zip(&scenarios) {
                assert_eq!(of_variants.len(), plan.variants.len());
                for scenario in of_variants {
                    scenario.check().unwrap();
                    assert_eq!(scenario.programs[0].run.name(), case.name);
                    let spec = serde_json::to_value(&scenario.programs[0].run).unwrap();
                    // The hash table has an index beside its values.
                    let (mib, needs) = (spec["mib"].as_u64().unwrap(), case.program.needs().memory_bytes >> 20);
                    assert!(
                        (mib..=mib + mib / 50 + 16).contains(&needs),
                        "{}: {mib} and {needs}",
                        case.name
                    );
                }
            }
        }
    }

    #[test]
    fn workloads_are_chosen_by_name_in_both_worlds() {
        let only = ["kv".to_string(), "touch".to_string()];
        let names: Vec<String> = plan(&only, 0.02, false)
            .cases
            .iter()
            .map(|case| case.name.clone())
            .collect();
        assert_eq!(names, ["touch", "kv"]);
        let scenarios = scenarios(&only, 0.02, &MachineSpec::default(), 1);
        assert_eq!(scenarios.len(), 2);
        assert_eq!(scenarios[1][0].programs[0].run.name(), "kv");
    }
}
