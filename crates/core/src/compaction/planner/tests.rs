//! What holds for every planner, and each planner's own rules.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::testing::{movable, zone, zones, DMA32, NORMAL};
use super::*;
use crate::compaction::block::ZoneKind;

const TOTAL: Bytes = Bytes(24 << 30);

fn seen<'a>(blocks: &'a [Block], zones: &'a [Zone], asked: u64) -> PlannerInput<'a> {
    PlannerInput {
        blocks,
        zones,
        total: TOTAL,
        asked: Blocks(asked),
    }
}

fn numbers(plan: &[Choice]) -> Vec<u32> {
    plan.iter().map(|choice| choice.hpfn.0).collect()
}

/// A used block that cannot be evacuated, with room for pages migrated from others.
fn room(hpfn: u32) -> Block {
    Block::new(Hpfn(hpfn), NORMAL).with_pages([511, 0, 1, 0, 0, 0])
}

fn any_block() -> impl Strategy<Value = Block> {
    let kinds = prop_oneof![
        4 => (1u32..=512).prop_map(|m| [512 - m, m, 0, 0, 0, 0]),
        1 => Just([512, 0, 0, 0, 0, 0]),
        1 => Just([0, 0, 0, 512, 0, 0]),
        1 => Just([0, 0, 0, 0, 512, 0]),
        1 => (1u32..512, 1u32..512).prop_map(|(m, u)| [0, m, u, 0, 0, 0]),
        1 => (1u32..100, 1u32..60).prop_map(|(m, u)| [512 - m - u, m, 0, 0, 0, u]),
    ];
    let age = prop_oneof![Just(None), (0u64..10_000).prop_map(|s| Some(Duration::from_secs(s)))];
    let accessed = prop_oneof![Just(None), (0u32..=512).prop_map(|n| Some(BasePages(n)))];
    (kinds, 0u8..3, age, accessed).prop_map(|(pages, zone, age, accessed)| {
        Block::new(Hpfn(0), zone)
            .with_pages(pages)
            .with_age(age)
            .with_accessed(accessed)
    })
}

fn any_blocks() -> impl Strategy<Value = Vec<Block>> {
    proptest::collection::vec(any_block(), 0..400).prop_map(|mut blocks| {
        for (block, i) in blocks.iter_mut().zip(0..) {
            block.hpfn = Hpfn(i);
        }
        blocks
    })
}

fn any_zones() -> impl Strategy<Value = Vec<Zone>> {
    let free = || (0u64..100_000, 0u64..200);
    (free(), free(), free()).prop_map(|(a, b, c)| {
        vec![
            zone(ZoneKind::Dma32, a.0, a.1),
            zone(ZoneKind::Normal, b.0, b.1),
            zone(ZoneKind::Dma, c.0, c.1),
        ]
    })
}

proptest! {
    #[test]
    fn no_planner_names_a_block_twice_or_one_that_is_free_unmovable_huge_or_of_zone_dma(
        blocks in any_blocks(), zones in any_zones(), asked in 0u64..5000,
    ) {
        for (name, _) in PLANNERS {
            let plan = by_name(name).unwrap().plan(&seen(&blocks, &zones, asked));
            let mut named = BTreeMap::new();
            for choice in &plan {
                let block = &blocks[choice.hpfn.0 as usize];
                prop_assert_eq!(block.kind(), BlockKind::Movable, "{}", name);
                prop_assert!(block.pages(PageKind::Unflagged).0 <= 25, "5 % of 512");
                prop_assert!(block.zone <= NORMAL);
                prop_assert_eq!(choice.moves, block.pages(PageKind::Movable));
                prop_assert!(named.insert(choice.hpfn, ()).is_none());
            }
        }
    }

    #[test]
    fn every_planner_keeps_its_budget_and_finds_room_for_what_it_moves(
        blocks in any_blocks(), zones in any_zones(), asked in 0u64..5000, budget_mib in 0u64..300,
    ) {
        for (name, _) in PLANNERS {
            let mut planner = by_name(name).unwrap();
            planner.set("budget", &format!("{budget_mib}M")).unwrap();
            let plan = planner.plan(&seen(&blocks, &zones, asked));
            let zones_named = if *name == "ingens" { 2 } else { 1 };
            prop_assert!(plan.len() as u64 * HUGE_PAGE_BYTES <= zones_named * (budget_mib << 20), "{}", name);
            let named: Vec<_> = plan.iter().map(|choice| choice.hpfn).collect();
            let room: u32 = blocks
                .iter()
                .filter(|b| matches!(b.kind(), BlockKind::Movable | BlockKind::Unmovable) && !named.contains(&b.hpfn))
                .map(|b| b.pages(PageKind::Free).0)
                .sum();
            prop_assert!(plan.iter().map(|choice| choice.moves.0).sum::<u32>() <= room, "{}", name);
        }
    }

    #[test]
    fn the_same_is_planned_for_the_same_memory(blocks in any_blocks(), zones in any_zones(), asked in 0u64..5000) {
        for (name, _) in PLANNERS {
            let plan = || by_name(name).unwrap().plan(&seen(&blocks, &zones, asked));
            prop_assert_eq!(plan(), plan());
        }
    }

    #[test]
    fn mega_s_order_is_the_paper_s_formula_and_what_it_leaves_out_ranks_no_higher(blocks in any_blocks()) {
        let formula = |b: &Block| {
            let share = |pages: u32| f64::from(pages) / 512.0;
            let (mapped, accessed) = (share(b.pages(PageKind::Movable).0), b.accessed().map_or(0.0, |a| a.fraction()));
            b.age().map_or(1.0, |age| age.as_secs() as f64) * (1.0 - mapped) * (1.0 - accessed) / (2.0 * mapped)
        };
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-4 * a.abs().max(b.abs());
        let mut mega = Mega::default();
        mega.set("budget", "40M").unwrap();
        let plan = mega.plan(&seen(&blocks, &zones(), 0));
        let values: Vec<f64> = plan.iter().map(|choice| choice.benefit.unwrap()).collect();
        for (choice, value) in plan.iter().zip(&values) {
            let block = &blocks[choice.hpfn.0 as usize];
            prop_assert_eq!(block.zone, NORMAL);
            prop_assert!(close(*value, formula(block)), "{} {}", value, formula(block));
        }
        prop_assert!(values.windows(2).all(|pair| pair[0] >= pair[1]));
        prop_assert!(plan.windows(2).all(|pair| pair[0].benefit > pair[1].benefit || pair[0].hpfn < pair[1].hpfn));
        if let Some(least) = values.last() {
            let left_out = blocks.iter().filter(|b| {
                b.zone == NORMAL && can_be_evacuated(b, Share::percent(5)) && !plan.iter().any(|c| c.hpfn == b.hpfn)
            });
            for block in left_out {
                let value = formula(block);
                prop_assert!(value <= *least || close(value, *least), "{} {}", value, least);
            }
        }
    }
}

