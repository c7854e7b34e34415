//! Reading physical memory through mega.ko: 32 bytes a block instead of 4096, and which pages look pinned.

use mega_core::compaction::block::{Block, Hpfn, PageKind, Zone};
use mega_core::units::{BasePages, REGION_PAGES};

use super::{block_ranges, count_free, zones, BlocksError};
use crate::module::{uapi, Module};
use crate::proc::{buddyinfo, zoneinfo, ProcRoot};

/// Every block, and the zones that their `zone` are indices into. As by [`super::read`], but
/// - pages that look pinned count as unmovable, and so does all that is used in a block that the kernel keeps for CMA or atomic
///   allocations, or has isolated: mega.ko empties none of them;
/// - pages without a user that are not with the buddy allocator (on a processor's list) count as free.
///
/// # Errors
/// The module refuses, or a file that is not what it should be.
pub fn read_by_module(root: &ProcRoot, module: &Module) -> Result<(Vec<Block>, Vec<Zone>), BlocksError> {
    let mut zones = zones(&zoneinfo::read(root)?);
    let ranges = block_ranges(&zones);
    let seen = module.all_blocks()?;
    count_free(&mut zones, &buddyinfo::read(root)?);
    let spanned = ranges.into_iter().flatten();
    let blocks = spanned.filter_map(|number| {
        let found = seen.get(usize::try_from(number).ok()?)?;
        Some(block(Hpfn(u32::try_from(number).ok()?), found, &zones))
    });
    Ok((blocks.collect(), zones))
}

fn block(hpfn: Hpfn, seen: &uapi::Block, zones: &[Zone]) -> Block {
    let middle = hpfn.first_frame() + u64::from(REGION_PAGES) / 2;
    let zone = zones.iter().position(|zone| zone.spans(middle));
    let kept = matches!(seen.r#type, uapi::TYPE_ATOMIC | uapi::TYPE_CMA | uapi::TYPE_ISOLATED);
    let fixed = match kept {
        true => seen.movable,
        false => seen.pinned.min(seen.movable),
    };
    let mut pages = [0; PageKind::COUNT];
    pages[PageKind::Free as usize] = u32::from(seen.free) + u32::from(seen.listed);
    pages[PageKind::Movable as usize] = (seen.movable - fixed).into();
    pages[PageKind::Unmovable as usize] = u32::from(seen.unmovable) + u32::from(fixed);
    pages[PageKind::Huge as usize] = seen.huge.into();
    pages[PageKind::Offline as usize] = u32::from(seen.absent) + u32::from(seen.poisoned);
    Block::new(hpfn, zone.map_or(Block::NO_ZONE, |i| i as u8))
        .with_pages(pages)
        .with_mapped(BasePages(seen.mapped.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_core::compaction::block::BlockKind;

    fn seen() -> uapi::Block {
        uapi::Block {
            free: 300,
            listed: 12,
            movable: 200,
            mapped: 190,
            zone: 3,
            r#type: 2,
            ..uapi::Block::default()
        }
    }

    #[test]
    fn what_is_pinned_or_kept_for_others_cannot_be_moved_and_what_is_on_a_list_is_free() {
        let look = |seen: uapi::Block| block(Hpfn(7), &seen, &[]);
        let plain = look(seen());
        assert_eq!(plain.kind(), BlockKind::Movable);
        assert_eq!(
            (plain.pages(PageKind::Free).0, plain.pages(PageKind::Movable).0),
            (312, 200)
        );
        assert_eq!((plain.mapped_pages().0, plain.zone), (190, Block::NO_ZONE));
        let pinned = look(uapi::Block { pinned: 1, ..seen() });
        assert_eq!(
            (pinned.kind(), pinned.pages(PageKind::Unmovable).0),
            (BlockKind::Unmovable, 1)
        );
        for r#type in [uapi::TYPE_ATOMIC, uapi::TYPE_CMA, uapi::TYPE_ISOLATED] {
            assert_eq!(look(uapi::Block { r#type, ..seen() }).kind(), BlockKind::Unmovable);
        }
        // A kernel that counts wrongly takes nobody down.
        let wild = look(uapi::Block {
            pinned: u16::MAX,
            huge: u16::MAX,
            ..seen()
        });
        assert_eq!(wild.kind(), BlockKind::Unmovable);
    }
}
