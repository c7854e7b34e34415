//! What programs and policies get from the machine.

use mega_core::fault::{by_name, Effort};
use mega_core::observe::Region;

use super::{Config, Machine, MachineError, Madvise};
use crate::physical::{Fragmenter, Layout};
use crate::space::{Backing, Entry};
use crate::unit::SpaceId;

const MB: u64 = 1 << 20;
const HUGE: u64 = 2 * MB;
const PAGE: u64 = 4096;

fn machine_with(policy: &str, set: &[(&str, &str)], config: Config) -> (Machine, SpaceId) {
    let mut policy = by_name(policy).unwrap();
    for (name, value) in set {
        policy.set(name, value).unwrap();
    }
    let mut machine = Machine::new(&config, policy);
    let id = machine.spawn("test").unwrap();
    (machine, id)
}

fn config() -> Config {
    Config {
        check_contents: true,
        ..Config::of_bytes(256 * MB)
    }
}

fn machine(policy: &str) -> (Machine, SpaceId) {
    machine_with(policy, &[], config())
}

fn touch(m: &mut Machine, id: SpaceId, from: u64, pages: u64) {
    (0..pages).for_each(|i| m.access(id, from + i * PAGE, true).unwrap());
}

fn read(m: &mut Machine, id: SpaceId, from: u64, pages: u64) {
    (0..pages).for_each(|i| m.access(id, from + i * PAGE, false).unwrap());
}

fn resident(m: &Machine, id: SpaceId) -> u64 {
    m.space(id).unwrap().counts.resident_pages
}

fn huge(m: &Machine, id: SpaceId) -> u64 {
    m.space(id).unwrap().counts.huge
}

#[test]
fn base_pages_come_one_by_one_and_loads_get_the_zero_page() {
    let (mut m, id) = machine("base");
    let a = m.mmap(id, 8 * MB, true).unwrap();
    assert_eq!(a % HUGE, 0);
    touch(&mut m, id, a, 10);
    read(&mut m, id, a + 4 * MB, 5);
    let counts = m.space(id).unwrap().counts;
    assert_eq!((counts.resident_pages, counts.zero_pages, counts.faults), (10, 5, 15));
    assert_eq!(counts.zero_faults, 5);
    touch(&mut m, id, a + 4 * MB, 2);
    let counts = m.space(id).unwrap().counts;
    assert_eq!((counts.resident_pages, counts.zero_pages), (12, 3));
    m.check().unwrap();
    m.munmap(id, a, 8 * MB).unwrap();
    assert_eq!(resident(&m, id), 0);
    assert_eq!(m.access(id, a, false), Err(MachineError::NotMapped(a)));
    m.check().unwrap();
}

#[test]
fn linux_maps_huge_where_the_mapping_covers_the_region_and_nothing_is_there() {
    let (mut m, id) = machine_with("linux", &[("khugepaged", "off")], config());
    let a = m.mmap(id, 5 * MB, true).unwrap();
    touch(&mut m, id, a, 1);
    touch(&mut m, id, a + 4 * MB, 1);
    assert_eq!((huge(&m, id), resident(&m, id)), (1, 513));
    read(&mut m, id, a + 2 * MB, 1);
    touch(&mut m, id, a + 2 * MB, 1);
    assert_eq!(huge(&m, id), 1, "a load came first and left a table");
    m.check().unwrap();
}

#[test]
fn a_partial_unmap_keeps_the_memory_until_there_is_pressure() {
    let (mut m, id) = machine_with("linux", &[("khugepaged", "off")], config());
    let a = m.mmap(id, 2 * MB, true).unwrap();
    touch(&mut m, id, a, 512);
    let free = m.physical().free_bytes();
    m.madvise(id, a, MB, Madvise::DontNeed).unwrap();
    assert_eq!((huge(&m, id), resident(&m, id)), (0, 256));
    assert_eq!(m.physical().free_bytes(), free, "the memory is still whole");
    m.check().unwrap();
    assert!(m.reclaim(1));
    assert_eq!(m.physical().free_bytes(), free + MB);
    read(&mut m, id, a, 512);
    m.check().unwrap();
}

