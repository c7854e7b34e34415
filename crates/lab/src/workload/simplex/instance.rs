//! The instance of a network simplex, derived from a seed: any arc and supply can be recomputed for checks.

use crate::memory::content::{below, mix};

/// Maximum cost of an arc.
const COSTS: u64 = 1000;
/// Upper bound (exclusive) of supplies.
const SUPPLIES: u64 = 11;

/// The size of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceSize {
    /// Nodes without the root.
    pub nodes: usize,
    /// Arcs without those of the root.
    pub arcs: usize,
}

impl InstanceSize {
    /// Supply of a node; demand if negative.
    pub(super) fn supply(self, seed: u64, node: usize) -> i64 {
        // The first of a pair supplies what the second demands; an unpaired node has none.
        let pair = (node - 1) / 2;
        let amount = below(mix(seed ^ mix(pair as u64)), SUPPLIES) as i64;
        match (node - 1) % 2 {
            _ if 2 * pair + 2 > self.nodes => 0,
            0 => amount,
            _ => -amount,
        }
    }

    /// Cost, tail and head of an arc.
    pub(super) fn arc(self, seed: u64, arc: usize) -> (i64, usize, usize) {
        // Arcs of a node are adjacent, as the successors of a trip are in MCF.
        let tail = 1 + arc / (self.arcs / self.nodes);
        let random = mix(seed ^ mix(!(arc as u64)));
        let other = 1 + below(random, self.nodes as u64 - 1) as usize;
        let head = if other >= tail { other + 1 } else { other };
        (1 + below(mix(random), COSTS) as i64, tail, head)
    }

    /// The arc between the root and a node, which costs more than any path through the network.
    pub(super) fn root_arc(self, seed: u64, node: usize) -> (i64, usize, usize) {
        let expensive = (COSTS as i64 + 1) * (self.nodes as i64 + 1);
        match self.supply(seed, node) >= 0 {
            true => (expensive, node, 0),
            false => (expensive, 0, node),
        }
    }
}
