//! Clearing accessed bits, so that the next scan tells what was used in between.
//!
//! | module | subject |
//! | --- | --- |
//! | [`turns`] | which regions' bits to clear at a scan, where clearing all of them would stall the program too long |
//! | [`accessed_bits`] | which regions' bits tell about exactly one interval; kept by the host |

pub mod accessed_bits;
pub mod turns;