#[test]
fn promoting_and_demoting_keeps_contents_and_gives_zeroes_back() {
    let (mut m, id) = machine("base");
    let a = m.mmap(id, 2 * MB, true).unwrap();
    touch(&mut m, id, a, 100);
    m.collapse(id, Region::at(a), Effort::Hard).unwrap();
    assert_eq!((huge(&m, id), resident(&m, id)), (1, 512));
    read(&mut m, id, a, 512);
    touch(&mut m, id, a + 200 * PAGE, 1);
    m.check().unwrap();
    m.demote(id, Region::at(a)).unwrap();
    assert_eq!((huge(&m, id), resident(&m, id)), (0, 101));
    read(&mut m, id, a, 512);
    m.check().unwrap();
}

#[test]
fn a_forked_process_shares_until_someone_writes() {
    let (mut m, id) = machine_with("linux", &[("khugepaged", "off")], config());
    let a = m.mmap(id, 4 * MB, true).unwrap();
    touch(&mut m, id, a, 512);
    m.madvise(id, a + 2 * MB, 2 * MB, Madvise::NoHuge).unwrap();
    touch(&mut m, id, a + 2 * MB, 10);
    let free = m.physical().free_bytes();
    let child = m.fork(id).unwrap();
    assert_eq!(m.physical().free_bytes(), free);
    m.check().unwrap();
    touch(&mut m, id, a + 2 * MB, 1);
    touch(&mut m, id, a, 1);
    assert_eq!(m.counters().cow, 2);
    read(&mut m, child, a, 512);
    read(&mut m, child, a + 2 * MB, 10);
    m.check().unwrap();
    m.exit(id).unwrap();
    m.check().unwrap();
    touch(&mut m, child, a, 512);
    read(&mut m, child, a, 512);
    m.check().unwrap();
    m.exit(child).unwrap();
    assert!(m.sharing.is_empty());
    m.check().unwrap();
}

#[test]
fn mremap_moves_pages_and_their_contents() {
    let (mut m, id) = machine_with("linux", &[("khugepaged", "off")], config());
    let a = m.mmap(id, 5 * MB, true).unwrap();
    let wall = m.mmap_at(id, a + 5 * MB, MB);
    wall.unwrap();
    m.mlock(id, a + 5 * MB, MB, true).unwrap();
    touch(&mut m, id, a, 1280);
    let b = m.mremap(id, a, 5 * MB, 20 * MB).unwrap();
    assert_ne!(a, b);
    read(&mut m, id, b, 1280);
    assert_eq!(m.access(id, a, false), Err(MachineError::NotMapped(a)));
    m.check().unwrap();
    assert_eq!(m.mremap(id, b, 20 * MB, MB), Ok(b));
    m.check().unwrap();
}

#[test]
fn memory_that_is_short_is_swapped_and_comes_back() {
    let config = Config {
        swap_bytes: 256 * MB,
        ..Config {
            check_contents: true,
            ..Config::of_bytes(64 * MB)
        }
    };
    let (mut m, id) = machine_with("base", &[], config);
    let a = m.mmap(id, 100 * MB, true).unwrap();
    touch(&mut m, id, a, 100 * MB / PAGE);
    assert!(m.counters().pswpout > 1000, "{:?}", m.counters());
    read(&mut m, id, a, 100 * MB / PAGE);
    m.check().unwrap();
    assert_eq!(m.counters().oom_kill, 0);
}

#[test]
fn without_swap_the_largest_process_is_killed() {
    let (mut m, id) = machine_with(
        "base",
        &[],
        Config {
            check_contents: true,
            ..Config::of_bytes(64 * MB)
        },
    );
    let small = m.spawn("small").unwrap();
    let b = m.mmap(small, MB, true).unwrap();
    touch(&mut m, small, b, 256);
    let a = m.mmap(id, 100 * MB, true).unwrap();
    let first_error = (0..100 * MB / PAGE).find_map(|i| m.access(id, a + i * PAGE, true).err());
    assert_eq!(first_error, Some(MachineError::NoProcess));
    assert_eq!(m.counters().oom_kill, 1);
    read(&mut m, small, b, 256);
    m.check().unwrap();
}

