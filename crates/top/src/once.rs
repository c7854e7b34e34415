//! One look as text or JSON, for scripts.

use serde_json::{json, Value};

use crate::seen::Look;
use crate::state::{services, State};
use crate::view;

/// The table that the screen has, all of it, in so many columns.
#[must_use]
pub fn text(state: &State, width: usize) -> String {
    view::lines(state, width).into_iter().map(|line| line + "\n").collect()
}

/// Everything.
#[must_use]
pub fn json(look: &Look) -> Value {
    let services: Vec<Value> = services(&look.processes)
        .iter()
        .map(|row| {
            json!({
                "name": row.name, "processes": row.count, "figures": row.figures, "coverage": row.figures.coverage(),
                "doing": row.doing, "why": row.why,
            })
        })
        .collect();
    let processes: Vec<Value> = look
        .processes
        .iter()
        .map(|process| {
            json!({
                "pid": process.pid, "comm": process.name, "service": process.service, "rule": process.rule,
                "figures": process.figures, "coverage": process.figures.coverage(), "doing": process.doing, "why": process.why,
            })
        })
        .collect();
    json!({
        "schema": 1, "kind": "top", "daemon": look.daemon.as_ref().ok().map(|daemon| daemon.pid), "scanner": look.scanner.as_ref().ok(),
        "services": services, "processes": processes,
    })
}
