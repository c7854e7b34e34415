//! Must hold 5: programs that do everything to their memory, under managers that promote and demote everything, keep their contents.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use mega_lab::variant::agent::{self, Agent};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{slow, Workload, MEGA};
use crate::tool::{
    from_env, has_fault_sizes, kill_9, mega, outcomes, ready, sample, Figures, Managed, Manager, Sample, FAST, LONG,
};

/// Promotes all that has a page.
const PROMOTE: &[&str] = &[
    "--policy",
    "khugepaged",
    "--set",
    "pages_to_scan=100000000",
    "--set",
    "scan_sleep_s=1",
];
/// Demotes all that is huge, while faults make huge pages (for both storms), where the kernel can be told to.
const DEMOTE: &[&str] = &["--policy", "base", "--fault-size", "2M"];
const DEMOTE_ONLY: &[&str] = &["--policy", "base"];
/// Does both, for the least of reasons.
const BOTH: &[&str] = &[
    "--policy",
    "mega",
    "--set",
    "n=1",
    "--set",
    "history=lived",
    "--set",
    "start_utracking=30%",
    "--set",
    "stop_utracking=10%",
    "--set",
    "mprom=30%",
    "--set",
    "uprom=1%",
    "--set",
    "mdem=5%",
    "--set",
    "udem=1%",
    "--set",
    "zdem=71%",
];

/// The most that a manager may have resident, in KB: 32 MB and a little.
const RSS_MAX_KIB: u64 = 36 << 10;
/// The most that it may have grown since a quarter of its time.
const GROWTH_MAX_KIB: u64 = 6 << 10;
/// Descriptors that a manager may have at any time: the eBPF scanner keeps up to 256 links to processes, the least lately used ones go;
/// the rest is its own and one for each process.
const DESCRIPTORS_MAX: usize = 256 + 64;

/// What all managers did, and the worst that was seen of them.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<String, u64>,
    managers: usize,
    most_rss_kib: u64,
    most_descriptors: usize,
    most_growth_kib: u64,
}

impl Tally {
    fn add(&mut self, managed: &Managed, early: Sample, late: Sample) {
        assert_eq!(managed.ended.code(), 0, "{}", managed.ended.stderr);
        assert!(!managed.ended.stderr.contains("panicked"), "{}", managed.ended.stderr);
        for (what, count) in outcomes(&managed.lines) {
            *self.outcomes.entry(what).or_default() += count;
        }
        self.managers += 1;
        self.most_rss_kib = self.most_rss_kib.max(early.rss_kib).max(late.rss_kib);
        self.most_descriptors = self.most_descriptors.max(early.descriptors).max(late.descriptors);
        self.most_growth_kib = self.most_growth_kib.max(late.rss_kib.saturating_sub(early.rss_kib));
    }

    fn of(&self, what: &str) -> u64 {
        self.outcomes.get(what).copied().unwrap_or(0)
    }
}

fn manage(pid: i32, how: &[&str]) -> Manager {
    let pid_text = pid.to_string();
    let args: Vec<&str> = FAST.iter().chain(how).copied().chain([pid_text.as_str()]).collect();
    let mut manager = Manager::start("manage", &args);
    manager.wait_found(pid as u32);
    manager
}

/// An environment with the agent, which leaves its pages in the folder.
fn with_agent(folder: &Path) -> Vec<String> {
    let library = agent::library(Path::new(MEGA)).unwrap_or_else(|why| panic!("{why}"));
    let text = |(name, value): &(OsString, OsString)| format!("{}={}", name.to_str().unwrap(), value.to_str().unwrap());
    Agent::default()
        .environment(&library, folder, None, None)
        .iter()
        .map(text)
        .collect()
}

