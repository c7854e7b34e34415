//! `mega bench`: what it leaves behind when all goes well and when it does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mega_lab::report::folder;
use mega_lab::result::{Outcome, Record, Run};
use rustix::process::Signal;

use crate::support::wait_until;
use crate::tool::{mega, ready, settings, state_files, Ended, Program};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const PATIENCE: Duration = Duration::from_secs(120);

/// The only result below a folder.
pub fn result(output: &Path) -> (PathBuf, Record) {
    let folders: Vec<PathBuf> = fs::read_dir(output)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [folder] = folders.as_slice() else {
        panic!("{folders:?}")
    };
    (folder.clone(), folder::read(folder).unwrap_or_else(|e| panic!("{e}")))
}

pub fn bench(output: &Path, args: &[&str]) -> Program {
    let mut words = vec!["bench", "-o", output.to_str().unwrap()];
    // What is run takes next to nothing, and prefaulting the usual amount takes seconds.
    if args.first() == Some(&"run") {
        words.push("--memory=64M");
    }
    words.extend(args);
    Program::mega(&words)
}

pub fn done(ended: &Ended) {
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
}

#[test]
fn an_experiment_runs_all_variants_keeps_its_results_and_puts_the_settings_back() {
    let Some(_alone) = ready(2048) else { return };
    let before = settings();
    let output = tempfile::tempdir().unwrap();
    let args = [
        "touch",
        "--scale",
        "0.03",
        "--rounds",
        "2",
        "--variants",
        "base,thp-always,mthp-64k,mega,thp-always+trim",
    ];
    let ended = bench(output.path(), &args).wait(PATIENCE);
    done(&ended);
    assert_eq!(settings(), before);
    let (folder, record) = result(output.path());
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        text.trim_end()
            .ends_with(&format!("report: {}", folder.join("report.html").display())),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.starts_with("report:")),
        "{text}"
    );
    assert_eq!(record.runs.len(), 10);
    for run in &record.runs {
        if record.variants[run.variant].name == "mthp-64k" && matches!(run.outcome, Outcome::Skipped(_)) {
            continue;
        }
        assert_eq!(run.outcome, Outcome::Done, "{}", record.variants[run.variant].name);
        assert!(run.values["first_touch_ns"] > 0.0 && run.values["rss_bytes"] > 1e8);
    }
    let huge = |variant: usize| record.values(0, variant, "huge_bytes")[0].1;
    assert!(
        huge(0) == 0.0 && huge(1) > 1e8,
        "base {} huge, thp-always {}",
        huge(0),
        huge(1)
    );
    let managed = |variant: usize| record.values(0, variant, "manager_cpu_ns").len();
    assert_eq!([managed(0), managed(3), managed(4)], [0, 2, 2], "who was managed");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("http:") && !page.contains("https:"));
}

#[test]
fn a_recorded_program_has_the_memory_in_the_simulator_that_it_had() {
    let Some(_alone) = ready(1024) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (traces, output) = (folder.path().join("traces"), folder.path().join("results"));
    let lab = env!("CARGO_BIN_EXE_mega-lab");
    let record = ["--record", traces.to_str().unwrap(), "--"];
    let program = [lab, "workload", "gups", "--mib", "256", "--seconds", "3"];
    let words: Vec<&str> = ["run"].iter().chain(&record).chain(&program).copied().collect();
    done(&bench(&output, &words).wait(PATIENCE));
    let (_, live) = result(&output);
    assert_eq!((live.variants.len(), live.runs.len()), (1, 1), "one run on base pages");
    let trace = traces.join("mega-lab.trace");
    let simulated = folder.path().join("simulated");
    let kept = folder.path().join("kept");
    let [trace, to, keep] = [&trace, &simulated, &kept].map(|path| path.to_str().unwrap());
    let systems = ["--system", "base,thp-always", "--keep", keep, "-o", to, "-q"];
    let words: Vec<&str> = ["sim", "run", "--trace", trace, "--scans"]
        .iter()
        .chain(&systems)
        .copied()
        .collect();
    done(&mega(&words));
    let record = folder::read(&kept.join("mega-lab.json")).unwrap();
    let peak = |record: &Record, variant: usize, what: &str| record.values(0, variant, what)[0].1;
    let (was, is) = (peak(&live, 0, "peak_rss_bytes"), peak(&record, 0, "peak_rss_bytes"));
    // Its own code and stack are none of the recording.
    assert!((is - was).abs() < 16e6 && is > 256e6, "{was} recorded, {is} simulated");
    let huge = [0, 1].map(|variant| peak(&record, variant, "peak_huge_bytes"));
    assert!(huge[0] == 0.0 && huge[1] > 256e6, "in huge pages: {huge:?}");
    let none = mega(&["sim", "run", "--trace", "/dev/null", "--scans", "-o", to]);
    assert!(
        none.code() == 2 && none.complaints().contains("binary"),
        "{}",
        none.complaints()
    );
}

