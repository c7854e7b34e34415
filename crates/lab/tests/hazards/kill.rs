//! Must hold 6: whoever is killed, whenever: nobody loses anything, and the machine is as it was found.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{slow, wait_until, Workload, MEGA};
use crate::tool::{
    found, from_env, has_fault_sizes, kill_9, mega, ready, settings, state_files, Figures, Manager, Numbers, Program,
    FAST, LONG,
};

const POLICIES: [&[&str]; 2] = [
    &[
        "--policy",
        "khugepaged",
        "--set",
        "pages_to_scan=100000000",
        "--set",
        "scan_sleep_s=1",
    ],
    &["--policy", "base"],
];

fn program() -> Workload {
    Workload::start(&["kinds", "--regions", "24", "--vmas", "4", "--mix", "--write"]).0
}

/// The options of a manager that changes settings, where the kernel has such, and does as much as it can.
fn options(policy: usize) -> Vec<&'static str> {
    FAST.iter().chain(POLICIES[policy]).chain(setting()).copied().collect()
}

/// A setting of the machine for as long as a manager lives.
fn setting() -> &'static [&'static str] {
    match has_fault_sizes() {
        true => &["--fault-size", "64K"],
        false => &[],
    }
}

fn manage(policy: usize, pids: &[i32]) -> Manager {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let mut args = options(policy);
    args.extend(pids.iter().map(String::as_str));
    Manager::start("manage", &args)
}

#[test]
fn whoever_is_killed_nothing_is_lost() {
    let Some(_alone) = ready(2 * 1024) else { return };
    let figures = Figures::of("kill");
    let rounds = from_env("MEGA_KILL_ROUNDS", 24);
    let seed = from_env("MEGA_KILL_SEED", 20_260_101);
    let mut numbers = Numbers(seed);
    assert_eq!(mega(&["off"]).code(), 0);
    let before = settings();
    let (mut companion, mut victim) = (program(), program());
    let (mut killed, mut done, mut in_effect) = ([0; 3], 0, 0);
    for round in 0..rounds {
        let at = format!("seed {seed}, round {round}");
        let policy = numbers.below(2) as usize;
        let mut manager = manage(policy, &[companion.pid, victim.pid]);
        // From the first moment on, when settings are half changed, to long after.
        let most = if numbers.below(3) == 0 { 300 } else { 2500 };
        std::thread::sleep(Duration::from_millis(numbers.below(most) * slow()));
        let who = (round % 3) as usize;
        in_effect += u64::from(settings() != before);
        killed[who] += 1;
        if who != 0 {
            kill_9(victim.pid);
        }
        if who != 1 {
            manager.program.signal(Signal::KILL);
            let dead = manager.wait(LONG);
            done += dead.lines.len();
        } else {
            // A manager whose program was killed goes on with the other one, and ends in order.
            manager.wait_found(companion.pid as u32);
            std::thread::sleep(Duration::from_millis(200));
            assert!(manager.program.is_running(), "{at}: {}", manager.program.stderr());
            let ended = manager.stop();
            assert_eq!(ended.ended.code(), 0, "{at}: {}", ended.ended.stderr);
            assert!(!ended.ended.stderr.contains("panicked"), "{at}: {}", ended.ended.stderr);
            assert_eq!(
                settings(),
                before,
                "{at}: a manager that ends in order puts back what it changed"
            );
            done += ended.lines.len();
        }
        companion.check();
        if who != 0 {
            drop(victim);
            victim = program();
        }
        victim.check();
        // Put back by `mega off`, or by the next start: which is not hindered by what the dead one left.
        if numbers.below(2) == 0 {
            let off = mega(&["off"]);
            assert_eq!(off.code(), 0, "{at}: {}", off.stderr);
            assert_eq!(settings(), before, "{at}: after mega off");
            assert_eq!(state_files().len(), stale(), "{at}: {:?}", state_files());
        } else {
            let both = [companion.pid.to_string(), victim.pid.to_string()];
            let args: Vec<&str> = FAST.iter().copied().chain(both.iter().map(String::as_str)).collect();
            let mut next = Manager::start("manage", &args);
            next.wait_found(companion.pid as u32);
            next.wait_found(victim.pid as u32);
            assert_eq!(settings(), before, "{at}: after the next start");
            let next = next.stop();
            assert_eq!(next.ended.code(), 0, "{at}: {}", next.ended.stderr);
        }
    }
    companion.check();
    victim.check();
    assert!(companion.quit().success() && victim.quit().success());
    assert_eq!(settings(), before);
    figures.say(format!(
        "{rounds} rounds with seed {seed}: {} managers, {} programs, {} of both killed; settings were in effect in {in_effect}; {done} \
         journal lines",
        killed[0], killed[1], killed[2]
    ));
    assert!(
        !has_fault_sizes() || in_effect * 3 >= rounds,
        "settings were in effect in {in_effect} of {rounds} rounds only"
    );
}

