//! mega-lab
