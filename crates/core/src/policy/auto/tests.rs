use super::*;
use crate::observe::Why;
use crate::policy::testing::{base, huge, Driver, SeenRegion, PROCESS};
use crate::units::Blocks;

fn auto() -> Driver<Auto> {
    let mut driver = Driver::new(Auto::default());
    driver.step = Duration::from_millis(250);
    driver
}

fn auto_for(intent: &str) -> Driver<Auto> {
    let mut driver = auto();
    driver.policy.set("for", intent).unwrap();
    driver
}

/// The regions that are promoted.
fn promoted(driver: &Driver<Auto>) -> Vec<u64> {
    let promotes = |action: &&Action| action.kind == ActionKind::Promote;
    driver
        .actions()
        .iter()
        .filter(promotes)
        .map(|action| action.region.0)
        .collect()
}

fn demoted(driver: &Driver<Auto>) -> Vec<u64> {
    let demotes = |action: &&Action| action.kind == ActionKind::Demote;
    driver
        .actions()
        .iter()
        .filter(demotes)
        .map(|action| action.region.0)
        .collect()
}

/// Full regions from 0 on.
fn full(regions: u64) -> Vec<SeenRegion> {
    (0..regions).map(|region| base(region, 512, 512).unaged()).collect()
}

#[test]
fn what_is_unmapped_of_a_huge_page_is_asked_for_and_released_once_the_region_is_let_be() {
    let mut d = auto();
    d.see_all(&[huge(5, true), huge(6, true)]);
    for _ in 0..20 {
        d.see_all(&[huge(5, true).zero(0), huge(6, true).zero(0)]);
    }
    d.step = Duration::from_secs(5);
    d.see_all(&[base(5, 128, 128), huge(6, true).zero(0)]);
    assert!(d.policy.needs().contents, "a former huge page has holes");
    d.see_all(&[base(5, 100, 100).kept(412), huge(6, true).zero(0)]);
    assert_eq!(d.kinds(), [], "it changes still");
    d.see_all(&[base(5, 100, 100).kept(412), huge(6, true).zero(0)]);
    assert_eq!(d.kinds(), [(5, ActionKind::Demote, Reason::PartlyUnmapped)]);
    d.see_all(&[base(5, 100, 100), huge(6, true).zero(0)]);
    assert_eq!(d.kinds(), []);
}

#[test]
fn a_range_is_promoted_as_soon_as_it_pauses_and_no_accessed_bit_is_cleared() {
    let mut d = auto();
    d.see_all(&full(4));
    assert!(d.actions().is_empty(), "it is new: it may be growing");
    d.see_all(&full(5));
    assert!(d.actions().is_empty(), "it grew");
    d.see_all(&full(5));
    assert_eq!(promoted(&d), [0, 1, 2, 3, 4]);
    assert_eq!((d.aged(), d.policy.needs().utilization), (0, false));
}

#[test]
fn while_a_range_grows_what_is_well_behind_its_edge_is_promoted() {
    let mut d = auto();
    d.see_all(&full(20));
    d.see_all(&full(24));
    assert_eq!(
        promoted(&d),
        (0..12).collect::<Vec<_>>(),
        "20 is new, 12 is 8 before it"
    );
    // One that grows downwards, as stacks and some heaps do.
    let mut d = auto();
    let down: Vec<_> = full(24).split_off(4);
    d.see_all(&down);
    d.see_all(&full(24));
    assert_eq!(promoted(&d), (12..24).collect::<Vec<_>>());
    // Ranges apart do not wait for each other.
    let mut d = auto();
    let far = base(1000, 512, 0);
    d.see_all(&[&full(1)[..], &[far]].concat());
    d.see_all(&[&full(2)[..], &[far]].concat());
    assert_eq!(promoted(&d), [1000]);
}

#[test]
fn a_range_that_grows_fast_waits_for_its_pause() {
    let mut d = auto();
    d.see_all(&full(20));
    d.see_all(&full(29));
    assert!(d.actions().is_empty(), "9 regions in a look");
    d.see_all(&full(37));
    assert_eq!(promoted(&d), (0..21).collect::<Vec<_>>(), "8 regions in a look");
    let mut d = auto();
    for look in 0..=20 {
        d.see_all(&full(20 + 9 * look));
        assert_eq!(!d.actions().is_empty(), look == 20, "look {look}");
    }
    assert_eq!(promoted(&d), (0..20).collect::<Vec<_>>(), "5 s as they are");
}

