//! The cheapest path over a map of cells by A*: a node from the allocator for each cell seen, found through a table of pointers
//! over the whole map, and freed when the search is over.

use crate::memory::content::{below, mix};
use crate::workload::WorkloadError;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cost of a straight and of a diagonal step, in tenths of a cell.
const STRAIGHT: u64 = 10;
const ACROSS: u64 = 14;
/// Cells of a lake or a stretch of one kind of ground, along each side.
const PATCH: usize = 16;
/// Fraction of the map's cells that one search may see (1 in this many).
pub const SEEN_PART: usize = 2;

/// The ground: 0 is impassable, 1 to 3 are increasingly slow.
#[derive(Debug)]
pub struct Terrain {
    side: usize,
    seed: u64,
    ground: Vec<u8>,
}

impl Terrain {
    /// Draws one.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(side: usize, seed: u64) -> Result<Self, WorkloadError> {
        let mut ground = Vec::new();
        ground
            .try_reserve_exact(side * side)
            .map_err(|_| WorkloadError::system("allocate the map")(std::io::ErrorKind::OutOfMemory.into()))?;
        ground.extend((0..side * side).map(|cell| drawn(side, seed, cell)));
        Ok(Self { side, seed, ground })
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.ground.len()
    }

    /// A start and a goal for search `number`, both passable.
    fn task(&self, number: u64) -> Option<(usize, usize)> {
        (0..1000u64).find_map(|attempt| {
            let draw = |what: u64| {
                let random = mix(self.seed ^ mix((number << 11) | (attempt << 1) | what));
                below(random, self.cells() as u64) as usize
            };
            let (from, to) = (draw(0), draw(1));
            (from != to && self.ground[from] > 0 && self.ground[to] > 0).then_some((from, to))
        })
    }

    /// The neighbours reachable in one step, with its cost. Corners of impassable cells are not cut.
    fn steps(&self, cell: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (row, column) = (cell / self.side, cell % self.side);
        let at = move |down: usize, right: usize| {
            // Each is one more than the shift.
            let (row, column) = ((row + down).checked_sub(1)?, (column + right).checked_sub(1)?);
            let inside = row < self.side && column < self.side;
            let cell = row * self.side + column;
            (inside && self.ground[cell] > 0).then_some(cell)
        };
        (0..9).filter(|shift| *shift != 4).filter_map(move |shift| {
            let (down, right) = (shift / 3, shift % 3);
            let to = at(down, right)?;
            let step = match (down, right) {
                (1, _) | (_, 1) => STRAIGHT,
                _ => at(down, 1).and(at(1, right)).map(|_| ACROSS)?,
            };
            Some((to, step * u64::from(self.ground[cell] + self.ground[to])))
        })
    }

    /// A lower bound of the cost between two cells.
    fn at_least(&self, from: usize, to: usize) -> u64 {
        let rows = (from / self.side).abs_diff(to / self.side) as u64;
        let columns = (from % self.side).abs_diff(to % self.side) as u64;
        let (more, fewer) = (rows.max(columns), rows.min(columns));
        // On the best ground on both ends.
        2 * (ACROSS * fewer + STRAIGHT * (more - fewer))
    }

    fn verify(&self) -> Result<(), WorkloadError> {
        let wrong = (0..self.cells()).find(|cell| self.ground[*cell] != drawn(self.side, self.seed, *cell));
        match wrong {
            Some(cell) => Err(WorkloadError::corrupt(
                "paths",
                format_args!("cell {cell} of the map is {}", self.ground[cell]),
            )),
            None => Ok(()),
        }
    }
}

/// The ground of a cell: an eighth of patches is water, a tenth of the other cells cannot be walked on either.
fn drawn(side: usize, seed: u64, cell: usize) -> u8 {
    let (row, column) = (cell / side, cell % side);
    let patch = mix(seed ^ mix(((row / PATCH) << 32 | (column / PATCH)) as u64));
    let single = mix(!seed ^ mix(cell as u64));
    match (below(patch, 8), below(single, 10)) {
        (0, _) | (_, 0) => 0,
        (kind, _) => 1 + (kind % 3) as u8,
    }
}

/// A search's state of a cell.
#[derive(Debug)]
struct Node {
    cell: usize,
    /// Its predecessor on the path; itself for the start.
    parent: usize,
    /// Cost of the path to it.
    cost: u64,
    /// Cost plus the lower bound of the rest.
    total: u64,
    is_closed: bool,
}

/// Bytes that an allocator uses for a node.
pub const NODE_BYTES: usize = 48;
/// Bytes of each cell of the map, seen or not.
pub const CELL_BYTES: usize = 1 + std::mem::size_of::<Option<Box<Node>>>();

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A path of this cost.
    Way(u64),
    /// No path exists.
    Nothing,
    /// The search reached its limit of cells.
    TooFar,
}

