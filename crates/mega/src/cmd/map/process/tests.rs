//! Made-up processes, drawn.

use super::*;
use mega_cli::draw::regions::stretches;

fn region(number: u64, mapped: u32) -> MappedRegion {
    MappedRegion {
        address: number * HUGE_PAGE_BYTES,
        mapped: BasePages(mapped),
        accessed: Some(BasePages(mapped / 2)),
        waste: Some(BasePages(0)),
        huge: mapped == 512,
    }
}

fn map(regions: Vec<MappedRegion>) -> ProcessMap {
    ProcessMap {
        pid: 1,
        name: printable("evil\u{1b}[2J").into_owned(),
        seen: RegionMap {
            vmas: Vec::new(),
            regions,
            elsewhere_bytes: 4096,
            read: (0, 0),
        },
    }
}

#[test]
fn a_cell_shows_the_mean_of_its_regions_and_unmapped_ones_count() {
    let regions = [region(10, 512), region(12, 256)];
    let found = stretches(&regions, 8);
    assert_eq!((found.len(), found[0].first, found[0].end), (1, 10, 13));
    assert_eq!(found[0].share(Band::Mapped, 0, 1), Some(1.0));
    assert_eq!(found[0].share(Band::Mapped, 1, 1), Some(0.0));
    assert_eq!(
        found[0].share(Band::Mapped, 0, 4),
        Some(0.5),
        "three regions, 768 of 1536 pages"
    );
    assert_eq!(found[0].share(Band::Huge, 0, 2), Some(0.5));
}

#[test]
fn regions_that_nobody_looked_at_are_unknown_and_not_nothing() {
    let mut regions = [region(1, 512), region(2, 512)];
    regions[0].waste = None;
    regions[1].waste = Some(BasePages(512));
    let found = stretches(&regions, 8);
    assert_eq!(found[0].share(Band::Waste, 0, 1), None);
    assert_eq!(
        found[0].share(Band::Waste, 0, 2),
        Some(1.0),
        "the one that was read stands for both"
    );
    assert_eq!(row(&found[0], Band::Waste, 0, 1, 1)[0].character, '?');
}

#[test]
fn large_processes_and_those_of_many_pieces_fit() {
    let large: Vec<_> = (0..500_000).map(|i| region(i, 512)).collect();
    let found = layout(&large, 64, 10);
    assert_eq!((found.per_cell, found.stretches.len()), (1024, 1));
    let pieces: Vec<_> = (0..5000).map(|i| region(i * 1000, 100)).collect();
    let found = layout(&pieces, 64, 10);
    assert!(found.stretches.len() <= 10, "{}", found.stretches.len());
    for style in [Style::Ascii, Style::Colour] {
        let text = map(pieces.clone()).text(style, 60);
        assert!(text.lines().count() < 80);
    }
}

#[test]
fn plain_text_is_80_columns_wide_at_most_and_harmless() {
    let regions = (0..300)
        .map(|i| region(i, i as u32))
        .chain((90_000..90_010).map(|i| region(i, 512)));
    let text = map(regions.collect()).text(Style::Ascii, 60);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.contains("... 175G ..."), "the gap is marked: {text}");
}

#[test]
fn a_process_with_nothing_to_show_is_shown() {
    let map = map(Vec::new());
    assert!(map.text(Style::Ascii, 60).contains("0 in regions"));
    assert!(map.scene().height > 0);
    assert_eq!(map.json()["regions"], json!([]));
}
