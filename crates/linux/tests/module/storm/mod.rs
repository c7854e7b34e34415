//! Random calls, valid and hostile, from several processes, while other processes come and go, memory is short, moves, goes offline and bad, and the
//! module itself is removed and loaded again. What is asked for is that nothing happens: every errno is one of the documented ones, no process finds
//! its memory changed, and the debug kernel's watchers (lockdep, KASAN, kmemleak and others: tests/vm/debug-kernel) have nothing to say.
//!
//! | file | subject |
//! | --- | --- |
//! | `caller` | a process whose threads call the module |
//! | `buffers` | good and bad places for requests and their lists |
//! | `victim` | a process whose memory is looked at and moved meanwhile |
//! | `machine` | what happens to the whole machine meanwhile |
//!
//! MEGA_STORM_SECONDS (20) is how long, MEGA_STORM_SEED what is done: printed, and the same processes do the same again, though not at the same moments.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

mod buffers;
mod caller;
mod machine;
mod victim;

/// Where every victim has its memory.
const ARENA: u64 = 0x2000_0000_0000;
/// Its length, in regions of 2 MB.
const ARENA_REGIONS: u64 = 24;

/// Random choices of one thread.
struct Dice(Pcg64Mcg);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// Once in so many.
    fn once_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn pause(&mut self, most: Duration) {
        std::thread::sleep(Duration::from_micros(self.below(most.as_micros() as u64)));
    }
}

/// Tells threads to end, also where we fail: a scope waits for them.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A process of ours in a role.
struct Actor {
    child: Child,
    role: &'static str,
    seed: u64,
    ends: Instant,
}

impl Actor {
    /// None where there is no memory for it.
    fn start(role: &'static str, dice: &mut Dice) -> Option<Self> {
        let (seed, life_ms) = (dice.any(), 500 + dice.below(12_000));
        let child = Command::new("/proc/self/exe")
            .args(["--ignored", "--exact", "storm::one_of_many", "--nocapture"])
            .env("MEGA_STORM_ROLE", role)
            .env("MEGA_STORM_SEED", seed.to_string())
            .env("MEGA_STORM_LIFE_MS", life_ms.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        // Half of them end in the middle of what they do.
        let ends = Duration::from_millis(if dice.once_in(2) {
            dice.below(life_ms + 1)
        } else {
            life_ms + 60_000
        });
        Some(Actor {
            child,
            role,
            seed,
            ends: Instant::now() + ends,
        })
    }

    /// Whether it is over; panics where it failed.
    fn over(&mut self) -> bool {
        if Instant::now() >= self.ends {
            let _ = self.child.kill();
        }
        let Some(status) = self.child.try_wait().unwrap() else {
            return false;
        };
        if !status.success() && status.signal() != Some(libc::SIGKILL) {
            let mut said = String::new();
            let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
            panic!("{} with seed {}: {status}: {said}", self.role, self.seed);
        }
        true
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "minutes; on the debug kernel"]
fn random_calls_in_every_state_of_the_machine_leave_it_as_it_was() {
    let Some(turn) = super::module() else { return };
    let super::Turn { module, _turn } = turn;
    drop(module);
    let seconds = number("MEGA_STORM_SECONDS").unwrap_or(20);
    let seed = number("MEGA_STORM_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5EED);
    eprintln!("MODULE storm: seed {seed}, {seconds} s");
    // We are to see the end.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let mut dice = Dice::new(seed);
    let machine = machine::Machine::prepare();
    let stop = AtomicBool::new(false);
    let mut started = 0;
    std::thread::scope(|scope| {
        let disturbances: Vec<_> = machine::DISTURBANCES
            .iter()
            .map(|&(name, disturb)| {
                let (mut dice, stop) = (Dice::new(dice.any()), &stop);
                let run = move || {
                    let mut times = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        times += u64::from(disturb(&mut dice));
                    }
                    times
                };
                (name, scope.spawn(run))
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        let wanted = ["caller", "caller", "caller", "victim", "victim", "victim", "hog"];
        let mut actors: Vec<Actor> = Vec::new();
        let stopping = Stop(&stop);
        while Instant::now() < end {
            actors.retain_mut(|actor| !actor.over());
            for role in ["caller", "victim", "hog"] {
                let want = wanted.iter().filter(|r| **r == role).count();
                if actors.iter().filter(|a| a.role == role).count() < want {
                    let actor = Actor::start(role, &mut dice);
                    started += u32::from(actor.is_some());
                    actors.extend(actor);
                }
            }
            dice.pause(Duration::from_millis(60));
        }
        drop(stopping);
        let mut said = String::new();
        for (name, thread) in disturbances {
            said += &format!(", {name} {}", thread.join().unwrap());
        }
        eprintln!("MODULE storm: {started} processes{said}");
        drop(actors);
    });
    machine.put_back();
    machine::load();
    // It works as before, and what it gave is there again.
    let module = mega_linux::module::Module::open().unwrap();
    assert_eq!(module.all_blocks().unwrap().len() as u64, module.info().blocks);
    drop(module);
    machine::no_leaks();
}

/// A process of the storm; on its own it does nothing.
#[test]
#[ignore = "a part of the storm"]
fn one_of_many() {
    let Ok(role) = std::env::var("MEGA_STORM_ROLE") else {
        return;
    };
    let (seed, life_ms) = (
        number("MEGA_STORM_SEED").unwrap(),
        number("MEGA_STORM_LIFE_MS").unwrap(),
    );
    let end = Instant::now() + Duration::from_millis(life_ms);
    // Memory runs out: we go first, and the largest of us.
    std::fs::write("/proc/self/oom_score_adj", "500").unwrap();
    match role.as_str() {
        "caller" => caller::run(seed, end),
        "victim" => victim::run(seed, end),
        "hog" => victim::hog(seed, end),
        other => panic!("{other}"),
    }
}