#[test]
fn lazily_freed_pages_go_when_memory_is_short() {
    let (mut m, id) = machine_with(
        "base",
        &[],
        Config {
            check_contents: true,
            ..Config::of_bytes(64 * MB)
        },
    );
    let a = m.mmap(id, 40 * MB, true).unwrap();
    touch(&mut m, id, a, 40 * MB / PAGE);
    m.madvise(id, a, 40 * MB, Madvise::Free).unwrap();
    let b = m.mmap(id, 40 * MB, true).unwrap();
    touch(&mut m, id, b, 40 * MB / PAGE);
    assert!(m.counters().pglazyfreed > 0 && m.counters().oom_kill == 0);
    read(&mut m, id, a, 40 * MB / PAGE);
    read(&mut m, id, b, 40 * MB / PAGE);
    m.check().unwrap();
}

#[test]
fn a_reservation_is_filled_in_place_at_the_threshold() {
    for (policy, t) in [("quicksilver", 64), ("lrbhps", 64), ("freebsd", 512)] {
        let (mut m, id) = machine(policy);
        let a = m.mmap(id, 4 * MB, true).unwrap();
        touch(&mut m, id, a, t - 1);
        assert_eq!((huge(&m, id), resident(&m, id)), (0, t - 1), "{policy}");
        m.check().unwrap();
        touch(&mut m, id, a + (t - 1) * PAGE, 1);
        assert_eq!((huge(&m, id), resident(&m, id)), (1, 512), "{policy}");
        assert_eq!(m.counters().reserve_promoted, 1);
        read(&mut m, id, a, 512);
        m.check().unwrap();
    }
}

#[test]
fn a_reservation_past_the_mappings_end_serves_a_heap_that_grows() {
    let (mut m, id) = machine("lrbhps");
    let a = m.mmap(id, MB, true).unwrap();
    touch(&mut m, id, a, 256);
    assert_eq!(huge(&m, id), 0, "the region is not mapped to its end");
    assert_eq!(m.mremap(id, a, MB, 2 * MB), Ok(a));
    touch(&mut m, id, a + MB, 1);
    assert_eq!(huge(&m, id), 1);
    m.check().unwrap();
}

#[test]
fn a_partly_unmapped_huge_page_goes_back_to_its_reservation() {
    let (mut m, id) = machine("freebsd");
    let a = m.mmap(id, 2 * MB, true).unwrap();
    touch(&mut m, id, a, 512);
    assert_eq!(huge(&m, id), 1);
    m.madvise(id, a, MB, Madvise::DontNeed).unwrap();
    assert_eq!((huge(&m, id), resident(&m, id)), (0, 256));
    let table = m.space(id).unwrap().tables.table_of(Region::at(a)).unwrap();
    assert!(matches!(table.backing, Backing::Reserved(_)));
    m.check().unwrap();
    touch(&mut m, id, a, 256);
    assert_eq!(huge(&m, id), 1, "populated again, mapped huge again");
    m.check().unwrap();
    let (mut m, id) = machine("lrbhps");
    let a = m.mmap(id, 2 * MB, true).unwrap();
    touch(&mut m, id, a, 512);
    m.madvise(id, a, MB, Madvise::DontNeed).unwrap();
    assert_eq!(huge(&m, id), 1, "256 pages are left, and t is 64");
    read(&mut m, id, a, 512);
    m.check().unwrap();
    m.madvise(id, a + MB, MB - 40 * PAGE, Madvise::DontNeed).unwrap();
    assert_eq!((huge(&m, id), resident(&m, id)), (0, 40));
    read(&mut m, id, a, 512);
    m.check().unwrap();
}

#[test]
fn quicksilver_evacuates_what_does_not_change() {
    let (mut m, id) = machine("quicksilver");
    let a = m.mmap(id, 20 * MB, true).unwrap();
    (0..10).for_each(|i| touch(&mut m, id, a + i * HUGE, 5));
    assert_eq!(m.counters().reserved, 10);
    m.compute(id, 7_000_000_000);
    read(&mut m, id, a, 1);
    assert_eq!(m.counters().reserve_broken, 10);
    assert!(m.background().reservations_ns > 0);
    m.check().unwrap();
    assert_eq!(resident(&m, id), 50);
}

