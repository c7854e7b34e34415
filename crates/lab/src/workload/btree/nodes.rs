//! A B+-tree of 64-bit keys and values in one mapping. A node has 512 bytes, eight cache lines: a lookup goes through a few of
//! them, scattered over the mapping.
//!
//! ```text
//!   inner   [count] [31 keys]            [32 children]      keys below key i are under child i
//!   leaf    [count | leaf] [31 keys]     [31 values] [-]
//! ```

use crate::memory::content;
use crate::memory::Mapping;
use crate::workload::{Common, WorkloadError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a node.
const WORDS: usize = 64;
/// Keys of a node at most.
const KEYS: usize = 31;
/// First key, and first value or child.
const FIRST_KEY: usize = 1;
const FIRST_LINK: usize = 32;
/// Mark of a leaf in the first word.
const LEAF: u64 = 1 << 32;

/// The tree.
#[derive(Debug)]
pub struct Tree {
    arena: Mapping,
    root: usize,
    nodes: usize,
    /// Levels, 1 when the root is a leaf.
    height: usize,
    len: u64,
    seed: u64,
}

/// A node with a validated key count.
#[derive(Clone, Copy)]
struct Node<'a> {
    words: &'a [AtomicU64],
    count: usize,
    is_leaf: bool,
}

impl Node<'_> {
    fn key(&self, i: usize) -> u64 {
        self.words[FIRST_KEY + i].load(Relaxed)
    }

    fn link(&self, i: usize) -> u64 {
        self.words[FIRST_LINK + i].load(Relaxed)
    }

    fn set_key(&self, i: usize, key: u64) {
        self.words[FIRST_KEY + i].store(key, Relaxed);
    }

    fn set_link(&self, i: usize, link: u64) {
        self.words[FIRST_LINK + i].store(link, Relaxed);
    }

    fn set_count(&self, count: usize) {
        let leaf = if self.is_leaf { LEAF } else { 0 };
        self.words[0].store(count as u64 | leaf, Relaxed);
    }

    /// Number of leading keys for which `before` holds.
    fn partition(&self, before: impl Fn(u64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if before(self.key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Shifts keys from `i` on and links from `link` on by one.
    fn shift(&self, i: usize, link: usize, links: usize) {
        for j in (i..self.count).rev() {
            self.set_key(j + 1, self.key(j));
        }
        for j in (link..links).rev() {
            self.set_link(j + 1, self.link(j));
        }
    }
}

impl Tree {
    /// Maps a tree of `bytes`, empty; its first page is touched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, common: &Common) -> Result<Self, WorkloadError> {
        let tree = Self {
            arena: common.map(bytes)?,
            root: 0,
            nodes: 1,
            height: 1,
            len: 0,
            seed: common.seed,
        };
        tree.arena.words()[0].store(LEAF, Relaxed);
        Ok(tree)
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Mapping {
        &self.arena
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Levels.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Share of the memory that its nodes use.
    #[must_use]
    pub fn used(&self) -> f64 {
        self.nodes as f64 / self.capacity() as f64
    }

    fn capacity(&self) -> usize {
        self.arena.words().len() / WORDS
    }

    /// The expected value of a key.
    fn value(&self, key: u64) -> u64 {
        content::word(self.seed, key)
    }

    fn at(&self, node: usize) -> usize {
        self.arena.start() + node * WORDS * 8
    }

    fn node(&self, node: u64) -> Result<Node<'_>, WorkloadError> {
        let wrong = |what: &str| WorkloadError::Corrupt(format!("B-tree: {what} {node:#x}"));
        let at = usize::try_from(node).ok().filter(|n| *n < self.nodes);
        let at = at.ok_or_else(|| wrong("there is no node"))?;
        let words = &self.arena.words()[at * WORDS..(at + 1) * WORDS];
        let head = words[0].load(Relaxed);
        let count = (head & !LEAF) as usize;
        if count > KEYS {
            return Err(wrong("wrong head of node"));
        }
        let is_leaf = head & LEAF != 0;
        Ok(Node { words, count, is_leaf })
    }

    fn new_node(&mut self, is_leaf: bool) -> usize {
        let node = self.nodes;
        self.nodes += 1;
        self.arena.words()[node * WORDS].store(if is_leaf { LEAF } else { 0 }, Relaxed);
        node
    }

    /// Splits the full child `i` of `parent`, which is not full.
    fn split(&mut self, parent: usize, i: usize) -> Result<(), WorkloadError> {
        let child = self.node(parent as u64)?.link(i);
        let is_leaf = self.node(child)?.is_leaf;
        let right = self.new_node(is_leaf);
        let (left, right_node) = (self.node(child)?, self.node(right as u64)?);
        // A leaf keeps a copy of the key between both on the right; an inner node gives it to the parent.
        let (keep, from) = if is_leaf { (16, 16) } else { (15, 16) };
        let between = left.key(keep);
        for j in from..KEYS {
            right_node.set_key(j - from, left.key(j));
        }
        let links = if is_leaf { KEYS } else { KEYS + 1 };
        for j in from..links {
            right_node.set_link(j - from, left.link(j));
        }
        left.set_count(keep);
        right_node.set_count(KEYS - from);
        let parent = self.node(parent as u64)?;
        parent.shift(i, i + 1, parent.count + 1);
        parent.set_key(i, between);
        parent.set_link(i + 1, right as u64);
        parent.set_count(parent.count + 1);
        Ok(())
    }

    /// Inserts a key with its value; false when it might not fit. A key already present is left unchanged.
    ///
    /// # Errors
    /// When a node on the way is corrupt.
    pub fn insert(&mut self, key: u64) -> Result<bool, WorkloadError> {
        // A new root, and a split on each level.
        if self.nodes + self.height + 1 > self.capacity() {
            return Ok(false);
        }
        if self.node(self.root as u64)?.count == KEYS {
            let old = self.root;
            self.root = self.new_node(false);
            self.node(self.root as u64)?.set_link(0, old as u64);
            self.height += 1;
            self.split(self.root, 0)?;
        }
        let mut at = self.root;
        for _ in 1..self.height {
            let node = self.node(at as u64)?;
            let mut i = node.partition(|k| k <= key);
            if self.node(node.link(i))?.count == KEYS {
                self.split(at, i)?;
                let node = self.node(at as u64)?;
                i += usize::from(node.key(i) <= key);
            }
            at = self.node(at as u64)?.link(i) as usize;
        }
        let leaf = self.leaf(at as u64)?;
        let i = leaf.partition(|k| k < key);
        if i < leaf.count && leaf.key(i) == key {
            return Ok(true);
        }
        leaf.shift(i, i, leaf.count);
        leaf.set_key(i, key);
        leaf.set_link(i, self.value(key));
        leaf.set_count(leaf.count + 1);
        self.len += 1;
        Ok(true)
    }

    fn leaf(&self, at: u64) -> Result<Node<'_>, WorkloadError> {
        let node = self.node(at)?;
        if !node.is_leaf {
            return Err(WorkloadError::Corrupt(format!("B-tree: node {at:#x} is not a leaf")));
        }
        Ok(node)
    }

    /// Looks a key up and checks its value. False when it is not there.
    ///
    /// # Errors
    /// When a node on the way is corrupt, or the value is.
    pub fn contains(&self, key: u64) -> Result<bool, WorkloadError> {
        let mut at = self.root as u64;
        for _ in 1..self.height {
            let node = self.node(at)?;
            at = node.link(node.partition(|k| k <= key));
        }
        let leaf = self.leaf(at)?;
        let i = leaf.partition(|k| k < key);
        if i == leaf.count || leaf.key(i) != key {
            return Ok(false);
        }
        self.check_value(at as usize, &leaf, i)?;
        Ok(true)
    }

    fn check_value(&self, at: usize, leaf: &Node, i: usize) -> Result<(), WorkloadError> {
        let (key, found) = (leaf.key(i), leaf.link(i));
        if found == self.value(key) {
            return Ok(());
        }
        let address = self.at(at) + 8 * (FIRST_LINK + i);
        let text = format!("B-tree: value of key {key:#x} at {address:#x} is {found:#x}");
        Err(WorkloadError::Corrupt(text))
    }

    /// Walks the whole tree: keys must be in order, values intact, and none missing. Returns the
    /// number of keys.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self) -> Result<u64, WorkloadError> {
        let found = self.walk(self.root as u64, self.height, 0, u64::MAX)?;
        if found != self.len {
            let text = format!("B-tree: {found} keys, not {}", self.len);
            return Err(WorkloadError::Corrupt(text));
        }
        Ok(found)
    }

    /// Number of keys below `node`, all of which must lie in `low..=high`.
    fn walk(&self, node: u64, height: usize, low: u64, high: u64) -> Result<u64, WorkloadError> {
        let wrong = |what: &str| {
            let at = self.at(usize::try_from(node).unwrap_or_default());
            WorkloadError::Corrupt(format!("B-tree: {what} of the node at {at:#x}"))
        };
        let n = self.node(node)?;
        if n.is_leaf != (height == 1) {
            return Err(wrong("wrong level"));
        }
        let in_order = (1..n.count).all(|i| n.key(i - 1) < n.key(i));
        let inside = n.count == 0 || (n.key(0) >= low && n.key(n.count - 1) <= high);
        if !in_order || !inside {
            return Err(wrong("wrong keys"));
        }
        if n.is_leaf {
            (0..n.count).try_for_each(|i| self.check_value(node as usize, &n, i))?;
            return Ok(n.count as u64);
        }
        let mut found = 0;
        for i in 0..=n.count {
            let from = if i == 0 { low } else { n.key(i - 1) };
            let to = if i == n.count { high } else { n.key(i).saturating_sub(1) };
            found += self.walk(n.link(i), height - 1, from, to)?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::content::mix;

    fn tree(keys: impl Iterator<Item = u64>) -> Tree {
        let mut t = Tree::new(4 << 20, &Common::of_seed(4)).unwrap();
        keys.for_each(|k| assert!(t.insert(k).unwrap()));
        t
    }

    #[test]
    fn keys_are_found_whatever_their_order_and_others_are_not() {
        let n = 20_000;
        let orders: [Box<dyn Fn(u64) -> u64>; 3] = [
            Box::new(|i| i * 2),
            Box::new(move |i| (n - i) * 2),
            Box::new(|i| mix(i) & !1),
        ];
        for order in orders {
            let t = tree((0..n).map(&order));
            assert_eq!(t.verify().unwrap(), t.len());
            assert_eq!(t.len(), n);
            assert!(t.height() >= 3);
            for i in 0..n {
                assert!(t.contains(order(i)).unwrap());
                assert!(!t.contains(order(i) | 1).unwrap());
            }
        }
    }

    #[test]
    fn extreme_keys_and_keys_inserted_twice_are_no_trouble() {
        let t = tree([u64::MAX, 0, 5, 5, u64::MAX, 0].into_iter());
        assert_eq!(t.verify().unwrap(), 3);
        assert!(t.contains(u64::MAX).unwrap() && t.contains(0).unwrap() && !t.contains(1).unwrap());
    }

    #[test]
    fn a_full_arena_refuses_and_stays_right() {
        let mut t = Tree::new(64 << 10, &Common::of_seed(4)).unwrap();
        let mut n = 0;
        while t.insert(mix(n)).unwrap() {
            n += 1;
        }
        assert!(n > 1000 && t.used() > 0.9, "{n} keys, {} used", t.used());
        assert_eq!(t.verify().unwrap(), n);
    }

    #[test]
    fn any_changed_word_that_counts_is_found() {
        let t = tree((0..5000).map(mix));
        let mut found = 0;
        for node in 0..t.nodes {
            let used = t.node(node as u64).unwrap();
            for at in [0, FIRST_KEY, FIRST_LINK + used.count - 1] {
                let w = &t.arena.words()[node * WORDS + at];
                let before = w.fetch_xor(1 << 40, Relaxed);
                // A key moved within its bounds leaves its value wrong in a leaf; an inner one misleads.
                found += usize::from(t.verify().is_err());
                w.store(before, Relaxed);
            }
        }
        assert!(found >= t.nodes * 3 - 20, "{found} of {}", t.nodes * 3);
        t.verify().unwrap();
    }
}