/// Whether, at some time as long as this program runs, processors keep little memory for themselves, and a machine that reports free pages to a
/// host does so with none but the largest blocks.
fn freed_memory_is_for_others_while(program: &mut Program) -> bool {
    let share = Path::new("/proc/sys/vm/percpu_pagelist_high_fraction");
    let order = Path::new("/sys/module/page_reporting/parameters/page_reporting_order");
    let buddyinfo = fs::read_to_string("/proc/buddyinfo").unwrap();
    // "Node 0, zone DMA", then the free blocks of each order.
    let largest = buddyinfo.lines().next().unwrap().split_whitespace().count() - 5;
    let mut settings = vec![(share, "1000000".to_string()), (order, largest.to_string())];
    settings.retain(|(path, _)| {
        if !path.exists() {
            eprintln!("EXPECTED: {} is not there, and not changed", path.display());
        }
        path.exists()
    });
    let is_so = |(path, value): &(&Path, String)| fs::read_to_string(path).unwrap().trim() == value;
    while program.is_running() {
        if settings.iter().all(is_so) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn the_simulator_is_held_against_this_machine_by_one_command() {
    let Some(_alone) = ready(2048) else { return };
    let before = settings();
    let output = tempfile::tempdir().unwrap();
    let mut program = accuracy_in_little(output.path(), &["--rounds", "1", "--json"]);
    let for_others = freed_memory_is_for_others_while(&mut program);
    let ended = program.wait(2 * PATIENCE);
    done(&ended);
    assert!(for_others, "while memory is kept warm, what is freed is for others");
    assert_eq!(settings(), before);
    let accuracy: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let compared = accuracy["compared"].as_array().unwrap();
    assert_eq!((compared.len(), accuracy["orders"].as_array().unwrap().len()), (55, 5));
    // What no machine's speed changes.
    let by_kernel =
        |of: &&serde_json::Value| of["variant"] != "mega:compact=off" && of["what"] != "run time, base pages = 1";
    for of in compared.iter().filter(by_kernel) {
        let (live, simulated) = (of["live"].as_f64().unwrap(), of["simulated"].as_f64().unwrap());
        // A process has a stack, too, and a library or two.
        let few: f64 = if of["what"] == "faults" { 1000.0 } else { 16e6 };
        assert!((live - simulated).abs() <= few.max(live * 0.03), "{of}");
    }
    // The same again without the live runs, which are kept; not at another size.
    let output = output.path().to_str().unwrap();
    let again = |scale: &str| {
        let args = [
            "sim", "accuracy", "--kept", output, "--scale", scale, "--json", "-q", "-o", output,
        ];
        Program::mega(&args).wait(PATIENCE)
    };
    let kept = again("0.02");
    done(&kept);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&kept.stdout).unwrap(),
        accuracy
    );
    let other = again("0.05");
    assert!(
        other.code() == 2 && other.complaints().contains("--scale"),
        "{}",
        other.complaints()
    );
}

