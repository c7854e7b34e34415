//! A record that is small enough for a repository: what tables and counts are made of, and nothing else.

use std::collections::BTreeSet;

use super::papers::find;
use crate::result::Record;

/// The record without what only a report draws: main figures, and those that are published or compared in words.
#[must_use]
pub fn kept(record: &Record) -> Record {
    let mut small = record.clone().small();
    let words = find(&record.experiment.name).map_or(&[][..], |experiment| experiment.words);
    let mut names: BTreeSet<&str> = words.iter().map(|words| words.metric).collect();
    names.extend(record.main_metrics().map(|metric| metric.name.as_str()));
    names.extend(record.published.iter().map(|one| one.metric.as_str()));
    small.metrics.retain(|metric| names.contains(metric.name.as_str()));
    for run in &mut small.runs {
        run.values.retain(|name, _| names.contains(name.as_str()));
        run.phases.clear();
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};
    use crate::simulated::{count, magnitudes::magnitudes, side_by_side};

    #[test]
    fn counts_and_tables_of_what_is_kept_are_those_of_the_whole() {
        let record = synthetic::record(&Options::default());
        let small = kept(&record);
        assert_eq!(
            count(std::slice::from_ref(&small)),
            count(std::slice::from_ref(&record))
        );
        assert_eq!(
            magnitudes(std::slice::from_ref(&small)),
            magnitudes(std::slice::from_ref(&record))
        );
        assert_eq!(side_by_side(&small), side_by_side(&record));
        let size = |record: &Record| serde_json::to_string(record).unwrap().len();
        assert!(
            size(&small) * 4 < size(&record),
            "{} of {}",
            size(&small),
            size(&record)
        );
    }
}
