//! `mega top`: a live view of services, their processes, and one process's regions.
//!
//! | module | subject |
//! | --- | --- |
//! | [`seen`] | one look: what there is to show |
//! | [`look`] | looking: /proc, page tables within a budget of time, the daemon's status |
//! | [`daemon`] | the daemon's status, as `mega status --json` gives it |
//! | [`figures`] | figures of a process or a service; columns |
//! | [`state`] | what is on the screen: keys and looks change it |
//! | [`view`] | the screen, drawn from the state |
//! | [`once`] | one look as text or JSON, for scripts |
//!
//! State and view are pure: no clock, no I/O.

pub mod daemon;
pub mod figures;
pub mod look;
pub mod once;
pub mod seen;
pub mod state;
pub mod view;
