//! Real programs, small: each runs as it does in an experiment, is watched, checks its data, and leaves nothing behind; and
//! what goes wrong with one has its name. Skipped, with the reason, where the program is missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mega_lab::contiguity::How;
use mega_lab::program::allocation::{Allocation, Before};
use mega_lab::program::batch::Batch;
use mega_lab::program::command::{CommandLine, Printed, Source};
use mega_lab::program::mariadb::MariaDb;
use mega_lab::program::memcached::Memcached;
use mega_lab::program::redis::{Redis, Scenario};
use mega_lab::program::sqlite::Sqlite;
use mega_lab::program::{catalogue, Figures, Launch, Own, Program, ProgramError, Watch};
use mega_lab::result::Unit;
use rustix::process::{kill_process, Pid, Signal};

/// What a test does when a phase begins in the process.
type OnPhase<'a> = Box<dyn FnMut(&str, i32) + 'a>;

/// Records what a program tells, and does something of the test's in a phase.
struct Recorder<'a> {
    pids: Vec<i32>,
    /// State and name of the process when it was told of.
    seen: Vec<(String, String)>,
    phases: Vec<String>,
    figures: Vec<(String, f64)>,
    memory: Vec<(String, u64)>,
    on_phase: OnPhase<'a>,
}

fn recorder<'a>(on_phase: impl FnMut(&str, i32) + 'a) -> Recorder<'a> {
    Recorder {
        pids: Vec::new(),
        seen: Vec::new(),
        phases: Vec::new(),
        figures: Vec::new(),
        memory: Vec::new(),
        on_phase: Box::new(on_phase),
    }
}

fn status_of(pid: i32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).unwrap_or_default().to_string()
}

impl Watch for Recorder<'_> {
    fn process(&mut self, pid: i32) -> Result<(), ProgramError> {
        self.pids.push(pid);
        self.seen.push((status_of(pid, "State:"), status_of(pid, "Name:")));
        assert_eq!(status_of(pid, "THP_enabled:"), "1", "it can be given huge pages");
        assert_eq!(status_of(pid, "Cpus_allowed_list:"), "0", "it is on its processor");
        assert!(self.phases.is_empty(), "told before anything begins");
        Ok(())
    }
    fn phase(&mut self, name: &str) {
        self.phases.push(name.into());
        (self.on_phase)(name, self.pids.first().copied().unwrap_or(0));
    }
    fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.into(), value));
    }
    fn memory_now(&mut self, prefix: &str) {
        let kb = status_of(self.pids[0], "VmRSS:").parse().unwrap_or(0u64);
        self.memory.push((prefix.into(), kb << 10));
    }
}

struct Place {
    launch: Launch,
    _scratch: tempfile::TempDir,
}

/// A place to run in for at most `seconds`.
fn place(seconds: f64) -> Place {
    let scratch = tempfile::tempdir().unwrap();
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    Place {
        launch: Launch {
            mega: "mega".into(),
            lab: "mega-lab".into(),
            program_cpu: Some(0),
            client_cpu: Some(processors - 1),
            own: Own::default(),
            scratch: scratch.path().to_path_buf(),
            seed: 11,
            deadline: Instant::now() + Duration::from_secs_f64(seconds),
            stop: Arc::new(AtomicBool::new(false)),
        },
        _scratch: scratch,
    }
}

/// Whether the test must be skipped.
fn missing(program: &dyn Program) -> bool {
    match program.ready() {
        Ok(()) => false,
        Err(why) => {
            eprintln!("skipped: {why}");
            true
        }
    }
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn is_gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Runs it to its end; every metric must be there, and the process must be gone.
fn run(program: &dyn Program) -> Option<(Figures, Recorder<'static>)> {
    if missing(program) {
        return None;
    }
    let (place, mut watch, start) = (place(120.0), recorder(|_, _| {}), Instant::now());
    let figures = program.run(&place.launch, &mut watch).unwrap();
    eprintln!(
        "{}: {:.1} s, {:.1} s expected",
        program.describe(),
        start.elapsed().as_secs_f64(),
        program.seconds()
    );
    for metric in program.metrics() {
        let value = figures.values.get(&metric.name);
        assert!(
            value.is_some_and(|v| v.is_finite() && *v > 0.0),
            "{} is {value:?}",
            metric.name
        );
    }
    assert_eq!(watch.pids.len(), 1);
    assert!(is_gone(watch.pids[0]));
    Some((figures, watch))
}

/// Runs it and does something in a phase; it must fail, soon, and leave no process.
fn fail(program: &dyn Program, seconds: f64, on_phase: impl FnMut(&str, i32)) -> Option<ProgramError> {
    if missing(program) {
        return None;
    }
    let (place, mut watch, start) = (place(seconds), recorder(on_phase), Instant::now());
    let error = program.run(&place.launch, &mut watch).unwrap_err();
    eprintln!("{error}");
    assert!(watch.pids.iter().all(|pid| is_gone(*pid)));
    assert!(start.elapsed().as_secs_f64() < seconds + 20.0, "{:?}", start.elapsed());
    Some(error)
}

/// The port of a redis-server, by the title that it gives itself.
fn redis_port(pid: i32) -> String {
    let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let port = title.rsplit(':').next().unwrap();
    port.chars().take_while(char::is_ascii_digit).collect()
}

/// The word that follows `option` on the command line of a process.
fn option_of(pid: i32, option: &str) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let mut words = line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned());
    words.find(|w| w == option).unwrap();
    words.next().unwrap()
}

