//! The instance of a network simplex, made from a seed: any arc and any supply can be made again to be compared.

use super::simplex_tree::{ARC_BYTES, NODE_BYTES};
use crate::content::{below, mix};

/// Costs of arcs are at most this.
const COSTS: u64 = 1000;
/// Supplies are below this.
const SUPPLIES: u64 = 11;

/// The size of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Nodes without the root.
    pub nodes: usize,
    /// Arcs without those of the root.
    pub arcs: usize,
}

impl Size {
    /// The instance that fits into `bytes`, with so many arcs for each node.
    #[must_use]
    pub fn fitting(bytes: usize, arcs_per_node: usize) -> Self {
        let arcs_per_node = arcs_per_node.max(1);
        let each = ARC_BYTES.saturating_mul(arcs_per_node + 1).saturating_add(NODE_BYTES);
        let nodes = (bytes / each).max(4);
        Self {
            nodes,
            arcs: nodes * arcs_per_node,
        }
    }

    /// What a node gives; negative: what it takes.
    pub(super) fn supply(self, seed: u64, node: usize) -> i64 {
        // The first of a pair gives what the second one takes; who has no second, nothing.
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
        // Arcs of one node stand together, as the trips after one trip do in MCF.
        let tail = 1 + arc / (self.arcs / self.nodes);
        let random = mix(seed ^ mix(!(arc as u64)));
        let other = 1 + below(random, self.nodes as u64 - 1) as usize;
        let head = if other >= tail { other + 1 } else { other };
        (1 + below(mix(random), COSTS) as i64, tail, head)
    }

    /// The arc between the root and a node, which costs more than any way through the network.
    pub(super) fn root_arc(self, seed: u64, node: usize) -> (i64, usize, usize) {
        let expensive = (COSTS as i64 + 1) * (self.nodes as i64 + 1);
        match self.supply(seed, node) >= 0 {
            true => (expensive, node, 0),
            false => (expensive, 0, node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_fills_the_memory_it_is_given() {
        let size = Size::fitting(64 << 20, 64);
        let bytes = (size.arcs + size.nodes) * ARC_BYTES + (size.nodes + 1) * NODE_BYTES;
        assert!((63 << 20..=64 << 20).contains(&bytes), "{bytes}");
        assert!((1..=size.nodes).map(|v| size.supply(3, v)).sum::<i64>() == 0);
    }
}