/// What sets the environment before a command.
fn env_words(env: &[String]) -> Vec<&str> {
    [&["env"], env.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat()
}

/// At the lowest priority: a storm takes all the time that there is, and managers come before it, as does whatever else this machine does.
/// `env` sets its environment.
fn storm(seconds: u64, seed: &str, env: &[String]) -> Workload {
    let seconds = seconds.to_string();
    let args = [
        "storm",
        "--seconds",
        &seconds,
        "--threads",
        "2",
        "--memory-mib",
        "384",
        "--seed",
        seed,
    ];
    let prefix = [["nice", "-n", "19"].as_slice(), &env_words(env)].concat();
    Workload::start_under(&prefix, &args).0
}

fn calm(mut storm: Workload, name: &str, figures: &Figures) -> Value {
    let result = storm.wait_event("result", Duration::from_secs(180));
    assert_eq!(result["ok"], true, "storm {name}: {result}");
    let status = storm.wait(LONG);
    assert!(status.success(), "storm {name}: {status}");
    figures.say(format!(
        "storm {name}: {} operations, {} pages verified",
        result["operations"], result["verified_pages"]
    ));
    result
}

#[test]
fn a_storm_keeps_its_contents_whatever_managers_do() {
    let Some(_alone) = ready(3 * 1024) else { return };
    let figures = Figures::of("storm");
    let seconds = from_env("MEGA_STORM_SECONDS", 120).max(15);
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    // One storm has managers of every kind in turn, the other a single one for all the time, and the agent inside: in itself and in all the
    // processes that it forks and executes.
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        storm(seconds, "1", &[]),
        storm(seconds, "2", &with_agent(folder.path())),
    );
    let lasting = manage(second.pid, BOTH);
    let mut lasting_early = None;
    let mut tally = Tally::default();
    let turn = Duration::from_secs_f64((seconds as f64 / 6.0).min(20.0));
    let demote = if has_fault_sizes() { DEMOTE } else { DEMOTE_ONLY };
    for how in [PROMOTE, demote, BOTH].iter().cycle() {
        let left = end.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(3) {
            break;
        }
        // The last one sees the storm end.
        let turn = if left < turn * 3 / 2 { left } else { turn };
        let manager = manage(first.pid, how);
        let pid = manager.program.pid();
        std::thread::sleep(turn / 4);
        let early = sample(pid).expect("the manager lives");
        std::thread::sleep(turn / 2);
        // The storm, and so the last manager, may have ended a little before its time.
        let late = sample(pid).unwrap_or(early);
        if left > turn {
            std::thread::sleep(turn / 4);
        }
        let managed = if left == turn {
            manager.wait(Duration::from_secs(120))
        } else {
            manager.stop()
        };
        tally.add(&managed, early, late);
        if lasting_early.is_none() && began.elapsed() >= Duration::from_secs(seconds / 4) {
            lasting_early = sample(lasting.program.pid());
        }
    }
    let late = sample(lasting.program.pid());
    calm(first, "under managers in turn", &figures);
    calm(second, "under one manager", &figures);
    let did = mega_lab::measure::agent::read(folder.path()).expect("pages of agents");
    figures.say(format!("agents: {did:?}"));
    assert!(did["agent_look_ns"] > 0.0, "the agent was not at work: {did:?}");
    let lasting = lasting.wait(LONG);
    let mut alone_tally = Tally::default();
    let early = lasting_early.expect("a quarter of the time passed");
    alone_tally.add(&lasting, early, late.unwrap_or(early));

    for (name, tally) in [("in turn", &tally), ("lasting", &alone_tally)] {
        figures.say(format!(
            "managers {name}: {}, at most {} KB resident ({} KB grown since a quarter), {} descriptors; {:?}",
            tally.managers, tally.most_rss_kib, tally.most_growth_kib, tally.most_descriptors, tally.outcomes
        ));
    }
    for (name, tally) in [("in turn", &tally), ("lasting", &alone_tally)] {
        // In large numbers, however busy the machine is: several hundred in the time that the test takes by default.
        for what in ["Promote done", "Demote done"] {
            assert!(
                tally.of(what) > seconds / 2 / slow(),
                "{name}, {what}: {:?}",
                tally.outcomes
            );
        }
        let nameless: Vec<_> = tally.outcomes.keys().filter(|what| what.contains("failed")).collect();
        assert!(nameless.is_empty(), "{name}: failures without a name: {nameless:?}");
        assert!(
            tally.most_rss_kib <= RSS_MAX_KIB,
            "{name}: {} KB resident",
            tally.most_rss_kib
        );
        assert!(
            tally.most_growth_kib <= GROWTH_MAX_KIB,
            "{name}: grew by {} KB",
            tally.most_growth_kib
        );
        assert!(
            tally.most_descriptors <= DESCRIPTORS_MAX,
            "{name}: {} descriptors",
            tally.most_descriptors
        );
    }
}

