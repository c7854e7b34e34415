//! mega-core
