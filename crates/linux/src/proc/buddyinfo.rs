//! /proc/buddyinfo: free memory by zone and order.

use std::path::Path;

use mega_core::units::{Blocks, REGION_PAGES};

use super::{lines, read_bounded, ProcRoot, SMALL_BYTES};
use crate::error::Result;

/// The order of a block: 9, since 2^9 base pages are 2 MB.
pub const BLOCK_ORDER: usize = REGION_PAGES.trailing_zeros() as usize;

/// One zone's free memory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// Zone name: "DMA", "DMA32", "Normal", "Movable" ...
    pub name: String,
    /// Free chunks of 2^index base pages, by index. How many there are depends on the kernel (11 on x86-64).
    pub free_chunks: Vec<u64>,
}

impl Zone {
    /// Free blocks, each 2 MB: chunks of order 9, and twice the chunks of order 10, and so on.
    pub fn free_blocks(&self) -> Blocks {
        Blocks(self.weighed(|order| order.checked_sub(BLOCK_ORDER)))
    }

    /// Free base pages.
    pub fn free_pages(&self) -> u64 {
        self.weighed(Some)
    }

    /// Free chunks of all orders.
    pub fn chunks(&self) -> u64 {
        self.free_chunks.iter().copied().fold(0, u64::saturating_add)
    }

    /// How many allocations of `order` the free chunks would serve without compaction.
    pub fn suitable(&self, order: usize) -> u64 {
        self.weighed(|of_chunk| of_chunk.checked_sub(order))
    }

    /// Sums the chunks, those of `order` counting 2^shift(order) times.
    fn weighed(&self, shift: impl Fn(usize) -> Option<usize>) -> u64 {
        let weight = |order| {
            shift(order)
                .and_then(|by| u32::try_from(by).ok())
                .and_then(|by| 1u64.checked_shl(by))
        };
        self.free_chunks
            .iter()
            .enumerate()
            .map(|(order, chunks)| weight(order).map_or(0, |weight| chunks.saturating_mul(weight)))
            .fold(0, u64::saturating_add)
    }
}

/// /proc/buddyinfo.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Buddyinfo {
    /// The zones in the kernel's order; those without memory are not listed.
    pub zones: Vec<Zone>,
}

impl Buddyinfo {
    /// Whether there are several NUMA nodes.
    pub fn has_nodes(&self) -> bool {
        self.zones.iter().any(|zone| zone.node != self.zones[0].node)
    }

    /// Free 2 MB blocks of one NUMA node.
    pub fn free_blocks_of(&self, node: u32) -> Blocks {
        let zones = self.zones.iter().filter(|zone| zone.node == node);
        Blocks(zones.fold(0, |sum, zone| zone.free_blocks().0.saturating_add(sum)))
    }

    /// Free blocks, each 2 MB, of all zones together. Movable allocations may take from all of them, within watermarks.
    pub fn free_blocks(&self) -> Blocks {
        let sum = self.zones.iter().map(|zone| zone.free_blocks().0);
        Blocks(sum.fold(0, u64::saturating_add))
    }

    /// Free base pages of all zones together.
    pub fn free_pages(&self) -> u64 {
        self.zones.iter().map(Zone::free_pages).fold(0, u64::saturating_add)
    }

    /// Share of the free memory, from 0 to 1, that is in no free block: none of it is of use for a huge page. 0 when there
    /// is no free memory.
    pub fn fragmentation(&self) -> f64 {
        let pages = self.free_pages();
        if pages == 0 {
            return 0.0;
        }
        let in_blocks = self.free_blocks().0.saturating_mul(u64::from(REGION_PAGES));
        (1.0 - in_blocks as f64 / pages as f64).max(0.0)
    }
}

/// The machine's free memory now.
pub fn read(root: &ProcRoot) -> Result<Buddyinfo> {
    let path = root.proc.join("buddyinfo");
    parse(&path, &read_bounded(&path, SMALL_BYTES)?)
}

/// Reads the text of a buddyinfo file, "Node 0, zone   Normal   8  1937 ..."; `path` is for messages only.
pub fn parse(path: &Path, text: &[u8]) -> Result<Buddyinfo> {
    let text = String::from_utf8_lossy(text);
    let mut zones = Vec::new();
    for (at, line) in lines(path, &text) {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("Node") {
            return Err(at.wrong("node", "a line such as 'Node 0, zone Normal ...'", line));
        }
        let node = words.next().and_then(|word| word.strip_suffix(','));
        let node = at.number("node", node)?;
        let (Some("zone"), Some(name)) = (words.next(), words.next()) else {
            return Err(at.wrong("zone", "'zone' and a name", line));
        };
        let chunks = words.map(|word| at.number("free chunks", Some(word)));
        zones.push(Zone {
            node,
            name: name.to_owned(),
            free_chunks: chunks.collect::<Result<_>>()?,
        });
    }
    Ok(Buddyinfo { zones })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Node 0, zone    DMA32      2      0      0      0      0      0      0      0      0      3    752 \n\
                        Node 1, zone   Normal      5      0      0      0      0      0      0      0      4      4     18 \n";

    #[test]
    fn blocks_are_counted_from_order_nine_up() {
        let info = parse(Path::new("b"), TEXT.as_bytes()).unwrap();
        assert_eq!(BLOCK_ORDER, 9);
        assert_eq!(info.zones[0].free_blocks(), Blocks(3 + 2 * 752));
        assert_eq!(info.zones[1].free_blocks(), Blocks(4 + 2 * 18));
        assert_eq!(info.free_blocks(), Blocks(1507 + 40));
        assert_eq!(info.zones[1].free_pages(), 5 + 4 * 256 + 4 * 512 + 18 * 1024);
        assert_eq!(info.zones[1].node, 1);
    }

    #[test]
    fn a_kernel_with_fewer_orders_has_no_blocks_and_one_with_absurdly_many_does_not_overflow() {
        let few = parse(Path::new("b"), b"Node 0, zone Normal 1 1 1\n").unwrap();
        assert_eq!((few.free_blocks(), few.free_pages()), (Blocks(0), 7));
        assert_eq!(few.fragmentation(), 1.0);
        let many = format!("Node 0, zone Normal{}\n", " 18446744073709551615".repeat(100));
        let many = parse(Path::new("b"), many.as_bytes()).unwrap();
        assert_eq!(many.free_pages(), u64::MAX);
        assert!((0.0..=1.0).contains(&many.fragmentation()));
    }

    #[test]
    fn each_node_has_its_own_free_blocks() {
        let text = "Node 0, zone   Normal 0 0 0 0 0 0 0 0 0 3 1\nNode 1, zone   Normal 9 0 0 0 0 0 0 0 0 0 0\n";
        let info = parse(Path::new("buddyinfo"), text.as_bytes()).unwrap();
        assert!(info.has_nodes());
        assert_eq!((info.free_blocks_of(0), info.free_blocks_of(1)), (Blocks(5), Blocks(0)));
        assert_eq!(info.free_blocks(), Blocks(5));
    }

    #[test]
    fn an_empty_machine_is_not_fragmented() {
        assert_eq!(Buddyinfo::default().fragmentation(), 0.0);
    }
}
