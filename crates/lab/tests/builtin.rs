//! The built-in workloads as programs of an experiment: watched from their birth, looked at while they hold their memory, and
//! ended, also when they crash, hang or find their memory wrong.

use mega_lab::program::builtin::{builtin, Builtin};
use mega_lab::program::{Figures, Launch, Own, Program, ProgramError, Watch};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A watcher that notes everything.
#[derive(Default)]
struct Notes {
    pids: Vec<i32>,
    /// Memory of each process when it was to be watched.
    first_bytes: Vec<u64>,
    phases: Vec<String>,
    figures: Vec<(String, f64)>,
    /// Memory of all processes when memory was to be looked at.
    held_bytes: Option<u64>,
    /// Change a word of the largest mapping when memory is to be looked at.
    spoil: bool,
    /// Say stop in this phase.
    stop: Option<(&'static str, Arc<AtomicBool>)>,
}

/// Resident bytes of no file.
fn anonymous_bytes(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    pages
        .get(1)
        .zip(pages.get(2))
        .map_or(0, |(resident, shared)| (resident - shared) * 4096)
}

fn is_gone(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z "))
}

/// Flips a bit in the middle of the largest writable mapping without a file.
fn spoil(pid: i32) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let anonymous = maps.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        (fields[1] == "rw-p" && fields.len() == 5).then_some((end - start, start))
    });
    let (bytes, start) = anonymous.max().unwrap();
    let memory = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .unwrap();
    let (mut word, at) = ([0; 8], start + bytes / 2);
    memory.read_exact_at(&mut word, at).unwrap();
    word[0] ^= 4;
    memory.write_all_at(&word, at).unwrap();
}

impl Watch for Notes {
    fn process(&mut self, pid: i32) -> Result<(), ProgramError> {
        self.first_bytes.push(anonymous_bytes(pid));
        self.pids.push(pid);
        Ok(())
    }

    fn phase(&mut self, name: &str) {
        self.phases.push(name.to_string());
        if let Some((phase, stop)) = &self.stop {
            stop.store(*phase == name, Relaxed);
        }
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_string(), value));
    }

    fn memory_now(&mut self, prefix: &str) {
        assert_eq!(prefix, "");
        self.held_bytes = Some(self.pids.iter().map(|pid| anonymous_bytes(*pid)).sum());
        if self.spoil {
            spoil(self.pids[0]);
        }
    }
}

struct Scene {
    launch: Launch,
    _scratch: tempfile::TempDir,
}

fn scene(seconds: f64) -> Scene {
    let scratch = tempfile::tempdir().unwrap();
    Scene {
        launch: Launch {
            mega: PathBuf::from("/nowhere/mega"),
            lab: PathBuf::from("/nowhere/mega-lab"),
            program_cpu: Some(0),
            client_cpu: None,
            own: Own::default(),
            scratch: scratch.path().to_path_buf(),
            seed: 7,
            deadline: Instant::now() + Duration::from_secs_f64(seconds),
            stop: Arc::new(AtomicBool::new(false)),
        },
        _scratch: scratch,
    }
}

fn program(name: &str, args: &[(&str, &str)], instances: usize) -> Builtin {
    let mut program = builtin(name, args, instances).unwrap();
    program.command = vec![env!("CARGO_BIN_EXE_mega-workload").into()];
    program
}

/// What a shell script does instead of a workload; its arguments do not matter to it.
fn script(text: &str) -> Builtin {
    let mut program = builtin("gups", &[], 1).unwrap();
    program.command = ["sh", "-c", text].map(Into::into).to_vec();
    program
}

fn run(program: &Builtin, seconds: f64) -> (Result<Figures, ProgramError>, Notes) {
    let mut notes = Notes::default();
    let result = program.run(&scene(seconds).launch, &mut notes);
    assert!(notes.pids.iter().all(|pid| is_gone(*pid)), "a process was left behind");
    (result, notes)
}

