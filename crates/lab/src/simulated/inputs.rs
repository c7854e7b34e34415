//! Published figures that are inputs of the model, or follow from one: that they come out shows nothing, so neither orders nor magnitudes
//! count them. Where a comparison has such a figure on either side it is not counted.

/// A published figure that counts as neither result nor miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The experiment.
    pub experiment: &'static str,
    /// The metric; empty: all.
    pub metric: &'static str,
    /// The system, by the paper's name; empty: all.
    pub system: &'static str,
    /// What it is put in for, or follows from.
    pub why: &'static str,
}

const FAULT: &str = "the cost of a fault that maps a base page, or a huge page";
const LITTLE: &str =
    "1,280 requests in flight were chosen so that rate and mean latency agree: the mean follows from the rate";

const fn input(experiment: &'static str, metric: &'static str, system: &'static str, why: &'static str) -> Input {
    Input {
        experiment,
        metric,
        system,
        why,
    }
}

/// All of them.
pub const INPUTS: &[Input] = &[
    input("mega-table2", "fault_mean_ns", "Linux 4.16, base pages", FAULT),
    input("mega-table2", "fault_p99_ns", "Linux 4.16, THP", FAULT),
    input("mega-table3", "fault_mean_ns", "Linux 4.16, base pages", FAULT),
    input("mega-table3", "fault_p99_ns", "Linux 4.16, THP", FAULT),
    input("lrbhps-table2", "request_mean_ns", "", LITTLE),
    input("lrbhps-table3", "request_mean_ns", "", LITTLE),
    input("ingens-latency", "", "", FAULT),
    input(
        "allocation-latency",
        "alloc_mean_ns",
        "Linux, after compact_memory",
        "the cost of allocating a free block",
    ),
];

/// Whether this published figure is one.
#[must_use]
pub fn is_input(experiment: &str, metric: &str, system: &str) -> bool {
    let any_or = |known: &str, one: &str| known.is_empty() || known == one;
    INPUTS
        .iter()
        .any(|input| input.experiment == experiment && any_or(input.metric, metric) && any_or(input.system, system))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::find;

    #[test]
    fn each_input_is_a_published_figure_and_its_comparisons_are_not_counted() {
        for input in INPUTS {
            let experiment = find(input.experiment).expect("an experiment");
            let published = (experiment.setup)(0.01).published;
            let fits = published.iter().any(|one| {
                is_input(input.experiment, &one.metric, &one.system) && one.metric.starts_with(input.metric)
            });
            assert!(fits, "{input:?}");
        }
        assert!(!is_input("mega-table2", "fault_mean_ns", "Linux 4.16, THP"));
        assert!(is_input("lrbhps-table3", "request_mean_ns", "anybody"));
    }
}
