//! `mega run` with the agent: who gets it, who does not and is told so, and what it did. What the agent itself does is tested in crates/agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MIB: usize = 1 << 20;

/// The library that was built with this test.
fn library() -> PathBuf {
    let mega = Path::new(env!("CARGO_BIN_EXE_mega"));
    let folder = mega.parent().unwrap();
    let places = [folder.join("libmega_agent.so"), folder.join("deps/libmega_agent.so")];
    let found = places.into_iter().filter(|path| path.is_file());
    let newest = found.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds libmega_agent.so with this test")
}

fn run(options: &[&str]) -> Command {
    run_with_profiles(&[&["--no-profiles"], options].concat())
}

fn run_with_profiles(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    command
        .arg("run")
        .args(options)
        .env("MEGA_AGENT_LIBRARY", library())
        .env_remove("SUDO_UID")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: not root");
    }
    is_root
}

/// A folder that everybody may read, with this library and these programs. A child writes them: no sibling's child can hold them open.
fn for_everybody(programs: &[&Path]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copied = Command::new("install")
        .args(programs)
        .args([&library(), folder.path()])
        .status();
    assert!(copied.unwrap().success());
    folder
}

/// The program that other tests run: it fills memory, and says how much of it is huge once that is most of it, or after ten seconds.
#[test]
#[ignore = "a program for other tests"]
fn fill() {
    let mut memory = vec![0u8; 256 * MIB];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let huge = || {
        let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find(|line| line.starts_with("AnonHugePages")).unwrap();
        let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024
    };
    let began = Instant::now();
    while huge() < 192 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(memory.iter().step_by(4096).all(|&byte| byte == 1));
    println!("\nhuge {}", huge());
}

const FILL: [&str; 5] = ["fill", "--exact", "--ignored", "--nocapture", "--test-threads=1"];

/// How many MB of its memory the program found huge.
fn huge(output: &Output) -> usize {
    let said = text(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("huge "));
    line.unwrap_or_else(|| panic!("{said}{}", text(&output.stderr)))
        .parse()
        .unwrap()
}

/// Whether the machine maps huge pages where they are advised, and nowhere else.
fn is_advised() -> bool {
    let is_advised = fs::read_to_string(ENABLED).is_ok_and(|enabled| enabled.contains("[madvise]"));
    if !is_advised {
        eprintln!("SKIPPED: {ENABLED} is not madvise");
    }
    is_advised
}

/// What `mega run --json` says at its end.
fn summary(output: &Output) -> Value {
    let errors = text(&output.stderr);
    let mut lines = errors.lines();
    let summary = lines.find_map(|line| serde_json::from_str(line).ok());
    summary.unwrap_or_else(|| panic!("no summary: {errors}"))
}

#[test]
fn a_program_that_fills_memory_gets_huge_pages_and_the_summary_and_the_journal_say_by_whom() {
    if !is_root() || !is_advised() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let output = run(&["--agent", "--json", "--interval", "500ms", "--journal"])
        .arg(&journal)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(FILL)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(huge(&output) >= 192, "{}", text(&output.stderr));
    let agents = &summary(&output)["agents"];
    let of = |name: &str| agents[name].as_u64().unwrap();
    assert_eq!(of("programs"), 1, "{agents}");
    let made = of("advised_regions") + of("populated_regions") + of("collapsed");
    assert!(made >= 96, "{agents}");
    assert_eq!(agents["refused"].as_array().map(Vec::len), Some(0), "{agents}");
    let written = fs::read_to_string(&journal).unwrap();
    let last = written.lines().rfind(|line| line.contains("\"agent\""));
    let last: Value = serde_json::from_str(last.expect("an agent's line")).unwrap();
    for name in ["advised_regions", "populated_regions", "collapsed", "given_back"] {
        assert_eq!(last[name], agents[name], "{name}: {written}");
    }
    assert!(written.lines().next_back().unwrap().contains("\"stop\""));
    let left = fs::read_dir("/run/mega").unwrap().flatten();
    let left: Vec<_> = left
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("agents-"))
        .collect();
    let alive = |entry: &fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        Path::new("/proc").join(name.trim_start_matches("agents-")).exists()
    };
    assert!(left.iter().all(alive), "{left:?}");
}

