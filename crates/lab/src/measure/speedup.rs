//! Speed-up over the first variant: the figure of papers that publish speed-ups and no times.

use crate::result::{Better, Metric, Outcome, Record, Run, Unit};

/// Its name.
pub const NAME: &str = "speedup";

/// The metric.
#[must_use]
pub fn metric() -> Metric {
    Metric::new(NAME, "speed-up over the first variant", Unit::Ratio, Better::Higher)
}

/// The speed-up of a run against that of the first variant in the same round, by `measured`, the program's own main metric: the longer
/// time over the shorter, or the higher rate over the lower. None without both, or where neither direction is better.
#[must_use]
pub fn of(record: &Record, run: &Run, measured: &Metric) -> Option<f64> {
    let value = |run: &Run| {
        let value = run.values.get(&measured.name).copied()?;
        (run.outcome == Outcome::Done && value > 0.0).then_some(value)
    };
    let here = value(run)?;
    let is_first = |other: &&Run| (other.case, other.variant, other.round) == (run.case, 0, run.round);
    let first = match run.variant {
        0 => here,
        _ => value(record.runs.iter().find(is_first)?)?,
    };
    match measured.better {
        Better::Higher => Some(here / first),
        Better::Lower => Some(first / here),
        Better::Neither => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn a_time_that_is_halved_and_a_rate_that_doubles_are_both_a_speedup_of_two() {
        let mut record = synthetic::record(&Options::default());
        record.runs.truncate(1);
        let first = &mut record.runs[0];
        (first.case, first.variant, first.round, first.outcome) = (0, 0, 0, Outcome::Done);
        first.values = [("t".to_string(), 8.0), ("r".to_string(), 3.0)].into();
        let mut run = first.clone();
        run.variant = 2;
        run.values = [("t".to_string(), 4.0), ("r".to_string(), 6.0)].into();
        let metric = |name: &str, better| Metric::new(name, name, Unit::Ns, better);
        let speedup = |run: &Run, name, better| of(&record, run, &metric(name, better));
        assert_eq!(speedup(&run, "t", Better::Lower), Some(2.0));
        assert_eq!(speedup(&run, "r", Better::Higher), Some(2.0));
        assert_eq!(speedup(&record.runs[0], "t", Better::Lower), Some(1.0));
        assert_eq!(speedup(&run, "t", Better::Neither), None);
        assert_eq!(speedup(&run, "x", Better::Lower), None);
        run.round = 1;
        assert_eq!(speedup(&run, "t", Better::Lower), None, "no first one in this round");
        run.round = 0;
        run.outcome = Outcome::Failed("crashed".into());
        assert_eq!(speedup(&run, "t", Better::Lower), None);
    }
}