fn tell(port: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

fn small_redis() -> Redis {
    Redis {
        settle: Duration::from_millis(100),
        ..Redis::del_50(0.002)
    }
}

fn small_hash(scale: f64) -> Redis {
    Redis {
        settle: Duration::from_millis(100),
        ..Redis::hset(scale)
    }
}

#[test]
fn redis_sets_are_timed_each_and_found_again() {
    for program in [Redis::set(0.01), Redis::cold(0.01)] {
        let Some((figures, watch)) = run(&program) else { return };
        assert_eq!(watch.phases, ["fill", "read"]);
        assert_eq!(watch.seen[0].1, "redis-server");
        assert_eq!(figures.distributions["request"].count, program.count);
        assert_eq!(watch.memory[0].0, "");
        assert!(watch.memory[0].1 > program.count * 4096);
        assert!(program.needs().memory_bytes > watch.memory[0].1);
    }
}

#[test]
fn redis_serves_gets_and_sets_for_the_time_that_was_asked() {
    let program = Redis {
        scenario: Scenario::Mixed(Duration::from_secs(2)),
        ..Redis::warm(0.005)
    };
    let Some((figures, watch)) = run(&program) else { return };
    assert_eq!(watch.phases, ["fill", "serve", "read"]);
    assert!(
        (2..6).contains(&watch.figures.len()),
        "twice a second: {:?}",
        watch.figures
    );
    let (rate, count) = (figures.values["ops_per_s"], figures.distributions["request"].count);
    assert!((rate * 2.0 / count as f64 - 1.0).abs() < 0.1, "{rate} {count}");
    assert!(figures.values["request_p50_ns"] <= figures.values["request_p999_ns"]);
}

#[test]
fn redis_loses_what_is_deleted_and_keeps_the_rest() {
    for program in [Redis::del_50(0.005), Redis::del_70(0.005)] {
        let program = Redis {
            settle: Duration::from_millis(100),
            ..program
        };
        let Some((figures, watch)) = run(&program) else { return };
        assert_eq!(watch.phases, ["fill", "delete", "settle", "read"]);
        let Scenario::Delete(share) = program.scenario else {
            unreachable!()
        };
        let left = program.count as f64 * (1.0 - share) * 8192.0;
        let used = figures.values["used_bytes"] / left;
        assert!((1.0..2.0).contains(&used), "{used}");
    }
}

#[test]
fn redis_stores_values_of_many_sizes() {
    for program in [Redis::range_xl(0.005), Redis::range_s(0.001)] {
        let Some((_, watch)) = run(&program) else { return };
        assert_eq!(watch.phases, ["fill", "read"]);
        assert!(program.needs().memory_bytes > watch.memory[0].1);
    }
}

#[test]
fn redis_reads_all_that_is_left_of_a_hash() {
    let Some((figures, watch)) = run(&small_hash(0.005)) else {
        return;
    };
    assert_eq!(watch.phases, ["fill", "delete", "settle", "read"]);
    assert_eq!(watch.memory.len(), 1);
    assert!(figures.values["used_bytes"] < 0.4 * 10_000.0 * 5200.0);
}

#[test]
fn redis_that_is_killed_has_ended_by_that_signal() {
    for phase in ["fill", "delete", "read"] {
        let error = fail(&small_redis(), 30.0, |name, pid| {
            if name == phase {
                signal(pid, Signal::KILL);
            }
        });
        let Some(error) = error else { return };
        assert!(
            matches!(&error, ProgramError::Ended { status, .. } if status.contains("SIGKILL")),
            "{error}"
        );
    }
}

#[test]
fn redis_that_hangs_is_ended_when_the_time_is_over() {
    let error = fail(&small_redis(), 2.0, |name, pid| {
        if name == "read" {
            signal(pid, Signal::STOP);
        }
    });
    let Some(error) = error else { return };
    assert!(matches!(error, ProgramError::Hung { seconds: 2, .. }), "{error}");
}

#[test]
fn a_user_who_stops_is_told_so_and_nothing_is_left() {
    let program = small_redis();
    if missing(&program) {
        return;
    }
    let place = place(60.0);
    let stop = place.launch.stop.clone();
    let mut watch = recorder(|name, pid| {
        if name == "read" {
            // Nothing comes from it any more, so the stop must not wait for an answer.
            signal(pid, Signal::STOP);
            stop.store(true, Relaxed);
        }
    });
    let error = program.run(&place.launch, &mut watch).unwrap_err();
    assert!(matches!(error, ProgramError::Stopped), "{error}");
    assert!(is_gone(watch.pids[0]));
}

#[test]
fn a_value_of_redis_that_changed_is_found() {
    let plant = |command: &'static str| {
        move |name: &str, pid: i32| {
            if name == "read" {
                tell(&redis_port(pid), command);
            }
        }
    };
    let Some(error) = fail(&Redis::set(0.001), 30.0, plant("SET key:7 wrong\r\n")) else {
        return;
    };
    assert!(
        matches!(&error, ProgramError::Wrong { why, .. } if why.contains("key:7 differs")),
        "{error}"
    );
    let error = fail(&Redis::cold(0.001), 30.0, plant("DEL key:7\r\n")).unwrap();
    assert!(
        matches!(&error, ProgramError::Wrong { why, .. } if why.contains("key:7 is missing")),
        "{error}"
    );
    let fields: String = (0..1000).map(|i| format!("HSET hash {i} wrong\r\n")).collect();
    let error = fail(&small_hash(0.0005), 30.0, plant(fields.leak())).unwrap();
    assert!(matches!(error, ProgramError::Wrong { .. }), "{error}");
}

