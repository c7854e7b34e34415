//! What a sweep varies: its lists, read and checked.

use std::collections::BTreeMap;

use mega_core::units::{Bytes, Share};
use mega_sim::scenario::{Fragment, Placed, System};
use mega_sim::workload::Spec;
use serde::Deserialize;
use serde_json::Value;

use super::{wrong, SweepError};
use crate::simulated::figures;

/// The most of each list but the seeds.
const MOST_OF_A_KIND: usize = 1000;
/// The most systems with their parameters.
const MOST_SYSTEMS: usize = 10_000;

/// Programs that run together, under a name.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    /// Unique in the sweep.
    pub name: String,
    /// The programs, and whether the file gives the program's seed.
    placed: Vec<(Placed, bool)>,
}

impl Workload {
    /// The programs; those without their own seed get this one, the next one, and so on.
    pub fn placed(&self, seed: u64) -> Vec<Placed> {
        let one = |(i, (placed, has_seed)): (u64, &(Placed, bool))| {
            let mut placed = placed.clone();
            if !has_seed {
                placed.run = seeded(&placed.run, |_| seed.wrapping_add(i));
            }
            placed
        };
        (0..).zip(&self.placed).map(one).collect()
    }

    /// Names of the programs.
    pub fn programs(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.placed.iter().map(|(placed, _)| placed.run.name())
    }

    /// The programs in words, one after the other.
    pub fn describe(&self) -> String {
        let of = |(placed, _): &(Placed, bool)| figures::program(&placed.run);
        self.placed.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

/// The same program with another seed, if it has one.
#[must_use]
pub fn seeded(spec: &Spec, seed: impl Fn(u64) -> u64) -> Spec {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    let Some(old) = value.get("seed").and_then(Value::as_u64) else {
        return spec.clone();
    };
    value["seed"] = seed(old).into();
    serde_json::from_value(value).unwrap_or_else(|_| spec.clone())
}

/// Several programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Together {
    name: String,
    programs: Vec<Value>,
}

fn list<'a, T>(field: &str, values: &'a [T]) -> Result<&'a [T], SweepError> {
    match values.is_empty() {
        true => Err(wrong(field, "the list is empty")),
        false => Ok(values),
    }
}

/// The workloads: a program (`{"program": "gups", …}`), or several under a name (`{"name": …, "programs": [{"run": …}, …]}`).
pub(super) fn workloads(values: &[Value]) -> Result<Vec<Workload>, SweepError> {
    once("workloads", values)?;
    let mut all: Vec<Workload> = Vec::new();
    for (i, value) in list("workloads", values)?.iter().enumerate() {
        let field = format!("workloads[{i}]");
        let mut workload = match value.get("programs") {
            None => {
                let spec: Spec = serde_json::from_value(value.clone()).map_err(|e| wrong(&field, e))?;
                Workload {
                    name: spec.name().to_string(),
                    placed: vec![(Placed::new(spec), value.get("seed").is_some())],
                }
            }
            Some(_) => {
                let together: Together = serde_json::from_value(value.clone()).map_err(|e| wrong(&field, e))?;
                let one = |(j, program): (usize, &Value)| -> Result<(Placed, bool), SweepError> {
                    let has_seed = program.get("run").is_some_and(|run| run.get("seed").is_some());
                    let placed: Placed = serde_json::from_value(program.clone())
                        .map_err(|e| wrong(format!("{field}.programs[{j}]"), e))?;
                    Ok((placed, has_seed))
                };
                Workload {
                    placed: together
                        .programs
                        .iter()
                        .enumerate()
                        .map(one)
                        .collect::<Result<_, _>>()?,
                    name: together.name,
                }
            }
        };
        // A number tells equal names apart.
        let plain = workload.name.clone();
        let mut number = 2;
        while all.iter().any(|known| known.name == workload.name) {
            workload.name = format!("{plain}-{number}");
            number += 1;
        }
        all.push(workload);
    }
    Ok(all)
}

/// Sizes of memory: `8G`.
pub(super) fn memory(texts: &[String], default: Bytes) -> Result<Vec<Bytes>, SweepError> {
    if texts.is_empty() {
        return Ok(vec![default]);
    }
    let one = |(i, text): (usize, &String)| {
        let field = format!("memory[{i}]");
        text.parse::<Bytes>().map_err(|e| wrong(field, e))
    };
    let all: Vec<Bytes> = texts.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    once("memory", &all)?;
    Ok(all)
}

