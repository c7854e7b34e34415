//! The control loop with core's policies over the simulated machine.

use mega_core::budget::Budget;
use mega_core::compaction::planner;
use mega_core::compaction::target::FreeBlockTarget;
use mega_core::control::{Control, Observer, Settings, Status};
use mega_core::fault;
use mega_core::host::Host;
use mega_core::journal::{Event, Line};
use mega_core::policy::by_name;
use mega_core::units::Share;

use super::{Compacting, Drive, SimHost};
use crate::machine::{Config, Machine, Madvise};
use crate::physical::Fragmenter;
use crate::unit::SpaceId;

const MB: u64 = 1 << 20;
const HUGE: u64 = 2 * MB;
const PAGE: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

#[derive(Default)]
struct Log(Vec<Line>);

impl Observer for Log {
    fn event(&mut self, line: &Line) {
        self.0.push(line.clone());
    }
}

struct Run {
    status: Status,
    lines: Vec<Line>,
    machine: Machine,
    id: SpaceId,
}

/// A program with three areas: used all the time, mapped and never used again, and one touched in every fourth page. Under a policy, for so long.
fn run(fault_policy: &str, policy: &str, seconds: u64) -> Run {
    let mut machine = Machine::new(
        &Config {
            check_contents: true,
            ..Config::of_bytes(512 * MB)
        },
        fault::by_name(fault_policy).unwrap(),
    );
    let id = machine.spawn("program").unwrap();
    let hot = machine.mmap(id, 20 * MB, true).unwrap();
    let cold = machine.mmap(id, 20 * MB, true).unwrap();
    let sparse = machine.mmap(id, 20 * MB, true).unwrap();
    for page in 0..20 * MB / PAGE {
        machine.access(id, hot + page * PAGE, true).unwrap();
        machine.access(id, cold + page * PAGE, true).unwrap();
        if page % 4 == 0 {
            machine.access(id, sparse + page * PAGE, true).unwrap();
        }
    }
    let drive = move |machine: &mut Machine, until: u64| {
        while machine.clock_ns(id) < until {
            for page in 0..20 * MB / PAGE {
                machine.access(id, hot + page * PAGE, page % 2 == 0).unwrap();
            }
            machine.compute(id, 500_000_000);
        }
        true
    };
    manage(machine, id, drive, policy, seconds)
}

/// A machine with this program, managed for so long.
fn manage(machine: Machine, id: SpaceId, drive: impl Drive, policy: &str, seconds: u64) -> Run {
    let mut host = SimHost::new(machine, drive, seconds * SECOND);
    let mut policy = by_name(policy).unwrap();
    let mut log = Log::default();
    // A small machine: the default floor of free blocks would be most of it.
    let budget = Budget {
        free_blocks: mega_core::units::Blocks(0),
        ..Budget::default()
    };
    let settings = Settings {
        budget,
        full_journal: true,
        ..Settings::default()
    };
    let status = Control::new(&mut host, policy.as_mut(), settings, &mut log).run();
    host.machine.check().unwrap();
    Run {
        status,
        lines: log.0,
        machine: host.machine,
        id,
    }
}

#[test]
fn mega_promotes_what_is_used_and_nothing_else() {
    let run = run("base", "mega", 120);
    let counts = run.machine.space(run.id).unwrap().counts;
    assert_eq!(counts.huge, 10, "{:?}", run.status);
    assert_eq!(run.status.promoted, 10);
    // Ten collapses, which also cost the manager time, and what touching pages again costs the program.
    assert!(run.status.stall.as_micros() > 10 * 400 && run.status.cpu.as_micros() > 10 * 400);
    let ageing = run.lines.iter().map(|line| match line.event {
        Event::Age { stall_ns, .. } => stall_ns,
        _ => 0,
    });
    assert!(ageing.sum::<u64>() >= 10 * 512 * 600);
}

#[test]
fn ingens_promotes_all_that_is_mapped() {
    let run = run("base", "ingens", 60);
    assert_eq!(run.machine.space(run.id).unwrap().counts.huge, 20, "{:?}", run.status);
}

#[test]
fn trim_takes_back_what_huge_faults_wasted() {
    let run = run("linux", "trim", 60);
    let counts = run.machine.space(run.id).unwrap().counts;
    assert_eq!(counts.huge, 20, "{:?}", run.status);
    assert_eq!(counts.resident_pages, 20 * 512 + 10 * 128);
    // khugepaged collapses some of them again, and they are split again.
    assert!(run.status.returned.0 >= 10 * 384 * PAGE);
}