/// Files that a kill in the middle of a write leaves; they hinder nobody.
fn stale() -> usize {
    let is_half_written = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "new");
    state_files().iter().filter(|path| is_half_written(path)).count()
}

/// A workload below a shell below `mega run`: it would end with its parent, which the shell is.
fn under_run(options: &[&str]) -> Workload {
    let mut prefix = vec![MEGA, "run"];
    prefix.extend(options);
    prefix.extend(["--", "sh", "-c", "\"$@\"; exit $(($? + 5))", "sh"]);
    Workload::start_under(
        &prefix,
        &["kinds", "--regions", "24", "--vmas", "4", "--mix", "--write"],
    )
    .0
}

#[test]
fn a_command_survives_the_kill_of_its_mega_run() {
    let Some(_alone) = ready(2 * 1024) else { return };
    let figures = Figures::of("kill of mega run");
    let before = settings();
    let mut numbers = Numbers(from_env("MEGA_KILL_SEED", 7));
    for policy in [0, 1, 0, 1] {
        let mut command = under_run(&options(policy));
        std::thread::sleep(Duration::from_millis(numbers.below(1500)));
        kill_9(command.child_pid());
        command.check();
        let mut next = manage(policy, &[command.pid]);
        next.wait_found(command.pid as u32);
        command.check();
        let next = next.stop();
        assert_eq!(next.ended.code(), 0, "{}", next.ended.stderr);
        assert_eq!(
            settings(),
            before,
            "what the killed one changed was put back by the next one"
        );
        command.check();
    }
    figures.say("4 rounds");
}

#[test]
fn off_has_managers_let_go_and_programs_go_on() {
    let Some(_alone) = ready(2 * 1024) else { return };
    let figures = Figures::of("off");
    let before = settings();
    let mut managed = program();
    let mut manager = manage(0, &[managed.pid]);
    manager.wait_found(managed.pid as u32);
    // The second one may not change what the first one holds, but it may hold the same.
    let mut command = under_run(&options(1));
    let claims = || state_files().len();
    let both = if has_fault_sizes() { 5 } else { 2 };
    assert!(wait_until(LONG, || claims() >= both), "{:?}", state_files());
    assert!(
        !has_fault_sizes() || settings() != before,
        "the settings are not in effect"
    );
    let off = mega(&["off"]);
    assert_eq!(off.code(), 0, "{}", off.stderr);
    assert_eq!(settings(), before);
    assert_eq!(state_files(), [] as [std::path::PathBuf; 0]);
    let ended = manager.wait(LONG);
    assert_eq!(ended.ended.code(), 0, "{}", ended.ended.stderr);
    managed.check();
    command.check();
    // Again: there is nothing to put back.
    let again = mega(&["off"]);
    assert_eq!(
        (again.code(), again.stdout.as_slice()),
        (0, &b"nothing to put back\n"[..]),
        "{}",
        again.stderr
    );
    // The command's own status is passed on although nobody manages it any more.
    assert_eq!(command.quit().code(), Some(5));
    assert!(managed.quit().success());
    figures.say("a manage and a run let go");
}

#[test]
fn off_ends_no_manager_that_just_starts() {
    let Some(_alone) = ready(512) else { return };
    let figures = Figures::of("off at the start");
    let before = settings();
    let mut numbers = Numbers(from_env("MEGA_KILL_SEED", 11));
    for round in 0..8 {
        let command = ["--", "sh", "-c", "sleep 1.5; exit 6"];
        let args: Vec<&str> = ["run", "-q"].iter().chain(setting()).chain(&command).copied().collect();
        let run = Program::mega(&args);
        std::thread::sleep(Duration::from_millis(numbers.below(600)));
        let off = mega(&["off"]);
        assert_eq!(off.code(), 0, "round {round}: {}", off.stderr);
        let ended = run.wait(LONG);
        assert_eq!((ended.code(), ended.stderr.as_str()), (6, ""), "round {round}");
        assert_eq!(settings(), before, "round {round}");
    }
    figures.say("8 rounds");
}

#[test]
fn the_claim_of_a_killed_manager_is_void() {
    let Some(_alone) = ready(512) else { return };
    let mut sleeper = Program::start(std::process::Command::new("sleep").arg("60"));
    let pid = sleeper.pid();
    for _ in 0..3 {
        let mut manager = Manager::start("manage", &["--interval", "100ms", &pid.to_string()]);
        manager.wait_found(pid);
        let refused = mega(&["manage", &pid.to_string()]);
        let holder = manager.program.pid().to_string();
        assert_eq!(refused.code(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains(&holder), "{}", refused.stderr);
        manager.program.signal(Signal::KILL);
        assert_eq!(found(&manager.wait(LONG).lines).len(), 1);
    }
    assert!(sleeper.is_running());
}