#[test]
fn agents_are_left_alone_until_a_manager_is_needed() {
    if !is_root() {
        return;
    }
    const FILLS: &str = "my $s = 'x' x (100 << 20); sleep 2";
    for (options, words, is_scanned) in [
        (&["--json"][..], &["sleep", "0"][..], false),
        (&["--json"], &["sleep", "2.5"], false),
        (&["--json"], &["sleep", "5.7"], true),
        (&["--json"], &["env", "MEGA_AGENT=off", "perl", "-e", FILLS], true),
        (&["--json"], &["perl", "-e", FILLS], false),
        (&["--json", "--duration", "1s"], &["sleep", "0.7"], true),
        (&["--json", "--no-agent"], &["sleep", "0.7"], true),
    ] {
        let output = run(options).arg("--").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let scans = summary(&output)["scans"].as_u64().unwrap();
        assert_eq!(scans > 0, is_scanned, "{options:?} {words:?}");
    }
    let words = run(&[]).args(["--", "true"]).output().unwrap();
    let words = text(&words.stderr);
    assert!(words.contains("over before the first scan"), "{words}");
}

#[test]
fn an_unprivileged_user_gets_it_alone_and_its_pid_environment_and_status_are_the_commands() {
    if !is_root() || !is_advised() {
        return;
    }
    let fill = std::env::current_exe().unwrap();
    let folder = for_everybody(&[Path::new(env!("CARGO_BIN_EXE_mega")), &fill]);
    let nobody = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .arg(folder.path().join("mega"))
            .args(["run", "--agent-only"])
            .args(options)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    };
    let output = nobody(&["--"])
        .arg(folder.path().join(fill.file_name().unwrap()))
        .args(FILL)
        .output()
        .unwrap();
    assert!(huge(&output) >= 192, "{}", text(&output.stderr));
    let script = "echo $$ $LD_PRELOAD $MEGA_AGENT_FOR; exit 7";
    let child = nobody(&["--for", "latency", "--", "sh", "-c", script])
        .env("LD_PRELOAD", "libm.so.6")
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let agent = folder.path().join("libmega_agent.so");
    let expected = format!("{pid} libm.so.6:{} latency\n", agent.display());
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn no_contents_is_handed_on_to_the_agent() {
    if !is_root() {
        return;
    }
    let ran = |options: &[&str]| {
        let script = "echo contents=$MEGA_AGENT_CONTENTS";
        let output = run(options).args(["--", "sh", "-c", script]).output().unwrap();
        text(&output.stdout).trim().to_string()
    };
    assert_eq!(ran(&[]), "contents=");
    assert_eq!(ran(&["--no-contents"]), "contents=off");
}

#[test]
fn show_finds_what_an_agent_says_in_a_program_that_was_given_it_by_its_environment_alone() {
    if !is_root() {
        return;
    }
    // As a service's drop-in does it. The shell forks: each process says its own.
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 60 & echo $!; wait"])
        .env("LD_PRELOAD", library())
        .env_remove("MEGA_AGENT_STATUS")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let child: u32 = line.trim().parse().unwrap();
    let said = |pid: u32| {
        let pid = pid.to_string();
        let shown = Command::new(env!("CARGO_BIN_EXE_mega"))
            .args(["show", "--json", &pid])
            .output();
        let shown: Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
        let text = shown.to_string();
        (shown.pointer("/processes/0/agent/pid").and_then(Value::as_u64), text)
    };
    let both = [shell.id(), child].map(|pid| (pid, said(pid)));
    for pid in [child, shell.id()] {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    shell.wait().unwrap();
    for (pid, (found, text)) in both {
        assert_eq!(found, Some(u64::from(pid)), "{text}");
    }
}

#[test]
fn policy_auto_preloads_it_and_no_other_does_unless_asked() {
    if !is_root() {
        return;
    }
    let script = ["--", "sh", "-c", "echo \"$LD_PRELOAD,$MEGA_AGENT\""];
    let with = format!("{},on\n", library().display());
    let cases: [(&[&str], &str); 6] = [
        (&["-q"], &with),
        (&["-q", "--policy", "mega", "--agent"], &with),
        (&["-q", "--policy", "mega"], ",\n"),
        (&["-q", "--no-agent"], ",\n"),
        (&["-q", "--dry-run"], ",\n"),
        (&["-q", "--policy", "trim"], ",\n"),
    ];
    for (options, expected) in cases {
        let output = run(options).args(script).output().unwrap();
        assert_eq!(text(&output.stdout), expected, "{options:?}");
    }
    let output = run(&["-q", "--no-agent"])
        .args(script)
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), format!("{},off\n", library().display()));
}