/// Programs whose memory is filled densely, so that the agent has something to do; each compares what it finds there with what it wrote.
const FILLED: [&[&str]; 4] = [
    &["grow", "--mib", "512", "--times", "4"],
    &["rehash", "--mib", "256", "--seconds", "6"],
    &["arenas", "--mib", "256", "--threads", "8", "--times", "3"],
    &["forks", "--mib", "512", "--times", "40"],
];

/// Who is killed while such a program runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Killed {
    Nobody,
    Helper,
    Manager,
    Both,
}

#[test]
fn programs_with_the_agent_inside_keep_their_contents_whoever_is_killed() {
    let Some(_alone) = ready(3 * 1024) else { return };
    let figures = Figures::of("storm with agents");
    let mut did = BTreeMap::<String, f64>::new();
    let mut helpers_killed = 0;
    for (round, args) in FILLED.iter().enumerate() {
        for killed in [Killed::Nobody, Killed::Helper, Killed::Manager, Killed::Both] {
            // All of it takes too long: each program under two of them.
            if (round + killed as usize) % 2 == 1 {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let mut program = Workload::born_under(&env_words(&with_agent(folder.path())), args);
            let mut manager = Some(manage(program.pid, BOTH));
            program.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(400));
            if matches!(killed, Killed::Helper | Killed::Both) {
                // Once the program has threads, a thread of its own took over.
                let late = Instant::now() + Duration::from_secs(5);
                let mut helpers = helpers_of(program.pid);
                while helpers.is_empty() && Instant::now() < late {
                    std::thread::sleep(Duration::from_millis(20));
                    helpers = helpers_of(program.pid);
                }
                for helper in helpers {
                    kill_9(helper);
                    helpers_killed += 1;
                }
            }
            if matches!(killed, Killed::Manager | Killed::Both) {
                let dead = manager.take().unwrap();
                dead.program.signal(Signal::KILL);
                dead.wait(LONG);
            }
            program.wait_event("result", Duration::from_secs(120));
            let status = program.wait(LONG);
            assert!(status.success(), "{args:?}, {killed:?}: {status}");
            if let Some(manager) = manager {
                let ended = manager.wait(LONG).ended;
                assert_eq!(ended.code(), 0, "{args:?}, {killed:?}: {}", ended.stderr);
            }
            for (name, value) in mega_lab::measure::agent::read(folder.path()).expect("pages of agents") {
                *did.entry(name).or_default() += value;
            }
        }
    }
    let off = mega(&["off"]);
    assert_eq!(off.code(), 0, "{}", off.stderr);
    figures.say(format!("{helpers_killed} helpers killed; agents: {did:?}"));
    let acted = did["agent_advised"] + did["agent_populated"] + did["agent_collapsed"];
    assert!(
        acted > 0.0 && helpers_killed > 0,
        "{helpers_killed} helpers killed; {did:?}"
    );
}

/// Processes that help this one from inside.
fn helpers_of(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(helper) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = format!(" {pid} ");
        let is_ours = stat
            .split_once(" (mega-agent) ")
            .is_some_and(|(_, rest)| rest.get(1..).is_some_and(|rest| rest.starts_with(&parent)));
        if is_ours {
            found.push(helper);
        }
    }
    found
}
