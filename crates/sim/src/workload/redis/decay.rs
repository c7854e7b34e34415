//! How many dirty pages an arena may keep: a smooth curve over the decay time (jemalloc, arena_decay_backlog_npages_limit).

/// Steps of the curve (`SMOOTHSTEP_NSTEPS`).
const STEPS: usize = 200;

/// The share of pages that may stay dirty `age` of [`STEPS`] epochs after they became so, in 2^24ths: 1 − (6x⁵ − 15x⁴ + 10x³).
fn may_stay(age: usize) -> u64 {
    let n = STEPS as i128;
    let x = age as i128;
    let smooth = (6 * x.pow(5) - 15 * x.pow(4) * n + 10 * x.pow(3) * n.pow(2)) << 24;
    ((1 << 24) - smooth / n.pow(5)) as u64
}

/// Dirty pages by the time since they became so.
#[derive(Debug)]
pub(super) struct Decay {
    length_ns: u64,
    /// When the current epoch began.
    epoch_ns: Option<u64>,
    /// Pages that became dirty in each of the last epochs, the latest last.
    backlog: Vec<u64>,
    dirty_before: u64,
}

impl Decay {
    pub(super) fn new(decay_ns: u64) -> Self {
        Self {
            length_ns: (decay_ns / STEPS as u64).max(1),
            epoch_ns: None,
            backlog: vec![0; STEPS],
            dirty_before: 0,
        }
    }

    /// When the next epoch begins.
    pub(super) fn next_ns(&self) -> u64 {
        self.epoch_ns.unwrap_or(0).saturating_add(self.length_ns)
    }

    /// How many of the `dirty` pages may stay; none when no epoch has passed since this was asked.
    pub(super) fn limit(&mut self, now_ns: u64, dirty: u64) -> Option<u64> {
        let epoch = *self.epoch_ns.get_or_insert(now_ns);
        let epochs = now_ns.saturating_sub(epoch) / self.length_ns;
        if epochs == 0 {
            return None;
        }
        self.epoch_ns = Some(epoch + epochs * self.length_ns);
        let shift = usize::try_from(epochs).unwrap_or(STEPS).min(STEPS);
        self.backlog.drain(..shift);
        self.backlog.resize(STEPS, 0);
        if let Some(last) = self.backlog.last_mut() {
            *last = dirty.saturating_sub(self.dirty_before);
        }
        let by_age = self.backlog.iter().rev().enumerate();
        let stay: u128 = by_age.map(|(age, n)| u128::from(*n) * u128::from(may_stay(age))).sum();
        Some((stay >> 24) as u64)
    }

    /// This many are dirty after what had to go is gone.
    pub(super) fn done(&mut self, dirty: u64) {
        self.dirty_before = dirty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_falls_from_all_to_nothing() {
        assert_eq!(
            (may_stay(0), may_stay(STEPS / 2), may_stay(STEPS)),
            (1 << 24, 1 << 23, 0)
        );
        assert!((1..=STEPS).all(|i| may_stay(i) <= may_stay(i - 1)));
    }
}
