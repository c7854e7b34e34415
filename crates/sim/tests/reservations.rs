//! The rules of [`mega_core::fault`] and the kernel of `kernel/reservation` agree: the same faults reserve and promote the same blocks at the same
//! fault. What the kernel did is in `events.txt`, by its tracepoints (`tests/vm/reservation events`).

use mega_core::fault::by_name;
use mega_core::units::BASE_PAGE_BYTES;
use mega_sim::machine::{Config, Machine};

const RECORDED: &str = include_str!("../../../kernel/reservation/tests/events.txt");
const BLOCKS: u64 = 4;
const PAGES: u64 = 512;
const TOUCHES: u64 = BLOCKS * PAGES;

/// Draws as `events.c` does.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Pages in the order of their touches, each with whether it is first read.
fn touches(seed: u64) -> Vec<(u64, bool)> {
    let mut draws = Draws(seed);
    let mut order: Vec<u64> = (0..TOUCHES).collect();
    for i in (1..TOUCHES).rev() {
        order.swap(i as usize, draws.below(i + 1) as usize);
    }
    order.into_iter().map(|page| (page, draws.below(8) == 0)).collect()
}

#[test]
fn the_kernels_reservations_and_promotions_are_the_simulators_event_by_event() {
    let mut made = Vec::new();
    for t in [1, 2, 64, 256, 512] {
        let mut policy = by_name("lrbhps").expect("a policy");
        policy.set("t", &t.to_string()).expect("a threshold");
        let mut machine = Machine::new(&Config::of_bytes(64 << 20), policy);
        let id = machine.spawn("touch").expect("a process");
        let area = machine.mmap(id, TOUCHES * BASE_PAGE_BYTES, true).expect("memory");
        let order = touches(t);
        let mut populated = [0; BLOCKS as usize];
        for (i, &(page, read_first)) in order.iter().chain(&order).enumerate() {
            let (write, block) = (i as u64 >= TOUCHES || !read_first, (page / PAGES) as usize);
            let before = machine.counters();
            machine
                .access(id, area + page * BASE_PAGE_BYTES, write)
                .expect("memory");
            let after = machine.counters();
            populated[block] += u64::from(write && after.pgfault > before.pgfault);
            let events = [
                ("reserve", after.reserved - before.reserved),
                ("promote", after.reserve_promoted - before.reserve_promoted),
            ];
            assert!(events.iter().all(|(_, times)| *times <= 1), "{events:?}");
            for (event, _) in events.iter().filter(|(_, times)| *times == 1) {
                made.push(format!("{t} {i} {event} {block} {}", populated[block]));
            }
        }
    }
    let recorded: Vec<&str> = RECORDED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        recorded.iter().filter(|line| line.contains("promote")).count(),
        5 * BLOCKS as usize
    );
    assert_eq!(made, recorded);
}
