//! The live workloads' computing between two accesses, in nanoseconds. Each is a time measured on a development machine (data cached,
//! pages resident) less the accesses that a program here makes by [`super::Memory`];
//! they say nothing about faults, TLB misses or memory. Where nothing was measured, instructions were counted (about 1 ns for four).

/// Writing all words of a page with content derived from a seed: 12 GB of GUPS under THP in 1.45 s (docs/linux.md, "Faults"), less
/// 0.2 µs of zeroing.
pub const FILL_PAGE: u64 = 270;
/// Reading and checking all words of a page. Counted.
pub const CHECK_PAGE: u64 = 260;
/// One update of GUPS: a draw and an XOR. Counted.
pub const UPDATE: u64 = 2;
/// One visit of a word whose content is checked: a draw, a hash or two. Counted.
pub const VISIT: u64 = 4;
/// One visit of `stride`: a comparison and an addition. Counted.
pub const STRIDE: u64 = 1;
/// One clock read: about 25 ns, not measured here. Live programs that time each operation pay it twice.
pub const CLOCK: u64 = 25;
/// Hashing one word in a chain of dependent multiplications. Counted.
pub const HASH_WORD: u64 = 5;
/// A node of a B-tree searched in the cache: five comparisons that are guessed wrong half of the time. Counted.
pub const NODE: u64 = 12;
/// Drawing an edge of a graph: 6 million a second (the lab's plan of `graph`), less its three accesses.
pub const DRAW_EDGE: u64 = 100;
/// An edge in an iteration of page rank: an addition of floating point numbers. Counted.
pub const EDGE: u64 = 1;
/// Drawing a key by Zipf's law: two powers. Counted.
pub const ZIPF: u64 = 30;
/// Copying a base page that is in the cache or comes in a stream: about 25 GB/s. Counted.
pub const COPY_PAGE: u64 = 160;
