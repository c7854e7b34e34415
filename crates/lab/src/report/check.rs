//! Checks that a record is consistent. Files are untrusted: indices may be out of range.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::result::{Record, Run, SCHEMA};

/// What is wrong with a record, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {why}")]
pub struct CheckError {
    /// Path of the field: `runs[3].case`.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

fn wrong(field: impl Into<String>, why: impl Into<String>) -> CheckError {
    CheckError {
        field: field.into(),
        why: why.into(),
    }
}

/// Checks what the format's types cannot express: versions, indices, lengths, order, finite numbers.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(record: &Record) -> Result<(), CheckError> {
    if record.schema != SCHEMA {
        return Err(wrong(
            "schema",
            format!("is {}; only {SCHEMA} is supported", record.schema),
        ));
    }
    if record.kind != "bench" {
        return Err(wrong("kind", format!("is {:?}, not \"bench\"", record.kind)));
    }
    unique("metrics", record.metrics.iter().map(|m| &m.name))?;
    unique("cases", record.cases.iter().map(|c| &c.name))?;
    unique("variants", record.variants.iter().map(|v| &v.name))?;
    for (index, published) in record.published.iter().enumerate() {
        if !published.value.is_finite() {
            return Err(wrong(format!("published[{index}].value"), "is not a finite number"));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, run) in record.runs.iter().enumerate() {
        let at = format!("runs[{index}]");
        index_below(&at, "case", run.case, record.cases.len())?;
        index_below(&at, "variant", run.variant, record.variants.len())?;
        if !seen.insert((run.case, run.variant, run.round)) {
            return Err(wrong(
                at,
                "is a duplicate: an earlier run has its case, variant and round",
            ));
        }
        check_run(&at, run)?;
    }
    Ok(())
}

fn unique<'a>(field: &str, names: impl Iterator<Item = &'a String>) -> Result<(), CheckError> {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            return Err(wrong(
                format!("{field}[{index}].name"),
                format!("{name:?} is a duplicate"),
            ));
        }
    }
    Ok(())
}

fn index_below(at: &str, field: &str, index: usize, count: usize) -> Result<(), CheckError> {
    if index < count {
        return Ok(());
    }
    Err(wrong(
        format!("{at}.{field}"),
        format!("is {index}, but there are {count}"),
    ))
}

fn check_run(at: &str, run: &Run) -> Result<(), CheckError> {
    if !run.seconds.is_finite() || !run.began_s.is_finite() {
        return Err(wrong(format!("{at}.seconds"), "is not a finite number"));
    }
    if let Some((name, _)) = run.values.iter().find(|(_, v)| !v.is_finite()) {
        return Err(wrong(format!("{at}.values.{name}"), "is not finite; omit it"));
    }
    let seconds = &run.series.seconds;
    if !seconds.iter().all(|s| s.is_finite()) || !seconds.is_sorted() {
        return Err(wrong(format!("{at}.series.seconds"), "do not ascend"));
    }
    for (name, column) in &run.series.columns {
        if column.len() != seconds.len() {
            let why = format!("has {} values for {} seconds", column.len(), seconds.len());
            return Err(wrong(format!("{at}.series.columns.{name}"), why));
        }
    }
    for (name, distribution) in &run.distributions {
        let field = || format!("{at}.distributions.{name}.quantiles");
        let quantiles = &distribution.quantiles;
        if !quantiles
            .iter()
            .all(|(q, ns)| (0.0..=1.0).contains(q) && ns.is_finite())
        {
            return Err(wrong(field(), "are not all shares with a finite value"));
        }
        if !quantiles.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1) {
            return Err(wrong(field(), "do not ascend"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{self, Options};
    use super::*;

    #[test]
    fn a_whole_record_holds_together() {
        let record = synthetic::record(&Options {
            variants: 9,
            troubled: true,
            ..Options::default()
        });
        assert_eq!(check(&record), Ok(()));
    }

    #[test]
    fn each_thing_that_is_wrong_is_named_with_its_field() {
        type Spoil = fn(&mut Record);
        let spoils: [(&str, Spoil); 11] = [
            ("schema", |r| r.schema = 2),
            ("kind", |r| r.kind = "show".into()),
            ("cases[1].name", |r| r.cases[1].name = r.cases[0].name.clone()),
            ("runs[3].case", |r| r.runs[3].case = 2),
            ("runs[3].variant", |r| r.runs[3].variant = 4),
            ("runs[4]", |r| r.runs[4] = r.runs[3].clone()),
            ("runs[3].values.ops_per_s", |r| {
                r.runs[3].values.insert("ops_per_s".into(), f64::NAN);
            }),
            ("runs[3].series.seconds", |r| r.runs[3].series.seconds[0] = 1e9),
            ("runs[3].series.columns.rss_bytes", |r| {
                r.runs[3].series.columns.get_mut("rss_bytes").unwrap().pop();
            }),
            ("runs[3].distributions.fault.quantiles", |r| {
                r.runs[3].distributions.get_mut("fault").unwrap().quantiles.reverse();
            }),
            ("published[0].value", |r| r.published[0].value = f64::INFINITY),
        ];
        for (field, spoil) in spoils {
            let mut record = synthetic::record(&Options::default());
            spoil(&mut record);
            assert_eq!(check(&record).map_err(|e| e.field), Err(field.to_string()));
        }
    }
}
