//! The rules against a made-up program: what becomes huge, what it costs in memory, and what is never done.

mod support;

use mega_range::birth::{Birth, New, PROBED};
use mega_range::density::{Density, Population};
use mega_range::intent::Intent;
use mega_range::orders::Outcome;
use mega_range::rate;
use mega_range::span::{Span, PAGE, PAGES, REGION};
use mega_range::table::Advice;
use mega_range::waste;
use mega_range::world::{Conditions, Faults, Memory};
use support::World;

fn span(from: u64, to: u64) -> Span {
    Span::new(from * REGION, to * REGION)
}

fn world() -> World {
    World::default()
}

/// Numbers that look random and are the same each time.
fn scatter(seed: u64, below: u64) -> impl Iterator<Item = u64> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    })
}

#[test]
fn what_is_filled_in_order_becomes_huge_without_waste_beyond_the_allowance() {
    let mut world = world();
    world.kernel.map(span(1000, 1200));
    world.fill(span(1000, 1200), 512);
    assert!(world.kernel.is_advised(span(1000, 1200)));
    assert!(world.waste <= waste::LEAST, "{} MB", world.waste >> 20);
    world.ticks(3000);
    assert!(world.kernel.huge() >= 199, "{}", world.kernel.huge());
    assert_eq!(world.kernel.resident(), world.kernel.touched());
}

#[test]
fn what_was_filled_before_the_advice_is_collapsed_while_the_program_goes_on() {
    for (is_busy, has_unmapped) in [(false, false), (true, false), (false, true)] {
        let mut world = world();
        world.kernel.map(span(100, 110));
        world.tick(1_000_000);
        if has_unmapped {
            world.kernel.unmap(span(100, 110));
            world.tick(1_000_000);
        }
        world.conditions.is_busy = is_busy;
        world.kernel.map(span(1000, 1500));
        world.fill(span(1000, 1200), 512);
        let base = |world: &mut World| {
            let mut seen = [Population::default(); 16];
            world.kernel.populations(1000 * REGION, &mut seen);
            seen.iter().filter(|seen| !seen.is_huge()).count()
        };
        // Where no processor is spare it costs the program more than a stall; and this mapping may soon be gone, too.
        assert_eq!(base(&mut world) >= 4, is_busy || has_unmapped);
        world.ticks(1500);
        assert_eq!(base(&mut world), 0);
    }
}

/// So a JVM's G1 fills what it has committed.
#[test]
fn what_is_filled_from_its_end_downwards_becomes_huge_too() {
    let mut world = world();
    world.kernel.map(span(1000, 1200));
    // Halves of regions, from the last one on, each by itself upwards.
    for half in (2000..2400).rev() {
        for page in 0..u64::from(PAGES) / 2 {
            world.kernel.touch(half * REGION / 2 + page * PAGE);
        }
        world.tick(1_000_000);
    }
    assert!(world.kernel.is_advised(span(1000, 1200)));
    assert!(world.kernel.huge() >= 180, "{}", world.kernel.huge());
    assert!(world.waste <= waste::LEAST, "{} MB", world.waste >> 20);
}

#[test]
fn dense_from_its_end_downwards_and_then_here_and_there_loses_the_advice() {
    let mut world = world();
    world.kernel.map(span(1000, 3000));
    for region in (2900..3000).rev() {
        for page in 0..u64::from(PAGES) {
            world.kernel.touch(region * REGION + page * PAGE);
            if page % 128 == 0 {
                world.tick(1_000_000);
            }
        }
    }
    assert!(world.kernel.is_advised(span(1000, 3000)));
    for (count, page) in scatter(11, 1890 * u64::from(PAGES)).take(50_000).enumerate() {
        world.kernel.touch(1000 * REGION + page * PAGE);
        if count % 10 == 0 {
            world.tick(1_000_000);
        }
    }
    assert!(!world.kernel.is_advised(span(1000, 3000)));
    assert!(world.waste <= 2 * waste::LEAST, "{} MB", world.waste >> 20);
}

#[test]
fn a_scattered_sixth_stays_on_base_pages() {
    let mut world = world();
    world.kernel.map(span(1000, 2000));
    let pages = 1000 * u64::from(PAGES);
    for (count, page) in scatter(7, pages).take(pages as usize / 6).enumerate() {
        world.kernel.touch(1000 * REGION + page * PAGE);
        if count % 500 == 0 {
            world.tick(1_000_000);
        }
    }
    world.ticks(3000);
    assert_eq!(world.kernel.huge(), 0);
    assert_eq!(world.waste, 0);
}

