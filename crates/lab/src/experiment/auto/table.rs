//! docs/auto.md, from records alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::gates::{gates, Gate, Seen, ROUNDS};
use super::{reasons, VARIANTS};
use crate::result::Record;

/// The conditions in their order, with what they are.
const CONDITIONS: [(&str, &str); 4] = [
    ("unfragmented", "Unfragmented"),
    ("fragmented", "Fragmented: 90 % of free memory unusable for huge pages"),
    ("limit", "In a control group with 1.1 of base pages' peak"),
    ("busy", "Every processor busy"),
];

/// The condition of the picture.
const PICTURED: &str = "unfragmented";

/// What is meant by memory taken.
pub const TAKEN: &str = "\
Memory taken is what the control group of a run counts: anonymous and shared memory, each page once, and huge pages
whole of which a part is unmapped. Records of commits before 182305ef80e1 have resident memory and what is kept of such
huge pages, what processes share once for each of them; some have resident memory only.
";

/// When managers beside agents begin (ADR 0061).
const BEGUN: &str = "In records of commits before 2ed3bddbd377 the manager of `auto` was there before the program did \
                     anything;\nsince then it begins as that of `mega run` does (ADR 0061).\n";

/// The whole document.
#[must_use]
pub fn document(records: &[Record]) -> String {
    let seen = seen(records);
    let mut out = String::from(
        "# auto, measured\n\nWhat policy `auto` and its agent do to programs, against base pages and stock THP in the same run. \
         Made by\n`make results` from the records in `results/auto`; do not edit. Variants run in alternation; ratios are of \
         medians\nwithin a record. `auto` is what `mega run` does, `auto:agent` the agent alone, `auto:manager` what \
         `mega manage` does.\n",
    );
    out += TAKEN;
    out += BEGUN;
    out += "A mean is over the whole run: who fills sooner has more of it.\n\n";
    origins(&mut out, records);
    out += &smaller(records);
    let all = gates(&seen);
    out += "## Gates\n\n| gate | measured | goal | verdict |\n| --- | --- | --- | --- |\n";
    for gate in &all {
        let figure = gate.figure.map_or("–".to_string(), |figure| format!("{figure:.2}"));
        let worst = gate.worst.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let sign = if gate.at_least { "≥" } else { "≤" };
        let mut behind = String::new();
        if gate.figure.is_some() && gate.rounds < ROUNDS {
            let _ = write!(behind, ", {} rounds", gate.rounds);
        }
        if gate.doubtful > 0 {
            let _ = write!(behind, ", {} runs doubtful", gate.doubtful);
        }
        let _ = writeln!(
            out,
            "| {} | {figure}{worst} | {sign} {} | {}{behind} |",
            gate.what,
            gate.goal,
            gate.verdict()
        );
    }
    let is_missed = |gate: &&Gate| gate.reached() == Some(false);
    let missed: Vec<&str> = all
        .iter()
        .filter(is_missed)
        .filter_map(|gate| reasons::of(&gate.what))
        .collect();
    if !missed.is_empty() {
        let _ = writeln!(out, "\n### What is missed, and why\n\n{}", missed.join("\n"));
    }
    for (condition, words) in CONDITIONS {
        let there: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.condition() == condition).collect();
        if there.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {words}\n\n");
        if condition == PICTURED {
            out += "![speed and memory of each program, relative to base pages](auto.svg)\n\n";
        }
        speed_and_memory(&mut out, &there, &VARIANTS[1..]);
    }
    out
}

/// docs/auto.svg: the programs on an unfragmented machine.
#[must_use]
pub fn picture(records: &[Record]) -> String {
    let seen = seen(records);
    let there: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.condition() == PICTURED).collect();
    super::picture::picture(&there, &VARIANTS[1..])
}

/// All cases of all records.
pub(in crate::experiment) fn seen(records: &[Record]) -> Vec<Seen<'_>> {
    records
        .iter()
        .flat_map(|record| (0..record.cases.len()).map(move |case| Seen { record, case }))
        .collect()
}

