//! Address spaces shared by two processes: a vfork child before its exec, and clone with CLONE_VM.
//!
//! Either way one is the parent of the other, so only parent and child are compared. To compare everybody with everybody would take 12 million
//! `kcmp(2)` calls for 5,000 processes.

use std::collections::{BTreeMap, BTreeSet};

/// Managed processes by PID, with their parents.
#[derive(Debug, Default)]
pub struct Kinship {
    parents: BTreeMap<u32, u32>,
    children: BTreeMap<u32, BTreeSet<u32>>,
}

impl Kinship {
    /// Adds a managed process.
    pub fn add(&mut self, pid: u32, parent: u32) {
        self.remove(pid);
        self.parents.insert(pid, parent);
        self.children.entry(parent).or_default().insert(pid);
    }

    /// Removes one.
    pub fn remove(&mut self, pid: u32) {
        let Some(parent) = self.parents.remove(&pid) else {
            return;
        };
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(&pid);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// The managed parent or child of this process that has the same address space by `is_same`, if there is one.
    pub fn sharer(&self, pid: u32, parent: u32, mut is_same: impl FnMut(u32) -> bool) -> Option<u32> {
        let parent = Some(parent).filter(|parent| self.parents.contains_key(parent));
        let children = self.children.get(&pid).into_iter().flatten().copied();
        parent
            .into_iter()
            .chain(children)
            .find(|other| *other != pid && is_same(*other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_thousand_children_of_one_process_are_compared_with_it_alone() {
        let mut kin = Kinship::default();
        let mut asked = 0;
        kin.add(1, 0);
        for pid in 2..5002 {
            let sharer = kin.sharer(pid, 1, |_| {
                asked += 1;
                false
            });
            assert_eq!(sharer, None);
            kin.add(pid, 1);
        }
        assert_eq!(asked, 5000);
    }

    #[test]
    fn a_parent_that_comes_after_its_child_is_found_to_share() {
        let mut kin = Kinship::default();
        kin.add(7, 5);
        assert_eq!(kin.sharer(5, 1, |other| other == 7), Some(7));
        assert_eq!(kin.sharer(8, 7, |other| other == 7), Some(7));
        kin.remove(7);
        assert_eq!(kin.sharer(5, 1, |_| true), None);
        assert!(kin.children.is_empty());
    }
}
