//! `mega sim accuracy`: workloads live and simulated, and how far apart they are.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use mega_core::units::Bytes;
use mega_lab::calibrate::Reach;
use mega_lab::report::folder::{self, Folder};
use mega_lab::result::{About, Case, Record, Run};
use mega_lab::simulated::accuracy;
use mega_lab::simulated::figures::{self, Parts};
use mega_lab::simulated::parallel::{self, Told};
use mega_linux::proc::{meminfo, ProcRoot};
use mega_sim::cost::Costs;
use mega_sim::scenario::{CostsOf, MachineSpec, Scenario, Silent};

use super::lines::Lines;
use super::{calibrate, input};
use crate::args::SimAccuracyArgs;
use crate::bench::{self, command_line, stop, Asked};
use mega_cli::exit::Failure;

/// Measures, simulates, compares.
pub fn run(args: &SimAccuracyArgs) -> Result<()> {
    let half = args.half();
    if let Some(other) = args
        .workloads
        .iter()
        .find(|asked| half.workloads().all(|name| name != **asked))
    {
        let text = match args.held_out {
            true => format!("{other} is not held out: leave out --held-out"),
            false => format!("{other} is held out: give --held-out"),
        };
        return Err(Failure::usage(text));
    }
    let memory = meminfo::read(&ProcRoot::default()).context("cannot read how much memory there is")?;
    let memory = memory
        .total_bytes
        .context("/proc/meminfo does not say how much memory there is")?;
    let (runs, costs, tlb) = match &args.kept {
        Some(folder) => kept(args, folder)?,
        None => measured(args)?,
    };
    let costs_json = costs.to_json() + "\n";
    let machine = MachineSpec {
        memory: Bytes(memory),
        costs: CostsOf::Values(Box::new(costs)),
        tlb: Some(tlb.clone()),
        ..MachineSpec::default()
    };
    let workloads: Vec<String> = runs.live.cases.iter().map(|case| case.name.clone()).collect();
    let simulated = stop::at_once(|| simulated(args, &workloads, &machine))?;
    let accuracy = accuracy::compare(half, &runs.live, &runs.counted, &simulated);
    let folder = Folder::create(&args.output, NAME, super::now_unix_s())?;
    let (json, table) = (folder.path().join("accuracy.json"), folder.path().join("accuracy.md"));
    std::fs::write(&json, serde_json::to_string_pretty(&accuracy)?)
        .and_then(|()| std::fs::write(&table, accuracy.text()))
        .and_then(|()| std::fs::write(folder.path().join(COSTS), costs_json))
        .and_then(|()| std::fs::write(folder.path().join(TLB), tlb + "\n"))
        .with_context(|| format!("cannot write to {}", folder.path().display()))?;
    if let Some(folder) = &args.keep {
        let parts = [&runs.live, &runs.counted, &simulated];
        for (part, record) in accuracy::PARTS.into_iter().zip(parts) {
            folder::keep(folder, &format!("{}-{part}", half.name()), &accuracy::kept(record))?;
        }
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&accuracy)?)?;
    } else {
        writeln!(out, "{}\nkept as {}", accuracy.text(), table.display())?;
    }
    Ok(())
}

/// The folders of the live runs, and the files of what was measured, beside the table.
const LIVE: &str = "accuracy-live";
const COUNTED: &str = "accuracy-faults";
const NAME: &str = "accuracy";
const COSTS: &str = "mega-costs.json";
const TLB: &str = "mega-tlb.txt";

/// The live runs.
struct Runs {
    /// For run times and memory.
    live: Record,
    /// For faults: counting them slows the programs.
    counted: Record,
}

fn about(name: &str, title: &str) -> About {
    About {
        name: name.to_string(),
        title: title.to_string(),
        question: "How far is the simulator from this machine?".to_string(),
        source: None,
        scale: None,
        differs: None,
    }
}

/// Runs the workloads here, and measures costs and TLB before, between and after.
fn measured(args: &SimAccuracyArgs) -> Result<(Runs, Costs, String)> {
    let mut measured = Measured::default();
    stop::at_once(|| measured.look(args))?;
    let run = |faults: bool, rounds: usize| -> Result<Record> {
        let about = match faults {
            true => about(COUNTED, "live, with faults counted"),
            false => about(LIVE, "live"),
        };
        let asked = Asked::of_plan(about, accuracy::plan(args.half(), &args.workloads, args.scale, faults));
        let ran = bench::run(&asked, &args.bench(), rounds)?;
        ran.whole()?;
        Ok(ran.record)
    };
    let counted = run(true, 1)?;
    stop::at_once(|| measured.look(args))?;
    let live = run(false, args.rounds)?;
    stop::at_once(|| measured.look(args))?;
    let (costs, tlb) = stop::at_once(|| measured.machine(args))?;
    Ok((Runs { live, counted }, costs, tlb))
}

