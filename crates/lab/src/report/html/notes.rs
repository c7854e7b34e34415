//! What a reader has to know beside the figures, each thing said once: doubt, too few rounds, the A/A comparison, how it was judged.

use std::fmt::Write;

use super::put;
use crate::report::compared::{fewest, too_few, Against, Comparison};
use crate::report::plot::ratio;
use crate::report::terminal::troubles;
use crate::result::{Better, Outcome, Record};
use crate::stats::exclusion::rule;
use mega_cli::draw::svg::escape;

/// What limits the verdict, right below it.
pub fn notes(out: &mut String, record: &Record, seen: &Comparison) {
    let mut notes = Vec::new();
    if let Some(why) = &record.ended_early {
        notes.push(format!("Ended early: {why}. The figures are from the runs until then."));
    }
    let metrics = seen.cases.iter().flat_map(|case| &case.metrics);
    let no_verdict = seen.verdict.starts_with("No verdict");
    if let Some(rounds) = fewest(metrics).filter(|_| !no_verdict) {
        notes.push(format!(
            "For some comparisons {}.",
            too_few(rounds, seen.tests.comparisons)
        ));
    }
    let done = record.runs.iter().filter(|run| run.outcome == Outcome::Done);
    let (done, doubtful) = done.fold((0, 0), |(done, doubtful), run| {
        (done + 1, doubtful + usize::from(!run.noise.doubtful.is_empty()))
    });
    if doubtful > 0 {
        notes.push(format!(
            "* {doubtful} of {done} runs are doubtful: the machine was noisy. They are kept; the reasons are below each table, and the \
             ratios without them are folded at the end."
        ));
    }
    notes.extend(again(seen));
    if !notes.is_empty() {
        put!(out, "<div class=\"note\">");
        notes.iter().for_each(|note| put!(out, "<p>{}</p>", escape(note)));
        put!(out, "</div>");
    }
}

/// The A/A comparison, if there is one: what the measurement does when nothing differs.
fn again(seen: &Comparison) -> Option<String> {
    let mut of_metrics: Vec<String> = Vec::new();
    let mut name = None;
    for case in &seen.cases {
        for metric in case.metrics.iter().filter(|metric| metric.better != Better::Neither) {
            let again = metric
                .variants
                .iter()
                .find_map(|cell| Some((cell, a_a(cell.against_first.as_ref()?)?)));
            let Some((cell, text)) = again else { continue };
            name.get_or_insert(&cell.variant);
            let place = if seen.cases.len() > 1 {
                format!(" in {}", case.case)
            } else {
                String::new()
            };
            of_metrics.push(format!("{}{place} {text}", metric.label));
        }
    }
    let first = seen.base.as_deref().unwrap_or("the first variant");
    Some(format!(
        "A/A: {first} was run once more in each round, as {}. Nothing differs there but noise: {}.",
        name?,
        of_metrics.join("; ")
    ))
}

/// The ratio of an A/A comparison with its interval.
fn a_a(against: &Against) -> Option<String> {
    let times = against.paired.ratio.filter(|_| against.a_a)?;
    let i = against.paired.ratio_interval;
    let interval = i.map_or(String::new(), |i| format!(" ({} to {})", ratio(i.low), ratio(i.high)));
    Some(format!("{}{interval}", ratio(times)))
}

/// Failed, skipped and doubtful runs of a case, a line each, folded.
pub fn not_counted(out: &mut String, record: &Record, case: usize) {
    let troubles = troubles(record, case);
    if troubles.is_empty() {
        return;
    }
    put!(
        out,
        "<details class=\"note\"><summary>Doubtful, failed and skipped runs</summary>"
    );
    for (head, text) in troubles {
        put!(out, "<p><strong>{}</strong>{}</p>", escape(&head), escape(&text));
    }
    put!(out, "</details>");
}

