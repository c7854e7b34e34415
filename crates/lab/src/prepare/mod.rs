//! The machine's state around a run: made before it, undone after it.
//!
//! ```text
//!   condition   unfragmented, fragmented=90%, limit=4G, neighbour
//!   group       the control group of a memory limit
//!   hugetlb     hugetlb pages reserved for a run
//!   pool        the prefaulted pool: host-backed memory released as the program takes it
//! ```

pub mod condition;
pub mod group;
pub mod hugetlb;
pub mod pool;

use crate::program::ProgramError;

fn system(doing: &str, source: std::io::Error) -> ProgramError {
    ProgramError::System {
        doing: format!("cannot {doing}"),
        source,
    }
}
