//! `mega sim run`: a scenario, a workload or a trace under several systems side by side.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mega_core::control::Observer;
use mega_core::units::show_duration;
use mega_lab::report::folder::{self, Folder};
use mega_lab::report::scale::duration_text;
use mega_lab::result::{About, Case, Outcome, Run};
use mega_lab::simulated::figures::{self, Parts};
use mega_lab::simulated::parallel::{self, Told};
use mega_lab::simulated::sweep::axes::{parse_fragment, seeded};
use mega_sim::scenario::{CostsOf, Placed, Scenario, Silent, System};
use mega_sim::trace::ReplayOptions;

use super::input;
use super::lines::Lines;
use crate::args::{SimMachine, SimRunArgs};
use crate::bench::command_line;
use mega_cli::exit::Failure;
use mega_cli::journal::JournalFile;
use mega_core::journal::Line;

/// What is run where nothing is said.
const SYSTEMS: [&str; 3] = ["base", "thp-always", "mega"];

/// Time between two samples of what has no scenario that says it; in long runs there are fewer.
const EVERY: Duration = Duration::from_millis(100);

/// What was asked for.
struct Asked {
    /// Without system; the first round's seeds.
    scenario: Scenario,
    systems: Vec<System>,
    /// A short name.
    name: String,
    /// What runs, in words.
    program: String,
}

/// Runs it.
pub fn run(args: &SimRunArgs) -> Result<()> {
    let asked = asked(args)?;
    let jobs = asked.systems.len() * args.rounds;
    if args.journal.is_some() {
        let scans = asked.systems[0].scan_policy().is_some();
        if jobs != 1 || !scans {
            let why = "--journal is for one run: one --system that scans (mega, for example), and one round";
            return Err(Failure::usage(why));
        }
    }
    let began_unix_s = super::now_unix_s();
    let began = Instant::now();
    let mut lines = Lines::new(args.quiet);
    let runs = match &args.journal {
        Some(journal) => vec![journalled(&asked, args, journal)?],
        None => all(&asked, args, &mut lines)?,
    };
    let (about, case) = describe(&asked);
    let mut programs: Vec<&str> = asked.scenario.programs.iter().map(|p| p.run.name()).collect();
    if args.trace.is_some() {
        programs.push("replay");
    }
    let mut record = figures::record(Parts {
        about,
        machine: figures::machine(&asked.scenario.machine),
        cases: vec![case],
        variants: asked.systems.iter().map(figures::variant).collect(),
        runs,
        published: Vec::new(),
        main: figures::main_metrics(&programs),
        rounds: args.rounds,
        seed: asked.scenario.seed,
        command: command_line(),
    });
    record.settings.commit = super::commit();
    record.settings.began_unix_s = began_unix_s;
    record.settings.seconds = began.elapsed().as_secs_f64();
    let folder = Folder::create(&args.output, &asked.name, began_unix_s)?;
    folder.save(&record)?;
    let report = folder.save_report(&record)?;
    if let Some(to) = &args.keep {
        folder::keep(to, &asked.name, &record)?;
    }
    super::present(&record, &report, args.json)
}

