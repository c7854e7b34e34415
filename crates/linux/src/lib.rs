//! mega-linux
