//! Random sequences of everything that can be done, against the shadow.

use mega_core::compaction::block::Hpfn;
use proptest::prelude::*;

use super::{head, Shadow, MIB};
use crate::physical::{Ask, Compact, DownTo, Emptied, Fragmenter, Layout, MigrateType, Physical};
use crate::unit::{Frame, Owner, BLOCK_ORDER, MAX_ORDER};
use mega_core::units::Share;

/// One thing to do. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    Allocate {
        order: u8,
        owner: u8,
        migrate: u8,
        node: u8,
        down_to: u8,
        times: u16,
    },
    Free {
        at: u32,
        times: u16,
    },
    Split {
        at: u32,
    },
    Join {
        at: u32,
    },
    SetOwner {
        at: u32,
        owner: u8,
        all: bool,
    },
    Pin {
        at: u32,
    },
    Compact {
        how: u8,
        order: u8,
    },
    Empty {
        block: u32,
    },
    DropCache {
        pages: u16,
    },
    Drain,
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    let order = prop_oneof![4 => Just(0u8), 3 => Just(BLOCK_ORDER), 2 => 0..=MAX_ORDER];
    let allocate = (order.clone(), any::<u8>(), any::<u8>(), 0u8..3, any::<u8>(), 1u16..600);
    prop_oneof![
        6 => allocate.prop_map(|(order, owner, migrate, node, down_to, times)| {
            let times = if order == 0 { times } else { times % 8 + 1 };
            Step::Allocate { order, owner, migrate, node, down_to, times }
        }),
        6 => (any::<u32>(), 1u16..600).prop_map(|(at, times)| Step::Free { at, times }),
        1 => any::<u32>().prop_map(|at| Step::Split { at }),
        1 => any::<u32>().prop_map(|at| Step::Join { at }),
        1 => (any::<u32>(), any::<u8>(), any::<bool>()).prop_map(|(at, owner, all)| Step::SetOwner { at, owner, all }),
        1 => any::<u32>().prop_map(|at| Step::Pin { at }),
        2 => (0u8..5, order).prop_map(|(how, order)| Step::Compact { how, order }),
        2 => any::<u32>().prop_map(|block| Step::Empty { block }),
        1 => any::<u16>().prop_map(|pages| Step::DropCache { pages }),
        1 => Just(Step::Drain),
        1 => Just(Step::Sleep),
    ]
}

/// A frame that is used, by number modulo their number.
fn some_frame(shadow: &Shadow, at: u32) -> Option<u32> {
    let above = shadow.frames.range(at % 16384..).next();
    above.or_else(|| shadow.frames.iter().next()).map(|(&frame, _)| frame)
}

fn owner_of(kind: u8) -> Option<Owner> {
    match kind % 8 {
        0 => Some(Owner::Kernel),
        1 => Some(Owner::Cache),
        2 => Some(Owner::Ballast),
        3 => Some(Owner::Shared(u32::from(kind))),
        4 => {
            let space = crate::unit::SpaceId(std::num::NonZeroU16::new(3).unwrap());
            Some(Owner::Reserved(space, mega_core::observe::Region(kind.into())))
        }
        _ => None,
    }
}