#[test]
fn stopped_by_ctrl_c_it_does_not_go_on_to_simulate() {
    let Some(_alone) = ready(2048) else { return };
    let before = settings();
    let output = tempfile::tempdir().unwrap();
    let program = accuracy_in_little(output.path(), &[]);
    assert!(
        wait_until(Duration::from_secs(60), || result_runs(output.path()) >= 2),
        "{}",
        program.stderr()
    );
    program.signal(Signal::INT);
    let ended = program.wait(Duration::from_secs(30));
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("what was measured is in"), "{}", ended.stderr);
    assert_eq!(settings(), before);
    let results = fs::read_dir(output.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir());
    assert_eq!(results.count(), 1, "nothing after the first part");
}

/// `mega sim accuracy` of small programs, with costs and a TLB that need not be measured.
fn accuracy_in_little(output: &Path, more: &[&str]) -> Program {
    let costs = output.join("costs.json");
    fs::write(&costs, mega_sim::cost::Costs::default().to_json()).unwrap();
    let [costs, output] = [&costs, output].map(|path| path.to_str().unwrap());
    let args = ["sim", "accuracy", "--scale", "0.02"];
    let given = ["--costs", costs, "--tlb", "sapphire-rapids", "-o", output];
    Program::mega(&[&args[..], &given, more].concat())
}

#[test]
fn stopped_by_ctrl_c_it_keeps_what_it_has_and_puts_the_settings_back() {
    let Some(_alone) = ready(1024) else { return };
    let before = settings();
    let output = tempfile::tempdir().unwrap();
    let args = [
        "run",
        "--rounds",
        "50",
        "--variants",
        "base,thp-always",
        "--",
        "sleep",
        "0.2",
    ];
    let program = bench(output.path(), &args);
    let three = || fs::read_dir(output.path()).is_ok_and(|mut d| d.next().is_some()) && result_runs(output.path()) >= 3;
    assert!(wait_until(Duration::from_secs(60), three), "{}", program.stderr());
    program.signal(Signal::INT);
    let ended = program.wait(Duration::from_secs(30));
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped before its end"), "{}", ended.stderr);
    assert_eq!(settings(), before);
    let (folder, record) = result(output.path());
    assert!(record.ended_early.is_some() && record.runs.len() < 100);
    assert!(folder.join("report.html").exists());
}

/// Runs kept so far; none while there is no whole result.
fn result_runs(output: &Path) -> usize {
    let mut entries = fs::read_dir(output).into_iter().flatten().flatten();
    let folder = entries.find(|entry| entry.path().is_dir());
    folder
        .and_then(|entry| folder::read(&entry.path()).ok())
        .map_or(0, |record| record.runs.len())
}

#[test]
fn killed_it_leaves_nothing_running_and_mega_off_puts_the_settings_back() {
    let Some(_alone) = ready(1024) else { return };
    let before = settings();
    let was = fs::read_to_string(ENABLED).unwrap();
    let put_back = PutBack(&was);
    // A variant that changes the setting, whatever it is.
    let variant = if was.contains("[always]") { "base" } else { "thp-always" };
    let output = tempfile::tempdir().unwrap();
    // A number that no other process has on its command line.
    let mark = format!("31.{:09}", std::process::id());
    let args = ["run", "--rounds", "1", "--variants", variant, "--", "sleep", &mark];
    let program = bench(output.path(), &args);
    let under_way = || fs::read_to_string(ENABLED).unwrap() != was && running(&mark) > 0;
    assert!(wait_until(Duration::from_secs(30), under_way), "{}", program.stderr());
    program.signal(Signal::KILL);
    assert_eq!(program.wait(Duration::from_secs(10)).code(), 128 + 9);
    assert!(
        wait_until(Duration::from_secs(10), || running(&mark) == 0),
        "the program outlived the lab"
    );
    done(&mega(&["off"]));
    assert_eq!(settings(), before);
    assert_eq!(state_files(), Vec::<PathBuf>::new());
    drop(put_back);
}

