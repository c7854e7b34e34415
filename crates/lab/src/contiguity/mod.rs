//! Fragmenting memory on purpose, and measuring what that does to the allocation of huge pages.
//!
//! ```text
//!   frag         a fragmenter in this process: takes memory, frees parts of it in a pattern, checks what it keeps
//!     ├── made       what it is told and what it says
//!     ├── pattern    which pages are kept, by kind: study, reserve, holes
//!     ├── room       how much may be taken so that nobody is pushed out of memory
//!     └── obtained   whether a region is mapped by a huge page
//!   fragmenter   the same in a child process, for an experiment: memory accounted apart, killed = freed
//!   hog          takes huge pages until none is left and times each
//!     ├── take       by faults, by nr_hugepages, base pages
//!     ├── spectrum   what is said of the latencies
//!     └── picture    them drawn
//! ```

pub mod frag;
pub mod fragmenter;
pub mod hog;
pub mod made;
mod obtained;
pub mod pattern;
pub mod picture;
mod probe;
pub mod room;
pub mod spectrum;
mod take;

pub use frag::Frag;
pub use fragmenter::Fragmenter;
pub use hog::{BaseCase, Hog, HogError, HogOptions, HogResult, How, Stopped};
pub use made::{Ended, FragError, FragOptions, Made, Verified};
pub use pattern::FragKind;
pub use probe::{ProbeFlags, ProbeOptions};
pub use room::{Amount, Room, RoomError};
pub use spectrum::{Bin, Latencies};