#[test]
fn every_workload_is_watched_before_its_first_touch_and_measures_what_it_promises() {
    let small: &[(&str, &[(&str, &str)])] = &[
        ("gups", &[("mib", "16"), ("seconds", "0.2"), ("check", "")]),
        ("store", &[("dense-mib", "4"), ("sparse-mib", "24"), ("seconds", "0.2")]),
        (
            "kv",
            &[
                ("mib", "8"),
                ("seconds", "0.3"),
                ("delete-share", "0.5"),
                ("reads", "0.5"),
            ],
        ),
        ("btree", &[("mib", "8"), ("seconds", "0.2"), ("inserts", "0.3")]),
        ("graph", &[("scale", "16"), ("iterations", "3")]),
        ("simplex", &[("mib", "16"), ("seconds", "0.2")]),
        ("events", &[("mib", "16"), ("seconds", "0.2")]),
        ("paths", &[("mib", "16"), ("seconds", "0.2")]),
        (
            "gups",
            &[("mib", "16"), ("updates", "100000"), ("check", ""), ("heap", "")],
        ),
        ("graph", &[("scale", "16"), ("iterations", "1"), ("heap", "")]),
        ("compute", &[("seconds", "0.2")]),
        ("touch", &[("mib", "16"), ("scattered", "")]),
        ("chunks", &[("mib", "24"), ("chunk-mib", "2"), ("seconds", "0.2")]),
        ("churn", &[("mib", "16"), ("times", "2")]),
        ("stride", &[("mib", "16"), ("times", "2")]),
        ("sizes", &[("mib", "16"), ("pause", "0")]),
        ("holes", &[("mib", "16"), ("seconds", "0.2")]),
        ("sparse", &[("mib", "48"), ("seconds", "0.2")]),
        ("dense", &[("mib", "16"), ("seconds", "0.3"), ("hot-ms", "10")]),
    ];
    for (name, args) in small {
        let program = program(name, args, 1);
        let (result, notes) = run(&program, 60.0);
        let figures = result.unwrap_or_else(|e| panic!("{name}: {e}"));
        for metric in program.metrics() {
            let value = figures.values.get(&metric.name);
            assert!(
                value.is_some_and(|v| v.is_finite()),
                "{name}: {} is {value:?}",
                metric.name
            );
        }
        let promised = |n: &String| program.metrics().iter().any(|m| m.name == *n);
        assert!(
            figures.values.keys().all(promised),
            "{name}: {:?}",
            figures.values.keys()
        );
        for distribution in figures.distributions.values() {
            assert_eq!(distribution.quantiles.last().map(|(q, _)| *q), Some(1.0), "{name}");
        }
        assert_eq!(notes.phases[0], "fill", "{name}");
        assert_eq!(notes.phases.last().map(String::as_str), Some("check"), "{name}");
        assert!(notes.phases.iter().any(|p| p == "run"), "{name}");
        // No area is smaller.
        assert!(
            notes.first_bytes[0] < 2 << 20,
            "{name} had {} before go",
            notes.first_bytes[0]
        );
        if !["churn", "sizes", "compute"].contains(name) {
            let grown = notes.held_bytes.unwrap().saturating_sub(notes.first_bytes[0]);
            assert!(grown > 3 << 20, "{name} held only {grown} bytes more when looked at");
        }
    }
}

#[test]
fn two_instances_are_two_processes_that_hold_their_memory_together() {
    let program = program("chunks", &[("mib", "24"), ("chunk-mib", "2"), ("seconds", "1.3")], 2);
    let (result, notes) = run(&program, 60.0);
    let figures = result.unwrap();
    assert_eq!(notes.pids.len(), 2);
    assert_ne!(notes.pids[0], notes.pids[1]);
    assert!(notes.held_bytes.unwrap() > 48 << 20);
    assert_eq!(figures.values["used_bytes"], f64::from(8 << 20));
    assert!(figures.distributions.contains_key("touch") && figures.distributions.contains_key("touch-2"));
    let rates: Vec<f64> = notes.figures.iter().map(|(_, v)| *v).collect();
    assert!(notes.figures.iter().all(|(n, _)| n == "ops_per_s"));
    assert!(rates.len() >= 2 && rates.iter().all(|r| *r > 0.0), "{rates:?}");
}

#[test]
fn phases_of_a_workload_are_told() {
    let (result, notes) = run(
        &program("sizes", &[("mib", "16"), ("pause", "0"), ("to-kib", "16")], 1),
        60.0,
    );
    result.unwrap();
    assert_eq!(
        notes.phases,
        ["fill", "run", "8K", "8K freed", "16K", "16K freed", "check"]
    );
    let (result, notes) = run(&program("holes", &[("mib", "8"), ("seconds", "0.1")], 1), 60.0);
    result.unwrap();
    assert_eq!(notes.phases, ["fill", "free", "run", "check"]);
}

#[test]
fn the_seed_and_the_processor_of_the_launch_are_used_unless_the_options_say_others() {
    let checksum = "b=$(printf '%s\\n' \"$@\" | tr '\\n' ' '); echo \"$b\" >&2; exit 1";
    let (result, _) = run(&script(checksum), 20.0);
    assert!(result
        .unwrap_err()
        .to_string()
        .contains("--wait-first --seed=7 --pin=0"));
    let mut own = script(checksum);
    own.args = vec!["--seed=9".into(), "--pin=1".into()];
    let text = run(&own, 20.0).0.unwrap_err().to_string();
    assert!(
        text.contains("--wait-first --seed=9 --pin=1") && !text.contains("seed=7"),
        "{text}"
    );
}

