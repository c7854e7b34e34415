//! Where the mappings of a trace lie in the memory of a replay.

use crate::workload::{Memory, MemoryError};
use mega_core::units::{BASE_PAGE_BYTES as PAGE, HUGE_PAGE_BYTES as HUGE};
use std::collections::BTreeMap;

/// Mappings that a replay keeps apart at most.
const MOST_MAPPINGS: usize = 1 << 20;

/// The mappings. Errors are texts: the replay adds the record.
#[derive(Debug)]
pub(super) struct Places {
    /// First address in the trace to length and address here.
    mappings: BTreeMap<u64, (u64, u64)>,
    /// The last mapping used: first and end address in the trace, and what to add.
    last: (u64, u64, u64),
    map_unknown: bool,
}

impl Places {
    /// None yet. `map_unknown`: 2 MB are mapped around a place that is met without a mapping.
    pub(super) fn new(map_unknown: bool) -> Self {
        Self {
            mappings: BTreeMap::new(),
            last: (0, 0, 0),
            map_unknown,
        }
    }

    /// Maps a range of the trace; what was mapped there goes, as with MAP_FIXED.
    pub(super) fn map<M: Memory>(&mut self, memory: &mut M, address: u64, bytes: u64) -> Result<(), String> {
        let bytes = bytes.checked_next_multiple_of(PAGE).filter(|n| *n > 0);
        let end = bytes.and_then(|n| address.checked_add(n));
        let (Some(bytes), Some(_), 0) = (bytes, end, address % PAGE) else {
            return Err(format!("no mapping of pages: {address:#x}"));
        };
        self.unmap(memory, address, bytes)?;
        if self.mappings.len() >= MOST_MAPPINGS {
            return Err(format!("more than {MOST_MAPPINGS} mappings"));
        }
        // A part before it is mapped too and goes at once, so that it lies as it did relative to 2 MB.
        let before = address % HUGE;
        let all = bytes.checked_add(before).ok_or("a mapping of 2^64 bytes")?;
        let base = memory.map(all).map_err(|e| e.to_string())?;
        if before > 0 {
            memory.unmap(base, before).map_err(|e| e.to_string())?;
        }
        self.mappings.insert(address, (bytes, base + before));
        Ok(())
    }

    /// Mappings that overlap a range, with the overlap: first address, bytes, address here.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> Vec<(u64, u64, u64)> {
        let end = address.saturating_add(bytes);
        let before = self.mappings.range(..address).next_back();
        let all = before.into_iter().chain(self.mappings.range(address..end));
        all.filter_map(|(start, (n, to))| {
            let (from, until) = (address.max(*start), end.min(start + n));
            (from < until).then(|| (from, until - from, to + (from - start)))
        })
        .collect()
    }

    /// Unmaps a range of the trace; what of it is mapped goes, and its mappings are split.
    pub(super) fn unmap<M: Memory>(&mut self, memory: &mut M, address: u64, bytes: u64) -> Result<(), String> {
        for (from, n, to) in self.overlaps(address, bytes) {
            let found = self.mappings.range(..=from).next_back().map(|(a, v)| (*a, *v));
            let Some((start, (length, base))) = found else { continue };
            self.mappings.remove(&start);
            if start < from {
                self.mappings.insert(start, (from - start, base));
            }
            if from + n < start + length {
                self.mappings.insert(from + n, (start + length - from - n, to + n));
            }
            memory.unmap(to, n).map_err(|e| e.to_string())?;
        }
        self.last = (0, 0, 0);
        Ok(())
    }

    /// Moves a mapping, or makes it larger or smaller. False: as if it was unmapped and mapped anew, for it is a part of a mapping, or the
    /// memory does not model it.
    pub(super) fn remap<M: Memory>(
        &mut self,
        memory: &mut M,
        from: (u64, u64),
        to: (u64, u64),
    ) -> Result<bool, String> {
        let whole = from.1.checked_next_multiple_of(PAGE);
        let found = self.mappings.get(&from.0).copied().filter(|(n, _)| Some(*n) == whole);
        let to_bytes =
            to.1.checked_next_multiple_of(PAGE)
                .filter(|n| *n > 0 && to.0 % PAGE == 0 && to.0.checked_add(*n).is_some());
        let (Some((bytes, base)), Some(to_bytes)) = (found, to_bytes) else {
            // Part of a mapping, or what was never mapped: as if it was mapped anew.
            self.unmap(memory, from.0, from.1)?;
            self.map(memory, to.0, to.1)?;
            return Ok(false);
        };
        match memory.remap(base, bytes, to_bytes) {
            Ok(moved) => {
                self.mappings.remove(&from.0);
                self.unmap(memory, to.0, to_bytes)?;
                self.mappings.insert(to.0, (to_bytes, moved));
                Ok(true)
            }
            Err(MemoryError::Unsupported(_)) => {
                self.unmap(memory, from.0, bytes)?;
                self.map(memory, to.0, to_bytes)?;
                Ok(false)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Where an address of the trace lies here; none when it is not mapped.
    #[inline]
    pub(super) fn translate<M: Memory>(&mut self, memory: &mut M, address: u64) -> Result<Option<u64>, String> {
        let (first, end, add) = self.last;
        if address >= first && address < end {
            return Ok(Some(address.wrapping_add(add)));
        }
        self.translate_slowly(memory, address)
    }

    #[cold]
    fn translate_slowly<M: Memory>(&mut self, memory: &mut M, address: u64) -> Result<Option<u64>, String> {
        for _ in 0..2 {
            let found = self.mappings.range(..=address).next_back().map(|(a, v)| (*a, *v));
            if let Some((start, (bytes, to))) = found.filter(|(start, (bytes, _))| address - start < *bytes) {
                self.last = (start, start + bytes, to.wrapping_sub(start));
                return Ok(Some(to + (address - start)));
            }
            let region = address / HUGE * HUGE;
            if !self.map_unknown || region.checked_add(HUGE).is_none() {
                return Ok(None);
            }
            // What of the 2 MB around it is free.
            let start = found.map_or(region, |(start, (bytes, _))| region.max(start + bytes));
            let next = self.mappings.range(address..).next().map_or(u64::MAX, |(a, _)| *a);
            self.map(memory, start, (region + HUGE).min(next) - start)?;
        }
        Ok(None)
    }
}