#[test]
fn what_is_unmapped_of_huge_pages_is_free_under_trim_and_auto_and_kept_under_others() {
    for (policy, is_freed) in [("trim", true), ("auto", true), ("ingens", false)] {
        let mut faults = fault::by_name("linux").unwrap();
        faults.set("khugepaged", "off").unwrap();
        let mut machine = Machine::new(&Config::of_bytes(512 * MB), faults);
        let id = machine.spawn("program").unwrap();
        let memory = machine.mmap(id, 40 * MB, true).unwrap();
        for page in 0..40 * MB / PAGE {
            machine.access(id, memory + page * PAGE, true).unwrap();
        }
        assert_eq!(machine.space(id).unwrap().counts.huge, 20);
        for region in 0..20 {
            let rest = memory + region * HUGE + HUGE / 4;
            machine.madvise(id, rest, HUGE / 4 * 3, Madvise::DontNeed).unwrap();
        }
        let before = machine.physical().free_bytes();
        let drive = move |machine: &mut Machine, until: u64| {
            machine.compute(id, until.saturating_sub(machine.clock_ns(id)));
            true
        };
        let run = manage(machine, id, drive, policy, 90);
        let freed = run.machine.physical().free_bytes() - before;
        assert_eq!(freed, if is_freed { 30 * MB } else { 0 }, "{policy}: {:?}", run.status);
        assert_eq!(run.status.returned.0, freed, "{policy}");
        assert_eq!(
            run.machine.space(id).unwrap().counts.resident_pages,
            20 * 128,
            "{policy}"
        );
    }
}

#[test]
fn a_scan_tells_what_an_interval_used() {
    let run = run("base", "mega", 30);
    let accessed: std::collections::BTreeSet<u32> = run
        .lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::See {
                flags, accessed_pages, ..
            } if flags.contains("aged") => Some(*accessed_pages),
            _ => None,
        })
        .collect();
    assert_eq!(accessed, [0, 512].into(), "used or not, nothing between");
}

#[test]
fn the_same_run_gives_the_same_journal() {
    let text = || -> String {
        let run = run("linux", "mega", 40);
        run.lines.iter().map(|line| line.to_text() + "\n").collect()
    };
    assert_eq!(text(), text());
}

#[test]
fn a_stock_is_kept_by_the_kernel_or_by_chosen_blocks() {
    for (name, compacting) in [("kernel", Compacting::Kernel), ("chosen", Compacting::mega())] {
        let mut machine = Machine::new(&Config::of_bytes(3 << 30), fault::by_name("base").unwrap());
        machine.physical_mut().fragment(&Fragmenter::study(3 << 30));
        let before = machine.physical().free_blocks();
        let id = machine.spawn("idle").unwrap();
        let area = machine.mmap(id, HUGE, true).unwrap();
        machine.access(id, area, true).unwrap();
        machine.madvise(id, area, HUGE, Madvise::Cold).unwrap();
        let mut host = SimHost::new(machine, |_: &mut Machine, _| true, 40 * SECOND);
        host.compacting = compacting;
        let mut policy = by_name("mega").unwrap();
        let target = FreeBlockTarget::new(planner::by_name("mega").unwrap());
        let settings = Settings {
            budget: Budget {
                cpu: Share::percent(50),
                ..Budget::default()
            },
            ..Settings::default()
        };
        let mut log = Log::default();
        let status = Control::new(&mut host, policy.as_mut(), settings, &mut log)
            .with_free_block_target(Some(target))
            .run();
        let counters = host.machine.counters();
        assert!(status.made.0 > 50, "{name}: {status:?}, {before} before, {counters:?}");
        assert!(host.machine.physical().free_blocks() > before);
        host.machine.check().unwrap();
        assert!(host.events().is_empty());
    }
}

#[test]
fn a_manager_goes_by_what_it_measures_of_a_touch_not_by_what_programs_pay() {
    let costs = crate::cost::Costs {
        set_accessed_ns: 600,
        set_accessed_believed_ns: 40,
        ..crate::cost::Costs::default()
    };
    let config = Config {
        costs,
        ..Config::of_bytes(64 * MB)
    };
    let machine = Machine::new(&config, fault::by_name("base").unwrap());
    let host = SimHost::new(machine, |_: &mut Machine, _| true, SECOND);
    assert_eq!(host.touch_cost(), std::time::Duration::from_nanos(40));
}
