//! What was found, for people in eighty columns, and as JSON.

use comfy_table::{presets, CellAlignment, Table};
use mega_core::units::Bytes;
use mega_lab::stats::Paired;
use serde_json::{json, Value};

use super::model::{Form, Model};
use super::plan::{Set, POOLS};
use super::Found;

/// A window pays if its gain is more than so many standard errors.
pub const SURE: f64 = 2.0;

pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub fn seconds(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.1} s"),
        v if v >= 0.1 => format!("{v:.3} s"),
        v => format!("{:.2} ms", v * 1e3),
    }
}

pub fn bytes(value: usize) -> String {
    Bytes(value as u64).to_string()
}

/// Against base pages: below zero is faster.
pub fn change(paired: &Paired) -> String {
    paired
        .ratio
        .map_or("?".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0))
}

/// With its interval, where there are rounds enough for one.
pub fn change_with_interval(paired: &Paired) -> String {
    match paired.ratio_interval {
        Some(interval) => format!(
            "{} ({:+.1} to {:+.1})",
            change(paired),
            (interval.low - 1.0) * 100.0,
            (interval.high - 1.0) * 100.0
        ),
        None => change(paired),
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header.iter().copied());
    table
}

fn rendered(mut table: Table, right: std::ops::RangeInclusive<usize>) -> String {
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

pub fn windows_model(found: &Found) -> Option<&Model> {
    found.models.iter().find(|model| model.form == Form::Windows)
}

/// Seconds that a window gains and their standard error.
pub fn gain(model: &Model, window: usize) -> (f64, f64) {
    (-model.coefficients[window + 1], model.errors[window + 1])
}

pub fn verdict((gain, error): (f64, f64)) -> &'static str {
    match gain {
        gain if gain > SURE * error => "pays",
        gain if gain < -SURE * error => "costs",
        _ => "no difference seen",
    }
}

/// The options that choose a set's layout.
pub fn options(found: &Found, set: Set) -> String {
    let [heap, anon] = found.plan.layouts(set);
    format!("--heap {heap} --anon {anon}")
}

/// For people.
pub fn text(found: &Found) -> String {
    let plan = &found.plan;
    let base = found.seconds[0];
    let mut out = format!(
        "{}: heap {}, anonymous mappings {}; base pages {}\n\n",
        found.command.join(" "),
        bytes(found.in_use[0]),
        bytes(found.in_use[1]),
        seconds(base)
    );
    let windows = windows_model(found);
    let mut parts = table(&["window", "pool", "from", "size", "gain", "", ""]);
    for (n, window) in plan.windows.iter().enumerate() {
        let gain = windows.map(|model| gain(model, n));
        parts.add_row([
            n.to_string(),
            POOLS[window.pool].to_owned(),
            bytes(window.start),
            bytes(window.bytes),
            gain.map_or(String::new(), |(gain, _)| percent(gain / base)),
            gain.map_or(String::new(), |(_, error)| {
                format!("± {}", percent(SURE * error / base))
            }),
            gain.map_or("", verdict).to_owned(),
        ]);
    }
    out += &rendered(parts, 2..=5);
    let header = format!("windows on {}", plan.kind);
    let mut layouts = table(&[&header, "large", "time", "to base", "unseen", "off by"]);
    for (n, set) in plan.sets.iter().enumerate() {
        let unseen = windows.and_then(|model| model.unseen[n]);
        layouts.add_row([
            plan.name(*set),
            bytes(plan.large_bytes(*set)),
            seconds(found.seconds[n]),
            change(&found.against_base[n]),
            unseen.map_or(String::new(), seconds),
            unseen.map_or(String::new(), |unseen| {
                percent((unseen - found.seconds[n]).abs() / found.seconds[n])
            }),
        ]);
    }
    out += &format!("\n{}", rendered(layouts, 1..=5));
    out += "(unseen: what the model of the windows says that was fitted without this layout)\n\n";
    for model in &found.models {
        out += &format!(
            "model '{}': off by {} in the mean, {} at most (each layout left out in turn)\n",
            model.form.name(),
            percent(model.mean_error),
            percent(model.largest_error)
        );
    }
    match &found.recommended {
        Some(one) => {
            out += &format!(
                "\nRecommended: {} ({} of {} on {} pages)\n",
                options(found, one.set),
                bytes(plan.large_bytes(one.set)),
                bytes(plan.large_bytes(plan.all())),
                plan.kind
            );
            out += &format!(
                "  predicted {}; measured anew {}, {} to base pages\n",
                seconds(one.predicted),
                seconds(one.seconds),
                change_with_interval(&one.against_base)
            );
            out += &format!(
                "  everything on {} pages: {}, {}\n",
                plan.kind,
                seconds(one.all_seconds),
                change_with_interval(&one.all_against_base)
            );
        }
        None => out += "\nToo few windows for a model: use more (--windows), or smaller pages.\n",
    }
    out
}

fn pair(paired: &Paired) -> Value {
    json!({
        "rounds": paired.rounds,
        "ratio": paired.ratio,
        "ratio_low": paired.ratio_interval.map(|interval| interval.low),
        "ratio_high": paired.ratio_interval.map(|interval| interval.high),
        "p": paired.p,
    })
}

/// For machines.
pub fn json(found: &Found) -> Value {
    let plan = &found.plan;
    let windows = windows_model(found);
    let parts = plan.windows.iter().enumerate().map(|(n, window)| {
        let gain = windows.map(|model| gain(model, n));
        json!({
            "pool": POOLS[window.pool],
            "start_bytes": window.start,
            "size_bytes": window.bytes,
            "gain_seconds": gain.map(|(gain, _)| gain),
            "gain_error_seconds": gain.map(|(_, error)| error).filter(|error| error.is_finite()),
            "verdict": gain.map(verdict),
        })
    });
    let layouts = plan.sets.iter().enumerate().map(|(n, set)| {
        let [heap, anon] = plan.layouts(*set).map(|layout| layout.to_string());
        let unseen: serde_json::Map<String, Value> = found
            .models
            .iter()
            .map(|model| (model.form.name().to_owned(), json!(model.unseen[n])))
            .collect();
        json!({
            "heap": heap,
            "anon": anon,
            "large_bytes": plan.large_bytes(*set),
            "seconds": found.seconds[n],
            "round_seconds": found.times[n],
            "to_base": pair(&found.against_base[n]),
            "unseen_seconds": unseen,
        })
    });
    let models = found.models.iter().map(|model| {
        json!({
            "model": model.form.name(),
            "coefficients_seconds": model.coefficients,
            "mean_error": model.mean_error,
            "largest_error": model.largest_error,
        })
    });
    let recommended = found.recommended.as_ref().map(|one| {
        let [heap, anon] = plan.layouts(one.set).map(|layout| layout.to_string());
        json!({
            "heap": heap,
            "anon": anon,
            "large_bytes": plan.large_bytes(one.set),
            "predicted_seconds": one.predicted,
            "seconds": one.seconds,
            "to_base": pair(&one.against_base),
            "all_seconds": one.all_seconds,
            "all_to_base": pair(&one.all_against_base),
        })
    });
    json!({
        "schema": 1,
        "kind": "mosaic-explore",
        "command": found.command,
        "pages": plan.kind.word(),
        "rounds": found.rounds,
        "heap_bytes": found.in_use[0],
        "anon_bytes": found.in_use[1],
        "windows": parts.collect::<Vec<_>>(),
        "layouts": layouts.collect::<Vec<_>>(),
        "models": models.collect::<Vec<_>>(),
        "recommended": recommended,
    })
}