#[test]
fn dense_then_scattered_in_one_range_loses_the_advice_within_the_allowance() {
    let mut world = world();
    world.kernel.map(span(1000, 3000));
    world.fill(span(1000, 1500), 512);
    assert!(world.kernel.is_advised(span(1000, 3000)));
    let rest = 1490 * u64::from(PAGES);
    // A fault of 2 MB takes 0.1 ms: ten of them between two looks.
    for (count, page) in scatter(9, rest).take(100_000).enumerate() {
        world.kernel.touch(1510 * REGION + page * PAGE);
        if count % 10 == 0 {
            world.tick(1_000_000);
        }
    }
    assert!(!world.kernel.is_advised(span(1000, 3000)));
    assert!(world.waste <= 2 * waste::LEAST, "{} MB", world.waste >> 20);
}

#[test]
fn dense_then_every_fourth_page_in_order_loses_the_advice_soon() {
    let mut world = world();
    world.kernel.map(span(1000, 3000));
    world.fill(span(1000, 1500), 512);
    assert!(world.kernel.is_advised(span(1000, 3000)));
    for (count, page) in (0..1000 * u64::from(PAGES)).step_by(4).enumerate() {
        world.kernel.touch(1500 * REGION + page * PAGE);
        if count % 128 == 0 {
            world.tick(1_000_000);
        }
    }
    assert!(!world.kernel.is_advised(span(1000, 3000)));
    assert!(world.waste <= 2 * waste::LEAST, "{} MB", world.waste >> 20);
}

#[test]
fn filled_in_random_order_is_collapsed_once_it_has_paused() {
    let mut world = world();
    world.kernel.map(span(1000, 1050));
    let pages = 50 * u64::from(PAGES);
    for (count, page) in scatter(3, pages).take(pages as usize * 12).enumerate() {
        world.kernel.touch(1000 * REGION + page * PAGE);
        if count % 1000 == 0 {
            world.tick(1_000_000);
        }
    }
    world.call_ns = 500_000;
    world.ticks(20_000);
    assert_eq!(world.kernel.huge(), 50);
}

#[test]
fn two_ranges_of_one_mapping_are_advised_together_or_not_at_all() {
    let mut world = world();
    // Sparse, and then the same mapping grows downwards by a dense range.
    world.kernel.map(span(1000, 1100));
    for region in 1000..1100 {
        world.kernel.touch(region * REGION);
        world.tick(60_000_000);
    }
    world.kernel.map(span(900, 1000));
    assert_eq!(world.kernel.mappings, [span(900, 1100)]);
    world.fill(span(900, 1000), 512);
    assert!(
        !world.kernel.is_advised(span(900, 1100)),
        "the sparse half would be mapped huge, too"
    );
    world.ticks(20_000);
    let huge = world.kernel.huge();
    assert!((99..=100).contains(&huge), "what is dense is collapsed: {huge}");
}

#[test]
fn memory_freed_and_mapped_again_at_the_same_place_is_learned_anew() {
    let mut world = world();
    for _ in 0..3 {
        world.kernel.map(span(1000, 1100));
        world.fill(span(1000, 1100), 512);
        assert!(world.kernel.is_advised(span(1000, 1100)));
        world.kernel.unmap(span(1000, 1100));
    }
}

#[test]
fn without_free_blocks_nothing_is_advised_and_what_lies_behind_is_collapsed() {
    let mut world = world();
    world.conditions.is_short_of_blocks = true;
    world.kernel.map(span(1000, 1100));
    world.call_ns = 500_000;
    world.fill(span(1000, 1100), 100);
    assert!(!world.kernel.is_advised(span(1000, 1100)));
    assert!(world.kernel.huge() > 10, "{}", world.kernel.huge());
    assert_eq!(world.waste, 0);
}

#[test]
fn advice_is_withdrawn_when_blocks_run_short() {
    let mut world = world();
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1050), 512);
    assert!(world.kernel.is_advised(span(1000, 1100)));
    world.conditions.is_short_of_blocks = true;
    world.fill(span(1065, 1070), 512);
    assert!(!world.kernel.is_advised(span(1000, 1100)));
}

#[test]
fn near_a_limit_nothing_is_populated_ahead_and_nothing_wasted() {
    let mut world = world();
    world.conditions.left_bytes = Some(waste::NEAR - 1);
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    world.ticks(2000);
    assert_eq!((world.kernel.huge(), world.waste), (0, 0));
}