#[test]
fn direct_compaction_of_lrbhps_moves_idle_reservations_and_looks_at_nothing_else() {
    let (mut m, id) = machine("lrbhps");
    let a = m.mmap(id, 400 * MB, true).unwrap();
    (0..100).for_each(|i| touch(&mut m, id, a + i * HUGE, 10));
    assert_eq!((m.counters().reserved, m.counters().compact_stall), (100, 0));
    m.compute(id, 6_000_000_000);
    (100..200).for_each(|i| touch(&mut m, id, a + i * HUGE, 10));
    let counters = m.counters();
    assert!(counters.compact_success > 50, "{counters:?}");
    assert_eq!(
        (counters.compact_stall, counters.compact_fail),
        (counters.compact_success, 0),
        "{counters:?}"
    );
    assert_eq!(
        counters.compact_migrate_scanned, counters.pgmigrate_success,
        "{counters:?}"
    );
    assert_eq!(counters.compact_free_scanned, counters.pgmigrate_success);
    // Once it was enough to break one: what was not populated lifted free memory over the watermark.
    assert!(
        counters.pgmigrate_success.abs_diff(10 * counters.compact_success) <= 10,
        "{counters:?}"
    );
    read(&mut m, id, a, 400 * MB / PAGE);
    m.check().unwrap();
}

#[test]
fn khugepaged_promotes_eight_regions_every_ten_seconds() {
    let (mut m, id) = machine_with("linux", &[], config());
    let a = m.mmap(id, 40 * MB, true).unwrap();
    m.madvise(id, a, 40 * MB, Madvise::NoHuge).unwrap();
    (0..20).for_each(|i| touch(&mut m, id, a + i * HUGE, 3));
    m.madvise(id, a, 40 * MB, Madvise::Huge).unwrap();
    m.compute(id, 10_500_000_000);
    assert_eq!(huge(&m, id), 8);
    m.compute(id, 10_000_000_000);
    assert_eq!(huge(&m, id), 16);
    read(&mut m, id, a, 40 * MB / PAGE);
    m.check().unwrap();
}

#[test]
fn direct_compaction_makes_room_on_fragmented_memory() {
    let mut config = config();
    config.layout = Layout::of_bytes(512 * MB);
    let (mut m, id) = machine_with("linux", &[("defrag", "madvise"), ("khugepaged", "off")], config);
    let ballast = Fragmenter::study(512 * MB);
    m.physical_mut().fragment(&ballast);
    let before = m.physical().free_blocks();
    let a = m.mmap(id, 200 * MB, true).unwrap();
    m.madvise(id, a, 200 * MB, Madvise::Huge).unwrap();
    (0..100).for_each(|i| touch(&mut m, id, a + i * HUGE, 1));
    assert!(
        huge(&m, id) > before,
        "{} huge, {before} blocks were free: {:?}",
        huge(&m, id),
        m.counters()
    );
    assert!(m.counters().compact_success > 0);
    m.check().unwrap();
}

#[test]
fn time_passes_as_the_costs_say() {
    let (mut m, id) = machine("base");
    let a = m.mmap(id, 2 * MB, true).unwrap();
    let before = m.clock_ns(id);
    touch(&mut m, id, a, 100);
    let costs = m.costs();
    let each = costs.fault_entry_ns + costs.zero_base_ns + costs.memory_overlapped_ns;
    assert_eq!(m.clock_ns(id) - before, 100 * each);
    assert_eq!(m.fault_latency().count(), 100);
}

#[test]
fn a_region_under_work_holds_up_who_needs_it() {
    let (mut m, id) = machine("base");
    let a = m.mmap(id, 4 * MB, true).unwrap();
    touch(&mut m, id, a, 1);
    touch(&mut m, id, a + HUGE, 1);
    let now = m.clock_ns(id);
    m.block(id, Some(Region::at(a)), (now + 1000) * 1000, 1_000_000_000);
    m.access(id, a, true).unwrap();
    assert!(m.clock_ns(id) < now + 1000, "before the work begins");
    m.compute(id, 1000);
    m.access(id, a + HUGE, true).unwrap();
    assert!(m.clock_ns(id) < now + 2000, "another region");
    m.access(id, a, true).unwrap();
    assert!(m.clock_ns(id) >= now + 1_000_000);
    assert!(matches!(
        m.space(id).unwrap().tables.get(Region::at(a)),
        Entry::Table(_)
    ));
}