/// What an earlier call ran and measured; costs and TLB as the command line has them, if it does.
fn kept(args: &SimAccuracyArgs, parent: &Path) -> Result<(Runs, Costs, String)> {
    let newest = |name: &str| {
        let newest = folder::newest(parent, name).with_context(|| parent.display().to_string())?;
        newest.with_context(|| format!("{}: no {name}", parent.display()))
    };
    let runs = Runs {
        live: folder::read(&newest(LIVE)?)?,
        counted: folder::read(&newest(COUNTED)?)?,
    };
    let workloads: Vec<String> = runs.live.cases.iter().map(|case| case.name.clone()).collect();
    let asked = accuracy::plan(args.half(), &workloads, args.scale, false);
    if asked.cases.len() != runs.live.cases.len() {
        let call = if args.held_out { "without" } else { "with" };
        let text = format!("ran {}: call it {call} --held-out", workloads.join(", "));
        return Err(Failure::usage(text));
    }
    for (case, asked) in runs.live.cases.iter().zip(&asked.cases) {
        let here = asked.program.describe();
        if case.program != here {
            let text = format!("ran `{}`, here it is `{here}`: give the --scale of then", case.program);
            return Err(Failure::usage(text));
        }
    }
    let costs = match &args.costs {
        Some(path) => input::costs(path)?,
        None => input::costs(&newest(NAME)?.join(COSTS))?,
    };
    let tlb = match &args.tlb {
        Some(text) => text.clone(),
        None => input::read(&newest(NAME)?.join(TLB))?.trim().to_string(),
    };
    Ok((runs, costs, tlb))
}

/// What this machine took, each time that it was asked: it is this machine that the simulated one is held against, and a virtual one is not the same
/// in every half hour.
#[derive(Default)]
struct Measured {
    costs: Vec<Costs>,
    chases: Vec<Vec<Reach>>,
}

impl Measured {
    /// Measures what the command line does not give.
    fn look(&mut self, args: &SimAccuracyArgs) -> Result<()> {
        let mut lines = Lines::new(args.quiet);
        if args.costs.is_none() {
            self.costs.push(calibrate::measure(&mut lines)?.costs);
        }
        if args.tlb.is_none() {
            self.chases.push(calibrate::chase(&mut lines)?);
        }
        Ok(())
    }

    /// Costs and TLB, as given or by the medians.
    fn machine(&self, args: &SimAccuracyArgs) -> Result<(Costs, String)> {
        let costs = match &args.costs {
            Some(path) => input::costs(path)?,
            None => Costs::median(&self.costs).context("no costs were measured")?,
        };
        let tlb = match &args.tlb {
            Some(text) => text.clone(),
            None => calibrate::fitted(&Reach::median(&self.chases), &mut Lines::new(args.quiet))?.text,
        };
        Ok((costs, tlb))
    }
}

/// The workload's name.
fn placed_name(scenario: &Scenario) -> String {
    let placed = &scenario.programs[0];
    placed.name.clone().unwrap_or_else(|| placed.run.name().to_string())
}

/// The simulated runs.
fn simulated(args: &SimAccuracyArgs, workloads: &[String], machine: &MachineSpec) -> Result<Record> {
    let scenarios = accuracy::scenarios(args.half(), workloads, args.scale, machine, args.seed);
    let first = scenarios
        .first()
        .and_then(|of| of.first())
        .context("no workloads to compare")?;
    let jobs: Vec<(usize, usize, &Scenario)> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(case, of)| of.iter().enumerate().map(move |(variant, s)| (case, variant, s)))
        .collect();
    let mut lines = Lines::new(args.quiet);
    let work = |n: usize| -> Result<Run, String> {
        let (case, variant, scenario) = jobs[n];
        let outcome = scenario.run(&mut Silent).map_err(|e| e.to_string())?;
        Ok(figures::run_of(&outcome, case, variant, 0))
    };
    let mut runs = Vec::with_capacity(jobs.len());
    let told = |told: Told<Result<Run, String>>| -> Result<()> {
        match told {
            Told::Begins(n) => {
                let (_, _, scenario) = jobs[n];
                lines.now(&format!(
                    "simulating [{}/{}] {}, {}",
                    n + 1,
                    jobs.len(),
                    placed_name(scenario),
                    scenario.system
                ));
            }
            Told::Ended(_, result) => runs.push(result.and_then(|run| run).map_err(anyhow::Error::msg)?),
        }
        Ok(())
    };
    parallel::each(
        0..jobs.len(),
        parallel::all_threads(),
        &AtomicBool::new(false),
        work,
        told,
    )?;
    lines.clear();
    let case = |of: &Vec<Scenario>| Case {
        name: placed_name(&of[0]),
        program: "as live".to_string(),
        condition: figures::condition(of[0].fragment),
    };
    let programs: Vec<&str> = scenarios.iter().map(|of| of[0].programs[0].run.name()).collect();
    let mut record = figures::record(Parts {
        about: about("accuracy-simulated", "simulated"),
        machine: figures::machine(&first.machine),
        cases: scenarios.iter().map(case).collect(),
        variants: scenarios[0].iter().map(|s| figures::variant(&s.system)).collect(),
        runs,
        published: Vec::new(),
        main: figures::main_metrics(&programs),
        rounds: 1,
        seed: args.seed,
        command: command_line(),
    });
    record.settings.commit = super::commit();
    Ok(record)
}
