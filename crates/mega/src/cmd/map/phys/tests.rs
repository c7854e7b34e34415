//! Physical memory of made-up machines, drawn.

use std::time::Duration;

use mega_core::compaction::block::{Zone, ZoneKind};
use mega_core::units::{BasePages, Blocks};
use mega_linux::blocks::BuddyCheck;

use super::*;
use mega_core::compaction::block::Hpfn;

fn zone(name: &str, first: u64, blocks: u64) -> Zone {
    Zone {
        node: 0,
        name: name.into(),
        kind: ZoneKind::from_name(name),
        start_frame: first * 512,
        spanned_frames: blocks * 512,
        free_pages: 0,
        free_blocks: Blocks(0),
    }
}

/// So many blocks in ZONE_DMA32 (4 GB, the last of it a hole) and ZONE_NORMAL, of all kinds, every n-th of them read.
pub fn machine(blocks: u64, every: u32) -> PhysMap {
    let kind = |n: u64| -> [u32; 6] {
        let noise = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
        match n {
            1536..2048 => [0, 0, 0, 0, 512, 0],
            _ if n < 64 => [100, 0, 412, 0, 0, 0],
            _ if n * 8 / blocks == 2 => [0, 0, 0, 512, 0, 0],
            _ if n * 8 / blocks == 5 => [512, 0, 0, 0, 0, 0],
            _ if noise % 37 == 0 => [200, 200, 100, 0, 0, 12],
            _ if n * 8 / blocks >= 6 => [512 - 128, 128, 0, 0, 0, 0],
            _ => [512 - noise % 512, noise % 512, 0, 0, 0, 0],
        }
    };
    let block = |n: u64| {
        let pages = kind(n);
        Block::new(Hpfn(n as u32), u8::from(n >= 2048))
            .with_pages(pages)
            .with_mapped(BasePages(pages[1] + pages[3]))
    };
    PhysMap(Physical {
        blocks: (0..blocks).step_by(every as usize).map(block).collect(),
        zones: vec![zone("DMA32", 0, 2048), zone("Normal", 2048, blocks - 2048)],
        every,
        spanned: Blocks(blocks),
        buddy: BuddyCheck {
            before_pages: 0,
            after_pages: 0,
            per_cpu_pages: 0,
        },
        holes_known: true,
        took: Duration::from_millis(123),
    })
}

#[test]
fn any_size_of_machine_fits_80_columns_and_a_screen() {
    for (blocks, every) in [(2049, 1), (12_800, 1), (1 << 19, 32), (1 << 21, 128)] {
        let map = machine(blocks, every);
        let text = map.text(Style::Ascii, 40);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().count() <= 40, "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("no memory"), "{text}");
        assert!(text.contains("DMA32") && text.contains("Normal"), "{text}");
        assert!(map.text(Style::Colour, 24).lines().count() <= 24);
        let scene = map.scene();
        assert!((300..1300).contains(&scene.height), "{}", scene.height);
        assert!(scene.width <= 1024);
    }
}

#[test]
fn what_a_cell_is_and_that_it_was_sampled_is_said() {
    let text = machine(1 << 19, 32).text(Style::Ascii, 40);
    assert!(text.contains("a cell is 512 blocks of 2 MB, 1.0G"), "{text}");
    assert!(text.contains("one block in 32"), "{text}");
    let json = machine(1 << 19, 32).json();
    assert_eq!(
        (json["every"].as_u64(), json["read_blocks"].as_u64()),
        (Some(32), Some(1 << 14))
    );
    assert_eq!(json["blocks"]["hpfn"].as_array().map(Vec::len), Some(1 << 14));
    assert!(json["accessed"].is_null());
}

#[test]
fn a_cell_is_named_for_most_of_its_blocks_and_coloured_by_all() {
    let block = |pages| Block::new(Hpfn(0), 0).with_pages(pages);
    let (free, full, huge) = (
        block([512, 0, 0, 0, 0, 0]),
        block([0, 512, 0, 0, 0, 0]),
        block([0, 0, 0, 512, 0, 0]),
    );
    assert_eq!(cell(&[]), None);
    let one = cell(&[full]).unwrap();
    assert_eq!((one.character, one.colour), ('@', Rgb(8, 69, 148)));
    let mixed = cell(&[free, huge, huge]).unwrap();
    assert_eq!(mixed.character, 'H');
    assert_eq!(Some(mixed.colour), mean([(FREE, 1.0), (HUGE, 2.0)]));
    assert_eq!(cell(&[block([300, 0, 1, 0, 0, 211])]).unwrap().character, 'u');
}

#[test]
fn the_profile_s_line_leaves_holes_out_and_its_ticks_are_round() {
    let axis = Axis::new(&[(0, 1536), (2048, 12_800)], 896);
    assert_eq!(axis.column_of(0), Some(0));
    assert_eq!(axis.column_of(1535), axis.column_of(2048).map(|c| c - 1));
    assert_eq!(axis.column_of(12_800), None);
    assert_eq!(axis.blocks_at(0).map(|run| run.0), Some(0));
    assert!(axis
        .ticks()
        .iter()
        .all(|(c, address)| (0..896).contains(c) && address % (1 << 30) == 0));
    assert!((6..30).contains(&axis.ticks().len()), "{:?}", axis.ticks());
}

#[test]
fn addresses_are_short() {
    let texts: Vec<_> = [0, 2 << 20, 256 << 20, 1 << 30, 3 << 29, 1 << 40, 3 << 39]
        .map(short_address)
        .into();
    assert_eq!(texts, ["0", "2M", "256M", "1G", "1.50G", "1T", "1536G"]);
}

/// For people: writes the pictures to look at into $MEGA_PICTURES.
#[test]
fn pictures_of_24_gb_and_1_tb_are_drawn() {
    let folder = std::env::var_os("MEGA_PICTURES").map(std::path::PathBuf::from);
    let kept = tempfile::tempdir().unwrap();
    let folder = folder.unwrap_or_else(|| kept.path().to_owned());
    for (name, blocks, every) in [("24g", 12_800, 1), ("1t", 1 << 19, 32)] {
        let scene = machine(blocks, every).scene();
        let path = folder.join(format!("{name}.svg"));
        crate::draw::save(&scene, &path).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        assert!((1000..2_000_000).contains(&size), "{size}");
    }
}