#[test]
fn at_most_half_of_what_a_control_group_has_left_is_populated_ahead() {
    for left in [waste::NEAR, 2 * waste::NEAR, waste::LEAST] {
        let mut world = world();
        world.conditions.left_bytes = Some(left);
        world.kernel.map(span(1000, 1100));
        world.fill(span(1000, 1050), 512);
        let ahead = world.kernel.resident() - world.kernel.touched();
        assert!(ahead > 0 && ahead <= left / 2, "{ahead} of {left}");
    }
}

#[test]
fn what_was_populated_ahead_of_a_program_that_stops_is_given_back() {
    let mut world = world();
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1050), 512);
    let before = world.kernel.resident() - world.kernel.touched();
    assert!(before > 0);
    world.ticks(1500);
    let after = world.kernel.resident() - world.kernel.touched();
    assert!(after < before, "{} MB of {} MB", after >> 20, before >> 20);
}

#[test]
fn under_latency_no_fault_of_the_program_maps_a_huge_page() {
    let mut world = world();
    world.auto.begin(Intent::Latency, Density::NONE);
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    assert!(!world.kernel.is_advised(span(1000, 1100)));
    world.call_ns = 400_000;
    world.ticks(20_000);
    assert!(world.kernel.huge() >= 99, "{}", world.kernel.huge());
}

#[test]
fn memory_takes_not_a_page_more() {
    let mut world = world();
    world.auto.begin(Intent::Memory, Density::NONE);
    world.kernel.map(span(1000, 1100));
    for region in 1000..1100 {
        for page in 0..PAGES as u64 - 1 {
            world.kernel.touch(region * REGION + page * PAGE);
        }
        world.tick(1_000_000);
    }
    world.ticks(3000);
    assert_eq!(world.waste, 0);
}

#[test]
fn where_the_owner_wants_none_nothing_is_done() {
    let mut world = world();
    world.conditions.faults = Faults::Never;
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    world.ticks(3000);
    assert_eq!(world.kernel.huge(), 0);
}

#[test]
fn where_every_fault_maps_huge_pages_nothing_is_advised() {
    let mut world = world();
    world.conditions.faults = Faults::Always;
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    assert!(!world.kernel.is_advised(span(1000, 1100)));
}

#[test]
fn a_call_that_is_refused_is_not_made_again() {
    let mut world = world();
    world.kernel.refuses = Some(Outcome::Refused);
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    world.ticks(5000);
    let off = world.auto.off();
    assert!(off.advise && off.collapse);
    assert!(world.orders.list().is_empty());
}

#[test]
fn a_mapping_in_which_the_program_forbids_huge_pages_is_left_alone() {
    let mut world = world();
    world.kernel.refuses = Some(Outcome::Ineligible);
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    assert!(world
        .auto
        .table()
        .ranges()
        .iter()
        .all(|range| range.advice == Advice::Ineligible));
    world.kernel.refuses = None;
    world.ticks(5000);
    assert_eq!(world.kernel.huge(), 0);
}

#[test]
fn collapses_keep_to_the_stall_budget() {
    let mut world = world();
    world.conditions.is_short_of_blocks = true;
    world.kernel.map(span(1000, 2000));
    world.fill(span(1000, 2000), 5000);
    let before = world.kernel.huge();
    world.call_ns = 1_000_000;
    world.ticks(150);
    let growing = world.kernel.huge() - before;
    // 50 ms of credit and 5 % of the time: a millisecond each, which counts five times until the range has paused.
    assert!((5..=12).contains(&growing), "{growing}");
    world.ticks(1000);
    let paused = world.kernel.huge() - before - growing;
    assert!((40..=60).contains(&paused), "{paused}");
}

#[test]
fn what_the_program_unmaps_of_huge_pages_is_released_within_the_stall_budget() {
    let mut world = world();
    world.kernel.map(span(1000, 1100));
    world.fill(span(1000, 1100), 512);
    world.ticks(5000);
    assert!(world.kernel.huge() >= 99, "{}", world.kernel.huge());
    world.call_ns = 200_000;
    for region in 1000..1100 {
        world.kernel.give_back(region * REGION, 384);
    }
    let kept = world.kernel.kept();
    world.ticks(900);
    assert_eq!(world.kernel.kept(), kept, "more may follow soon");
    world.ticks(2000);
    assert_eq!(world.kernel.kept(), 0);
    let done = world.kernel.releases;
    world.ticks(10_000);
    assert_eq!(world.kernel.releases, done, "there is nothing any more");
    assert_eq!(world.kernel.resident(), world.kernel.touched());
}

