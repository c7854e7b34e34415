//! An area of which a scattered share of base pages is used: the pages are drawn by seed and touched in random order, so
//! every 2 MB region has about the same share. Huge pages make it several times larger.

use super::{Common, WorkloadError};
use crate::memory::content::{self, mix, Mismatch};
use crate::memory::{base_page_bytes, Mapping};
use crate::timing::clock::now_ns;
use mega_sim::workload::pattern::{sparse_pages, sparse_visit};
use std::sync::atomic::Ordering::Relaxed;

/// The area. Pages outside of the share are never touched, not even read.
#[derive(Debug)]
pub struct SparseArea {
    memory: Mapping,
    /// Pages of the share in the order in which they are touched.
    pages: Vec<u32>,
    touched: usize,
    seed: u64,
}

impl SparseArea {
    /// Maps `bytes` and draws `share` (0 to 1) of its pages, untouched.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(bytes: usize, share: f64, common: &Common) -> Result<Self, WorkloadError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(WorkloadError::Usage(format!(
                "a share lies between 0 and 1, not at {share}"
            )));
        }
        let (seed, mut rng) = (common.seed, common.rng());
        let memory = common.map(bytes)?;
        let all = u32::try_from(memory.len_bytes() / base_page_bytes())
            .map_err(|_| WorkloadError::Usage(format!("{bytes} bytes are too many pages")))?;
        Ok(Self {
            memory,
            pages: sparse_pages(all, share, seed, &mut rng),
            touched: 0,
            seed,
        })
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Pages of the share: touched so far, and in all.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.touched, self.pages.len())
    }

    /// Faults in the next page by one store and returns its latency; then writes the whole page.
    pub fn touch_next(&mut self) -> Option<u64> {
        let page = *self.pages.get(self.touched)?;
        let words = self.memory.page_words(page as usize);
        let seed = self.page_seed(page);
        let first = content::word(seed, 0);
        let start = now_ns();
        words[0].store(first, Relaxed);
        let ns = now_ns() - start;
        content::fill(words, seed);
        self.touched += 1;
        Some(ns)
    }

    fn page_seed(&self, page: u32) -> u64 {
        mix(self.seed ^ 0x5aa5) ^ u64::from(page)
    }

    fn corrupt(&self, page: u32, m: Mismatch) -> WorkloadError {
        let at = self.memory.start() + page as usize * base_page_bytes() + 8 * m.index;
        WorkloadError::Corrupt(format!(
            "sparse page {page}, word at {at:#x} is {:#x}, not {:#x}",
            m.found, m.expected
        ))
    }

    /// Reads and checks one word of a page that was touched.
    ///
    /// # Errors
    /// When it is not what was written.
    pub fn visit(&self, random: u64) -> Result<(), WorkloadError> {
        if self.touched == 0 {
            return Ok(());
        }
        let (at, index) = sparse_visit(random, self.touched as u64);
        let page = self.pages[at];
        let expected = content::word(self.page_seed(page), index as u64);
        match self.memory.page_words(page as usize)[index].load(Relaxed) {
            found if found == expected => Ok(()),
            found => Err(self.corrupt(page, Mismatch { index, expected, found })),
        }
    }

    /// Checks every page that was touched.
    ///
    /// # Errors
    /// The first corrupt word.
    pub fn verify(&self) -> Result<usize, WorkloadError> {
        for &page in &self.pages[..self.touched] {
            content::verify(self.memory.page_words(page as usize), self.page_seed(page))
                .map_err(|m| self.corrupt(page, m))?;
        }
        Ok(self.touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sixth_is_drawn_in_every_region_and_verifies() {
        let common = Common::of_seed(2);
        let mut a = SparseArea::new(32 << 20, 1.0 / 6.0, &common).unwrap();
        let all = a.progress().1;
        assert!((1200..1530).contains(&all), "{all} of 8192 pages");
        let mut regions = [0; 16];
        a.pages.iter().for_each(|p| regions[*p as usize / 512] += 1);
        assert!(regions.iter().all(|n| (50..130).contains(n)), "{regions:?}");
        while a.touch_next().is_some() {}
        assert_eq!(a.verify().unwrap(), all);
        (0..100).for_each(|i| a.visit(mix(i)).unwrap());
        let page = a.pages[5] as usize;
        a.memory.page_words(page)[9].store(0, Relaxed);
        assert!(a.verify().is_err());
    }

    #[test]
    fn shares_outside_of_zero_to_one_are_refused() {
        let common = Common::of_seed(2);
        assert!(SparseArea::new(1 << 20, 1.5, &common).is_err());
        assert!(SparseArea::new(1 << 20, f64::NAN, &common).is_err());
        assert_eq!(SparseArea::new(1 << 20, 1.0, &common).unwrap().progress(), (0, 256));
    }
}
