//! What is measured around a run of any program: memory over time, counters, processor time, noise.

pub mod agent;
pub mod counters;
pub mod faults;
pub mod machine;
pub mod manager;
pub mod mosaic;
pub mod noise;
pub mod pictures;
pub mod recorder;
pub mod sampler;
pub mod speedup;
pub mod summary;
