//! A scale-free graph in compressed sparse rows, by destination, in mapped memory; and page rank on it.

use crate::memory::content::mix;
use crate::memory::Area;
use crate::workload::{Common, WorkloadError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use mega_sim::workload::pattern::Rmat;
use mega_sim::workload::pattern::DAMPING;

/// The graph and its ranks.
#[derive(Debug)]
pub struct Graph {
    vertices: usize,
    edges: u64,
    /// Start of each destination's sources, and the end of the last.
    offsets: Area,
    sources: Area,
    out_degrees: Area,
    ranks: Area,
    /// What each vertex contributes along each of its edges.
    shares: Area,
    /// Sum over all edges of a hash of both ends, as they were drawn.
    edge_hash: u64,
}

fn number(w: &AtomicU64) -> f64 {
    f64::from_bits(w.load(Relaxed))
}

fn hash(from: u64, to: u64) -> u64 {
    mix(from << 32 | to)
}

impl Graph {
    /// Bytes of a graph's memory.
    #[must_use]
    pub fn bytes(scale: u32, edges: u64) -> u64 {
        // Four words for a vertex and one for an edge.
        let words = (4u64 << scale).saturating_add(edges);
        words.saturating_mul(8)
    }

    /// Maps the memory for the graph of `rmat`, or takes it from the allocator; untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(rmat: &Rmat, on_heap: bool, common: &Common) -> Result<Self, WorkloadError> {
        let area = |bytes| common.area(bytes, on_heap);
        let vertices = 1 << rmat.scale;
        let edges = usize::try_from(rmat.edges).unwrap_or(usize::MAX);
        Ok(Self {
            vertices,
            edges: rmat.edges,
            offsets: area((vertices + 2) * 8)?,
            sources: area(edges.saturating_mul(8))?,
            out_degrees: area(vertices * 8)?,
            ranks: area(vertices * 8)?,
            shares: area(vertices * 8)?,
            edge_hash: 0,
        })
    }

    /// Its memory, with names.
    #[must_use]
    pub fn areas(&self) -> [(&'static str, &Area); 5] {
        [
            ("offsets", &self.offsets),
            ("sources", &self.sources),
            ("out-degrees", &self.out_degrees),
            ("ranks", &self.ranks),
            ("shares", &self.shares),
        ]
    }

    /// Draws the edges twice, to count and to place them; all ranks are equal afterwards.
    pub fn build(&mut self, rmat: &Rmat) {
        let add = |w: &AtomicU64, n: u64| {
            let before = w.load(Relaxed);
            w.store(before + n, Relaxed);
            before
        };
        let (offsets, out) = (self.offsets.words(), self.out_degrees.words());
        let mut edge_hash = 0u64;
        for i in 0..self.edges {
            let (from, to) = rmat.edge(i);
            edge_hash = edge_hash.wrapping_add(hash(from, to));
            add(&out[from as usize], 1);
            add(&offsets[to as usize + 2], 1);
        }
        // Word v + 1 becomes the start of v's sources, and placing them advances it to their end: the start of v + 1's.
        let mut sum = 0;
        for w in &offsets[..self.vertices + 2] {
            sum += w.load(Relaxed);
            w.store(sum, Relaxed);
        }
        let sources = self.sources.words();
        for i in 0..self.edges {
            let (from, to) = rmat.edge(i);
            let at = add(&offsets[to as usize + 1], 1);
            sources[at as usize].store(from, Relaxed);
        }
        let rank = (1.0 / self.vertices as f64).to_bits();
        self.ranks.words()[..self.vertices]
            .iter()
            .for_each(|w| w.store(rank, Relaxed));
        self.edge_hash = edge_hash;
    }

    /// The sources of a destination.
    fn sources_of(&self, to: usize) -> Result<&[AtomicU64], WorkloadError> {
        let offsets = self.offsets.words();
        let (from, end) = (
            offsets[to].load(Relaxed) as usize,
            offsets[to + 1].load(Relaxed) as usize,
        );
        let all = &self.sources.words()[..self.edges as usize];
        all.get(from..end)
            .ok_or_else(|| WorkloadError::Corrupt(format!("graph: sources {from}..{end} of vertex {to}")))
    }

    /// One iteration of page rank. The rank of vertices without edges is spread over all.
    ///
    /// # Errors
    /// When an edge leads nowhere.
    pub fn iterate(&mut self) -> Result<(), WorkloadError> {
        let n = self.vertices;
        let (ranks, shares) = (&self.ranks.words()[..n], &self.shares.words()[..n]);
        let mut idle = 0.0;
        for ((share, rank), out) in shares.iter().zip(ranks).zip(self.out_degrees.words()) {
            let out = out.load(Relaxed);
            if out == 0 {
                idle += number(rank);
            }
            share.store((number(rank) / out.max(1) as f64).to_bits(), Relaxed);
        }
        let base = (1.0 - DAMPING + DAMPING * idle) / n as f64;
        for (to, rank) in ranks.iter().enumerate() {
            let mut sum = 0.0;
            for source in self.sources_of(to)? {
                let from = source.load(Relaxed);
                sum += shares.get(from as usize).map(number).ok_or_else(|| {
                    WorkloadError::Corrupt(format!("graph: an edge to vertex {to} comes from {from:#x}"))
                })?;
            }
            rank.store((base + DAMPING * sum).to_bits(), Relaxed);
        }
        Ok(())
    }

    /// Checks that the edges are those that were drawn and that the ranks sum to 1; returns a checksum of the ranks.
    ///
    /// # Errors
    /// When the check fails.
    pub fn verify(&self) -> Result<u64, WorkloadError> {
        let mut edge_hash = 0u64;
        let mut edges = 0;
        for to in 0..self.vertices {
            let sources = self.sources_of(to)?;
            edges += sources.len() as u64;
            for from in sources {
                edge_hash = edge_hash.wrapping_add(hash(from.load(Relaxed), to as u64));
            }
        }
        if edges != self.edges || edge_hash != self.edge_hash {
            return Err(WorkloadError::Corrupt(format!(
                "graph: {edges} edges are not the {} drawn",
                self.edges
            )));
        }
        let ranks = &self.ranks.words()[..self.vertices];
        let sum: f64 = ranks.iter().map(number).sum();
        if sum.is_nan() || (sum - 1.0).abs() > 1e-6 {
            return Err(WorkloadError::Corrupt(format!(
                "graph: the ranks sum to {sum}, not to 1"
            )));
        }
        Ok(ranks.iter().fold(0, |h, w| mix(h ^ w.load(Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rmat(seed: u64) -> Rmat {
        Rmat {
            scale: 10,
            edges: 8192,
            seed,
        }
    }

    fn ranked(seed: u64) -> Graph {
        let mut g = Graph::new(&rmat(seed), seed % 2 == 0, &Common::of_seed(seed)).unwrap();
        g.build(&rmat(seed));
        for _ in 0..10 {
            g.iterate().unwrap();
        }
        g
    }

    #[test]
    fn the_same_seed_gives_the_same_ranks_and_another_does_not() {
        assert_eq!(ranked(1).verify().unwrap(), ranked(1).verify().unwrap());
        assert_ne!(ranked(1).verify().unwrap(), ranked(2).verify().unwrap());
    }

    #[test]
    fn a_few_vertices_have_most_edges_and_they_are_no_neighbours() {
        let r = rmat(3);
        let mut degrees = vec![0u64; 1024];
        (0..r.edges).for_each(|i| degrees[r.edge(i).1 as usize] += 1);
        let mut order: Vec<usize> = (0..1024).collect();
        order.sort_by_key(|v| std::cmp::Reverse(degrees[*v]));
        let top: u64 = order[..102].iter().map(|v| degrees[*v]).sum();
        assert!(
            top > r.edges / 3,
            "a tenth of the vertices has {top} of {} edges",
            r.edges
        );
        let low_half = order[..102].iter().filter(|v| **v < 512).count();
        assert!((20..82).contains(&low_half), "{low_half} of 102");
    }

    #[test]
    fn ranks_of_a_small_graph_are_those_computed_by_hand() {
        // All edges of scale 1 drawn into a matrix, iterated apart from the graph's own code.
        let r = Rmat {
            scale: 1,
            edges: 9,
            seed: 5,
        };
        let mut g = Graph::new(&r, false, &Common::of_seed(5)).unwrap();
        g.build(&r);
        let mut count = [[0.0; 2]; 2];
        (0..9)
            .map(|i| r.edge(i))
            .for_each(|(f, t)| count[f as usize][t as usize] += 1.0);
        let mut rank = [0.5f64; 2];
        for _ in 0..5 {
            let mut next = [0.0; 2];
            for f in 0..2 {
                let out: f64 = count[f].iter().sum();
                for (t, n) in next.iter_mut().enumerate() {
                    let share = if out == 0.0 { 0.5 } else { count[f][t] / out };
                    *n += 0.075 * rank[f] + 0.85 * rank[f] * share;
                }
            }
            rank = next;
            g.iterate().unwrap();
        }
        for (v, expected) in rank.iter().enumerate() {
            let found = number(&g.ranks.words()[v]);
            assert!((found - expected).abs() < 1e-12, "vertex {v}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_changed_edge_and_a_changed_rank_are_corruption() {
        let mut g = ranked(4);
        let places = [
            ("source", &g.sources.words()[100], 1),
            ("offset", &g.offsets.words()[500], 1 << 40),
            ("rank", &g.ranks.words()[7], 1 << 62),
        ];
        for (what, w, bit) in places {
            w.fetch_xor(bit, Relaxed);
            assert_eq!(g.verify().unwrap_err().exit_code(), 3, "{what}");
            w.fetch_xor(bit, Relaxed);
            g.verify().unwrap();
        }
        g.sources.words()[100].fetch_xor(1 << 50, Relaxed);
        assert!(g.iterate().is_err(), "a source that is no vertex");
    }
}