/// Two tables, relative to base pages.
pub(in crate::experiment) fn speed_and_memory(out: &mut String, seen: &[&Seen<'_>], variants: &[&str]) {
    *out += "Speed relative to base pages, by each program's first figure:\n\n";
    rows(out, seen, variants, |seen, variant| seen.relative(variant, "base"));
    *out += "\nMean memory taken relative to base pages:\n\n";
    rows(out, seen, variants, |seen, variant| {
        let metric = seen.memory("mean");
        Some(seen.median(variant, &metric)? / seen.median("base", &metric)?)
    });
}

fn rows(out: &mut String, seen: &[&Seen<'_>], variants: &[&str], figure: impl Fn(&Seen<'_>, &str) -> Option<f64>) {
    let is_there = |variant: &&&str| seen.iter().any(|seen| figure(seen, variant).is_some());
    let variants: Vec<&str> = variants.iter().filter(is_there).copied().collect();
    let _ = writeln!(out, "| program | {} |", variants.join(" | "));
    let _ = writeln!(out, "| --- |{}", " --- |".repeat(variants.len()));
    for seen in seen {
        let cells: Vec<String> = variants
            .iter()
            .map(|variant| figure(seen, variant).map_or("–".to_string(), |ratio| format!("{ratio:.2}")))
            .collect();
        let _ = writeln!(out, "| {} | {} |", seen.case_name(), cells.join(" | "));
    }
}

/// Where and how the records were made, each said once.
pub(in crate::experiment) fn origins(out: &mut String, records: &[Record]) {
    let mut origins: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for record in records {
        let (machine, settings) = (&record.machine, &record.settings);
        let origin = format!(
            "- {} processors, {:.0} GB, {}, Linux {}{}; mega {}, seed {}, {} round{}; commits",
            machine.processors,
            machine.memory_bytes as f64 / 1e9,
            machine.processor,
            machine.kernel,
            if machine.virtual_machine { ", virtual" } else { "" },
            settings.version,
            settings.seed,
            settings.rounds,
            if settings.rounds == 1 { "" } else { "s" },
        );
        let commit = settings.commit.as_deref().unwrap_or("unknown");
        origins.entry(origin).or_default().insert(commit.to_string());
    }
    for (origin, commits) in origins {
        *out += &origin;
        let commits: Vec<_> = commits.into_iter().collect();
        for line in commits.chunks(COMMITS) {
            *out += &format!("\n  {}", line.join(", "));
        }
        *out += "\n";
    }
    *out += "\n";
}

/// Programs that ran at less than their default size.
pub(in crate::experiment) fn smaller(records: &[Record]) -> String {
    let parts: Vec<String> = records
        .iter()
        .filter_map(|record| {
            let value_of = |option| {
                record
                    .settings
                    .command
                    .split(' ')
                    .skip_while(move |word| *word != option)
                    .nth(1)
            };
            Some(format!("{} {}", value_of("--only")?, value_of("--scale")?))
        })
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("Smaller than by default (`--scale`): {}.\n\n", parts.join(", ")),
    }
}

/// Commits on a line.
const COMMITS: usize = 8;

#[cfg(test)]
pub(in crate::experiment) mod tests {
    use super::*;
    use crate::report::synthetic::{self, Options};
    use crate::result::{Better, Metric, Outcome, Run, Unit};

    #[test]
    fn what_ran_smaller_is_named() {
        let mut records = [touch("unfragmented", &[]), touch("unfragmented", &[])];
        records[0].settings.command = "mega bench auto --only touch --rounds 6".to_string();
        assert_eq!(smaller(&records), "");
        records[1].settings.command = "mega bench auto --only zstd --scale 0.25 -q".to_string();
        assert_eq!(smaller(&records), "Smaller than by default (`--scale`): zstd 0.25.\n\n");
    }

