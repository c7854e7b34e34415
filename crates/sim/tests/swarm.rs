//! Random machines, policies and programs, with contents checked: whatever is done to memory, programs read what they stored, and the machine's
//! invariants hold. A failure prints the seed: `SWARM_SEED=n cargo test -p mega-sim --release --test swarm` repeats it.

use std::panic::{catch_unwind, AssertUnwindSafe};

use mega_core::budget::Budget;
use mega_core::control::{Control, Observer, Settings};
use mega_core::fault::{self, FAULT_POLICIES};
use mega_core::host::Host;
use mega_core::journal::Line;
use mega_core::policy::{by_name, POLICIES};
use mega_core::units::Share;
use mega_sim::host::{Compacting, SimHost};
use mega_sim::machine::{Config, Machine, MachineError, Madvise};
use mega_sim::physical::{Fragmenter, Layout};
use mega_sim::unit::SpaceId;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

const MB: u64 = 1 << 20;
const PAGE: u64 = 4096;

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n.max(1)
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A program: some areas, and what it does next is drawn.
struct Program {
    id: SpaceId,
    areas: Vec<(u64, u64)>,
}

struct Crowd {
    dice: Dice,
    programs: Vec<Program>,
    steps: u64,
    forks: u64,
}

impl Crowd {
    fn step(&mut self, m: &mut Machine) {
        self.programs.retain(|program| m.space(program.id).is_some());
        if self.programs.is_empty() {
            if let Some(id) = m.spawn("swarm") {
                self.programs.push(Program { id, areas: Vec::new() });
            }
        }
        // Who is behind goes first, as if all ran at once.
        let who = self
            .programs
            .iter()
            .enumerate()
            .min_by_key(|(_, program)| m.clock_ns(program.id));
        let who = who.map_or(0, |(i, _)| i);
        self.steps += 1;
        let (dice, program) = (&mut self.dice, &mut self.programs[who]);
        let id = program.id;
        let idle = 1_000_000 * dice.below(60);
        let area = (!program.areas.is_empty()).then(|| dice.below(program.areas.len() as u64) as usize);
        let part = |dice: &mut Dice, (address, bytes): (u64, u64)| {
            let pages = bytes / PAGE;
            let first = dice.below(pages);
            // Often whole regions, else any pages.
            if dice.one_in(3) {
                let first = (address + first * PAGE) / (2 * MB) * 2 * MB;
                (first.max(address), (2 * MB).min(address + bytes - first.max(address)))
            } else {
                (
                    address + first * PAGE,
                    (1 + dice.below((pages - first).min(700))) * PAGE,
                )
            }
        };
        match (dice.below(24), area) {
            (0 | 1, _) | (_, None) if program.areas.len() < 6 => {
                let bytes = (1 + dice.below(8 * 256)) * PAGE;
                if let Ok(address) = m.mmap(id, bytes, dice.one_in(2)) {
                    program.areas.push((address, bytes));
                }
            }
            (2, Some(i)) => {
                let (address, bytes) = program.areas.swap_remove(i);
                m.munmap(id, address, bytes).unwrap();
            }
            (3, Some(i)) => {
                let (address, bytes) = part(dice, program.areas[i]);
                m.munmap(id, address, bytes).unwrap();
            }
            (4, Some(i)) => {
                let (address, bytes) = program.areas[i];
                let new = (1 + dice.below(10 * 256)) * PAGE;
                if let Ok(moved) = m.mremap(id, address, bytes, new) {
                    program.areas[i] = (moved, new);
                }
            }
            (5..=8, Some(i)) => {
                let (address, bytes) = part(dice, program.areas[i]);
                let all = [
                    Madvise::Huge,
                    Madvise::NoHuge,
                    Madvise::DontNeed,
                    Madvise::DontNeed,
                    Madvise::Free,
                    Madvise::Cold,
                    Madvise::Collapse,
                ];
                let _ = m.madvise(id, address, bytes, dice.of(&all));
            }
            (9, Some(i)) => {
                let (address, bytes) = part(dice, program.areas[i]);
                let _ = m.mlock(id, address, bytes, dice.one_in(2));
            }
            (10, _) if self.forks < 6 && dice.one_in(2) => {
                let areas = program.areas.clone();
                if let Ok(child) = m.fork(id) {
                    self.forks += 1;
                    self.programs.push(Program { id: child, areas });
                }
            }
            (11, _) if dice.one_in(6) => {
                m.exit(id).unwrap();
                self.programs.swap_remove(who);
            }
            (_, Some(i)) => {
                let (address, bytes) = part(dice, program.areas[i]);
                let write = !dice.one_in(3);
                let stride = dice.of(&[PAGE, PAGE, 2 * PAGE, 7 * PAGE]);
                for at in (address..address + bytes).step_by(stride as usize) {
                    match m.access(id, at, write) {
                        Ok(()) | Err(MachineError::NotMapped(_)) => {}
                        Err(_) => break,
                    }
                }
            }
            _ => {}
        }
        m.compute(id, idle);
    }
}

struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Line) {}
}

fn build(dice: &mut Dice) -> (Machine, String) {
    let bytes = dice.of(&[48 * MB, 96 * MB, 160 * MB]);
    let (name, _) = dice.of(FAULT_POLICIES);
    let mut policy = fault::by_name(name).unwrap();
    let mut set = Vec::new();
    if name == "linux" {
        set.push((
            "defrag",
            dice.of(&["always", "defer", "defer+madvise", "madvise", "never"]),
        ));
        set.push(("max_ptes_none", dice.of(&["511", "255", "0"])));
        set.push(("scan_sleep", dice.of(&["10s", "100ms"])));
    }
    if name == "quicksilver" {
        set.push(("sync", dice.of(&["on", "off"])));
    }
    for (key, value) in &set {
        policy.set(key, value).unwrap();
    }
    let config = Config {
        layout: Layout::of_bytes(bytes),
        check_contents: true,
        swap_bytes: dice.of(&[0, 0, 64 * MB, 256 * MB]),
        split_frees: !dice.one_in(4),
        align_mappings: !dice.one_in(3),
        proactiveness: dice.of(&[0, 20]),
        seed: dice.below(1000),
        ..Config::of_bytes(bytes)
    };
    let text = format!(
        "{bytes} bytes, {name} {set:?}, swap {}, split frees {}",
        config.swap_bytes, config.split_frees
    );
    let mut machine = Machine::new(&config, policy);
    if dice.one_in(3) {
        let ballast = Fragmenter::ballast(Share::percent(40), Share::percent(2), dice.below(100));
        machine.physical_mut().fragment(&ballast);
    }
    (machine, text)
}

/// One run; panics where something is wrong.
fn run(seed: u64) {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let (machine, text) = build(&mut dice);
    let managed = dice.one_in(2);
    let steps = 40 + dice.below(160);
    let (scan, _) = dice.of(POLICIES);
    let compacting = dice.below(3);
    let text = format!("{text}; managed {managed} by {scan}, compacting {compacting}, {steps} steps");
    let mut crowd = Crowd {
        dice,
        programs: Vec::new(),
        steps: 0,
        forks: 0,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if !managed {
            let mut machine = machine;
            for i in 0..steps {
                crowd.step(&mut machine);
                if i % 16 == 0 {
                    machine.check().unwrap();
                }
            }
            machine.check().unwrap();
            return;
        }
        let mut policy = by_name(scan).unwrap();
        let drive = |machine: &mut Machine, until: u64| {
            let behind = |crowd: &Crowd, machine: &Machine| {
                crowd.programs.is_empty() || crowd.programs.iter().any(|p| machine.clock_ns(p.id) <= until)
            };
            while crowd.steps < steps && behind(&crowd, machine) {
                crowd.step(machine);
                if crowd.steps % 32 == 0 {
                    machine.check().unwrap();
                }
            }
            crowd.steps < steps
        };
        let mut host = SimHost::new(machine, drive, 60_000_000_000);
        host.compacting = match compacting {
            0 => Compacting::No,
            1 => Compacting::Kernel,
            _ => Compacting::mega(),
        };
        let settings = Settings {
            interval: std::time::Duration::from_millis(500),
            budget: Budget {
                stall: Share::percent(50),
                cpu: Share::percent(50),
                ..Budget::default()
            },
            ..Settings::default()
        };
        Control::new(&mut host, policy.as_mut(), settings, &mut Silent).run();
        let _ = host.now();
        host.machine.check().unwrap();
    }));
    if let Err(panic) = outcome {
        eprintln!("SWARM_SEED={seed} repeats it: {text}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn whatever_is_done_to_memory_programs_read_what_they_stored() {
    if let Some(seed) = std::env::var("SWARM_SEED").ok().and_then(|text| text.parse().ok()) {
        return run(seed);
    }
    let count: u64 = std::env::var("SWARM_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300);
    (0..count).for_each(run);
}

#[test]
fn the_same_seed_gives_the_same_machine() {
    let once = |seed| {
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
        let (mut machine, _) = build(&mut dice);
        let mut crowd = Crowd {
            dice,
            programs: Vec::new(),
            steps: 0,
            forks: 0,
        };
        (0..100).for_each(|_| crowd.step(&mut machine));
        (
            format!("{:?}", machine.counters()),
            machine.now_ns(),
            machine.physical().free_blocks(),
        )
    };
    for seed in 1000..1010 {
        assert_eq!(once(seed), once(seed));
    }
}