/// Duplicates would be two points with the same result.
fn once<T: PartialEq>(field: &str, values: &[T]) -> Result<(), SweepError> {
    if values.len() > MOST_OF_A_KIND {
        return Err(wrong(field, format!("more than {MOST_OF_A_KIND}")));
    }
    let twice = (0..values.len()).find(|i| values[..*i].contains(&values[*i]));
    match twice {
        Some(i) => Err(wrong(format!("{field}[{i}]"), "is a duplicate")),
        None => Ok(()),
    }
}

/// Seeds.
pub(super) fn seeds(seeds: Vec<u64>, default: u64) -> Result<Vec<u64>, SweepError> {
    if seeds.is_empty() {
        return Ok(vec![default]);
    }
    // Sorted, as there may be many.
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(wrong("seeds", format!("{} is a duplicate", pair[0]))),
        None => Ok(seeds),
    }
}

/// States of memory: as in a scenario, as text (see [`parse_fragment`]), or null.
pub(super) fn fragments(values: &[Value], default: Option<Fragment>) -> Result<Vec<Option<Fragment>>, SweepError> {
    if values.is_empty() {
        return Ok(vec![default]);
    }
    let one = |(i, value): (usize, &Value)| {
        let field = format!("fragment[{i}]");
        match value {
            Value::Null => Ok(None),
            Value::String(text) => parse_fragment(text).map_err(|e| wrong(field, e)),
            value => serde_json::from_value(value.clone())
                .map(Some)
                .map_err(|e| wrong(field, e)),
        }
    };
    let all: Vec<_> = values.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    once("fragment", &all)?;
    Ok(all)
}

/// Reads the state of memory: `none`, `90%` (of free memory unusable for huge pages), `90%/3%` (and this share of the fragmented
/// blocks unmovable), `study`, `lrbhps=50%`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_fragment(text: &str) -> Result<Option<Fragment>, String> {
    let share = |text: &str| text.parse::<Share>().map_err(|e| e.to_string());
    Ok(Some(match text {
        "none" => return Ok(None),
        "study" => Fragment::Study,
        _ => match (text.strip_prefix("lrbhps="), text.split_once('/')) {
            (Some(part), _) => Fragment::Lrbhps { part: share(part)? },
            (None, Some((unusable, unmovable))) => Fragment::Unusable {
                share: share(unusable)?,
                unmovable: share(unmovable)?,
            },
            (None, None) => Fragment::Unusable {
                share: share(text).map_err(|e| format!("{e}, or none, study or lrbhps=SHARE"))?,
                unmovable: Share::ZERO,
            },
        },
    }))
}

/// The state of memory as [`parse_fragment`] reads it.
#[must_use]
pub fn fragment_text(fragment: Option<Fragment>) -> String {
    match fragment {
        None => "none".to_string(),
        Some(Fragment::Unusable { share, unmovable }) if unmovable == Share::ZERO => share.to_string(),
        Some(Fragment::Unusable { share, unmovable }) => format!("{share}/{unmovable}"),
        Some(Fragment::Study) => "study".to_string(),
        Some(Fragment::Lrbhps { part }) => format!("lrbhps={part}"),
    }
}

/// Every system with every combination of the parameters that it takes and does not set itself.
pub(super) fn systems(
    systems: Vec<System>,
    parameters: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<System>, SweepError> {
    list("systems", &systems)?;
    once("systems", &systems)?;
    let mut all = systems;
    for (key, values) in parameters {
        let field = format!("parameters.{key}");
        list(&field, values)?;
        once(&field, values)?;
        let mut with = Vec::new();
        let mut taken = false;
        for system in all {
            if !system.takes(key) || system.sets(key) {
                with.push(system);
                continue;
            }
            taken = true;
            for value in values {
                let text = format!("{system}:{key}={value}");
                with.push(text.parse::<System>().map_err(|e| wrong(&field, e))?);
            }
            if with.len() > MOST_SYSTEMS {
                return Err(wrong("parameters", format!("more than {MOST_SYSTEMS} systems")));
            }
        }
        if !taken {
            return Err(wrong(field, "no system takes it, or all set it themselves"));
        }
        all = with;
    }
    Ok(all)
}
