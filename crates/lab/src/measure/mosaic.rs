//! The exit reports of processes under libmemomania.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::result::{Better, Metric, Unit};

/// Most bytes of reports that are read.
const LARGEST: u64 = 64 << 20;

/// The metrics that [`read`] gives.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    vec![
        Metric::new(
            "mosaic_short",
            "requests for a page size that could not be met",
            Unit::Count,
            Better::Lower,
        ),
        Metric::new(
            "mosaic_demoted",
            "hugetlb pages replaced by base pages",
            Unit::Count,
            Better::Lower,
        ),
        Metric::new(
            "mosaic_left",
            "mappings left to the kernel",
            Unit::Count,
            Better::Neither,
        ),
    ]
}

/// Sums over all processes that reported; none if none did: the library was not loaded, or all were killed.
#[must_use]
pub fn read(path: &Path) -> Option<BTreeMap<String, f64>> {
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    let sum = |part: &Value| match part {
        Value::Object(members) => members.values().filter_map(Value::as_f64).sum(),
        other => other.as_f64().unwrap_or(0.0),
    };
    let mut values = BTreeMap::new();
    // Skip a line that a killed process left incomplete.
    for report in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        for (name, field) in [
            ("mosaic_short", "short"),
            ("mosaic_demoted", "demoted"),
            ("mosaic_left", "left_to_the_kernel"),
        ] {
            *values.entry(name.to_string()).or_insert(0.0) += sum(&report[field]);
        }
    }
    Some(values).filter(|values| !values.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_all_processes_add_up_and_none_is_told_from_nothing_to_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        assert_eq!(read(&path), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&path), None);
        let line = r#"{"schema":1,"short":{"2M":2,"1G":1},"left_to_the_kernel":{"flags":3,"address":1},"demoted":1}"#;
        std::fs::write(&path, format!("{line}\n{line}\n{{\"half")).unwrap();
        let values = read(&path).unwrap();
        assert_eq!(values["mosaic_short"], 6.0);
        assert_eq!((values["mosaic_left"], values["mosaic_demoted"]), (8.0, 2.0));
        assert!(metrics().iter().all(|metric| values.contains_key(&metric.name)));
    }
}
