use super::*;
use proptest::prelude::*;

const SLOTS: usize = 1024;

fn with_map<T>(test: impl FnOnce(&mut Map<'_>) -> T) -> T {
    let mut pages = vec![0; SLOTS * SLOT_PAGES];
    let mut slots = vec![Slot::default(); SLOTS];
    test(&mut Map::new(&mut pages, &mut slots))
}

#[test]
fn room_is_found_from_the_bottom_and_reused() {
    with_map(|map| {
        assert_eq!(map.find(3, READ_WRITE), Some(0));
        map.take(0, 3, READ_WRITE);
        assert_eq!(map.find(1000, READ_WRITE), Some(3));
        map.take(3, 1003, 1);
        assert_eq!(map.used(0, 1024), 1003);
        assert_eq!(
            (map.run(0, 2000), map.run(3, 2000), map.used_until(0, 2000)),
            (3, 1003, 1003)
        );
        map.free(1, 2, false);
        assert_eq!(map.find(1, READ_WRITE), Some(1));
        assert_eq!(map.find(2, READ_WRITE), Some(1003));
        assert_eq!(map.find(SLOTS * SLOT_PAGES, READ_WRITE), None);
        assert!(map.is_free(1, 2) && !map.is_free(1, 3));
    });
}

#[test]
fn memory_that_is_not_readable_and_writable_keeps_out_of_hugetlb() {
    with_map(|map| {
        map.set_kind(0, 512, Kind::Huge);
        map.set_kind(512, 1024, Kind::Thp);
        assert_eq!(map.find(1, READ_WRITE), Some(0));
        assert_eq!(map.find(1, 1), Some(512));
        assert_eq!(map.find(513, 7), Some(512));
        map.set_live(0, 512, USED | 1);
        map.take(0, 1, 1);
        assert_eq!(map.find(1, READ_WRITE), Some(512), "what is there is read-only");
        assert!(!map.range_suits(511, 513, READ_WRITE) && map.range_suits(512, 600, 7));
    });
}

#[test]
fn pieces_end_where_the_backing_changes() {
    with_map(|map| {
        map.set_kind(512, 1536, Kind::Huge);
        map.set_live(1024, 1536, USED | READ_WRITE);
        let cuts: Vec<_> = std::iter::successors(Some(map.piece(10, 2000)), |last| {
            (last.end < 2000).then(|| map.piece(last.end, 2000))
        })
        .map(|piece| (piece.start, piece.end, piece.kind))
        .collect();
        let expected = [
            (10, 512, Kind::Base),
            (512, 1024, Kind::Huge),
            (1024, 1536, Kind::Huge),
            (1536, 2000, Kind::Base),
        ];
        assert_eq!(cuts, expected);
        map.set_kind(
            GIGANTIC_SLOTS * SLOT_PAGES,
            2 * GIGANTIC_SLOTS * SLOT_PAGES,
            Kind::Gigantic,
        );
        assert_eq!(map.granule(600), (512, 1024));
        assert_eq!(
            map.granule(GIGANTIC / BASE + 700),
            (GIGANTIC / BASE, 2 * GIGANTIC / BASE)
        );
    });
}

#[test]
fn freed_hugetlb_pages_stay_dirty_until_cleaned() {
    with_map(|map| {
        map.take(0, 10, READ_WRITE);
        map.free(2, 12, true);
        assert_eq!((map.page(1), map.page(2), map.page(11)), (USED | READ_WRITE, DIRTY, 0));
        assert_eq!(map.find(2, READ_WRITE), Some(2));
        map.clean(0, 4);
        assert_eq!((map.page(1), map.page(2), map.page(4)), (USED | READ_WRITE, 0, DIRTY));
        map.protect(0, 4, 1);
        assert_eq!((map.page(1), map.page(2)), (USED | 1, 0));
    });
}

proptest! {
    #[test]
    fn the_map_agrees_with_a_naive_one(operations in prop::collection::vec((0usize..2, 0usize..3000, 1usize..1500), 1..60)) {
        let mut naive = vec![false; SLOTS * SLOT_PAGES];
        with_map(|map| {
            for (operation, start, length) in &operations {
                match operation {
                    0 => {
                        let first = naive.windows(*length).position(|window| window.iter().all(|used| !used));
                        assert_eq!(map.find(*length, READ_WRITE), first);
                        let Some(first) = first else { continue };
                        map.take(first, first + length, READ_WRITE);
                        naive[first..first + length].fill(true);
                    }
                    _ => {
                        map.free(*start, start + length, length % 2 == 0);
                        naive[*start..start + length].fill(false);
                    }
                }
                let used = naive[..8 * SLOT_PAGES].iter().filter(|used| **used).count();
                assert_eq!(map.used(0, 8 * SLOT_PAGES), used);
            }
        });
    }
}
