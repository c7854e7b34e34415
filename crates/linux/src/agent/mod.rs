//! libmega_agent.so as seen from outside: what agents say that they did, and what is kept of that for their programs' next runs.

pub mod done;
pub mod profiles;