/// Puts the machine's setting back where the test itself fails: what would do it is killed, and its state folder goes with the test.
struct PutBack<'a>(&'a str);

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        let chosen = self.0.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        if let Some((word, _)) = chosen {
            let _ = fs::write(ENABLED, word);
        }
    }
}

/// Processes that sleep for this time; the lab itself has it on its command line, too.
fn running(mark: &str) -> usize {
    let lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| line.contains(mark) && !line.contains("bench"))
        .count()
}

#[test]
fn a_command_that_fails_or_is_not_there_is_said_in_a_line_and_kept() {
    let Some(_alone) = ready(1024) else { return };
    let output = tempfile::tempdir().unwrap();
    // Fails under one variant only.
    let fails = format!("grep -q '\\[madvise\\]' {ENABLED} || {{ echo no base pages >&2; exit 7; }}");
    let args = [
        "run",
        "--rounds",
        "2",
        "--variants",
        "base,thp-always",
        "--",
        "sh",
        "-c",
        &fails,
    ];
    let ended = bench(output.path(), &args).wait(PATIENCE);
    done(&ended);
    let (_, record) = result(output.path());
    // The second round begins with the second variant.
    let went = |run: &Run| (run.round, run.variant, run.outcome == Outcome::Done);
    let how: Vec<_> = record.runs.iter().map(went).collect();
    assert_eq!(how, [(0, 0, true), (0, 1, false), (1, 1, false), (1, 0, true)]);
    let Outcome::Failed(why) = &record.runs[1].outcome else {
        panic!()
    };
    assert!(why.contains("exit status: 7") && why.contains("no base pages"), "{why}");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(text.contains("no base pages"), "{text}");

    let missing = tempfile::tempdir().unwrap();
    let ended = bench(missing.path(), &["run", "--rounds", "1", "--", "/no/such/command"]).wait(PATIENCE);
    assert_eq!(ended.code(), 1);
    assert!(ended.stderr.contains("no run completed"), "{}", ended.stderr);
    let (_, record) = result(missing.path());
    assert!(record.runs.iter().all(
        |run| matches!(&run.outcome, Outcome::Failed(why) | Outcome::Skipped(why) if why.contains("/no/such/command"))
    ));
}