#[test]
fn policy_auto_and_the_agent_are_both_told_what_matters() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let output = run(&["-q", "--agent", "--for", "latency", "--journal"])
        .arg(&journal)
        .args(["--", "sh", "-c", "echo $LD_PRELOAD $MEGA_AGENT_FOR"])
        .output()
        .unwrap();
    let expected = format!("{} latency\n", library().display());
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let journal = fs::read_to_string(journal).unwrap();
    assert!(journal.contains("policy=auto params=for=latency "), "{journal}");
}

#[test]
fn a_library_that_is_missing_or_closed_to_the_user_is_said_in_a_line_and_the_command_runs() {
    if !is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let library_there = closed.path().join("libmega_agent.so");
    fs::copy(library(), &library_there).unwrap();
    for (options, library, said) in [
        (
            &["--agent"][..],
            Path::new("/nowhere/lib.so"),
            "there is no /nowhere/lib.so",
        ),
        (&["--agent", "--user", "65534"], &library_there, "may not enter"),
    ] {
        let with = |options: &[&str]| {
            run(options)
                .args(["--", "sh", "-c", "echo started $LD_PRELOAD; exit 3"])
                .env("MEGA_AGENT_LIBRARY", library)
                .output()
                .unwrap()
        };
        let output = with(options);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert_eq!(text(&output.stdout), "started\n");
        let lines = errors.lines().filter(|line| line.contains("without the agent"));
        assert!(lines.count() == 1 && errors.contains(said), "{errors}");
        let only = [&["--agent-only"], &options[1..]].concat();
        let output = with(&only);
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty() && text(&output.stderr).contains(said));
    }
}

#[test]
fn options_that_contradict_one_another_or_mean_nothing_are_refused() {
    for (options, said) in [
        (
            &["--agent-only", "--for", "speed"][..],
            "balanced, latency, throughput, memory",
        ),
        (&["--agent", "--no-agent"], "cannot be used with"),
        (&["--agent", "--dry-run"], "cannot be used with"),
        (&["--agent-only", "--policy", "trim"], "cannot be used with"),
        (&["--policy", "mega", "--for", "latency"], "--for is for policy auto"),
    ] {
        let output = run(options).args(["--", "echo", "started"]).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{options:?}: {errors}");
        assert!(
            output.stdout.is_empty() && errors.contains(said),
            "{options:?}: {errors}"
        );
    }
}

#[test]
fn show_says_what_the_agent_in_a_process_does() {
    if !is_root() {
        return;
    }
    let script = "\"$MEGA\" show --json $$; \"$MEGA\" show $$ | grep agent:";
    let output = run(&["-q", "--agent", "--", "sh", "-c", script])
        .env("MEGA", env!("CARGO_BIN_EXE_mega"))
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let (json, line) = said.split_once('\n').unwrap();
    let shown: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {said}{}", text(&output.stderr)));
    let agent = &shown["processes"][0]["agent"];
    assert_eq!(agent["pid"], shown["processes"][0]["pid"], "{agent}");
    assert!(agent["helper"] == "process" || agent["reason"].is_string(), "{agent}");
    assert!(line.contains("collapsed"), "{line}");
    let output = run(&["-q", "--no-agent", "--", "sh", "-c", script])
        .env("MEGA", env!("CARGO_BIN_EXE_mega"))
        .output()
        .unwrap();
    let shown: Value = serde_json::from_str(text(&output.stdout).lines().next().unwrap()).unwrap();
    assert!(shown["processes"][0]["agent"].is_null());
}

