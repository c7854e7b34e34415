//! A whole sweep as the lab's record.

use std::collections::BTreeSet;

use super::{axes, Row, Sweep};
use crate::result::{About, Case, Outcome, Record};
use crate::simulated::figures;

/// The whole sweep as a record: a case for each workload, size and state, a round for each seed.
pub(super) fn record(sweep: &Sweep, rows: Vec<Row>, command: &str) -> Record {
    let [workloads, memory, fragments, _, _] = sweep.sizes();
    let mut cases = Vec::new();
    for workload in 0..workloads {
        for memory in 0..memory {
            for fragment in 0..fragments {
                let (of, size) = (&sweep.workloads[workload], sweep.memory[memory]);
                let fragment = sweep.fragment[fragment];
                cases.push(Case {
                    name: format!("{} {size} {}", of.name, axes::fragment_text(fragment)),
                    program: of.describe(),
                    condition: format!("{size} of memory, {}", figures::condition(fragment)),
                });
            }
        }
    }
    let mut runs = Vec::new();
    for row in rows {
        let point = sweep.point(row.point);
        let case = (point.workload * memory + point.memory) * fragments + point.fragment;
        let mut run = figures::run_of_nothing(case, point.system, point.seed);
        run.values = row.values;
        run.outcome = row.failed.map_or(Outcome::Done, Outcome::Failed);
        runs.push(run);
    }
    // Different sizes may print alike.
    let mut names = BTreeSet::new();
    for (i, case) in cases.iter_mut().enumerate() {
        if !names.insert(case.name.clone()) {
            case.name += &format!(" ({i})");
        }
    }
    let mut machine = figures::machine(&sweep.base.machine);
    machine.memory_bytes = sweep.memory.iter().map(|bytes| bytes.0).max().unwrap_or(0);
    figures::record(figures::Parts {
        about: About {
            name: "sweep".to_string(),
            title: format!("A sweep of {} simulated runs", sweep.len()),
            question: String::new(),
            source: None,
            scale: None,
            differs: None,
        },
        machine,
        cases,
        variants: sweep.systems.iter().map(figures::variant).collect(),
        runs,
        published: Vec::new(),
        main: figures::main_metrics(&sweep.programs()),
        rounds: sweep.seeds.len(),
        seed: sweep.seeds[0],
        command: command.to_string(),
    })
}
