//! Running an experiment: rounds of variants in alternation, each run prepared, watched and cleaned up in the same way.
//!
//! ```text
//! for each round, for each case, for each variant (each round begins with the next one):
//!    memory? ─► condition ─► hugetlb pages ─► prefaulted pool ─► settings ─► noise ─► program.run ─► noise ─► settings restored
//!                                                                              │
//!                                                                              └ watched: manager, memory sampled, phases
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mega_linux::agent::profiles::Profiles;
use mega_linux::knobs::Knobs;
use mega_linux::proc::{meminfo, ProcRoot};

use crate::measure::counters::{Counters, KernelThreads};
use crate::measure::faults::Watched;
use crate::measure::manager::Later;
use crate::measure::noise::{Before, Probe};
use crate::measure::recorder::Recorder;
use crate::measure::sampler::Sampler;
use crate::measure::{agent as inside, mosaic, speedup, summary};
use crate::prepare::condition::Condition;
use crate::prepare::hugetlb::{reserve, ReserveError};
use crate::prepare::pool::{keep_freed_memory_backed, PrefaultedPool, Takers};
use crate::program::{Figures, Launch, Own, ProgramError};
use crate::result::{Noise, Outcome, Record, Run, Series};
use crate::stats;
use crate::variant::{agent, Variant};

mod plan;
mod watcher;

pub use plan::{CasePlan, Options, Plan, Progress};
use watcher::Watcher;

/// Memory left to other processes.
const RESERVE_BYTES: u64 = 1 << 30;
/// Time limit of a run as a multiple of the expected time, plus a minute.
const PATIENCE: f64 = 4.0;
/// Time limit for restoring settings.
const RESTORE_TIME: Duration = Duration::from_secs(2);