#[test]
fn a_gb_that_a_mapping_covers_is_one_leaf_until_a_part_of_it_changes() {
    const GB: u64 = 1 << 30;
    let config = Config {
        check_contents: true,
        ..Config::of_bytes(6 * GB)
    };
    let costs = config.costs.clone();
    let (mut m, id) = machine_with("giant", &[], config);
    let giants = |m: &Machine, id| m.space(id).unwrap().tables.giants();
    let a = m.mmap(id, 2 * GB + 6 * MB, true).unwrap();
    assert_eq!(a % GB, 0);
    let before = m.space(id).unwrap().clock_ps;
    m.access(id, a + 5 * PAGE, true).unwrap();
    let took_ns = (m.space(id).unwrap().clock_ps - before) / 1000;
    assert!(took_ns >= 512 * costs.zero_huge_ns, "all of it is zeroed");
    m.access(id, a + GB + 3 * HUGE, false).unwrap();
    // Its last GB ends outside of the mapping.
    m.access(id, a + 2 * GB, true).unwrap();
    assert_eq!((giants(&m, id), huge(&m, id), resident(&m, id)), (2, 1025, 1025 * 512));
    assert_eq!(m.space(id).unwrap().counts.faults, 3);
    touch(&mut m, id, a + GB - 4 * PAGE, 8);
    assert_eq!(m.space(id).unwrap().counts.faults, 3);
    m.check().unwrap();
    // A child shares 512 huge pages, and a store splits one.
    let child = m.fork(id).unwrap();
    m.access(child, a + 5 * PAGE, true).unwrap();
    assert_eq!((giants(&m, id), giants(&m, child)), (0, 0));
    m.check().unwrap();
    m.exit(child).unwrap();
    let b = m.mmap(id, GB, true).unwrap();
    touch(&mut m, id, b, 4);
    assert_eq!(giants(&m, id), 1);
    m.munmap(id, b + HUGE, HUGE).unwrap();
    assert_eq!(
        (
            giants(&m, id),
            m.space(id).unwrap().tables.huge_of(Region(b >> 21)).is_some()
        ),
        (0, true)
    );
    m.check().unwrap();
    m.munmap(id, a, 2 * GB + 6 * MB).unwrap();
    m.munmap(id, b, GB).unwrap();
    assert_eq!(resident(&m, id), 0);
    m.check().unwrap();
}

#[test]
fn where_no_gb_is_free_in_one_piece_huge_pages_are_taken() {
    let (mut m, id) = machine("giant");
    let a = m.mmap(id, 1 << 30, true).unwrap();
    touch(&mut m, id, a, 3);
    let space = m.space(id).unwrap();
    assert_eq!((space.tables.giants(), space.counts.huge), (0, 1));
    m.check().unwrap();
}

#[test]
fn what_a_program_waits_for_takes_its_full_time_and_what_it_does_not_is_overlapped() {
    let costs = crate::cost::Costs {
        memory_miss_ns: 200,
        memory_overlapped_ns: 10,
        ..crate::cost::Costs::default()
    };
    let (mut m, id) = machine_with("base", &[], Config { costs, ..config() });
    let a = m.mmap(id, 8 * MB, true).unwrap();
    touch(&mut m, id, a, 2048);
    let taken = |m: &mut Machine, waits: bool| {
        let before = m.space(id).unwrap().clock_ps;
        for page in 0..2048 {
            match waits {
                true => m.access_waiting(id, a + page * PAGE).unwrap(),
                false => m.access(id, a + page * PAGE, false).unwrap(),
            }
        }
        (m.space(id).unwrap().clock_ps - before) / 2048 / 1000
    };
    let (overlapped, waited) = (taken(&mut m, false), taken(&mut m, true));
    assert_eq!(waited - overlapped, 190, "{waited} {overlapped}");
}
