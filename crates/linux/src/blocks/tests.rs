//! The reader over made-up machines.

use std::io::{Seek, SeekFrom, Write};

use tempfile::TempDir;

use super::*;

const BUDDY: u64 = 1 << 10;
const ANON_MAPPED: u64 = 0x4_0000_5828;
const SLAB: u64 = 1 << 7;

struct Made {
    tree: TempDir,
}

impl Made {
    /// ZONE_DMA32 of `dma32` blocks from 0 on and ZONE_NORMAL of `normal` blocks from `from` on; nothing free.
    fn new(dma32: u64, from: u64, normal: u64) -> Made {
        let made = Made {
            tree: tempfile::tempdir().unwrap(),
        };
        let zone = |name: &str, start: u64, blocks: u64| {
            format!(
                "Node 0, zone {name}\n  pages free 0\n        spanned  {}\n  pagesets\n    cpu: 0\n              count:    3\n  \
                 start_pfn: {}\n",
                blocks * 512,
                start * 512
            )
        };
        std::fs::create_dir(made.tree.path().join("proc")).unwrap();
        made.write(
            "zoneinfo",
            zone("DMA32", 0, dma32) + &zone("Normal", from, normal) + "Node 0, zone Movable\n  pages free 0\n",
        );
        made.write(
            "buddyinfo",
            "Node 0, zone DMA32 1 0 0 0 0 0 0 0 0 2 0\nNode 0, zone Normal 0 0 0 0 0 0 0 0 0 0 3\n",
        );
        made
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.tree.path().join("proc").join(name), text).unwrap();
    }

    /// Flags of so many blocks; those that `flags` gives none for stay 0.
    fn flags(&self, blocks: u64, flags: &[(u64, [u64; 512])]) {
        let mut file = File::create(self.tree.path().join("proc/kpageflags")).unwrap();
        file.set_len(blocks * 4096).unwrap();
        for (block, flags) in flags {
            file.seek(SeekFrom::Start(block * 4096)).unwrap();
            let bytes: Vec<u8> = flags.iter().flat_map(|f| f.to_ne_bytes()).collect();
            file.write_all(&bytes).unwrap();
        }
    }

    fn read(&self, sampling: Sampling) -> Result<Physical, BlocksError> {
        read(&ProcRoot::under(self.tree.path()), sampling)
    }
}

fn half(first: u64, second: u64) -> [u64; 512] {
    std::array::from_fn(|i| if i < 256 { first } else { second })
}

fn every(n: u32) -> Sampling {
    Sampling::Every(NonZeroU32::new(n).unwrap())
}

#[test]
fn blocks_zones_and_kinds_of_a_made_up_machine_are_read() {
    let made = Made::new(2, 4, 300);
    made.flags(
        304,
        &[
            (0, [BUDDY; 512]),
            (1, half(ANON_MAPPED, BUDDY)),
            (4, half(SLAB, ANON_MAPPED)),
            (303, half(0x20, SLAB)),
        ],
    );
    let seen = made.read(Sampling::Auto).unwrap();
    assert_eq!((seen.every, seen.spanned, seen.blocks.len()), (1, Blocks(302), 302));
    let numbers: Vec<_> = seen.blocks.iter().map(|b| b.hpfn.0).collect();
    assert_eq!(numbers[..4], [0, 1, 4, 5], "what lies between the zones is not listed");
    let block = |n| seen.blocks.iter().find(|b| b.hpfn == Hpfn(n)).unwrap();
    assert_eq!((block(0).kind(), block(0).zone), (BlockKind::Free, 0));
    assert_eq!(
        (block(1).kind(), block(1).mapped_pages()),
        (BlockKind::Movable, BasePages(256))
    );
    assert_eq!((block(4).kind(), block(4).zone), (BlockKind::Unmovable, 1));
    assert_eq!(
        (block(303).kind(), block(303).mapped_pages()),
        (BlockKind::Unmovable, BasePages(0)),
        "past a batch of 256"
    );
    assert_eq!(block(5).kind(), BlockKind::Unflagged, "nobody said that it is a hole");
    assert_eq!(block(5).accessed(), None);
    assert_eq!(
        seen.zones.iter().map(|z| (z.kind, z.free_blocks)).collect::<Vec<_>>(),
        [(ZoneKind::Dma32, Blocks(2)), (ZoneKind::Normal, Blocks(6)),]
    );
    assert_eq!(
        (seen.buddy.before_pages, seen.buddy.per_cpu_pages),
        (1 + 1024 + 3072, 6)
    );
    assert_eq!(seen.notes().len(), 1, "{:?}", seen.notes());
}

#[test]
fn frames_that_are_no_memory_are_holes_and_unflagged_ones_that_are_memory_are_not() {
    let made = Made::new(4, 4, 4);
    made.flags(8, &[(3, half(0, SLAB))]);
    // Blocks 0 and 1, all of 2 but its last page, and 4 to 7.
    made.write(
        "iomem",
        "00000000-005fefff : System RAM\n00800000-00ffffff : System RAM\n",
    );
    let seen = made.read(Sampling::Auto).unwrap();
    let offline: Vec<_> = seen.blocks.iter().map(|b| b.pages(PageKind::Offline).0).collect();
    assert_eq!(
        offline,
        [0, 0, 1, 256, 0, 0, 0, 0],
        "what has a flag is there whatever iomem says"
    );
    assert!(seen.notes().is_empty());
}

