//! Text for people, in eighty columns.

pub use mega_lab::text::wrapped;
