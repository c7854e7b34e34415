//! A sweep's table as CSV (RFC 4180): a row for each point, a column for each figure that its workloads can have.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use super::{axes, Row, Sweep};
use crate::report::folder::readable_by_all;
use crate::result::Metric;
use crate::simulated::figures;

/// Writes the table of these rows, replacing an older one atomically.
pub(super) fn write(sweep: &Sweep, rows: &[Row], path: &Path) -> io::Result<()> {
    let file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    let mut out = BufWriter::new(file);
    let metrics = metrics(sweep);
    let first = [
        "point",
        "workload",
        "memory_bytes",
        "fragment",
        "seed",
        "system",
        "failed",
    ];
    let names = first
        .into_iter()
        .chain(metrics.iter().map(|metric| metric.name.as_str()));
    writeln!(out, "{}", names.map(quoted).collect::<Vec<_>>().join(","))?;
    for row in rows {
        writeln!(out, "{}", fields(sweep, row, &metrics).join(","))?;
    }
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    readable_by_all(file.as_file())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// The metrics that a sweep's programs can have, whatever came out.
fn metrics(sweep: &Sweep) -> Vec<Metric> {
    let programs = sweep.programs();
    let mut all = figures::metrics();
    all.retain(|metric| figures::is_metric_of(&metric.name, &programs));
    all
}

/// Numbers in their shortest form that reads back the same; a missing value is an empty field.
fn fields(sweep: &Sweep, row: &Row, metrics: &[Metric]) -> Vec<String> {
    let point = sweep.point(row.point);
    let mut fields = vec![
        point.index.to_string(),
        quoted(&sweep.workloads[point.workload].name),
        sweep.memory[point.memory].0.to_string(),
        quoted(&axes::fragment_text(sweep.fragment[point.fragment])),
        sweep.seeds[point.seed].to_string(),
        quoted(&sweep.systems[point.system].to_string()),
        row.failed.as_deref().map_or(String::new(), quoted),
    ];
    let values = metrics.iter().map(|metric| row.values.get(&metric.name));
    fields.extend(values.map(|value| value.map_or(String::new(), f64::to_string)));
    fields
}

/// A field, in quotes where it needs them. An empty text is in quotes, to tell it from a missing one.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']);
    if plain {
        text.to_string()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be_and_numbers_read_back() {
        let texts = ["plain", "a,b", "say \"x\"", "two\nlines", "", "é"];
        let expected = ["plain", "\"a,b\"", "\"say \"\"x\"\"\"", "\"two\nlines\"", "\"\"", "é"];
        assert_eq!(texts.map(quoted), expected);
        let sweep = r#"{"systems": ["base"], "workloads": [{"name": "a,b", "programs": [{"run": {"program": "touch", "mib": 8}}]}]}"#;
        let sweep = Sweep::from_json(sweep).unwrap();
        let metrics = metrics(&sweep);
        let (huge, odd, absent) = (&metrics[0].name, &metrics[1].name, 2);
        let row = Row {
            point: 0,
            failed: Some("no \"memory\"".to_string()),
            values: [(huge.clone(), 1e21), (odd.clone(), 0.1)].into(),
        };
        let fields = fields(&sweep, &row, &metrics);
        assert_eq!(fields.len(), 7 + metrics.len());
        assert_eq!(
            (fields[1].as_str(), fields[6].as_str()),
            ("\"a,b\"", "\"no \"\"memory\"\"\"")
        );
        let numbers = &fields[7..];
        assert_eq!((numbers[0].parse(), numbers[1].parse()), (Ok(1e21), Ok(0.1)));
        assert_eq!(numbers[absent], "");
    }
}
