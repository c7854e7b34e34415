//! mega-linux

pub mod scan;