#[test]
fn what_khugepaged_makes_of_sparse_regions_is_given_back() {
    let mut world = world();
    world.kernel.map(span(1000, 1100));
    for page in (0..100 * u64::from(PAGES)).step_by(4) {
        world.kernel.touch(1000 * REGION + page * PAGE);
        if page % 512 == 0 {
            world.tick(1_000_000);
        }
    }
    world.ticks(5000);
    let touched = world.kernel.touched();
    assert_eq!((world.kernel.huge(), world.kernel.resident()), (0, touched));
    // Eight of them in ten seconds, from the first one on.
    for eight in 0..12 {
        for nth in 0..8 {
            world.kernel.khugepaged((1000 + eight * 8 + nth) * REGION);
        }
        world.ticks(10_000);
        let waste = world.kernel.resident() - touched;
        assert!(waste <= waste::LEAST, "{} MB", waste >> 20);
    }
    world.ticks(70_000);
    assert_eq!(world.kernel.resident(), touched);
    // Many at once are not waited for until the next sweep, which is a minute away.
    world.ticks(200_000);
    for region in 1000..1030 {
        world.kernel.khugepaged(region * REGION);
    }
    world.ticks(1500);
    assert_eq!(world.kernel.resident(), touched);
    // What the program has filled meanwhile is promoted, and stays.
    for page in 0..u64::from(PAGES) {
        world.kernel.touch(1005 * REGION + page * PAGE);
    }
    world.ticks(70_000);
    assert_eq!(world.kernel.huge(), 1);
}

#[test]
fn base_pages_that_are_given_back_are_left_alone() {
    let mut world = world();
    world.conditions.faults = Faults::Advised;
    world.kernel.map(span(1000, 1100));
    // A half of each region: no huge page.
    for region in 1000..1100 {
        for page in 0..u64::from(PAGES) / 2 {
            world.kernel.touch(region * REGION + page * PAGE);
        }
        world.tick(1_000_000);
    }
    assert_eq!(world.kernel.huge(), 0);
    for region in 1000..1100 {
        world.kernel.give_back(region * REGION, 384);
    }
    world.ticks(5000);
    assert_eq!(world.kernel.releases, 0);
}

#[test]
fn memory_shared_with_children_is_collapsed_as_far_as_its_copies_may_be_waste() {
    let filled = |is_forked, left_bytes| {
        let mut world = world();
        world.conditions.is_forked = is_forked;
        world.conditions.left_bytes = left_bytes;
        world.conditions.is_short_of_blocks = true;
        world.kernel.map(span(1000, 1100));
        world.fill(span(1000, 1100), 5000);
        world.kernel.fork();
        world.ticks(20_000);
        world
    };
    let allowed = Conditions::default().allowed_regions();
    let parent = filled(false, None);
    assert_eq!(parent.kernel.copied, allowed / 8);
    assert!(parent.waste <= waste::LEAST);
    // Each of many children would have a copy of its own.
    assert_eq!(filled(true, None).kernel.copied, 0);
    // Of half of what a control group has left.
    assert_eq!(filled(false, Some(waste::LEAST)).kernel.copied, allowed / 16);
    assert_eq!(filled(false, Some(waste::NEAR - 1)).kernel.copied, 0);
}

/// Each fork copies the page tables of what is not huge.
#[test]
fn where_children_are_short_more_is_collapsed_and_sooner() {
    let copied_by = |is_busy, is_advised: bool, has_short_children, ms| {
        let mut world = world();
        world.conditions.is_busy = true;
        world.conditions.is_short_of_blocks = !is_advised;
        world.kernel.map(span(1000, 1100));
        world.fill(span(1000, 1100), if is_advised { 512 } else { 5000 });
        world.kernel.fork();
        world.conditions.is_busy = is_busy;
        world.conditions.has_short_children = has_short_children;
        world.ticks(ms);
        // One of them may stay after all.
        assert!(world.waste <= waste::LEAST);
        world.kernel.copied
    };
    let copied = |is_advised, is_short, ms| copied_by(false, is_advised, is_short, ms);
    let allowed = Conditions::default().allowed_regions();
    assert_eq!(copied(false, false, 1000), allowed / 8);
    assert_eq!(copied(false, true, 1000), allowed / 2);
    // What was filled before the advice, at once.
    assert_eq!(copied(true, false, 100), allowed / 8);
    assert!(copied(true, true, 100) >= 4);
    // A server that forks is busy, and shall not wait until it is not.
    assert_eq!(copied_by(true, true, false, 500), 0);
    assert!(copied_by(true, true, true, 100) >= 4);
}