#[test]
fn where_faults_map_huge_pages_the_rest_is_promoted_once_it_stayed_for_5_s() {
    let with = |huge_ones: u64| -> Vec<SeenRegion> {
        let grown = (20..20 + huge_ones).map(|region| huge(region, true));
        full(20).into_iter().chain(grown).collect()
    };
    let mut d = auto();
    d.see_all(&full(20));
    d.see_all(&with(4));
    for look in 2..=20 {
        d.see_all(&with(4));
        assert_eq!(!d.actions().is_empty(), look == 20, "look {look}");
    }
    assert_eq!(promoted(&d), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_program_in_which_others_collapse_is_left_to_them_for_5_s() {
    let mut d = auto();
    d.see_all(&full(4));
    d.see_all(&full(4));
    assert_eq!(promoted(&d), [0, 1, 2, 3]);
    // Our own work is nobody else's.
    let ours: Vec<_> = (0..4).map(|region| huge(region, true)).collect();
    let more = |d: &mut Driver<Auto>, seen: &[SeenRegion]| {
        d.see_all(seen);
        d.see_all(seen);
        promoted(d)
    };
    let grown: Vec<_> = ours.iter().copied().chain([base(4, 512, 0), base(5, 512, 0)]).collect();
    assert_eq!(more(&mut d, &grown), [4, 5]);
    // 4 is ours, 5 failed and somebody else did it later.
    let mut seen: Vec<_> = (0..5).map(|region| huge(region, true)).collect();
    seen.push(base(5, 512, 0));
    d.see_all(&[&seen[..5], &[base(5, 512, 0).raced()]].concat());
    seen[5] = huge(5, true);
    seen.push(base(6, 512, 0));
    assert!(more(&mut d, &seen).is_empty());
}

#[test]
fn a_region_that_stays_as_it_is_is_promoted_however_its_neighbours_change() {
    let mut d = auto();
    for look in 0..=20 {
        d.see_all(&[base(1, 512, 0), base(2, 100 + look, 0)]);
        let expected: &[u64] = if look == 20 { &[1] } else { &[] };
        assert_eq!(promoted(&d), expected, "look {look}");
    }
}

#[test]
fn dense_is_ninety_percent_and_sparse_regions_never_are_promoted() {
    let mut d = auto();
    let seen = [
        base(1, 460, 460),
        base(3, 461, 461),
        base(5, 85, 85),
        base(7, 512, 512).zero(52),
    ];
    for _ in 0..100 {
        d.see_all(&seen);
    }
    assert_eq!(promoted(&d), [3], "zero pages do not count as populated");
    assert_eq!(d.last.candidates, 1);
}

#[test]
fn what_cannot_be_promoted_is_not() {
    let mut d = auto();
    let seen = [
        base(1, 512, 512).shared(),
        base(3, 512, 512).raced(),
        base(5, 512, 512).cannot(Why::Mlocked),
        huge(7, true),
    ];
    d.see_all(&seen);
    d.see_all(&seen);
    assert!(d.actions().is_empty());
}

#[test]
fn holes_stay_within_the_allowance_and_the_fullest_regions_come_first() {
    // 64 MB are 16384 pages: 327 regions with 50 holes each.
    let mut d = auto();
    let dense: Vec<_> = (0..400)
        .map(|region| base(region, if region < 10 { 512 } else { 462 }, 0))
        .collect();
    d.see_all(&dense);
    d.see_all(&dense);
    assert_eq!(promoted(&d).len(), 10 + 327);
    // They are huge now, and still waste what they did: there is no room for more.
    let after: Vec<_> = (0..400)
        .map(|region| {
            if region < 337 {
                huge(region, true)
            } else {
                base(region, 462, 0)
            }
        })
        .collect();
    d.see_all(&after);
    d.see_all(&after);
    assert!(promoted(&d).is_empty());
    // Contents show that the program has filled the holes.
    let filled: Vec<_> = (0..400)
        .map(|region| {
            if region < 337 {
                huge(region, true).zero(0)
            } else {
                base(region, 462, 0)
            }
        })
        .collect();
    d.see_all(&filled);
    assert_eq!(promoted(&d).len(), 63);
}

#[test]
fn the_allowance_grows_with_the_program() {
    let policy = Auto::default();
    let pages = |mib: u64| mib << 8;
    assert_eq!(policy.allowance(pages(1024), false), pages(64));
    assert_eq!(policy.allowance(pages(10_000), false), pages(300));
    assert_eq!(policy.allowance(pages(10_000), true), 0);
}

#[test]
fn when_memory_is_short_only_full_regions_are_promoted_and_waste_is_taken_back() {
    let seen = [
        base(1, 511, 0),
        base(3, 512, 0),
        huge(5, true).zero(60),
        huge(7, true).zero(51),
    ];
    let both = |available, pressure| {
        let mut d = auto();
        d.machine.available_bytes = Bytes(available);
        d.machine.pressure = Some(Share::percent(pressure));
        d.see_all(&seen);
        d.see_all(&seen);
        (promoted(&d), demoted(&d))
    };
    let total = auto().machine.total_bytes.0;
    assert_eq!(both(total.div_ceil(10), 5), (vec![1, 3], vec![]));
    assert_eq!(both(total / 10 - 1, 5), (vec![3], vec![5]));
    assert_eq!(
        both(total.div_ceil(10), 6),
        (vec![3], vec![5]),
        "51 zero pages leave it dense"
    );
}

#[test]
fn mostly_zero_filled_huge_pages_are_split_and_not_promoted_again() {
    let mut d = auto();
    let seen = [
        huge(1, true),
        huge(3, true).zero(255),
        huge(5, true).zero(256),
        huge(7, true).zero(512).shared(),
    ];
    d.see_all(&seen);
    assert_eq!(d.kinds(), [(5, ActionKind::Demote, Reason::ZeroFilled)]);
    let split = [huge(1, true), huge(3, true).zero(255), base(5, 256, 256)];
    for _ in 0..40 {
        d.see_all(&split);
        assert!(d.actions().is_empty());
    }
}

#[test]
fn beyond_the_allowance_the_most_wasteful_are_split_first() {
    let mut d = auto();
    // 100 x 200 pages are 20000 of 16384 allowed.
    let seen: Vec<_> = (0..100)
        .map(|region| huge(region, true).zero(if region == 42 { 250 } else { 200 }))
        .collect();
    d.see_all(&seen);
    let split = demoted(&d);
    assert_eq!(split[..2], [42, 0]);
    assert_eq!(split.len(), 19, "until the rest is allowed");
}

#[test]
fn a_cold_huge_page_is_kept() {
    let mut d = auto();
    for _ in 0..100 {
        d.see_all(&[huge(1, false).zero(0)]);
        assert!(d.actions().is_empty());
    }
}

#[test]
fn accessed_bits_decide_only_while_free_blocks_are_too_few_for_all() {
    let mut d = auto();
    let hot = |region| base(region, 512, 100);
    let cold = |region| base(region, 512, 0);
    d.machine.free_blocks = Blocks(32 + 3);
    let unaged: Vec<_> = full(4);
    d.see_all(&unaged);
    d.see_all(&unaged);
    assert!(d.actions().is_empty(), "what is in use is not known yet");
    assert_eq!((d.aged(), d.policy.needs().utilization), (4, true));
    assert_eq!(d.last.look_again, None, "accessed bits cover an interval");
    d.see_all(&[cold(0), hot(1), base(2, 512, 512).unaged(), hot(3)]);
    assert_eq!(promoted(&d), [1, 2, 3]);
    let benefit: Vec<_> = d.actions().iter().map(|action| action.benefit.0).collect();
    assert_eq!(benefit, [612, 512, 612], "hot ones first");
    // There are blocks for all again.
    d.machine.free_blocks = Blocks(32 + 4);
    d.see_all(&[cold(0), hot(1), hot(2), hot(3)]);
    assert_eq!(promoted(&d), [0, 1, 2, 3]);
    assert_eq!((d.aged(), d.policy.needs().utilization), (0, false));
}

#[test]
fn it_looks_again_soon_while_memory_grows_and_less_often_afterwards() {
    let mut d = auto();
    let ms = |d: &Driver<Auto>| d.last.look_again.map(|soon| soon.as_millis());
    d.see_all(&full(4));
    assert_eq!(ms(&d), Some(250));
    let sparse: Vec<_> = (0..8).map(|region| base(region, 128, 0)).collect();
    d.see_all(&sparse);
    let mut paces = Vec::new();
    for _ in 0..18 {
        d.see_all(&sparse);
        paces.push(ms(&d));
    }
    assert_eq!(paces[..3], [Some(250); 3]);
    assert_eq!(paces[3..7], [Some(500); 4]);
    assert_eq!(paces[7..15], [Some(1000); 8]);
    assert_eq!(paces[15..], [None; 3]);
    // A few pages here and there are not growth.
    d.see_all(&[&sparse[1..], &[base(9, 400, 0)]].concat());
    assert_eq!(ms(&d), None);
    d.see_all(&[&sparse[1..], &[base(9, 400, 0), base(10, 512, 0)]].concat());
    assert_eq!(ms(&d), Some(250));
    assert!(d.last.watch_growth);
}

#[test]
fn contents_are_read_when_memory_has_settled() {
    let mut d = auto();
    d.step = Duration::from_secs(5);
    d.see(huge(1, true));
    assert!(!d.policy.needs().contents, "it is new");
    d.see(huge(1, true));
    assert!(d.policy.needs().contents);
    let wanted: Vec<_> = (0..24)
        .map(|_| {
            d.see(huge(1, true).zero(0));
            d.policy.needs().contents
        })
        .collect();
    assert_eq!(
        wanted.iter().filter(|wants| **wants).count(),
        2,
        "seldom, once they are known"
    );
    // What it promoted itself was dense.
    let mut d = auto();
    d.step = Duration::from_secs(5);
    d.see(base(1, 512, 512));
    d.see(base(1, 512, 512));
    d.see(huge(1, true));
    assert!(!d.policy.needs().contents);
}

#[test]
fn each_intent_has_its_rules_and_its_stall_budget() {
    let budgets = ["balanced", "latency", "throughput", "memory"].map(|intent| {
        let budget = auto_for(intent).policy.stall_budget().unwrap();
        budget.as_millionths() / 10_000
    });
    assert_eq!(budgets, [5, 2, 100, 5]);

    let growing = |intent| {
        let mut d = auto_for(intent);
        d.see_all(&full(20));
        d.see_all(&full(24));
        promoted(&d).len()
    };
    assert_eq!(
        ["balanced", "latency", "throughput", "memory"].map(growing),
        [12, 0, 12, 12]
    );

    let mut d = auto_for("memory");
    let seen = [
        base(1, 511, 0),
        base(3, 512, 0),
        huge(5, true).zero(60),
        huge(7, true).zero(51),
    ];
    d.see_all(&seen);
    d.see_all(&seen);
    assert_eq!((promoted(&d), demoted(&d)), (vec![3], vec![5]));
}

#[test]
fn thresholds_that_would_undo_each_other_are_refused() {
    let mut policy = Auto::default();
    policy.set("density", "40%").unwrap();
    assert!(policy.check().is_err());
    policy.set("zero", "61%").unwrap();
    policy.check().unwrap();
    let error = policy.set("For", "latency").unwrap_err();
    assert!(error.to_string().contains("(it has: for, density"), "{error}");
    let error = policy.set("for", "speed").unwrap_err();
    assert!(error.to_string().contains("'balanced', 'latency'"), "{error}");
}

#[test]
fn processes_that_are_gone_are_forgotten() {
    let mut d = auto();
    d.see_all(&full(10));
    assert_eq!(d.policy.past.len(), 10);
    d.see_processes(&[(ProcessId { pid: 8, ..PROCESS }, &full(1))]);
    assert_eq!(d.policy.past.len(), 1);
}
