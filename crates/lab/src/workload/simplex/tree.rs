//! A network simplex: arcs in one large array, nodes joined by a spanning tree of indices, as in MCF.
//!
//! ```text
//!   arcs    cost, tail, head, lists by tail and by head, flow      48 bytes each, priced with a stride over all of them
//!   nodes   potential, parent, child, siblings, arc, flow, depth   96 bytes each, walked from node to node
//! ```
//!
//! A pivot: price groups of arcs until there are enough candidates, take the one with the most negative reduced cost, walk from both
//! of its ends up to where they join, send as much flow around as goes, take the last arc out that blocks (which keeps the tree strongly
//! feasible, so it cannot cycle; Cunningham 1976), hang the cut part under its new parent and correct its potentials.
//!
//! Arcs have no capacity. Node 0 is an artificial root: it begins with an expensive arc from or to each node.

use super::instance::InstanceSize;
use crate::workload::WorkloadError;

/// No node, no arc.
const NONE: usize = usize::MAX;
/// Arcs of a pricing group, spread as far apart as possible; this and the next are MCF's values for large instances.
const GROUP_ARCS: usize = 300;
/// Candidates kept.
const BASKET: usize = 50;
/// One arc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arc {
    cost: i64,
    tail: usize,
    head: usize,
    /// The arc before this one that leaves the same node.
    next_out: usize,
    /// The arc before this one that enters the same node.
    next_in: usize,
    flow: i64,
}

/// One node.
#[derive(Debug, Clone, Copy)]
struct Node {
    potential: i64,
    supply: i64,
    /// Flow of the arc to or from its parent.
    flow: i64,
    /// Whether that arc leads to the parent.
    up: bool,
    arc: usize,
    parent: usize,
    child: usize,
    next: usize,
    before: usize,
    depth: usize,
    first_out: usize,
    first_in: usize,
}

/// Bytes of an arc and of a node.
const ARC_BYTES: usize = std::mem::size_of::<Arc>();
const NODE_BYTES: usize = std::mem::size_of::<Node>();

/// An instance with its tree.
#[derive(Debug)]
pub struct Simplex {
    size: InstanceSize,
    seed: u64,
    arcs: Vec<Arc>,
    nodes: Vec<Node>,
    groups: usize,
    /// Where pricing resumes.
    group: usize,
    basket: Vec<(i64, usize)>,
    /// Arcs priced and nodes walked over so far.
    pub visits: u64,
    /// Pivots so far.
    pub pivots: u64,
}

/// A vector with capacity for `count` items.
fn room<T>(count: usize, what: &'static str) -> Result<Vec<T>, WorkloadError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)
        .map_err(|_| WorkloadError::system(what)(std::io::ErrorKind::OutOfMemory.into()))?;
    Ok(all)
}

impl Simplex {
    /// The size of the instance that fills `bytes` with `arcs_per_node` arcs for each node.
    #[must_use]
    pub fn size_fitting(bytes: usize, arcs_per_node: usize) -> InstanceSize {
        let arcs_per_node = arcs_per_node.max(1);
        let each = ARC_BYTES.saturating_mul(arcs_per_node + 1).saturating_add(NODE_BYTES);
        let nodes = (bytes / each).max(4);
        InstanceSize {
            nodes,
            arcs: nodes * arcs_per_node,
        }
    }

