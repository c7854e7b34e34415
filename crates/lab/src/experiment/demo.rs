//! What the demonstration's page answers, from the run's own figures: why not just switch THP on, and why not off?

use super::auto::gates::Seen;
use crate::result::Record;

/// Both answers, as two short paragraphs; `None` where a figure was not measured.
#[must_use]
pub fn answers(record: &Record) -> Option<String> {
    let seen = Seen { record, case: 0 };
    let over = |variant: &str, to: &str, metric: &str| {
        let ratio = seen.median(variant, metric)? / seen.median(to, metric)?;
        ratio.is_finite().then_some(ratio)
    };
    let speed = |variant| over(variant, "base", "settled_per_s");
    let memory = |variant| over(variant, "base", "peak_rss_bytes");
    let tail = |variant| over(variant, "base", "fault_p999_ns");
    let mut on = format!(
        "Why not just switch THP on? It serves {:.2} times as fast as base pages and takes {:.2} times their memory at its peak; auto serves \
         {:.2} times as fast in {:.2} times their memory.",
        speed("thp-always")?,
        memory("thp-always")?,
        speed("auto")?,
        memory("auto")?,
    );
    if let (Some(thp), Some(auto)) = (tail("thp-always"), tail("auto")) {
        on +=
            &format!(" One page fault in a thousand takes {thp:.1} times as long with THP, {auto:.1} times with auto.");
    }
    let filled = over("base", "auto", "first_touch_ns").map_or(String::new(), |ratio| {
        format!(", and fills memory in {ratio:.2} times auto's time")
    });
    let off = format!(
        "Why not off? On base pages the same store serves {:.2} times as fast as with auto{filled}.",
        over("base", "auto", "settled_per_s")?,
    );
    Some(format!("{on} {off}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};

    #[test]
    fn both_questions_are_answered_by_the_figures_and_not_at_all_without_them() {
        let mut record = synthetic::record(&Options::default());
        record.cases.truncate(1);
        record.runs.retain(|run| run.case == 0);
        let names = ["base", "thp-always", "auto"];
        record.variants.truncate(names.len());
        record.runs.retain(|run| run.variant < names.len());
        for (variant, name) in record.variants.iter_mut().zip(names) {
            variant.name = name.into();
        }
        assert_eq!(answers(&record).filter(|text| text.contains("NaN")), None);
        for run in &mut record.runs {
            let [speed, memory] = [[1.0, 2.0, 1.6], [100.0, 300.0, 101.0]].map(|of| of[run.variant]);
            run.values = [("settled_per_s", speed), ("peak_rss_bytes", memory)]
                .map(|(name, value)| (name.to_string(), value))
                .into();
            run.outcome = crate::result::Outcome::Done;
        }
        let text = answers(&record).unwrap();
        assert!(
            text.contains("2.00 times as fast as base pages and takes 3.00 times"),
            "{text}"
        );
        assert!(text.contains("auto serves 1.60 times as fast in 1.01 times"), "{text}");
        assert!(
            text.contains("Why not off? On base pages the same store serves 0.62 times"),
            "{text}"
        );
        record.runs.retain(|run| run.variant != 2);
        assert_eq!(answers(&record), None);
    }
}
