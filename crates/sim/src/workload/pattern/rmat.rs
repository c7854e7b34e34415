//! The edges of a scale-free graph (R-MAT: Chakrabarti, Zhan, Faloutsos, 2004, with the shares of Graph500).

use super::mix;

/// Shares of the four quadrants, summed up, of 65536: 0.57, 0.19, 0.19, 0.05.
const QUADRANTS: [u64; 3] = [37_355, 49_807, 62_259];

/// Damping of page rank.
pub const DAMPING: f64 = 0.85;

/// The edges of a graph, one after the other: a function of their number.
#[derive(Debug, Clone, Copy)]
pub struct Rmat {
    /// The graph has 2^scale vertices.
    pub scale: u32,
    /// Number of edges.
    pub edges: u64,
    /// What they are drawn by.
    pub seed: u64,
}

impl Rmat {
    /// Source and destination of edge `i`.
    #[inline]
    #[must_use]
    pub fn edge(&self, i: u64) -> (u64, u64) {
        let (mut from, mut to) = (0, 0);
        let mut random = 0;
        for level in 0..self.scale {
            if level % 4 == 0 {
                random = mix(mix(self.seed ^ i).wrapping_add(u64::from(level)));
            }
            let draw = random & 0xffff;
            random >>= 16;
            let [a, ab, abc] = QUADRANTS;
            from = from << 1 | u64::from(draw >= ab);
            to = to << 1 | u64::from((a..ab).contains(&draw) || draw >= abc);
        }
        (self.scramble(from), self.scramble(to))
    }

    /// A permutation of the vertices: without it the popular ones would be neighbours.
    #[inline]
    fn scramble(&self, vertex: u64) -> u64 {
        let mask = (1 << self.scale) - 1;
        let x = vertex.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        let x = x ^ (x >> (self.scale / 2 + 1));
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lead_to_vertices_and_some_are_popular() {
        let g = Rmat {
            scale: 10,
            edges: 8192,
            seed: 3,
        };
        let mut degrees = [0u32; 1024];
        for i in 0..g.edges {
            let (from, to) = g.edge(i);
            assert!(from < 1024 && to < 1024);
            degrees[from as usize] += 1;
        }
        assert!(degrees.iter().max() > Some(&80));
        assert!(degrees.contains(&0));
    }

    #[test]
    fn every_vertex_keeps_its_own_number_when_scrambled() {
        for scale in [1, 2, 3, 10, 13] {
            let r = Rmat {
                scale,
                edges: 0,
                seed: 1,
            };
            let mut all: Vec<u64> = (0..1 << scale).map(|v| r.scramble(v)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..1 << scale).collect::<Vec<_>>(), "scale {scale}");
        }
    }
}