/// How the figures were judged, by paragraphs.
pub fn method(record: &Record, seen: &Comparison) -> Vec<String> {
    let simulated = "The machine is simulated: times are simulated, and the same seed gives the same figures.";
    if record.is_exact() {
        return vec![format!(
            "{simulated} Ratios are to the first variant; no test applies to single exact runs."
        )];
    }
    let rounds = match (record.settings.rounds, record.machine.is_simulated()) {
        (rounds, true) => format!("{rounds} rounds with a seed each. {simulated}"),
        (rounds, false) => format!(
            "{rounds} rounds in alternation; the order of the variants is a Williams square: none is always the first, and none always \
             behind the same other one."
        ),
    };
    let tests = &seen.tests;
    let mut all = vec![
        format!(
            "{rounds} Ratios are taken round by round to the first variant. An interval is the median's at 95 %, by percentile \
             bootstrap."
        ),
        format!(
            "Better and worse: Wilcoxon's signed-rank test on the logarithms of these ratios, exact, two-sided. The {} comparisons of \
             this page are one family, corrected by Holm's procedure: where nothing differs, a page has a false verdict once in twenty \
             times at most. It takes {} rounds until one of so many can be significant. Not significant does not mean equal.",
            tests.comparisons, tests.rounds_needed
        ),
        format!("{} {} (Rule {}, since {}.)", rule().excluded, rule().doubtful, rule().version, rule().frozen),
    ];
    all.extend(counts(seen));
    all.extend(without_doubtful(seen));
    if again(seen).is_none() {
        all.push("No A/A comparison was run (--aa runs the first variant once more in each round).".to_string());
    }
    all
}

/// Measured, excluded and kept rounds of all comparisons.
fn counts(seen: &Comparison) -> Option<String> {
    let mut all = [0; 3];
    for against in against(seen) {
        let counted = against.counted;
        for (sum, one) in all.iter_mut().zip([counted.measured, counted.excluded, counted.kept]) {
            *sum += one;
        }
    }
    let [measured, excluded, kept] = all;
    (measured > 0).then(|| {
        format!("Rounds, added up over the comparisons of the main figures: {measured} measured, {excluded} excluded, {kept} kept.")
    })
}

/// The ratios that doubtful rounds change by more than a hundredth.
fn without_doubtful(seen: &Comparison) -> Option<String> {
    let mut changed = Vec::new();
    let mut any = false;
    for case in &seen.cases {
        for metric in &case.metrics {
            for cell in &metric.variants {
                let Some(against) = &cell.against_first else { continue };
                let quiet = against
                    .without_doubtful
                    .and_then(|quiet| Some((quiet.rounds, quiet.ratio?)));
                let (Some((rounds, quiet)), Some(all)) = (quiet, against.paired.ratio) else {
                    continue;
                };
                any |= rounds < against.paired.rounds;
                if rounds < against.paired.rounds && (quiet / all - 1.0).abs() > 0.01 {
                    changed.push(format!(
                        "{}, {} under {}: {} of {rounds} rounds for {} of {}",
                        case.case,
                        metric.label,
                        cell.variant,
                        ratio(quiet),
                        ratio(all),
                        against.paired.rounds
                    ));
                }
            }
        }
    }
    match (any, changed.is_empty()) {
        (false, _) => None,
        (true, true) => Some("Without doubtful rounds no ratio changes by more than 1 %.".to_string()),
        (true, false) => Some(format!("Without doubtful rounds: {}.", changed.join("; "))),
    }
}

fn against(seen: &Comparison) -> impl Iterator<Item = &Against> {
    let metrics = seen.cases.iter().flat_map(|case| &case.metrics);
    metrics
        .flat_map(|metric| &metric.variants)
        .filter_map(|cell| cell.against_first.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use crate::report::synthetic::{self, Options};
    use crate::result::Record;

    fn record(rounds: usize, troubled: bool) -> Record {
        synthetic::record(&Options {
            rounds,
            troubled,
            ..Options::default()
        })
    }

    #[test]
    fn doubt_and_too_few_rounds_are_each_said_once() {
        let page = page(&record(3, true));
        assert_eq!(page.matches("too few").count(), 1, "{page}");
        assert_eq!(page.matches("runs are doubtful").count(), 1);
    }

    #[test]
    fn an_a_a_comparison_is_shown_and_its_absence_is_said() {
        let mut again = record(10, false);
        assert!(page(&again).contains("No A/A comparison was run"));
        again.variants[3].name = "base#again".into();
        let page = page(&again);
        assert!(page.contains("A/A: base was run once more in each round, as base#again."));
        assert!(page.contains("operations/s in redis-del-50 1.") && !page.contains("No A/A comparison"));
    }

    #[test]
    fn the_family_the_rule_and_the_three_counts_are_on_the_page() {
        let page = page(&record(8, true));
        assert!(page.contains("Holm&#39;s procedure") && page.contains("are one family"));
        assert!(page.contains("Nothing else excludes a round") && page.contains("(Rule 1, since "));
        assert!(page.contains(" measured, ") && page.contains(" excluded, ") && page.contains(" kept."));
        assert!(page.contains("Without doubtful rounds"));
    }
}
