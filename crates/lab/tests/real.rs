//! The programs that people run, each with a small job that checks its own result: alone, and with the agent in it. Skipped, with the
//! reason, where a runtime or what pip installs is not to be had.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mega_lab::program::{catalogue, Launch, Own, ProgramError, Watch};
use mega_lab::variant::{agent, Agent};

/// Names, and the part of each one's size that takes about a second.
const PROGRAMS: &[(&str, f64)] = &[
    ("duckdb", 0.1),
    ("go", 0.1),
    ("gcc", 0.05),
    ("jvm", 0.1),
    ("node", 0.1),
    ("numpy", 0.1),
    ("postgresql", 0.1),
    ("workers", 0.1),
    ("zstd", 0.02),
];

struct Nothing;

impl Watch for Nothing {
    fn process(&mut self, _: i32) -> Result<(), ProgramError> {
        Ok(())
    }
    fn phase(&mut self, _: &str) {}
    fn figure(&mut self, _: &str, _: f64) {}
    fn memory_now(&mut self, _: &str) {}
}

/// Runs one; why it cannot run here, else.
fn run(name: &str, scale: f64, environment: Vec<(OsString, OsString)>) -> Result<(), ProgramError> {
    let program = (catalogue::find(name).unwrap().make)(scale);
    program.ready()?;
    let scratch = tempfile::tempdir().unwrap();
    let launch = Launch {
        mega: env!("CARGO_BIN_EXE_mega-lab").into(),
        lab: env!("CARGO_BIN_EXE_mega-lab").into(),
        program_cpu: None,
        client_cpu: None,
        own: Own {
            environment,
            ..Own::default()
        },
        scratch: scratch.path().to_path_buf(),
        seed: 11,
        deadline: Instant::now() + Duration::from_secs(180),
        stop: Arc::new(AtomicBool::new(false)),
    };
    program.run(&launch, &mut Nothing).map(drop)
}

#[test]
fn each_finds_its_result_right_alone_and_with_the_agent_in_it() {
    let library = agent::library(Path::new(env!("CARGO_BIN_EXE_mega-lab"))).unwrap();
    let inside = Agent::default();
    let mut right = 0;
    for &(name, scale) in PROGRAMS {
        let pages = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let alone = run(name, scale, Vec::new());
        if let Err(why @ (ProgramError::NotHere(_) | ProgramError::Start { .. })) = alone {
            eprintln!("{name}: skipped: {why}");
            continue;
        }
        alone.unwrap_or_else(|error| panic!("{name}: {error}"));
        run(name, scale, inside.environment(&library, pages.path(), None, None))
            .unwrap_or_else(|error| panic!("{name} with the agent: {error}"));
        let pages = pages.path().read_dir().unwrap().count();
        eprintln!(
            "{name}: right twice, {pages} agents, {:.1} s",
            began.elapsed().as_secs_f64()
        );
        // Go links statically.
        assert!(pages > 0 || name == "go", "{name}: the agent was not loaded");
        right += 1;
    }
    assert!(right > 0, "none of them runs here");
}
