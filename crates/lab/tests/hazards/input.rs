//! Must hold 8: whatever is asked or found wrong: one clear line, the right exit status, and nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{wait_until, Workload, MEGA};
use crate::tool::{done_on, found, mega, ready, settings, state_files, Ended, Manager, Program, FAST, LONG, STATE};

const SOON: Duration = LONG;

/// Refused with this status by one line of ours that has all of these words.
#[track_caller]
fn one_line(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!(ended.code(), status, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("mega: "), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    says(ended, words);
}

/// Refused by the parser of the command line, which says how it should be on several lines.
#[track_caller]
fn usage(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!(ended.code(), status, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    says(ended, words);
}

#[track_caller]
fn says(ended: &Ended, words: &[&str]) {
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "'{word}' is not in: {}", ended.stderr);
    }
}

/// Runs a test that must leave settings and state as they are.
fn leaving_nothing(test: impl FnOnce()) {
    let Some(_alone) = ready(1024) else { return };
    let (before, state) = (settings(), state_files());
    test();
    assert_eq!(settings(), before, "settings are changed");
    assert_eq!(state_files(), state, "state is left behind");
}

fn sleeper() -> Program {
    Program::start(Command::new("sleep").arg("120").stdin(Stdio::null()))
}

#[test]
fn policies_and_parameters_that_make_no_sense() {
    leaving_nothing(|| {
        let pid = std::process::id().to_string();
        one_line(&mega(&["manage", "--policy", "nope", &pid]), 2, &["nope", "khugepaged"]);
        let fault_time = mega(&["manage", "--policy", "lrbhps", &pid]);
        one_line(&fault_time, 2, &["lrbhps", "page faults", "simulator"]);
        for (set, words) in [
            ("nope=1", &["nope"][..]),
            ("garbage", &["garbage", "KEY=VALUE"]),
            ("", &["KEY=VALUE"]),
            ("=", &[]),
            ("n=", &["n"]),
            ("n=x", &["n"]),
            ("n=0", &["n"]),
            ("n=99999999999999999999", &["n"]),
            ("uprom=200%", &["uprom"]),
            ("uprom=-1%", &["uprom"]),
            ("uprom=50%=50%", &["uprom"]),
            ("history=half", &["history"]),
            // Tracking would stop before it starts.
            ("stop_utracking=80%", &["stop_utracking", "start_utracking"]),
            ("udem=80%", &["udem", "uprom"]),
        ] {
            let mega_set = ["--policy", "mega", "--set", set];
            one_line(&mega(&[&["manage"], &mega_set[..], &[&pid]].concat()), 2, words);
            one_line(&mega(&[&["run"], &mega_set[..], &["--", "true"]].concat()), 125, words);
        }
        for (set, words) in [
            ("for=speed", &["for", "latency"][..]),
            ("density=40%", &["density"]),
            ("uprom=50%", &["uprom"]),
        ] {
            one_line(&mega(&["run", "--set", set, "--", "true"]), 125, words);
        }
        one_line(&mega(&["policies", "nope"]), 2, &["nope"]);
    });
}

#[test]
fn numbers_that_make_no_sense() {
    leaving_nothing(|| {
        let pid = std::process::id().to_string();
        for (option, value) in [
            ("--interval", "0"),
            ("--interval", "0s"),
            ("--interval", "1ms"),
            ("--interval", "-5s"),
            ("--interval", "99999999999999999999s"),
            ("--interval", "18446744073709551615s"),
            ("--interval", "1e400s"),
            ("--interval", "NaNs"),
            ("--duration", "999999999h"),
            ("--stall-budget", "0%"),
            ("--stall-budget", "1000%"),
            ("--cpu-budget", "many"),
            ("--free-memory", "-1%"),
            ("--free-blocks", "99999999999999999999"),
            ("--free-blocks", "-1"),
            ("--fault-size", "3K"),
            ("--scanner", "guess"),
        ] {
            // As one word, so that a sign is not taken for an option.
            let word = format!("{option}={value}");
            usage(&mega(&["manage", &word, &pid]), 2, &[option]);
            usage(&mega(&["run", &word, "--", "true"]), 125, &[option]);
        }
        for pid in ["0", "-1", "4294967296", "99999999999999999999", "me", ""] {
            usage(&mega(&["manage", "--", pid]), 2, &["PID"]);
        }
        usage(&mega(&["run"]), 125, &["CMD"]);
        usage(&mega(&["manage", "--journal-full", &pid]), 2, &["--journal"]);
        // The longest that may be asked for is no trouble.
        let ended = mega(&["manage", "--interval", "8784h", "--duration", "300ms", &pid]);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
    });
}

