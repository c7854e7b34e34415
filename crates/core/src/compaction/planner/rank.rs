//! The ranking of SYSTOR'19, section 3.4, shared by `mega` and `demand`.

use std::cmp::Reverse;

use super::{can_be_evacuated, PlannerInput};
use crate::compaction::block::{Block, PageKind, ZoneKind};
use crate::units::{Share, REGION_PAGES};

/// `age · (1 − mapped) · (1 − accessed) / (2 · mapped)`, age in seconds; none where nothing has to be migrated.
///
/// Interpretation where the paper leaves a choice:
/// - mapped is the share of pages in use, in page tables or only in the page cache: both have to be read and written, and neither is
///   free. (The paper's "nothing mapped is already free" holds for anonymous memory.)
/// - accessed counts as none where it is unknown: an unmodified kernel does not report it for physical memory.
/// - age counts as one second before the second look, so that blocks then rank by cost alone.
pub fn benefit_per_cost(block: &Block) -> Option<f64> {
    let mapped = f64::from(block.pages(PageKind::Movable).0) / f64::from(REGION_PAGES);
    let accessed = block.accessed().unwrap_or(Share::ZERO).fraction();
    let age_s = block.age().map_or(1.0, |age| age.as_secs_f64());
    (mapped > 0.0).then(|| age_s * (1.0 - mapped) * (1.0 - accessed) / (2.0 * mapped))
}

/// The zones compacted in every pass, and those compacted in this one as well, by index.
///
/// ZONE_NORMAL on every pass, and ZONE_MOVABLE, which holds nothing that ZONE_NORMAL could not hold too. ZONE_DMA32 only when the share of
/// its free memory available as 2 MB blocks is under `dma32_under`. ZONE_DMA never.
pub(super) fn zones_of_pass(seen: &PlannerInput<'_>, dma32_under: Share) -> (Vec<u8>, Vec<u8>) {
    let of = |wanted: &dyn Fn(ZoneKind) -> bool| {
        let found = seen.zones.iter().zip(0u8..).filter(|(zone, _)| wanted(zone.kind));
        found.map(|(_, i)| i).collect::<Vec<u8>>()
    };
    let always = of(&|kind| matches!(kind, ZoneKind::Normal | ZoneKind::Movable));
    let mut sometimes = of(&|kind| kind == ZoneKind::Dma32);
    sometimes.retain(|&i| {
        let zone = &seen.zones[usize::from(i)];
        !dma32_under.reached_by(zone.free_pages_in_blocks(), zone.free_pages)
    });
    (always, sometimes)
}

/// The blocks of these zones that are worth evacuating, best first; on a tie the lower address first.
pub(super) fn ranked<'a>(seen: &PlannerInput<'a>, zones: &[u8], unflagged_max: Share) -> Vec<(&'a Block, Option<f64>)> {
    let mut ranked: Vec<(&Block, f64)> = seen
        .blocks
        .iter()
        .filter(|b| zones.contains(&b.zone) && can_be_evacuated(b, unflagged_max))
        .filter_map(|b| Some((b, benefit_per_cost(b).filter(|benefit| *benefit > 0.0)?)))
        .collect();
    // Positive floats order as their bits do.
    ranked.sort_by_key(|(b, benefit)| (Reverse(benefit.to_bits()), b.hpfn));
    ranked.into_iter().map(|(b, benefit)| (b, Some(benefit))).collect()
}
