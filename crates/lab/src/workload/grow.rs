//! A heap that grows by realloc: one array from the C library's allocator, an eighth longer each time, as logs, vectors and interpreters'
//! lists grow. Large arrays are moved by mremap, which fails where advice has split their mapping.

use super::stage::rate;
use super::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::word;
use crate::timing::clock::now_ns;
use crate::timing::latency::Latency;
use serde_json::json;

/// Words between two looks at the clock: a base page.
const PIECE: usize = 512;
/// Words to begin with: a megabyte.
const FIRST: usize = 128 << 10;

/// Options of `grow`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Fills an array that realloc grows, several times; then checks it")]
pub struct Options {
    /// Its final size in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// How many times
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub times: u32,
    /// Seed and CPU
    #[command(flatten)]
    pub common: Common,
}

impl Workload for Options {
    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self) -> Plan {
        Plan::of(self.mib, Plan::touch_seconds(self.mib) * f64::from(self.times))
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        self.common.must_not_advise("grow")?;
        run(self, stage)
    }
}

/// An array of `most` words, grown step by step; the time of each page's words goes to `latency`.
fn grown(most: usize, seed: u64, latency: &mut Latency) -> Vec<u64> {
    let mut words: Vec<u64> = Vec::with_capacity(FIRST.min(most));
    let mut last = now_ns();
    while words.len() < most {
        if words.len() == words.capacity() {
            words.reserve_exact((words.len() / 8).max(1));
        }
        let from = words.len();
        let to = words.capacity().min(most).min(from + PIECE);
        words.extend((from..to).map(|i| word(seed, i as u64)));
        let now = now_ns();
        latency.record(now - last);
        last = now;
    }
    words
}

fn verify(words: &[u64], seed: u64) -> Result<(), WorkloadError> {
    match words.iter().enumerate().find(|(i, w)| **w != word(seed, *i as u64)) {
        None => Ok(()),
        Some((i, found)) => Err(WorkloadError::corrupt("grow", format_args!("word {i} is {found:#x}"))),
    }
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let most = mebibytes(o.mib)? / 8;
    let mut latency = Latency::new();
    let start = now_ns();
    let mut words = grown(most, o.common.seed, &mut latency);
    let first_touch_ns = now_ns() - start;
    stage.ready(&[], json!({ "first_touch_ns": first_touch_ns }));
    for round in 1..o.times {
        drop(words);
        words = grown(most, o.common.seed ^ u64::from(round), &mut latency);
    }
    let elapsed_ns = now_ns() - start;
    let filled = most as u64 * u64::from(o.times);
    stage.result(
        json!({"words": most, "times": o.times}),
        &[
            ("elapsed_ns", elapsed_ns as f64),
            ("first_touch_ns", first_touch_ns as f64),
            ("ops_per_s", rate(filled, elapsed_ns)),
        ],
        &[("page", &latency)],
    );
    verify(&words, o.common.seed ^ u64::from(o.times - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_grows_to_its_size_and_a_changed_word_is_found() {
        let mut latency = Latency::new();
        let mut words = grown(3 * FIRST + 5, 9, &mut latency);
        assert_eq!(words.len(), 3 * FIRST + 5);
        assert!(latency.count() as usize >= words.len() / PIECE);
        verify(&words, 9).unwrap();
        words[FIRST + 1] ^= 1;
        assert_eq!(verify(&words, 9).unwrap_err().exit_code(), 3);
    }
}