#[test]
fn processes_that_cannot_be_managed() {
    leaving_nothing(|| {
        let mut ended = Command::new("true").spawn().unwrap();
        let gone = ended.id().to_string();
        ended.wait().unwrap();
        one_line(&mega(&["manage", &gone]), 1, &[&gone, "no such process"]);
        one_line(&mega(&["show", &gone]), 1, &[&gone]);
        one_line(&mega(&["manage", "2147483647"]), 1, &["2147483647", "no such process"]);

        let root = mega_linux::proc::ProcRoot::default();
        let pids = mega_linux::proc::task::processes(&root).unwrap();
        let kernel = pids.iter().find(|pid| {
            let stat = mega_linux::proc::stat::read(&root, **pid);
            stat.is_ok_and(|stat| {
                stat.is_kernel_thread() && (stat.comm.starts_with("kswapd") || stat.comm.starts_with("kthreadd"))
            })
        });
        let kernel = kernel.expect("every kernel has such a thread").to_string();
        one_line(&mega(&["manage", &kernel]), 1, &[&kernel, "kernel thread"]);

        let us = fs::read_link("/proc/thread-self").unwrap();
        let tid = us.file_name().unwrap().to_str().unwrap().to_string();
        assert_ne!(
            tid,
            std::process::id().to_string(),
            "a test runs in a thread of its own"
        );
        one_line(&mega(&["manage", &tid]), 1, &[&tid, "thread"]);

        one_line(&mega(&["manage"]), 2, &["PID", "--comm", "--cgroup", "--unit"]);
        one_line(&mega(&["manage", "--comm", "x", "1"]), 2, &["exactly one"]);
        one_line(&mega(&["manage", "--comm", "x", "--unit", "y"]), 2, &["exactly one"]);
        one_line(&mega(&["manage", "--comm", "("]), 2, &["("]);
        one_line(
            &mega(&["manage", "--cgroup", "/no/such/group"]),
            1,
            &["/no/such/group", "not found"],
        );
        one_line(&mega(&["manage", "--cgroup", "/../../etc"]), 1, &[".."]);
        one_line(&mega(&["manage", "--unit", "../etc"]), 1, &["../etc"]);
    });
}

#[test]
fn two_managers_on_one_process() {
    leaving_nothing(|| {
        let sleeper = sleeper();
        let pid = sleeper.pid().to_string();
        let mut first = Manager::start("manage", &["--interval", "100ms", &pid]);
        first.wait_found(sleeper.pid());
        let holder = first.program.pid().to_string();
        one_line(&mega(&["manage", &pid]), 1, &[&pid, "already managed", &holder]);
        one_line(&mega(&["manage", "-q", &pid]), 1, &[&pid, "already managed", &holder]);
        // With another one that can be managed it manages that one, and says which it does not.
        let other = self::sleeper();
        let managed = Manager::start(
            "manage",
            &[
                "--interval",
                "100ms",
                "--duration",
                "500ms",
                &pid,
                &other.pid().to_string(),
            ],
        )
        .wait(SOON);
        one_line(&managed.ended, 0, &[&pid, "already managed", &holder]);
        assert_eq!(found(&managed.lines).into_keys().collect::<Vec<_>>(), [other.pid()]);
        // The first one has noticed nothing.
        assert!(first.program.is_running());
        let first = first.stop();
        assert_eq!((first.ended.code(), first.ended.complaints().as_str()), (0, ""));
    });
}