/// Runs a plan. `record` has everything but its runs, which are added one by one.
pub fn run(plan: &Plan, options: &Options, record: &mut Record, mut tell: impl FnMut(&Progress<'_>)) {
    let began = Instant::now();
    let bench = Bench {
        plan,
        options,
        root: ProcRoot::default(),
        threads: KernelThreads::find(&ProcRoot::default()),
        profiles: folder_for_all(),
    };
    let mut probe = Probe::new(options.program_cpu);
    let of = plan.cases.len() * plan.variants.len() * options.rounds;
    let mut number = 0;
    for round in 0..options.rounds {
        for (c, case) in plan.cases.iter().enumerate() {
            let first_run = record.runs.len();
            for v in stats::turned(plan.variants.len(), round) {
                let variant = &plan.variants[v];
                if options.stop.load(Relaxed) {
                    record.ended_early = Some("stopped by the user".to_string());
                    record.settings.seconds = began.elapsed().as_secs_f64();
                    return;
                }
                tell(&Progress::Begins {
                    number,
                    of,
                    case: &case.name,
                    variant: variant.to_string(),
                    round,
                });
                let mut begun = began.elapsed().as_secs_f64();
                let mut run = bench.run_once(case, variant, &mut probe, &mut tell);
                // That was the run that the profile is of.
                if round == 0 && variant.is_known() && run.outcome == Outcome::Done {
                    begun = began.elapsed().as_secs_f64();
                    run = bench.run_once(case, variant, &mut probe, &mut tell);
                }
                run.case = c;
                run.variant = v;
                run.round = round;
                run.began_s = begun;
                run.seconds = began.elapsed().as_secs_f64() - begun;
                record.runs.push(run);
                record.settings.seconds = began.elapsed().as_secs_f64();
                number += 1;
                if record.runs.len() - first_run == plan.variants.len() && plan.wants_speedup() {
                    add_speedups(record, first_run, case);
                }
                tell(&Progress::Ended(record));
            }
        }
    }
    if options.stop.load(Relaxed)
        && record
            .runs
            .iter()
            .any(|run| run.outcome == Outcome::Failed("stopped".to_string()))
    {
        record.ended_early = Some("stopped by the user".to_string());
    }
}

/// Adds speed-ups over the first variant to the runs of a case in a round, from `first_run` on.
fn add_speedups(record: &mut Record, first_run: usize, case: &CasePlan) {
    let Some(measured) = case.program.metrics().into_iter().find(|metric| metric.main) else {
        return;
    };
    for at in first_run..record.runs.len() {
        let times = speedup::of(record, &record.runs[at], &measured);
        let values = &mut record.runs[at].values;
        values.extend(times.map(|times| (speedup::NAME.to_string(), times)));
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    options: &'a Options,
    root: ProcRoot,
    threads: KernelThreads,
    /// Of programs that ran before.
    profiles: std::io::Result<tempfile::TempDir>,
}

/// A folder for what programs of any user read.
fn folder_for_all() -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("mega-lab-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
}

fn empty_run() -> Run {
    Run {
        case: 0,
        variant: 0,
        round: 0,
        began_s: 0.0,
        seconds: 0.0,
        outcome: Outcome::Done,
        values: BTreeMap::new(),
        series: Series::default(),
        phases: Vec::new(),
        distributions: BTreeMap::new(),
        pictures: Vec::new(),
        noise: Noise::default(),
    }
}

impl Bench<'_> {
    fn run_once(
        &self,
        case: &CasePlan,
        variant: &Variant,
        probe: &mut Probe,
        tell: &mut dyn FnMut(&Progress<'_>),
    ) -> Run {
        let mut run = empty_run();
        if let Err(why) = self.can_run(case, variant) {
            run.outcome = Outcome::Skipped(why);
            return run;
        }
        match self.measured(case, variant, probe, tell, &mut run) {
            Ok(figures) => {
                run.values.extend(figures.values);
                run.distributions.extend(figures.distributions);
                run.pictures = figures.pictures;
            }
            Err(ProgramError::NotHere(why)) => run.outcome = Outcome::Skipped(why),
            Err(e) => run.outcome = Outcome::Failed(e.to_string()),
        }
        run
    }

    /// Whether program, kernel feature and memory are there.
    fn can_run(&self, case: &CasePlan, variant: &Variant) -> Result<(), String> {
        case.program.ready().map_err(|e| e.to_string())?;
        variant.supported(&self.root).map_err(|e| e.to_string())?;
        let mut needs = case.program.needs().memory_bytes;
        if variant.agent.is_some() {
            agent::library(&self.options.mega)?;
        }
        if let Some(mosaic) = &variant.mosaic {
            self.options.library.as_ref().map_err(Clone::clone)?;
            let pages = mosaic.pages(needs);
            let reserved = pages.iter().map(|(kind, pages)| kind.bytes() as u64 * pages).sum();
            needs = needs.max(reserved);
        }
        let needs = needs + RESERVE_BYTES;
        let available = meminfo::read(&self.root)
            .ok()
            .and_then(|m| m.available_bytes)
            .unwrap_or(0);
        if needs > available {
            let gb = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            return Err(format!(
                "needs {:.1} GB of memory including the reserve; {:.1} GB are available",
                gb(needs),
                gb(available)
            ));
        }
        Ok(())
    }

    /// The program's environment for an agent, which leaves its pages in the folder, or for a mosaic, which reports to this file.
    fn environment(
        &self,
        case: &CasePlan,
        variant: &Variant,
        needs_bytes: u64,
        folder: &Path,
        report: &Path,
    ) -> Result<Vec<(OsString, OsString)>, ProgramError> {
        let preloaded = std::env::var_os("LD_PRELOAD");
        if let Some(agent) = &variant.agent {
            let library = agent::library(&self.options.mega).map_err(ProgramError::NotHere)?;
            let profiles = match agent.is_known {
                true => Some(self.profiles_of(case, variant)?),
                false => None,
            };
            return Ok(agent.environment(&library, folder, profiles.as_deref(), preloaded.as_deref()));
        }
        let Some(mosaic) = &variant.mosaic else {
            return Ok(Vec::new());
        };
        let library = self.options.library.as_ref();
        let library = library.map_err(|why| ProgramError::NotHere(why.clone()))?;
        let made = mosaic.environment(needs_bytes, library, report, preloaded.as_deref());
        made.map_err(ProgramError::NotHere)
    }

    /// Of a case under a variant.
    fn profiles_of(&self, case: &CasePlan, variant: &Variant) -> Result<PathBuf, ProgramError> {
        let folder = self.profiles.as_ref().map_err(|error| ProgramError::System {
            doing: "cannot make a folder for profiles".into(),
            source: std::io::Error::from(error.kind()),
        })?;
        Ok(folder.path().join(format!("{}-{variant}", case.name).replace('/', "-")))
    }

    /// A pool for what the program takes and managers collapse, within free memory less the reserve.
    fn prefault(&self, bytes: u64) -> Result<PrefaultedPool, ProgramError> {
        let free = meminfo::read(&self.root).ok().and_then(|m| m.free_bytes).unwrap_or(0);
        let room = free.saturating_sub(RESERVE_BYTES);
        PrefaultedPool::start(
            PrefaultedPool::bytes_for(bytes).min(room),
            Takers {
                faults: self.options.program_cpu,
                collapses: self.options.client_cpu,
            },
        )
        .map_err(|e| ProgramError::System {
            doing: "cannot prefault memory".into(),
            source: std::io::Error::other(e),
        })
    }

    fn measured(
        &self,
        case: &CasePlan,
        variant: &Variant,
        probe: &mut Probe,
        tell: &mut dyn FnMut(&Progress<'_>),
        run: &mut Run,
    ) -> Result<Figures, ProgramError> {
        let scratch = tempfile::Builder::new().prefix("mega-lab-").tempdir();
        let scratch = scratch.map_err(|source| ProgramError::System {
            doing: "cannot make a scratch folder".into(),
            source,
        })?;
        let limit_s = (case.program.seconds() * PATIENCE + 60.0) as u64 + case.condition.patience_s();
        let needs_bytes = case.program.needs().memory_bytes;
        let mosaic_report = scratch.path().join("memomania.jsonl");
        // The program may be another user's.
        let agents = scratch.path().join("agents");
        std::fs::create_dir(&agents)
            .and_then(|()| std::fs::set_permissions(&agents, Permissions::from_mode(0o1777)))
            .map_err(|source| ProgramError::System {
                doing: "cannot make a folder for the agents' pages".into(),
                source,
            })?;
        let launch = Launch {
            mega: self.options.mega.clone(),
            lab: self.options.lab.clone(),
            own: Own {
                environment: self.environment(case, variant, needs_bytes, &agents, &mosaic_report)?,
                has_agent: variant.agent.is_some(),
                base_pages_only: variant.base_pages_only(),
            },
            program_cpu: self.options.program_cpu,
            client_cpu: self.options.client_cpu,
            scratch: scratch.path().to_path_buf(),
            seed: self.options.seed,
            deadline: Instant::now() + Duration::from_secs(limit_s),
            stop: Arc::clone(&self.options.stop),
        };
        let mut knobs = Knobs::open(self.root.clone(), &self.options.state).map_err(setting)?;
        // Before the condition, whose fragmenter frees memory: who begins seconds later would find it no longer host-backed.
        let mut not_backed = Vec::new();
        if self.plan.prefault {
            not_backed = keep_freed_memory_backed(&self.root, &mut knobs);
        }
        let kept = case.condition.make(&self.root, &self.options.state, &launch)?;
        // Before the pool, which releases memory to whatever takes it.
        let pages = variant.mosaic.as_ref().map(|mosaic| mosaic.pages(needs_bytes));
        let reserved = reserve(&self.root, &mut knobs, &pages.unwrap_or_default()).map_err(not_reserved)?;
        // The host reclaims free memory; without a pool the host would be measured. Fragmented memory it leaves alone.
        let _pool = match (self.plan.prefault, case.condition) {
            (false, _) | (_, Condition::Fragmented(..)) => None,
            _ => Some(self.prefault(needs_bytes.saturating_sub(reserved))?),
        };
        variant.apply(&mut knobs).map_err(setting)?;
        let before = kept.at_rest(|| Before::take(&self.root, probe));
        let load_ns = kept.cpu_ns(&self.root);
        let counted = Counters::read(&self.root, &self.threads);
        let mut watcher = Watcher {
            options: self.options,
            manager_options: variant.manager_options().map(|mut options| {
                options.extend(self.plan.manager_options.iter().cloned());
                options
            }),
            scratch: scratch.path(),
            kept: &kept,
            sampler: Sampler::start(&self.root, kept.account(), self.options.client_cpu),
            faults: if self.plan.faults {
                Watched::start()
            } else {
                Watched::default()
            },
            managers: Vec::new(),
            agents: variant.agent.as_ref().map(|_| agents.as_path()),
            later: Vec::new(),
            record: self.plan.record.as_ref().map(|folder| folder.join(&case.name)),
            recorders: Vec::new(),
            began: Instant::now(),
            phases: Vec::new(),
            values: BTreeMap::new(),
            is_mosaic: variant.mosaic.is_some(),
            tell,
        };
        let result = case.program.run(&launch, &mut watcher);
        let watched_s = watcher.began.elapsed().as_secs_f64();
        let grown = Counters::read(&self.root, &self.threads).grown(&counted);
        let Watcher {
            sampler,
            faults: watched,
            managers,
            later,
            recorders,
            phases,
            values,
            ..
        } = watcher;
        let recorded = recorders.into_iter().try_for_each(Recorder::finish);
        let (faulted, distribution) = watched.read();
        drop(watched);
        run.values.extend(faulted);
        run.distributions.extend(distribution.map(|d| ("fault".to_string(), d)));
        let mut managed = Ok(());
        let managers = managers.into_iter().map(|manager| manager.finish(&self.root));
        for finished in managers.chain(later.into_iter().map(Later::finish)) {
            match finished {
                Ok(did) => did
                    .into_iter()
                    .for_each(|(name, value)| *run.values.entry(name).or_default() += value),
                Err(e) => managed = Err(e),
            }
        }
        // A program that did not load the library ran without the mosaic.
        let mut obeyed = Ok(());
        if variant.mosaic.is_some() {
            match mosaic::read(&mosaic_report) {
                Some(values) => run.values.extend(values),
                None => {
                    obeyed = Err(ProgramError::NoFigure {
                        program: case.program.name(),
                        why: "none of its processes reported to libmemomania: it is statically linked, privileged, or was killed"
                            .into(),
                    });
                }
            }
        }
        if let Some(agent) = &variant.agent {
            if agent.is_known {
                let learned = Profiles::at(self.profiles_of(case, variant)?).learn(&inside::shown(&agents));
                learned.map_err(|error| ProgramError::System {
                    doing: "cannot keep the program's profile".into(),
                    source: std::io::Error::other(error),
                })?;
            }
            match inside::read(&agents) {
                Some(did) => run.values.extend(did),
                // What cannot be preloaded has the manager alone, as under `mega run`.
                None if variant.managed.is_some() => {}
                None => {
                    obeyed = Err(ProgramError::NoFigure {
                        program: case.program.name(),
                        why: "none of its processes loaded libmega_agent.so: it is statically linked or privileged"
                            .into(),
                    });
                }
            }
        }
        run.series = sampler.finish();
        run.phases = phases;
        run.values.extend(values);
        let kernel_ns: f64 = grown
            .iter()
            .filter(|(name, _)| name.ends_with("_cpu_ns"))
            .map(|(_, ns)| ns)
            .sum();
        run.values.extend(grown);
        run.values.extend(summary::at_most(&run.series));
        let mean = summary::free_blocks_mean(&run.series, &run.phases, watched_s);
        run.values
            .extend(mean.map(|blocks| ("free_blocks_mean".to_string(), blocks)));
        run.values
            .extend(summary::settled(&run.series).map(|rate| ("settled_per_s".to_string(), rate)));
        let known_ns = kernel_ns as u64 + kept.cpu_ns(&self.root).saturating_sub(load_ns);
        run.noise = kept.at_rest(|| before.compare(&self.root, probe, known_ns));
        let not_backed = not_backed
            .into_iter()
            .map(|why| format!("memory may not be host-backed: {why}"));
        run.noise.doubtful.extend(not_backed);
        let killed = kept.out_of_memory();
        let undone = kept.undo();
        restore(&mut knobs)?;
        match result {
            Err(ProgramError::Ended { program, status, .. }) if killed => {
                let said = "the kernel killed it at the memory limit".to_string();
                Err(ProgramError::Ended { program, status, said })
            }
            Ok(figures) => undone.and(managed).and(recorded).and(obeyed).map(|()| figures),
            Err(e) => Err(e),
        }
    }
}

/// Restores all settings. A hugetlb page may be in use for a moment and cannot be released before.
fn restore(knobs: &mut Knobs) -> Result<(), ProgramError> {
    let end = Instant::now() + RESTORE_TIME;
    loop {
        let back = knobs.restore().map_err(setting)?;
        match back.failed.first() {
            None => return Ok(()),
            Some((path, why)) if Instant::now() >= end => {
                return Err(ProgramError::System {
                    doing: format!("cannot restore {}", path.display()),
                    source: std::io::Error::other(why.clone()),
                })
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn not_reserved(e: ReserveError) -> ProgramError {
    match e {
        ReserveError::Knob(e) => setting(e),
        other => ProgramError::NotHere(other.to_string()),
    }
}

fn setting(e: mega_linux::knobs::KnobError) -> ProgramError {
    ProgramError::System {
        doing: "cannot apply the variant's settings".into(),
        source: std::io::Error::other(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Needs, Program, Watch};
    use crate::report::synthetic;
    use crate::result::{Better, Metric, Unit};
    use std::path::PathBuf;

    /// A program that is not installed.
    #[derive(Debug)]
    struct Nowhere;

    impl Program for Nowhere {
        fn name(&self) -> String {
            "nowhere".to_string()
        }
        fn describe(&self) -> String {
            self.name()
        }
        fn metrics(&self) -> Vec<Metric> {
            let metric = Metric::new("elapsed_ns", "time", Unit::Ns, Better::Lower);
            vec![Metric { main: true, ..metric }]
        }
        fn needs(&self) -> Needs {
            Needs::default()
        }
        fn seconds(&self) -> f64 {
            1.0
        }
        fn ready(&self) -> Result<(), ProgramError> {
            Err(ProgramError::NotHere("nowhere".to_string()))
        }
        fn run(&self, _: &Launch, _: &mut dyn Watch) -> Result<Figures, ProgramError> {
            unreachable!("it is never ready")
        }
    }

    fn case(name: &str) -> CasePlan {
        CasePlan {
            name: name.to_string(),
            program: Box::new(Nowhere),
            condition: Condition::Unfragmented,
        }
    }

    fn no_runs() -> Record {
        let mut record = synthetic::record(&synthetic::Options::default());
        record.runs.clear();
        record
    }

    #[test]
    fn each_round_begins_with_the_next_variant_in_every_case() {
        let plan = Plan {
            cases: vec![case("a"), case("b")],
            variants: ["base", "thp-always", "thp-madvise"]
                .map(|v| v.parse().unwrap())
                .to_vec(),
            manager_options: Vec::new(),
            prefault: false,
            faults: false,
            main: Vec::new(),
            record: None,
        };
        let options = Options {
            mega: PathBuf::new(),
            lab: PathBuf::new(),
            library: Err("none".to_string()),
            state: PathBuf::new(),
            rounds: 3,
            seed: 1,
            program_cpu: None,
            client_cpu: None,
            stop: Arc::default(),
        };
        let mut record = no_runs();
        run(&plan, &options, &mut record, |_| {});
        let ran: Vec<_> = record.runs.iter().map(|r| (r.round, r.case, r.variant)).collect();
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
        let expected: Vec<_> = (0..3)
            .flat_map(|round| (0..2).flat_map(move |case| orders[round].map(|variant| (round, case, variant))))
            .collect();
        assert_eq!(ran, expected);
        let skipped = |r: &Run| matches!(&r.outcome, Outcome::Skipped(why) if why.contains("nowhere"));
        assert!(record.runs.iter().all(skipped));
    }

    #[test]
    fn a_speedup_is_over_the_first_variant_though_that_ran_last() {
        let mut record = no_runs();
        for (variant, ns) in [(1, 4.0), (2, 16.0), (0, 8.0)] {
            record.runs.push(Run {
                variant,
                values: [("elapsed_ns".to_string(), ns)].into(),
                ..empty_run()
            });
        }
        add_speedups(&mut record, 0, &case("a"));
        let times: Vec<f64> = record.runs.iter().map(|run| run.values[speedup::NAME]).collect();
        assert_eq!(times, [2.0, 0.5, 1.0]);
    }
}
