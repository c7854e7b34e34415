//! A policy's memory: one small state per tracked region, by process and rising address. What is not seen again is dropped.

use std::collections::BTreeMap;

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
    /// Forgets every process that was not seen.
    pub fn keep_only(&mut self, seen: &[ProcessView]) {
        self.processes
            .retain(|id, _| seen.iter().any(|process| process.id == *id));
    }

    /// Passes every seen region with the state it had, by rising address; keeps the state that comes back, if one does.
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

    /// Regions with a state.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.processes.values().map(Vec::len).sum()
    }
}
