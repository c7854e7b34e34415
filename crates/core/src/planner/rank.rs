//! The order of SYSTOR'19, section 3.4, which `mega` and `demand` share.

use std::cmp::Reverse;

use super::{can_be_emptied, Seen};
use crate::block::{Block, PageKind, ZoneKind};
use crate::units::{Share, REGION_PAGES};

/// `age · (1 − mapped) · (1 − accessed) / (2 · mapped)`, age in seconds; none where nothing has to be moved.
///
/// How the paper is read where it leaves a choice:
/// - mapped is the share of pages that hold something, in page tables or only in the page cache: both have to be read and written, and
///   neither is free. (The paper's "nothing mapped is already free" holds for anonymous memory.)
/// - accessed counts as none where nobody can see it: a stock kernel does not say it of physical memory.
/// - age counts as one second before the second look, so that blocks then rank by what they cost.
pub fn benefit_per_cost(block: &Block) -> Option<f64> {
    let mapped = f64::from(block.pages(PageKind::Movable).0) / f64::from(REGION_PAGES);
    let accessed = block.accessed().unwrap_or(Share::ZERO).fraction();
    let age_s = block.age().map_or(1.0, |age| age.as_secs_f64());
    (mapped > 0.0).then(|| age_s * (1.0 - mapped) * (1.0 - accessed) / (2.0 * mapped))
}

/// Zones in which every pass compacts, and those in which this one does too, as indices.
///
/// ZONE_NORMAL on every pass, and ZONE_MOVABLE, which holds nothing but what ZONE_NORMAL could hold too. ZONE_DMA32 only when its memory
/// that can be had in 2 MB pieces is under `dma32_under` of its free memory. ZONE_DMA never.
pub(super) fn zones_of_pass(seen: &Seen<'_>, dma32_under: Share) -> (Vec<u8>, Vec<u8>) {
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

/// The blocks of these zones that can be emptied at a profit, best first; the lower address first where two are equal.
pub(super) fn ranked<'a>(seen: &Seen<'a>, zones: &[u8], unflagged_max: Share) -> Vec<(&'a Block, Option<f64>)> {
    let mut ranked: Vec<(&Block, f64)> = seen
        .blocks
        .iter()
        .filter(|b| zones.contains(&b.zone) && can_be_emptied(b, unflagged_max))
        .filter_map(|b| Some((b, benefit_per_cost(b).filter(|benefit| *benefit > 0.0)?)))
        .collect();
    // Positive numbers compare as their bits do.
    ranked.sort_by_key(|(b, benefit)| (Reverse(benefit.to_bits()), b.hpfn));
    ranked.into_iter().map(|(b, benefit)| (b, Some(benefit))).collect()
}
