//! How contiguous free memory is, in words.

use mega_core::units::Bytes;
use mega_linux::blocks::fragmentation::Fragmentation;

/// A share with one digit after the point.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The state in a few words.
#[must_use]
pub fn brief(state: &Fragmentation) -> String {
    format!(
        "{} free, {} blocks of 2 MB, {} unusable at order 9",
        Bytes(state.free_bytes),
        state.free_blocks,
        percent(state.unusable_share)
    )
}