/// A program that has filled ten mappings, every so many-th page.
fn filled(step: u64) -> World {
    let mut world = world();
    for nth in 0..10 {
        let from = 1000 + nth * 100;
        world.kernel.map(span(from, from + 10));
        for page in (0..10 * u64::from(PAGES)).step_by(step as usize) {
            world.kernel.touch(from * REGION + page * PAGE);
            if page % 512 == 0 {
                world.tick(1_000_000);
            }
        }
        world.tick(100_000_000);
    }
    world
}

#[test]
fn what_a_dense_program_maps_may_be_advised_at_birth_and_what_a_sparse_one_maps_may_not() {
    assert_eq!(filled(2).auto.births(&filled(2).conditions).resident_bytes, 0);
    let world = filled(1);
    let of = |change: &dyn Fn(&mut Conditions)| {
        let mut conditions = world.conditions;
        change(&mut conditions);
        world.auto.births(&conditions).resident_bytes
    };
    assert_eq!(of(&|_| ()), world.kernel.resident());
    assert_eq!(of(&|now| now.left_bytes = Some(0)), 0);
    assert_eq!(of(&|now| now.is_short_of_blocks = true), 0);
    for faults in [Faults::Never, Faults::Always] {
        assert_eq!(of(&|now| now.faults = faults), 0);
    }
    let mut latency = world.auto.clone();
    latency.begin(Intent::Latency, Density::NONE);
    assert_eq!(latency.births(&world.conditions).resident_bytes, 0);
}

#[test]
fn what_was_advised_at_birth_and_is_sparse_loses_the_advice() {
    let mut world = filled(1);
    let born = span(3000, 3400);
    world.kernel.map(born);
    world.kernel.advise(born);
    world.auto.follow(&world.kernel.mappings.clone());
    world.auto.born(born.start, Birth::Advised);
    for region in (3000..3400).step_by(4) {
        world.kernel.touch(region * REGION);
        world.tick(1_000_000);
    }
    assert!(!world.kernel.is_advised(born));
    assert!(world.waste <= 2 * waste::LEAST, "{} MB", world.waste >> 20);
}

#[test]
fn where_no_processor_is_spare_what_was_filled_is_collapsed_later_and_slower() {
    let huge_after = |is_busy: bool, ticks: u32| {
        let mut world = world();
        world.conditions.is_busy = is_busy;
        world.kernel.map(span(1000, 1200));
        for page in scatter(3, 200 * u64::from(PAGES)).take(200 * PAGES as usize * 12) {
            world.kernel.touch(1000 * REGION + page * PAGE);
        }
        world.call_ns = 1_000_000;
        world.ticks(ticks);
        world.kernel.huge()
    };
    let after = |ticks| [false, true].map(|is_busy| huge_after(is_busy, ticks));
    assert_eq!(after(900)[1], 0);
    assert!(after(900)[0] > 25, "{:?}", after(900));
    let [spare, busy] = after(3000);
    assert!(busy > 0 && busy < spare, "{spare}, {busy}");
    assert_eq!(after(60_000), [200, 200]);
}

#[test]
fn where_there_is_more_to_run_than_processors_only_who_does_nothing_but_fill_is_populated_ahead() {
    let is_populated_ahead = |is_crowded: bool, region_ns: u64| {
        let mut world = world();
        world.conditions.is_crowded = is_crowded;
        world.kernel.map(span(1000, 1300));
        let mut ahead = 0;
        for region in 1000..1200 {
            world.conditions.program_ns += region_ns;
            world.fill(span(region, region + 1), 512);
            // By then it is known how fast it fills.
            if region >= 1100 {
                ahead = ahead.max(world.kernel.resident() - world.kernel.touched());
            }
        }
        ahead > 0
    };
    let (fast, slow) = (rate::FILLING_NS / 2, rate::FILLING_NS * 2);
    assert!(is_populated_ahead(false, slow) && is_populated_ahead(true, fast));
    assert!(!is_populated_ahead(true, slow));
}

