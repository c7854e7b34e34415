//! What an experiment found, for people and for machines.
//!
//! ```text
//!   Record ──► comparison    medians, intervals, ratios to the first variant, verdicts; the JSON of `--json`
//!     │            ├── terminal    tables in eighty columns
//!     │            └── html        one page that needs nothing else, with plot/ (SVG)
//!     ├──► compare       two records of one experiment side by side
//!     └──► folder        kept on disk, and read back with check
//! ```
//!
//! Everything here comes from a [`crate::result::Record`] and from nothing else, so that a result folder says what it said
//! on the day it was measured.

pub mod check;
pub mod compare;
pub mod comparison;
pub mod folder;
pub mod html;
pub mod plot;
pub mod scale;
pub mod terminal;

#[cfg(test)]
pub(crate) mod synthetic;

pub use compare::{compare, Agreement, CompareError};
pub use comparison::{comparison, Comparison};
pub use folder::{read, Folder, FolderError};
