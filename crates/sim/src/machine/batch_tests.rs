//! Batched accesses leave the machine in the same state as single ones.

use mega_core::fault::{by_name, FAULT_POLICIES};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Config, Machine, Madvise};
use crate::physical::Fragmenter;
use crate::tlb::PRESETS;
use crate::unit::SpaceId;
use crate::workload::{Access, Does, Memory};
use mega_core::units::Share;

const MB: u64 = 1 << 20;

/// All observable state of a machine after a run.
fn state(m: &Machine) -> String {
    let spaces: Vec<String> = m
        .spaces()
        .map(|space| {
            let regions = space.tables.all_used();
            let tables: Vec<String> = regions
                .iter()
                .map(|region| {
                    format!(
                        "{:?} {:?}",
                        space.tables.table_of(*region),
                        space.tables.huge_of(*region)
                    )
                })
                .collect();
            format!(
                "{} {} {:?} {:?} {tables:?}",
                space.clock_ps, space.paid_by_page_ps, space.last_page, space.counts
            )
        })
        .collect();
    format!(
        "{} {} {:?} {:?} {:?} {:?} {:?} {spaces:?}",
        m.now_ps,
        m.outlived_ns,
        m.counters(),
        m.background(),
        m.tlb_counts(),
        m.fault_latency(),
        m.physical().free_bytes(),
    )
}

/// One thing that programs do.
#[derive(Debug)]
enum Step {
    Accesses(SpaceId, Vec<Access>),
    Advise(SpaceId, u64, Madvise),
    Fork(SpaceId),
    Unmap(SpaceId, u64),
}

fn machine(policy: &str, which: usize) -> (Machine, Vec<SpaceId>, u64) {
    let config = Config {
        tlb: PRESETS.get(which).copied(),
        swap_bytes: 16 * MB,
        ..Config::of_bytes(64 * MB)
    };
    let mut m = Machine::new(&config, by_name(policy).unwrap());
    m.physical_mut()
        .fragment(&Fragmenter::ballast(Share::percent(20), Share::percent(2), 3));
    let ids: Vec<SpaceId> = ["a", "b"].iter().map(|name| m.spawn(name).unwrap()).collect();
    let mut areas = ids.iter().map(|id| m.mmap(*id, 24 * MB, true).unwrap());
    let area = areas.next().unwrap();
    assert_eq!(areas.next(), Some(area));
    (m, ids, area)
}

fn steps(seed: u64, ids: &[SpaceId], area: u64) -> Vec<Step> {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut below = move |n: u64| dice.next_u64() % n;
    (0..60)
        .map(|_| {
            let id = ids[below(2) as usize];
            match below(20) {
                0 => {
                    let all = [Madvise::DontNeed, Madvise::Free, Madvise::Collapse, Madvise::Cold];
                    let advice = all[below(all.len() as u64) as usize];
                    Step::Advise(id, area + below(12) * 2 * MB, advice)
                }
                1 => Step::Fork(id),
                2 => Step::Unmap(id, area + below(24) * MB),
                _ => {
                    // At random or sequential, in all of it or in a part; sometimes outside of it, sometimes with a long computation.
                    let (whole, in_order) = (below(2) == 0, below(3) == 0);
                    let mut at = below(24 * MB);
                    let n = below(700);
                    let accesses = (0..n).map(|_| {
                        at = match (in_order, whole) {
                            (true, _) => (at + 4096) % (24 * MB + 8192),
                            (false, true) => below(24 * MB + 8192),
                            (false, false) => below(3 * MB),
                        };
                        Access {
                            address: area + at,
                            work_ns: if below(40) == 0 {
                                below(30_000_000) as u32
                            } else {
                                below(3) as u32
                            },
                            does: [Does::Load, Does::Store, Does::Update][below(3) as usize],
                        }
                    });
                    Step::Accesses(id, accesses.collect())
                }
            }
        })
        .collect()
}

fn run(m: &mut Machine, steps: &[Step], mut accesses: impl FnMut(&mut Machine, &[Access])) {
    for step in steps {
        match step {
            Step::Accesses(id, list) => {
                m.run_as(*id);
                accesses(m, list);
            }
            // Success does not matter, only that both do the same.
            Step::Advise(id, address, advice) => drop(m.madvise(*id, *address, 2 * MB, *advice)),
            Step::Fork(id) => {
                if let Ok(child) = m.fork(*id) {
                    let _ = m.exit(child);
                }
            }
            Step::Unmap(id, address) => drop(m.munmap(*id, *address, MB / 4)),
        }
    }
}

#[test]
fn batches_leave_the_machine_as_single_accesses_do() {
    for (nth, (policy, _)) in FAULT_POLICIES.iter().enumerate() {
        for seed in 0..4 {
            let which = (nth + seed as usize * 3) % (PRESETS.len() + 1);
            let (mut one, ids, area) = machine(policy, which);
            let (mut many, ..) = machine(policy, which);
            let steps = steps(seed + 100 * nth as u64, &ids, area);
            let mut in_batches = 0;
            run(&mut one, &steps, |m, list| {
                list.iter().for_each(|access| access.make(m))
            });
            run(&mut many, &steps, |m, list| {
                let made = m.access_some(m.current, list);
                in_batches += made;
                m.touch_all(&list[made..]);
            });
            assert!(in_batches > 0);
            assert_eq!(state(&many), state(&one), "{policy}, {which}, seed {seed}");
        }
    }
}