#[test]
fn what_a_dense_program_maps_unseen_is_advised_at_the_first_look() {
    for (step, is_advised) in [(1, true), (2, false)] {
        let mut world = filled(step);
        let unseen = span(3000, 3020);
        world.kernel.map(unseen);
        // The first region and a half of it.
        for page in 0..768 {
            world.kernel.touch(unseen.start + page * PAGE);
        }
        world.tick(1_000_000);
        assert_eq!(world.kernel.is_advised(unseen), is_advised, "every {step}th page");
    }
}

#[test]
fn a_probe_stays_on_base_pages_until_it_has_shown_how_densely_it_is_filled() {
    for (step, is_advised) in [(1, true), (2, false)] {
        let mut world = filled(1);
        let probe = span(3000, 3100);
        world.kernel.map(probe);
        world.auto.follow(&world.kernel.mappings.clone());
        world.auto.born(probe.start, Birth::Probe);
        let seen = world.auto.seen();
        let mut touched = 0;
        let shown = u64::from(PROBED) - 1;
        for page in (0..100 * u64::from(PAGES)).step_by(step) {
            world.kernel.touch(probe.start + page * PAGE);
            touched += 1;
            if touched % 100 == 0 {
                world.tick(1_000_000);
            }
            let is_early = page < shown * u64::from(PAGES);
            assert!(
                !(is_early && world.kernel.is_advised(probe)),
                "page {page}, every {step}th"
            );
        }
        assert_eq!(world.kernel.is_advised(probe), is_advised, "every {step}th page");
        let probed = if is_advised {
            world.auto.seen().dense - seen.dense
        } else {
            world.auto.seen().sparse - seen.sparse
        };
        assert!(probed >= PROBED, "{probed} of every {step}th page");
    }
}

#[test]
fn whose_contents_show_that_it_fills_what_it_gets_needs_no_probes_ahead() {
    let probes = |hides_contents| {
        let mut world = world();
        world.kernel.hides_contents = hides_contents;
        world.kernel.map(span(1000, 1400));
        world.fill(span(1000, 1400), 512);
        assert!(world.kernel.huge() >= 360, "{}", world.kernel.huge());
        world.kernel.probes
    };
    assert_eq!(probes(false), 0);
    assert!(probes(true) >= 8, "{}", probes(true));
}

#[test]
fn contents_of_what_was_advised_at_birth_say_whether_another_probe_is_needed() {
    let is_shown = |step: usize| {
        let mut world = filled(1);
        let new = span(3000, 3032);
        world.kernel.map(new);
        world.kernel.advise(new);
        world.tick(1_000_000);
        world.auto.born(new.start, Birth::Advised);
        let mut is_shown = false;
        for page in (0..32 * u64::from(PAGES)).step_by(step) {
            world.kernel.touch(new.start + page * PAGE);
            if page % 512 == 0 {
                world.tick(1_000_000);
                is_shown |= world.auto.births(&world.conditions).is_filled;
            }
        }
        is_shown
    };
    assert_eq!([1, 4].map(is_shown), [true, false]);
}

#[test]
fn contents_outweigh_the_few_sparse_regions_that_base_pages_have_shown() {
    let may_be_born = |hides_contents| {
        let mut world = filled(1);
        world.kernel.hides_contents = hides_contents;
        let sparse = span(2500, 2516);
        world.kernel.map(sparse);
        for region in 2500..2516 {
            world.kernel.touch(region * REGION);
            world.tick(60_000_000);
        }
        let new = span(3000, 3800);
        world.kernel.map(new);
        world.kernel.advise(new);
        world.tick(1_000_000);
        world.auto.born(new.start, Birth::Advised);
        world.fill(new, 512);
        world.auto.births(&world.conditions).resident_bytes > 0
    };
    assert_eq!([false, true].map(may_be_born), [true, false]);
}

#[test]
fn what_grows_by_less_than_a_region_at_a_time_is_collapsed_and_not_advised() {
    let mut world = world();
    let grown = |pages: u64| Span::new(1000 * REGION, 1000 * REGION + pages * PAGE);
    let all = 200 * u64::from(PAGES);
    for from in (0..all).step_by(32) {
        let step = Span::new(grown(from).end, grown(from + 32).end);
        world.kernel.map(step);
        world.fill(step, 32);
    }
    assert!(!world.kernel.is_advised(span(1000, 1001)));
    // Advised piece by piece it would be as many mappings, and no region on their borders could be huge.
    assert_eq!(world.kernel.mappings, [grown(all)]);
    world.ticks(3000);
    assert_eq!(world.kernel.huge(), 200);
}