#[test]
fn what_a_run_has_shown_is_kept_for_the_next_one_listed_and_forgotten() {
    if !is_root() || !is_advised() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("profiles");
    let with_fill = |options: &[&str]| {
        let own = std::env::current_exe().unwrap();
        let output = run_with_profiles(options)
            .env("MEGA_PROFILES", &profiles)
            .arg("--")
            .arg(own)
            .args(FILL)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let profile = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
        command.arg("profile").args(arguments).env("MEGA_PROFILES", &profiles);
        command.output().unwrap()
    };
    let listed = || -> Vec<Value> {
        let list: Value = serde_json::from_slice(&profile(&["list", "--json"]).stdout).unwrap();
        list["profiles"].as_array().unwrap().clone()
    };
    with_fill(&["--no-profiles"]);
    assert!(!profiles.exists());
    assert!(text(&profile(&["list"]).stdout).starts_with("nothing was learned yet"));
    with_fill(&[]);
    let first = listed();
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["runs"], 1);
    assert!(first[0]["dense_regions"].as_u64().unwrap() >= 4, "{first:?}");
    assert!(first[0]["resident_bytes"].as_u64().unwrap() >= 192 << 20, "{first:?}");
    // The kernel's name of the program: of 15 characters.
    let name = first[0]["name"].as_str().unwrap();
    let own = std::env::current_exe().unwrap();
    assert!(own.file_name().unwrap().to_str().unwrap().starts_with(name), "{name}");

    with_fill(&["--quiet"]);
    assert_eq!(listed()[0]["runs"], 2);
    let id = listed()[0]["program"].as_str().unwrap().to_owned();
    let shown = text(&profile(&["show", &id[..8]]).stdout);
    assert!(shown.contains(name) && shown.contains("runs: 2"), "{shown}");

    // A damaged one is none, and is replaced.
    fs::write(profiles.join(&id), "mega-profile 1\ndense 7").unwrap();
    assert!(text(&profile(&["list"]).stdout).contains("1 damaged"));
    with_fill(&[]);
    assert_eq!(listed()[0]["runs"], 1);
    assert_eq!(text(&profile(&["forget", name]).stdout), "1 forgotten\n");
    assert_eq!(listed(), Vec::<Value>::new());
    let unknown = profile(&["forget", name]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("nothing was learned of"),
        "{}",
        text(&unknown.stderr)
    );
    // Where it cannot be kept, that is said and the run is none the worse.
    fs::remove_dir(&profiles).unwrap();
    fs::write(&profiles, "").unwrap();
    let said = with_fill(&[]);
    assert!(said.contains("what was learned of the programs is not kept"), "{said}");
}

/// What can begin without a loader: the library as it is shipped. What cargo builds for tests needs a C library.
fn shipped() -> Option<PathBuf> {
    let mega = Path::new(env!("CARGO_BIN_EXE_mega"));
    let shipped = mega.parent()?.with_file_name("agent").join("libmega_agent.so");
    if !shipped.is_file() {
        eprintln!(
            "SKIPPED: {} is missing (cargo build --profile agent -p mega-agent)",
            shipped.display()
        );
        return None;
    }
    Some(shipped)
}

