//! Stand-ins for the programs of LRBHPS's Table 5, by what is known of their memory.

use mega_sim::workload::{ComputeOptions, GupsOptions, HeapOptions, ShardsOptions, Spec};

use super::machines::mib;

/// The stand-in of a program of Table 5, with its description.
pub(super) fn stand_in(name: &str, scale: f64) -> (Spec, &'static str) {
    match name {
        "gups" => (
            Spec::Gups(GupsOptions {
                mib: mib(8192, scale),
                updates: Some(((1u64 << 32) as f64 * scale) as u64),
                weight: 128,
                ..GupsOptions::default()
            }),
            "2^32 random updates of 2^30 integers, one of 128 simulated",
        ),
        "canneal" => (
            Spec::Heap(HeapOptions {
                mib: mib(512, scale),
                array_mib: mib(512, scale),
                visits: (400_000_000.0 * scale) as u64,
                weight: 64,
                ..HeapOptions::default()
            }),
            "stands for canneal: an array of 512 MB and a heap that grows to as much, visited at random",
        ),
        "graphchi" => (graphchi(scale), GRAPHCHI),
        "xsbench" => (
            Spec::Heap(HeapOptions {
                mib: mib(16, scale),
                array_mib: mib(5616, scale),
                visits: (400_000_000.0 * scale) as u64,
                weight: 64,
                ..HeapOptions::default()
            }),
            "stands for XSBench: lookups at random in a table of 5.5 GB",
        ),
        "blocksvm" => (
            block_svm(scale),
            "stands for BlockSVM: 9 blocks of examples, 1 GB each, loaded three times, traversed by example, with a vector of 228 MB indexed by feature",
        ),
        _ => (
            Spec::Compute(ComputeOptions {
                passes: Some(((20_000.0 * scale) as u64).max(100)),
                ..ComputeOptions::default()
            }),
            "stand-in: a computation in the caches",
        ),
    }
}

/// What the program is, in words.
pub(super) const GRAPHCHI: &str =
    "stands for GraphChi: 39 parts of a graph on disk, 2 GB each in memory, loaded, visited at random and unmapped";

/// GraphChi's page rank of Twitter-2010 (1.468 billion edges, 3 iterations): as many parts of 2 GB as make the 40,000 huge pages that Table 6 counts; files of 8
/// bytes for each edge, so 11.7 GB an iteration, which with the fragmenter's memory do not fit the page cache; an edge visited from both of its ends.
pub(super) fn graphchi(scale: f64) -> Spec {
    const EDGES: f64 = 1.468e9;
    const ITERATIONS: f64 = 3.0;
    const PARTS: u32 = 39;
    let each = EDGES * ITERATIONS / f64::from(PARTS) * scale;
    Spec::Shards(ShardsOptions {
        mib: mib(2048, scale),
        times: PARTS,
        file_mib: (8.0 * each / (1u64 << 20) as f64) as u64,
        visits: (2.0 * each) as u64,
        weight: 512,
        ..ShardsOptions::default()
    })
}

/// BlockSVM on kdd2010-bridge: 19.26 million examples of 29.4 features each, of 29.89 million; 16 bytes for a feature of an example, so 9 blocks of 1 GB; packed on
/// disk to a half (a guess), which stays in the page cache; 3 rounds (the paper does not say how many).
fn block_svm(scale: f64) -> Spec {
    const BLOCKS: u32 = 9;
    const ROUNDS: u32 = 3;
    const EXAMPLES: f64 = 19_264_097.0;
    Spec::Shards(ShardsOptions {
        mib: mib(1024, scale),
        times: BLOCKS * ROUNDS,
        file_mib: mib(512, scale),
        from_disk: Some(BLOCKS),
        table_mib: mib(228, scale),
        visits: (EXAMPLES / f64::from(BLOCKS) * scale) as u64,
        table_visits: 29,
        weight: 64,
        ..ShardsOptions::default()
    })
}
