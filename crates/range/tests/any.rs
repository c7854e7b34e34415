//! Whatever a program does: what must hold always.

mod support;

use mega_range::density::Density;
use mega_range::intent::Intent;
use mega_range::page::Page;
use mega_range::span::{Span, PAGE, REGION};
use mega_range::waste;
use mega_range::world::Faults;
use proptest::prelude::*;
use support::World;

#[derive(Debug, Clone)]
enum Step {
    Map { at: u64, regions: u64 },
    Unmap { at: u64, regions: u64 },
    Fill { at: u64, regions: u64, each: u64 },
    Scatter { seed: u64, count: u64 },
    Wait { ticks: u32 },
    Fork,
    Short(bool),
    Limit(Option<u64>),
}

const ROOM: u64 = 400;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..ROOM, 1..150u64).prop_map(|(at, regions)| Step::Map { at, regions }),
        (0..ROOM, 1..150u64).prop_map(|(at, regions)| Step::Unmap { at, regions }),
        (0..ROOM, 1..80u64, 1..7u64).prop_map(|(at, regions, each)| Step::Fill { at, regions, each }),
        (1..u64::MAX, 1..500u64).prop_map(|(seed, count)| Step::Scatter { seed, count }),
        (1..400u32).prop_map(|ticks| Step::Wait { ticks }),
        Just(Step::Fork),
        any::<bool>().prop_map(Step::Short),
        prop::option::of(0..200u64).prop_map(|left| Step::Limit(left.map(|left| left << 20))),
    ]
}

/// What earlier runs may have seen.
fn earlier() -> impl Strategy<Value = Density> {
    (0..5000u32, 0..5000u32, 0..512u32).prop_map(|(dense, sparse, holes)| Density {
        dense,
        sparse,
        holes: holes * (dense + sparse),
    })
}

fn is_mapped(world: &World, address: u64) -> bool {
    world
        .kernel
        .mappings
        .iter()
        .any(|mapping| mapping.start <= address && address < mapping.end)
}

fn go(world: &mut World, step: &Step) {
    let base = 1000 * REGION;
    let span = |at: u64, regions: u64| Span::new(base + at * REGION, base + (at + regions) * REGION);
    match *step {
        Step::Map { at, regions } => {
            let span = span(at, regions);
            world.kernel.unmap(span);
            world.kernel.map(span);
        }
        Step::Unmap { at, regions } => world.kernel.unmap(span(at, regions)),
        Step::Fill { at, regions, each } => {
            let span = span(at, regions);
            let pages = (span.start..span.end).step_by((PAGE * each) as usize);
            for (count, page) in pages.enumerate() {
                if is_mapped(world, page) {
                    world.kernel.touch(page);
                }
                if count % 256 == 0 {
                    world.tick(1_000_000);
                }
            }
        }
        Step::Scatter { seed, count } => {
            let mut state = seed;
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = base + (state >> 20) % (ROOM * 512) * PAGE;
                if is_mapped(world, page) {
                    world.kernel.touch(page);
                }
                world.tick(1_000_000);
            }
        }
        Step::Wait { ticks } => world.ticks(ticks),
        Step::Fork => world.kernel.fork(),
        Step::Short(is) => world.conditions.is_short_of_blocks = is,
        Step::Limit(left) => world.conditions.left_bytes = left,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // That advice is for whole mappings the made-up kernel asserts at each order.
    #[test]
    fn ranges_lie_in_mappings_in_order_and_without_overlaps(
        steps in prop::collection::vec(step(), 1..25),
        intent in prop::sample::select(Intent::ALL.to_vec()),
        faults in prop::sample::select(vec![Faults::Never, Faults::Advised, Faults::Always]),
        earlier in earlier(),
    ) {
        let mut world = World::default();
        world.auto.begin(intent, earlier);
        world.conditions.faults = faults;
        for step in &steps {
            go(&mut world, step);
            world.tick(1_000_000);
            let ranges = world.auto.table().ranges();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].span.end <= pair[1].span.start);
            }
            for range in ranges {
                prop_assert!(world.kernel.mappings.iter().any(|mapping| mapping.contains(range.span)));
                prop_assert!(range.edge >= range.span.start);
            }
        }
        if faults == Faults::Never {
            prop_assert_eq!(world.kernel.huge(), 0);
        }
    }

    // Without faults that map huge pages by themselves, all waste is ours: what is populated ahead and what collapses add.
    #[test]
    fn under_latency_waste_is_within_the_allowance(
        steps in prop::collection::vec(step(), 1..25),
        earlier in earlier(),
    ) {
        let mut world = World::default();
        world.auto.begin(Intent::Latency, earlier);
        for step in steps.iter().filter(|step| !matches!(step, Step::Limit(_))) {
            go(&mut world, step);
        }
        let allowed = waste::allowance(world.kernel.resident(), None) + REGION;
        prop_assert!(world.waste <= allowed, "{} MB", world.waste >> 20);
    }

    #[test]
    fn under_memory_nothing_is_wasted(steps in prop::collection::vec(step(), 1..25), earlier in earlier()) {
        let mut world = World::default();
        world.auto.begin(Intent::Memory, earlier);
        for step in &steps {
            go(&mut world, step);
        }
        prop_assert_eq!(world.waste, 0);
    }

    #[test]
    fn any_bytes_are_a_page_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = Page::read(&bytes).map_err(|error| error.to_string());
    }
}