fn small_memcached() -> Memcached {
    Memcached {
        serve: Duration::from_secs(1),
        ..Memcached::zipf(0.005)
    }
}

#[test]
fn memcached_serves_and_keeps_every_value() {
    let program = small_memcached();
    let Some((figures, watch)) = run(&program) else { return };
    assert_eq!(watch.phases, ["fill", "serve", "read"]);
    assert_eq!(watch.seen[0].1, "memcached");
    assert!(figures.distributions["request"].count > 1000);
    assert!((program.count * 4096..program.needs().memory_bytes).contains(&watch.memory[0].1));
}

#[test]
fn memcached_that_is_killed_hangs_or_has_a_wrong_value_is_told_apart() {
    let killed = fail(&small_memcached(), 30.0, |name, pid| {
        if name == "serve" {
            signal(pid, Signal::KILL);
        }
    });
    let Some(killed) = killed else { return };
    assert!(
        matches!(&killed, ProgramError::Ended { status, .. } if status.contains("SIGKILL")),
        "{killed}"
    );
    let hung = fail(&small_memcached(), 2.0, |name, pid| {
        if name == "serve" {
            signal(pid, Signal::STOP);
        }
    });
    assert!(matches!(hung, Some(ProgramError::Hung { .. })), "{hung:?}");
    for plant in ["set key:7 0 0 5\r\nwrong\r\n", "delete key:7\r\n"] {
        let wrong = fail(&small_memcached(), 30.0, |name, pid| {
            if name == "read" {
                let answer = tell(&option_of(pid, "-p"), plant);
                assert!(["STORED", "DELETED"].contains(&answer.trim()), "{answer}");
            }
        });
        assert!(
            matches!(&wrong, Some(ProgramError::Wrong { why, .. }) if why.contains("key:7")),
            "{wrong:?}"
        );
    }
}

fn small_mariadb() -> MariaDb {
    MariaDb {
        serve: Duration::from_secs(2),
        ..MariaDb::read_only(0.0005)
    }
}

#[test]
fn mariadb_serves_transactions_and_its_table_is_as_before() {
    let Some((figures, watch)) = run(&small_mariadb()) else {
        return;
    };
    assert_eq!(watch.phases, ["fill", "read", "serve", "read"]);
    assert_eq!(watch.seen[0].1, "mariadbd");
    assert!(!watch.figures.is_empty());
    assert!(figures.values["request_min_ns"] < figures.values["request_p95_ns"]);
}