/// All searches, one after the other.
#[derive(Debug)]
pub struct Searches {
    map: Terrain,
    nodes: Vec<Option<Box<Node>>>,
    /// Cells that have a node.
    seen: Vec<u32>,
    /// Cells to look at next, by the total, then by what is left.
    open: BinaryHeap<Reverse<(u64, u64, u32)>>,
    goal: usize,
    /// Searches ended so far.
    pub ended: u64,
    /// Of these, paths found.
    pub ways: u64,
    /// Checksum over all outcomes.
    pub checksum: u64,
}

impl Searches {
    /// Searches on this map; none has begun.
    ///
    /// # Errors
    /// When there is no memory, or the map has more cells than a 32-bit number.
    pub fn new(map: Terrain) -> Result<Self, WorkloadError> {
        if u32::try_from(map.cells()).is_err() {
            return Err(WorkloadError::Usage(
                "paths: at most 160 GB: cells have 32-bit numbers".into(),
            ));
        }
        let mut nodes = Vec::new();
        nodes
            .try_reserve_exact(map.cells())
            .map_err(|_| WorkloadError::system("allocate the table")(std::io::ErrorKind::OutOfMemory.into()))?;
        nodes.resize_with(map.cells(), || None);
        let mut searches = Self {
            nodes,
            seen: Vec::new(),
            open: BinaryHeap::new(),
            goal: 0,
            ended: 0,
            ways: 0,
            checksum: map.seed,
            map,
        };
        searches.begin()?;
        Ok(searches)
    }

    /// Begins the next search.
    fn begin(&mut self) -> Result<(), WorkloadError> {
        let Some((start, goal)) = self.map.task(self.ended) else {
            return Err(WorkloadError::Usage("paths: no firm ground on so small a map".into()));
        };
        self.goal = goal;
        self.see(start, start, 0);
        Ok(())
    }

    /// Records a path to a cell if it is the first or better than the known one.
    fn see(&mut self, cell: usize, parent: usize, cost: u64) {
        let left = match &self.nodes[cell] {
            Some(node) if node.is_closed || node.cost <= cost => return,
            Some(node) => node.total - node.cost,
            None => self.map.at_least(cell, self.goal),
        };
        let total = cost + left;
        match &mut self.nodes[cell] {
            Some(node) => (node.parent, node.cost, node.total) = (parent, cost, total),
            none => {
                *none = Some(Box::new(Node {
                    cell,
                    parent,
                    cost,
                    total,
                    is_closed: false,
                }));
                self.seen.push(cell as u32);
            }
        }
        self.open.push(Reverse((total, left, cell as u32)));
    }

    /// Expands the most promising cell; if that ends a search, checks its path and begins the next.
    ///
    /// # Errors
    /// When a path, a node or the map is corrupt.
    pub fn step(&mut self) -> Result<Option<Found>, WorkloadError> {
        let (cell, cost) = loop {
            let Some(Reverse((total, _, cell))) = self.open.pop() else {
                return self.end(Found::Nothing).map(Some);
            };
            let cell = cell as usize;
            let node = self.nodes[cell].as_mut();
            let node =
                node.ok_or_else(|| WorkloadError::corrupt("paths", format_args!("cell {cell} lost its node")))?;
            // A cell already expanded, or reached by a better path since, is queued twice.
            if !node.is_closed && node.total == total {
                node.is_closed = true;
                break (cell, node.cost);
            }
        };
        if cell == self.goal {
            self.check_way()?;
            return self.end(Found::Way(cost)).map(Some);
        }
        if self.seen.len() + 8 > self.map.cells() / SEEN_PART {
            return self.end(Found::TooFar).map(Some);
        }
        let mut next = [(0, 0); 8];
        let mut count = 0;
        for step in self.map.steps(cell) {
            next[count] = step;
            count += 1;
        }
        for (to, step) in &next[..count] {
            self.see(*to, cell, cost + step);
        }
        Ok(None)
    }

    /// Frees all nodes and begins the next search.
    fn end(&mut self, found: Found) -> Result<Found, WorkloadError> {
        let cost = match found {
            Found::Way(cost) => {
                self.ways += 1;
                cost
            }
            Found::Nothing => u64::MAX,
            Found::TooFar => u64::MAX - 1,
        };
        self.checksum = mix(self.checksum ^ mix(cost) ^ self.seen.len() as u64);
        self.ended += 1;
        self.open.clear();
        for cell in self.seen.drain(..) {
            self.nodes[cell as usize] = None;
        }
        self.begin()?;
        Ok(found)
    }

    fn node(&self, cell: usize) -> Result<&Node, WorkloadError> {
        let node = self.nodes.get(cell).and_then(|node| node.as_deref());
        node.filter(|node| node.cell == cell)
            .ok_or_else(|| WorkloadError::corrupt("paths", format_args!("cell {cell} lost its node")))
    }

