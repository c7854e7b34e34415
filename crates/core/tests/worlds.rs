//! Whatever the world does, the control loop keeps its promises.

mod toy;

use std::collections::BTreeMap;
use std::time::Duration;

use mega_core::action::{ActionKind, CallError, Outcome};
use mega_core::budget::Budget;
use mega_core::control::Settings;
use mega_core::journal::{Event, Line};
use mega_core::observe::{Can, Why};
use mega_core::policy::{by_name, POLICIES};
use mega_core::replay::{policy_of, replay};
use mega_core::units::{Blocks, Share, Time};
use proptest::collection::vec;
use proptest::prelude::*;
use toy::*;

/// Something that happens to the world.
#[derive(Debug, Clone)]
enum Happens {
    Appears(bool, u64, u32, u32, u32),
    Huge(bool, u64, u32),
    Vanishes(bool, u64),
    Exits(bool),
    Shared(bool, u64, bool),
    Races(bool, u64, u32),
    Cannot(bool, u64),
    Acts(bool, u64, Act),
    Pressure(Option<u32>),
    Blocks(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let effect = prop_oneof![
        4 => Just(Effect::Works),
        2 => Just(Effect::Nothing),
        1 => Just(Effect::Unmapped),
        1 => Just(Effect::Exits),
        1 => Just(Effect::Forks),
    ];
    let says = prop_oneof![
        4 => Just(None),
        1 => Just(Some(CallError::NoMemory)),
        1 => Just(Some(CallError::Busy)),
        1 => Just(Some(CallError::Refused)),
        1 => Just(Some(CallError::Gone)),
        1 => (1..99).prop_map(|errno| Some(CallError::Other(errno))),
    ];
    (effect, says, 0u64..20_000).prop_map(|(effect, says, us)| Act {
        effect,
        says,
        took: Duration::from_micros(us),
        stall: (us % 3 == 0).then(|| Duration::from_micros(us / 2)),
    })
}

fn happens() -> impl Strategy<Value = Happens> {
    let (who, region) = (any::<bool>, || 0u64..12);
    prop_oneof![
        6 => (who(), region(), 0u32..=512, 0u32..=512, 0u32..=512).prop_map(|(w, r, m, h, z)| Happens::Appears(w, r, m, h, z)),
        3 => (who(), region(), 0u32..=512).prop_map(|(w, r, z)| Happens::Huge(w, r, z)),
        2 => (who(), region()).prop_map(|(w, r)| Happens::Vanishes(w, r)),
        1 => who().prop_map(Happens::Exits),
        2 => (who(), region(), any::<bool>()).prop_map(|(w, r, s)| Happens::Shared(w, r, s)),
        2 => (who(), region(), 1u32..4).prop_map(|(w, r, n)| Happens::Races(w, r, n)),
        1 => (who(), region()).prop_map(|(w, r)| Happens::Cannot(w, r)),
        4 => (who(), region(), act()).prop_map(|(w, r, a)| Happens::Acts(w, r, a)),
        1 => proptest::option::of(0u32..40).prop_map(Happens::Pressure),
        1 => (0u64..100).prop_map(Happens::Blocks),
    ]
}

impl Happens {
    fn to(self, world: &mut World) {
        let id = |who| if who { A } else { B };
        let change = |world: &mut World, who, region, change: &dyn Fn(&mut Place)| {
            if let Some(place) = world.place(id(who), region) {
                change(place);
            }
        };
        match self {
            Self::Appears(who, region, mapped, hot, zero) => {
                let place = Place {
                    zero: zero.min(mapped),
                    ..Place::base(mapped, hot)
                };
                world.add(id(who), [(region, place)]);
            }
            Self::Huge(who, region, zero) => world.add(id(who), [(region, Place::huge(zero))]),
            Self::Vanishes(who, region) => {
                world.processes.get_mut(&id(who)).map(|places| places.remove(&region));
            }
            Self::Exits(who) => world.exit(id(who)),
            Self::Shared(who, region, shared) => {
                change(world, who, region, &|place| place.shared = shared);
            }
            Self::Races(who, region, races) => {
                change(world, who, region, &|place| place.races = races);
            }
            Self::Cannot(who, region) => {
                let none = Can {
                    promote: false,
                    demote: false,
                    age: false,
                    why: Some(Why::Mlocked),
                };
                change(world, who, region, &|place| place.can = none);
            }
            Self::Acts(who, region, act) => {
                change(world, who, region, &|place| place.next.push_back(act));
            }
            Self::Pressure(percent) => world.machine.pressure = percent.map(Share::percent),
            Self::Blocks(blocks) => world.machine.free_blocks = Blocks(blocks),
        }
    }
}

/// Checks that what was done is what was decided, and that the books are right.
fn check(toy: &Toy, run: &Run, settings: &Settings) -> Result<(), TestCaseError> {
    let budget = &settings.budget;
    let mut open: BTreeMap<(u32, u64), ActionKind> = BTreeMap::new();
    let (mut promoted, mut demoted, mut failed, mut returned, mut stall) = (0, 0, 0, 0, 0);
    let (mut dear, mut scan_cpu) = (Duration::ZERO, Duration::ZERO);
    let mut machine = None;
    let mut last = Time(0);
    for line in &run.lines {
        prop_assert!(line.at >= last, "time goes on");
        last = line.at;
        prop_assert_eq!(&Line::parse(&line.to_json()).unwrap(), line);
        prop_assert_eq!(&Line::parse(&line.to_text()).unwrap().event, &line.event);
        match &line.event {
            Event::Machine {
                free_blocks,
                pressure_ppm,
                ..
            } => machine = Some((*free_blocks, pressure_ppm.unwrap_or(0))),
            Event::Scanned { cpu_ns, .. } => {
                open.clear();
                scan_cpu = scan_cpu.max(Duration::from_nanos(*cpu_ns));
            }
            Event::Decide {
                pid, region, action, ..
            } => {
                prop_assert_eq!(open.insert((*pid, region.0), *action), None, "decided once per scan");
            }
            Event::Age { .. } => {
                let (_, pressure) = machine.unwrap();
                prop_assert!(pressure <= budget.pressure.as_millionths());
            }
            Event::Outcome {
                pid,
                region,
                action,
                outcome,
                took_ns,
                stall_ns,
                returned_pages,
                ..
            } => {
                prop_assert_eq!(open.remove(&(*pid, region.0)), Some(*action), "{}", line.to_text());
                match (outcome, action) {
                    (Outcome::Done, ActionKind::Promote) => promoted += 1,
                    (Outcome::Done, ActionKind::Demote) => demoted += 1,
                    _ => failed += 1,
                }
                returned += u64::from(*returned_pages) * 4096;
                stall += stall_ns.unwrap_or(*took_ns);
                dear = dear.max(Duration::from_nanos(*took_ns));
                if *action == ActionKind::Promote {
                    let (blocks, pressure) = machine.unwrap();
                    prop_assert!(blocks > budget.free_blocks.0 && pressure <= budget.pressure.as_millionths());
                }
            }
            _ => {}
        }
    }
    let s = &run.status;
    prop_assert_eq!((s.promoted, s.demoted, s.failed), (promoted, demoted, failed));
    prop_assert_eq!((s.returned.0, s.stall), (returned, Duration::from_nanos(stall)));
    let stop = run.lines.last().map(|line| line.event.clone());
    prop_assert_eq!(
        stop,
        Some(Event::Stop {
            scans: s.scans,
            promoted,
            demoted,
            failed,
            returned_bytes: returned,
            stall_ns: stall,
            cpu_ns: s.cpu.as_nanos() as u64,
        })
    );

    // Every call has its outcome line, in order.
    let mut lines = run.outcomes().into_iter();
    for (when, action, _) in &toy.acts {
        let own = (action.process.pid, action.region.0, action.kind);
        prop_assert!(
            lines.any(|o| (o.1, o.2, o.3) == own && o.0 >= *when),
            "{own:?} was acted on without a word"
        );
    }
    for id in [A, B] {
        let held: Duration = toy.acts.iter().filter(|a| a.1.process == id).map(|a| a.2).sum();
        let limit = s.elapsed.mul_f64(budget.stall.fraction()) + dear;
        prop_assert!(held <= limit, "stalled {held:?}, limit {limit:?}");
    }
    let limit = (s.elapsed + settings.interval).mul_f64(budget.cpu.fraction()) + scan_cpu * 2 + dear;
    prop_assert!(s.cpu <= limit, "cpu {:?}, not {limit:?}", s.cpu);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn in_any_world_nothing_panics_books_are_right_budgets_hold_and_only_decisions_are_carried_out(
        which in 0..POLICIES.len(),
        percents in (1u32..=100, 1u32..=100),
        dry_run in prop::bool::weighted(0.1),
        scan_us in 0u64..200_000,
        happenings in vec((0u64..90_000, happens()), 0..80),
    ) {
        let settings = Settings {
            budget: Budget {
                stall: Share::percent(percents.0),
                cpu: Share::percent(percents.1),
                ..Budget::default()
            },
            dry_run,
            full_journal: true,
            ..Settings::default()
        };
        let mut toy = Toy::new(100 * SECOND);
        toy.scan_cpu = Duration::from_micros(scan_us);
        for (i, (ms, happens)) in happenings.into_iter().enumerate() {
            // The first half is there from the start.
            let when = if i < 40 { Duration::ZERO } else { Duration::from_millis(ms) };
            toy.change(when, move |world| happens.to(world));
        }
        let mut policy = by_name(POLICIES[which].0).unwrap();
        let run = toy.run(policy.as_mut(), settings.clone());
        check(&toy, &run, &settings)?;
        if dry_run {
            prop_assert!(toy.acts.is_empty() && toy.ages.is_empty());
        }
        let mut fresh = policy_of(&run.lines[0].event).unwrap().unwrap();
        let found = replay(&run.lines, fresh.as_mut()).unwrap();
        prop_assert!(found.is_same(), "{found:?}");
        for tally in [&found.outcomes, &found.deferrals, &found.rest] {
            prop_assert!(tally.is_same(), "{found:?}");
        }
    }
}
