//! What an experiment found, human- and machine-readable.
//!
//! ```text
//!   Record ──► comparison    medians, intervals, ratios to the first variant, verdicts; the JSON of `--json`
//!     │      (compared: what it is made of)
//!     │            ├── verdict     the finding in one sentence
//!     │            ├── terminal    tables in eighty columns
//!     │            └── html        one self-contained page, with plot/ (SVG)
//!     ├──► compare       two records of one experiment side by side
//!     └──► folder        kept on disk, and read back with check
//! ```
//!
//! Everything is drawn from a [`crate::result::Record`] alone, so a results folder stays reproducible.

pub mod check;
pub mod compare;
pub mod compared;
pub mod comparison;
pub mod folder;
pub mod html;
pub mod plot;
pub mod scale;
pub mod terminal;
mod verdict;

#[cfg(test)]
pub(crate) mod synthetic;

pub use compare::{compare, Agreement, CompareError};
pub use compared::Comparison;
pub use comparison::comparison;
pub use folder::{read, Folder, FolderError};
