//! A run's memory and rates as single figures.

use std::collections::BTreeMap;

use crate::result::{Better, Metric, Series, Unit};

/// The metrics of memory and of the settled rate.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    vec![
        Metric::new("settled_per_s", "settled operations/s", Unit::PerSecond, Better::Higher),
        Metric::new("rss_bytes", "resident", Unit::Bytes, Better::Lower),
        Metric::new("taken_bytes", "memory taken", Unit::Bytes, Better::Lower),
        Metric::new("pss_bytes", "proportional set size", Unit::Bytes, Better::Lower),
        Metric::new("huge_bytes", "in huge pages", Unit::Bytes, Better::Neither),
        Metric::new("hugetlb_bytes", "in hugetlb pages", Unit::Bytes, Better::Neither),
        Metric::new("gigantic_bytes", "in pages of 1 GB", Unit::Bytes, Better::Neither),
        Metric::new("waste_bytes", "wasted in huge pages", Unit::Bytes, Better::Lower),
        Metric::new("peak_rss_bytes", "peak resident", Unit::Bytes, Better::Lower),
        Metric::new("mean_rss_bytes", "resident, mean", Unit::Bytes, Better::Lower),
        Metric::new("peak_taken_bytes", "memory taken, peak", Unit::Bytes, Better::Lower),
        Metric::new("mean_taken_bytes", "memory taken, mean", Unit::Bytes, Better::Lower),
        Metric::new("peak_huge_bytes", "peak in huge pages", Unit::Bytes, Better::Neither),
        Metric::new(
            "free_blocks",
            "free 2 MB blocks at the end",
            Unit::Count,
            Better::Higher,
        ),
        Metric::new(
            "free_blocks_mean",
            "free 2 MB blocks, mean of the longest phase",
            Unit::Count,
            Better::Higher,
        ),
    ]
}

/// Share of the samples, at the end, that counts as settled.
const SETTLED_PART: usize = 3;

/// The program's settled rate: the median of the last third of its reports.
#[must_use]
pub fn settled(series: &Series) -> Option<f64> {
    let rates: Vec<f64> = series.columns.get("ops_per_s")?.iter().copied().flatten().collect();
    crate::stats::median(&rates[rates.len() - rates.len().div_ceil(SETTLED_PART)..])
}

/// The largest values of a series, the means of resident memory and of memory taken, and the last number of free blocks.
#[must_use]
pub fn at_most(series: &Series) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::new();
    let column = |name: &str| series.columns.get(name).into_iter().flatten().copied().flatten();
    for (column_name, name) in [
        ("rss_bytes", "peak_rss_bytes"),
        ("taken_bytes", "peak_taken_bytes"),
        ("huge_bytes", "peak_huge_bytes"),
    ] {
        if let Some(most) = column(column_name).reduce(f64::max) {
            values.insert(name.to_string(), most);
        }
    }
    for (column_name, name) in [("rss_bytes", "mean_rss_bytes"), ("taken_bytes", "mean_taken_bytes")] {
        let samples: Vec<f64> = column(column_name).collect();
        if !samples.is_empty() {
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            values.insert(name.to_string(), mean);
        }
    }
    if let Some(last) = column("free_blocks").last() {
        values.insert("free_blocks".to_string(), last);
    }
    values
}

/// The mean number of free blocks over the longest phase of a run that took so many seconds.
#[must_use]
pub fn free_blocks_mean(series: &Series, phases: &[(f64, String)], seconds: f64) -> Option<f64> {
    let ends = phases.iter().skip(1).map(|(begins, _)| *begins).chain([seconds]);
    let spans = phases.iter().map(|(begins, _)| *begins).zip(ends);
    let (from, to) = spans.max_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)))?;
    let column = series.columns.get("free_blocks")?;
    let within = series.seconds.iter().zip(column);
    let within = within.filter(|(at, _)| (from..=to).contains(*at));
    let blocks: Vec<f64> = within.filter_map(|(_, blocks)| *blocks).collect();
    (!blocks.is_empty()).then(|| blocks.iter().sum::<f64>() / blocks.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[Option<f64>]) -> Series {
        Series {
            seconds: (0..values.len()).map(|i| i as f64).collect(),
            columns: BTreeMap::from([(name.to_string(), values.to_vec())]),
        }
    }

    #[test]
    fn the_settled_rate_is_that_of_the_last_third() {
        let rates = [1.0, 1.0, 1.0, 1.0, 7.0, 9.0].map(Some);
        assert_eq!(settled(&series("ops_per_s", &rates)), Some(8.0));
        assert_eq!(settled(&series("ops_per_s", &[Some(4.0), None])), Some(4.0));
        assert_eq!(settled(&series("ops_per_s", &[])), None);
        assert_eq!(settled(&series("rss_bytes", &rates)), None);
    }

    #[test]
    fn the_mean_of_free_blocks_is_that_of_the_longest_phase() {
        let free = series("free_blocks", &[Some(100.0), Some(8.0), None, Some(4.0), Some(50.0)]);
        let phases = [(0.0, "fill"), (0.9, "run"), (3.1, "check")].map(|(at, name)| (at, name.to_string()));
        assert_eq!(free_blocks_mean(&free, &phases, 4.0), Some(6.0));
        assert_eq!(free_blocks_mean(&free, &phases[2..], 3.5), None, "no sample in it");
        assert_eq!(free_blocks_mean(&free, &[], 4.0), None);
        assert_eq!(free_blocks_mean(&series("rss_bytes", &[Some(1.0)]), &phases, 4.0), None);
    }

    #[test]
    fn the_most_memory_and_the_last_free_blocks_are_kept() {
        let rss = at_most(&series("rss_bytes", &[Some(3.0), None, Some(9.0), Some(6.0)]));
        let expected = [("peak_rss_bytes".to_string(), 9.0), ("mean_rss_bytes".to_string(), 6.0)];
        assert_eq!(rss, BTreeMap::from(expected));
        let taken = at_most(&series("taken_bytes", &[Some(4.0), None, Some(8.0)]));
        let expected = [
            ("peak_taken_bytes".to_string(), 8.0),
            ("mean_taken_bytes".to_string(), 6.0),
        ];
        assert_eq!(taken, BTreeMap::from(expected));
        let free = at_most(&series("free_blocks", &[Some(3.0), Some(2.0), None]));
        assert_eq!(free, BTreeMap::from([("free_blocks".to_string(), 2.0)]));
    }
}