#[test]
fn memory_that_was_changed_is_wrong_data() {
    for (name, args) in [
        ("touch", &[("mib", "16")][..]),
        ("kv", &[("mib", "16"), ("seconds", "0.1"), ("reads", "1")]),
        ("chunks", &[("mib", "32"), ("chunk-mib", "32"), ("seconds", "0.1")]),
        ("graph", &[("scale", "16"), ("iterations", "1")]),
        ("simplex", &[("mib", "32"), ("seconds", "0.1")]),
    ] {
        let mut notes = Notes {
            spoil: true,
            ..Notes::default()
        };
        let result = program(name, args, 1).run(&scene(60.0).launch, &mut notes);
        match result {
            Err(ProgramError::Wrong { program, why }) => {
                assert_eq!(program, name);
                assert!(why.contains("corrupt memory"), "{why}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

const BORN: &str = "echo '{\"event\":\"born\",\"pid\":'$$'}'; read go;";

#[test]
fn a_crash_says_how_it_ended_and_its_last_words() {
    for (text, status, said) in [
        ("echo first >&2; echo last words >&2; exit 7", "status 7", "last words"),
        ("kill -SEGV $$", "signal 11", ""),
        ("echo '{\"event\":\"ready\"}'; exit 2", "status 2", ""),
    ] {
        match run(&script(&format!("{BORN} {text}")), 20.0).0 {
            Err(ProgramError::Ended { status: s, said: w, .. }) => assert_eq!((s.as_str(), w.as_str()), (status, said)),
            other => panic!("{text}: {other:?}"),
        }
    }
    let (result, notes) = run(&script("exit 9"), 20.0);
    assert!(matches!(result, Err(ProgramError::Ended { .. })), "{result:?}");
    assert!(notes.pids.is_empty());
    let (result, _) = run(&script(&format!("{BORN} echo corrupt memory: here >&2; exit 3")), 20.0);
    assert!(
        matches!(&result, Err(ProgramError::Wrong { why, .. }) if why == "corrupt memory: here"),
        "{result:?}"
    );
}

#[test]
fn a_failure_after_the_result_is_one_too() {
    let said = "echo '{\"event\":\"ready\"}'; echo '{\"event\":\"result\",\"metrics\":{\"ops_per_s\":1}}'; read quit;";
    let (result, _) = run(&script(&format!("{BORN} {said} exit 0")), 20.0);
    assert_eq!(result.unwrap().values["ops_per_s"], 1.0);
    let (result, notes) = run(&script(&format!("{BORN} {said} exit 3")), 20.0);
    assert!(matches!(result, Err(ProgramError::Wrong { .. })), "{result:?}");
    assert!(notes.held_bytes.is_some());
}

#[test]
fn an_end_without_a_result_and_nonsense_are_no_figures() {
    for text in [
        "exit 0",
        "echo hello; exec sleep 60",
        "echo '{\"events\":1}'; exec sleep 60",
        "echo 3; exec sleep 60",
    ] {
        let (result, _) = run(&script(&format!("{BORN} {text}")), 20.0);
        assert!(
            matches!(result, Err(ProgramError::NoFigure { .. })),
            "{text}: {result:?}"
        );
    }
}

#[test]
fn whatever_hangs_is_ended_at_the_deadline() {
    for text in [
        "exec sleep 600".to_string(),
        format!("{BORN} exec sleep 600"),
        format!("{BORN} exec sleep 600 >&-"),
        format!("{BORN} echo '{{\"event\":\"ready\"}}'; echo '{{\"event\":\"result\"}}'; exec sleep 600"),
    ] {
        let start = Instant::now();
        let (result, _) = run(&script(&text), 1.0);
        assert!(
            matches!(result, Err(ProgramError::Hung { seconds: 1, .. })),
            "{text}: {result:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(30), "{text}");
    }
}

#[test]
fn a_user_who_wants_to_stop_is_obeyed_at_once() {
    let scene = scene(60.0);
    let mut notes = Notes {
        stop: Some(("run", scene.launch.stop.clone())),
        ..Notes::default()
    };
    let start = Instant::now();
    let result = program("gups", &[("mib", "16"), ("seconds", "50")], 1).run(&scene.launch, &mut notes);
    assert!(matches!(result, Err(ProgramError::Stopped)), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(25));
    assert!(is_gone(notes.pids[0]));
}

#[test]
fn a_program_that_is_not_there_does_not_start() {
    let mut missing = builtin("gups", &[], 1).unwrap();
    missing.command = vec!["/nowhere/mega".into()];
    let (result, _) = run(&missing, 5.0);
    assert!(matches!(result, Err(ProgramError::Start { .. })), "{result:?}");
}

#[test]
fn a_watcher_that_refuses_ends_the_program() {
    struct Refuses(Vec<i32>);
    impl Watch for Refuses {
        fn process(&mut self, pid: i32) -> Result<(), ProgramError> {
            self.0.push(pid);
            Err(ProgramError::Stopped)
        }
        fn phase(&mut self, _: &str) {}
        fn figure(&mut self, _: &str, _: f64) {}
        fn memory_now(&mut self, _: &str) {}
    }
    let mut refuses = Refuses(Vec::new());
    let result = program("gups", &[("mib", "16")], 1).run(&scene(20.0).launch, &mut refuses);
    assert!(matches!(result, Err(ProgramError::Stopped)), "{result:?}");
    assert!(is_gone(refuses.0[0]));
}
