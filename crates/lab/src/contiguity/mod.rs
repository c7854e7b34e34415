//! Fragmenting memory on purpose, and measuring what that does to the allocation of huge pages.
//!
//! ```text
//!   frag/          fragments memory in this process: takes it, frees parts in a pattern, verifies what it keeps
//!     ├── pattern    which pages are kept, by kind: study, reserve, holes
//!     ├── outcome    its options, result and errors
//!     └── process    the same in a child process, for an experiment: accounted apart, freed when killed
//!   hog/           allocates huge pages to exhaustion and times each
//!     ├── user       by faults, by nr_hugepages, and base pages
//!     ├── kernel     by mega.ko
//!     ├── outcome    limits, allocations, errors
//!     ├── latencies  quantiles and histogram
//!     └── picture    the histogram as a picture
//!   headroom       how much memory may be taken without starving other processes
//!   huge_check     whether a region is mapped by a huge page
//! ```

pub mod frag;
pub mod headroom;
pub mod hog;
mod huge_check;

pub use frag::{Ended, Frag, FragError, FragKind, FragOptions, Fragmenter, Made, Verified};
pub use headroom::{Amount, Room, RoomError};
pub use hog::{BaseCase, Bin, Hog, HogError, HogOptions, HogResult, How, Latencies, ProbeFlags, ProbeOptions, Stopped};
