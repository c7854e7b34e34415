//! Ingens' proactive compaction (Kwon, Yu, Peter, Rossbach, Witchel: OSDI'16), as SYSTOR'19, sections 4.3 and 5, and docs/papers.md state it.
//!
//! - Every 5 s, up to 100 MB per zone (ZONE_NORMAL and ZONE_DMA32), once the zone's fragmentation passes a threshold.
//! - Blocks closest to the start of the address space come first, whatever they hold: the kernel's own migration scanner.
//! - Fragmentation is the share of the zone's free memory that lies outside free blocks (the free memory fragmentation index). The value of
//!   the threshold is ours: Ingens' code disables compaction by default.

use std::time::Duration;

use super::{blocks_for, can_be_evacuated, to_gain, Choice, Making, Planner, PlannerInput, Reason};
use crate::compaction::block::{Zone, ZoneKind};
use crate::policy::params::{hand_on_parameters, parameters};
use crate::units::{Blocks, Bytes, Share};

parameters! {
    /// Ingens' parameters.
    pub struct IngensParams for "ingens" {
        interval: Duration = Duration::from_secs(5), "time from one pass to the next";
        budget: Bytes = Bytes::mib(100), "size of the blocks to evacuate per pass and zone";
        fragmentation: Share = Share::percent(50), "share of a zone's free memory outside free blocks from which it is compacted";
        unflagged_max: Share = Share::percent(5), "ours: maximum share of pages without a flag in a block to evacuate";
    }
}

impl IngensParams {
    fn compacts(&self, zone: &Zone) -> bool {
        let served = matches!(zone.kind, ZoneKind::Normal | ZoneKind::Movable | ZoneKind::Dma32);
        served && zone.free_pages > 0 && zone.fragmentation() >= self.fragmentation
    }
}

/// The planner. It is stateless.
#[derive(Debug, Default)]
pub struct Ingens {
    params: IngensParams,
}

impl Planner for Ingens {
    fn name(&self) -> &'static str {
        "ingens"
    }

    fn interval(&self) -> Duration {
        self.params.interval
    }

    fn want(&mut self, seen: &PlannerInput<'_>) -> Blocks {
        let p = &self.params;
        let zones = seen.zones.iter().filter(|zone| p.compacts(zone));
        Blocks(zones.map(|zone| to_gain(zone).min(blocks_for(p.budget))).sum())
    }

    fn plan(&mut self, seen: &PlannerInput<'_>) -> Vec<Choice> {
        self.rank(seen, Blocks(u64::MAX))
    }

    fn rank(&self, seen: &PlannerInput<'_>, most: Blocks) -> Vec<Choice> {
        let p = &self.params;
        let mut making = Making::new(seen.blocks);
        for (_, i) in seen.zones.iter().zip(0u8..).filter(|(zone, _)| p.compacts(zone)) {
            let lowest = seen
                .blocks
                .iter()
                .filter(|b| b.zone == i && can_be_evacuated(b, p.unflagged_max));
            let left = most.0.saturating_sub(making.choices.len() as u64);
            making.take(
                blocks_for(p.budget).min(left),
                lowest.map(|b| (b, None)),
                Reason::Lowest,
            );
        }
        making.choices
    }

    hand_on_parameters!();
}