#[test]
fn every_planner_exists_under_its_name_and_every_parameter_takes_its_own_default() {
    for (name, _) in PLANNERS {
        let mut planner = by_name(name).unwrap();
        assert_eq!(planner.name(), *name);
        assert_eq!(planner.interval(), Duration::from_secs(5));
        for param in planner.params() {
            planner.set(param.name, &param.default).unwrap();
            assert!(planner.set(param.name, "nonsense").is_err(), "{name}.{}", param.name);
        }
        assert!(planner.set("no_such_parameter", "1").is_err());
    }
    assert!(by_name("Mega").is_none());
}

#[test]
fn the_default_budgets_are_the_papers() {
    let blocks: Vec<Block> = (0..1000)
        .map(|i| movable(i, if i < 500 { DMA32 } else { NORMAL }, 50, 100))
        .collect();
    let fragmented = [zone(ZoneKind::Dma32, 1000, 0), zone(ZoneKind::Normal, 1000, 0)];
    let plan = |name: &str| by_name(name).unwrap().plan(&seen(&blocks, &fragmented, 0));
    assert_eq!(plan("mega").len(), 100, "200 MB");
    assert_eq!(plan("ingens").len(), 2 * 50, "100 MB in each zone");
    assert_eq!(plan("demand").len(), 0, "no demand");
}

#[test]
fn mega_prefers_the_old_the_empty_and_the_idle() {
    let b = |i, pages, age| movable(i, NORMAL, pages, age);
    let blocks = [
        b(0, 100, 10),
        b(1, 100, 20),
        b(2, 50, 20),
        b(3, 50, 20).with_accessed(Some(BasePages(256))),
        b(4, 50, 20).with_accessed(Some(BasePages::REGION)),
        b(5, 512, 1000),
        b(6, 10, 0),
        room(7),
    ];
    let plan = Mega::default().plan(&seen(&blocks, &zones(), 0));
    assert_eq!(
        numbers(&plan),
        [2, 3, 1, 0],
        "all accessed, full and just mapped ones are left out"
    );
}

#[test]
fn blocks_of_unknown_age_rank_by_cost() {
    let blocks: Vec<Block> = [200, 100, 300]
        .into_iter()
        .zip(0..)
        .map(|(pages, i)| movable(i, NORMAL, pages, 0).with_age(None))
        .chain([room(3), room(4)])
        .collect();
    assert_eq!(numbers(&Mega::default().plan(&seen(&blocks, &zones(), 0))), [1, 0, 2]);
}

#[test]
fn equal_blocks_are_taken_from_the_lowest_address_up() {
    let blocks: Vec<Block> = (0..9).map(|i| movable(i, NORMAL, 10, 5)).collect();
    let mut mega = Mega::default();
    mega.set("budget", "8M").unwrap();
    assert_eq!(numbers(&mega.plan(&seen(&blocks, &zones(), 0))), [0, 1, 2, 3]);
    mega.set("budget", "2097151").unwrap();
    assert!(
        mega.plan(&seen(&blocks, &zones(), 0)).is_empty(),
        "a byte short of a block"
    );
}

