//! `mega advise`: what huge pages are worth to a program.
//!
//! ```text
//! layout   where memory is and how densely it is used       ┐
//! watch    a program or a process over time: layout, heat,  ├─► verdict (pure) ─► settings, report
//!          faults, processor time                           │
//! compare  whole runs, on base and on huge pages            ┘
//! ```

pub mod compare;
pub mod layout;
pub mod report;
pub mod settings;
pub mod verdict;
pub mod watch;
