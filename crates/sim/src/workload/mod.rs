//! Programs that run on a simulated machine.
//!
//! ```text
//!   pattern    what is drawn and in which order: pure, and shared with the lab's live workloads
//!      │
//!   gups touch stride chunks churn holes sizes sparse dense compute store kv btree graph     the lab's workloads, step by step
//!   turnover heap shards hog       other programs of the papers: fragmenters, a growing heap, data from disk, a driver that allocates huge pages
//!   redis      Redis's memory behaviour: dictionary, jemalloc, purging
//!   sampled    a piece of steady work that stands for several
//!      │ drives
//!   Memory     map, unmap, advise, touch: the machine, a counter, or a recorder
//! ```
//!
//! A program makes the memory accesses of its live twin: the same pages in the same order, read or written, for the same seed and
//! options. It may omit repeated accesses to the same page that change nothing for the page (a loop over the words of a page is
//! one touch), accesses to stack and code, and an allocator's metadata. It also omits the live twin's final check after the
//! result. `crates/lab/tests/same_accesses.rs` compares both, the live side recorded by Valgrind.
//!
//! Both draw the same numbers in the same order ([`pattern`]). Their loops are written twice on purpose: a live one checks content and
//! reads the clock, a simulated one batches its accesses, can stop between any two, and may represent several. One body over a trait
//! of words would be longer than both.
//!
//! Times between accesses come from [`pace`]: the live twins' computing, without their memory accesses.

mod batch;
mod btree;
mod btree_nodes;
mod catalogue;
mod chunks;
mod churn;
mod compute;
mod glibc;
mod graph;
mod gups;
mod heap;
mod hog;
mod hold;
mod holes;
mod kv;
mod latency;
mod memory;
mod needs;
pub mod pace;
pub mod pattern;
mod program;
pub mod redis;
mod sampled;
mod shards;
mod sizes;
mod store;
mod stride;
mod table;
mod touch;
mod turnover;

pub use batch::{Access, Batch, Does};
pub use btree::{Btree, BtreeOptions};
pub use catalogue::{Spec, NAMES};
pub use chunks::{Chunks, ChunksOptions};
pub use churn::{Churn, ChurnOptions};
pub use compute::{Compute, ComputeOptions};
pub use glibc::Glibc;
pub use graph::{GraphOptions, PageRank};
pub use gups::{Gups, GupsOptions};
pub use heap::{Heap, HeapOptions};
pub use hog::{Hog, HogOptions};
pub use hold::{Dense, DenseOptions, Sparse, SparseOptions};
pub use holes::{Holes, HolesOptions};
pub use kv::{Kv, KvOptions};
pub use latency::Latency;
pub use memory::{pages_of, Advice, CountingMemory, Memory, MemoryError};
pub use program::{run_to_end, Phase, Program, ProgramError, Progress, Results};
pub use shards::{Shards, ShardsOptions};
pub use sizes::{Sizes, SizesOptions};
pub use store::{Store, StoreOptions};
pub use stride::{Stride, StrideOptions};
pub use touch::{Touch, TouchOptions};
pub use turnover::{Turnover, TurnoverOptions};

use mega_core::units::BASE_PAGE_BYTES as PAGE;

/// Words of a base page.
const PAGE_WORDS: u64 = PAGE / 8;
/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;
/// Steps of a loop between clock reads.
const BATCH: u64 = 64;