#[test]
fn too_little_memory_skips_a_run_and_a_full_disk_is_one_clear_line() {
    let Some(_alone) = ready(1024) else { return };
    let output = tempfile::tempdir().unwrap();
    let ended = bench(
        output.path(),
        &["touch", "--scale", "90", "--rounds", "1", "--variants", "base"],
    )
    .wait(PATIENCE);
    assert_eq!(ended.code(), 1);
    let (_, record) = result(output.path());
    assert!(
        matches!(&record.runs[0].outcome, Outcome::Skipped(why) if why.contains("are available")),
        "{:?}",
        record.runs[0].outcome
    );

    let full = tempfile::tempdir().unwrap();
    rustix::mount::mount(
        "none",
        full.path(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        Some(c"size=4k"),
    )
    .unwrap();
    let ended = bench(
        full.path(),
        &["run", "--rounds", "2", "--variants", "base", "--", "true"],
    )
    .wait(PATIENCE);
    rustix::mount::unmount(full.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(ended.code(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("no space left"), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .lines()
            .filter(|line| line.contains("no space left"))
            .count()
            <= 2,
        "{}",
        ended.stderr
    );
}

#[test]
fn a_memory_limit_holds_and_a_program_that_passes_it_is_said_to_be_killed_for_it() {
    let Some(_alone) = ready(2048) else { return };
    let output = tempfile::tempdir().unwrap();
    let args = [
        "touch",
        "--scale",
        "0.1",
        "--rounds",
        "1",
        "--variants",
        "base",
        "--condition",
        "limit=200M",
    ];
    let ended = bench(output.path(), &args).wait(PATIENCE);
    let (_, record) = result(output.path());
    let Outcome::Failed(why) = &record.runs[0].outcome else {
        panic!("{:?}: {}", record.runs[0].outcome, ended.stderr)
    };
    if why.contains("memory controller") {
        eprintln!("SKIPPED: {why}");
        return;
    }
    assert!(why.contains("the kernel killed it at the memory limit"), "{why}");
    let left = fs::read_dir("/sys/fs/cgroup/memory")
        .or_else(|_| fs::read_dir("/sys/fs/cgroup"))
        .unwrap()
        .flatten();
    let left: Vec<_> = left
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("mega-lab-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn two_results_are_compared_and_wrong_usage_is_told_in_a_line() {
    let Some(_alone) = ready(1024) else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for output in [&one, &two] {
        done(
            &bench(
                output.path(),
                &["run", "--rounds", "2", "--variants", "base,thp-always", "--", "true"],
            )
            .wait(PATIENCE),
        );
    }
    let paths = [&one, &two].map(|output| result(output.path()).0.to_str().unwrap().to_string());
    let ended = mega(&["bench", "compare", &paths[0], &paths[1]]);
    done(&ended);
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(text.contains("A against B"), "{text}");
    for (args, says) in [
        (&["bench", "no-such"][..], "no experiment 'no-such'"),
        (&["bench", "touch", "--variants", "basse"], "no variant 'basse'"),
        (
            &["bench", "touch", "--condition", "dusty"],
            "'dusty' is not a condition",
        ),
        (&["bench", "run"], "which command?"),
        (&["bench", "touch", "--", "true"], "takes no command"),
        (&["bench", "touch", "--list"], "mega bench list"),
        (&["bench", "run", "--metric", "(", "--", "true"], "--metric"),
        (&["bench", "compare", "only-one"], "two results folders"),
        (&["bench", "touch", "--rounds", "0"], "expected 1 to 1000"),
    ] {
        let ended = mega(args);
        assert_eq!(ended.code(), 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(mega(&["bench", "compare", "/no/such/a", "/no/such/b"]).code(), 1);
}

#[test]
fn a_family_leaves_a_record_for_each_program_goes_on_where_it_was_and_its_document_has_them() {
    let Some(_alone) = ready(2048) else { return };
    let before = settings();
    let output = tempfile::tempdir().unwrap();
    let variants = "--variants=base,thp-always,thp-none0,auto:agent,auto:agent:known";
    let only = ["auto", "--only=touch", "--condition=unfragmented"];
    let args = [&only[..], &["--scale=tiny", "--rounds=1", variants]].concat();
    done(&bench(output.path(), &args).wait(PATIENCE));
    assert_eq!(settings(), before);
    let path = output.path().join("auto/touch@unfragmented.json");
    let record: Record = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(record.runs.len(), 5);
    for run in &record.runs {
        let name = &record.variants[run.variant].name;
        match &run.outcome {
            // The agent is built in a profile of its own.
            Outcome::Skipped(why) if name.starts_with("auto:agent") => {
                assert!(why.contains("--profile agent"), "{why}")
            }
            outcome => assert_eq!(*outcome, Outcome::Done, "{name}"),
        }
        if name.starts_with("auto:agent") && run.outcome == Outcome::Done {
            assert!(run.values.contains_key("agent_look_ns"), "{:?}", run.values);
            let earlier = run.values["agent_earlier"];
            assert_eq!(earlier > 0.0, name == "auto:agent:known", "{name}: {earlier}");
        }
    }
    let again = bench(output.path(), &args).wait(PATIENCE);
    done(&again);
    assert!(again.stderr.contains("there already"), "{}", again.stderr);
    let table = mega(&["bench", "auto", "--table", path.to_str().unwrap()]);
    done(&table);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        text.contains("\n| touch |") && text.contains("| not measured |"),
        "{text}"
    );
    let unknown = mega(&["bench", "auto", "--only", "touhc"]);
    assert_eq!(unknown.code(), 2, "{}", unknown.stderr);
}