#[test]
fn under_latency_who_fills_here_and_there_is_populated_ahead_of_no_more() {
    for seed in 1..20 {
        let mut world = world();
        world.auto.begin(Intent::Latency, Density::NONE);
        world.kernel.map(span(1000, 1128));
        world.fill(span(1059, 1064), 1);
        for page in scatter(seed, 128 * u64::from(PAGES)).take(2000) {
            world.kernel.touch(1000 * REGION + page * PAGE);
            world.tick(1_000_000);
        }
        assert!(world.waste <= waste::LEAST, "{seed}: {} MB", world.waste >> 20);
    }
}

#[test]
fn what_several_threads_fill_at_a_time_is_not_taken_for_sparse() {
    let mut world = world();
    world.kernel.map(span(1000, 1064));
    // Four threads, each in a region of its own.
    for first in (1000..1064).step_by(4) {
        for page in 0..u64::from(PAGES) {
            for thread in 0..4 {
                world.kernel.touch((first + thread) * REGION + page * PAGE);
            }
            if page % 100 == 0 {
                world.tick(1_000_000);
            }
        }
    }
    world.tick(1_000_000);
    assert_eq!(world.auto.seen().sparse, 0);
    assert!(world.kernel.is_advised(span(1000, 1064)));
}

/// A program that in earlier runs filled so many regions densely, and so many not.
fn after_runs(dense: u32, sparse: u32, intent: Intent) -> World {
    let mut world = world();
    let earlier = Density {
        dense,
        sparse,
        holes: sparse * 500,
    };
    world.auto.begin(intent, earlier);
    world
}

#[test]
fn what_earlier_runs_filled_densely_is_advised_at_birth_within_the_allowance_before_anything_was_seen() {
    let births = |dense, sparse, intent| {
        let world = after_runs(dense, sparse, intent);
        world.auto.births(&world.conditions)
    };
    let of_earlier = births(1000, 10, Intent::Balanced);
    let unprobed = (0..64u64).map(|nth| 8 * nth).take_while(|mib| {
        let nth = (mib / 8) as u32;
        of_earlier.of(
            New {
                bytes: 8 << 20,
                is_piece: false,
            },
            nth,
            mib << 20,
        ) == Birth::Advised
    });
    assert_eq!(unprobed.count() as u64 * (8 << 20), waste::LEAST);
    let none = [
        births(10, 0, Intent::Balanced),
        births(1000, 100, Intent::Balanced),
        births(0, 1000, Intent::Balanced),
        births(1000, 10, Intent::Latency),
        births(1000, 10, Intent::Memory),
    ];
    assert!(none.iter().all(|births| births.resident_bytes == 0), "{none:?}");
    let mut short = after_runs(1000, 10, Intent::Balanced);
    short.conditions.is_short_of_blocks = true;
    assert_eq!(short.auto.births(&short.conditions).resident_bytes, 0);
}

#[test]
fn after_dense_runs_one_region_is_enough_and_after_a_turn_to_sparse_the_usual_four_are_not() {
    let regions_before_advice = |dense, sparse| {
        let mut world = after_runs(dense, sparse, Intent::Balanced);
        let mapping = span(1000, 1100);
        world.kernel.map(mapping);
        let mut at = mapping.start;
        while !world.kernel.is_advised(mapping) {
            world.fill(Span::new(at, at + REGION / 4), 32);
            at += REGION / 4;
        }
        (at - mapping.start).div_ceil(REGION)
    };
    assert!(regions_before_advice(1000, 10) < regions_before_advice(0, 0));
    assert_eq!(regions_before_advice(0, 0), regions_before_advice(0, 1000));
    // Others say nothing of this run: what it leaves empty is seen as before.
    let mut world = after_runs(1000, 10, Intent::Balanced);
    world.kernel.map(span(1000, 2000));
    for region in 1000..2000 {
        world.kernel.touch(region * REGION);
        world.tick(1_000_000);
    }
    assert!(!world.kernel.is_advised(span(1000, 2000)));
    assert!(world.waste <= waste::LEAST, "{} MB", world.waste >> 20);
    let seen = world.auto.seen();
    assert!(seen.dense == 0 && seen.sparse > 32, "{seen:?}");
}