#[test]
fn commands_that_cannot_be_run() {
    leaving_nothing(|| {
        one_line(
            &mega(&["run", "--", "no-such-command-here"]),
            127,
            &["no-such-command-here"],
        );
        one_line(&mega(&["run", "--", "/no/such/command"]), 127, &["/no/such/command"]);
        one_line(&mega(&["run", "--", ""]), 127, &[]);
        one_line(&mega(&["run", "--", "/etc"]), 126, &["/etc"]);
        one_line(&mega(&["run", "--", "/etc/passwd"]), 126, &["/etc/passwd"]);
        one_line(
            &mega(&["run", "--fault-size", "64K", "--", "/no/such/command"]),
            127,
            &[],
        );
        one_line(&mega(&["run", "--policy", "nope", "--", "true"]), 125, &["nope"]);
    });
}

#[test]
fn journals_that_cannot_be_written() {
    leaving_nothing(|| {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("ran");
        let path = folder.path().to_str().unwrap();
        let pid = std::process::id().to_string();
        for journal in ["/no/such/folder/journal", path] {
            one_line(&mega(&["manage", "--journal", journal, &pid]), 1, &[journal]);
            let touch = marker.to_str().unwrap();
            one_line(
                &mega(&["run", "--journal", journal, "--", "touch", touch]),
                125,
                &[journal],
            );
            assert!(
                !marker.exists(),
                "the command was run although its journal could not be written"
            );
        }
        // A disk that is full while managing: said once, managing goes on. What else is said is the machine's: that scans take long, say.
        let full = [
            "manage",
            "--journal",
            "/dev/full",
            "--interval",
            "100ms",
            "--duration",
            "1500ms",
        ];
        let full = mega(&[&full, &[&*pid][..]].concat());
        says(&full, &[]);
        let said = |text: &str| full.stderr.lines().filter(|line| line.contains(text)).count();
        assert_eq!(said("the journal cannot be written: "), 1, "{}", full.stderr);
        assert_eq!(said("cannot write the journal: "), 1, "at the end: {}", full.stderr);
        assert_eq!(said("mega: "), full.stderr.lines().count(), "{}", full.stderr);
        assert_eq!(full.code(), 1);
    });
}

#[test]
fn journals_that_make_no_sense() {
    leaving_nothing(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path.to_str().unwrap().to_string()
        };
        let pid = std::process::id().to_string();
        let good = folder.path().join("good");
        let journal = ["--journal", good.to_str().unwrap(), "--journal-full"];
        let args: Vec<&str> = ["manage", "--interval", "100ms", "--duration", "600ms"]
            .into_iter()
            .chain(journal)
            .chain([&*pid])
            .collect();
        assert_eq!(mega(&args).code(), 0);
        assert_eq!(mega(&["replay", good.to_str().unwrap()]).code(), 0);
        let text = fs::read_to_string(&good).unwrap();
        let without_start: String = text.lines().skip(1).flat_map(|line| [line, "\n"]).collect();
        let third = text.lines().nth(2).unwrap();
        let (front, _) = third.split_once('=').unwrap();
        let cut = text.replacen(third, front, 1);
        one_line(&mega(&["replay", "/no/such/journal"]), 1, &["/no/such/journal"]);
        one_line(&mega(&["replay", folder.path().to_str().unwrap()]), 1, &[]);
        one_line(&mega(&["replay", &file("empty", b"")]), 1, &["start"]);
        one_line(
            &mega(&["replay", &file("words", b"these are no events\n")]),
            1,
            &["line 1"],
        );
        one_line(&mega(&["replay", &file("bytes", b"\xff\xfe\x00\n")]), 1, &["line 1"]);
        one_line(
            &mega(&["replay", &file("long", &vec![b'x'; 1 << 20])]),
            1,
            &["line 1", "too long"],
        );
        one_line(&mega(&["replay", "/dev/zero"]), 1, &["line 1", "too long"]);
        one_line(&mega(&["replay", &file("cut", cut.as_bytes())]), 1, &["line 3"]);
        let last = format!("line {}", text.lines().count());
        one_line(
            &mega(&["replay", &file("endless", text.trim_end().as_bytes())]),
            1,
            &[&last, "cut short"],
        );
        one_line(
            &mega(&["replay", &file("headless", without_start.as_bytes())]),
            1,
            &["start"],
        );
    });
}

