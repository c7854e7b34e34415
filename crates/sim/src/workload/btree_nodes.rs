//! The B+-tree of `btree`, with the live one's nodes (crates/lab/src/workload/btree/nodes.rs): 512 bytes a node, 31 keys. Keys are
//! kept, for the layout depends on them; values are not.

use super::{pace, Memory, PAGE};

/// Bytes of a node: one never crosses a page.
const BYTES: u64 = 512;
/// Keys of a node at most.
const KEYS: usize = 31;

#[derive(Debug)]
struct Node {
    keys: [u64; KEYS],
    count: u8,
    /// Of inner nodes only.
    children: Option<Box<[u32; KEYS + 1]>>,
}

impl Node {
    fn new(is_leaf: bool) -> Self {
        Self {
            keys: [0; KEYS],
            count: 0,
            children: (!is_leaf).then(|| Box::new([0; KEYS + 1])),
        }
    }

    fn used(&self) -> &[u64] {
        &self.keys[..self.count as usize]
    }

    fn child(&self, i: usize) -> u32 {
        // An inner node has children; a leaf is never asked.
        self.children.as_ref().map_or(0, |c| c[i])
    }

    fn is_full(&self) -> bool {
        self.count as usize == KEYS
    }
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    base: u64,
    capacity: usize,
    nodes: Vec<Node>,
    root: u32,
    height: usize,
    len: u64,
}

impl Tree {
    /// An empty one in an area of `bytes` at `base`; its first page is written.
    pub(super) fn new<M: Memory>(memory: &mut M, base: u64, bytes: u64) -> Self {
        debug_assert!(base % PAGE == 0);
        let tree = Self {
            base,
            capacity: (bytes / BYTES) as usize,
            nodes: vec![Node::new(true)],
            root: 0,
            height: 1,
            len: 0,
        };
        tree.write(memory, 0);
        tree
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    /// Share of the memory that its nodes use.
    pub(super) fn used(&self) -> f64 {
        self.nodes.len() as f64 / self.capacity as f64
    }

    fn read<M: Memory>(&self, memory: &mut M, node: u32) -> &Node {
        memory.touch(self.base + u64::from(node) * BYTES, false);
        &self.nodes[node as usize]
    }

    fn write<M: Memory>(&self, memory: &mut M, node: u32) {
        memory.touch(self.base + u64::from(node) * BYTES, true);
    }

    fn new_node<M: Memory>(&mut self, memory: &mut M, is_leaf: bool) -> u32 {
        self.nodes.push(Node::new(is_leaf));
        let node = self.nodes.len() as u32 - 1;
        self.write(memory, node);
        node
    }

    /// Splits the full child `i` of `parent`, which is not full.
    fn split<M: Memory>(&mut self, memory: &mut M, parent: u32, i: usize) {
        let child = self.read(memory, parent).child(i);
        let is_leaf = self.read(memory, child).children.is_none();
        let right = self.new_node(memory, is_leaf);
        let (keep, from) = if is_leaf { (16, 16) } else { (15, 16) };
        self.read(memory, child);
        self.read(memory, right);
        let links = if is_leaf { KEYS } else { KEYS + 1 };
        for _ in 0..(KEYS - from) + (links - from) {
            self.read(memory, child);
            self.write(memory, right);
        }
        self.write(memory, child);
        self.write(memory, right);
        self.read(memory, parent);
        self.write(memory, parent);
        let mut upper = Node::new(is_leaf);
        let left = &mut self.nodes[child as usize];
        let between = left.keys[keep];
        upper.keys[..KEYS - from].copy_from_slice(&left.keys[from..]);
        upper.count = (KEYS - from) as u8;
        if let (Some(to), Some(of)) = (&mut upper.children, &left.children) {
            to[..links - from].copy_from_slice(&of[from..]);
        }
        left.count = keep as u8;
        self.nodes[right as usize] = upper;
        let above = &mut self.nodes[parent as usize];
        let count = above.count as usize;
        above.keys.copy_within(i..count, i + 1);
        above.keys[i] = between;
        if let Some(children) = &mut above.children {
            children.copy_within(i + 1..=count, i + 2);
            children[i + 1] = right;
        }
        above.count += 1;
    }

    /// Inserts a key; false when it might not fit. A key already present is left unchanged.
    pub(super) fn insert<M: Memory>(&mut self, memory: &mut M, key: u64) -> bool {
        if self.nodes.len() + self.height + 1 > self.capacity {
            return false;
        }
        memory.work((self.height as u64 + 1) * pace::NODE);
        if self.read(memory, self.root).is_full() {
            let old = self.root;
            self.root = self.new_node(memory, false);
            self.read(memory, self.root);
            self.write(memory, self.root);
            if let Some(children) = &mut self.nodes[self.root as usize].children {
                children[0] = old;
            }
            self.height += 1;
            self.split(memory, self.root, 0);
        }
        let mut at = self.root;
        for _ in 1..self.height {
            let node = self.read(memory, at);
            let mut i = node.used().partition_point(|k| *k <= key);
            let child = node.child(i);
            if self.read(memory, child).is_full() {
                self.split(memory, at, i);
                i += usize::from(self.read(memory, at).keys[i] <= key);
            }
            at = self.read(memory, at).child(i);
        }
        let leaf = self.read(memory, at);
        let i = leaf.used().partition_point(|k| *k < key);
        if leaf.used().get(i) == Some(&key) {
            return true;
        }
        self.write(memory, at);
        let leaf = &mut self.nodes[at as usize];
        let count = leaf.count as usize;
        leaf.keys.copy_within(i..count, i + 1);
        leaf.keys[i] = key;
        leaf.count += 1;
        self.len += 1;
        true
    }

    /// Looks a key up.
    pub(super) fn contains<M: Memory>(&self, memory: &mut M, key: u64) -> bool {
        memory.work(self.height as u64 * pace::NODE);
        let mut at = self.root;
        for _ in 1..self.height {
            let node = self.read(memory, at);
            at = node.child(node.used().partition_point(|k| *k <= key));
        }
        self.read(memory, at).used().binary_search(&key).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::pattern::mix;
    use crate::workload::CountingMemory;

    #[test]
    fn keys_are_found_whatever_their_order_and_others_are_not() {
        let n = 20_000;
        let orders: [fn(u64) -> u64; 3] = [|i| i * 2, |i| (20_000 - i) * 2, |i| mix(i) & !1];
        for order in orders {
            let mut m = CountingMemory::new();
            let base = m.map(4 << 20).unwrap();
            let mut t = Tree::new(&mut m, base, 4 << 20);
            assert!((0..n).all(|i| t.insert(&mut m, order(i))));
            assert!(t.len() == n && t.height() >= 3);
            for i in 0..n {
                assert!(t.contains(&mut m, order(i)));
                assert!(!t.contains(&mut m, order(i) | 1));
            }
            assert_eq!(m.stray, 0);
            assert_eq!(m.written_pages(), (t.nodes.len() as u64).div_ceil(8));
        }
    }

    #[test]
    fn a_full_arena_refuses() {
        let mut m = CountingMemory::new();
        let base = m.map(64 << 10).unwrap();
        let mut t = Tree::new(&mut m, base, 64 << 10);
        let n = (0..).take_while(|i| t.insert(&mut m, mix(*i))).count();
        assert!(n > 1000 && t.used() > 0.9);
        assert_eq!(m.stray, 0);
    }
}