/// A static program made of a C file of this repository.
fn made(folder: &Path, source: &str, options: &[&str]) -> Option<PathBuf> {
    let program = folder.join("static-program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let compiled = Command::new("gcc")
        .args(["-O1", "-static", "-w", "-o"])
        .arg(&program)
        .arg(source)
        .args(options)
        .output();
    match compiled {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => panic!("gcc: {}", text(&output.stderr)),
        Err(_) => {
            eprintln!("SKIPPED: there is no gcc");
            None
        }
    }
}

const FREESTANDING: (&str, &[&str]) = (
    "tests/c/freestanding.c",
    &["-nostdlib", "-ffreestanding", "-fno-stack-protector"],
);
const PIECES: (&str, &[&str]) = ("tests/c/pieces.c", FREESTANDING.1);
const STATIC: (&str, &[&str]) = ("../agent/tests/c/program.c", &["-pthread"]);

/// Becomes a static program with the agent.
fn agent_only(library: &Path, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mega"));
    command
        .args(["run", "--agent-only", "--no-profiles", "--"])
        .arg(program)
        .args(arguments)
        .env("MEGA_AGENT_LIBRARY", library)
        .stdin(Stdio::null());
    command
}

#[test]
fn a_static_program_gets_it_with_a_c_library_or_without_one() {
    let Some(library) = shipped() else { return };
    if !is_root() || !is_advised() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = made(folder.path(), FREESTANDING.0, FREESTANDING.1) else {
        return;
    };
    let output = agent_only(&library, &program, &["x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let mib: usize = text(&output.stdout).trim().trim_start_matches("huge ").parse().unwrap();
    assert!(mib >= 192, "{mib} MB are huge");
    // And with a manager, which says what it did.
    let output = run(&["--json"])
        .env("MEGA_AGENT_LIBRARY", &library)
        .arg("--")
        .arg(&program)
        .arg("x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let agents = &summary(&output)["agents"];
    let of = |name: &str| agents[name].as_u64().unwrap();
    assert_eq!(of("programs"), 1, "{agents}");
    let made_huge = of("advised_regions") + of("populated_regions") + of("collapsed");
    assert!(made_huge >= 96, "{agents}");
    let Some(program) = made(folder.path(), STATIC.0, STATIC.1) else {
        return;
    };
    let output = agent_only(&library, &program, &["dense", "512"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let huge = said
        .split_whitespace()
        .skip_while(|word| *word != "huge")
        .nth(1)
        .unwrap();
    assert!(huge.parse::<u64>().unwrap() >= 480 * 1024, "{said}");
}

/// Compilers trust that a system call keeps registers, flags and what lies below the stack: the program checks that, too.
#[test]
fn a_static_program_that_maps_piece_by_piece_has_each_huge_from_its_first_touch_and_nothing_else_changed() {
    let Some(library) = shipped() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = made(folder.path(), PIECES.0, PIECES.1) else {
        return;
    };
    let alone = Command::new(&program).output().unwrap();
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stdout));
    let output = agent_only(&library, &program, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mib: u64 = text(&output.stdout).trim().trim_start_matches("huge ").parse().unwrap();
    eprintln!("{mib} of 768 MB are huge");
    // The helper has to see the first few dozen, and some are probes.
    assert!(mib >= 400 || !is_advised(), "{mib} MB are huge");
}

#[test]
fn a_static_programs_memory_forks_and_execs_are_right_with_it_under_storms() {
    let Some(library) = shipped() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = made(folder.path(), STATIC.0, STATIC.1) else {
        return;
    };
    let cases: [&[&str]; 9] = [
        &["nothing"],
        &["scattered", "256"],
        &["remap", "256"],
        &["torn", "64"],
        &["forks"],
        &["spawns"],
        &["no-descriptors", "128"],
        &["storm", "1", "5"],
        &["storm", "7", "10"],
    ];
    for case in cases {
        let output = agent_only(&library, &program, case).output().unwrap();
        assert!(
            output.status.success(),
            "{case:?}: {}: {}",
            output.status,
            text(&output.stderr)
        );
    }
    // Who reaps orphans reaps helpers.
    let began = Instant::now();
    while orphaned_helpers() > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{} helpers are left",
            orphaned_helpers()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Helpers whose program has ended.
fn orphaned_helpers() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
            name.ends_with("(mega-agent") && rest.split_whitespace().nth(1) == Some("1")
        })
        .count()
}

#[test]
fn a_signal_at_a_static_programs_start_ends_it_as_ever() {
    use std::os::unix::process::ExitStatusExt;
    let Some(library) = shipped() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = made(folder.path(), STATIC.0, STATIC.1) else {
        return;
    };
    for turn in 0..100 {
        let mut child = agent_only(&library, &program, &["idle", "64", "60000"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(turn * 100));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(15), "after {turn} x 0.1 ms: {status}");
    }
}

/// Has this system call fail with EPERM in the command, by a seccomp filter.
fn refuse(command: &mut Command, call: i64) {
    let step = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
        ),
    ];
    let install = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: numbers, and a program that lives through the call.
        let error = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        match error {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec two system calls, on memory that was there before the fork.
    unsafe { command.pre_exec(install) };
}

#[test]
fn a_static_program_runs_without_it_where_it_cannot_begin_and_a_line_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = made(folder.path(), STATIC.0, STATIC.1) else {
        return;
    };
    let without = |output: Output, why: &str| {
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        assert!(
            errors.starts_with("mega: the command runs without the agent: ") && errors.contains(why),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    };
    // What cargo builds for tests.
    let output = agent_only(&library(), &program, &["nothing"]).output().unwrap();
    without(output, "it needs a C library");
    let Some(shipped) = shipped() else { return };
    // As a container's filter has it.
    let mut command = agent_only(&shipped, &program, &["nothing"]);
    refuse(&mut command, libc::SYS_ptrace);
    without(
        command.output().unwrap(),
        "it is static, and cannot be traced at its start: Operation not permitted",
    );
    if !is_root() {
        return;
    }
    // No process more: no tracer.
    let folder = for_everybody(&[Path::new(env!("CARGO_BIN_EXE_mega")), &program]);
    fs::copy(shipped, folder.path().join("libmega_agent.so")).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65533",
            "--regid=65533",
            "--clear-groups",
            "prlimit",
            "--nproc=1",
        ])
        .arg(folder.path().join("mega"))
        .args(["run", "--agent-only", "--no-profiles", "--"])
        .arg(folder.path().join("static-program"))
        .arg("nothing")
        .current_dir("/")
        .output()
        .unwrap();
    without(
        output,
        "it is static, and cannot be traced at its start: Resource temporarily unavailable",
    );
}
