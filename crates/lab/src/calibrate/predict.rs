//! What random accesses over growing memory should take on a processor: the model's side of [`reach`](super::reach()).
//!
//! The translation is simulated. The load itself is not: of uniformly random lines over W bytes an LRU cache of C bytes has the share C/W, so the
//! mean latency follows from the preset's caches.

use mega_sim::tlb::{Counts, PageSize, Preset, Tlb};

/// Cycles between a load and the next in [`chase`]: an addition, a shift and a mask; the multiplication runs beside the load.
pub const LOOP_CYCLES: u32 = 3;

/// A prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The load and the loop around it.
    pub data_ns: f64,
    /// Translating its address.
    pub translation_ns: f64,
    /// What the TLB counted.
    pub counts: Counts,
}

impl Prediction {
    /// One access.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.data_ns + self.translation_ns
    }
}

/// The next place of the chase, from the last one and what was loaded there (always 0, but the processor does not know): Knuth's MMIX generator.
#[inline]
#[must_use]
pub fn chase(place: u64, loaded: u64) -> u64 {
    place
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
        .wrapping_add(loaded)
}

/// The byte offset of a place in memory of so many bytes, a power of two of at least 64.
#[inline]
#[must_use]
pub fn offset(place: u64, bytes: u64) -> u64 {
    (place >> 20) & (bytes - 1) & !63
}

/// `accesses` random accesses, each waiting for the one before, over `bytes` (rounded down to a power of two) of pages of this size.
#[must_use]
pub fn random(preset: &Preset, bytes: u64, size: PageSize, accesses: u64) -> Prediction {
    let bytes = 1 << bytes.max(64).ilog2();
    let mut tlb = Tlb::new(preset);
    let mut place = 1;
    let mut run = |n: u64, tlb: &mut Tlb| {
        for _ in 0..n {
            place = chase(place, 0);
            tlb.access(1, BASE_ADDRESS + offset(place, bytes), size);
        }
    };
    run(accesses, &mut tlb);
    let warm = tlb.counts();
    run(accesses, &mut tlb);
    let counts = tlb.counts().since(&warm);
    let per_access = |cycles: f64| cycles * 1000.0 / f64::from(preset.mhz);
    Prediction {
        data_ns: per_access(data_cycles(preset, bytes, size) + f64::from(LOOP_CYCLES)),
        translation_ns: per_access(counts.cycles as f64 / accesses.max(1) as f64),
        counts,
    }
}

/// Where the chase's memory begins: 1 GB-aligned.
const BASE_ADDRESS: u64 = 0x7000_0000_0000;

/// Mean cycles of a load at random from so many bytes.
fn data_cycles(preset: &Preset, bytes: u64, size: PageSize) -> f64 {
    // Lines of base pages' tables take their share of the caches; those of huge pages' are too few to count.
    let left = match size {
        PageSize::Base => 1.0 - f64::from(preset.share_percent) / 100.0,
        PageSize::Huge | PageSize::Giant => 1.0,
    };
    let tables = (bytes / 4096 * 8) as f64;
    let mut mean = 0.0;
    let mut below = 0.0;
    for cache in preset.caches {
        // Tables that are smaller than their share leave the rest to data.
        let data = cache.bytes as f64 - (cache.bytes as f64 * (1.0 - left)).min(tables);
        let here = (data / bytes as f64).clamp(below, 1.0);
        mean += (here - below) * f64::from(cache.cycles);
        below = here;
    }
    mean + (1.0 - below) * f64::from(preset.memory_cycles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mega_sim::tlb::PRESETS;

    #[test]
    fn huge_pages_are_predicted_to_help_where_base_pages_miss() {
        for preset in PRESETS {
            let ns = |mb: u64, size| random(&preset, mb << 20, size, 50_000).ns();
            assert!(
                ns(1024, PageSize::Base) > ns(1024, PageSize::Huge) * 1.02,
                "{}",
                preset.name
            );
            assert!(ns(8, PageSize::Huge) < ns(1024, PageSize::Huge), "{}", preset.name);
        }
    }

    #[test]
    fn memory_that_fits_the_first_level_costs_no_translation() {
        let preset = mega_sim::tlb::find("skylake-sp").unwrap();
        let small = random(preset, 64 << 12, PageSize::Base, 10_000);
        assert_eq!(small.counts.l1_misses, 0);
        assert_eq!(small.translation_ns, 0.0);
    }
}