fn run(memory: &mut Physical, shadow: &mut Shadow, step: &Step) {
    match *step {
        Step::Allocate {
            order,
            owner,
            migrate,
            node,
            down_to,
            times,
        } => {
            let ask = Ask {
                migrate: MigrateType::ALL[usize::from(migrate) % 3],
                node,
                down_to: [DownTo::Low, DownTo::Min, DownTo::HalfMin, DownTo::Nothing][usize::from(down_to) % 4],
            };
            for _ in 0..times {
                if shadow.allocate(memory, order, ask, owner_of(owner)).is_none() {
                    break;
                }
            }
        }
        Step::Free { at, times } => {
            for i in 0..u32::from(times) {
                if let Some(frame) = some_frame(shadow, at.wrapping_add(i * 3)) {
                    shadow.free(memory, frame);
                }
            }
        }
        Step::Split { at } => {
            if let Some(frame) = some_frame(shadow, at) {
                assert!(memory.split(Frame(head(memory, frame).0)));
            }
        }
        Step::Join { at } => {
            let first = at % 32 * 512;
            let single = |frame| memory.order(Frame(frame)) == Some(0);
            let can = (first..first + 512).all(single);
            assert_eq!(memory.join(Frame(first)), can);
        }
        Step::SetOwner { at, owner, all } => {
            if let Some(frame) = some_frame(shadow, at) {
                let owner = owner_of(owner).unwrap_or(Owner::Shared(at));
                let (first, order) = head(memory, frame);
                if all {
                    memory.set_owner_of_all(Frame(first), owner);
                    for frame in first..first + (1 << order) {
                        shadow.frames.get_mut(&frame).unwrap().0 = owner;
                    }
                } else {
                    memory.set_owner(Frame(frame), owner);
                    shadow.frames.get_mut(&frame).unwrap().0 = owner;
                }
            }
        }
        Step::Pin { at } => {
            shadow.pinned.extend(some_frame(shadow, at));
        }
        Step::Compact { how, order } => {
            let how = match how {
                0 => Compact::Direct { order },
                1 => Compact::Async { order },
                2 => Compact::Kcompactd { order },
                3 => Compact::Proactive {
                    proactiveness: order * 10,
                },
                _ => Compact::Whole,
            };
            let moves = shadow.moves;
            let done = memory.compact(how, shadow);
            assert_eq!(done.migrated, shadow.moves - moves);
        }
        Step::Empty { block } => {
            let block = Hpfn(block % 33);
            let before = memory.block(block);
            let moves = shadow.moves;
            let emptied = memory.empty_block(block, shadow);
            assert_eq!(u64::from(emptied.moved()), shadow.moves - moves);
            let free = memory.block(block).is_some_and(|b| b.kind().word() == "free");
            assert_eq!(
                matches!(emptied, Emptied::Freed { .. } | Emptied::AlreadyFree),
                free,
                "{before:?}: {emptied:?}"
            );
        }
        Step::DropCache { pages } => {
            let (cache, free) = (memory.cache_bytes(), memory.free_bytes());
            let dropped = memory.drop_cache(u64::from(pages) * 4096);
            assert!(dropped == cache || dropped >= u64::from(pages) * 4096);
            assert_eq!(memory.free_bytes() - free, dropped);
            assert_eq!(cache - memory.cache_bytes(), dropped);
            let gone = |frame: &u32, held: &mut (Owner, u64)| {
                let free = memory.owner(Frame(*frame)).is_none();
                assert!(!free || held.0 == Owner::Cache, "{frame} was not page cache");
                !free
            };
            shadow.frames.retain(gone);
            shadow.pinned.retain(|frame| memory.owner(Frame(*frame)).is_some());
        }
        Step::Drain => memory.drain(),
        Step::Sleep => memory.kswapd_sleeps(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_the_invariants_hold_and_contents_follow_their_owners(
        nodes in 1u8..3,
        fragmented in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut memory = Physical::new(&Layout::of_bytes(64 * MIB).with_nodes(nodes), 1);
        let mut shadow = Shadow::default();
        if fragmented {
            memory.fragment(&Fragmenter::ballast(Share::percent(80), Share::percent(20), 9));
            for frame in 0..16384 {
                if let Some(owner) = memory.owner(Frame(frame)) {
                    shadow.frames.insert(frame, (owner, 0));
                }
            }
        }
        for (index, step) in steps.iter().enumerate() {
            run(&mut memory, &mut shadow, step);
            if index % 4 == 3 || index + 1 == steps.len() {
                memory.check().map_err(|e| TestCaseError::fail(format!("after step {index}, {step:?}: {e}")))?;
            }
        }
        shadow.agrees(&memory);
        let frames: Vec<u32> = shadow.frames.keys().copied().collect();
        for frame in frames {
            if shadow.frames.contains_key(&frame) {
                shadow.free(&mut memory, frame);
            }
        }
        memory.drain();
        memory.check().map_err(TestCaseError::fail)?;
        prop_assert_eq!(memory.free_bytes(), memory.total_bytes());
        prop_assert_eq!(memory.free_blocks(), 32, "all of it merged again");
        prop_assert_eq!(memory.cache_bytes(), 0);
    }

    #[test]
    fn the_same_steps_give_the_same_memory(steps in proptest::collection::vec(step(), 1..30)) {
        let result = || {
            let mut memory = Physical::new(&Layout::of_bytes(64 * MIB), 1);
            let mut shadow = Shadow::default();
            steps.iter().for_each(|step| run(&mut memory, &mut shadow, step));
            (memory.blocks(), memory.free_by_order(), memory.counters(), shadow.frames)
        };
        prop_assert_eq!(result(), result());
    }
}