    /// A record of `touch` with these times (ns) of each variant, in six rounds.
    pub(in crate::experiment) fn touch(condition: &str, times: &[(&str, f64)]) -> Record {
        let mut record = synthetic::record(&Options::default());
        let (template, info) = (record.runs[0].clone(), record.variants[0].clone());
        record.cases.truncate(1);
        record.cases[0].name = "touch".into();
        record.cases[0].condition = condition.into();
        let metric = Metric::new("first_touch_ns", "time to fill", Unit::Ns, Better::Lower);
        record.metrics = vec![Metric { main: true, ..metric }];
        record.variants = times
            .iter()
            .map(|(name, _)| {
                let name = (*name).to_string();
                crate::result::VariantInfo { name, ..info.clone() }
            })
            .collect();
        record.runs.clear();
        for (variant, (_, ns)) in times.iter().enumerate() {
            for round in 0..6 {
                record.runs.push(Run {
                    case: 0,
                    variant,
                    round,
                    outcome: Outcome::Done,
                    values: [
                        ("first_touch_ns".to_string(), *ns),
                        ("mean_rss_bytes".to_string(), 100.0),
                        ("peak_rss_bytes".to_string(), ns * 10.0),
                    ]
                    .into(),
                    noise: Default::default(),
                    ..template.clone()
                });
            }
        }
        record
    }

    fn gate(records: &[Record], words: &str) -> Gate {
        let seen: Vec<Seen<'_>> = records.iter().map(|record| Seen { record, case: 0 }).collect();
        let all = gates(&seen);
        let found = all.into_iter().find(|gate| gate.what.contains(words));
        found.unwrap_or_else(|| panic!("no gate {words}"))
    }

    #[test]
    fn a_machine_is_said_once_with_its_commits() {
        let of = |commit: &str, kernel: &str| {
            let mut record = touch("unfragmented", &[("base", 1.0)]);
            record.settings.commit = Some(commit.into());
            record.settings.rounds = 1;
            record.machine.kernel = kernel.into();
            record
        };
        let mut out = String::new();
        origins(
            &mut out,
            &[of("b", "6.18"), of("a", "6.18"), of("b", "6.18"), of("c", "6.1")],
        );
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!((lines[1], lines[3], lines.len()), ("  c", "  a, b", 5), "{out}");
        assert!(
            lines[2].contains("Linux 6.18") && lines[2].ends_with("1 round; commits"),
            "{out}"
        );
    }

    #[test]
    fn a_gate_is_reached_missed_or_not_measured_and_few_rounds_or_doubt_are_no_verdict() {
        let times = [("base", 20.0), ("thp-always", 4.0), ("auto", 2.0)];
        let mut records = [touch("unfragmented", &times)];
        let spare = gate(&records, "THP, with a spare processor");
        assert_eq!((spare.figure, spare.verdict()), (Some(0.5), "reached"));
        let better = gate(&records, "unfragmented: each program");
        assert_eq!((better.figure, better.verdict()), (Some(2.0), "reached"));
        assert_eq!(gate(&records, "memory taken, mean").verdict(), "reached");
        assert_eq!(gate(&records, "busy: each program").verdict(), "not measured");
        let slower = [touch(
            "fragmented=90%",
            &[("base", 2.0), ("thp-always", 4.0), ("auto", 3.0)],
        )];
        let missed = gate(&slower, "fragmented: first touch");
        assert_eq!((missed.figure, missed.verdict()), (Some(1.5), "missed"));
        records[0].runs[0].noise.doubtful.push("the machine was busy".into());
        assert_eq!(gate(&records, "unfragmented: each program").verdict(), "no verdict");
        records[0].runs.remove(0);
        assert_eq!(gate(&records, "unfragmented: each program").rounds, 5);
    }

    #[test]
    fn the_document_has_a_row_for_each_program_and_leaves_out_what_was_not_run() {
        let times = [("base", 20.0), ("thp-always", 4.0), ("auto", 2.0)];
        let text = document(&[touch("unfragmented", &times), touch("limit=2G", &times)]);
        assert!(
            text.contains("| program | thp-always | auto |\n") && text.contains("| touch | 5.00 | 10.00 |\n"),
            "{text}"
        );
        assert!(text.contains("In a control group") && !text.contains("Every processor busy\n"));
        assert!(
            text.contains("with a spare processor | 0.50 | ≤ 0.7 | reached |"),
            "{text}"
        );
    }
}