#[test]
fn mariadb_that_is_killed_or_whose_table_changed_is_told_apart() {
    let killed = fail(&small_mariadb(), 60.0, |name, pid| {
        if name == "serve" {
            signal(pid, Signal::KILL);
        }
    });
    let Some(killed) = killed else { return };
    let by_signal = |status: &String| status.contains("SIGKILL");
    assert!(
        matches!(&killed, ProgramError::Ended { program, status, .. } if program.ends_with("mariadbd") && by_signal(status)),
        "{killed}"
    );
    let wrong = fail(&small_mariadb(), 60.0, |name, pid| {
        if name == "serve" {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            let socket = line.split('\0').find(|w| w.starts_with("--socket=")).unwrap();
            let mut client = std::process::Command::new("mariadb");
            client.args([
                "--no-defaults",
                "--user=root",
                socket,
                "-e",
                "UPDATE sbtest.sbtest1 SET c='x' WHERE id=5",
            ]);
            assert!(client.status().unwrap().success());
        }
    });
    assert!(
        matches!(&wrong, Some(ProgramError::Wrong { why, .. }) if why.contains("checksum")),
        "{wrong:?}"
    );
}

#[test]
fn sqlites_sums_are_those_that_were_known_before() {
    let Some((_, watch)) = run(&Sqlite::in_memory(0.002)) else {
        return;
    };
    assert_eq!(watch.phases, ["run"]);
}

#[test]
fn batch_programs_make_what_they_must() {
    for program in [Batch::gcc(0.05), Batch::zstd(0.02), Batch::python(0.01)] {
        if let Some((_, watch)) = run(&program) {
            assert_eq!(watch.phases, ["run"]);
        }
    }
}

fn sh(script: &str) -> CommandLine {
    CommandLine::new(["sh", "-c", script])
}