#[test]
fn zone_dma32_is_compacted_under_33_percent_and_not_at_it() {
    let blocks = [movable(0, DMA32, 10, 5), movable(1, NORMAL, 400, 5), room(2)];
    let plan = |free_pages, free_blocks| {
        let zones = [
            zone(ZoneKind::Dma32, free_pages, free_blocks),
            zone(ZoneKind::Normal, 1, 0),
        ];
        numbers(&Mega::default().plan(&seen(&blocks, &zones, 0)))
    };
    // 33 blocks of 100 blocks' worth of free memory.
    assert_eq!(plan(51_200, 33), [1], "at 33 %");
    assert_eq!(plan(51_199, 33), [1], "just over");
    assert_eq!(plan(51_201, 33), [1, 0], "just under; ZONE_NORMAL first");
    assert_eq!(plan(0, 0), [1], "nothing free, nothing to gain");
}

#[test]
fn ingens_begins_at_the_lowest_address_once_a_zone_is_fragmented_enough() {
    let blocks = [
        movable(0, DMA32, 500, 0),
        movable(1, NORMAL, 10, 0),
        movable(2, NORMAL, 1, 1000),
        room(3),
        room(4),
    ];
    let plan = |pages, in_blocks| {
        let zones = [zone(ZoneKind::Dma32, 0, 0), zone(ZoneKind::Normal, pages, in_blocks)];
        numbers(&Ingens::default().plan(&seen(&blocks, &zones, 0)))
    };
    assert_eq!(plan(1024, 1), [1, 2], "at 50 %, whatever use they are in");
    assert_eq!(plan(1023, 1), [0u32; 0], "just under");
    assert_eq!(plan(1025, 1), [1, 2], "just over");
}

#[test]
fn demand_keeps_as_many_blocks_free_as_were_asked_for_and_does_not_compact_without_demand() {
    let blocks: Vec<Block> = (0..1000).map(|i| movable(i, NORMAL, 10, 5)).collect();
    let zones = |free| [zone(ZoneKind::Dma32, 0, 0), zone(ZoneKind::Normal, 1_000_000, free)];
    let mut demand = Demand::default();
    assert!(demand.plan(&seen(&blocks, &zones(0), 0)).is_empty(), "no demand");
    // 20 asked for, and a reserve of 16.
    assert_eq!(demand.plan(&seen(&blocks, &zones(0), 20)).len(), 36);
    assert_eq!(demand.plan(&seen(&blocks, &zones(30), 20)).len(), 6);
    assert_eq!(demand.plan(&seen(&blocks, &zones(35), 20)).len(), 1);
    assert!(demand.plan(&seen(&blocks, &zones(36), 20)).is_empty(), "enough");
    assert_eq!(demand.plan(&seen(&blocks, &zones(0), 5000)).len(), 100, "its budget");
}

#[test]
fn what_is_wanted_without_a_look_at_blocks_is_the_plans_amount_and_never_more_than_free_memory_gives() {
    let blocks: Vec<Block> = (0..1000).map(|i| movable(i, NORMAL, 10, 5)).collect();
    let plenty = [zone(ZoneKind::Dma32, 0, 0), zone(ZoneKind::Normal, 1_000_000, 0)];
    let little = [zone(ZoneKind::Dma32, 0, 0), zone(ZoneKind::Normal, 512 * 7 + 511, 0)];
    let whole = [zone(ZoneKind::Dma32, 0, 0), zone(ZoneKind::Normal, 512 * 7, 7)];
    for (name, budget) in [("mega", 100), ("ingens", 50), ("demand", 36)] {
        let planned = by_name(name).unwrap().plan(&seen(&blocks, &plenty, 20)).len() as u64;
        let want = |zones| by_name(name).unwrap().want(&seen(&[], zones, 20));
        assert_eq!((want(&plenty), planned), (Blocks(budget), budget), "{name}");
        assert_eq!(want(&little), Blocks(7), "{name}: more is not to be had");
        assert_eq!(want(&whole), Blocks(0), "{name}: nothing to gain");
    }
    assert_eq!(Demand::default().want(&seen(&[], &plenty, 0)), Blocks(0), "no demand");
}

#[test]
fn a_planner_is_a_name_with_parameters() {
    assert_eq!(from_text("demand").unwrap().name(), "demand");
    let planner = from_text("demand:reserve=64M,interval=1s").unwrap();
    let params = planner.params();
    let value = |name| &params.iter().find(|param| param.name == name).unwrap().value;
    assert_eq!((value("reserve").as_str(), value("interval").as_str()), ("64M", "1s"));
    for (bad, why) in [
        ("magic", "no planner 'magic' (there are: mega, ingens, demand)"),
        ("mega:budget", "parameter 'budget' of planner 'mega' is not KEY=VALUE"),
        ("mega:budget=lots", "parameter 'budget'"),
        ("mega:no=1", "has no parameter 'no'"),
    ] {
        let error = from_text(bad).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}
