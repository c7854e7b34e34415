//! How much memory a program touches at most, from its options: what can never fit is refused before it begins.

use super::{Spec, MIB};

/// Bytes of an index and of the list of free places for each value of `kv` and `store`, at most.
const TABLE_ENTRY: u64 = 64 + 8;
/// Bytes of an entry, a key and an object beside each value of `redis`.
const REDIS_ENTRY: u64 = 64;
/// Bytes of a graph for each vertex and each edge.
const VERTEX: u64 = 32;
const EDGE: u64 = 8;

fn mib(mib: u64) -> u64 {
    mib.max(1).saturating_mul(MIB)
}

fn table(bytes: u64, value_bytes: u64) -> u64 {
    let values = bytes / value_bytes.max(1);
    bytes.saturating_add(values.saturating_mul(TABLE_ENTRY))
}

/// A share that makes no sense counts as all; the program refuses it itself.
fn share(bytes: u64, share: f64) -> u64 {
    if (0.0..=1.0).contains(&share) {
        (bytes as f64 * share) as u64
    } else {
        bytes
    }
}

impl Spec {
    /// Bytes that it has touched at once at most, about; of an area that is used in part, the part.
    #[must_use]
    pub fn needs_bytes(&self) -> u64 {
        match self {
            Self::Gups(o) => mib(o.mib),
            Self::Touch(o) => mib(o.mib),
            Self::Stride(o) => mib(o.mib),
            Self::Chunks(o) => mib(o.mib),
            Self::Churn(o) => mib(o.mib),
            Self::Holes(o) => mib(o.mib),
            Self::Sizes(o) => mib(o.mib),
            Self::Dense(o) => mib(o.mib),
            Self::Btree(o) => mib(o.mib),
            Self::Sparse(o) => share(mib(o.mib), o.share),
            Self::Compute(o) => u64::from(o.kib) << 10,
            Self::Turnover(o) => {
                let left = if o.keep_kib < o.piece_kib {
                    mib(o.mib) / 2
                } else {
                    mib(o.mib)
                };
                let rounds = u64::from(o.rounds.min(2)).saturating_mul(mib(o.round_mib));
                mib(o.mib).max(rounds.saturating_add(if o.rounds > 0 { left } else { 0 }))
            }
            Self::Heap(o) => mib(o.mib).saturating_add(mib(o.array_mib)),
            Self::Shards(o) => mib(o.mib).saturating_add(o.table_mib.saturating_mul(MIB)),
            // It takes what there is, and no more.
            Self::Hog(_) => 0,
            Self::Store(o) => {
                let sparse = share(o.sparse_mib.saturating_mul(MIB), o.share);
                table(mib(o.dense_mib), o.value_bytes).saturating_add(sparse)
            }
            Self::Kv(o) => table(mib(o.mib), o.value_bytes),
            Self::Graph(o) => {
                let vertices = 1u64 << o.scale.min(40);
                let edges = vertices.saturating_mul(o.edge_factor.into());
                edges
                    .saturating_mul(EDGE)
                    .saturating_add(vertices.saturating_mul(VERTEX))
            }
            Self::Redis(o) => {
                let mean = o.least_bytes / 2 + o.most_bytes / 2;
                o.keys.saturating_mul(mean.saturating_add(REDIS_ENTRY))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{run_to_end, CountingMemory, PAGE};

    #[test]
    fn programs_touch_no_more_than_they_need_and_most_of_it() {
        for text in [
            r#"{"program": "gups", "mib": 8, "updates": 10}"#,
            r#"{"program": "touch", "mib": 8}"#,
            r#"{"program": "sparse", "mib": 32, "share": 0.25, "time_ns": 0}"#,
            r#"{"program": "store", "dense_mib": 4, "sparse_mib": 32, "share": 0.25, "time_ns": 0}"#,
            r#"{"program": "kv", "mib": 8, "value_bytes": 512, "time_ns": 0}"#,
            r#"{"program": "graph", "scale": 14, "iterations": 1}"#,
            r#"{"program": "redis", "keys": 2000}"#,
        ] {
            let spec: Spec = serde_json::from_str(text).unwrap();
            let mut memory = CountingMemory::new();
            let mut program = spec.build::<CountingMemory>().unwrap();
            run_to_end(program.as_mut(), &mut memory, |m, ns| m.wait_until(ns)).unwrap();
            let (touched, needs) = (memory.resident_pages() * PAGE, spec.needs_bytes());
            // A class of jemalloc's is up to a fourth larger than what is asked for.
            assert!(touched <= needs + needs / 3, "{text}: {touched} of {needs}");
            assert!(touched >= needs / 2, "{text}: {touched} of {needs}");
        }
    }

    #[test]
    fn no_options_overflow() {
        for text in [
            r#"{"program": "gups", "mib": 18446744073709551615}"#,
            r#"{"program": "kv", "mib": 18446744073709551615, "value_bytes": 0}"#,
            r#"{"program": "store", "dense_mib": 1, "sparse_mib": 18446744073709551615, "share": 1e300}"#,
            r#"{"program": "graph", "scale": 4294967295, "edge_factor": 4294967295}"#,
            r#"{"program": "redis", "keys": 18446744073709551615, "most_bytes": 18446744073709551615}"#,
        ] {
            let spec: Spec = serde_json::from_str(text).unwrap();
            assert!(spec.needs_bytes() > 1 << 60, "{text}");
        }
    }
}