    /// Makes the instance and its first tree.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(size: InstanceSize, seed: u64) -> Result<Self, WorkloadError> {
        let mut arcs: Vec<Arc> = room(size.arcs + size.nodes, "allocate the arcs")?;
        let mut nodes: Vec<Node> = room(size.nodes + 1, "allocate the nodes")?;
        for node in 0..=size.nodes {
            let is_root = node == 0;
            let supply = if is_root { 0 } else { size.supply(seed, node) };
            let up = supply >= 0;
            nodes.push(Node {
                potential: match (is_root, size.root_arc(seed, node.max(1)).0) {
                    (true, _) => 0,
                    (false, cost) if up => cost,
                    (false, cost) => -cost,
                },
                supply,
                flow: supply.abs(),
                up,
                arc: if is_root { NONE } else { size.arcs + node - 1 },
                parent: if is_root { NONE } else { 0 },
                child: match is_root {
                    true => 1,
                    false => NONE,
                },
                next: if is_root || node == size.nodes { NONE } else { node + 1 },
                before: if node <= 1 { NONE } else { node - 1 },
                depth: usize::from(!is_root),
                first_out: NONE,
                first_in: NONE,
            });
        }
        for arc in 0..size.arcs + size.nodes {
            let (cost, tail, head) = match arc.checked_sub(size.arcs) {
                None => size.arc(seed, arc),
                Some(node) => size.root_arc(seed, node + 1),
            };
            let next_out = std::mem::replace(&mut nodes[tail].first_out, arc);
            let next_in = std::mem::replace(&mut nodes[head].first_in, arc);
            arcs.push(Arc {
                cost,
                tail,
                head,
                next_out,
                next_in,
                flow: 0,
            });
        }
        Ok(Self {
            size,
            seed,
            arcs,
            nodes,
            groups: size.arcs.div_ceil(GROUP_ARCS),
            group: 0,
            basket: Vec::with_capacity(BASKET + GROUP_ARCS),
            visits: 0,
            pivots: 0,
        })
    }

    /// Reduced cost of an arc: negative if flow over it saves; 0 for tree arcs.
    fn reduced(&self, arc: usize) -> i64 {
        let arc = &self.arcs[arc];
        arc.cost - self.nodes[arc.tail].potential + self.nodes[arc.head].potential
    }

    /// The arc to enter the tree; `None` if the flow is optimal.
    fn price(&mut self) -> Option<usize> {
        let mut basket = std::mem::take(&mut self.basket);
        self.visits += basket.len() as u64;
        basket.retain_mut(|(reduced, arc)| {
            *reduced = self.reduced(*arc);
            *reduced < 0
        });
        for _ in 0..self.groups {
            if basket.len() >= BASKET {
                break;
            }
            for arc in (self.group..self.size.arcs).step_by(self.groups) {
                self.visits += 1;
                let reduced = self.reduced(arc);
                if reduced < 0 {
                    basket.push((reduced, arc));
                }
            }
            self.group = (self.group + 1) % self.groups;
        }
        // A kept candidate may have been found again.
        if basket.len() > BASKET {
            basket.select_nth_unstable(BASKET);
            basket.truncate(BASKET);
        }
        let best = (0..basket.len()).min_by_key(|at| basket[*at]);
        let entering = best.map(|at| basket.swap_remove(at).1);
        self.basket = basket;
        entering
    }

    /// One pivot. False when none is left: the flow is optimal.
    ///
    /// # Errors
    /// When the tree is corrupt.
    pub fn pivot(&mut self) -> Result<bool, WorkloadError> {
        let Some(entering) = self.price() else {
            return Ok(false);
        };
        let (tail, head) = (self.arcs[entering].tail, self.arcs[entering].head);
        let reduced = self.reduced(entering);
        // Flow goes from the join down to the tail, over the arc, and from the head up again. Of arcs that block, the last in this order
        // leaves: the topmost on the head's side, else the lowest on the tail's.
        let (mut i, mut j) = (tail, head);
        let (mut of_tail, mut of_head) = ((i64::MAX, NONE), (i64::MAX, NONE));
        while i != j {
            self.visits += 1;
            if self.nodes[i].depth >= self.nodes[j].depth {
                let node = &self.nodes[i];
                if node.up && node.flow < of_tail.0 {
                    of_tail = (node.flow, i);
                }
                i = node.parent;
            } else {
                let node = &self.nodes[j];
                if !node.up && node.flow <= of_head.0 {
                    of_head = (node.flow, j);
                }
                j = node.parent;
            }
        }
        let on_tails_side = of_tail.0 < of_head.0;
        let (theta, cut) = if on_tails_side { of_tail } else { of_head };
        if cut == NONE {
            return Err(WorkloadError::corrupt(
                "simplex",
                format_args!("nothing bounds the flow over arc {entering}"),
            ));
        }
        if theta > 0 {
            self.send(tail, i, theta, true);
            self.send(head, i, theta, false);
        }
        let (lower, upper) = if on_tails_side { (tail, head) } else { (head, tail) };
        self.rehang(lower, upper, cut, entering, theta);
        self.correct(lower, if on_tails_side { reduced } else { -reduced });
        self.pivots += 1;
        Ok(true)
    }

    /// Sends flow between a node and one above it, downwards or upwards.
    fn send(&mut self, from: usize, join: usize, theta: i64, downwards: bool) {
        let mut at = from;
        while at != join {
            self.visits += 1;
            let node = &mut self.nodes[at];
            node.flow += if node.up == downwards { -theta } else { theta };
            at = node.parent;
        }
    }

    /// Cuts the arc above `cut`, and hangs what is below under `upper` by `lower`, which is in it.
    fn rehang(&mut self, lower: usize, upper: usize, cut: usize, arc: usize, flow: i64) {
        let (mut at, mut parent, mut arc, mut flow) = (lower, upper, arc, flow);
        let mut up = self.arcs[arc].tail == lower;
        loop {
            self.visits += 1;
            let old = self.nodes[at];
            self.take_off(at);
            let first = std::mem::replace(&mut self.nodes[parent].child, at);
            if first != NONE {
                self.nodes[first].before = at;
            }
            let node = &mut self.nodes[at];
            (node.parent, node.arc, node.flow, node.up) = (parent, arc, flow, up);
            (node.next, node.before) = (first, NONE);
            if at == cut {
                return;
            }
            // The former parent becomes the child.
            (parent, arc, flow, up) = (at, old.arc, old.flow, !old.up);
            at = old.parent;
        }
    }

    /// Removes a node from its parent's list of children.
    fn take_off(&mut self, at: usize) {
        let Node {
            next, before, parent, ..
        } = self.nodes[at];
        match before {
            NONE => self.nodes[parent].child = next,
            before => self.nodes[before].next = next,
        }
        if next != NONE {
            self.nodes[next].before = before;
        }
    }

    /// Adds to the potentials of a subtree, and sets its depths.
    fn correct(&mut self, top: usize, add: i64) {
        let mut at = top;
        loop {
            self.visits += 1;
            let depth = self.nodes[self.nodes[at].parent].depth + 1;
            let node = &mut self.nodes[at];
            node.potential += add;
            node.depth = depth;
            if node.child != NONE {
                at = node.child;
                continue;
            }
            while at != top && self.nodes[at].next == NONE {
                at = self.nodes[at].parent;
            }
            if at == top {
                return;
            }
            at = self.nodes[at].next;
        }
    }

    /// Writes the tree's flows into its arcs. Call it once, after the last pivot.
    pub fn settle(&mut self) {
        for at in 1..self.nodes.len() {
            let Node { arc, flow, .. } = self.nodes[at];
            self.arcs[arc].flow = flow;
        }
    }

    /// Checks everything: the arcs' content, flow conservation, the tree's structure and the potentials. Call it after [`Self::settle`].
    /// Returns the flow's cost.
    ///
    /// # Errors
    /// The first corruption.
    pub fn verify(&self) -> Result<i64, WorkloadError> {
        let count = self.nodes.len();
        let (mut balance, mut last_in, mut last_out) = (vec![0i64; count], vec![NONE; count], vec![NONE; count]);
        let mut cost = 0i128;
        for (number, arc) in self.arcs.iter().enumerate() {
            let wrong = || WorkloadError::corrupt("simplex", format_args!("arc {number} is {arc:?}"));
            let made = match number.checked_sub(self.size.arcs) {
                None => self.size.arc(self.seed, number),
                Some(node) => self.size.root_arc(self.seed, node + 1),
            };
            if made != (arc.cost, arc.tail, arc.head) || arc.flow < 0 {
                return Err(wrong());
            }
            let (out, into) = (&mut last_out[arc.tail], &mut last_in[arc.head]);
            if std::mem::replace(out, number) != arc.next_out || std::mem::replace(into, number) != arc.next_in {
                return Err(wrong());
            }
            balance[arc.tail] += arc.flow;
            balance[arc.head] -= arc.flow;
            cost += i128::from(arc.cost) * i128::from(arc.flow);
        }
        let mut worth = 0i128;
        for (number, node) in self.nodes.iter().enumerate() {
            let wrong = || WorkloadError::corrupt("simplex", format_args!("node {number} is {node:?}"));
            let supply = if number == 0 {
                0
            } else {
                self.size.supply(self.seed, number)
            };
            let is_right = node.supply == supply
                && balance[number] == supply
                && (node.first_out, node.first_in) == (last_out[number], last_in[number])
                && (number == 0 || self.is_in_tree(number));
            if !is_right {
                return Err(wrong());
            }
            worth += i128::from(node.potential) * i128::from(supply);
        }
        // Duality: the flow's cost equals the sum of potential times supply.
        match i64::try_from(cost) {
            Ok(all) if cost == worth => Ok(all),
            _ => Err(WorkloadError::corrupt(
                "simplex",
                format_args!("the flow costs {cost}, and by potentials {worth}"),
            )),
        }
    }

    /// Whether the node's place in the tree is consistent.
    fn is_in_tree(&self, number: usize) -> bool {
        let node = &self.nodes[number];
        let (Some(arc), Some(parent)) = (self.arcs.get(node.arc), self.nodes.get(node.parent)) else {
            return false;
        };
        let ends = if node.up {
            (number, node.parent)
        } else {
            (node.parent, number)
        };
        (arc.tail, arc.head, arc.flow) == (ends.0, ends.1, node.flow)
            && arc.cost - self.nodes[arc.tail].potential + self.nodes[arc.head].potential == 0
            && node.depth == parent.depth + 1
            // Strongly feasible: without flow it leads upwards.
            && (node.flow > 0 || node.up)
    }
}

#[cfg(test)]
mod tests;
