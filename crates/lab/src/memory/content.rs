//! Known content of memory: every word is a function of a seed and its index, so any word can be verified at any time
//! without a copy.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use mega_sim::workload::pattern::{below, mix, scatter, word};

/// A word with wrong content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the word in the slice that was checked.
    pub index: usize,
    /// Expected.
    pub expected: u64,
    /// Found.
    pub found: u64,
}

/// Writes content `seed` over all of `words`.
pub fn fill(words: &[AtomicU64], seed: u64) {
    for (i, w) in words.iter().enumerate() {
        w.store(word(seed, i as u64), Relaxed);
    }
}

/// Verifies all of `words` against content `seed`.
///
/// # Errors
/// The first word that differs.
pub fn verify(words: &[AtomicU64], seed: u64) -> Result<(), Mismatch> {
    for (index, w) in words.iter().enumerate() {
        let (expected, found) = (word(seed, index as u64), w.load(Relaxed));
        if found != expected {
            return Err(Mismatch { index, expected, found });
        }
    }
    Ok(())
}

/// Checks that all of `words` are zero.
///
/// # Errors
/// The first word that is not.
pub fn verify_zero(words: &[AtomicU64]) -> Result<(), Mismatch> {
    for (index, w) in words.iter().enumerate() {
        let found = w.load(Relaxed);
        if found != 0 {
            return Err(Mismatch {
                index,
                expected: 0,
                found,
            });
        }
    }
    Ok(())
}

/// Verifies a page after MADV_FREE: content `seed` up to some word and zero from there on, since the kernel may reclaim the
/// page between two reads.
///
/// # Errors
/// The first word that fits neither.
pub fn verify_freed(words: &[AtomicU64], seed: u64) -> Result<(), Mismatch> {
    let mut taken = false;
    for (index, w) in words.iter().enumerate() {
        let (expected, found) = (word(seed, index as u64), w.load(Relaxed));
        taken |= found == 0;
        if found != if taken { 0 } else { expected } {
            return Err(Mismatch { index, expected, found });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(n: usize) -> Vec<AtomicU64> {
        (0..n).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn filled_words_verify_and_a_flipped_bit_is_found() {
        let w = words(512);
        fill(&w, 7);
        assert_eq!(verify(&w, 7), Ok(()));
        w[100].fetch_xor(4, Relaxed);
        assert_eq!(verify(&w, 7).unwrap_err().index, 100);
        assert!(verify(&w, 8).is_err());
    }

    #[test]
    fn a_freed_page_may_be_old_then_zero_but_never_zero_then_old() {
        let w = words(512);
        fill(&w, 3);
        assert_eq!(verify_freed(&w, 3), Ok(()));
        w[200..].iter().for_each(|x| x.store(0, Relaxed));
        assert_eq!(verify_freed(&w, 3), Ok(()));
        w[511].store(word(3, 511), Relaxed);
        assert_eq!(verify_freed(&w, 3).unwrap_err().index, 511);
    }
}
