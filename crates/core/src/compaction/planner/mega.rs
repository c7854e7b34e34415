//! MEGA's proactive compaction (Michailidis, Delis, Roussopoulos: SYSTOR'19), section 3.4.
//!
//! - Every 5 s, up to 200 MB.
//! - Each block has an age since its last mapping, a mapped share and an accessed share; blocks are evacuated in the order of
//!   `benefit/cost = age · (1 − mapped) · (1 − accessed) / (2 · mapped)`, after the segment cleaning of LFS.
//! - ZONE_NORMAL on every pass; ZONE_DMA32 only when less than 33 % of the zone's free memory is available as 2 MB blocks. The 200 MB are
//!   per pass: ZONE_DMA32 gets what ZONE_NORMAL leaves.
//! - Blocks with unmovable pages are left out (section 6, future work).

use std::time::Duration;

use super::rank::{ranked, zones_of_pass};
use super::{blocks_for, to_gain_in, Choice, Making, Planner, PlannerInput, Reason};
use crate::policy::params::{hand_on_parameters, parameters};
use crate::units::{Blocks, Bytes, Share};

parameters! {
    /// The paper's parameters, with its values (section 3.4), and ours.
    pub struct MegaParams for "mega" {
        interval: Duration = Duration::from_secs(5), "time from one pass to the next";
        budget: Bytes = Bytes::mib(200), "size of the blocks to evacuate per pass";
        dma32_under: Share = Share::percent(33), "share of ZONE_DMA32's free memory in free blocks below which it is compacted too";
        unflagged_max: Share = Share::percent(5), "ours: maximum share of pages without a flag in a block to evacuate";
    }
}

/// The planner. It is stateless.
#[derive(Debug, Default)]
pub struct Mega {
    params: MegaParams,
}

impl Planner for Mega {
    fn name(&self) -> &'static str {
        "mega"
    }

    fn interval(&self) -> Duration {
        self.params.interval
    }

    fn want(&mut self, seen: &PlannerInput<'_>) -> Blocks {
        let p = &self.params;
        let (always, sometimes) = zones_of_pass(seen, p.dma32_under);
        let most = to_gain_in(seen, &always).saturating_add(to_gain_in(seen, &sometimes));
        Blocks(blocks_for(p.budget).min(most))
    }

    fn plan(&mut self, seen: &PlannerInput<'_>) -> Vec<Choice> {
        self.rank(seen, Blocks(blocks_for(self.params.budget)))
    }

    fn rank(&self, seen: &PlannerInput<'_>, most: Blocks) -> Vec<Choice> {
        let p = &self.params;
        let (always, sometimes) = zones_of_pass(seen, p.dma32_under);
        let mut making = Making::new(seen.blocks);
        making.take(most.0, ranked(seen, &always, p.unflagged_max), Reason::CostBenefit);
        let left = making.left;
        making.take(left, ranked(seen, &sometimes, p.unflagged_max), Reason::CostBenefit);
        making.choices
    }

    hand_on_parameters!();
}