#[test]
fn a_command_is_told_of_before_it_runs_and_takes_the_time_that_it_takes() {
    let (figures, watch) = run(&sh("sleep 0.3")).unwrap();
    assert_eq!(watch.seen[0].0, "T", "stopped");
    let seconds = figures.values["elapsed_ns"] / 1e9;
    assert!((0.3..1.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_command_keeps_the_callers_folder_so_that_its_relative_paths_mean_what_they_meant() {
    // The test's folder is the package's.
    for program in [
        CommandLine::new(["tests/commands/relative.sh", "tests/commands/relative.sh"]),
        CommandLine::new(["./tests/commands/relative.sh", "./Cargo.toml"]),
        sh("test -f tests/commands/relative.sh"),
    ] {
        assert!(program.ready().is_ok());
        assert!(run(&program).is_some());
    }
}

#[test]
fn a_commands_figure_is_found_on_stdout_or_else_on_stderr() {
    let printed = |regex: &str| {
        Source::Printed(Printed {
            factor: 1e6,
            name: "p99_ns".into(),
            unit: Unit::Ns,
            ..Printed::rate(regex).unwrap()
        })
    };
    for script in ["echo p99 1 ms; echo p99 2.5 ms", "echo p99 2.5 ms >&2"] {
        let program = CommandLine {
            source: printed(r"p99 ([\d.]+) ms"),
            ..sh(script)
        };
        assert_eq!(run(&program).unwrap().0.values["p99_ns"], 2.5e6);
    }
    let program = CommandLine {
        source: printed("(never)"),
        ..sh("echo something")
    };
    let error = fail(&program, 10.0, |_, _| {}).unwrap();
    assert!(matches!(error, ProgramError::NoFigure { .. }), "{error}");
}

#[test]
fn only_the_end_of_much_output_is_kept_and_searched() {
    let program = CommandLine {
        source: Source::Printed(Printed::rate(r"rate ([\d.]+)").unwrap()),
        ..sh("head -c 100000000 /dev/zero | tr '\\0' x; sleep 0.2; echo; echo rate 7; sleep 0.2")
    };
    let (place, mut watch) = (place(60.0), recorder(|_, _| {}));
    let figures = program.run(&place.launch, &mut watch).unwrap();
    assert_eq!(figures.values["ops_per_s"], 7.0);
    let output = std::fs::metadata(place.launch.scratch.join("command.stdout")).unwrap();
    assert!(output.len() > 100_000_000);
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&output) * 512 < 70_000_000,
        "the rest is not on the disk"
    );
}

#[test]
fn a_command_that_fails_says_its_status_and_its_last_words() {
    let error = fail(&sh("echo first >&2; echo no luck today >&2; exit 3"), 10.0, |_, _| {}).unwrap();
    let ProgramError::Ended { status, said, .. } = &error else {
        panic!("{error}")
    };
    assert!(status.contains('3') && said == "no luck today", "{error}");
    let error = fail(&sh("kill -SEGV $$"), 10.0, |_, _| {}).unwrap();
    assert!(error.to_string().contains("SIGSEGV"), "{error}");
}

#[test]
fn a_command_that_does_not_exist_does_not_start() {
    let program = CommandLine::new(["no-such-program-here", "-x"]);
    assert!(matches!(program.ready(), Err(ProgramError::Start { .. })));
    let (place, mut watch) = (place(10.0), recorder(|_, _| {}));
    let error = program.run(&place.launch, &mut watch).unwrap_err();
    assert!(
        matches!(&error, ProgramError::Start { program, .. } if program == "no-such-program-here"),
        "{error}"
    );
    assert!(watch.pids.is_empty());
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started() {
    let children = tempfile::NamedTempFile::new().unwrap();
    let script = format!("sleep 1000 & echo $! > {}; wait", children.path().display());
    let error = fail(&sh(&script), 1.0, |_, _| {}).unwrap();
    assert!(matches!(error, ProgramError::Hung { seconds: 1, .. }), "{error}");
    let child: i32 = std::fs::read_to_string(children.path())
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(ends(child), "the child of the command is gone too");
}

/// Whether a process that is not our child ends soon; one that nobody waits for has ended as well.
fn ends(pid: i32) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if is_gone(pid) || status_of(pid, "State:") == "Z" {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// The part of a test that runs in a process of its own.
const PART: &str = "MEGA_TEST_PART";

fn again(test: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PART, "1");
    command
}

#[test]
fn a_command_and_its_children_end_when_we_are_killed() {
    if std::env::var_os(PART).is_some() {
        let place = place(60.0);
        let pids = place.launch.scratch.join("pids");
        let _ = sh(&format!("sleep 1000 & echo $$ $! > {}; wait", pids.display())).run(
            &place.launch,
            &mut recorder(|_, _| {
                println!("scratch {}", place.launch.scratch.display());
            }),
        );
        return;
    }
    let mut us = again("a_command_and_its_children_end_when_we_are_killed");
    let mut us = us.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(us.stdout.take().unwrap()).lines().map_while(Result::ok);
    let scratch = lines
        .filter_map(|l| Some(l.split_once("scratch ")?.1.to_string()))
        .next()
        .unwrap();
    let file = Path::new(&scratch).join("pids");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(10);
    while !read().ends_with('\n') && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pids: Vec<i32> = read().split_whitespace().map(|p| p.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    assert!(!is_gone(pids[0]) && !is_gone(pids[1]));
    us.kill().unwrap();
    us.wait().unwrap();
    assert!(ends(pids[0]) && ends(pids[1]), "{pids:?}");
    std::fs::remove_dir_all(scratch).unwrap();
}

#[test]
fn a_program_that_is_missing_says_how_to_install_it() {
    let test = "a_program_that_is_missing_says_how_to_install_it";
    if std::env::var_os(PART).is_some() {
        for entry in catalogue() {
            let program = (entry.make)(0.001);
            // The built-in workloads are never missing.
            if program.ready().is_ok() {
                continue;
            }
            let place = place(10.0);
            let run = program.run(&place.launch, &mut recorder(|_, _| {})).unwrap_err();
            println!("missing {}: {run}; {}", entry.name, program.ready().unwrap_err());
        }
        return;
    }
    let mut child = again(test)
        .env("PATH", "/nonexistent")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let missing: Vec<&str> = text.lines().filter(|l| l.contains("missing ")).collect();
    assert_eq!(missing.len(), 25, "{text}");
    for line in missing {
        assert_eq!(line.matches("is not installed: apt install").count(), 2, "{line}");
    }
}

#[test]
fn huge_pages_are_taken_one_by_one_and_all_settings_are_as_before() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: hugetlb pages need root");
        return;
    }
    let settings = || {
        let of = |name: &str| std::fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap_or_default();
        ["nr_hugepages", "compaction_proactiveness"].map(of)
    };
    let original = settings();
    for before in [Before::Nothing, Before::Proactive] {
        let program = Allocation {
            before,
            count: Some(32),
            how: How::Hugetlb,
        };
        let mut watch = recorder(|_, _| ());
        let figures = program.run(&place(60.0).launch, &mut watch).unwrap();
        assert_eq!(watch.phases, ["prepare", "take"]);
        assert_eq!(figures.values["obtained"], 32.0);
        assert_eq!(figures.distributions["alloc"].count, 32);
        let (median, largest) = (figures.values["alloc_p50_ns"], figures.values["alloc_max_ns"]);
        assert!(median > 0.0 && median <= largest, "{figures:?}");
        assert_eq!(settings(), original);
    }
}
