//! A policy's memory: one small state per tracked region, by process and rising address. Regions that disappear are dropped.

use std::collections::{BTreeMap, BTreeSet};

use crate::observe::{Observation, ProcessId, ProcessView, Region};

/// States by region. Takes `size_of::<(Region, S)>()` bytes per tracked region, and twice that during an update.
#[derive(Debug, Clone)]
pub(crate) struct Table<S> {
    processes: BTreeMap<ProcessId, Vec<(Region, S)>>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self {
            processes: BTreeMap::new(),
        }
    }
}

impl<S> Table<S> {
    /// Drops every process that is not in the snapshot.
    pub fn keep_only(&mut self, seen: &[ProcessView]) {
        let seen: BTreeSet<ProcessId> = seen.iter().map(|process| process.id).collect();
        self.processes.retain(|id, _| seen.contains(id));
    }

    /// Calls `f` for every observed region with its state, by rising address; keeps the state that it returns, if any.
    pub fn update(&mut self, process: &ProcessView, mut f: impl FnMut(&Observation, Option<S>) -> Option<S>) {
        let mut old = self
            .processes
            .remove(&process.id)
            .unwrap_or_default()
            .into_iter()
            .peekable();
        let mut new = Vec::new();
        for seen in &process.regions {
            while old.next_if(|(region, _)| *region < seen.region).is_some() {}
            let had = old
                .next_if(|(region, _)| *region == seen.region)
                .map(|(_, state)| state);
            if let Some(state) = f(seen, had) {
                new.push((seen.region, state));
            }
        }
        new.shrink_to_fit();
        self.processes.insert(process.id, new);
    }

    /// Number of regions with a state.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.processes.values().map(Vec::len).sum()
    }
}