#[test]
fn traces_that_make_no_sense_and_places_that_cannot_be_written() {
    leaving_nothing(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
        let file = |name: &str, bytes: &[u8]| {
            fs::write(path(name), bytes).unwrap();
            path(name)
        };
        let good = path("good");
        let small = r#"{"mib": 1, "updates": 100000}"#;
        let made = mega(&["record", "-o", &good, "--workload", "gups", "--options", small]);
        one_line(&made, 0, &["accesses", &good]);
        let bytes = fs::read(&good).unwrap();
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        let mut newer = bytes.clone();
        newer[9] = 2;
        for (name, content, word) in [
            ("empty", &b""[..], "magic: the input ends here"),
            ("words", b"these are no records\n", "magic"),
            ("cut", &bytes[..bytes.len() - 30], "the input ends here"),
            ("half", &bytes[..bytes.len() / 2], "the input ends here"),
            ("changed", &changed, "checksum"),
            ("newer", &newer, "version"),
            ("longer", &[&bytes[..], b"x"].concat(), "bytes follow the end"),
        ] {
            let bad = file(name, content);
            let words = [&*bad, "byte", word];
            one_line(&mega(&["record", "--info", &bad]), 1, &words);
            let tables = path("tables.parquet");
            let exported = mega(&["record", "--export", &tables, &bad]);
            assert_eq!(exported.code(), 1, "{}", exported.stderr);
            says(&exported, &words);
            let replayed = mega(&["replay", &bad, "--policy", "base"]);
            assert_eq!(replayed.code(), 1, "{name}: {}", replayed.stderr);
            assert_eq!(replayed.stderr.lines().count(), 1, "{}", replayed.stderr);
        }
        // What was read before the end is told all the same.
        let told = mega(&["record", "--json", "--info", &path("half")]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert!(
            told["whole"] == false && told["error"].as_str().unwrap().contains("ends here"),
            "{told}"
        );
        for nothing in ["/no/such/trace", folder.path().to_str().unwrap(), "/dev/zero"] {
            one_line(&mega(&["record", "--info", nothing]), 1, &[nothing]);
        }

        // Accesses and no scans.
        one_line(
            &mega(&["sim", "run", "--trace", &good, "--scans", "-q", "-o", &path("results")]),
            1,
            &["no scan shows memory"],
        );
        one_line(&mega(&["sim", "accuracy", "churn"]), 2, &["churn", "give --held-out"]);
        one_line(
            &mega(&["sim", "accuracy", "--held-out", "touch"]),
            2,
            &["touch", "leave out --held-out"],
        );
        let bench = ["bench", "programs", "--record", &path("results"), "--variants", "auto"];
        usage(&mega(&bench), 2, &["--variants"]);
        one_line(&mega(&["replay", &good]), 2, &["--policy"]);
        one_line(&mega(&["replay", &good, "--policy", "nope"]), 2, &["nope"]);
        one_line(&mega(&["replay", &good, "--policy", "mega"]), 1, &[&good, "no scans"]);
        usage(&mega(&["replay", &good, "--set", "n=1"]), 2, &["--policy"]);

        let to = path("to");
        for (text, word) in [
            (&b"r 1\nx 2\n"[..], "line 2, column 1"),
            (b"\xff\n", "line 1"),
            (b"r\0 1\n", "line 1"),
        ] {
            let bad = file("text", text);
            one_line(
                &mega(&["record", "-o", &to, "--import", "text", &bad]),
                1,
                &[&bad, word],
            );
        }
        let log = file("log", b" L 10,8\n L zz,8\n");
        one_line(
            &mega(&["record", "-o", &to, "--import", "lackey", &log]),
            1,
            &[&log, "line 2"],
        );
        one_line(
            &mega(&["record", "-o", &to, "--import", "perf", &log]),
            2,
            &["perf", "lackey", "text"],
        );
        one_line(
            &mega(&["record", "-o", &to, "--import", "text", "/no/such"]),
            1,
            &["/no/such"],
        );
        one_line(&mega(&["record", "--export", &to, &good]), 2, &[".parquet"]);
        one_line(
            &mega(&["record", "--export", "/no/such/t.parquet", &good]),
            1,
            &["/no/such/t.parquet"],
        );

        let gups = |options: &str| mega(&["record", "-o", &to, "--workload", "gups", "--options", options]);
        one_line(
            &mega(&["record", "-o", &to, "--workload", "gusp"]),
            2,
            &["gusp", "gups"],
        );
        for (options, word) in [
            ("{", "--options"),
            ("[]", "--options"),
            (r#"{"mob": 1}"#, "mob"),
            (r#"{"mib": -1}"#, "--options"),
            (r#"{"mib": 99999999999999}"#, "MiB"),
        ] {
            one_line(&gups(options), 2, &[word]);
        }
        one_line(&gups(r#"{"mib": 100000000}"#), 1, &["no memory"]);

        let pid = sleeper();
        let pid = pid.pid().to_string();
        let short = ["--interval", "100ms", "--duration", "300ms"];
        for bad in ["/no/such/folder/trace", folder.path().to_str().unwrap(), "/dev/full"] {
            one_line(&mega(&[&["record", "-o", bad, &pid], &short[..]].concat()), 1, &[bad]);
            one_line(
                &mega(&["record", "-o", bad, "--workload", "gups", "--options", small]),
                1,
                &[bad],
            );
            one_line(&mega(&["record", "-o", bad, "--", "sleep", "0.5"]), 125, &[bad]);
        }
        let mut ended = Command::new("true").spawn().unwrap();
        let gone = ended.id().to_string();
        ended.wait().unwrap();
        one_line(&mega(&["record", "-o", &to, &gone]), 1, &[&gone, "no such process"]);
        one_line(
            &mega(&["record", "-o", &to, "--", "no-such-command-here"]),
            127,
            &["no-such-command-here"],
        );
        one_line(&mega(&["record", "-o", &to, "--", "/etc"]), 126, &["/etc"]);
        usage(&mega(&["record", "-o", &to]), 2, &["PID"]);
        usage(&mega(&["record", &gone]), 2, &["--output"]);
    });
}

#[test]
fn state_that_makes_no_sense() {
    leaving_nothing(|| {
        let pid = std::process::id().to_string();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(mega(&["off"]).code(), 0, "makes the folders");
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), "precious\n").unwrap();
        // A dead manager that would have us write somewhere else.
        let evil = serde_json::json!({
            "schema": 1, "manager": {"pid": 4_194_303, "start_ticks": 1, "boot": boot.trim()},
            "knobs": {outside.path().to_str().unwrap(): {"original": "ours", "ours": ["precious"]}}
        });
        for (name, text) in [
            ("garbage", "}{".to_string()),
            ("half", "{\"schema\": 1".into()),
            ("empty", String::new()),
            ("evil", evil.to_string()),
        ] {
            for way in [
                &["off"][..],
                &["manage", "--interval", "100ms", "--duration", "300ms", &pid],
            ] {
                let path = Path::new(STATE).join(format!("knobs/{name}.json"));
                fs::write(&path, &text).unwrap();
                let ended = mega(way);
                let aside = path.with_extension("corrupt");
                let kept = fs::read_to_string(&aside);
                let _ = (fs::remove_file(&aside), fs::remove_file(&path));
                assert_eq!(ended.code(), 0, "{name}: {}", ended.stderr);
                assert_eq!(kept.ok().as_ref(), Some(&text), "{name}: what made no sense is kept");
                let out = if way.len() == 1 {
                    String::from_utf8_lossy(&ended.stdout).into_owned()
                } else {
                    ended.stderr
                };
                assert!(
                    out.contains("a corrupt state file") && out.lines().count() == 1,
                    "{name}: {out}"
                );
            }
        }
        assert_eq!(fs::read_to_string(outside.path()).unwrap(), "precious\n");
        // A claim that makes no sense claims nothing.
        let sleeper = sleeper();
        let stat = mega_linux::proc::stat::read(&mega_linux::proc::ProcRoot::default(), sleeper.pid()).unwrap();
        let claim = Path::new(STATE).join(format!("claims/{}-{}.json", sleeper.pid(), stat.start_ticks));
        fs::write(&claim, "}{").unwrap();
        let ended = mega(&[
            "manage",
            "--interval",
            "100ms",
            "--duration",
            "300ms",
            &sleeper.pid().to_string(),
        ]);
        assert_eq!((ended.code(), ended.complaints().as_str()), (0, ""));
        assert!(!claim.exists());
    });
}

/// A command line that runs `mega` with less than root has; none (said) where that cannot be.
fn less(prefix: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let trial = Command::new(prefix[0]).args(&prefix[1..]).arg("true").output();
    if !trial.as_ref().is_ok_and(|out| out.status.success()) {
        eprintln!("SKIPPED: '{}' does not work here: {trial:?}", prefix.join(" "));
        return None;
    }
    // Where everyone can reach it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("mega");
    assert!(Command::new("cp").arg(MEGA).arg(&copy).status().unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    Some((folder, copy))
}

fn with_prefix(prefix: &[&str], copy: &Path, args: &[&str]) -> Ended {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(copy).args(args).stdin(Stdio::null());
    Program::start(&mut command).wait(SOON)
}

#[test]
fn without_privileges() {
    leaving_nothing(|| {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let Some((folder, copy)) = less(&nobody) else { return };
        let sleeper = sleeper();
        let pid = sleeper.pid().to_string();
        let words = ["cap-sys-ptrace", "CAP_SYS_PTRACE", "Run it as root", "work"];
        one_line(&with_prefix(&nobody, &copy, &["manage", &pid]), 1, &words);
        one_line(&with_prefix(&nobody, &copy, &["run", "--", "true"]), 125, &words);
        let journal = folder.path().join("journal");
        one_line(
            &with_prefix(
                &nobody,
                &copy,
                &["manage", "--journal", journal.to_str().unwrap(), &pid],
            ),
            1,
            &words,
        );
        assert!(!journal.exists());
        // Two: that eBPF is refused, and that this process is not ours to see.
        let shown = with_prefix(&nobody, &copy, &["show", &pid]);
        assert_eq!((shown.code(), shown.stderr.lines().count()), (1, 2), "{}", shown.stderr);
        says(&shown, &[&pid, "Permission denied"]);
        assert_eq!(
            shown
                .stderr
                .lines()
                .last()
                .unwrap()
                .matches("Permission denied")
                .count(),
            1,
            "{}",
            shown.stderr
        );
        let off = with_prefix(&nobody, &copy, &["off"]);
        one_line(&off, 1, &["/run/mega"]);
        // What it says still works does.
        for args in [&["doctor"][..], &["policies"], &["doctor", "--json"]] {
            let ended = with_prefix(&nobody, &copy, args);
            assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{args:?}");
        }
        let own = format!("sleep 20 & {} show $!; s=$?; kill $!; exit $s", copy.display());
        let mut command = Command::new(nobody[0]);
        let ended = Program::start(command.args(&nobody[1..]).args(["sh", "-c", &own])).wait(SOON);
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        let _ = ended;
    });
}

#[test]
fn where_ebpf_is_refused_it_is_said_once_and_something_else_is_used() {
    leaving_nothing(|| {
        let without = ["setpriv", "--bounding-set", "-bpf,-sys_admin"];
        let Some((folder, copy)) = less(&without) else { return };
        let (mut program, _) = Workload::start(&["kinds", "--regions", "8"]);
        let pid = program.pid.to_string();
        let journal = folder.path().join("journal");
        let run = |policy: &[&str], duration: &str| {
            let journal = journal.to_str().unwrap();
            let fixed = [
                "manage",
                "--journal",
                journal,
                "--interval",
                "200ms",
                "--duration",
                duration,
                "--free-blocks",
                "0",
                "--stall-budget",
                "50%",
                "--cpu-budget",
                "100%",
            ];
            let args: Vec<&str> = fixed.iter().chain(policy).copied().chain([&*pid]).collect();
            with_prefix(&without, &copy, &args)
        };
        let first = run(&["--policy", "mega"], "3s");
        if first.stderr.contains("needs Linux 6.7") {
            // Who may not load BPF may not see frame numbers either, and there is no third way before 6.7.
            one_line(&first, 1, &["ebpf", "frame numbers are hidden (needs CAP_SYS_ADMIN)"]);
            eprintln!(
                "EXPECTED: no scanner without CAP_SYS_ADMIN: {}",
                first.stderr.trim_end()
            );
            return;
        }
        let good = |ended: &Ended| {
            assert_eq!(ended.code(), 0, "{}", ended.stderr);
            assert!(
                ended.stderr.lines().all(|line| line.starts_with("mega: ")),
                "{}",
                ended.stderr
            );
            assert_eq!(ended.stderr.matches("using pagemap").count(), 1, "{}", ended.stderr);
        };
        good(&first);
        says(&first, &["ebpf", "cannot see which pages are accessed: policy 'mega'"]);
        let khugepaged = [
            "--policy",
            "khugepaged",
            "--set",
            "scan_sleep_s=1",
            "--set",
            "pages_to_scan=100000000",
        ];
        let mut done = 0;
        // Longer where the processor is slow: one promotion takes an emulated one as long as a scan.
        for duration in ["3s", "25s"] {
            let ended = run(&khugepaged, duration);
            good(&ended);
            assert!(
                !ended.stderr.contains("cannot see which pages"),
                "this policy does not ask for it: {}",
                ended.stderr
            );
            done += done_on(&crate::support::read_journal(&journal), program.pid as u32);
            if done > 8 {
                break;
            }
        }
        assert!(done > 8, "{done}");
        program.check();
        let ended = with_prefix(&without, &copy, &["manage", "--scanner", "ebpf", &pid]);
        one_line(&ended, 1, &["ebpf"]);
        assert!(program.quit().success());
    });
}

#[test]
fn without_ebpf_promoting_and_demoting_work() {
    leaving_nothing(|| {
        for scanner in ["pagemap", "pagemap_scan", "pagemap-scan", "ebpf"] {
            let (mut program, _) = Workload::start(&["kinds", "--regions", "8"]);
            let pid = program.pid.to_string();
            for policy in [&["khugepaged", "--set", "pages_to_scan=100000000"][..], &["base"]] {
                // FAST has a budget for slow processors: within the default one an emulated one promotes a region in some seconds.
                let how = ["--scanner", scanner, "--policy"];
                let args: Vec<&str> = FAST.iter().chain(&how).chain(policy).copied().chain([&*pid]).collect();
                let mut manager = Manager::start("manage", &args);
                let enough = |manager: &Manager| done_on(&manager.lines(), program.pid as u32) >= 16;
                let mut ended = false;
                let did = wait_until(SOON, || {
                    ended = !manager.program.is_running();
                    ended || enough(&manager)
                });
                let managed = if ended { manager.wait(SOON) } else { manager.stop() };
                if managed.ended.code() == 2 && scanner.contains('_') {
                    // The other spelling is the option's.
                    continue;
                }
                if managed.ended.code() == 1 && managed.ended.stderr.contains("needs Linux 6.7") {
                    one_line(&managed.ended, 1, &["PAGEMAP_SCAN"]);
                    eprintln!("EXPECTED: {}", managed.ended.stderr.trim_end());
                    continue;
                }
                assert_eq!(
                    (managed.ended.code(), managed.ended.complaints().as_str()),
                    (0, ""),
                    "{scanner}"
                );
                let done = done_on(&managed.lines, program.pid as u32);
                assert!(
                    did && done >= 16,
                    "{scanner}, {policy:?}: {done}; {:?}",
                    managed.lines.last()
                );
                program.check();
            }
            assert!(program.quit().success());
        }
    });
}

#[test]
fn where_proc_or_run_cannot_be_used() {
    leaving_nothing(|| {
        let inside = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", script, MEGA]).stdin(Stdio::null());
            Program::start(&mut command).wait(SOON)
        };
        if inside("mount -t tmpfs none /mnt").code() != 0 {
            eprintln!("SKIPPED: no mount namespace can be made here");
            return;
        }
        let pid = std::process::id();
        let no_proc = |command: &str| inside(&format!("mount -t tmpfs none /proc && exec \"$0\" {command}"));
        one_line(&no_proc(&format!("manage {pid}")), 1, &[]);
        one_line(&no_proc("run -- true"), 125, &[]);
        one_line(&no_proc(&format!("show {pid}")), 1, &[]);
        one_line(&no_proc("off"), 1, &["/proc"]);
        let doctor = no_proc("doctor");
        assert!(!doctor.stderr.contains("panicked"), "{}", doctor.stderr);
        let no_run = |command: &str| inside(&format!("mount -t tmpfs -o ro none /run && exec \"$0\" {command}"));
        one_line(&no_run(&format!("manage {pid}")), 1, &["/run/mega"]);
        one_line(&no_run("run -- true"), 125, &["/run/mega"]);
        // A state folder in which others may write is not believed.
        let not_ours = "mount -t tmpfs none /run && mkdir /run/mega && chown 1 /run/mega && exec \"$0\" ";
        one_line(
            &inside(&format!("{not_ours} manage {pid}")),
            1,
            &["/run/mega", "somebody else"],
        );
    });
}

#[test]
fn nobody_reads_what_we_say() {
    leaving_nothing(|| {
        let sleeper = sleeper();
        let mut child = Command::new(MEGA)
            .args([
                "manage",
                "-v",
                "--journal",
                "-",
                "--interval",
                "50ms",
                &sleeper.pid().to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(700));
        drop(child.stdout.take());
        drop(child.stderr.take());
        std::thread::sleep(Duration::from_millis(2500));
        assert!(
            child.try_wait().unwrap().is_none(),
            "managing ended with its reader: {:?}",
            child.wait()
        );
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_some_and(|code| code <= 1), "{status}");
    });
}

#[test]
fn a_workload_says_by_its_status_what_was_wrong() {
    leaving_nothing(|| {
        usage(&mega(&["workload"]), 2, &["ARGS"]);
        one_line(&mega(&["workload", "gusp"]), 2, &["gusp", "gups"]);
        one_line(&mega(&["workload", "gups", "--mib", "x"]), 2, &["--mib"]);
        one_line(&mega(&["workload", "gups", "--pin", "100000"]), 1, &["CPU"]);
        // It finds a word changed that another process wrote: here we do.
        let mut child = Command::new(MEGA)
            .args(["workload", "touch", "--mib", "16", "--wait-first"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "go").unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let event = lines.find(|line| line.contains("\"ready\"")).unwrap();
        let event: serde_json::Value = serde_json::from_str(&event).unwrap();
        let memory = fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{}/mem", child.id()))
            .unwrap();
        let at = event["areas"][0]["start"].as_u64().unwrap() + 5 * 4096 + 8;
        memory.write_all_at(&[1], at).unwrap();
        assert!(lines.any(|line| line.contains("\"result\"")));
        drop(input);
        let stderr = child.stderr.take().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3));
        let said = std::io::read_to_string(stderr).unwrap();
        assert!(
            said.starts_with("mega: corrupt memory:") && said.contains(&format!("{at:#x}")),
            "{said}"
        );
    });
}
