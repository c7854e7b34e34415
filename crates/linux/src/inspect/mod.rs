//! One look at one process, for people: [`usage`] in figures, mapping by mapping; [`regions`] region by region, for a map. Changes nothing.

pub mod regions;
pub mod usage;
