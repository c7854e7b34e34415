//! libmega_agent.so as seen from outside: how it gets into programs without a loader, what agents say that they did, and what is kept of that
//! for their programs' next runs.

pub mod alone;
pub mod done;
pub mod image;
pub mod inject;
mod patch;
pub mod profiles;
