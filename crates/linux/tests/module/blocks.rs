//! What blocks hold, against what is known and against /proc.

use std::time::Instant;

use mega_linux::module::uapi::{Block, CompactBlock, BLOCK_HEAD};
use mega_linux::module::BlockOutcome;

use super::memory::Memory;
use super::module;

#[test]
fn counts_add_up_and_agree_with_proc() {
    let Some(module) = module() else { return };
    let began = Instant::now();
    let blocks = module.all_blocks().unwrap();
    let took = began.elapsed();
    assert_eq!(blocks.len() as u64, module.info().blocks);
    for (n, b) in blocks.iter().enumerate() {
        let sum = b.free + b.listed + b.movable + b.unmovable + b.huge + b.poisoned + b.absent;
        assert_eq!(sum, 512, "block {n}: {b:?}");
        assert!(
            b.pinned <= b.movable + b.huge && b.mapped <= b.movable + b.huge,
            "block {n}: {b:?}"
        );
    }
    let free: u64 = blocks.iter().map(|b| u64::from(b.free)).sum();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kb = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let proc_free = kb("MemFree:") / 4;
    // Pages on the processors' own lists count as free there.
    assert!(
        free.abs_diff(proc_free) < 8192,
        "{free} pages free, /proc says {proc_free}"
    );
    let began = Instant::now();
    let seen = mega_linux::blocks::read(&mega_linux::proc::ProcRoot::default(), Default::default()).unwrap();
    let by_proc = began.elapsed();
    eprintln!(
        "MODULE {} blocks read in {took:?}; through kpageflags {} in {by_proc:?}",
        blocks.len(),
        seen.blocks.len()
    );
    assert!(took < by_proc / 2, "{took:?} against {by_proc:?}");
}

#[test]
fn pages_of_ours_are_movable_and_mapped_where_they_are() {
    let Some(module) = module() else { return };
    let memory = Memory::fragmented(16, |page| page % 4 == 0);
    let blocks = module.all_blocks().unwrap();
    for (block, pages) in memory.by_block() {
        let seen = blocks[block as usize];
        assert!(
            usize::from(seen.movable) >= pages.len() && usize::from(seen.mapped) >= pages.len(),
            "{seen:?}"
        );
    }
}

#[test]
fn a_huge_page_fills_its_block() {
    let Some(module) = module() else { return };
    let mut memory = Memory::map(1);
    memory.collapse();
    let block = memory.frames()[&0] / 512;
    let seen = module.all_blocks().unwrap()[block as usize];
    assert_eq!((seen.huge, seen.flags), (512, BLOCK_HEAD), "{seen:?}");
    assert_eq!(seen.mapped, 512);
}

#[test]
fn free_pages_of_the_hugetlb_pool_are_huge_and_left_alone() {
    let Some(module) = module() else { return };
    const POOL: &str = "/proc/sys/vm/nr_hugepages";
    std::fs::write(POOL, "3").unwrap();
    let before: u64 = std::fs::read_to_string(POOL).unwrap().trim().parse().unwrap();
    let blocks = module.all_blocks().unwrap();
    // Nobody else has huge pages here.
    let of_pool = |b: &Block| b.flags & BLOCK_HEAD != 0;
    let mut list: Vec<_> = (0..)
        .zip(&blocks)
        .filter(|(_, b)| of_pool(b))
        .map(|(n, _)| CompactBlock::asked(n))
        .collect();
    module
        .compact(&mut list, std::time::Duration::from_secs(50), false)
        .unwrap();
    let after: u64 = std::fs::read_to_string(POOL).unwrap().trim().parse().unwrap();
    std::fs::write(POOL, "0").unwrap();
    assert_eq!((before, after), (3, 3));
    assert!(list.len() >= 3, "{list:?}");
    assert!(list.iter().all(|b| b.outcome() == BlockOutcome::Huge), "{list:?}");
}
