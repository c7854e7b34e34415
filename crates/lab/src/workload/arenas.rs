//! Many threads, each with objects of 32 bytes to 4 KB from an arena of the C library's allocator: filled, every other one freed and
//! allocated anew in other sizes, several times.

use super::stage::rate;
use super::{mebibytes, Common, Plan, Stage, Workload, WorkloadError};
use crate::memory::content::{mix, word};
use crate::timing::clock::now_ns;
use serde_json::json;

/// Options of `arenas`.
#[derive(Debug, Clone, clap::Parser)]
#[command(about = "Threads that allocate and free small objects of all sizes; then checks all of them")]
pub struct Options {
    /// Memory of all threads in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: usize,
    /// Threads
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// How many times half of the objects are replaced
    #[arg(long, default_value_t = 4)]
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
        Plan::of(
            self.mib + self.mib / 4,
            Plan::touch_seconds(self.mib) * f64::from(self.times),
        )
    }

    fn run(&self, stage: &mut Stage) -> Result<(), WorkloadError> {
        self.common.must_not_advise("arenas")?;
        run(self, stage)
    }
}

/// An object; its words follow from its first one, which is its seed.
fn object(seed: u64) -> Box<[u64]> {
    let words = 4 << (seed >> 61);
    std::iter::once(seed).chain((1..words).map(|i| word(seed, i))).collect()
}

fn is_whole(object: &[u64]) -> bool {
    let seed = object.first().copied().unwrap_or(0);
    object
        .iter()
        .enumerate()
        .skip(1)
        .all(|(i, w)| *w == word(seed, i as u64))
}

/// One thread's part: so many bytes of objects, every other one replaced so many times. Returns them, and how many were made.
fn part(bytes: usize, times: u32, seed: u64) -> (Vec<Box<[u64]>>, u64) {
    let (mut objects, mut used, mut draw) = (Vec::new(), 0, seed);
    while used < bytes {
        draw = mix(draw);
        let made = object(draw);
        used += made.len() * 8 + 16;
        objects.push(made);
    }
    let mut made = objects.len() as u64;
    for round in 0..times as usize {
        for one in objects.iter_mut().skip(round % 2).step_by(2) {
            draw = mix(draw);
            *one = object(draw);
            made += 1;
        }
    }
    (objects, made)
}

fn run(o: &Options, stage: &mut Stage) -> Result<(), WorkloadError> {
    let bytes = mebibytes(o.mib)? / o.threads as usize;
    stage.ready(&[], json!({ "bytes": bytes }));
    let start = now_ns();
    let parts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(o.threads))
            .map(|number| scope.spawn(move || part(bytes, o.times, mix(o.common.seed ^ number))))
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let elapsed_ns = now_ns() - start;
    let made: u64 = parts.iter().map(|(_, made)| made).sum();
    stage.result(
        json!({"threads": o.threads, "objects": made}),
        &[("elapsed_ns", elapsed_ns as f64), ("ops_per_s", rate(made, elapsed_ns))],
        &[],
    );
    let is_wrong = |objects: &Vec<Box<[u64]>>| objects.iter().any(|object| !is_whole(object));
    match parts.len() == o.threads as usize && !parts.iter().any(|(objects, _)| is_wrong(objects)) {
        true => Ok(()),
        false => Err(WorkloadError::corrupt("arenas", format_args!("an object has changed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_replaced_and_a_changed_one_is_found() {
        let (mut objects, made) = part(1 << 20, 2, 5);
        assert!(made as usize > objects.len());
        assert!(objects.iter().all(|object| is_whole(object)));
        let sizes: std::collections::BTreeSet<usize> = objects.iter().map(|object| object.len()).collect();
        assert_eq!(sizes.len(), 8, "{sizes:?}");
        objects[3][1] ^= 1;
        assert!(!is_whole(&objects[3]));
    }
}