fn asked(args: &SimRunArgs) -> Result<Asked> {
    let (mut scenario, name) = match (&args.scenario, &args.workload, &args.trace) {
        (Some(path), ..) => {
            let text = input::read(path)?;
            let scenario =
                Scenario::from_json(&text).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
            (scenario, stem(path))
        }
        (_, Some(workload), _) => {
            let scenario = Scenario {
                programs: vec![Placed::new(input::workload(workload, &args.set)?)],
                every: EVERY,
                ..Scenario::default()
            };
            (scenario, workload.clone())
        }
        (_, _, Some(trace)) => {
            let scenario = Scenario {
                every: EVERY,
                ..Scenario::default()
            };
            (scenario, stem(trace))
        }
        (None, None, None) => return Err(Failure::usage("what is to run? FILE.json, --workload or --trace")),
    };
    adjust(&mut scenario, args)?;
    let seeded_by_us = args.workload.is_some() && !args.set.iter().any(|pair| pair.starts_with("seed="));
    if let Some(seed) = args.seed {
        scenario.seed = seed;
        if seeded_by_us {
            scenario
                .programs
                .iter_mut()
                .for_each(|placed| placed.run = seeded(&placed.run, |_| seed));
        }
    }
    let checked = match args.trace {
        Some(_) => scenario.check_machine(),
        None => scenario.check(),
    };
    checked.map_err(Failure::usage)?;
    let systems: Vec<System> = match (args.system.is_empty(), &args.scenario) {
        (false, _) => parsed(args.system.iter().map(String::as_str))?,
        (true, Some(_)) => vec![scenario.system.clone()],
        (true, None) => parsed(SYSTEMS.into_iter())?,
    };
    if let Some(i) = (0..systems.len()).find(|i| systems[..*i].contains(&systems[*i])) {
        return Err(Failure::usage(format!("--system: '{}' is given twice", systems[i])));
    }
    // Once before it is run again and again: what is wrong with a trace's beginning is said at once.
    let program = match &args.trace {
        Some(trace) => {
            input::trace(trace, args.scans, replay(args))?;
            format!("replays {}", trace.display())
        }
        None => {
            let of = |placed: &Placed| figures::program(&placed.run);
            scenario.programs.iter().map(of).collect::<Vec<_>>().join("; ")
        }
    };
    Ok(Asked {
        scenario,
        systems,
        name,
        program,
    })
}

fn parsed<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<System>> {
    texts.map(|text| text.parse().map_err(Failure::usage)).collect()
}

/// A file's name as that of a folder; what a folder's name may not have is left out.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let plain = stem.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c));
    let name: String = plain.take(40).collect();
    match name.as_str() {
        "" | "-" => "scenario".to_string(),
        _ => name,
    }
}

/// The scenario as the command line wants it.
fn adjust(scenario: &mut Scenario, args: &SimRunArgs) -> Result<()> {
    machine(scenario, &args.machine)?;
    if let Some(interval) = args.interval {
        scenario.interval = interval;
    }
    if let Some(budget) = args.stall_budget {
        scenario.stall_budget = budget;
    }
    if let Some(budget) = args.cpu_budget {
        scenario.cpu_budget = budget;
    }
    if args.duration.is_some() {
        scenario.ends = args.duration;
    }
    scenario.full_journal = args.journal_full;
    Ok(())
}

fn machine(scenario: &mut Scenario, args: &SimMachine) -> Result<()> {
    let machine = &mut scenario.machine;
    if let Some(memory) = args.memory {
        machine.memory = memory;
    }
    if let Some(name) = &args.machine {
        machine.costs = CostsOf::Name(name.clone());
        machine.tlb = Some(name.clone());
    }
    if let Some(tlb) = &args.tlb {
        machine.tlb = (tlb != "none").then(|| tlb.clone());
    }
    if let Some(path) = &args.costs {
        machine.costs = CostsOf::Values(Box::new(input::costs(path)?));
    }
    if let Some(swap) = args.swap {
        machine.swap = swap;
    }
    if let Some(fragment) = &args.fragment {
        scenario.fragment = parse_fragment(fragment).map_err(|why| Failure::usage(format!("--fragment: {why}")))?;
    }
    Ok(())
}

/// How a trace is replayed.
fn replay(args: &SimRunArgs) -> ReplayOptions {
    ReplayOptions {
        process: args.process,
        keep_times: args.keep_times,
        ..ReplayOptions::default()
    }
}

/// A round's scenario under a system: each round has the next seeds.
fn scenario_of(asked: &Asked, variant: usize, round: usize) -> Scenario {
    let mut scenario = asked.scenario.clone();
    scenario.system = asked.systems[variant].clone();
    let round = round as u64;
    scenario.seed = scenario.seed.wrapping_add(round);
    for placed in &mut scenario.programs {
        placed.run = seeded(&placed.run, |seed| seed.wrapping_add(round));
    }
    scenario
}