#[test]
fn a_terabyte_is_sampled_and_says_so() {
    let blocks = 1 << 19;
    let made = Made::new(2048, 2048, blocks - 2048);
    made.flags(
        blocks,
        &[
            (64, [BUDDY; 512]),
            (65, [SLAB; 512]),
            (blocks - 32, half(ANON_MAPPED, 0)),
        ],
    );
    let seen = made.read(Sampling::Auto).unwrap();
    assert_eq!(
        (seen.every, seen.spanned, seen.blocks.len()),
        (32, Blocks(blocks), 1 << 14)
    );
    assert_eq!(seen.blocks_of(BlockKind::Free), Blocks(1));
    assert_eq!(
        seen.blocks_of(BlockKind::Unmovable),
        Blocks(0),
        "block 65 is in no sample"
    );
    assert_eq!(
        seen.blocks.last().map(|b| (b.hpfn.0, b.mapped_pages().0)),
        Some(((blocks - 32) as u32, 256))
    );
    assert_eq!(seen.notes()[0], "sampled: one block in 32 was read");
    assert!(seen.blocks.capacity() <= (1 << 14) + 1, "bounded memory");
    let dense = made.read(every(16)).unwrap();
    assert_eq!((dense.every, dense.blocks.len()), (16, 1 << 15));
}

#[test]
fn a_machine_of_absurd_size_is_sampled_whatever_is_asked_for() {
    let made = Made::new(1, 1, 1);
    made.flags(1, &[(0, [BUDDY; 512])]);
    made.write(
        "zoneinfo",
        "Node 0, zone Normal\n  spanned 18446744073709551615\n  start_pfn: 0\n",
    );
    let seen = made.read(Sampling::Auto).unwrap();
    assert_eq!((seen.spanned, seen.blocks.len()), (Blocks(1 << 31), 1 << 14));
    assert_eq!(
        seen.blocks.iter().filter(|b| b.kind() == BlockKind::Hole).count(),
        (1 << 14) - 1,
        "the file ends"
    );
}

#[test]
fn a_file_that_ends_early_leaves_the_rest_offline() {
    let made = Made::new(1, 1, 2);
    made.write(
        "kpageflags",
        BUDDY
            .to_ne_bytes()
            .repeat(512 + 10)
            .iter()
            .chain(&[1, 2, 3])
            .copied()
            .collect::<Vec<_>>(),
    );
    let seen = made.read(Sampling::Auto).unwrap();
    let pages: Vec<_> = seen
        .blocks
        .iter()
        .map(|b| (b.pages(PageKind::Free).0, b.pages(PageKind::Offline).0))
        .collect();
    assert_eq!(pages, [(512, 0), (10, 502), (0, 512)]);
}

#[test]
fn an_empty_or_missing_file_or_a_machine_without_zones_is_named() {
    let made = Made::new(1, 1, 1);
    let error = made.read(Sampling::Auto).unwrap_err();
    assert!(
        matches!(error, BlocksError::Missing(_)) && error.to_string().contains("CONFIG_PROC_PAGE_MONITOR"),
        "{error}"
    );
    made.write("kpageflags", "");
    let error = made.read(Sampling::Auto).unwrap_err();
    assert!(
        error.to_string().ends_with("kpageflags: says nothing about any page"),
        "{error}"
    );
    made.write("zoneinfo", "Node 0, zone Normal\n  spanned 0\n  start_pfn: 0\n");
    assert!(matches!(made.read(Sampling::Auto), Err(BlocksError::NoZones(_))));
    made.write("zoneinfo", "nonsense\n");
    assert!(matches!(made.read(Sampling::Auto), Err(BlocksError::Proc(_))));
}

#[test]
fn a_refusal_says_what_is_needed_and_what_works_without() {
    let error = refused(
        Path::new("/proc/kpageflags"),
        "open",
        io::Error::from_raw_os_error(libc::EACCES),
    );
    let text = error.to_string();
    assert!(matches!(error, BlocksError::Refused(_)));
    for word in ["/proc/kpageflags", "CAP_SYS_ADMIN", "/proc/buddyinfo"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_kernel_that_marks_only_the_first_page_of_a_free_chunk_is_noticed() {
    let made = Made::new(64, 64, 64);
    let head = std::array::from_fn(|i| if i == 0 { BUDDY } else { 0 });
    made.flags(128, &(0..64).map(|i| (i, head)).collect::<Vec<_>>());
    made.write("iomem", "00000000-ffffffff : System RAM\n");
    made.write("buddyinfo", "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 64 0\n");
    let notes = made.read(Sampling::Auto).unwrap().notes();
    assert!(
        notes.len() == 1 && notes[0].contains("free is read too low"),
        "{notes:?}"
    );
    made.flags(128, &(0..64).map(|i| (i, [BUDDY; 512])).collect::<Vec<_>>());
    assert!(made.read(Sampling::Auto).unwrap().notes().is_empty());
}
