//! One look at one process, for people: [`usage`] in figures, mapping by mapping; [`regions`] region by region, for a map; both
//! change nothing. What huge pages would be worth: [`heat`] clears accessed bits of a sample, [`costs`] are this machine's.

pub mod costs;
pub mod heat;
pub mod regions;
pub mod usage;
