//! Ours: keep as many blocks free as are likely to be asked for, so that promotions and huge faults avoid direct compaction, and do not
//! compact without demand.
//!
//! - Demand is a high quantile of the blocks that promotions and huge faults asked for per interval, over the last N intervals.
//! - The free-block target is the demand plus a reserve, at most a share of all memory. Without any demand in N intervals it is zero: free
//!   memory that nobody wants as 2 MB blocks may be fragmented. If demand is expected, set a floor: it is always kept free, whatever
//!   its size.
//! - The shortfall is compacted, at most a budget per interval, best benefit per cost first (SYSTOR'19, section 3.4), in the same zones as
//!   `mega`.

use std::collections::VecDeque;
use std::time::Duration;

use super::rank::{ranked, zones_of_pass};
use super::{blocks_for, to_gain_in, Choice, Making, Planner, PlannerInput, Reason};
use crate::compaction::block::ZoneKind;
use crate::policy::params::{hand_on_parameters, parameters, Count};
use crate::units::{Blocks, Bytes, Share, HUGE_PAGE_BYTES};

parameters! {
    /// Our parameters.
    pub struct DemandParams for "demand" {
        interval: Duration = Duration::from_secs(5), "time from one pass to the next";
        n: Count<1, 1000> = Count(60), "intervals whose demand counts";
        quantile: Share = Share::percent(95), "share of those intervals whose demand the free-block target covers";
        reserve: Bytes = Bytes::mib(32), "free memory beyond the demand";
        floor: Bytes = Bytes(0), "free-block target without any demand";
        stock_max: Share = Share::percent(10), "maximum share of all memory that demand makes the target";
        budget: Bytes = Bytes::mib(200), "size of the blocks to evacuate per pass";
        dma32_under: Share = Share::percent(33), "share of ZONE_DMA32's free memory in free blocks below which it is compacted too";
        unflagged_max: Share = Share::percent(5), "maximum share of pages without a flag in a block to evacuate";
    }
}

/// The planner and the demand of the last intervals.
#[derive(Debug, Default)]
pub struct Demand {
    params: DemandParams,
    asked: VecDeque<u64>,
}

impl Demand {
    fn remember(&mut self, asked: u64) {
        self.asked.push_back(asked);
        let n = self.params.n.0 as usize;
        while self.asked.len() > n {
            self.asked.pop_front();
        }
    }

    /// The smallest number of blocks that at least `quantile` of the remembered intervals did not exceed.
    fn demand(&self) -> u64 {
        let mut sorted: Vec<u64> = self.asked.iter().copied().collect();
        sorted.sort_unstable();
        let whole = sorted.len() as u64;
        let enough = (1..=whole).find(|&part| self.params.quantile.reached_by(part, whole));
        enough.map_or(0, |part| sorted[part as usize - 1])
    }

    /// Records the demand; returns the missing blocks, as far as the budget allows.
    fn amount(&mut self, seen: &PlannerInput<'_>) -> u64 {
        self.remember(seen.asked.0);
        let served = |kind| matches!(kind, ZoneKind::Normal | ZoneKind::Movable | ZoneKind::Dma32);
        let free = seen
            .zones
            .iter()
            .filter(|zone| served(zone.kind))
            .fold(0u64, |sum, zone| sum.saturating_add(zone.free_blocks.0));
        let shortfall = self.target(seen.total).saturating_sub(free);
        shortfall.min(blocks_for(self.params.budget))
    }

    /// Free blocks to have: the free-block target.
    fn target(&self, total: Bytes) -> u64 {
        let wanted = match self.asked.iter().all(|&asked| asked == 0) {
            true => 0,
            false => self.demand().saturating_add(blocks_for(self.params.reserve)),
        };
        let most = u128::from(total.0) * u128::from(self.params.stock_max.as_millionths()) / 1_000_000;
        let most = (most / u128::from(HUGE_PAGE_BYTES)) as u64;
        wanted.min(most).max(blocks_for(self.params.floor))
    }
}

impl Planner for Demand {
    fn name(&self) -> &'static str {
        "demand"
    }

    fn interval(&self) -> Duration {
        self.params.interval
    }

    fn want(&mut self, seen: &PlannerInput<'_>) -> Blocks {
        let (always, sometimes) = zones_of_pass(seen, self.params.dma32_under);
        let most = to_gain_in(seen, &always).saturating_add(to_gain_in(seen, &sometimes));
        Blocks(self.amount(seen).min(most))
    }

    fn plan(&mut self, seen: &PlannerInput<'_>) -> Vec<Choice> {
        let amount = self.amount(seen);
        self.rank(seen, Blocks(amount))
    }

    fn rank(&self, seen: &PlannerInput<'_>, most: Blocks) -> Vec<Choice> {
        let p = &self.params;
        let mut making = Making::new(seen.blocks);
        if most > Blocks(0) {
            let (always, sometimes) = zones_of_pass(seen, p.dma32_under);
            making.take(most.0, ranked(seen, &always, p.unflagged_max), Reason::Shortfall);
            let left = making.left;
            making.take(left, ranked(seen, &sometimes, p.unflagged_max), Reason::Shortfall);
        }
        making.choices
    }

    hand_on_parameters!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_a_quantile_and_forgets() {
        let mut demand = Demand::default();
        demand.set("n", "20").unwrap();
        demand.set("reserve", "0").unwrap();
        (0..19).for_each(|_| demand.remember(10));
        demand.remember(1000);
        assert_eq!(demand.demand(), 10, "95 % of 20 intervals asked for 10 at most");
        demand.remember(1000);
        assert_eq!(demand.demand(), 1000, "now only 90 % did");
        (0..19).for_each(|_| demand.remember(0));
        assert_eq!((demand.demand(), demand.asked.len()), (0, 20));
        assert_eq!(demand.target(Bytes(24 << 30)), 0, "the demand was rare and long ago");
        demand.remember(0);
        assert_eq!(demand.target(Bytes(24 << 30)), 0);
    }

    #[test]
    fn a_floor_is_kept_without_demand_and_whatever_its_size() {
        let mut demand = Demand::default();
        demand.set("floor", "1G").unwrap();
        assert_eq!(demand.target(Bytes(24 << 30)), 512);
        demand.remember(600);
        assert_eq!(
            demand.target(Bytes(24 << 30)),
            616,
            "the demand and its reserve are more"
        );
        demand.set("floor", "20G").unwrap();
        assert_eq!(
            demand.target(Bytes(24 << 30)),
            10240,
            "more than the share that demand may have"
        );
    }

    #[test]
    fn the_target_is_at_most_a_share_of_memory() {
        let mut demand = Demand::default();
        demand.remember(u64::MAX);
        assert_eq!(demand.target(Bytes(24 << 30)), 1228, "10 % of 12288 blocks");
        assert_eq!(demand.target(Bytes(0)), 0);
    }
}