    /// Checks the step that leads to a node; the start has none.
    fn check_step(&self, node: &Node) -> Result<(), WorkloadError> {
        let parent = self.node(node.parent)?;
        let is_right = match node.parent == node.cell {
            true => node.cost == 0,
            false => {
                let step = self.map.steps(parent.cell).find(|(to, _)| *to == node.cell);
                parent.is_closed && step.is_some_and(|(_, step)| parent.cost + step == node.cost)
            }
        };
        let left = self.map.at_least(node.cell, self.goal);
        match is_right && node.total == node.cost + left {
            true => Ok(()),
            false => Err(WorkloadError::corrupt(
                "paths",
                format_args!("{node:?} after {parent:?}"),
            )),
        }
    }

    /// Follows the path found back to its start.
    fn check_way(&self) -> Result<(), WorkloadError> {
        let mut at = self.goal;
        for _ in 0..=self.seen.len() {
            let node = self.node(at)?;
            self.check_step(node)?;
            if node.parent == at {
                return Ok(());
            }
            at = node.parent;
        }
        Err(WorkloadError::corrupt(
            "paths",
            format_args!("the path to {} has a cycle", self.goal),
        ))
    }

    /// Checks the map and each node of the current search. Returns the number of nodes.
    ///
    /// # Errors
    /// The first corruption.
    pub fn verify(&self) -> Result<usize, WorkloadError> {
        self.map.verify()?;
        for cell in &self.seen {
            self.check_step(self.node(*cell as usize)?)?;
        }
        let nodes = self.nodes.iter().filter(|node| node.is_some()).count();
        match nodes == self.seen.len() {
            true => Ok(nodes),
            false => Err(WorkloadError::corrupt(
                "paths",
                format_args!("{nodes} nodes, {} cells seen", self.seen.len()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheapest way by trying all steps until nothing gets better.
    fn cheapest(map: &Terrain, from: usize, to: usize) -> Option<u64> {
        let mut cost = vec![u64::MAX; map.cells()];
        cost[from] = 0;
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for cell in (0..map.cells()).filter(|cell| map.ground[*cell] > 0) {
                if cost[cell] == u64::MAX {
                    continue;
                }
                for (next, step) in map.steps(cell) {
                    if cost[cell] + step < cost[next] {
                        cost[next] = cost[cell] + step;
                        changed = true;
                    }
                }
            }
        }
        Some(cost[to]).filter(|cost| *cost < u64::MAX)
    }

    fn next_end(searches: &mut Searches) -> Found {
        loop {
            if let Some(found) = searches.step().unwrap() {
                return found;
            }
        }
    }

    #[test]
    fn ways_cost_what_another_algorithm_finds() {
        for (side, seed) in [(20, 1), (33, 2), (48, 3)] {
            let map = Terrain::new(side, seed).unwrap();
            let tasks: Vec<_> = (0..12).map(|n| map.task(n).unwrap()).collect();
            let best: Vec<_> = tasks.iter().map(|(from, to)| cheapest(&map, *from, *to)).collect();
            let mut searches = Searches::new(map).unwrap();
            for best in best {
                match next_end(&mut searches) {
                    Found::Way(cost) => assert_eq!(Some(cost), best),
                    Found::Nothing => assert_eq!(best, None),
                    Found::TooFar => {}
                }
            }
            assert!(searches.ways > 6, "{side}: {searches:?}");
        }
    }

    #[test]
    fn the_map_and_the_nodes_under_way_are_checked() {
        let mut searches = Searches::new(Terrain::new(200, 4).unwrap()).unwrap();
        while searches.seen.len() < 500 {
            searches.step().unwrap();
        }
        assert_eq!(searches.verify().unwrap(), searches.seen.len());
        let cell = searches.seen[300] as usize;
        searches.nodes[cell].as_mut().unwrap().cost ^= 4;
        assert_eq!(searches.verify().unwrap_err().exit_code(), 3);
        searches.nodes[cell].as_mut().unwrap().cost ^= 4;
        searches.map.ground[777] ^= 4;
        assert!(searches.verify().unwrap_err().to_string().contains("cell 777"));
    }

    #[test]
    fn nothing_is_left_of_a_search_that_has_ended_and_none_sees_more_than_it_may() {
        let mut searches = Searches::new(Terrain::new(100, 5).unwrap()).unwrap();
        for _ in 0..10 {
            next_end(&mut searches);
            // The next one has begun, at its start.
            assert_eq!(searches.verify().unwrap(), 1);
            assert!(searches.seen.capacity() <= 100 * 100);
        }
    }

    #[test]
    fn an_estimate_is_never_more_than_the_way() {
        let map = Terrain::new(40, 6).unwrap();
        for cell in (0..map.cells()).filter(|cell| map.ground[*cell] > 0) {
            for (to, step) in map.steps(cell) {
                assert!(map.at_least(cell, to) <= step);
                assert!(map.steps(to).any(|(back, cost)| (back, cost) == (cell, step)));
            }
        }
    }
}