/// One run. The error is in words, as it comes from another thread.
fn one(asked: &Asked, args: &SimRunArgs, variant: usize, round: usize, observer: &mut dyn Observer) -> Result<Run> {
    let scenario = scenario_of(asked, variant, round);
    let outcome = match &args.trace {
        None => scenario.run(observer)?,
        Some(trace) => {
            let program = input::trace(trace, args.scans, replay(args))?;
            scenario.run_programs(vec![(asked.name.clone(), program)], observer)?
        }
    };
    Ok(figures::run_of(&outcome, 0, variant, round))
}

/// All runs, as many at once as there are processors.
fn all(asked: &Asked, args: &SimRunArgs, lines: &mut Lines) -> Result<Vec<Run>> {
    let systems = asked.systems.len();
    let of = systems * args.rounds;
    let label = |job: usize| match args.rounds {
        1 => asked.systems[job % systems].to_string(),
        _ => format!("round {}, {}", job / systems + 1, asked.systems[job % systems]),
    };
    let threads = args.threads.unwrap_or_else(parallel::all_threads).min(of);
    lines.say(&format!("{}: {of} simulated runs, {threads} at once", asked.name));
    let work = |job: usize| one(asked, args, job % systems, job / systems, &mut Silent);
    let (mut runs, mut under_way) = (Vec::new(), Vec::new());
    let never = AtomicBool::new(false);
    let began = Instant::now();
    let result = parallel::each(0..of, threads, &never, work, |told| {
        match told {
            Told::Begins(job) => under_way.push(job),
            Told::Ended(job, Err(panic)) => {
                let scenario = scenario_of(asked, job % systems, job / systems).to_json();
                let scenario = scenario.split_whitespace().collect::<Vec<_>>().join(" ");
                anyhow::bail!("{}: the simulator failed: {panic}; it was {scenario}", label(job));
            }
            Told::Ended(job, Ok(run)) => {
                let run: Run = run.with_context(|| label(job))?;
                under_way.retain(|other| *other != job);
                let how = match &run.outcome {
                    Outcome::Done => format!("{} simulated", duration_text(run.seconds)),
                    Outcome::Failed(why) | Outcome::Skipped(why) => format!("FAILED: {why}"),
                };
                runs.push(run);
                let took = show_duration(began.elapsed());
                lines.say(&format!("[{}/{of}] {}: {how}, after {took}", runs.len(), label(job)));
            }
        }
        let now: Vec<String> = under_way.iter().map(|job| label(*job)).collect();
        if !now.is_empty() {
            lines.now(&format!("[{}/{of}] {}", runs.len(), now.join("; ")));
        }
        Ok(())
    });
    lines.clear();
    result.map(|()| runs)
}

/// Writes what happens to a journal. What could not be written is seen when it is flushed.
struct Journalled(JournalFile);

impl Observer for Journalled {
    fn event(&mut self, line: &Line) {
        let _ = self.0.write(line);
    }
}

/// The only run, told of in a journal.
fn journalled(asked: &Asked, args: &SimRunArgs, journal: &Path) -> Result<Run> {
    let mut journal = Journalled(JournalFile::create(journal, false)?);
    let run = one(asked, args, 0, 0, &mut journal)?;
    journal.0.flush()?;
    Ok(run)
}

fn describe(asked: &Asked) -> (About, Case) {
    let systems: Vec<String> = asked.systems.iter().map(ToString::to_string).collect();
    let condition = figures::condition(asked.scenario.fragment);
    let about = About {
        name: asked.name.clone(),
        title: format!("{}, simulated", asked.name),
        question: match systems.as_slice() {
            [one] => format!("What does {one} make of it?"),
            several => format!("What do {} make of it?", several.join(", ")),
        },
        source: None,
        scale: None,
        differs: None,
    };
    let case = Case {
        name: asked.name.clone(),
        program: asked.program.clone(),
        condition: format!("{} of memory, {condition}", asked.scenario.machine.memory),
    };
    (about, case)
}