#[test]
fn earlier_runs_alone_advise_nothing_that_is_found_mapped_already() {
    // Only the program's own call keeps to the allowance.
    let mut world = after_runs(1000, 0, Intent::Balanced);
    for at in (1000..1200).step_by(10) {
        world.kernel.map(span(at, at + 8));
        world.kernel.touch(at * REGION);
        world.kernel.touch((at + 4) * REGION);
        world.tick(10_000_000);
    }
    assert_eq!(world.kernel.huge(), 0);
    assert_eq!(world.waste, 0);
}

#[test]
fn a_range_whose_first_region_stays_empty_is_learned_all_the_same() {
    let mut world = world();
    world.kernel.map(span(1000, 1064));
    // One that stays as it is, and then elsewhere.
    world.fill(Span::new(1001 * REGION, 1001 * REGION + 312 * PAGE), 64);
    world.fill(span(1002, 1040), 64);
    let range = world.auto.table().ranges()[0];
    assert!(range.edge >= 1030 * REGION, "{range:?}");
    assert!(world.kernel.is_advised(span(1000, 1064)));
}

/// A program that fills chunks of four regions and a page, each mapped below the last one, looked at three times in each.
/// Returns how many regions became huge in each.
fn filled_in_chunks(world: &mut World, count: usize) -> Vec<usize> {
    let chunk = 4 * REGION + PAGE;
    let mut end = 100_000 * REGION - 37 * PAGE;
    let mut huge = world.kernel.huge();
    let of = |_| {
        let span = Span::new(end - chunk, end);
        end = span.start;
        world.kernel.map(span);
        world.fill(span, 680);
        let before = std::mem::replace(&mut huge, world.kernel.huge());
        huge - before
    };
    (0..count).map(of).collect()
}

#[test]
fn what_grows_by_a_few_regions_at_a_time_is_advised_with_what_it_adjoins() {
    let mut world = world();
    let huge = filled_in_chunks(&mut world, 120);
    let first = huge.iter().position(|&huge| huge > 0);
    assert!(first <= Some(2), "{huge:?}");
    let none = huge[3..].iter().filter(|&&huge| huge == 0).count();
    assert!(none <= 120 / 10, "{none} of {huge:?}");
    world.ticks(3000);
    let ranges = world.auto.table().ranges().len();
    assert!(ranges < 5, "{ranges} ranges of one mapping");
    world.ticks(10_000);
    let regions = world
        .auto
        .table()
        .ranges()
        .iter()
        .map(|range| range.mapping.region_count());
    assert_eq!(world.kernel.huge() as u64, regions.sum::<u64>());
}

/// A dense program with an advised mapping, which it has unmapped since.
fn unmapped(mapping: Span) -> World {
    let mut world = filled(1);
    world.kernel.map(mapping);
    world.fill(mapping, 512);
    assert!(world.kernel.is_advised(mapping));
    world.kernel.unmap(mapping);
    world
}

#[test]
fn what_is_mapped_where_something_advised_was_unmapped_is_advised_anew() {
    // Nobody looks before the new mapping is filled, at its end at least.
    for (new, filled) in [(3036, 3040), (3000, 3040), (2980, 3060)].map(|(from, to)| (span(from, to), span(3036, 3040)))
    {
        let mut world = unmapped(span(3000, 3040));
        world.kernel.map(new);
        for page in 0..filled.bytes() / PAGE {
            world.kernel.touch(filled.start + page * PAGE);
        }
        world.tick(1_000_000);
        let grown = span(2900, new.start / REGION);
        world.kernel.map(grown);
        world.fill(grown, 512);
        assert!(world.kernel.is_advised(grown), "{new:x?}");
        assert!(world.kernel.huge() > 90, "{new:x?}: {}", world.kernel.huge());
    }
}

#[test]
fn what_the_program_has_moved_is_not_collapsed_at_once() {
    let mut world = filled(1);
    let fill = |world: &mut World, span: Span| {
        world.kernel.map(span);
        for page in 0..span.bytes() / PAGE {
            world.kernel.touch(span.start + page * PAGE);
        }
        world.tick(1_000_000);
    };
    fill(&mut world, span(3000, 3050));
    world.ticks(500);
    world.kernel.unmap(span(3000, 3050));
    let before = world.kernel.huge();
    fill(&mut world, span(4000, 4050));
    world.ticks(100);
    assert_eq!(world.kernel.huge(), before);
    world.ticks(500);
    assert_eq!(world.kernel.huge(), before + 50);
}
